"""One task of a fine-tuning run, before the first step: its records, the task, its model."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError
from unmask.labels import textcheck
from unmask.labels.fields import RecordSpec, labels_of
from unmask.labels.record_sets import RecordSets, raise_errors
from unmask.labels.records import Record
from unmask.labels.split import split
from unmask.model import hf
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.head_spec import HEADS
from unmask.model.model import Model, with_dependencies
from unmask.objectives.objective import Objective
from unmask.recipe import BUDGETS, Recipe, merge_overrides
from unmask.registry import TASKS
from unmask.runs import augment
from unmask.runs.context import Context
from unmask.runs.data import Cache, read_cached
from unmask.settings import deep_merge
from unmask.tasks import aux_mlm, on_model, teacher
from unmask.tasks import folder as task_folder
from unmask.tasks import objective as task_objective
from unmask.tasks.objective import TaskObjective, objective_of
from unmask.tasks.rows import set_row_weights
from unmask.tasks.task import FitContext, RecordDataset, Task
from unmask.text.tokenizer import Tokenizer
from unmask.train.loader import LengthBucketedLoader, micro_batch_rows
from unmask.train.run import Run

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

MIN_RECORDS_FOR_DEV_SPLIT = 20  # records of a training file from which a dev set is taken
SCRATCH_LR_FACTOR = 5  # times the default learning rate, for a model without pre-training: it has nothing to forget
NUM_TIMED_RECORDS = 16  # dev records that are answered to see how long it takes
SMALL_DATASET_SIZE = 2000  # records below which `train.small_data_batch_size` counts


@dataclass
class Part:
    """A task with its records and its model. A run has one, or several that share an encoder."""

    recipe: Recipe
    task: Task
    model: Model
    sets: RecordSets
    notes: list[str]
    about: str = ""  # the training records in a line
    teacher: "Predictor | None" = None  # opened, until it has taught
    seconds: float | None = None  # of an answer to a dev record, once it was measured

    @property
    def metric(self) -> str:
        """The score that decides which of its models is best."""
        return self.task.spec.metric(self.sets.dev or self.sets.test or self.sets.train)

    def save(self, folder: Path) -> None:
        hf.save(self.model, folder, self.task.tokenizer, dict(self.task.SPEC.config_json))
        task_folder.save_task(self.task, folder)


def make_recipe(values: dict[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """With fine-tuning's own defaults below; a budget that is given replaces theirs, whatever its unit."""
    base, given = Recipe.load_builtin("finetune"), merge_overrides(values, overrides)
    train = given.get("train")
    train = train if isinstance(train, dict) else {}  # what is no mapping is refused below
    if any(train.get(b) is not None for b in BUDGETS):
        base["train"] = {k: v for k, v in base["train"].items() if k not in BUDGETS}
    if train.get("batch_size"):
        base["train"]["small_data_batch_size"] = 0
    return Recipe.build(deep_merge(base, given))


def dev_split_notes(spec: RecordSpec, sets: RecordSets) -> list[str]:
    """What is to be said of the dev set that was taken from the training records."""
    if not sets.dev:
        return ["no dev file, and records that ask the same are not divided: the last model is taken"]
    notes = [f"no dev file: {len(sets.dev):,} of the {len(sets.train) + len(sets.dev):,} records are kept as one"]
    trained, asked = ({label for r in records for label in labels_of(spec, r)} for records in (sets.train, sets.dev))
    if lost := sorted(asked - trained):
        shown = ", ".join(map(repr, lost[:5])) + (" …" if len(lost) > 5 else "")
        notes.append(
            f"all records of {shown} are in the dev set, as equal texts stay together: not learnt; give --dev FILE"
        )
    return notes


def default_learning_rate(hidden: int, frozen: bool) -> float:
    """A learning rate for a model of that width: BERT-base's 5e-5, more for smaller ones, which need and bear it.

    >>> f"{default_learning_rate(768, False):.0e} {default_learning_rate(384, False):.0e} {default_learning_rate(768, True):.0e}"
    '5e-05 1e-04 1e-03'
    """
    return 1e-3 if frozen else 5e-5 * 768 / hidden


def scratch_learning_rate(recipe: Recipe, hidden: int) -> float:
    """The learning rate of the same model without pre-training: the one that was given for both, else a default of its own."""
    return recipe.task.baseline_lr or recipe.train.lr or SCRATCH_LR_FACTOR * default_learning_rate(hidden, frozen=False)


def prepare(
    recipe: Recipe,
    weights: str | Path | None = None,
    task_state: dict[str, Any] | None = None,
    cache: Cache | None = None,
) -> Part:
    """Files, task and model. `weights` and `task_state` are a checkpoint's, when a run goes on; `cache`: what was read before."""
    config = hf.config_of(recipe.init_from)
    spec, sets = read_cached(recipe.task, cache)
    kind = TASKS[spec.name]
    raise_errors(sets.findings)
    kind.check(recipe, config)
    task_objective.check(recipe, kind.SPEC)
    aux_mlm.check(recipe, config, kind.SPEC)
    augment.check(recipe, config, kind.name)
    teacher.check(recipe, kind.SPEC)
    recipe = resolve_settings(recipe, config, kind, sets)
    tokenizer = Tokenizer.load(recipe.init_from, config.vocab_size)
    # Divided by what is learnt from all records, in a run that goes on too.
    whole = kind.fit_state(FitContext(recipe, config, tokenizer), sets.train)
    reads = kind(recipe, tokenizer, whole.task_state).windowing
    sets.findings += textcheck.check_lengths(
        sets.train, spec, tokenizer, reads.length, f"they are {reads.overflow_action()}"
    )
    notes = [] if recipe.task.dev else split_dev(recipe, spec, whole.strata, sets)
    summary = kind.fit_state(
        FitContext(recipe, config, tokenizer, [*sets.dev, *sets.test]), sets.train, whole.task_state
    )
    sets.findings += summary.findings
    raise_errors(summary.findings)
    task = kind(recipe, tokenizer, summary.task_state if task_state is None else task_state)
    task.bind(config)
    trial = task.with_overflow(None)
    if sets.train and not any(trial.encode(record) for record in sets.train):
        raise UserError(
            f"none of the {len(sets.train):,} training records has anything to learn from",
            hint="unmask doctor names the reasons",
        )
    model, about = load_model(recipe, task, config, weights)
    return Part(recipe, task, model, sets, notes + about, summary.description)


def resolve_settings(recipe: Recipe, config: ModelConfig, kind: type[Task], sets: RecordSets) -> Recipe:
    """The recipe with what the model and the files decide."""
    frozen = recipe.task.freeze == "encoder"
    rate = recipe.train.lr or default_learning_rate(config.hidden, frozen)
    max_dev_records = recipe.train.max_eval_examples or kind.SPEC.training.max_dev_records
    train = recipe.train.model_copy(
        update={"lr": rate, "max_eval_examples": max_dev_records, "small_data_batch_size": 0}
    )
    if (
        recipe.train.small_data_batch_size
        and len(sets.train) < SMALL_DATASET_SIZE
        and not kind.SPEC.training.in_batch_negatives
    ):
        train.batch_size = min(train.batch_size, recipe.train.small_data_batch_size)
    decided = {"name": kind.name, "baseline_lr": scratch_learning_rate(recipe, config.hidden)}
    task = (sets.settings or recipe.task).model_copy(update=decided)
    return recipe.model_copy(update={"train": train, "task": task})


def split_dev(recipe: Recipe, spec: RecordSpec, strata: Sequence[str], sets: RecordSets) -> list[str]:
    """Some of the training records become the dev set, where there are enough: what is said of it."""
    if len(sets.train) < MIN_RECORDS_FOR_DEV_SPLIT:
        unjudged = "; nothing to judge --baseline by" if recipe.task.baseline and not sets.test else ""
        few = f"no dev file, and {len(sets.train)} records are too few to keep some back: the last model is taken"
        return [few + unjudged]
    seed = recipe.seed if recipe.task.dev_seed is None else recipe.task.dev_seed
    sets.train, sets.dev = split(spec, sets.train, strata or [""] * len(sets.train), recipe.task.dev_fraction, seed)
    return dev_split_notes(spec, sets)


def load_model(recipe: Recipe, task: Task, config: ModelConfig, weights: str | Path | None) -> tuple[Model, list[str]]:
    """The model with the heads that the task needs, and what is said of it."""
    if any(HEADS[head].labeled for head in task.heads) and not task.bound.config_overrides.get("labels"):
        raise UserError(
            f"the task {task.name} has no labels, and its head {task.heads[0]} has one output per label",
            hint="name them in the spec, Field(…, labels=(…)), or let `fit_state` return them under the key labels",
        )
    notes: list[str] = []
    beside = aux_mlm.extra_heads(recipe)
    heads = (*task.heads, *beside)
    loaded = hf.load(weights or recipe.init_from, heads, {**task.bound.config_overrides, **recipe.model}, recipe.seed)
    own = task.heads[: len(type(task).heads)]  # without a pooler that only the folder's class wants
    read = with_dependencies((*own, *beside))
    new = sorted({name.split(".")[1] for name in loaded.missing} & set(read))
    if new and not weights:
        notes.append(
            f"{recipe.init_from} {describe_missing_head(new, loaded, config, task)}: drawn at random, to be learnt"
        )
    if not weights:
        notes += reuse_head(task, loaded, config, recipe)
    notes += on_model.configure_generation(task, loaded.model) + aux_mlm.describe(recipe)
    if recipe.task.init == "random":
        notes.clear()  # they say what the start model has, which is not used
        if not weights:
            loaded.model.init(recipe.seed)
    if recipe.task.freeze == "encoder":
        loaded.model.freeze()
    return loaded.model, notes


def open_teacher(part: Part, say: Callable[[str], None] = lambda text: None) -> "Predictor | None":
    """The model of --teacher, where one is named; refused where it cannot teach this task."""
    if not part.recipe.task.teacher:
        return None
    from unmask.inference.predictor import load as load_predictor

    known = load_predictor(part.recipe.task.teacher, part.recipe.train.device, say, backend="torch")
    teacher.check_teacher(part.task, known.require_task())
    return known


def describe_missing_head(new: Sequence[str], loaded: hf.Loaded, config: ModelConfig, task: Task) -> str:
    """What a start model has not: a head at all, or one with as many outputs."""
    held = FAMILIES[config.family].architectures.get(str((loaded.settings.get("architectures") or [""])[0]), ())
    count = len(task.bound.config_overrides.get("labels", ()))
    if len(new) == 1 and HEADS[new[0]].labeled and new[0] in held and count != len(config.labels):
        return f"has a {new[0]} head with {len(config.labels):,} labels where {count:,} are needed"
    return f"has no {' and no '.join(new)} for this"


def reuse_head(task: Task, loaded: hf.Loaded, config: ModelConfig, recipe: Recipe) -> list[str]:
    """Keep the start model's head where its outputs mean what the task's do, in the task's order; else draw it anew, and say so."""
    head = next((name for name in task.heads if HEADS[name].labeled), "")
    if not head or any(name.startswith(f"heads.{head}.") for name in loaded.missing):
        return []
    before = task_folder.load_task(loaded.folder, config, (head,), task.tokenizer)
    last: Any = loaded.model.heads[head]
    if before is None or on_model.reuse_head(last.out, before.spec, task.spec):
        return []
    loaded.model.init(recipe.seed, only=[f"heads.{head}.out.weight", f"heads.{head}.out.bias"])
    names = ", ".join(config.labels[:8]) + (", …" if len(config.labels) > 8 else "")
    return [f"the {head} layer of {recipe.init_from} is for something else ({names}): drawn at random, to be learnt"]


# ---------------------------------------------------------------------------------------------------- as it is trained


def build_loader(part: Part, ctx: Context, run: Run | None) -> tuple[LengthBucketedLoader, int]:
    """The rows of a run of one task, under all that is learnt beside it, and the number of its records. Without a folder:
    what needs no other model."""
    records = list(part.sets.train)
    if run:
        records += augment.rows(part.recipe, records, run, ctx.world, ctx.console)
    encoded = [part.task.encode(record) for record in records]
    if run and part.teacher:
        objective: TaskObjective = wrap_with_teacher(part, records, encoded, run, ctx)
    else:
        objective = objective_of(part.task, ctx.world.size)
    return build_train_loader(part, encoded, aux_mlm.add_aux_mlm(objective)), len(records)


def wrap_with_teacher(
    part: Part, records: Sequence[Record], encoded: Sequence[Sequence[Example]], run: Run, ctx: Context
) -> TaskObjective:
    """The task with a teacher's answers beside its labels. The teacher is let go."""
    known, part.teacher = part.teacher, None
    assert known is not None
    theirs = known.require_task()
    run.pin_checksum(f"task.teacher: {part.recipe.task.teacher}", teacher.fingerprint(known.model, theirs), ctx.is_main)
    with ctx.console.bar("teacher") as update:
        return teacher.attach_teacher_logits(part.task, known.model, theirs, records, encoded, update)


def build_train_loader(
    part: Part, encoded: Sequence[Sequence[Example]] | None = None, objective: Objective | None = None
) -> LengthBucketedLoader:
    """The training records as rows; `encoded`: those of each, where they are known."""
    encoded = [part.task.encode(record) for record in part.sets.train] if encoded is None else encoded
    set_row_weights(part.task.SPEC, encoded)
    examples = [e for several in encoded for e in several]
    lengths = [max(len(row) for row in (e, *e.grouped_rows)) for e in examples]
    tokenizer = part.task.tokenizer
    held = [row.input_ids for e in examples for row in (e, *e.grouped_rows)]
    tokens = np.unique(np.concatenate([*held, np.flatnonzero(tokenizer.special)]))  # [MASK] may be put into a row
    rows = RecordDataset(examples, tokenizer.pad)
    return LengthBucketedLoader(
        rows, lengths, part.recipe.train.batch_size, objective or objective_of(part.task), part.recipe.seed, tokens
    )


def training_notes(part: Part, ctx: Context, count: int, gathered: bool = False) -> list[str]:
    """What a person should know before training begins; after the `count` records became rows, which counts long texts."""
    task, out = part.task, list(part.notes)
    batch, size = part.recipe.train.batch_size, ctx.world.size
    together = micro_batch_rows(batch, part.recipe.train.micro_batch_size, size) * (size if gathered else 1)
    out += task.windowing.training_notes(count) + on_model.negatives_notes(task.SPEC, together, batch)
    if len(dev_subset(part)) < len(part.sets.dev):
        out.append(
            f"while training, {len(dev_subset(part)):,} of the {len(part.sets.dev):,} dev records are answered; at the end, all"
        )
    return out


def dev_subset(part: Part) -> list[Record]:
    """The dev records that are answered while training."""
    return part.sets.dev[: part.recipe.train.max_eval_examples]


def seconds_per_prediction(part: Part) -> float:
    """How long the answer to a dev record takes, measured once on some of them."""
    if part.seconds is None:
        some, begun = part.sets.dev[:NUM_TIMED_RECORDS], time.perf_counter()
        if some:
            part.task.predict(part.model, some)
        part.seconds = (time.perf_counter() - begun) / max(1, len(some))
    return part.seconds
