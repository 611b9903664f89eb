"""A search for good settings (Optuna's TPE, Bergstra et al. 2011): trials that train, the worse half of them stopped early.

The first trial is the recipe itself, so a search never ends below it on the dev set. What a trial draws is addressed by
(seed, number of trials before it): a search that was killed goes on as if it had not been, in the middle of a trial even.
Trials are pruned when an evaluation lies below the median of the earlier trials at the same share of training. The test set is
looked at once, by the best model. A trial's weights are deleted unless it is the best one so far.
"""

import csv
import io
import shutil
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unmask.errors import UserError, command
from unmask.files import write_text
from unmask.labels.findings import MAX_KEPT_PER_KIND, as_rows
from unmask.labels.record_sets import set_sizes
from unmask.model import hf
from unmask.model.families import FAMILIES
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.renamed import upgrade
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune, FinetuneJob, evaluate_and_save
from unmask.runs.lifecycle import Job, ResumeState
from unmask.runs.loops import Child, Loop
from unmask.runs.part import Part, prepare
from unmask.seeds import stable_seed
from unmask.tasks import folder as task_folder
from unmask.train.fit import EvalCallback, State, TrainingInterrupted
from unmask.train.run import Run
from unmask.train.trainer import NonFiniteLossError

STUDY = "study.jsonl"
SETTINGS = ("lr", "epochs", "batch_size", "layerwise_lr_decay", "warmup", "pooling")
RANDOM_TRIALS = 5  # trials drawn at random before the search learns from them; none of them is pruned
COPIED_FILES = ("plan.json", "log.jsonl", "task_state.json", "learnt.json")  # of the best trial


class Pruned(Exception):
    """A trial that lies below the median of those before it."""


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("unmask tune needs Optuna, which is not installed", hint="pip install 'unmask[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


# ------------------------------------------------------------------------------------------------------ what is searched


def space(recipe: Recipe, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Setting → its range, around the recipe's own value: of a recipe in which `auto` and 0 are resolved."""
    config, kind, train = hf.config_of(recipe.init_from), TASKS[recipe.task.name], recipe.train
    wrong = [name for name in names or [] if name not in SETTINGS]
    if wrong:
        raise UserError(f"--params {wrong[0]}", expected=", ".join(SETTINGS))
    found: dict[str, dict[str, Any]] = {
        "lr": {"low": train.lr / 5, "high": train.lr * 5, "log": True},
        "batch_size": {"choices": sorted({max(2, train.batch_size // 2), train.batch_size, train.batch_size * 2})},
        "warmup": {"low": 0.0, "high": max(0.3, train.warmup)}
        if train.warmup < 1
        else {"low": 1.0, "high": 2 * train.warmup},  # of steps
    }
    if train.epochs is not None:  # another budget is one that the user wants kept
        found["epochs"] = {"low": train.epochs / 2, "high": 2 * train.epochs}
        if train.epochs == round(train.epochs):
            found["epochs"] = {"low": max(1.0, round(train.epochs / 2)), "high": 2 * train.epochs, "step": 1.0}
    if recipe.task.freeze == "none" and config.layers > 1:
        found["layerwise_lr_decay"] = {"low": min(0.7, train.layerwise_lr_decay), "high": 1.0}
    pooling = kind.SPEC.training.pooling
    given = {recipe.task.pooling, recipe.task.embed.pooling, recipe.model.get("pooling", "auto")} != {"auto"}
    if not given and (pooling == "task" or (pooling == "head" and "pooling" in FAMILIES[config.family].fields)):
        found["pooling"] = {"choices": ["cls", "mean"]}
    if idle := next((name for name in names or [] if name not in found), None):
        raise UserError(f"--params {idle}: this model and recipe leave no choice of it", expected=", ".join(found))
    return {name: found[name] for name in names or SETTINGS if name in found}


def default_values(part: Part, ranges: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The recipe's own values of what is searched."""
    pooling = part.task.bound.pooling or part.model.config.pooling
    return {name: pooling if name == "pooling" else getattr(part.recipe.train, name) for name in ranges}


def suggest(trial: Any, ranges: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        name: trial.suggest_categorical(name, r["choices"]) if "choices" in r else trial.suggest_float(name, **r)
        for name, r in ranges.items()
    }


def with_values(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    values = upgrade({"train": values})["train"]  # a search that version 0.1 started
    train = {name: value for name, value in values.items() if name != "pooling"}
    return recipe.changed(train=train, task={name: values[name] for name in values.keys() - train.keys()})


# ----------------------------------------------------------------------------------------------------------- the search


@dataclass
class TuneJob(Job):
    asked: dict[str, Any] = field(default_factory=dict)  # tune.json
    study: Any = None  # Optuna's


@dataclass(frozen=True)
class Trial(Child):
    trial: Any = None  # Optuna's
    values: dict[str, Any] = field(default_factory=dict)


class Tune(Loop[TuneJob]):
    name = folder = "tune"

    def __init__(self, trials: int = 20, minutes: float | None = None, params: Sequence[str] | None = None):
        self.trials, self.minutes, self.params = trials, minutes, list(params) if params else None

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        _optuna()
        if recipe.tasks:
            raise UserError(
                "a search over several tasks at once", hint="unmask tune with one task, then a recipe of several"
            )
        return Finetune().check(recipe, ctx)

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> TuneJob:
        """Everything that can be wrong is found here; what is asked for is written down."""
        if ctx.world.size > 1:
            raise UserError("unmask tune under torchrun", hint="run it as one process")
        if resume_state:
            return TuneJob(recipe, "", asked=resume_state.run.read_json("tune.json"))
        part = Finetune().prepare(recipe, ctx).parts[""]
        if not part.sets.dev:
            raise UserError("a search needs a dev set to compare by", hint="--dev FILE, or more records in --train")
        ranges = space(part.recipe, self.params)
        asked = {"trials": self.trials, "minutes": self.minutes, "space": ranges, "first": default_values(part, ranges)}
        return TuneJob(part.recipe, part.task.name, {"tune.json": asked}, asked=asked)

    def run(self, job: TuneJob, run: Run, ctx: Context, resume_state: ResumeState | None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", _optuna().exceptions.ExperimentalWarning)
            job.study = open_study(run, job)
            super().run(job, run, ctx, resume_state)

    def next(self, job: TuneJob, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> Trial | None:
        """The trial that a kill has left in the middle, or a new one; none when there are as many as asked for, or time is up."""
        optuna, study, asked = _optuna(), job.study, job.asked
        ended = _ended(study)
        if ended >= asked["trials"]:
            return None
        spent = sum(t.user_attrs.get("seconds", 0.0) for t in study.get_trials(deepcopy=False))
        if asked["minutes"] and ended and spent >= 60 * asked["minutes"]:
            ctx.console.say(f"{asked['minutes']:g} minutes are over after {ended} trials")
            return None
        seed = stable_seed(job.recipe.seed, "tune", ended) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
        left = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
        trial = optuna.trial.Trial(study, left[0]._trial_id) if left else study.ask()
        values = suggest(trial, asked["space"])
        recipe = with_values(job.recipe, values).changed(task={"test": []})
        return Trial(_folder(trial), "finetune", recipe, trial=trial, values=values)

    def run_child(self, job: TuneJob, child: Child, run: Run, ctx: Context) -> dict[str, Any]:
        assert isinstance(child, Trial)
        study, trial, folder, begun = job.study, child.trial, Run(run.path / child.name), time.monotonic()
        try:
            results = super().run_child(job, child, run, ctx.silent(_report_to_optuna(study, trial, folder)))
            if results["metric"] not in results["dev"]:
                raise UserError(
                    f"{results['metric']}, which decides between trials, is not defined on this dev set",
                    hint="--dev FILE with more records, whose labels differ",
                )
            score, state = float(results["dev"][results["metric"]]), "COMPLETE"
        except Pruned:
            score, state = float(max(_reported(study, trial).values())), "PRUNED"
        except TrainingInterrupted as stopped:
            said = f"stopped after {_ended(study)} trials; everything up to here is saved"
            raise TrainingInterrupted(said, hint=stopped.hint or "", code=stopped.code) from None
        except UserError as error:
            if not isinstance(error.__cause__, NonFiniteLossError):  # a full disk, say
                raise
            score, state = float("nan"), "FAIL"
        trial.set_user_attr("seconds", round(time.monotonic() - begun, 2))
        trial.set_user_attr("score", score)
        mark = _keep_best(study, trial, run, score, state)
        shown = "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in child.values.items())
        ctx.console.say(f"trial {trial.number}: {score:.4f}  {shown}{mark}")
        return {"trial": trial.number, "score": score}

    def finish(self, job: TuneJob, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        """The best model, judged on the test set too."""
        best, study = _best(job.study), job.study
        if best is None:
            raise UserError("no trial came to its end", hint="a smaller learning rate: --lr, or more records")
        folder, recipe = Run(run.path / _folder(best)), with_values(job.recipe, best.params)
        recipe.write(run.path / "best.yaml")
        for name in COPIED_FILES:
            if (folder.path / name).exists():
                shutil.copy2(folder.path / name, run.path / name)
        weights = folder.model if folder.model.is_dir() else run.model  # of a search that is extended
        part = prepare(recipe, weights, task_folder.read_task_state(weights), ctx.cache)
        run.write_json("data.json", {"records": set_sizes(part.sets), "fingerprint": part.sets.fingerprint()})
        run.write_json("findings.json", as_rows(part.sets.findings, MAX_KEPT_PER_KIND))
        past = folder.results()
        state = State(step=past["step"], best=past["best"], elapsed=past["seconds"])
        results = evaluate_and_save(FinetuneJob(part.recipe, "", parts={"": part}), run, state, ctx.console)
        shutil.rmtree(folder.model, ignore_errors=True)  # it is run.model now
        rows = table(study, list(job.asked["space"]))
        write_text(run.path / "trials.csv", as_csv(rows))
        again = command("unmask finetune --recipe", run.path / "best.yaml")
        ctx.console.say(f"best of {len(rows)}: trial {best.number}, {results['metric']} {best.value:.4f}; {again}")
        results |= {"trials": rows, "trial": best.number, "settings": best.params}
        return results | {"importance": importance(_optuna(), study), "command": again}


def extend(run: Run, trials: int | None) -> None:
    """Make a search one of so many trials: a finished one is then not."""
    asked = run.read_json("tune.json")
    if trials and trials != asked["trials"]:
        run.write_json("tune.json", asked | {"trials": trials})
        (run.path / "results.json").unlink(missing_ok=True)


def open_study(run: Run, job: TuneJob) -> Any:
    """Optuna's memory of the search, in the folder of the run."""
    optuna, asked = _optuna(), job.asked
    # The first third of a run says more of the warm-up than of the end.
    pruner = optuna.pruners.MedianPruner(
        n_startup_trials=min(RANDOM_TRIALS, max(1, asked["trials"] // 3)),
        n_warmup_steps=1 + job.recipe.train.num_evals // 3,
    )
    journal = optuna.storages.journal.JournalFileBackend(str(run.path / STUDY))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(journal),
        study_name="tune",
        direction="maximize",
        pruner=pruner,
        load_if_exists=True,
    )
    if not study.get_trials(deepcopy=False):
        study.enqueue_trial(asked["first"])
    return study


def _folder(trial: Any) -> str:
    return f"trials/{trial.number:03d}"


def _ended(study: Any) -> int:
    return sum(t.state.is_finished() for t in study.get_trials(deepcopy=False))


def _reported(study: Any, trial: Any) -> dict[int, float]:
    return study._storage.get_trial(trial._trial_id).intermediate_values


def _report_to_optuna(study: Any, trial: Any, folder: Run) -> EvalCallback:
    """Tells Optuna each evaluation, and ends a trial that it would prune."""

    def watch(score: float) -> None:
        number = 1 + sum(e.get("event") == "eval" for e in folder.events())  # a share of training, as there are so many
        if number not in _reported(study, trial):
            trial.report(score, number)
        if trial.should_prune():
            raise Pruned

    return watch


def _keep_best(study: Any, trial: Any, run: Run, score: float, state: str) -> str:
    """The trial is told to Optuna; of its weights and those of the best one before it, only the better are kept."""
    best, folder = _best(study), Run(run.path / _folder(trial))
    study.tell(trial.number, score if state == "COMPLETE" else None, state=_optuna().trial.TrialState[state])
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    if state == "COMPLETE" and (best is None or score > best.value):
        if best is not None:
            shutil.rmtree(run.path / _folder(best) / "model", ignore_errors=True)
        return "  best so far"
    shutil.rmtree(folder.model, ignore_errors=True)
    return {"PRUNED": "  pruned", "FAIL": "  failed: the loss was no number"}.get(state, "")


def _best(study: Any) -> Any:
    """The first of the best trials."""
    found = [t for t in study.get_trials(deepcopy=False) if t.value is not None and t.state.name == "COMPLETE"]
    return max(found, key=lambda t: (t.value, -t.number), default=None)


def table(study: Any, names: list[str]) -> list[dict[str, Any]]:
    rows = []
    for t in study.get_trials(deepcopy=False):
        score = t.user_attrs.get("score")
        row = {"trial": t.number, "state": t.state.name.lower(), "score": score if score == score else None}
        rows.append(row | {"seconds": t.user_attrs.get("seconds")} | {name: t.params.get(name) for name in names})
    return rows


def as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def importance(optuna: Any, study: Any) -> dict[str, float]:
    """Setting → share of the scores' variance that it explains; {} when there is too little to say."""
    try:
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )
    except (RuntimeError, ValueError):  # fewer than two finished trials, or all of one score
        return {}
    return {name: float(share) for name, share in found.items() if share == share}
