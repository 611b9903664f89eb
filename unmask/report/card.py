"""The model card: README.md of a model folder, as the hub reads it.

It follows Mitchell et al. 1810.03993: training data, training time, scores and limitations. The card is published with the model,
so it contains no paths of this machine.
"""

from pathlib import Path, PureWindowsPath
from typing import Any

import yaml

from unmask.errors import command
from unmask.files import write_text
from unmask.hub import is_pinned, without_revision
from unmask.metrics import finite
from unmask.report import usage, words
from unmask.report.view import RunView, get_nested, shape

BIAS = "Bias was not evaluated."


def write_cards(view: RunView, s: dict[str, Any]) -> None:
    """Write a card for each model of the run."""
    if view.on_text:
        if view.model.is_dir():
            _write(view.model, *_pretrained_card(view, s))
        return
    for name in view.tasks:
        folder = view.folder(name)
        if folder.is_dir():
            _write(folder, *_finetuned_card(view, s, name))


def _write(folder: Path, front: dict[str, Any], sections: list[str]) -> None:
    header = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    write_text(folder / "README.md", f"---\n{header}---\n\n" + "\n\n".join(filter(None, sections)) + "\n")


def _pretrained_card(view: RunView, s: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the front matter and the sections of a pre-trained model's card."""
    data, model, task = s["data"], s["model"], usage.pipeline(s["model"])[0]
    name = (model.get("family") if s["init_from"] else s["preset"]) or "model"
    unmask_only = usage.is_unmask_only(model)
    front: dict[str, Any] = {"library_name": "unmask" if unmask_only else "transformers", "pipeline_tag": task}
    front |= {"language": data["language"]} if data["language"] else {}
    front["tags"] = _tags(model)
    kind = "masked language model" if task == "fill-mask" else "model"
    unknown = f"{data['unk_share']:.3%} of the tokens" if data["unk_share"] is not None else ""
    return front, [
        f"# {name}",
        f"A {kind} trained with unmask: {words.describe_model({'preset': name, 'model': model})}.",
        "## Training data",
        _bullets(
            ("Text", ", ".join(code(public_name(source)) for source in data["sources"])),
            ("Size", words.counts(data["train"])),
            ("Validation text", words.counts(data["eval"])),
            ("Unknown tokens", unknown),
            ("Duplicates", words.describe_duplicates(data["duplicates"])),
            ("Started from", code(public_name(s["init_from"])) if s["init_from"] else ""),
        ),
        "## Training",
        _bullets(
            ("Steps", words.describe_steps(s)),
            ("Tokens read", f"{s['tokens']:,}{words.epochs(s)}"),
            ("Time", words.duration(s["seconds"])),
            ("Hardware", words.hardware(s)),
        ),
        "## Evaluation",
        _validation_scores(s),
        "## Recipe",
        _bullets(*[(key, code(value)) for key, value in key_hparams(view.recipe).items() if value not in (None, "")]),
        "## Use",
        "transformers has no class for this architecture; load the folder with unmask." if unmask_only else "",
        "In this folder:",
        f"```sh\n{command('unmask fill', Path(), usage.example(s))}\n```" if task == "fill-mask" else "",
        f"```python\n{usage.snippet(model, '.', usage.example(s))}\n```",
        "## Limitations",
        "- Trained only on the corpus above; expect poor performance on other domains, languages and styles.\n"
        "- Small models trained for a short time are often confidently wrong; see the evaluation.\n"
        f"- It reproduces the biases of its training text. {BIAS}",
    ]


def _finetuned_card(view: RunView, s: dict[str, Any], name: str) -> tuple[dict[str, Any], list[str]]:
    """Return the front matter and the sections of a fine-tuned model's card; `name` is the task's in a multi-task run, else ""."""
    kind, spec = str(s["tasks"][name] if name else s["task"]), view.spec(name)
    rows, model = [r for r in s["scores"] if r["task"] == name], shape(view.folder(name))
    library_snippet = usage.library_snippet(model, ".", spec)
    hub = spec.usage.pipeline if spec else ""
    unmask_only = usage.is_unmask_only(model, spec) or not hub
    front: dict[str, Any] = {"library_name": "unmask" if unmask_only or not spec else spec.usage.library}
    front |= ({"pipeline_tag": hub} if hub else {}) | {"tags": _tags(model)}
    front |= {"metrics": sorted({r["score"] for r in rows})} if rows else {}
    files, labels = s["files"].get(name) or {}, s["labels"].get(name) or []
    title = public_name(s["init_from"] or "model")
    return front, [
        f"# {without_revision(title)} – {name or kind}",
        f"A model for {kind}, fine-tuned with unmask: {words.describe_model({'model': model})}.",
        "## Training data",
        _bullets(
            ("Started from", code(title)),
            *[(f"{part} file", ", ".join(code(public_name(f)) for f in paths)) for part, paths in files.items()],
            ("Records", words.record_counts(s["records"].get(name, {}) if name else s["records"])),
            ("Labels", ", ".join(code(label) for label in labels[:50])),
            ("Steps", words.describe_steps(s)),
            ("Time", words.duration(s["seconds"])),
            ("Hardware", words.hardware(s)),
        ),
        "## Evaluation",
        _table(rows),
        "The dev set was used for model selection and threshold tuning, so dev scores are optimistic." if rows else "",
        words.notes_on(rows),
        "## Use",
        f"```python\n{usage.unmask_snippet('.', spec)}\n```",
        f"```python\n{library_snippet}\n```" if library_snippet else "",
        "## Limitations",
        "- The scores hold for data like the training data; expect lower scores on other domains, styles and languages.\n"
        f"- It reproduces the biases of its text and labels. {BIAS}",
    ]


def _tags(model: dict[str, Any]) -> list[str]:
    return ["unmask", *([model["family"]] if model.get("family") else [])]


def _validation_scores(s: dict[str, Any]) -> str:
    last, entropy = s["evaluation"]["last"], s["data"]["unigram_entropy"]
    if not last:
        return "No validation was done: the run has no validation text."
    lines = f"Validation at step {last['step']:,}: {words.describe_scores(last)}."
    if finite(entropy) and finite(last.get("mlm")):
        gap = entropy - last["mlm"]
        lines += (
            f" The MLM loss, {last['mlm']:.3f} nats, is {abs(gap):.2f} {'below' if gap > 0 else 'above'} "
            f"the unigram entropy of the text ({entropy:.3f}), which is the loss of a model that knows only token frequencies."
        )
    return lines


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "Not evaluated: there was no dev set and no test set."
    lines = ["| set | records | score | value | 95% CI |", "|---|---|---|---|---|"]
    for r in rows:
        between = f"{r['low']:.3f} to {r['high']:.3f}" if finite(r["low"]) else ""
        cells = (r["set"], f"{r['records']:,}", words.spaced(r["score"]), f"{r['value']:.4f}", between)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def key_hparams(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the most important settings of a recipe."""
    fields = ["batch_size", "max_length", "optimizer", "lr", "muon_lr", "weight_decay", "schedule", "warmup"]
    if get_nested(recipe, "train", "optimizer") != "muon":
        fields.remove("muon_lr")
    if not get_nested(recipe, "train", "lr"):
        fields.remove("lr")  # 0: the optimizer's default
    out = {"seed": recipe.get("seed"), "objective": recipe.get("objective")}
    out |= {f"mlm.{name}": get_nested(recipe, "mlm", name) for name in ("mask_rate", "mask", "random", "keep")}
    return out | {f"train.{name}": get_nested(recipe, "train", name) for name in fields}


def _bullets(*rows: tuple[str, str]) -> str:
    return "\n".join(f"- {label}: {text}" for label, text in rows if text)


def code(value: Any) -> str:
    """Format a value as a Markdown code span, whatever backticks it contains.

    >>> code("a"), code("a`b"), code("a\\nb")
    ('`a`', '`` a`b ``', '`a b`')
    """
    text = " ".join(str(value).split())
    fence = "`"
    while fence in text:
        fence += "`"
    return f"`{text}`" if fence == "`" else f"{fence} {text} {fence}"


def public_name(source: str) -> str:
    """Return the name of a corpus or model without local folders; a pinned hub model keeps its name and commit.

    >>> [public_name(x) for x in ("/home/me/books/", "/data/news/*.txt", "sample:sotu", "-", "google/bert")]
    ['books', 'news/*.txt', 'sample:sotu', 'standard input', 'bert']
    """
    if source == "-":
        return "standard input"
    if source.startswith("sample:") or is_pinned(source):
        return source
    parts = [p for p in PureWindowsPath(source).parts if p not in (PureWindowsPath(source).anchor, "..", "~")]
    pattern = bool(parts) and any(c in parts[-1] for c in "*?[")
    return "/".join(parts[-2:] if pattern else parts[-1:]) or "a folder"
