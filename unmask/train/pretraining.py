"""From a store and a recipe to a trained model: the pieces put together, the budget turned into steps.

Kept apart from `api.py`, which finds the text and prints, so that a resumed run goes through the same door with a store
and a recipe that are already there.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unmask.batch import Batch
from unmask.data.rows import Rows
from unmask.data.store import TokenStore
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import ModelConfig, preset
from unmask.model.model import Model
from unmask.objectives.objective import Objective, build
from unmask.recipe import Recipe
from unmask.registry import OBJECTIVES
from unmask.train import checkpoint
from unmask.train.distributed import World
from unmask.train.fit import fit
from unmask.train.health import Health, text_warnings
from unmask.train.loader import Loader
from unmask.train.log import Console
from unmask.train.run import Run
from unmask.train.schedule import Plan, lengths, plan
from unmask.train.trainer import Trainer, pick_device, seconds_per_step, use_bf16

EVAL_BATCH = 32  # rows


@dataclass(frozen=True)
class Heldout:
    objective: Objective
    batches: list[Batch]


@dataclass
class Setup:
    """Everything a run needs, made from its recipe and its store alone."""

    recipe: Recipe
    store: TokenStore
    model: Model
    objective: Objective
    loader: Loader
    notes: list[str]

    def heldout(self, p: Plan) -> Heldout:
        """The held-out rows, masked once and for all at the last rate of the schedule.

        Pairs need two documents; held-out text that has one still serves the objective's MLM part.
        """
        if not len(self.store.heldout.tokens):
            return Heldout(self.objective, [])
        objective, phase = self.objective, p.final_phase()
        try:
            rows = Rows(self.store.heldout, self.store.tokenizer, self.recipe.seed, objective.rows)
            count = rows.count(phase.length)
        except UserError as error:
            if "mlm" not in objective.terms:
                self._note(f"no held-out evaluation: {error.got}")
                return Heldout(objective, [])
            self._note(
                "held-out evaluation of mlm alone: the held-out text has no pairs of sentences from two documents"
            )
            objective = build(self.recipe.model_copy(update={"objective": "mlm"}), self.store.tokenizer)
            rows = Rows(self.store.heldout, self.store.tokenizer, self.recipe.seed, objective.rows)
            count = rows.count(phase.length)
        count = min(count, self.recipe.train.eval_rows)
        loader = Loader(rows, objective, self.recipe.seed)
        ends = [(a, min(a + EVAL_BATCH, count)) for a in range(0, count, EVAL_BATCH)]
        return Heldout(objective, [loader.batch(*end, phase) for end in ends])

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

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
    own = "+".join(name for name in OBJECTIVES.names() if name in set(heads))
    return recipe.model_copy(update={"objective": own or config.default_objective})


def new_config(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    ids = {"pad_id": tokenizer.pad, "cls_id": tokenizer.cls, "sep_id": tokenizer.sep}
    config = preset(recipe.preset, **{"vocab_size": tokenizer.size, **ids, **recipe.model})
    if config.vocab_size < tokenizer.size:
        raise UserError(
            f"model.vocab_size {config.vocab_size}, but the tokenizer has {tokenizer.size:,} entries",
            fix="leave model.vocab_size out; --vocab-size sets the tokenizer's",
        )
    check_length(recipe, config, recipe.preset)
    return config


def check(recipe: Recipe) -> None:
    """Everything that can be wrong with a recipe, before the text is read, which may take hours."""
    if recipe.start:
        config = hf.load(recipe.start, heads=()).config
    else:
        config = preset(recipe.preset, **recipe.model)
    check_length(recipe, config, recipe.start or recipe.preset)
    for name in with_objective(recipe, config).objective.split("+"):
        OBJECTIVES[name]
    use_bf16(recipe.train.precision, pick_device(recipe.train.device))


def set_up(recipe: Recipe, store: TokenStore, weights: str | Path | None = None) -> Setup:
    """`weights`: a model folder to start from (`--from`, or a checkpoint's); without it a new model is drawn."""
    notes: list[str] = []
    tokenizer = store.tokenizer
    if weights:
        found = hf.load(weights)
        if Tokenizer.load(weights).fingerprint() != tokenizer.fingerprint():
            raise UserError(
                f"the text was cut with another tokenizer than that of {weights}: its ids mean other words to the model",
                fix="give the text itself and leave out --tokenizer: it is then cut with the model's own",
            )
        check_length(recipe, found.config, str(weights))
        recipe = with_objective(recipe, found.config, found.model.heads)
        objective = build(recipe, tokenizer)
        loaded = hf.load(weights, heads=objective.heads, changes=recipe.model, seed=recipe.seed)
        model = loaded.model
        for head in sorted({name.split(".")[1] for name in loaded.missing}):
            notes.append(f"{weights} has no {head} head: a new one was drawn at random")
    else:
        config = new_config(recipe, tokenizer)
        recipe = with_objective(recipe, config)
        objective = build(recipe, tokenizer)
        model = Model(config, objective.heads).init(recipe.seed)
    rows = Rows(store.train, tokenizer, recipe.seed, objective.rows)
    if objective.rows == "pairs":
        notes += describe_pairs(store, [n for n, _ in lengths(recipe.train)])
    return Setup(recipe, store, model, objective, Loader(rows, objective, recipe.seed), notes)


def describe_pairs(store: TokenStore, sizes: list[int]) -> list[str]:
    """What sentence pairs make of this text: nothing is left out or cut in silence."""
    counts, out = store.train.counts, []
    for n in sizes:
        pairs, cut = len(store.train.chunks(n)), store.train.truncated_chunks(n)
        out.append(f"sentence pairs of {n} tokens: {pairs:,} an epoch, of which {cut:,} are too long for a row and cut")
    single = counts.get("single_sentence_documents", 0)
    if single:
        out.append(
            f"{single:,} of {counts['documents']:,} documents have one sentence and serve only as false second halves"
        )
    return out


def make_plan(setup: Setup, world: World, console: Console) -> Plan:
    """The budget as steps; minutes are measured on this machine, on the weights' copies."""
    train = setup.recipe.train
    rows_of = {n: setup.loader.rows.count(n) for n, _ in lengths(train)}
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
        {n: setup.loader.rows.count(n) for n, _ in lengths(train)},
    )
    trainer = Trainer(setup.model, setup.objective, train, rough, setup.recipe.seed, world)
    seconds_of = {}
    for stretch in rough.stretches:
        seconds_of[stretch.length] = seconds_per_step(trainer, setup.loader, rough.phase(stretch.start))
    heldout = setup.heldout(rough)
    begun = time.perf_counter()
    trainer.evaluate(heldout.batches[:1], heldout.objective)
    evaluation = (time.perf_counter() - begun) * len(heldout.batches)
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
    trainer = Trainer(setup.model, setup.objective, recipe.train, p, recipe.seed, world)
    heldout = setup.heldout(p)
    for text in setup.notes:
        console.say(text)
    for text in text_warnings(store.meta):
        console.warn(text)
    health = Health(store.meta["unigram_entropy"], p.steps) if world.main else None
    state = fit(run, trainer, setup.loader, heldout.batches, setup.save, console, health, resume, heldout.objective)
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


def memory(config: ModelConfig, parameters: int, recipe: Recipe) -> dict[str, int]:
    """Bytes expected, roughly: weights, gradients, optimizer state, and activations of one micro-batch."""
    train = recipe.train
    longest = max(n for n, _ in lengths(train))
    rows = train.micro_batch or train.batch
    tokens = rows * longest
    wide = config.intermediate * (3 if config.gated else 2)
    per_token = (
        config.layers * (10 * config.hidden + wide)
        if not train.activation_checkpointing
        else (config.layers * config.hidden + 10 * config.hidden + wide)
    )
    attention = 0 if config.attention_dropout == 0 else config.layers * config.heads * longest
    rate = max(float(x) for x in str(recipe.mlm.rate).split(":"))
    logits = int(3 * tokens * rate) * config.vocab_size
    return {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "activations": 4 * (tokens * (per_token + attention) + logits),
    }
