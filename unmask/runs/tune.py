"""Hyperparameter search with Optuna's TPE (Bergstra et al. 2011) and median pruning.

The first trial is the recipe itself, so the best trial is never worse than the recipe on the dev set. The settings of a trial
depend on (seed, number of trials before it), so a search that was killed resumes as if uninterrupted, even in the middle of a
trial. A trial is pruned when its score is below the median of the earlier trials at the same evaluation. The test set is used
once, for the best model. A trial's weights are deleted unless it is the best one so far.
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
from unmask.train.run_files import TASK_STATE_FILES
from unmask.train.trainer import NonFiniteLossError

STUDY = "study.jsonl"
SETTINGS = ("lr", "epochs", "batch_size", "layerwise_lr_decay", "warmup", "pooling")
RANDOM_TRIALS = 5  # trials with random settings before TPE starts; they are not pruned
COPIED_FILES = ("plan.json", "log.jsonl", *TASK_STATE_FILES)  # from the best trial


class Pruned(Exception):
    """A trial whose score is below the median of earlier trials."""


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("unmask tune needs Optuna, which is not installed", hint="pip install 'unmask[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


# ---------------------------------------------------------------------------------------------------- search space


def search_space(recipe: Recipe, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return setting → range around the value of a resolved recipe."""
    config, task_class, train = hf.config_of(recipe.init_from), TASKS[recipe.task.name], recipe.train
    unknown = [name for name in names or [] if name not in SETTINGS]
    if unknown:
        raise UserError(f"--params {unknown[0]} is not a setting that can be searched", expected=", ".join(SETTINGS))
    ranges: dict[str, dict[str, Any]] = {
        "lr": {"low": train.lr / 5, "high": train.lr * 5, "log": True},
        "batch_size": {"choices": sorted({max(2, train.batch_size // 2), train.batch_size, train.batch_size * 2})},
        "warmup": {"low": 0.0, "high": max(0.3, train.warmup)}
        if train.warmup < 1
        else {"low": 1.0, "high": 2 * train.warmup},  # in steps
    }
    if train.epochs is not None:  # a budget in other units is fixed by the user
        ranges["epochs"] = {"low": train.epochs / 2, "high": 2 * train.epochs}
        if train.epochs == round(train.epochs):
            ranges["epochs"] = {"low": max(1.0, round(train.epochs / 2)), "high": 2 * train.epochs, "step": 1.0}
    if recipe.task.freeze == "none" and config.layers > 1:
        ranges["layerwise_lr_decay"] = {"low": min(0.7, train.layerwise_lr_decay), "high": 1.0}
    pooling = task_class.SPEC.training.pooling
    is_fixed = {recipe.task.pooling, recipe.task.embed.pooling, recipe.model.get("pooling", "auto")} != {"auto"}
    if not is_fixed and (pooling == "task" or (pooling == "head" and "pooling" in FAMILIES[config.family].fields)):
        ranges["pooling"] = {"choices": ["cls", "mean"]}
    if fixed := next((name for name in names or [] if name not in ranges), None):
        raise UserError(f"--params {fixed}: not searchable with this model and recipe", expected=", ".join(ranges))
    return {name: ranges[name] for name in names or SETTINGS if name in ranges}


def default_values(part: Part, ranges: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the recipe's values of the searched settings."""
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


# ---------------------------------------------------------------------------------------------------------- search


@dataclass
class TuneJob(Job):
    options: dict[str, Any] = field(default_factory=dict)  # content of tune.json
    study: Any = None  # optuna.Study


@dataclass(frozen=True)
class Trial(Child):
    trial: Any = None  # optuna.Trial
    values: dict[str, Any] = field(default_factory=dict)


class Tune(Loop[TuneJob]):
    name = folder = "tune"

    def __init__(self, trials: int = 20, minutes: float | None = None, params: Sequence[str] | None = None):
        self.trials, self.minutes, self.params = trials, minutes, list(params) if params else None

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        _optuna()
        if recipe.tasks:
            raise UserError(
                "unmask tune cannot search over several tasks at once",
                hint="tune each task alone, then put the settings into the recipe of several tasks",
            )
        return Finetune().check(recipe, ctx)

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> TuneJob:
        if ctx.world.size > 1:
            raise UserError("unmask tune does not support torchrun", hint="run it as one process, without torchrun")
        if resume_state:
            return TuneJob(recipe, "", options=resume_state.run.read_json("tune.json"))
        part = Finetune().prepare(recipe, ctx).parts[""]
        if not part.sets.dev:
            raise UserError(
                "unmask tune needs a dev set to compare trials", hint="give --dev FILE, or more records in --train"
            )
        ranges = search_space(part.recipe.changed(task={"pooling": recipe.task.pooling}), self.params)
        first = default_values(part, ranges)
        options = {"trials": self.trials, "minutes": self.minutes, "space": ranges, "first": first}
        return TuneJob(part.recipe, part.task.name, {"tune.json": options}, options=options)

    def run(self, job: TuneJob, run: Run, ctx: Context, resume_state: ResumeState | None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", _optuna().exceptions.ExperimentalWarning)
            job.study = open_study(run, job)
            super().run(job, run, ctx, resume_state)

    def next(self, job: TuneJob, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> Trial | None:
        """Return the interrupted trial of a resumed search, or a new one; None after the last trial or when time is up."""
        optuna, study, options = _optuna(), job.study, job.options
        finished = _num_finished(study)
        if finished >= options["trials"]:
            return None
        seconds = sum(t.user_attrs.get("seconds", 0.0) for t in study.get_trials(deepcopy=False))
        if options["minutes"] and finished and seconds >= 60 * options["minutes"]:
            ctx.console.say(f"time budget of {options['minutes']:g} minutes reached after {finished} trials")
            return None
        seed = stable_seed(job.recipe.seed, "tune", finished) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
        running = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
        trial = optuna.trial.Trial(study, running[0]._trial_id) if running else study.ask()
        values = suggest(trial, options["space"])
        recipe = with_values(job.recipe, values).changed(task={"test": []})
        return Trial(_folder(trial), "finetune", recipe, trial=trial, values=values)

    def run_child(self, job: TuneJob, child: Child, run: Run, ctx: Context) -> dict[str, Any]:
        assert isinstance(child, Trial)
        study, trial, folder, start_time = job.study, child.trial, Run(run.path / child.name), time.monotonic()
        try:
            results = super().run_child(job, child, run, ctx.silent(_report_to_optuna(study, trial, folder)))
            if results["metric"] not in results["dev"]:
                raise UserError(
                    f"{results['metric']}, the metric that trials are compared by, is not defined on this dev set",
                    hint="give a --dev FILE with more records and different labels",
                )
            score, state = float(results["dev"][results["metric"]]), "COMPLETE"
        except Pruned:
            score, state = float(max(_reported_scores(study, trial).values())), "PRUNED"
        except TrainingInterrupted as stopped:
            progress = f"after {_num_finished(study)} trials"
            raise TrainingInterrupted(progress, hint=stopped.hint or "", code=stopped.code) from None
        except UserError as error:
            if not isinstance(error.__cause__, NonFiniteLossError):  # for example a full disk
                raise
            score, state = float("nan"), "FAIL"
        trial.set_user_attr("seconds", round(time.monotonic() - start_time, 2))
        trial.set_user_attr("score", score)
        comment = _record_and_prune_weights(study, trial, run, score, state)
        settings = "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in child.values.items())
        ctx.console.say(f"trial {trial.number}: {score:.4f}  {settings}{comment}")
        return {"trial": trial.number, "score": score}

    def finish(self, job: TuneJob, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        """Copy the best trial to the run folder and evaluate its model on dev and test."""
        best, study = _best(job.study), job.study
        if best is None:
            raise UserError("no trial completed", hint="use a lower --lr, or more records")
        folder, recipe = Run(run.path / _folder(best)), with_values(job.recipe, best.params)
        recipe.write(run.path / "best.yaml")
        for name in COPIED_FILES:
            if (folder.path / name).exists():
                shutil.copy2(folder.path / name, run.path / name)
        weights = folder.model if folder.model.is_dir() else run.model  # moved there before the search was extended
        part = prepare(recipe, weights, task_folder.read_task_state(weights), ctx.cache)
        run.write_json("data.json", {"records": set_sizes(part.sets), "fingerprint": part.sets.fingerprint()})
        run.write_json("findings.json", as_rows(part.sets.findings, MAX_KEPT_PER_KIND))
        trial_results = folder.results()
        state = State(step=trial_results["step"], best=trial_results["best"], elapsed=trial_results["seconds"])
        results = evaluate_and_save(FinetuneJob(part.recipe, "", parts={"": part}), run, state, ctx.console)
        shutil.rmtree(folder.model, ignore_errors=True)  # it is in run.model now
        rows = trial_table(study, list(job.options["space"]))
        write_text(run.path / "trials.csv", as_csv(rows))
        retrain = command("unmask finetune --recipe", run.path / "best.yaml")
        ctx.console.say(f"best of {len(rows)}: trial {best.number}, {results['metric']} {best.value:.4f}; {retrain}")
        results |= {"trials": rows, "trial": best.number, "settings": best.params}
        return results | {"importance": importance(_optuna(), study), "command": retrain}


def extend(run: Run, trials: int | None) -> None:
    """Change the number of trials of a search, so that a finished one can be resumed."""
    options = run.read_json("tune.json")
    if trials and trials != options["trials"]:
        run.write_json("tune.json", options | {"trials": trials})
        (run.path / "results.json").unlink(missing_ok=True)


def open_study(run: Run, job: TuneJob) -> Any:
    """Open or create the Optuna study in the run folder."""
    optuna, options = _optuna(), job.options
    # Scores in the first third of a run depend more on the warm-up than on the final result, so it is never pruned.
    pruner = optuna.pruners.MedianPruner(
        n_startup_trials=min(RANDOM_TRIALS, max(1, options["trials"] // 3)),
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
        study.enqueue_trial(options["first"])
    return study


def _folder(trial: Any) -> str:
    return f"trials/{trial.number:03d}"


def _num_finished(study: Any) -> int:
    return sum(t.state.is_finished() for t in study.get_trials(deepcopy=False))


def _reported_scores(study: Any, trial: Any) -> dict[int, float]:
    return study._storage.get_trial(trial._trial_id).intermediate_values


def _report_to_optuna(study: Any, trial: Any, folder: Run) -> EvalCallback:
    """Return a callback that reports each evaluation to Optuna and ends a trial that Optuna prunes."""

    def report(score: float) -> None:
        # The index of the evaluation, not the step: trials with different numbers of steps have equally many evaluations.
        index = 1 + sum(e.get("event") == "eval" for e in folder.events())
        if index not in _reported_scores(study, trial):
            trial.report(score, index)
        if trial.should_prune():
            raise Pruned

    return report


def _record_and_prune_weights(study: Any, trial: Any, run: Run, score: float, state: str) -> str:
    """Record a finished trial in the study, delete all weights but the best trial's, and return a comment."""
    best, folder = _best(study), Run(run.path / _folder(trial))
    study.tell(trial.number, score if state == "COMPLETE" else None, state=_optuna().trial.TrialState[state])
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    if state == "COMPLETE" and (best is None or score > best.value):
        if best is not None:
            shutil.rmtree(run.path / _folder(best) / "model", ignore_errors=True)
        return "  best so far"
    shutil.rmtree(folder.model, ignore_errors=True)
    return {"PRUNED": "  pruned", "FAIL": "  failed: the loss was not finite"}.get(state, "")


def _best(study: Any) -> Any:
    """Return the best trial; on ties, the first one."""
    complete = [t for t in study.get_trials(deepcopy=False) if t.value is not None and t.state.name == "COMPLETE"]
    return max(complete, key=lambda t: (t.value, -t.number), default=None)


def trial_table(study: Any, names: list[str]) -> list[dict[str, Any]]:
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
    """Return setting → fraction of the scores' variance that it explains (fANOVA); {} if there are too few trials."""
    try:
        fractions = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )
    except (RuntimeError, ValueError):  # fewer than two finished trials, or all scores are equal
        return {}
    return {name: float(value) for name, value in fractions.items() if value == value}
