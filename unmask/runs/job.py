"""Everything a fine-tuning run needs, made from its recipe and its files before the first step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.inference.predictor import Predictor
from unmask.inference.predictor import load as load_predictor
from unmask.labels import textcheck
from unmask.labels.fields import RecordSpec, labels_of
from unmask.labels.record_sets import Opened, Sets, read_sets, refuse
from unmask.labels.split import split
from unmask.model import hf
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.head_spec import HEADS
from unmask.model.model import Model
from unmask.recipe import BUDGETS, Recipe, told
from unmask.registry import TASKS
from unmask.runs import augment, budget
from unmask.settings import merge
from unmask.tasks import aux_mlm, teacher
from unmask.tasks import folder as task_folder
from unmask.tasks import objective as task_objective
from unmask.tasks.task import Task
from unmask.text.tokenizer import Tokenizer

FEWEST = 20  # records of a training file from which a dev set is taken
BOLDER = 5  # times the default learning rate, for a model without pre-training: it has nothing to forget
FEW = 2000  # records below which `train.few_batch` counts


@dataclass
class Job:
    """Everything a run needs, made from its recipe and its files."""

    recipe: Recipe
    task: Task
    model: Model
    sets: Sets
    notes: list[str]
    teacher: Predictor | None = None  # opened, until it has taught

    def save(self, folder: Path) -> None:
        hf.save(self.model, folder, self.task.tokenizer, dict(self.task.SPEC.config_json))
        task_folder.write(self.task, folder)


def make_recipe(values: dict[str, Any], sets: Sequence[str] = ()) -> Recipe:
    """With fine-tuning's own defaults below; a budget that is given replaces theirs, whatever its unit."""
    base, given = Recipe.packaged("finetune"), told(values, sets)
    train = given.get("train")
    train = train if isinstance(train, dict) else {}  # what is no mapping is refused below
    if any(train.get(b) is not None for b in BUDGETS):
        base["train"] = {k: v for k, v in base["train"].items() if k not in BUDGETS}
    if train.get("batch"):
        base["train"]["few_batch"] = 0
    return Recipe.build(merge(base, given))


def about_dev(spec: RecordSpec, sets: Sets) -> list[str]:
    """What is to be said of the dev set that was taken from the training records."""
    if not sets.dev:
        return ["no dev file, and records that ask the same are not divided: the last model is taken"]
    notes = [f"no dev file: {len(sets.dev):,} of the {len(sets.train) + len(sets.dev):,} records are kept as one"]
    learnt, asked = ({label for r in records for label in labels_of(spec, r)} for records in (sets.train, sets.dev))
    if lost := sorted(asked - learnt):
        shown = ", ".join(map(repr, lost[:5])) + (" …" if len(lost) > 5 else "")
        notes.append(
            f"all records of {shown} are in the dev set, as equal texts stay together: not learnt; give --dev FILE"
        )
    return notes


def usual_rate(hidden: int, frozen: bool) -> float:
    """A learning rate for a model of that width: BERT-base's 5e-5, more for smaller ones, which need and bear it.

    >>> f"{usual_rate(768, False):.0e} {usual_rate(384, False):.0e} {usual_rate(768, True):.0e}"
    '5e-05 1e-04 1e-03'
    """
    return 1e-3 if frozen else 5e-5 * 768 / hidden


def scratch_rate(recipe: Recipe, hidden: int) -> float:
    """The learning rate of the same model without pre-training: the one that was given for both, else a default of its own."""
    return recipe.task.baseline_lr or recipe.train.lr or BOLDER * usual_rate(hidden, frozen=False)


def prepare(
    recipe: Recipe,
    weights: str | Path | None = None,
    learnt: dict[str, Any] | None = None,
    opened: Opened | None = None,
) -> Job:
    """Files, task and model. `weights` and `learnt` are a checkpoint's, when a run goes on; `opened`: the files, where they are read already."""
    notes: list[str] = []
    config = hf.config_of(recipe.start)
    budget.check(recipe)
    spec, sets = read_sets(recipe.task, opened)
    kind = TASKS[spec.name]
    refuse(sets.findings)
    kind.check(recipe, config)
    task_objective.check(recipe, kind.SPEC)
    aux_mlm.check(recipe, config, kind.SPEC)
    augment.check(recipe, config, kind.name)
    teacher.check(recipe, kind.SPEC)
    frozen = recipe.task.freeze == "encoder"
    rate, seen = (
        recipe.train.lr or usual_rate(config.hidden, frozen),
        recipe.train.eval_rows or kind.SPEC.training.dev_rows,
    )
    train = recipe.train.model_copy(update={"lr": rate, "eval_rows": seen, "few_batch": 0})
    if recipe.train.few_batch and len(sets.train) < FEW and not kind.SPEC.training.in_batch:
        train.batch = min(train.batch, recipe.train.few_batch)
    decided = {"kind": kind.name, "baseline_lr": scratch_rate(recipe, config.hidden)}
    resolved = (sets.settings or recipe.task).model_copy(update=decided)
    recipe = recipe.model_copy(update={"train": train, "task": resolved})
    tokenizer = Tokenizer.load(recipe.start, config.vocab_size)
    studied = kind.study(recipe, config, sets.train)
    whole = kind(recipe, tokenizer, studied)  # that is what the split goes by, in a run that goes on too
    whole.fit_lengths(sets.train)
    sets.findings += textcheck.too_long(
        sets.train, spec, tokenizer, whole.windowing.length, f"they are {whole.windowing.fate()}"
    )
    if not recipe.task.dev:
        dev_seed = recipe.seed if recipe.task.dev_seed is None else recipe.task.dev_seed
        if len(sets.train) >= FEWEST:
            sets.train, sets.dev = split(
                spec, sets.train, list(map(whole.stratum, sets.train)), recipe.task.dev_share, dev_seed
            )
            notes += about_dev(spec, sets)
        else:
            unjudged = "; nothing to judge --baseline by" if recipe.task.baseline and not sets.test else ""
            notes.append(
                f"no dev file, and {len(sets.train)} records are too few to keep some back: the last model is taken{unjudged}"
            )
    task = kind(recipe, tokenizer, kind.weigh(recipe, whole.learnt, sets.train) if learnt is None else learnt)
    task.bind(config)
    sets.findings += task.too_large([*sets.train, *sets.dev, *sets.test])
    task.judge_by(sets.dev or sets.test)
    trial = task.reading(None)
    if sets.train and not any(trial.encode(record) for record in sets.train):
        raise UserError(
            f"none of the {len(sets.train):,} training records has anything to learn from",
            fix="unmask doctor names the reasons",
        )
    heads = (*task.heads, *aux_mlm.heads(recipe))
    loaded = hf.load(weights or recipe.start, heads, task.changes(config) | recipe.model, recipe.seed)
    if loaded.missing and not weights and kind.heads:  # a pooler that only the folder's class wants is not learnt
        new = sorted({name.split(".")[1] for name in loaded.missing})
        notes.append(f"{recipe.start} {lack(new, loaded, config, task)}: drawn at random, to be learnt")
    if not weights:
        notes += adopt_head(task, loaded, config, recipe)
    notes += task.begin(loaded.model) + aux_mlm.said(recipe)
    if frozen:
        loaded.model.freeze()
    return Job(recipe, task, loaded.model, sets, notes)


def open_teacher(job: Job, say: Callable[[str], None] = lambda text: None) -> Predictor | None:
    """The model of --teacher, where one is named; refused where it cannot teach this task."""
    if not job.recipe.task.teacher:
        return None
    known = load_predictor(job.recipe.task.teacher, job.recipe.train.device, say, backend="torch")
    teacher.same(job.task, known.need_task())
    return known


def lack(new: Sequence[str], loaded: hf.Loaded, config: ModelConfig, task: Task) -> str:
    """What a start model has not: a head at all, or one with as many outputs."""
    held = FAMILIES[config.family].architectures.get(str((loaded.settings.get("architectures") or [""])[0]), ())
    count = len(task.changes(config).get("labels", ()))
    if len(new) == 1 and HEADS[new[0]].labelled and new[0] in held and count != len(config.labels):
        return f"has a {new[0]} head with {len(config.labels):,} labels where {count:,} are needed"
    return f"has no {' and no '.join(new)} for this"


def adopt_head(task: Task, loaded: hf.Loaded, config: ModelConfig, recipe: Recipe) -> list[str]:
    """Keep the start model's head where its outputs mean what the task's do, in the task's order; else draw it anew, and say so."""
    head = next((name for name in task.heads if HEADS[name].labelled), "")
    if not head or any(name.startswith(f"heads.{head}.") for name in loaded.missing):
        return []
    before = task_folder.read(loaded.folder, config, (head,), task.tokenizer)
    if before is None or task.adopt(loaded.model.heads[head], before):
        return []
    loaded.model.init(recipe.seed, only=[f"heads.{head}.out.weight", f"heads.{head}.out.bias"])
    names = ", ".join(config.labels[:8]) + (", …" if len(config.labels) > 8 else "")
    return [f"the {head} layer of {recipe.start} is for something else ({names}): drawn at random, to be learnt"]
