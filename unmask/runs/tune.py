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
from typing import Any

from unmask import report
from unmask.console import Console
from unmask.errors import UserError, command
from unmask.files import write_text
from unmask.labels.findings import KEPT, as_rows
from unmask.labels.record_sets import Opened
from unmask.model import hf
from unmask.model.families import FAMILIES
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.runs import finetune
from unmask.runs.job import open_teacher
from unmask.seeds import address
from unmask.stopping import continues_with
from unmask.tasks import folder as task_folder
from unmask.train.distributed import World
from unmask.train.fit import Interrupted
from unmask.train.run import Run, environment
from unmask.train.trainer import NonFinite

STUDY = "study.jsonl"
SETTINGS = ("lr", "epochs", "batch", "layer_decay", "warmup", "pooling")
STARTUP = 5  # trials drawn at random before the search learns from them; none of them is pruned
COPIED = ("plan.json", "log.jsonl", "learnt.json")  # of the best trial


class Pruned(Exception):
    """A trial that lies below the median of those before it."""


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("unmask tune needs Optuna, which is not installed", fix="pip install 'unmask[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


# ------------------------------------------------------------------------------------------------------ what is searched


def space(recipe: Recipe, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Setting → its range, around the recipe's own value: of a recipe in which `auto` and 0 are resolved."""
    config, kind, train = hf.config_of(recipe.start), TASKS[recipe.task.kind], recipe.train
    wrong = [name for name in names or [] if name not in SETTINGS]
    if wrong:
        raise UserError(f"--search {wrong[0]}", valid=", ".join(SETTINGS))
    found: dict[str, dict[str, Any]] = {
        "lr": {"low": train.lr / 5, "high": train.lr * 5, "log": True},
        "batch": {"choices": sorted({max(2, train.batch // 2), train.batch, train.batch * 2})},
        "warmup": {"low": 0.0, "high": max(0.3, train.warmup)}
        if train.warmup < 1
        else {"low": 1.0, "high": 2 * train.warmup},  # of steps
    }
    if train.epochs is not None:  # another budget is one that the user wants kept
        found["epochs"] = {"low": train.epochs / 2, "high": 2 * train.epochs}
        if train.epochs == round(train.epochs):
            found["epochs"] = {"low": max(1.0, round(train.epochs / 2)), "high": 2 * train.epochs, "step": 1.0}
    if recipe.task.freeze == "none" and config.layers > 1:
        found["layer_decay"] = {"low": min(0.7, train.layer_decay), "high": 1.0}
    given = {recipe.task.pooling, recipe.task.embed.pooling, recipe.model.get("pooling", "auto")} != {"auto"}
    if not given and (kind.name == "embed" or (kind.pools() and "pooling" in FAMILIES[config.family].fields)):
        found["pooling"] = {"choices": ["cls", "mean"]}
    if idle := next((name for name in names or [] if name not in found), None):
        raise UserError(f"--search {idle}: this model and recipe leave no choice of it", valid=", ".join(found))
    return {name: found[name] for name in names or SETTINGS if name in found}


def own(job: finetune.Job, ranges: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The recipe's own values of what is searched."""
    pooling = job.task.learnt.get("pooling", job.model.config.pooling)
    return {name: pooling if name == "pooling" else getattr(job.recipe.train, name) for name in ranges}


def suggest(trial: Any, ranges: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        name: trial.suggest_categorical(name, r["choices"]) if "choices" in r else trial.suggest_float(name, **r)
        for name, r in ranges.items()
    }


def with_values(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    train = recipe.train.model_copy(update={name: v for name, v in values.items() if name != "pooling"})
    task = recipe.task.model_copy(update={"pooling": values["pooling"]} if "pooling" in values else {})
    return recipe.model_copy(update={"train": train, "task": task})


# ----------------------------------------------------------------------------------------------------------- the search


def begin(
    recipe: Recipe,
    run: Run,
    trials: int,
    minutes: float | None,
    names: list[str] | None,
    opened: Opened | None = None,
) -> None:
    """Everything that can be wrong is found here; what is asked for is written down. `opened`: the files, where they are read already."""
    _optuna()
    if recipe.tasks:
        raise UserError(
            "a search over several tasks at once", fix="unmask tune with one task, then a recipe of several"
        )
    job = finetune.prepare(recipe, opened=opened)
    if not job.sets.dev:
        raise UserError("a search needs a dev set to compare by", fix="--dev FILE, or more records in --train")
    open_teacher(job)
    ranges = space(job.recipe, names)
    run.write_kind("tune")
    job.recipe.write(run.path / "recipe.yaml")
    run.write_json("environment.json", environment())
    asked = {"trials": trials, "minutes": minutes, "space": ranges, "first": own(job, ranges)}
    run.write_json("tune.json", asked)


def search(run: Run, world: World, console: Console, trials: int | None = None) -> dict[str, Any]:
    """Trials until there are as many as asked for, or time is up; then the best model, judged. Goes on where it stopped."""
    optuna = _optuna()
    if world.size > 1:
        raise UserError("unmask tune under torchrun", fix="run it as one process")
    asked, recipe = run.read_json("tune.json"), run.recipe()
    if trials and trials != asked["trials"]:
        run.write_json("tune.json", asked := asked | {"trials": trials})
        (run.path / "results.json").unlink(missing_ok=True)
    if (run.path / "results.json").exists():
        console.say(f"{run.path} is finished")
        return run.read_json("results.json")
    with continues_with(run.resume_command), run.lock(), warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(run.path / STUDY))),
            study_name="tune",
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(
                n_startup_trials=min(STARTUP, max(1, asked["trials"] // 3)),
                n_warmup_steps=1
                + recipe.train.evaluations // 3,  # the first third says more of the warm-up than of the end
            ),
            load_if_exists=True,
        )
        if not study.get_trials(deepcopy=False):
            study.enqueue_trial(asked["first"])
        while (done := _ended(study)) < asked["trials"]:
            spent = sum(t.user_attrs.get("seconds", 0.0) for t in study.get_trials(deepcopy=False))
            if asked["minutes"] and done and spent >= 60 * asked["minutes"]:
                console.say(f"{asked['minutes']:g} minutes are over after {done} trials")
                break
            study.sampler = optuna.samplers.TPESampler(
                seed=address(recipe.seed, "tune", done) % 2**32, n_startup_trials=STARTUP
            )
            _trial(optuna, study, _next(optuna, study), run, recipe, asked["space"], world, console)
        return _finish(optuna, study, run, recipe, asked, console)


def _ended(study: Any) -> int:
    return sum(t.state.is_finished() for t in study.get_trials(deepcopy=False))


def _next(optuna: Any, study: Any) -> Any:
    """The trial that a kill has left in the middle, or a new one."""
    left = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    return optuna.trial.Trial(study, left[0]._trial_id) if left else study.ask()


def _trial(
    optuna: Any, study: Any, trial: Any, run: Run, base: Recipe, ranges: dict, world: World, console: Console
) -> None:
    state, begun = optuna.trial.TrialState, time.monotonic()
    values = suggest(trial, ranges)
    folder = Run(run.path / "trials" / f"{trial.number:03d}")
    without_test = base.model_copy(update={"task": base.task.model_copy(update={"test": []})})
    recipe = with_values(without_test, values)

    def watch(score: float) -> None:
        number = 1 + sum(e.get("event") == "eval" for e in folder.events())  # a share of training, as there are so many
        if number not in study._storage.get_trial(trial._trial_id).intermediate_values:
            trial.report(score, number)
        if trial.should_prune():
            raise Pruned

    quiet = Console(quiet=True)
    try:
        if (folder.path / "learnt.json").exists():
            results = finetune.resume(folder, world, quiet, watch)
        else:
            shutil.rmtree(folder.path, ignore_errors=True)
            folder.path.mkdir(parents=True)
            job = finetune.prepare(recipe)
            job.sets.findings.clear()  # said once, by the best
            results = finetune.run_job(job, folder, world, quiet, watch=watch)
        if results["metric"] not in results["dev"]:
            raise UserError(
                f"{results['metric']}, which decides between trials, is not defined on this dev set",
                fix="--dev FILE with more records, whose labels differ",
            )
        score, ended = float(results["dev"][results["metric"]]), state.COMPLETE
    except Pruned:
        score, ended = float(max(study._storage.get_trial(trial._trial_id).intermediate_values.values())), state.PRUNED
    except Interrupted as stopped:
        done = _ended(study)
        raise Interrupted(
            f"stopped after {done} trials; everything up to here is saved",
            fix=command("unmask tune --resume", run.path),
            code=stopped.code,
        ) from None
    except UserError as error:
        if not isinstance(error.__cause__, NonFinite):  # a full disk, say
            raise
        score, ended = float("nan"), state.FAIL
    best = _best(study)
    trial.set_user_attr("seconds", round(time.monotonic() - begun, 2))
    trial.set_user_attr("score", score)
    study.tell(trial.number, score if ended == state.COMPLETE else None, state=ended)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    if ended == state.COMPLETE and (best is None or score > best.value):
        if best is not None:
            shutil.rmtree(run.path / "trials" / f"{best.number:03d}" / "model", ignore_errors=True)
        mark = "  best so far"
    else:
        shutil.rmtree(folder.model, ignore_errors=True)
        mark = {state.PRUNED: "  pruned", state.FAIL: "  failed: the loss was no number"}.get(ended, "")
    shown = "  ".join(f"{name} {v:.3g}" if isinstance(v, float) else f"{name} {v}" for name, v in values.items())
    console.say(f"trial {trial.number}: {score:.4f}  {shown}{mark}")


def _best(study: Any) -> Any:
    """The first of the best trials."""
    found = [t for t in study.get_trials(deepcopy=False) if t.value is not None and t.state.name == "COMPLETE"]
    return max(found, key=lambda t: (t.value, -t.number), default=None)


# ------------------------------------------------------------------------------------------------------------- the end


def _finish(optuna: Any, study: Any, run: Run, base: Recipe, asked: dict[str, Any], console: Console) -> dict[str, Any]:
    best = _best(study)
    if best is None:
        raise UserError("no trial came to its end", fix="a smaller learning rate: --lr, or more records")
    folder = Run(run.path / "trials" / f"{best.number:03d}")
    recipe = with_values(base, best.params)
    recipe.write(run.path / "best.yaml")
    for name in COPIED:
        if (folder.path / name).exists():
            shutil.copy2(folder.path / name, run.path / name)
    weights = folder.model if folder.model.is_dir() else run.model  # of a search that is extended
    job = finetune.prepare(recipe, weights, task_folder.learnt(weights))
    run.write_json("data.json", {"records": finetune.sizes(job.sets), "key": job.sets.fingerprint()})
    run.write_json("findings.json", as_rows(job.sets.findings, KEPT))
    past = folder.read_json("results.json")
    state = {"step": past["step"], "best": past["best"], "elapsed": past["seconds"]}
    results = finetune.finish(job, run, state, console)
    shutil.rmtree(folder.model, ignore_errors=True)  # it is run.model now
    rows = table(study, list(asked["space"]))
    results |= {"trials": rows, "trial": best.number, "settings": best.params}
    results |= {
        "importance": importance(optuna, study),
        "command": command("unmask finetune --recipe", run.path / "best.yaml"),
    }
    write_text(run.path / "trials.csv", as_csv(rows))
    run.write_json("results.json", results)
    report.write(run)
    console.say(f"best of {len(rows)}: trial {best.number}, {results['metric']} {best.value:.4f}; {results['command']}")
    return results


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
