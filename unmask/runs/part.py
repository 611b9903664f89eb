"""One task of a fine-tuning run, before the first step: its records, the task, its model."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from unmask.recipe import Recipe, merge_overrides
from unmask.registry import TASKS
from unmask.runs import augment
from unmask.runs.context import Context
from unmask.runs.data import Cache, read_cached
from unmask.runs.start_model import resolve_task, resolve_train, scratch_learning_rate
from unmask.settings import deep_merge
from unmask.tasks import aux_mlm, blend, on_model, teacher
from unmask.tasks import folder as task_folder
from unmask.tasks import objective as task_objective
from unmask.tasks.objective import TaskObjective, objective_of
from unmask.tasks.prediction_file import SUFFIX, PredictionFile
from unmask.tasks.rows import set_row_weights
from unmask.tasks.task import FitContext, RecordDataset, Task
from unmask.text.tokenizer import Tokenizer
from unmask.train.loader import LengthBucketedLoader, micro_batch_rows
from unmask.train.run import Run

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

MIN_RECORDS_FOR_DEV_SPLIT = 20  # smaller training files are not split
NUM_TIMED_RECORDS = 16  # dev records that are predicted to measure the time of a prediction
SMALL_DATASET_SIZE = 2000  # with fewer records, `train.small_data_batch_size` applies


@dataclass
class Part:
    """A task with its records and its model. A run has one part, or several that share an encoder."""

    recipe: Recipe
    task: Task
    model: Model
    sets: RecordSets
    notes: list[str]
    description: str = ""  # of the training records, in one line
    unlabeled: list[str] = field(default_factory=list)  # texts for self-training
    teacher: "Predictor | PredictionFile | None" = None  # released once its logits are computed
    seconds: float | None = None  # per prediction of a dev record, once measured

    @property
    def metric(self) -> str:
        """The metric that selects the best checkpoint."""
        return self.task.spec.metric(self.sets.dev or self.sets.test or self.sets.train)

    def fingerprint(self) -> str:
        """Hash everything that training reads."""
        hashes = [self.sets.fingerprint()]
        if self.unlabeled:
            hashes.append(hashlib.sha256("\0".join(self.unlabeled).encode("utf-8", "surrogatepass")).hexdigest())
        return " ".join(hashes)

    def save(self, folder: Path) -> None:
        hf.save(self.model, folder, self.task.tokenizer, dict(self.task.SPEC.config_json))
        task_folder.save_task(self.task, folder)


def make_recipe(values: dict[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """Build a recipe on top of the defaults of fine-tuning."""
    defaults, values = Recipe.load_builtin("finetune"), merge_overrides(values, overrides)
    train = values.get("train")
    train = train if isinstance(train, dict) else {}  # Recipe.build rejects anything else
    if train.get("batch_size"):
        defaults["train"]["small_data_batch_size"] = 0
    return Recipe.build(deep_merge(defaults, values))


def dev_split_notes(spec: RecordSpec, sets: RecordSets) -> list[str]:
    """Return notes about the dev set that was split off the training records."""
    if not sets.dev:
        return ["no --dev file, and the records cannot be split without leakage: the last checkpoint is kept"]
    notes = [
        f"no --dev file: {len(sets.dev):,} of {len(sets.train) + len(sets.dev):,} records are held out for validation"
    ]
    train_labels, dev_labels = ({x for r in records for x in labels_of(spec, r)} for records in (sets.train, sets.dev))
    if missing := sorted(dev_labels - train_labels):
        shown = ", ".join(map(repr, missing[:5])) + (" …" if len(missing) > 5 else "")
        notes.append(
            f"all records labeled {shown} are in the dev set, since equal texts stay together, so the model cannot learn them; "
            "give --dev FILE"
        )
    return notes


def prepare(
    recipe: Recipe,
    weights: str | Path | None = None,
    task_state: dict[str, Any] | None = None,
    cache: Cache | None = None,
) -> Part:
    """Read the files and load task and model.

    `weights` and `task_state` are those of a checkpoint if a run is resumed; `cache` holds files that were read before.
    """
    config = hf.config_of(recipe.init_from)
    spec, sets = read_cached(recipe.task, cache)
    task_class = TASKS[spec.name]
    raise_errors(sets.findings)
    task_class.check(recipe, config)
    task_objective.check(recipe, task_class.SPEC)
    aux_mlm.check(recipe, config, task_class.SPEC)
    augment.check(recipe, config, task_class.name)
    teacher.check(recipe, task_class.SPEC)
    blend.check(recipe, task_class.SPEC)
    recipe = resolve_settings(recipe, config, task_class, sets)
    tokenizer = Tokenizer.load(recipe.init_from, config.vocab_size)
    # The split depends on a state fitted on all records, also in a resumed run.
    fitted_on_all = task_class.fit_state(FitContext(recipe, config, tokenizer), sets.train)
    windowing = task_class(recipe, tokenizer, fitted_on_all.task_state).windowing
    sets.findings += textcheck.check_lengths(
        sets.train, spec, tokenizer, windowing.length, f"they are {windowing.overflow_action()}"
    )
    notes = [] if recipe.task.dev else split_dev(recipe, spec, fitted_on_all.strata, sets)
    fitted = task_class.fit_state(
        FitContext(recipe, config, tokenizer, [*sets.dev, *sets.test]), sets.train, fitted_on_all.task_state
    )
    sets.findings += fitted.findings
    raise_errors(fitted.findings)
    task = task_class(recipe, tokenizer, fitted.task_state if task_state is None else task_state)
    task.bind(config)
    trial = task.with_overflow(None)
    if sets.train and not any(trial.encode(record) for record in sets.train):
        raise UserError(
            f"none of the {len(sets.train):,} training records yields a training example",
            hint="run unmask doctor on the files to see the reasons",
        )
    unlabeled = blend.read_unlabeled(recipe, task)
    model, model_notes = load_model(recipe, task, config, weights)
    return Part(recipe, task, model, sets, notes + model_notes, fitted.description, unlabeled)


def resolve_settings(recipe: Recipe, config: ModelConfig, task_class: type[Task], sets: RecordSets) -> Recipe:
    """Return the recipe with the settings that depend on the model and the files."""
    training = task_class.SPEC.training
    max_dev_records = recipe.train.max_eval_examples or training.max_dev_records
    train = resolve_train(recipe.train, config, frozen=recipe.task.freeze == "encoder")
    train = train.model_copy(update={"max_eval_examples": max_dev_records, "small_data_batch_size": 0})
    is_small = len(sets.train) < SMALL_DATASET_SIZE
    if recipe.train.small_data_batch_size and is_small and not training.in_batch_negatives:
        train.batch_size = min(train.batch_size, recipe.train.small_data_batch_size)
    resolved = {"name": task_class.name, "baseline_lr": scratch_learning_rate(recipe, config.hidden)}
    task = resolve_task(sets.settings or recipe.task, config, task_class.SPEC).model_copy(update=resolved)
    return recipe.model_copy(update={"train": train, "task": task})


def split_dev(recipe: Recipe, spec: RecordSpec, strata: Sequence[str], sets: RecordSets) -> list[str]:
    """Split a dev set off the training records if there are enough of them; return notes about it."""
    if not recipe.task.dev_fraction:
        return ["task.dev_fraction is 0: training without validation"]
    if len(sets.train) < MIN_RECORDS_FOR_DEV_SPLIT:
        no_baseline = "; --baseline has no records to evaluate on" if recipe.task.baseline and not sets.test else ""
        return [f"no --dev file and only {len(sets.train)} records: training without validation{no_baseline}"]
    seed = recipe.seed if recipe.task.dev_seed is None else recipe.task.dev_seed
    sets.train, sets.dev = split(spec, sets.train, strata or [""] * len(sets.train), recipe.task.dev_fraction, seed)
    return dev_split_notes(spec, sets)


def load_model(recipe: Recipe, task: Task, config: ModelConfig, weights: str | Path | None) -> tuple[Model, list[str]]:
    """Load the model with the heads that the task needs; return it with notes for the user."""
    if any(HEADS[head].labeled for head in task.heads) and not task.bound.config_overrides.get("labels"):
        raise UserError(
            f"the task {task.name} has no labels, but its head {task.heads[0]} has one output per label",
            hint="list them in the spec with Field(…, labels=(…)), or return them from `fit_state` under the key labels",
        )
    notes: list[str] = []
    extra_heads = aux_mlm.extra_heads(recipe)
    heads = (*task.heads, *extra_heads)
    loaded = hf.load(weights or recipe.init_from, heads, {**task.bound.config_overrides, **recipe.model}, recipe.seed)
    # task.heads may end with a pooler that only the architecture in config.json needs
    used_heads = with_dependencies((*task.heads[: len(type(task).heads)], *extra_heads))
    new = sorted({name.split(".")[1] for name in loaded.missing} & set(used_heads))
    if new and not weights:
        notes.append(
            f"{recipe.init_from} {describe_missing_head(new, loaded, config, task)}: a new one is initialized randomly"
        )
    if not weights:
        notes += reuse_head(task, loaded, config, recipe)
    notes += on_model.configure_generation(task, loaded.model) + aux_mlm.describe(recipe)
    if recipe.task.init == "random":
        notes.clear()  # they describe the pretrained weights, which are not used
        if not weights:
            loaded.model.init(recipe.seed)
    if recipe.task.freeze == "encoder":
        loaded.model.freeze()
    return loaded.model, notes


def open_teacher(part: Part, say: Callable[[str], None] = lambda text: None) -> "Predictor | PredictionFile | None":
    """Load the model or the predictions of --teacher, if given. Raise a UserError if they cannot teach this task."""
    if not part.recipe.task.teacher:
        return None
    if part.recipe.task.teacher.endswith(SUFFIX):
        return PredictionFile(part.recipe.task.teacher, part.task)
    from unmask.inference.predictor import load as load_predictor

    predictor = load_predictor(part.recipe.task.teacher, part.recipe.train.device, say, backend="torch")
    teacher.check_teacher(part.task, predictor.require_task())
    return predictor


def describe_missing_head(new: Sequence[str], loaded: hf.Loaded, config: ModelConfig, task: Task) -> str:
    """Describe what the initial model is missing: a head, or the right number of its outputs."""
    heads = FAMILIES[config.family].architectures.get(str((loaded.settings.get("architectures") or [""])[0]), ())
    num_labels = len(task.bound.config_overrides.get("labels", ()))
    if len(new) == 1 and HEADS[new[0]].labeled and new[0] in heads and num_labels != len(config.labels):
        return f"has a {new[0]} head with {len(config.labels):,} labels, but the task needs {num_labels:,}"
    return f"has no {' or '.join(new)} head"


def reuse_head(task: Task, loaded: hf.Loaded, config: ModelConfig, recipe: Recipe) -> list[str]:
    """Keep the initial model's head, reordered, if its outputs are the task's labels; otherwise reinitialize it with a note."""
    head = next((name for name in task.heads if HEADS[name].labeled), "")
    if not head or any(name.startswith(f"heads.{head}.") for name in loaded.missing):
        return []
    previous_task = task_folder.load_task(loaded.folder, config, (head,), task.tokenizer)
    head_module: Any = loaded.model.heads[head]
    if previous_task is None or on_model.reuse_head(head_module.out, previous_task.spec, task.spec):
        return []
    loaded.model.init(recipe.seed, only=[f"heads.{head}.out.weight", f"heads.{head}.out.bias"])
    names = ", ".join(config.labels[:8]) + (", …" if len(config.labels) > 8 else "")
    return [f"the {head} layer of {recipe.init_from} is for other labels ({names}): a new one is initialized randomly"]


# ------------------------------------------------------------------------------------------------- training rows


def build_loader(part: Part, ctx: Context, run: Run | None) -> tuple[LengthBucketedLoader, int]:
    """Return the loader of a run of one task with its auxiliary losses, and the number of its records.

    Without a run folder, rows that other models produce (augmented records, teacher logits) are left out.
    """
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
    """Add the teacher's logits to the encoded records and release the teacher; return the distillation objective."""
    loaded, part.teacher = part.teacher, None
    assert loaded is not None
    setting = f"task.teacher: {part.recipe.task.teacher}"
    if isinstance(loaded, PredictionFile):
        run.pin_checksum(setting, loaded.fingerprint(), ctx.is_main)
        return loaded.attach(part.task, records, encoded)
    model, task = loaded.model, loaded.require_task()
    run.pin_checksum(setting, teacher.fingerprint(model, task), ctx.is_main)
    with ctx.console.bar("teacher") as update:
        return teacher.attach_teacher_logits(part.task, model, task, records, encoded, update)


def build_train_loader(
    part: Part, encoded: Sequence[Sequence[Example]] | None = None, objective: Objective | None = None
) -> LengthBucketedLoader:
    """Return the loader of the training rows. `encoded`: the examples of each record, if they exist already."""
    encoded = [part.task.encode(record) for record in part.sets.train] if encoded is None else encoded
    set_row_weights(part.task.SPEC, encoded)
    examples = [example for of_record in encoded for example in of_record]
    lengths = [max(len(row) for row in (e, *e.grouped_rows)) for e in examples]
    tokenizer = part.task.tokenizer
    ids = [row.input_ids for e in examples for row in (e, *e.grouped_rows)]
    tokens = np.unique(np.concatenate([*ids, np.flatnonzero(tokenizer.special)]))  # objectives may insert [MASK]
    rows = RecordDataset(examples, tokenizer.pad)
    return LengthBucketedLoader(
        rows, lengths, part.recipe.train.batch_size, objective or objective_of(part.task), part.recipe.seed, tokens
    )


def training_notes(part: Part, ctx: Context, num_records: int, gathered: bool = False) -> list[str]:
    """Return notes for the user before training. Call it after encoding the records, which counts long texts."""
    task, notes = part.task, list(part.notes)
    batch, size = part.recipe.train.batch_size, ctx.world.size
    rows = micro_batch_rows(batch, part.recipe.train.micro_batch_size, size) * (size if gathered else 1)
    notes += task.windowing.training_notes(num_records) + on_model.negatives_notes(task.SPEC, rows, batch)
    if len(dev_subset(part)) < len(part.sets.dev):
        notes.append(
            f"evaluating on {len(dev_subset(part)):,} of {len(part.sets.dev):,} dev records during training, on all at the end"
        )
    return notes


def dev_subset(part: Part) -> list[Record]:
    """Return the dev records that are evaluated during training, spread over the file, because it may be sorted by label."""
    limit = part.recipe.train.max_eval_examples
    return list(textcheck.subsample_evenly(part.sets.dev, limit or len(part.sets.dev)))


def seconds_per_prediction(part: Part) -> float:
    """Return the seconds per prediction of a dev record, measured once on some of them."""
    if part.seconds is None:
        records, start_time = part.sets.dev[:NUM_TIMED_RECORDS], time.perf_counter()
        if records:
            part.task.predict(part.model, records)
        part.seconds = (time.perf_counter() - start_time) / max(1, len(records))
    return part.seconds
