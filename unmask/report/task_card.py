"""The model card of a fine-tuned model, and the lines that use it, in unmask and in the libraries that open its folder."""

from pathlib import Path
from typing import Any

import yaml

from unmask.errors import UserError
from unmask.files import read_object, write_text
from unmask.hub import without_revision
from unmask.model.families import FAMILIES
from unmask.report.card import code, public_name
from unmask.report.curves import finite
from unmask.report.summary import describe_model, describe_steps, duration, hardware, shape
from unmask.report.task_summary import paired, raw_text_note, second_text
from unmask.train.run import Run

# Task → (its name on the hub, the class of transformers, what the class gives)
PIPELINES = {
    "classify": ("text-classification", "AutoModelForSequenceClassification", "logits"),
    "tag": ("token-classification", "AutoModelForTokenClassification", "logits"),
    "answer": ("question-answering", "AutoModelForQuestionAnswering", "start_logits"),
    "choose": ("multiple-choice", "AutoModelForMultipleChoice", "logits"),
    "generate": ("text-generation", "", ""),
    "embed": ("sentence-similarity", "SentenceTransformer", ""),
    "rank": ("text-ranking", "CrossEncoder", ""),
}
LIBRARIES = {"embed": "sentence-transformers", "rank": "sentence-transformers"}
CALLS = {
    "answer": "[('QUESTION', 'PASSAGE')]",
    "choose": "[('TEXT', 'CHOICE', 'CHOICE')]",
    "rank": "[('QUERY', 'PASSAGE', 'PASSAGE')]",
}


def write_card(run: Run, folder: Path, s: dict[str, Any], name: str = "") -> Path:
    """README.md in a model folder; `name` of the task where there are several. No path of this machine is in it."""
    kind = str(s["tasks"][name] if name else s["task"])
    rows = [r for r in s["scores"] if r["task"] == name]
    model, task = shape(folder), PIPELINES.get(kind, ("text-classification", "", ""))[0]
    here = opens_here_alone(model, kind)
    front: dict[str, Any] = {"library_name": "unmask" if here else LIBRARIES.get(kind, "transformers")}
    front |= {"pipeline_tag": task, "tags": ["unmask", *([model["family"]] if model.get("family") else [])]}
    if rows:
        front["metrics"] = sorted({r["score"] for r in rows})
    files, labels = s["files"].get(name) or {}, s["labels"].get(name) or []
    records = s["records"].get(name, {}) if name else s["records"]
    title = public_name(s["start"] or "model")
    sections = [
        f"# {without_revision(title)} – {name or kind}",
        f"A model for {kind}, fine-tuned with unmask: {describe_model({'start': None, 'preset': None, 'model': model})}.",
        "## Trained on",
        _bullets(
            ("Started from", code(title)),
            *[(f"{part} file", ", ".join(code(public_name(f)) for f in found)) for part, found in files.items()],
            ("Records", ", ".join(f"{n:,} {part}" for part, n in records.items() if finite(n) and n)),
            ("Labels", ", ".join(code(label) for label in labels[:50])),
            ("Steps", describe_steps(s)),
            ("Time", duration(s["seconds"])),
            ("Hardware", hardware(s)),
        ),
        "## What it reaches",
        _table(rows),
        "The dev set chose the model and tuned its thresholds, so its figures flatter." if rows else "",
        raw_text_note(rows),
        "## Use",
        f"```python\n{unmask_snippet('.', kind, second_text(folder))}\n```",
        "" if here else f"```python\n{transformers_snippet(folder, '.', kind)}\n```",
        "## Limits",
        "- Its figures hold for records like those above; on other subjects, styles and languages they do not.\n"
        "- It repeats what its text and its labels say and imply. No evaluation of bias was made.",
    ]
    header = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    path = folder / "README.md"
    write_text(path, f"---\n{header}---\n\n" + "\n\n".join(filter(None, sections)) + "\n")
    return path


def _bullets(*rows: tuple[str, str]) -> str:
    return "\n".join(f"- {label}: {text}" for label, text in rows if text)


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "It was not judged: there was no dev set and no test set."
    lines = ["| set | records | score | value | 95 % interval |", "|---|---|---|---|---|"]
    for r in rows:
        between = f"{r['low']:.3f} to {r['high']:.3f}" if finite(r["low"]) else ""
        lines.append(
            f"| {r['set']} | {r['records']:,} | {r['score'].replace('_', ' ')} | {r['value']:.4f} | {between} |"
        )
    return "\n".join(lines)


def opens_here_alone(model: dict[str, Any], kind: str) -> bool:
    """Whether no class of transformers or sentence-transformers does what the model does here."""
    family = FAMILIES.get(model.get("family") or "")
    writes = (model.get("architecture") or "").endswith(("LMHeadModel", "ForConditionalGeneration"))
    return (family is not None and family.own) or (kind == "generate" and not writes)


def unmask_snippet(folder: str, kind: str, second: str = "") -> str:
    asked = CALLS.get(kind, f"[('TEXT', '{second}')]" if second else "['TEXT']")
    return f"import unmask\n\nprint(unmask.predict({folder!r}, {asked}))"


def transformers_snippet(folder: Path, shown: str, kind: str) -> str:
    """Lines that open the folder elsewhere; empty when nothing else opens it."""
    model = shape(folder)
    if opens_here_alone(model, kind) or kind not in PIPELINES or second_text(folder) == "PREDICATE":
        return ""  # nor do others mark a predicate
    _, name, output = PIPELINES[kind]
    if kind in LIBRARIES:
        call = "encode(['TEXT']).shape" if kind == "embed" else "predict([('QUERY', 'PASSAGE')])"
        return f"from sentence_transformers import {name}\n\nmodel = {name}({shown!r})\nprint(model.{call})"
    name = name or str(model.get("architecture"))
    texts = "'TEXT', 'SECOND TEXT'" if paired(folder) else "'TEXT'"
    inputs = {
        "answer": "tokenizer('QUESTION', 'PASSAGE', return_tensors='pt')",
        "choose": "{k: v[None] for k, v in tokenizer(['TEXT'] * 2, ['CHOICE', 'CHOICE'], return_tensors='pt').items()}",
    }.get(kind, f"tokenizer({texts}, return_tensors='pt')")
    last = (
        ["    print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))"]
        if kind == "generate"
        else [f"    print(model(**inputs).{output})"]
    )
    if kind in ("classify", "tag") and _labelled(folder):
        last = [
            "    best = model(**inputs).logits[0].argmax(-1)",
            "print([model.config.id2label[i] for i in best.flatten().tolist()])",
        ]
    return "\n".join(
        [
            "import torch",
            f"from transformers import AutoTokenizer, {name}",
            "",
            f"tokenizer = AutoTokenizer.from_pretrained({shown!r})",
            f"model = {name}.from_pretrained({shown!r}).eval()",
            f"inputs = {inputs}",
            "with torch.no_grad():",
            *last,
        ]
    )


def _labelled(folder: Path) -> bool:
    """Whether one label is chosen: neither several of them nor a number."""
    try:
        config = read_object(folder / "config.json")
    except UserError:
        return False
    return config.get("problem_type") in (None, "single_label_classification") and bool(config.get("id2label"))
