"""A pre-training run from its text to its report, and a stopped one from its last checkpoint (the training itself: `runs/pretraining.py`)."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from unmask import report
from unmask.console import Console, clock
from unmask.errors import UserError
from unmask.files import check_recipe
from unmask.hub import without_revision
from unmask.inference.predictor import load
from unmask.model.config import with_tokenizer
from unmask.model.device import pick_device
from unmask.recipe import Recipe
from unmask.runs import pretraining
from unmask.runs.corpus_setup import prepare, prepare_mix
from unmask.stopping import continues_with
from unmask.text.store import TokenStore
from unmask.train import checkpoint, track
from unmask.train.distributed import World
from unmask.train.log import Log
from unmask.train.mix import Mixed
from unmask.train.run import Run, environment
from unmask.train.schedule import Plan

MADE_LAST = ("fills.json", "curves.png", "report.html", "model/README.md")


def begin(recipe: Recipe, out: str | Path | None, console: Console) -> Run:
    """A new run, from the text to the report."""
    recipe = with_tokenizer(recipe)
    pretraining.check(recipe)
    check_recipe(recipe.text())
    if out is not None:
        Run.check_free(out)
    world, console = join(recipe, console)
    pairs = pretraining.pair_lengths(recipe)
    path, others = "", []
    if world.main:
        made = prepare(recipe, console, lengths=pairs)
        path, others = str(made.path), prepare_mix(recipe, made.tokenizer, pairs, console)
    path, others = world.share((path, others))
    store, mixed = TokenStore.open(path), pretraining.open_mix(recipe, others)
    setup = pretraining.set_up(recipe, store, recipe.start or None, mixed)
    plan = pretraining.make_plan(setup, world, console)
    setup.recipe = pretraining.resolve(setup.recipe, plan)
    name = setup.recipe.preset if not recipe.start else Path(without_revision(recipe.start)).name
    run = Run(world.share(str(Run.create(out, "pretrain", name).path) if world.main else None))
    with continues_with(run.resume_command), run.lock() if world.main else nullcontext():
        if world.main:
            run.write_kind("pretrain")
            setup.recipe.write(run.path / "recipe.yaml")
            run.write_json("environment.json", environment())
            run.write_json("plan.json", plan.as_dict())
            run.write_json("data.json", data_of(store, mixed) | {"files": pretraining.checksums(setup.recipe)})
            console.say(announce(setup, plan, run))
        state = pretraining.pretrain(setup, plan, run, world, console)
        if world.main:
            finish(run, store, state, console)
    world.leave()
    return run


def resume(path: str | Path, console: Console) -> Run:
    """Continue a run from its last whole checkpoint, bit for bit as if it had never stopped."""
    run = Run.open(path)
    recipe = run.recipe()
    world, console = join(recipe, console)
    plan = Plan.from_dict(run.read_json("plan.json"))
    with continues_with(run.resume_command), run.lock() if world.main else nullcontext():
        ended = world.share(is_complete(run) if world.main else None)
        if ended:
            console.say(f"{run.path} is finished: {plan.steps:,} steps")
            world.leave()
            return run
        path, others = world.share(stores_of(run, recipe, console) if world.main else None)
        store, mixed = TokenStore.open(path), pretraining.open_mix(recipe, others)
        last = checkpoint.latest(run.checkpoints, console.warn)
        done = last.state["step"] if last else 0
        setup = pretraining.set_up(recipe, store, last.model if last else recipe.start or None, mixed)
        if world.main:
            run.rewind(done)
            console.say(f"continuing {run.path} at step {done:,} of {plan.steps:,}")
        state = pretraining.pretrain(setup, plan, run, world, console, last)
        if world.main:
            finish(run, store, state, console)
    world.leave()
    return run


def join(recipe: Recipe, console: Console) -> tuple[World, Console]:
    """The processes of this run; only the first one speaks."""
    track.check(recipe.train.track)
    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    world = World.join(pick_device(recipe.train.device).type)
    return world, console if world.main else Console(quiet=True)


def data_of(store: TokenStore, mixed: Sequence[Mixed]) -> dict[str, Any]:
    """data.json of a run: what is known of its text, and where the stores are."""
    others = [
        {"name": m.part.name, "source": m.part.source, "share": float(m.part.share), "key": m.store.meta["key"],
         "store": str(m.store.path.resolve()), "train": m.store.meta["train"], "heldout": m.store.meta["heldout"]}
        for m in mixed
    ]  # fmt: skip
    return {**store.meta, "store": str(store.path.resolve())} | ({"mix": others} if others else {})


def stores_of(run: Run, recipe: Recipe, console: Console) -> tuple[str, list[str]]:
    """The run's own stores; made again when the cache was pruned, and refused when a text or a teacher has changed."""
    meta = run.read_json("data.json")
    pretraining.check_unchanged(recipe, meta.get("files", {}), run.path)
    known = [meta, *meta.get("mix", [])]
    folders = [m["store"] for m in known]
    if not all((Path(folder) / "meta.json").exists() for folder in folders):
        console.say("a token store is gone from the cache: preparing it again")
        store = prepare(recipe, console)
        folders = [str(store.path), *prepare_mix(recipe, store.tokenizer, (), console)]
    if [TokenStore.open(folder).meta["key"] for folder in folders] != [m["key"] for m in known]:
        raise UserError(
            f"the text of {run.path} has changed since it was begun",
            fix="a new run: unmask pretrain with another --out",
        )
    return folders[0], folders[1:]


def announce(setup: pretraining.Setup, plan: Plan, run: Run) -> str:
    count = sum(p.numel() for p in setup.model.parameters())
    recipe, counts = setup.recipe, setup.store.meta["train"]
    what = recipe.start or recipe.preset
    return (
        f"{what}: {count:,} parameters, objective {recipe.objective}, {recipe.train.optimizer}\n"
        f"{plan.steps:,} steps of {plan.batch} rows = {plan.tokens:,} tokens "
        f"({plan.tokens / max(1, counts['tokens']):.2f} × the text) → {run.path}"
    )


def is_complete(run: Run) -> bool:
    """Whether nothing is left to do: a kill after the last step may have come before the report was written."""
    return any(e["event"] == "end" for e in run.events()) and all((run.path / name).exists() for name in MADE_LAST)


def finish(run: Run, store: TokenStore, state: dict[str, Any], console: Console) -> None:
    """After the last step: fills, curves, report, model card. The log ends with `end`."""
    predictor = load(run.model)
    run.write_json("fills.json", predictor.example_fills(store, count=6) if "mlm" in predictor.heads else [])
    log = Log(run.log)
    log.write("end", step=state["step"], elapsed=round(state["elapsed"], 2), evaluation=state["evaluation"])
    log.close()
    report.write(run)
    console.say(f"done in {clock(state['elapsed'])}: {run.model}  (report: {run.path / 'report.html'})")
