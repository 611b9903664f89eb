"""Plain functions, one per verb of the command line, with the same names for the same things.

run = unmask.pretrain("corpus/", preset="bert-mini", minutes=5)
unmask.load(run.model).fill("the president of the united [MASK]")
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from unmask.data import extend as extension
from unmask.data.corpus import Corpus
from unmask.data.mix import parts as mix_parts
from unmask.data.prepare import prepare as build_store
from unmask.data.store import TokenStore
from unmask.data.tokenizer import Tokenizer, tokenizer_folder
from unmask.errors import UserError, nearest
from unmask.model.config import with_tokenizer
from unmask.recipe import Recipe
from unmask.settings import merge
from unmask.train.log import Console

Corpora = str | Path | Sequence[str | Path] | None
AnyRecipe = str | Path | Recipe | dict[str, Any] | None

# Short names (flags, Python keywords) → where they stand in a recipe.
SHORT = {
    "seed": "seed",
    "preset": "preset",
    "start": "start",
    "objective": "objective",
    "documents": "data.documents",
    "column": "data.column",
    "encoding": "data.encoding",
    "language": "data.language",
    "heldout": "data.heldout",
    "workers": "data.workers",
    "mix": "data.mix",
    "tokenizer": "tokenizer.path",
    "kind": "tokenizer.kind",
    "vocab_size": "tokenizer.vocab_size",
    "lowercase": "tokenizer.lowercase",
    "strip_accents": "tokenizer.strip_accents",
    "special_tokens": "tokenizer.special_tokens",
    "extend_vocab": "tokenizer.extend",
    "mask_rate": "mlm.rate",
    "mask_unit": "mlm.unit",
    "minutes": "train.minutes",
    "tokens": "train.tokens",
    "steps": "train.steps",
    "epochs": "train.epochs",
    "batch": "train.batch",
    "length": "train.length",
    "lr": "train.lr",
    "device": "train.device",
    "precision": "train.precision",
}


def make_recipe(
    corpus: Corpora = None,
    recipe: AnyRecipe = None,
    sets: Sequence[str] = (),
    **short: Any,
) -> Recipe:
    """A recipe file, then keywords, then `section.field=value` strings, each winning over the one before.

    >>> make_recipe("corpus/", minutes=5).train.minutes
    5.0
    """
    values: dict[str, Any] = {}
    if isinstance(recipe, Recipe):
        values = recipe.model_dump(exclude_unset=True)
    elif isinstance(recipe, dict):
        values = recipe
    elif recipe is not None:
        values = Recipe.read(recipe)
    if corpus is not None:
        several = [corpus] if isinstance(corpus, str | Path) else corpus
        if not isinstance(several, list | tuple) or not all(isinstance(c, str | Path) for c in several):
            raise UserError(
                f"corpus: {corpus!r}", valid="a path, a folder, a glob, '-', sample:NAME, or a list of these"
            )
        values = merge(values, {"data": {"corpus": [str(c) for c in several]}})
    unknown = sorted(set(short) - set(SHORT))
    if unknown:
        raise UserError(f"unknown keyword {unknown[0]!r}{nearest(unknown[0], list(SHORT))}", valid=", ".join(SHORT))
    budgets = ("minutes", "tokens", "steps", "epochs")
    if any(short.get(b) is not None for b in budgets):  # a flag replaces the file's budget, whatever its unit
        values = merge(values, {"train": dict.fromkeys(budgets)})
    for name, value in short.items():
        if value is not None:
            nested: Any = value
            for key in reversed(SHORT[name].split(".")):
                nested = {key: nested}
            values = merge(values, nested)
    if short.get("preset") and short.get("start"):
        raise UserError(
            f"--from {short['start']} is a model with a shape of its own; --preset {short['preset']} is another",
            fix="leave out one of them",
        )
    made = Recipe.build(values, [sets] if isinstance(sets, str) else list(sets))
    distill = made.distill.model_copy(update={"teacher": _model_in(made.distill.teacher)})
    return made.model_copy(update={"start": _model_in(made.start), "distill": distill})


def _model_in(folder: str) -> str:
    """A run folder stands for its model."""
    inner = Path(folder) / "model"
    return str(inner) if folder and (inner / "config.json").exists() else folder


# ------------------------------------------------------------------------------------------------ text


def samples() -> list[dict[str, Any]]:
    """The corpora that pip packages provide: name, size, licence, whether it is here, and how to get it."""
    from unmask.data.samples import list_samples

    return list_samples()


def train_tokenizer(
    corpus: Corpora, out: str | Path, *, recipe: AnyRecipe = None, console: Console | None = None, **short: Any
) -> dict[str, Any]:
    """Train a tokenizer on a corpus and save it in `out`; a report on text held out from its training."""
    recipe = with_tokenizer(make_recipe(corpus, recipe, **short))
    console = console or Console(quiet=True)
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already", fix="another folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}", fix="another folder with -o") from None
    source = open_corpus(recipe, console)
    heldout: list[str] = []
    size = 0

    def training_texts():
        nonlocal size
        for n, document in enumerate(source):
            if n % 50 == 49 and size < 2_000_000:
                heldout.append(document.text)
                size += len(document.text)
            else:
                yield document.text

    with console.bar("tokenizer") as update:
        total = source.bytes()
        tokenizer = Tokenizer.train(
            training_texts(), recipe.tokenizer, lambda read: update(min(read, total), total, "")
        )
    tokenizer.save(folder)
    say_problems(source, console)
    texts = heldout or [d.text for d in _first(source, 20)]
    report = tokenizer.report(texts)
    return {
        "path": str(folder),
        **report,
        "special_tokens": [tokenizer.token(i) for i in range(tokenizer.size) if tokenizer.special[i]],
        "measured_on": "held-out documents" if heldout else "the training text itself (too few documents to hold out)",
        "trained_on": tokenizer.trained_on,
    }


def _first(items: Any, n: int) -> list[Any]:
    from itertools import islice

    return list(islice(iter(items), n))


def open_corpus(recipe: Recipe, console: Console) -> Corpus:
    if not recipe.data.corpus:
        raise UserError(
            "no corpus given",
            valid="paths, folders, globs, '-' or sample:NAME",
            fix="unmask pretrain sample:python-docs",
        )
    corpus = Corpus(recipe.data.corpus, recipe.data)
    console.say(corpus.describe())
    return corpus


def say_problems(corpus: Corpus, console: Console) -> None:
    for text in corpus.report.lines():
        console.say(f"  {text}")


def find_tokenizer(recipe: Recipe, corpus: Corpus, console: Console) -> Tokenizer:
    """The one named in the recipe, the one of the model to continue, or one trained on the corpus (and cached)."""
    settings = recipe.tokenizer
    if recipe.start:
        # Compared by value: a run's own recipe, read again, has every field set.
        usual = type(settings)().model_dump()
        changed = [n for n, v in settings.model_dump().items() if v != usual[n] and n not in ("path", "extend")]
        if changed:
            raise UserError(
                f"--from {recipe.start} brings its own tokenizer; {', '.join(sorted(changed))} cannot be changed",
                fix="leave out the tokenizer's settings",
            )
    elif settings.extend:
        raise UserError(
            f"--extend-vocab {settings.extend} without a model to continue: a new model gets a tokenizer of this text",
            fix="--from MODEL --extend-vocab N, or --vocab-size N for a new tokenizer",
        )
    if settings.path or recipe.start:
        tokenizer = Tokenizer.load(settings.path or recipe.start)
        for text in tokenizer.notes:
            console.say(text)
        return extend_tokenizer(tokenizer, corpus, settings.extend, console) if settings.extend else tokenizer
    settings = with_tokenizer(recipe).tokenizer
    folder = tokenizer_folder(corpus, settings)
    if (folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.load(folder)
        console.say(f"tokenizer: {settings.kind}, {tokenizer.size:,} tokens, trained on this text before (cached)")
        return tokenizer
    with console.bar("tokenizer") as update:
        total = corpus.bytes()
        tokenizer = Tokenizer.train(
            (d.text for d in corpus), settings, lambda read: update(min(read, total), total, "")
        )
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    try:
        tokenizer.save(partial)
        partial.rename(folder)
    except OSError:  # another process was faster, with the same result
        pass
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    console.say(f"tokenizer: {settings.kind}, {tokenizer.size:,} tokens, trained on this text")
    return tokenizer


def extend_tokenizer(tokenizer: Tokenizer, corpus: Corpus, count: int, console: Console) -> Tokenizer:
    """The tokenizer with up to `count` words of the corpus added; says which and what it saves."""
    with console.bar("vocabulary") as update:
        total = corpus.bytes()
        tokenizer, report = extension.extended(
            tokenizer, corpus, count, lambda read: update(min(read, total), total, "")
        )
    console.say(extension.describe(report))
    return tokenizer


def prepare(
    corpus: Corpora = None,
    out: str | Path | None = None,
    *,
    recipe: AnyRecipe = None,
    lengths: Sequence[int] = (),
    console: Console | None = None,
    **short: Any,
) -> TokenStore:
    """Corpus → memory-mapped token store: in `out`, or in the cache under a key of its settings."""
    recipe = make_recipe(corpus, recipe, **short)
    console = console or Console(quiet=True)
    if len(recipe.data.corpus) == 1 and (Path(recipe.data.corpus[0]) / "meta.json").exists():
        store = TokenStore.open(recipe.data.corpus[0])
        store.index(lengths)
        if recipe.tokenizer.extend and store.tokenizer.fingerprint() == Tokenizer.load(recipe.start).fingerprint():
            raise UserError(
                f"--extend-vocab: the store {store.path} is cut already, without new words",
                fix="give the text itself in place of the store",
            )
        return store
    source = open_corpus(recipe, console)
    tokenizer = find_tokenizer(recipe, source, console)
    with console.bar("prepare") as update:
        store = build_store(source, tokenizer, recipe.data, out, update, lengths)
    for text in store.meta["corpus"].get("lines", []):
        console.say(f"  {text}")
    console.say(store.describe())
    return store


def prepare_mix(recipe: Recipe, tokenizer: Tokenizer, lengths: Sequence[int], console: Console) -> list[str]:
    """The texts of `data.mix`, cut with the corpus's tokenizer: the folders of their stores."""
    folders = []
    for part in mix_parts(recipe.data.mix):
        if (Path(part.source) / "meta.json").exists():
            store = TokenStore.open(part.source)
            store.index(lengths)
        else:
            source = Corpus([part.source], recipe.data)
            console.say(f"mixed in, {float(part.share):.0%} of the rows: {source.describe()}")
            with console.bar("prepare") as update:
                store = build_store(source, tokenizer, recipe.data, None, update, lengths)
        folders.append(str(store.path))
    return folders


def show_batch(store: str | Path, *, recipe: AnyRecipe = None, rows: int = 4, **short: Any):
    """The first training rows of a store as the objective corrupts them: what is masked, random, kept."""
    from unmask.data.rows import Rows
    from unmask.objectives.objective import build
    from unmask.serve.examples import masked_batch
    from unmask.train.loader import Loader
    from unmask.train.schedule import lengths, plan

    opened = TokenStore.open(store)
    recipe = make_recipe(None, recipe, **short)
    if recipe.objective == "auto":
        recipe = recipe.model_copy(update={"objective": "mlm"})
    objective = build(recipe, opened.tokenizer)
    loader = Loader(Rows(opened.train, opened.tokenizer, recipe.seed, objective.rows), objective, recipe.seed)
    count = {n: loader.rows.count(n) for n, _ in lengths(recipe.train)}
    phase = plan(recipe, count).phase(0)
    examples = [loader.example(n, phase) for n in range(min(rows, count[phase.length]))]
    return masked_batch(examples, opened.tokenizer)


# ------------------------------------------------------------------------------------------------ training


def dry_run(
    corpus: Corpora = None, *, recipe: AnyRecipe = None, sets: Sequence[str] = (), **short: Any
) -> dict[str, Any]:
    """What a run would be: resolved recipe, parameters, memory, steps and time, without reading the whole text."""
    from unmask.train import estimate

    return estimate.estimate(make_recipe(corpus, recipe, sets, **short))


def pretrain(
    corpus: Corpora = None,
    *,
    recipe: AnyRecipe = None,
    out: str | Path | None = None,
    sets: Sequence[str] = (),
    console: Console | None = None,
    **short: Any,
):
    """Text → a pre-trained model in a new run folder. Keywords are the flags of `unmask pretrain`.

    >>> run = pretrain("sample:python-docs", preset="bert-tiny", steps=100)     # doctest: +SKIP
    """
    return _pretrain(make_recipe(corpus, recipe, sets, **short), out, console or Console(quiet=True))


def _pretrain(recipe: Recipe, out: str | Path | None, console: Console):
    from unmask.train import pretraining
    from unmask.train.run import Run, environment

    recipe = with_tokenizer(recipe)
    pretraining.check(recipe)
    if out is not None:
        Run.check_free(out)
    world, console = _join(recipe, console)
    pairs = pretraining.pair_lengths(recipe)
    path, others = "", []
    if world.main:
        made = prepare(recipe=recipe, lengths=pairs, console=console)
        path, others = str(made.path), prepare_mix(recipe, made.tokenizer, pairs, console)
    path, others = world.share((path, others))
    store, mixed = TokenStore.open(path), pretraining.open_mix(recipe, others)
    setup = pretraining.set_up(recipe, store, recipe.start or None, mixed)
    plan = pretraining.make_plan(setup, world, console)
    setup.recipe = pretraining.resolve(setup.recipe, plan)
    name = setup.recipe.preset if not recipe.start else Path(recipe.start).name
    run = Run(world.share(str(Run.create(out, "pretrain", name).path) if world.main else None))
    with run.lock() if world.main else nullcontext():
        if world.main:
            setup.recipe.write(run.path / "recipe.yaml")
            run.write_json("environment.json", environment())
            run.write_json("plan.json", plan.as_dict())
            run.write_json("data.json", data_of(store, mixed))
            console.say(announce(setup, plan, run))
        state = pretraining.pretrain(setup, plan, run, world, console)
        if world.main:
            finish(run, store, state, console)
    world.leave()
    return run


def resume(path: str | Path, *, console: Console | None = None):
    """Continue a run from its last whole checkpoint, bit for bit as if it had never stopped."""
    from unmask.train import checkpoint, pretraining
    from unmask.train.run import Run
    from unmask.train.schedule import Plan

    run = Run.open(path)
    recipe = run.recipe()
    world, console = _join(recipe, console or Console(quiet=True))
    plan = Plan.from_dict(run.read_json("plan.json"))
    with run.lock() if world.main else nullcontext():
        ended = world.share(is_complete(run) if world.main else None)
        if ended:
            console.say(f"{run.path} is finished: {plan.steps:,} steps")
            world.leave()
            return run
        path, others = world.share(_stores_of(run, recipe, console) if world.main else None)
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


def _join(recipe: Recipe, console: Console) -> tuple[Any, Console]:
    """The processes of this run; only the first one speaks."""
    import torch

    from unmask.train.distributed import World
    from unmask.train.trainer import pick_device

    if recipe.train.threads:
        torch.set_num_threads(recipe.train.threads)
    world = World.join(pick_device(recipe.train.device).type)
    return world, console if world.main else Console(quiet=True)


def data_of(store: TokenStore, mixed: Sequence[Any]) -> dict[str, Any]:
    """data.json of a run: what is known of its text, and where the stores are."""
    others = [
        {"name": m.part.name, "source": m.part.source, "share": float(m.part.share), "key": m.store.meta["key"],
         "store": str(m.store.path.resolve()), "train": m.store.meta["train"], "heldout": m.store.meta["heldout"]}
        for m in mixed
    ]  # fmt: skip
    return {**store.meta, "store": str(store.path.resolve())} | ({"mix": others} if others else {})


def _stores_of(run: Any, recipe: Recipe, console: Console) -> tuple[str, list[str]]:
    """The run's own stores; made again when the cache was pruned, and refused when a text has changed."""
    meta = run.read_json("data.json")
    known = [meta, *meta.get("mix", [])]
    folders = [m["store"] for m in known]
    if not all((Path(folder) / "meta.json").exists() for folder in folders):
        console.say("a token store is gone from the cache: preparing it again")
        store = prepare(recipe=recipe, console=console)
        folders = [str(store.path), *prepare_mix(recipe, store.tokenizer, (), console)]
    if [TokenStore.open(folder).meta["key"] for folder in folders] != [m["key"] for m in known]:
        raise UserError(
            f"the text of {run.path} has changed since it was begun",
            fix="a new run: unmask pretrain with another --out",
        )
    return folders[0], folders[1:]


def announce(setup: Any, plan: Any, run: Any) -> str:
    count = sum(p.numel() for p in setup.model.parameters())
    recipe, counts = setup.recipe, setup.store.meta["train"]
    what = recipe.start or recipe.preset
    return (
        f"{what}: {count:,} parameters, objective {recipe.objective}, {recipe.train.optimizer}\n"
        f"{plan.steps:,} steps of {plan.batch} rows = {plan.tokens:,} tokens "
        f"({plan.tokens / max(1, counts['tokens']):.2f} × the text) → {run.path}"
    )


MADE_LAST = ("fills.json", "curves.png", "report.html", "model/README.md")


def is_complete(run: Any) -> bool:
    """Whether nothing is left to do: a kill after the last step may have come before the report was written."""
    return any(e["event"] == "end" for e in run.events()) and all((run.path / name).exists() for name in MADE_LAST)


def finish(run: Any, store: TokenStore, state: dict[str, Any], console: Console) -> None:
    """After the last step: fills, curves, report, model card. The log ends with `end`."""
    from unmask.lab import report
    from unmask.train.log import Log, clock

    predictor = load(run.model)
    run.write_json("fills.json", predictor.example_fills(store, count=6) if "mlm" in predictor.heads else [])
    log = Log(run.log)
    log.write("end", step=state["step"], elapsed=round(state["elapsed"], 2), evaluation=state["evaluation"])
    log.close()
    report.draw_curves(run)
    report.write_report(run)
    report.write_card(run, run.model)
    console.say(f"done in {clock(state['elapsed'])}: {run.model}  (report: {run.path / 'report.html'})")


# --------------------------------------------------------------------------------------------------- fine-tuning

# Short names (flags, Python keywords) → where they stand in a recipe, beside those of SHORT.
TASK_SHORT = {
    "task": "task.kind",
    "train": "task.train",
    "dev": "task.dev",
    "test": "task.test",
    "columns": "task.columns",
    "labels": "task.labels",
    "length": "task.length",
    "long": "task.long",
    "pooling": "task.pooling",
    "freeze": "task.freeze",
    "aux": "task.aux",
    "augment": "task.augment",
    "teacher": "task.teacher",
    "patience": "task.patience",
    **{name: SHORT[name] for name in ("seed", "minutes", "steps", "epochs", "batch", "lr", "device", "precision")},
}


def task_recipe(model: str | Path, recipe: AnyRecipe = None, sets: Sequence[str] = (), **short: Any) -> Recipe:
    """As `make_recipe`, with fine-tuning's defaults below."""
    from unmask.lab import finetune as lab

    values: dict[str, Any] = {"start": _model_in(str(model))} if model else {}
    if recipe is not None:
        given = recipe.model_dump(exclude_unset=True) if isinstance(recipe, Recipe) else recipe
        values = merge(given if isinstance(given, dict) else Recipe.read(given), values)
    unknown = sorted(set(short) - set(TASK_SHORT))
    if unknown:
        raise UserError(
            f"unknown keyword {unknown[0]!r}{nearest(unknown[0], list(TASK_SHORT))}", valid=", ".join(TASK_SHORT)
        )
    for name, value in short.items():
        if value is None:
            continue
        if name in ("train", "dev", "test"):
            value = [str(value)] if isinstance(value, str | Path) else [str(v) for v in value]
        nested: Any = value
        for key in reversed(TASK_SHORT[name].split(".")):
            nested = {key: nested}
        values = merge(values, nested)
    made = lab.make_recipe(values, [sets] if isinstance(sets, str) else list(sets))
    if not made.start:
        raise UserError("no model to fine-tune", fix="unmask finetune MODEL --train FILE")
    return made


def finetune(
    model: str | Path = "",
    *,
    recipe: AnyRecipe = None,
    out: str | Path | None = None,
    sets: Sequence[str] = (),
    console: Console | None = None,
    **short: Any,
):
    """A model and a labelled file → a model that answers, in a new run folder. Keywords are the flags of `unmask finetune`.

    >>> clf = finetune("runs/docs/model", train="train.csv", test="test.csv")     # doctest: +SKIP
    """
    from unmask.lab import finetune as lab
    from unmask.train.run import Run

    made = task_recipe(model, recipe, sets, **short)
    if out is not None:
        Run.check_free(out)
    world, console = _join(made, console or Console(quiet=True))
    name = made.task.kind if made.task.kind != "auto" else "task"
    run = Run(world.share(str(Run.create(out, "finetune", name).path) if world.main else None))
    lab.run_one(made, run, world, console)
    world.leave()
    return run


def resume_finetune(path: str | Path, *, console: Console | None = None):
    from unmask.lab import finetune as lab
    from unmask.train.run import Run

    run = Run.open(path)
    world, console = _join(run.recipe(), console or Console(quiet=True))
    lab.resume(run, world, console)
    world.leave()
    return run


def evaluate(
    model: str | Path,
    file: str | Path | Sequence[str | Path],
    *,
    columns: dict[str, str] | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """The scores of a fine-tuned model on a labelled file."""
    from unmask.lab import judge

    return judge.evaluate(load(model), _paths(file), columns or {}, console or Console(quiet=True))


def predict(
    model: str | Path, texts: Any, *, columns: dict[str, str] | None = None, console: Console | None = None
) -> list[dict[str, Any]]:
    """Answers of a fine-tuned model to texts, records, or the records of a file."""
    from unmask.lab import judge

    return judge.predict(load(model), texts, columns or {}, console or Console(quiet=True))


def _paths(file: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(file)] if isinstance(file, str | Path) else [str(f) for f in file]


def load(model: str | Path, device: str = "auto"):
    """A model folder, a run folder or a hub name → an object with `fill`, `next`, `score`, `embed`."""
    from unmask.serve.predictor import load as load_predictor

    return load_predictor(model, device)


def info(run: str | Path) -> dict[str, Any]:
    """What a run is, did and reached; or what a model folder holds."""
    from unmask.lab.describe import describe, is_model
    from unmask.lab.report import summary
    from unmask.train.run import Run

    if is_model(run):
        return describe(run)
    return summary(Run.open(run))


def quickstart(
    out: str | Path | None = None, *, minutes: float = 5.0, seed: int = 0, console: Console | None = None
) -> dict[str, Any]:
    """Movie reviews → tokenizer → pre-trained model → classifier, against TF-IDF; about a quarter of an hour."""
    from unmask.lab import quickstart as lab

    console = console or Console(quiet=True)
    return lab.quickstart(lambda recipe, folder: _pretrain(recipe, folder, console), out, minutes, seed, console)
