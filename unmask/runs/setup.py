"""What pre-training needs before its first step: stores of its text, model, objective and loader, from a recipe alone."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.console import Console
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import ModelConfig, change, preset
from unmask.model.device import pick_device, use_bf16
from unmask.model.model import Model
from unmask.model.resize import rebuild_with
from unmask.objectives import objective as objectives
from unmask.objectives.objective import Objective, build
from unmask.recipe import Recipe
from unmask.registry import OBJECTIVES
from unmask.runs.corpus_setup import prepare, prepare_replay
from unmask.text.chunks import bert_equivalent_length
from unmask.text.corpus import Corpus
from unmask.text.extend import added_token_subwords
from unmask.text.mix import parse_replay
from unmask.text.store import TokenStore
from unmask.text.token_bytes import token_bytes
from unmask.text.tokenizer import Tokenizer
from unmask.train import checkpoint
from unmask.train.eval_sets import EvalSet, fixed_eval_set, make_eval_set, supports_fixed_masking
from unmask.train.loader import Loader
from unmask.train.replay import ReplaySource, loader
from unmask.train.run import Run
from unmask.train.schedule import Plan, length_schedule


@dataclass
class TrainingSetup:
    """Everything a run needs, made from its recipe and its store alone."""

    recipe: Recipe
    store: TokenStore
    model: Model
    objective: Objective
    loader: Loader
    notes: list[str]
    mixed: Sequence[ReplaySource] = ()

    def heldout(self, p: Plan) -> list[EvalSet]:
        """The held-out rows of the run's own text, of an MLM the same text under the fixed masking, then each mixed text's."""
        phase, store = p.final_phase(), self.store
        stores = [(store, ""), *((other.store, other.part.name) for other in self.mixed)]
        own, *others = [make_eval_set(s, self.recipe, self.objective, phase, self.notes, name) for s, name in stores]
        if supports_fixed_masking(self.objective):
            limit, config = self.recipe.train.max_eval_examples, self.model.config
            others.insert(0, fixed_eval_set(store.heldout, store.tokenizer, config, "mlm", phase.length, limit))
        return [own, *others]

    def rows(self) -> dict[int, int]:
        """Rows in an epoch of the run's own text, those that are mixed in among them, per row length."""
        return {n: self.loader.count(n) for n, _ in length_schedule(self.recipe.train)}

    def save(self, folder: Path) -> None:
        hf.save(self.model, folder, self.store.tokenizer)


def check_length(recipe: Recipe, config: ModelConfig, who: str) -> None:
    longest = max(n for n, _ in length_schedule(recipe.train))
    if longest > config.max_positions:
        raise UserError(
            f"rows of {longest} tokens, but {who} has {config.max_positions} positions",
            expected=f"train.max_length up to {config.max_positions}",
            hint=f"--max-length {config.max_positions}"
            + ("" if recipe.init_from else f", or --set model.max_positions={longest}"),
        )


def with_objective(recipe: Recipe, config: ModelConfig, heads: Iterable[str] = ()) -> Recipe:
    """`auto` replaced by the objectives of a loaded model's heads, or for a new model by the family's own."""
    if recipe.objective != "auto":
        return recipe
    if config.logit_position == "next" and not config.causal:
        raise UserError(
            "this model predicts the next token, and its folder does not say by which objective it learnt to",
            expected="--objective clm, prefix or hybrid to go on so; mlm to begin to learn the other way",
        )
    own = "+".join(name for name in OBJECTIVES.names() if name in set(heads))
    return recipe.model_copy(update={"objective": own or config.default_objective})


def new_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    config = preset(recipe.preset, **{"vocab_size": tokenizer.size, **tokenizer.config_ids(), **recipe.model})
    if config.vocab_size < tokenizer.size:
        raise UserError(
            f"model.vocab_size {config.vocab_size}, but the tokenizer has {tokenizer.size:,} entries",
            hint="leave model.vocab_size out; --vocab-size sets the tokenizer's",
        )
    check_length(recipe, config, recipe.preset)
    return config


def check(recipe: Recipe) -> None:
    """Everything that can be wrong with a recipe, before the text is read, which may take hours."""
    config = hf.config_of(recipe.init_from) if recipe.init_from else preset(recipe.preset)
    config = change(config, **recipe.model)
    check_length(recipe, config, recipe.init_from or recipe.preset)
    objectives.check(with_objective(recipe, config), config)
    for part in parse_replay(recipe.data.replay):
        if not (Path(part.source) / "meta.json").exists():
            Corpus([part.source], recipe.data)
    use_bf16(recipe.train.precision, pick_device(recipe.train.device))


def pair_lengths(recipe: Recipe) -> list[int]:
    """Row lengths for which the objective wants sentence pairs, to be indexed with the text."""
    if recipe.init_from and recipe.objective == "auto":  # its heads decide, which are not looked at yet
        return []
    kinds = objectives.parse(with_objective(recipe, preset(recipe.preset)).objective)
    return [n for n, _ in length_schedule(recipe.train)] if any(kind.rows != "stream" for kind in kinds) else []


def open_replay(recipe: Recipe, folders: Sequence[str]) -> list[ReplaySource]:
    return [
        ReplaySource(part, TokenStore.open(f))
        for part, f in zip(parse_replay(recipe.data.replay), folders, strict=True)
    ]


def set_up(
    recipe: Recipe, store: TokenStore, weights: str | Path | None = None, mixed: Sequence[ReplaySource] = ()
) -> TrainingSetup:
    """`weights`: a model folder to start from (`--from`, or a checkpoint's); without it a new model is drawn."""
    notes = [*store.notes, *(note for other in mixed for note in other.store.notes)]
    tokenizer = store.tokenizer
    if weights:
        found = hf.load(weights)
        words = _added_tokens(recipe, weights, tokenizer)
        check_length(recipe, found.config, str(weights))
        recipe = with_objective(recipe, found.config, found.model.heads)
        config = change(found.config, **recipe.model)
        objective = build(recipe, tokenizer, config)
        config = change(config, logit_position=objective.logit_position)
        model, missing = rebuild_with(found.model, config, objective.heads, words, recipe.seed)
        for head in sorted({name.split(".")[1] for name in missing}):
            notes.append(f"{weights} has no {head} head: a new one was drawn at random")
    else:
        config = new_config(recipe, tokenizer)
        recipe = with_objective(recipe, config)
        objective = build(recipe, tokenizer, config)
        config = change(config, logit_position=objective.logit_position)
        model = Model(config, objective.heads).init(recipe.seed)
    if config.characters:
        model.set_token_bytes(token_bytes(tokenizer))
    notes += objective.check_corpus([store.train, *(other.store.train for other in mixed)])
    if objective.rows != "stream":
        notes += describe_pairs(store, [n for n, _ in length_schedule(recipe.train)])
    return TrainingSetup(recipe, store, model, objective, loader(store, mixed, recipe, objective), notes, mixed)


def _added_tokens(recipe: Recipe, weights: str | Path, tokenizer: Tokenizer) -> dict[int, list[int]]:
    """Ids that the text's tokenizer has beyond the model's, with the ids of their pieces: {} when they are the same."""
    own = Tokenizer.load(weights)
    if own.fingerprint() == tokenizer.fingerprint():
        return {}
    words = added_token_subwords(own, tokenizer) if recipe.tokenizer.num_added_tokens else None
    if words is None:
        raise UserError(
            f"the text was cut with another tokenizer than that of {weights}: its ids mean other words to the model",
            hint="give the text itself and leave out --tokenizer: it is then cut with the model's own",
        )
    return words


def describe_pairs(store: TokenStore, sizes: list[int]) -> list[str]:
    """What sentence pairs make of this text: nothing is left out or cut in silence."""
    counts, out = store.train.counts, []
    for n in sizes:
        indexed = bert_equivalent_length(n, store.tokenizer)
        pairs, cut = len(store.train.chunks(indexed)), store.train.truncated_chunks(indexed)
        out.append(f"sentence pairs of {n} tokens: {pairs:,} an epoch, of which {cut:,} are too long for a row and cut")
    single = counts.get("single_sentence_documents", 0)
    if single:
        out.append(
            f"{single:,} of {counts['documents']:,} documents have one sentence and serve only as false second halves"
        )
    return out


def checksums(recipe: Recipe) -> dict[str, str]:
    """Setting → checksum of the files outside the run that it names (a teacher's, phrases): read whole, once a run."""
    out = {}
    for kind in objectives.parse(recipe.objective):
        for setting, files in kind.external_files(recipe).items():
            sums = [f"{file.name} {checkpoint.checksum(file)}\n" for file in files]
            out[setting] = hashlib.blake2b("".join(sums).encode(), digest_size=16).hexdigest()
    return out


def check_unchanged(recipe: Recipe, known: dict[str, str], run: Path) -> None:
    """A run goes on only with the files that it was begun with; one begun before they were noted is not looked at."""
    changed = [setting for setting, found in checksums(recipe).items() if known.get(setting, found) != found]
    if changed:
        section, _, name = changed[0].partition(".")
        raise UserError(
            f"{changed[0]}: {getattr(getattr(recipe, section), name)} has changed since {run} was begun",
            hint="put back what it was, or a new run: unmask pretrain with another --out",
        )


def data_json(store: TokenStore, mixed: Sequence[ReplaySource]) -> dict[str, Any]:
    """data.json of a run: what is known of its text, and where the stores are."""
    others = [
        {"name": m.part.name, "source": m.part.source, "share": float(m.part.share), "fingerprint": m.store.meta["key"],
         "store": str(m.store.path.resolve()), "train": m.store.meta["train"], "heldout": m.store.meta["heldout"]}
        for m in mixed
    ]  # fmt: skip
    meta = {"fingerprint" if name == "key" else name: value for name, value in store.meta.items()}
    return meta | {"store": str(store.path.resolve())} | ({"mix": others} if others else {})


def locate_stores(run: Run, recipe: Recipe, console: Console) -> list[str]:
    """The run's own stores; made again when the cache was pruned, and refused when a text or a teacher has changed."""
    meta = run.read_json("data.json")
    check_unchanged(recipe, meta.get("files", {}), run.path)
    known = [meta, *meta.get("mix", [])]
    folders = [m["store"] for m in known]
    if not all((Path(folder) / "meta.json").exists() for folder in folders):
        console.say("a token store is gone from the cache: preparing it again")
        store = prepare(recipe, console)
        folders = [str(store.path), *prepare_replay(recipe, store.tokenizer, (), console)]
    if [TokenStore.open(folder).meta["key"] for folder in folders] != [m["fingerprint"] for m in known]:
        raise UserError(
            f"the text of {run.path} has changed since it was begun",
            hint="a new run: unmask pretrain with another --out",
        )
    return folders
