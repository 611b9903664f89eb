"""Setup of a pre-training run: model, objective, loader and evaluation sets from a recipe and its token stores."""

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
from unmask.train.replay import ReplaySource, build_loader
from unmask.train.run import Run
from unmask.train.schedule import Plan, length_schedule


@dataclass
class TrainingSetup:
    """Everything a pre-training run needs, built from its recipe and its stores alone."""

    recipe: Recipe
    store: TokenStore
    model: Model
    objective: Objective
    loader: Loader
    notes: list[str]
    replay: Sequence[ReplaySource] = ()

    def eval_sets(self, plan: Plan) -> list[EvalSet]:
        """Return the validation rows of the corpus, for an MLM also under the fixed masking, and of each replay corpus."""
        step_config, store = plan.final_step_config(), self.store
        stores = [(store, ""), *((source.store, source.part.name) for source in self.replay)]
        main, *others = [
            make_eval_set(s, self.recipe, self.objective, step_config, self.notes, name) for s, name in stores
        ]
        if supports_fixed_masking(self.objective):
            limit, config = self.recipe.train.max_eval_examples, self.model.config
            others.insert(0, fixed_eval_set(store.heldout, store.tokenizer, config, "mlm", step_config.length, limit))
        return [main, *others]

    def rows(self) -> dict[int, int]:
        """Return the rows per epoch by row length, including replayed rows."""
        return {n: self.loader.count(n) for n, _ in length_schedule(self.recipe.train)}

    def save(self, folder: Path) -> None:
        hf.save(self.model, folder, self.store.tokenizer)


def check_length(recipe: Recipe, config: ModelConfig, model_name: str) -> None:
    max_length = max(n for n, _ in length_schedule(recipe.train))
    if max_length > config.max_positions:
        raise UserError(
            f"train.max_length is {max_length}, but {model_name} has {config.max_positions} positions",
            expected=f"train.max_length up to {config.max_positions}",
            hint=f"use --max-length {config.max_positions}"
            + ("" if recipe.init_from else f", or --set model.max_positions={max_length}"),
        )


def with_objective(recipe: Recipe, config: ModelConfig, heads: Iterable[str] = ()) -> Recipe:
    """Replace objective `auto` by the objectives of a loaded model's heads, or by the default of the model family."""
    if recipe.objective != "auto":
        return recipe
    if config.logit_position == "next" and not config.causal:
        raise UserError(
            "this model predicts the next token, but its folder does not name the objective it was trained with",
            expected="--objective clm, prefix or hybrid to continue next-token prediction; mlm to switch to masked tokens",
        )
    trained = "+".join(name for name in OBJECTIVES.names() if name in set(heads))
    return recipe.model_copy(update={"objective": trained or config.default_objective})


def new_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    config = preset(recipe.preset, **{"vocab_size": tokenizer.size, **tokenizer.config_ids(), **recipe.model})
    if config.vocab_size < tokenizer.size:
        raise UserError(
            f"model.vocab_size is {config.vocab_size}, but the tokenizer has {tokenizer.size:,} tokens",
            hint="remove model.vocab_size; use --vocab-size to set the size of the tokenizer",
        )
    check_length(recipe, config, recipe.preset)
    return config


def check(recipe: Recipe) -> None:
    """Raise a UserError for an invalid recipe before the corpus is read, which may take hours."""
    config = hf.config_of(recipe.init_from) if recipe.init_from else preset(recipe.preset)
    config = change(config, **recipe.model)
    check_length(recipe, config, recipe.init_from or recipe.preset)
    objectives.check(with_objective(recipe, config), config)
    for part in parse_replay(recipe.data.replay):
        if not (Path(part.source) / "meta.json").exists():
            Corpus([part.source], recipe.data)
    use_bf16(recipe.train.precision, pick_device(recipe.train.device))


def pair_lengths(recipe: Recipe) -> list[int]:
    """Return the row lengths for which the objective needs sentence pairs, which are indexed with the corpus."""
    if recipe.init_from and recipe.objective == "auto":  # depends on the model's heads, which are not loaded yet
        return []
    kinds = objectives.parse(with_objective(recipe, preset(recipe.preset)).objective)
    return [n for n, _ in length_schedule(recipe.train)] if any(kind.rows != "stream" for kind in kinds) else []


def open_replay(recipe: Recipe, folders: Sequence[str]) -> list[ReplaySource]:
    return [
        ReplaySource(part, TokenStore.open(f))
        for part, f in zip(parse_replay(recipe.data.replay), folders, strict=True)
    ]


def set_up(
    recipe: Recipe, store: TokenStore, weights: str | Path | None = None, replay: Sequence[ReplaySource] = ()
) -> TrainingSetup:
    """Build the setup of a run. `weights`: the model folder of `--from` or of a checkpoint; None: a new model."""
    notes = [*store.notes, *(note for source in replay for note in source.store.notes)]
    tokenizer = store.tokenizer
    if weights:
        loaded = hf.load(weights)
        added_tokens = _added_tokens(recipe, weights, tokenizer)
        check_length(recipe, loaded.config, str(weights))
        recipe = with_objective(recipe, loaded.config, loaded.model.heads)
        config = change(loaded.config, **recipe.model)
        objective = build(recipe, tokenizer, config)
        config = change(config, logit_position=objective.logit_position)
        model, missing = rebuild_with(loaded.model, config, objective.heads, added_tokens, recipe.seed)
        for head in sorted({name.split(".")[1] for name in missing}):
            notes.append(f"{weights} has no {head} head: a new one is initialized randomly")
    else:
        config = new_config(recipe, tokenizer)
        recipe = with_objective(recipe, config)
        objective = build(recipe, tokenizer, config)
        config = change(config, logit_position=objective.logit_position)
        model = Model(config, objective.heads).init(recipe.seed)
    if config.characters:
        model.set_token_bytes(token_bytes(tokenizer))
    notes += objective.check_corpus([store.train, *(source.store.train for source in replay)])
    if objective.rows != "stream":
        notes += describe_pairs(store, [n for n, _ in length_schedule(recipe.train)])
    return TrainingSetup(recipe, store, model, objective, build_loader(store, replay, recipe, objective), notes, replay)


def _added_tokens(recipe: Recipe, weights: str | Path, tokenizer: Tokenizer) -> dict[int, list[int]]:
    """Return the ids that the corpus tokenizer has and the model's does not, with the ids of their subwords."""
    model_tokenizer = Tokenizer.load(weights)
    if model_tokenizer.fingerprint() == tokenizer.fingerprint():
        return {}
    added = added_token_subwords(model_tokenizer, tokenizer) if recipe.tokenizer.num_added_tokens else None
    if added is None:
        raise UserError(
            f"the corpus was tokenized with a different tokenizer than {weights}",
            hint="give the text instead of a store and remove --tokenizer, so that the model's tokenizer is used",
        )
    return added


def describe_pairs(store: TokenStore, lengths: list[int]) -> list[str]:
    """Return notes on the sentence pairs of a corpus: how many there are, and how many are truncated."""
    counts, notes = store.train.counts, []
    for n in lengths:
        indexed = bert_equivalent_length(n, store.tokenizer)
        pairs, truncated = len(store.train.chunks(indexed)), store.train.truncated_chunks(indexed)
        notes.append(
            f"sentence pairs of {n} tokens: {pairs:,} per epoch, of which {truncated:,} are too long and truncated"
        )
    single = counts.get("single_sentence_documents", 0)
    if single:
        notes.append(
            f"{single:,} of {counts['documents']:,} documents have one sentence and are used only as negative second segments"
        )
    return notes


def checksums(recipe: Recipe) -> dict[str, str]:
    """Return setting → checksum of the external files that it names, such as a teacher or a phrase list."""
    result = {}
    for kind in objectives.parse(recipe.objective):
        for setting, files in kind.external_files(recipe).items():
            sums = [f"{file.name} {checkpoint.checksum(file)}\n" for file in files]
            result[setting] = hashlib.blake2b("".join(sums).encode(), digest_size=16).hexdigest()
    return result


def check_unchanged(recipe: Recipe, recorded: dict[str, str], run: Path) -> None:
    """Raise a UserError if an external file differs from the recorded checksum. Old runs recorded none."""
    changed = [setting for setting, value in checksums(recipe).items() if recorded.get(setting, value) != value]
    if changed:
        section, _, name = changed[0].partition(".")
        raise UserError(
            f"{changed[0]}: {getattr(getattr(recipe, section), name)} has changed since the run {run} started",
            hint="restore the original, or start a new run with unmask pretrain and a different --out",
        )


def data_json(store: TokenStore, replay: Sequence[ReplaySource]) -> dict[str, Any]:
    """Return data.json of a run: the counts of its corpora and the paths of their stores."""
    replayed = [
        {"name": m.part.name, "source": m.part.source, "share": float(m.part.share), "fingerprint": m.store.meta["key"],
         "store": str(m.store.path.resolve()), "train": m.store.meta["train"], "heldout": m.store.meta["heldout"]}
        for m in replay
    ]  # fmt: skip
    meta = {"fingerprint" if name == "key" else name: value for name, value in store.meta.items()}
    return meta | {"store": str(store.path.resolve())} | ({"mix": replayed} if replayed else {})


def locate_stores(run: Run, recipe: Recipe, console: Console) -> list[str]:
    """Return the folders of the run's stores. Rebuild deleted ones; raise a UserError if a corpus or teacher has changed."""
    meta = run.read_json("data.json")
    check_unchanged(recipe, meta.get("files", {}), run.path)
    recorded = [meta, *meta.get("mix", [])]
    folders = [m["store"] for m in recorded]
    if not all((Path(folder) / "meta.json").exists() for folder in folders):
        console.say("a tokenized corpus is no longer in the cache; rebuilding it")
        store = prepare(recipe, console)
        folders = [str(store.path), *prepare_replay(recipe, store.tokenizer, (), console)]
    if [TokenStore.open(folder).meta["key"] for folder in folders] != [m["fingerprint"] for m in recorded]:
        raise UserError(
            f"the corpus of {run.path} has changed since the run started",
            hint="start a new run with unmask pretrain and a different --out",
        )
    return folders
