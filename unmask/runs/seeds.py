"""Fine-tuning with several seeds (`--num-seeds`).

The score of a single seed says little: fine-tuning varies with the order of the records and the initial weights of the head.
Each seed is a run in `seed-N/`; the dev set is the same for all. The parent folder gets the model with the median dev score (the
best one would be a lucky one), and mean, standard deviation and 95% t-interval of every score.
"""

import math
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.labels.record_sets import raise_errors
from unmask.metrics import metric
from unmask.recipe import Recipe
from unmask.runs.context import Context
from unmask.runs.data import read_cached
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import Job, ResumeState
from unmask.runs.loops import Child, Loop
from unmask.train import checkpoint
from unmask.train.run import Run

PARENT_ONLY_FILES = {
    "run.json",
    "recipe.yaml",
    "results.json",
    "report.html",
    "lock",
}  # not copied from the selected seed


class Seeds(Loop[Job]):
    name, folder = "seeds", "finetune"

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        return Finetune().check(recipe, ctx)

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> Job:
        if resume_state:
            return Job(recipe, "")
        spec, sets = read_cached(recipe.task, ctx.cache)
        raise_errors(sets.findings)
        return Job(recipe, spec.name)

    def next(self, job: Job, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> Child | None:
        recipe, count = job.recipe, job.recipe.task.num_seeds
        if len(done) == count:
            return None
        seed = recipe.seed + len(done)
        ctx.console.say(f"seed {seed}: {len(done) + 1} of {count}")
        dev_seed = abs(recipe.seed) if recipe.task.dev_seed is None else recipe.task.dev_seed
        task = {"num_seeds": 1, "baseline": False, "dev_seed": dev_seed}
        return Child(f"seed-{seed}", "finetune", recipe.changed(seed=seed, task=task))

    def finish(self, job: Job, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        """Copy the files of the seed with the median score and summarize the scores of all seeds."""
        results = summary(done, job.recipe.seed)
        selected = Run(run.path / f"seed-{results['selected_seed']}")
        for file in selected.path.iterdir():
            if file.is_file() and file.name not in PARENT_ONLY_FILES:
                shutil.copy2(file, run.path / file.name)
        checkpoint.write_folder(run.model, lambda folder: shutil.copytree(selected.model, folder, dirs_exist_ok=True))
        task = {"num_seeds": job.recipe.task.num_seeds, "baseline": job.recipe.task.baseline}
        run.write_recipe(selected.recipe().changed(seed=job.recipe.seed, task=task))  # with all settings resolved
        return results | {"model": str(run.model)}

    def extend_results(self, run: Run, ctx: Context) -> bool:
        return Finetune().extend_results(run, ctx)


def summary(results: Sequence[dict[str, Any]], first_seed: int) -> dict[str, Any]:
    """Return results.json of several seeds: the results of the median seed, each seed's scores, and their statistics."""
    median = median_index([r.get("dev", {}).get(results[0]["metric"]) for r in results])
    seeds, statistics = [], []
    for n, result in enumerate(results):
        flat = {f"{name} {k}": v for name in ("dev", "test") for k, v in result.get(name, {}).items() if k != "records"}
        seeds.append({"seed": first_seed + n, "step": result["step"], "seconds": result["seconds"], **flat})
    for name in ("dev", "test"):
        keys = dict.fromkeys(k for r in results for k in r.get(name, {}) if metric(k).kind == "score")
        for key in keys:
            values = [r[name][key] for r in results if key in r.get(name, {})]
            statistics.append({"set": name, "score": key, **t_interval(values, metric(key).low, metric(key).high)})
    selected = {key: value for key, value in results[median].items() if key != "model"}
    return selected | {"selected_seed": first_seed + median, "seeds": seeds, "seed_summary": statistics}


def median_index(values: Sequence[float | None]) -> int:
    """Return the index of the median (the lower one of two); 0 if all values are None.

    >>> median_index([0.9, 0.5, 0.7]), median_index([0.9, 0.5, 0.7, 0.8]), median_index([None, None])
    (2, 2, 0)
    >>> median_index([0.5, 0.9, 0.7])
    2
    """
    ordered = sorted((value, n) for n, value in enumerate(values) if value is not None)
    return ordered[(len(ordered) - 1) // 2][1] if ordered else 0


def t_interval(values: Sequence[float], min_score: float = -math.inf, max_score: float = math.inf) -> dict[str, Any]:
    """Return mean, sample standard deviation, and Student's 95% interval of the mean, clipped to the range of the score.

    Two values give no interval: it would be 12 times as wide as their difference.

    >>> {k: round(v, 3) for k, v in t_interval([1.0, 2.0, 3.0]).items()}
    {'mean': 2.0, 'sd': 1.0, 'low': -0.484, 'high': 4.484, 'runs': 3}
    """
    from scipy.stats import t

    mean, runs, low, high = float(np.mean(values)), len(values), None, None
    sd = float(np.std(values, ddof=1)) if runs > 1 else None
    if sd is not None and runs > 2:
        half = float(t.ppf(0.975, runs - 1)) * sd / math.sqrt(runs)
        low, high = np.clip([mean - half, mean + half], min(min_score, mean), max(max_score, mean)).tolist()
    return {"mean": mean, "sd": sd, "low": low, "high": high, "runs": runs}
