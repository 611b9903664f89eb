"""From a store and a recipe to a trained model: the pieces put together, the budget turned into steps.

Kept apart from `api.py`, which finds the text and prints, so that a resumed run goes through the same door with a store
and a recipe that are already there.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unmask.console import Console
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import ModelConfig, change, preset
from unmask.model.device import pick_device, use_bf16
from unmask.model.grow import remake
from unmask.model.model import Model
from unmask.objectives import objective as objectives
from unmask.objectives.objective import Objective, build
from unmask.recipe import Recipe
from unmask.registry import OBJECTIVES
from unmask.text.chunks import as_berts
from unmask.text.corpus import Corpus
from unmask.text.extend import new_pieces
from unmask.text.mix import parts
from unmask.text.store import TokenStore
from unmask.text.token_bytes import spellings
from unmask.text.tokenizer import Tokenizer
from unmask.train import checkpoint
from unmask.train.distributed import World
from unmask.train.embedding_init import warm
from unmask.train.fit import Evaluation, fit
from unmask.train.health import Health, off_the_plateau, text_warnings
from unmask.train.heldout import Heldout, has_fixed, heldout, measure_all, running
from unmask.train.loader import Loader
from unmask.train.mix import Mixed, loader
from unmask.train.run import Run
from unmask.train.schedule import Plan, lengths, plan
from unmask.train.trainer import Trainer, seconds_per_step


@dataclass
class Setup:
    """Everything a run needs, made from its recipe and its store alone."""

    recipe: Recipe
    store: TokenStore
    model: Model
    objective: Objective
    loader: Loader
    notes: list[str]
    mixed: Sequence[Mixed] = ()

    def heldout(self, p: Plan) -> list[Heldout]:
        """The held-out rows of the run's own text, of an MLM the same text under the fixed masking, then each mixed text's."""
        phase, store = p.final_phase(), self.store
        stores = [(store, ""), *((other.store, other.part.name) for other in self.mixed)]
        own, *others = [heldout(s, self.recipe, self.objective, phase, self.notes, name) for s, name in stores]
        if has_fixed(self.objective):
            limit, config = self.recipe.train.eval_rows, self.model.config
            others.insert(0, running(store.heldout, store.tokenizer, config, "mlm", phase.length, limit))
        return [own, *others]

    def rows_of(self) -> dict[int, int]:
        """Rows in an epoch of the run's own text, those that are mixed in among them, per row length."""
        return {n: self.loader.count(n) for n, _ in lengths(self.recipe.train)}

    def save(self, folder: Path) -> None:
        hf.save(self.model, folder, self.store.tokenizer)


def check_length(recipe: Recipe, config: ModelConfig, who: str) -> None:
    longest = max(n for n, _ in lengths(recipe.train))
    if longest > config.max_positions:
        raise UserError(
            f"rows of {longest} tokens, but {who} has {config.max_positions} positions",
            valid=f"train.length up to {config.max_positions}",
            fix=f"--length {config.max_positions}"
            + ("" if recipe.start else f", or --set model.max_positions={longest}"),
        )


def with_objective(recipe: Recipe, config: ModelConfig, heads: Iterable[str] = ()) -> Recipe:
    """`auto` replaced by the objectives of a loaded model's heads, or for a new model by the family's own."""
    if recipe.objective != "auto":
        return recipe
    if config.predicts == "next" and not config.causal:
        raise UserError(
            "this model predicts the next token, and its folder does not say by which objective it learnt to",
            valid="--objective clm, prefix or hybrid to go on so; mlm to begin to learn the other way",
        )
    own = "+".join(name for name in OBJECTIVES.names() if name in set(heads))
    return recipe.model_copy(update={"objective": own or config.default_objective})


def new_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    config = preset(recipe.preset, **{"vocab_size": tokenizer.size, **tokenizer.config_ids(), **recipe.model})
    if config.vocab_size < tokenizer.size:
        raise UserError(
            f"model.vocab_size {config.vocab_size}, but the tokenizer has {tokenizer.size:,} entries",
            fix="leave model.vocab_size out; --vocab-size sets the tokenizer's",
        )
    check_length(recipe, config, recipe.preset)
    return config


def check(recipe: Recipe) -> None:
    """Everything that can be wrong with a recipe, before the text is read, which may take hours."""
    config = hf.config_of(recipe.start) if recipe.start else preset(recipe.preset)
    config = change(config, **recipe.model)
    check_length(recipe, config, recipe.start or recipe.preset)
    objectives.check(with_objective(recipe, config), config)
    for part in parts(recipe.data.mix):
        if not (Path(part.source) / "meta.json").exists():
            Corpus([part.source], recipe.data)
    use_bf16(recipe.train.precision, pick_device(recipe.train.device))


def pair_lengths(recipe: Recipe) -> list[int]:
    """Row lengths for which the objective wants sentence pairs, to be indexed with the text."""
    if recipe.start and recipe.objective == "auto":  # its heads decide, which are not looked at yet
        return []
    kinds = objectives.parse(with_objective(recipe, preset(recipe.preset)).objective)
    return [n for n, _ in lengths(recipe.train)] if any(kind.rows != "stream" for kind in kinds) else []


def open_mix(recipe: Recipe, folders: Sequence[str]) -> list[Mixed]:
    return [Mixed(part, TokenStore.open(f)) for part, f in zip(parts(recipe.data.mix), folders, strict=True)]


def set_up(recipe: Recipe, store: TokenStore, weights: str | Path | None = None, mixed: Sequence[Mixed] = ()) -> Setup:
    """`weights`: a model folder to start from (`--from`, or a checkpoint's); without it a new model is drawn."""
    notes = [*store.notes, *(note for other in mixed for note in other.store.notes)]
    tokenizer = store.tokenizer
    if weights:
        found = hf.load(weights)
        words = _new_words(recipe, weights, tokenizer)
        check_length(recipe, found.config, str(weights))
        recipe = with_objective(recipe, found.config, found.model.heads)
        config = change(found.config, **recipe.model)
        objective = build(recipe, tokenizer, config)
        config = change(config, predicts=objective.predicts)
        model, missing = remake(found.model, config, objective.heads, words, recipe.seed)
        for head in sorted({name.split(".")[1] for name in missing}):
            notes.append(f"{weights} has no {head} head: a new one was drawn at random")
    else:
        config = new_config(recipe, tokenizer)
        recipe = with_objective(recipe, config)
        objective = build(recipe, tokenizer, config)
        config = change(config, predicts=objective.predicts)
        model = Model(config, objective.heads).init(recipe.seed)
    if config.characters:
        model.spell(spellings(tokenizer))
    notes += objective.look([store.train, *(other.store.train for other in mixed)])
    if objective.rows != "stream":
        notes += describe_pairs(store, [n for n, _ in lengths(recipe.train)])
    return Setup(recipe, store, model, objective, loader(store, mixed, recipe, objective), notes, mixed)


def _new_words(recipe: Recipe, weights: str | Path, tokenizer: Tokenizer) -> dict[int, list[int]]:
    """Ids that the text's tokenizer has beyond the model's, with the ids of their pieces: {} when they are the same."""
    own = Tokenizer.load(weights)
    if own.fingerprint() == tokenizer.fingerprint():
        return {}
    words = new_pieces(own, tokenizer) if recipe.tokenizer.extend else None
    if words is None:
        raise UserError(
            f"the text was cut with another tokenizer than that of {weights}: its ids mean other words to the model",
            fix="give the text itself and leave out --tokenizer: it is then cut with the model's own",
        )
    return words


def describe_pairs(store: TokenStore, sizes: list[int]) -> list[str]:
    """What sentence pairs make of this text: nothing is left out or cut in silence."""
    counts, out = store.train.counts, []
    for n in sizes:
        indexed = as_berts(n, store.tokenizer)
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
        for setting, files in kind.files(recipe).items():
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
            fix="put back what it was, or a new run: unmask pretrain with another --out",
        )


def make_plan(setup: Setup, world: World, console: Console) -> Plan:
    """The budget as steps; minutes are measured on this machine, on the weights' copies."""
    train = setup.recipe.train
    rows_of = setup.rows_of()
    if train.minutes is None:
        return plan(setup.recipe, rows_of)
    console.say("measuring the speed of this machine …")
    seconds_of, evaluation = measure(setup, world)
    seconds_of, evaluation = world.share((seconds_of, evaluation))
    spent = train.evaluations * evaluation
    left = max(train.minutes * 60 - spent, 0.5 * train.minutes * 60)
    scaled = setup.recipe.model_copy(update={"train": train.model_copy(update={"minutes": left / 60})})
    return plan(scaled, rows_of, seconds_of)


def measure(setup: Setup, world: World) -> tuple[dict[int, float], float]:
    """Seconds a step per row length, and seconds an evaluation. The weights are put back as they were."""
    train = setup.recipe.train
    kept = {k: v.clone() for k, v in setup.model.state_dict().items()}
    rough = plan(
        setup.recipe.model_copy(update={"train": train.model_copy(update={"minutes": None, "steps": 10})}),
        setup.rows_of(),
    )
    trainer = Trainer(setup.model, setup.objective, train, rough, setup.recipe.seed, world)
    seconds_of = {}
    for stretch in rough.stretches:
        seconds_of[stretch.length] = seconds_per_step(trainer, setup.loader, rough.phase(stretch.start))
    tracks = setup.heldout(rough)
    begun = time.perf_counter()
    trainer.evaluate(tracks[0].batches[:1], tracks[0].objective)
    evaluation = (time.perf_counter() - begun) * sum(len(track.batches) for track in tracks)
    setup.model.load_state_dict(kept)
    return seconds_of, evaluation


def resolve(recipe: Recipe, p: Plan) -> Recipe:
    """The recipe with the budget frozen: the same number of steps wherever it is run again."""
    shares = ",".join(f"{s.length}:{s.steps / p.steps:.9g}" for s in p.stretches)
    length = shares if len(p.stretches) > 1 else p.stretches[0].length
    if recipe.train.minutes is None:
        return recipe
    frozen = recipe.train.model_copy(update={"minutes": None, "steps": p.steps, "length": length})
    return recipe.model_copy(update={"train": frozen})


def pretrain(
    setup: Setup, p: Plan, run: Run, world: World, console: Console, resume: checkpoint.Checkpoint | None = None
) -> dict[str, Any]:
    """Train `setup.model` in `run`; the final state."""
    recipe, store = setup.recipe, setup.store
    if recipe.train.compile != "off":
        _compile(setup.model, recipe.train.compile, p, console)
    first = [] if resume or recipe.start else setup.objective.begin(setup.model)
    for text in first:
        console.say(text)
    counted = recipe.train.embeddings == "counted" and setup.model.config.encoder == "transformer"
    if counted and resume is None and not recipe.start and not first:
        begun = time.perf_counter()
        if world.main:
            warm(setup.model, store, recipe.seed)
        console.say(f"first token vectors counted from the text in {time.perf_counter() - begun:.0f} s")
    world.copy_weights(setup.model)
    trainer = Trainer(setup.model, setup.objective, recipe.train, p, recipe.seed, world)
    tracks = [track for track in setup.heldout(p) if track.batches]
    evaluation = Evaluation(lambda: measure_all(trainer, tracks)) if tracks else None
    for text in setup.notes:
        console.say(text)
    for text in text_warnings(store.meta):
        console.warn(text)
    advice = off_the_plateau(recipe.train, setup.model.config, new=not recipe.start)
    health = Health(store.meta["unigram_entropy"], p.steps, advice) if world.main else None
    state = fit(run, trainer, setup.loader, evaluation, setup.save, console, health, resume)
    if world.main:
        checkpoint.write_folder(run.model, setup.save)
    world.barrier()
    return state


def _compile(model: Model, mode: str, p: Plan, console: Console) -> None:
    """torch.compile needs a C++ compiler on a CPU, and about half a minute: only for runs that earn it back."""
    import shutil

    able = torch.cuda.is_available() or shutil.which("c++") or shutil.which("g++")
    if not able and mode == "on":
        raise UserError(
            "train.compile=on, but no C++ compiler was found", fix="apt-get install g++, or train.compile=off"
        )
    if able and (mode == "on" or p.steps >= 2000):
        console.say("compiling the encoder (once, about half a minute) …")
        model.encoder.compile()
