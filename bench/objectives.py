"""Compare pre-training objectives: the same small encoder and the same minutes, then held-out loss and accuracy after fine-tuning.

    python bench/objectives.py --minutes 3 --out runs/objectives

The text, the 2,000 labeled reviews and the 5,000 test reviews are those of `unmask quickstart`. The table has one seed per objective, so
small differences are not significant. The script first converts all budgets from minutes to steps by timing some steps: run nothing else
on the machine meanwhile. Other work does not affect the results after that.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from unmask import api
from unmask.console import Console
from unmask.model.config import with_tokenizer
from unmask.recipe import Recipe
from unmask.runs import quickstart, quickstart_data
from unmask.runs.budget import make_plan
from unmask.runs.context import Context
from unmask.runs.pretrain import Pretrain
from unmask.settings import deep_merge

OBJECTIVES: dict[str, dict[str, Any]] = {
    "mlm": {"objective": "mlm"},
    "mlm, whole words": {"objective": "mlm", "mlm": {"mask_unit": "word"}},
    "mlm+nsp": {"objective": "mlm+nsp"},
    "rtd": {"objective": "rtd"},
    "hybrid": {"objective": "hybrid"},
}


def count_steps(values: dict[str, Any], minutes: float, console: Console) -> int:
    """Return how many steps of this recipe fit into the minutes on this machine."""
    recipe = with_tokenizer(Recipe.build(deep_merge(values, {"train": {"minutes": minutes}})))
    kind, context = Pretrain(), Context.single_process(console)
    job = kind.prepare(recipe, context)
    return make_plan(kind.work(job, context), job.recipe, context)[0].steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0, help="pre-training time of each objective")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", default=list(OBJECTIVES), choices=list(OBJECTIVES), help="objectives to compare"
    )
    parser.add_argument("--plan", type=Path, help="steps.json of an earlier run: train for the same number of steps")
    parser.add_argument("--out", type=Path, required=True, help="new folder for the runs")
    args = parser.parse_args()
    console = Console()
    args.out.mkdir(parents=True)
    quickstart.write_files(args.out, args.seed, Context.single_process(console))
    corpus = {"corpus": [str(args.out / quickstart_data.TEXT)]}
    base = deep_merge(Recipe.load_builtin("quickstart"), {"seed": args.seed, "data": corpus})
    lines = ["| objective | steps | held-out loss | accuracy |", "|---|---|---|---|"]
    if args.plan:
        plans = json.loads(args.plan.read_text())
    else:
        plans = {name: count_steps(deep_merge(base, OBJECTIVES[name]), args.minutes, console) for name in args.only}
    (args.out / "steps.json").write_text(json.dumps(plans))
    console.say(f"steps of each objective: {plans}")
    for name in args.only:
        console.say(f"pre-training with {name}")
        folder = args.out / name.replace(",", "").replace("+", "-").replace(" ", "-")
        values = deep_merge(base, {**OBJECTIVES[name], "train": {"steps": plans[name]}})
        run = api.pretrain(recipe=Recipe.build(values), out=folder / "pretrain", console=console)
        end = next(e for e in run.events() if e["event"] == "end")
        recipe = quickstart.classifier_recipe(args.out, run.model, args.seed)
        finetuned = api.finetune(recipe=recipe, out=folder / "finetune", console=console)
        accuracy = finetuned.results()["test"]["accuracy"]
        losses = ", ".join(
            f"{k} {v:.2f}"
            for k, v in end["evaluation"].items()
            if not k.endswith("accuracy") and k not in ("step", "loss", "perplexity")
        )
        lines.append(f"| {name} | {end['step']:,} | {losses} | {accuracy:.1%} |")
        console.say("\n".join(lines))


if __name__ == "__main__":
    main()
