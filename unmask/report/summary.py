"""`summary`: what a run is, did and reached, as JSON; `facts`: the same in lines. Behind `unmask info RUN`.

All is read from the run folder alone, without torch, and at any moment of a run's life: before its first
step, while it goes on, after a kill in the middle of a log line. What is not there is left out.
"""

from contextlib import suppress
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from unmask.errors import UserError, command, quote
from unmask.files import read_object
from unmask.model.families import FAMILIES
from unmask.recipe import Recipe
from unmask.report.curves import accuracies, finite, mixed_tracks, term_name
from unmask.train.health import text_warnings
from unmask.train.log import FIXED_TEXT, fixed_of, is_sum
from unmask.train.run import Run

SHAPE = {  # name here → key of config.json
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
}


def summary(run: Run) -> dict[str, Any]:
    """Everything that `unmask info RUN` prints, as JSON: numbers that are not finite become null."""
    recipe = Recipe.read(run.path / "recipe.yaml")
    if dig(recipe, "task", "train") or recipe.get("tasks"):
        from unmask.report.task_summary import task_summary  # which uses this module

        return task_summary(run)
    warnings: list[dict[str, Any]] = []

    def read(name: str) -> dict[str, Any]:
        """A file of the run; {} when it was not written yet."""
        if not (run.path / name).exists():
            return {}
        try:
            value = run.read_json(name)
        except UserError as error:
            warnings.append({"step": None, "text": error.got})
            return {}
        return value if isinstance(value, dict) else {}

    plan, meta = read("plan.json"), read("data.json")
    log = events(run)
    train = [e for e in log if e.get("event") == "train"]
    scored = [e for e in log if e.get("event") == "eval" and finite(e.get("loss"))]
    done = int(max((e["step"] for e in log if finite(e.get("step"))), default=0))
    last_stretch = (plan.get("stretches") or [{}])[-1]
    total = last_stretch.get("start", 0) + last_stretch.get("steps", 0) or dig(recipe, "train", "steps")
    state, model = _state(run, log, done, total), shape(run.model)
    speeds = [e["tokens_per_second"] for e in train if finite(e.get("tokens_per_second"))]
    with suppress(KeyError, TypeError):  # counts that a store of another version does not have
        warnings += [{"step": None, "text": text} for text in text_warnings(meta)]
    said = [e for e in log if e.get("event") in ("warning", "error")]
    warnings += [{"step": e.get("step"), "text": e.get("text")} for e in said]
    return jsonable(
        {
            "run": str(run.path),
            "state": state,
            "steps": {"done": done, "total": total},
            "tokens": _tokens(train),
            "seconds": max((e["elapsed"] for e in log if finite(e.get("elapsed"))), default=0.0),
            "tokens_per_second": median(speeds) if speeds else None,
            "preset": recipe.get("preset"),
            "start": recipe.get("start") or None,
            "objective": recipe.get("objective"),
            "heldout": {
                "first": scored[0] if scored else None,
                "last": scored[-1] if scored else None,
                "best": min(scored, key=lambda e: e["loss"]) if scored else None,
            },
            "mixed": _mixed([e for e in log if e.get("event") == "eval"]),
            "model": model,
            "data": _data(meta, recipe),
            "device": dig(recipe, "train", "device"),
            "environment": read("environment.json"),
            "warnings": warnings,
            "continue": command("unmask pretrain --resume", run.path) if state == "interrupted" else None,
            "use": use(run.model, model) if state == "finished" else None,
        }
    )


def use(folder: Path, model: dict[str, Any]) -> str:
    """The command to try a model with, whose `shape` is `model`: what its heads allow."""
    quoted = quote(folder)
    family = FAMILIES.get(model.get("family") or "")
    heads = family.architectures.get(model["architecture"], ()) if family else ()
    if (folder / "generator").is_dir():  # ELECTRA: the discriminator judges tokens, its generator proposes them
        return f'unmask fill {quoted}/generator "… [MASK] …"'
    if model.get("predicts") == "next":
        return f'unmask generate {quoted} "…"'
    if "mlm" in heads:
        return f'unmask fill {quoted} "… [MASK] …"'
    return f'unmask generate {quoted} "…"' if "lm" in heads else f"unmask info {quoted}"


def _mixed(evals: list[dict[str, Any]]) -> dict[str, Any]:
    """Mixed text → its first and last held-out values: whether the model forgets it."""
    tracks = mixed_tracks(evals)
    return {name: {"first": track[0], "last": track[-1]} for name, track in tracks.items()}


def events(run: Run, kind: str | None = None) -> list[dict[str, Any]]:
    """Lines of the log, all or of one kind."""
    return [e for e in run.events() if isinstance(e, dict) and kind in (None, e.get("event"))]


def _state(run: Run, log: list[dict[str, Any]], done: int, total: int | None) -> str:
    """finished, running, failed (a loss that is not a number: going on would fail again) or interrupted."""
    ended = any(e.get("event") == "end" for e in log)
    if ended or (total and done >= total and (run.model / "config.json").exists()):
        return "finished"
    if run.in_use():
        return "running"
    return "failed" if log and log[-1].get("event") == "error" else "interrupted"


def _tokens(train: list[dict[str, Any]]) -> int:
    """Tokens read so far. With `train.log_every` above 1, a line stands for the steps since the last one."""
    total, before = 0, 0
    for e in train:
        if finite(e.get("step")) and finite(e.get("tokens")):
            total += e["tokens"] * (e["step"] - before)
            before = e["step"]
    return int(total)


def shape(folder: Path) -> dict[str, Any]:
    """Class, sizes and parameters of a model folder, from config.json and the headers of the weights."""
    from safetensors import SafetensorError, safe_open

    try:
        config = read_object(folder / "config.json")
        out = {"architecture": (config.get("architectures") or [None])[0], "family": config.get("model_type")}
        out |= {name: config.get(key) for name, key in SHAPE.items()}
        out |= {"predicts": config["unmask_predicts"]} if "unmask_predicts" in config else {}
    except (OSError, ValueError, AttributeError):
        return {}
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as tensors:
                count += sum(prod(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
        except (OSError, SafetensorError):
            return out
    return out | {"parameters": count} if count else out


def _data(meta: dict[str, Any], recipe: dict[str, Any]) -> dict[str, Any]:
    """What the token store's meta.json, kept as data.json, says of the text."""
    train = meta.get("train") or {}
    language = dig(recipe, "data", "language")
    tokens, unknown = train.get("tokens"), train.get("unk_tokens")
    return {
        "sources": list(dig(recipe, "data", "corpus") or []),
        "language": language if language != "auto" else None,
        "train": train,
        "heldout": meta.get("heldout") or {},
        "unk_share": unknown / tokens if finite(unknown) and tokens else None,
        "vocabulary": meta.get("vocabulary"),
        "unigram_entropy": meta.get("unigram_entropy"),
        "duplicates": meta.get("duplicates") or {},
        "corpus": meta.get("corpus") or {},
    }


def dig(values: Any, *keys: str) -> Any:
    """A nested value, or None where the way to it ends.

    >>> dig({"a": {"b": 1}}, "a", "b"), dig({"a": None}, "a", "b")
    (1, None)
    """
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def jsonable(value: Any) -> Any:
    """NaN and infinities as None, since JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: jsonable(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    return None if isinstance(value, float) and not finite(value) else value


def facts(s: dict[str, Any]) -> list[tuple[str, str]]:
    """A summary as labelled lines; the command line and the report show the same ones."""
    if s.get("kind") == "finetune":
        from unmask.report.task_summary import task_facts

        return task_facts(s)
    best, last = s["heldout"]["best"], s["heldout"]["last"]
    entropy, unknown = s["data"]["unigram_entropy"], s["data"]["unk_share"]
    rows = [
        ("state", s["state"]),
        ("model", describe_model(s)),
        ("objective", s["objective"]),
        ("steps", describe_steps(s)),
        ("tokens read", f"{s['tokens']:,}" + epochs(s)),
        ("time", duration(s["seconds"])),
        ("speed", f"{s['tokens_per_second']:,.0f} tokens/s (median)" if s["tokens_per_second"] else None),
        ("held-out", describe_scores(last) if last else None),
        ("fixed masking", describe_fixed(last) if last else None),
        ("best held-out", f"{describe_scores(best)} (step {best['step']:,})" if best != last else None),
        *[(f"held-out of {name}", describe_change(m["first"], m["last"])) for name, m in s.get("mixed", {}).items()],
        ("unigram entropy", f"{entropy:.3f} nats" if finite(entropy) else None),
        ("text", ", ".join(s["data"]["sources"])),
        ("trained on", counts(s["data"]["train"])),
        ("held out", counts(s["data"]["heldout"])),
        ("[UNK]", f"{unknown:.3%} of the tokens" if finite(unknown) else None),
        ("duplicates", describe_duplicates(s["data"]["duplicates"])),
        ("hardware", hardware(s)),
        ("go on", s["continue"]),
        ("use", s["use"]),
    ]
    return [(label, text) for label, text in rows if text]


def describe_model(s: dict[str, Any]) -> str:
    m = s["model"]
    parts = [s["start"] or s["preset"] or "", m.get("architecture") or ""]
    parts += [f"{m['layers']} layers × {m['hidden']}" if m.get("layers") and m.get("hidden") else ""]
    parts += [f"vocabulary {m['vocabulary']:,}" if m.get("vocabulary") else ""]
    parts += [f"{m['parameters']:,} parameters" if m.get("parameters") else ""]
    return ", ".join(p for p in parts if p)


def describe_steps(s: dict[str, Any]) -> str:
    done, total = s["steps"]["done"], s["steps"]["total"]
    return f"{done:,} of {total:,}" if total else f"{done:,}"


def describe_scores(e: dict[str, Any]) -> str:
    """
    >>> describe_scores({"loss": 4.9, "mlm": 4.9, "perplexity": 134.3, "mlm_accuracy": 0.21})
    'loss 4.900, perplexity 134.3, MLM accuracy 21.0%'
    >>> describe_scores({"loss": 5.5, "mlm": 4.9, "nsp": 0.6, "perplexity": 134.3})
    'loss 5.500, MLM loss 4.900, perplexity 134.3'
    """
    parts = [f"loss {e['loss']:.3f}"]
    parts += [f"MLM loss {e['mlm']:.3f}"] if is_sum(e) and finite(e["mlm"]) else []
    parts += [f"perplexity {e['perplexity']:,.1f}"] if finite(e.get("perplexity")) else []
    parts += [f"{term_name(t)} accuracy {e[f'{t}_accuracy']:.1%}" for t in accuracies([e])]
    return ", ".join(parts)


def describe_fixed(e: dict[str, Any]) -> str:
    """The last evaluation under the masking that is the same for every run; empty where there is none."""
    found = fixed_of(e)
    return f"{describe_scores(found)}; {FIXED_TEXT}" if found and finite(found.get("loss")) else ""


def describe_change(first: dict[str, Any], last: dict[str, Any]) -> str:
    """
    >>> describe_change({"step": 0, "loss": 2.5}, {"step": 9, "loss": 2.75})
    'loss 2.750 (2.500 at step 0)'
    """
    return describe_scores(last) + (f" ({first['loss']:.3f} at step {first['step']:,})" if first != last else "")


def describe_duplicates(duplicates: dict[str, Any]) -> str:
    """
    >>> describe_duplicates({"exact": 3, "documents": 90, "near": {"share": 0.1, "documents": 50}})
    '3 of 90 documents, dropped; near duplicates: 10.0% of 50 looked at'
    """
    exact, documents, near = duplicates.get("exact"), duplicates.get("documents"), duplicates.get("near") or {}
    parts = []
    if finite(exact) and finite(documents):
        parts.append(f"{exact:,} of {documents:,} documents, dropped" if exact else "none")
    if finite(near.get("share")) and near.get("documents"):
        parts.append(f"near duplicates: {near['share']:.1%} of {near['documents']:,} looked at")
    if near.get("leaked"):
        parts.append(f"{near['leaked']:,} of {near['heldout']:,} held-out documents nearly equal one trained on")
    return "; ".join(parts)


def hardware(s: dict[str, Any]) -> str:
    environment, threads = s["environment"], s["environment"].get("threads")
    if environment.get("cuda") and s["device"] != "cpu":
        return environment["cuda"]
    return ", ".join(filter(None, [environment.get("cpu"), f"{threads} threads" if threads else ""]))


def duration(seconds: float) -> str:
    """
    >>> duration(75), duration(330), duration(9000)
    ('75 s', '5.5 minutes', '2.5 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def counts(split: dict[str, Any]) -> str:
    names = ("tokens", "documents", "sentences", "words")
    return ", ".join(f"{split[n]:,} {n}" for n in names if finite(split.get(n)))


def epochs(s: dict[str, Any]) -> str:
    tokens = s["data"]["train"].get("tokens")
    return f" ({s['tokens'] / tokens:.2f} × the text)" if tokens else ""


def render(template: str, **values: Any) -> str:
    """A page of the reports, from its template beside this file."""
    from jinja2 import Environment, PackageLoader

    pages = Environment(
        loader=PackageLoader("unmask.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return pages.get_template(template).render(**values)
