"""A run from several seeds, and what it has to beat.

One figure of one seed says little: fine-tuning varies with the order of the records and the first weights of the head. Each seed
is a run of its own in `seed-N/`; the dev set is the same for all. The parent folder gets the model that is in the middle by its
dev score (the best one would be a lucky one), and mean, standard deviation and 95 % t-interval of every score.
"""

import math
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from unmask import report
from unmask.console import Console
from unmask.errors import UserError, command
from unmask.labels.record_sets import Opened
from unmask.metrics import metric
from unmask.recipe import Recipe
from unmask.runs import finetune
from unmask.stopping import continues_with
from unmask.train import checkpoint
from unmask.train.distributed import World
from unmask.train.fit import Interrupted
from unmask.train.run import Run, environment

OWN = {"run.json", "recipe.yaml", "results.json", "report.html", "lock"}  # files that the parent has of its own


def check(recipe: Recipe) -> None:
    asked = ["--seeds"] * (recipe.task.seeds > 1) + ["--baseline"] * recipe.task.baseline
    if recipe.tasks and asked:
        raise UserError(f"{asked[0]} with several tasks", fix=f"{asked[0]} with one task at a time")


def run_all(
    recipe: Recipe, run: Run, world: World, console: Console, resume: bool = False, opened: Opened | None = None
) -> dict[str, Any]:
    """One run, or several with their summary; then the baselines, when they are asked for. What is done is not done again."""
    check(recipe)
    try:
        with continues_with(run.resume_command):
            return _run_all(recipe, run, world, console, resume, opened)
    except Interrupted as stopped:
        raise Interrupted(stopped.got, fix=command("unmask finetune --resume", run.path), code=stopped.code) from None


def _run_all(
    recipe: Recipe, run: Run, world: World, console: Console, resume: bool, opened: Opened | None
) -> dict[str, Any]:
    if recipe.task.seeds > 1:
        results = run_seeds(recipe, run, world, console, opened)
    elif resume:
        results = finetune.resume(run, world, console)
    else:
        results = finetune.run_one(recipe, run, world, console, opened)
    return add_baselines(recipe, run, world, console, results) if recipe.task.baseline else results


def add_baselines(recipe: Recipe, run: Run, world: World, console: Console, results: dict[str, Any]) -> dict[str, Any]:
    from unmask.runs.baseline import baselines  # scikit-learn takes a second to import

    if "baselines" in world.share(results):
        return results
    found = baselines(recipe, run, world, console)
    if world.main:
        results = results | {"baselines": found}
        run.write_json("results.json", results)
        report.write(run)
    return results


def run_seeds(recipe: Recipe, run: Run, world: World, console: Console, opened: Opened | None = None) -> dict[str, Any]:
    if (run.path / "results.json").exists():
        console.say(f"{run.path} is finished")
        return run.read_json("results.json")
    if world.main and not (run.path / "recipe.yaml").exists():
        run.write_kind("seeds")
        recipe.write(run.path / "recipe.yaml")
        run.write_json("environment.json", environment())
    with run.lock() if world.main else nullcontext():
        found: list[dict[str, Any]] = []
        for seed in range(recipe.seed, recipe.seed + recipe.task.seeds):
            console.say(f"seed {seed}: {len(found) + 1} of {recipe.task.seeds}")
            found.append(one_seed(recipe, seed, Run(run.path / f"seed-{seed}"), world, console, opened))
        if not world.main:
            return {}
        results = summary(found, recipe.seed)
        middle = Run(run.path / f"seed-{results['median']}")
        for file in middle.path.iterdir():
            if file.is_file() and file.name not in OWN:
                shutil.copy2(file, run.path / file.name)
        checkpoint.write_folder(run.model, lambda folder: copy(middle.model, folder))
        results["model"] = str(run.model)
        settled = middle.recipe()  # with what the files decided
        task = settled.task.model_copy(update={"seeds": recipe.task.seeds, "baseline": recipe.task.baseline})
        settled.model_copy(update={"seed": recipe.seed, "task": task}).write(run.path / "recipe.yaml")
        run.write_json("results.json", results)
        report.write(run)
        return results


def one_seed(
    recipe: Recipe, seed: int, run: Run, world: World, console: Console, opened: Opened | None = None
) -> dict[str, Any]:
    """The results of one seed; what is there of it already is taken, or gone on with."""
    if (run.path / "learnt.json").exists():  # begun: everything that `resume` needs is written before the first step
        return finetune.resume(run, world, console)
    dev_seed = abs(recipe.seed) if recipe.task.dev_seed is None else recipe.task.dev_seed
    task = recipe.task.model_copy(update={"seeds": 1, "baseline": False, "dev_seed": dev_seed})
    if world.main:
        shutil.rmtree(run.path, ignore_errors=True)
        run.path.mkdir()
    world.barrier()
    return finetune.run_one(recipe.model_copy(update={"seed": seed, "task": task}), run, world, console, opened)


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


def summary(found: Sequence[dict[str, Any]], first: int) -> dict[str, Any]:
    """results.json of several seeds: that of the middle one, every seed's scores, and what they say together."""
    decides = found[0]["metric"]
    middle = median([r.get("dev", {}).get(decides) for r in found])
    seeds, together = [], []
    for n, result in enumerate(found):
        flat = {f"{name} {k}": v for name in ("dev", "test") for k, v in result.get(name, {}).items() if k != "records"}
        seeds.append({"seed": first + n, "step": result["step"], "seconds": result["seconds"], **flat})
    for name in ("dev", "test"):
        keys = dict.fromkeys(k for r in found for k in r.get(name, {}) if metric(k).kind == "score")
        for key in keys:
            values = [r[name][key] for r in found if key in r.get(name, {})]
            together.append({"set": name, "score": key, **interval(values, metric(key).low, metric(key).high)})
    kept = {key: value for key, value in found[middle].items() if key != "model"}
    return kept | {"median": first + middle, "seeds": seeds, "over_seeds": together}


def median(values: Sequence[float | None]) -> int:
    """The number of the one in the middle (of an even number, the lower of the two); 0 where nothing is known.

    >>> median([0.9, 0.5, 0.7]), median([0.9, 0.5, 0.7, 0.8]), median([None, None])
    (2, 2, 0)
    >>> median([0.5, 0.9, 0.7])
    2
    """
    known = sorted((value, n) for n, value in enumerate(values) if value is not None)
    return known[(len(known) - 1) // 2][1] if known else 0


def interval(values: Sequence[float], least: float = -math.inf, most: float = math.inf) -> dict[str, Any]:
    """Mean, standard deviation of the sample, and Student's 95 % interval of the mean, as far as the score can reach.

    Two seeds tell nothing of that: the interval is 12 times as wide as what they differ by.

    >>> {k: round(v, 3) for k, v in interval([1.0, 2.0, 3.0]).items()}
    {'mean': 2.0, 'sd': 1.0, 'low': -0.484, 'high': 4.484, 'runs': 3}
    """
    from scipy.stats import t

    mean = float(np.mean(values))
    if len(values) < 2:
        return {"mean": mean, "sd": None, "low": None, "high": None, "runs": len(values)}
    sd = float(np.std(values, ddof=1))
    if len(values) < 3:
        return {"mean": mean, "sd": sd, "low": None, "high": None, "runs": len(values)}
    reach = float(t.ppf(0.975, len(values) - 1)) * sd / math.sqrt(len(values))
    low, high = (float(x) for x in np.clip([mean - reach, mean + reach], min(least, mean), max(most, mean)))
    return {"mean": mean, "sd": sd, "low": low, "high": high, "runs": len(values)}
