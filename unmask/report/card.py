"""The model card: README.md of a model folder, as the hub reads it; and the lines that use a model.

After Mitchell et al. 1810.03993: what the model was trained on, for how long, to what loss, and what it
was not tested for. The card leaves this machine with the model, so it carries no path of it.
"""

from pathlib import Path, PureWindowsPath
from typing import Any

import yaml

from unmask.errors import command
from unmask.files import write_text
from unmask.hub import is_pinned
from unmask.model.families import FAMILIES
from unmask.recipe import Recipe
from unmask.report.curves import finite
from unmask.report.summary import (
    counts,
    describe_duplicates,
    describe_model,
    describe_scores,
    describe_steps,
    dig,
    duration,
    epochs,
    hardware,
    shape,
    summary,
)
from unmask.train.run import Run

# Classes of transformers by their ending: task on the hub, and the field of their output that holds the scores.
PIPELINES = {
    "ForMaskedLM": ("fill-mask", "logits"),
    "ForPreTraining": ("fill-mask", "prediction_logits"),
    "ForSequenceClassification": ("text-classification", "logits"),
}
EXAMPLES = {"zh": "今天的天气很[MASK]。", "en": "the weather is very [MASK] today."}


def write_card(run: Run, folder: Path) -> Path:
    """README.md in a model folder."""
    s = summary(run) | {"model": shape(folder)}
    data, model, task = s["data"], s["model"], pipeline(s["model"])[0]
    name = (model.get("family") if s["start"] else s["preset"]) or "model"
    library = "unmask" if opens_here_alone(model) else "transformers"
    front: dict[str, Any] = {"library_name": library, "pipeline_tag": task}
    if data["language"]:
        front["language"] = data["language"]
    front["tags"] = ["unmask", *([model["family"]] if model.get("family") else [])]
    kind = "masked language model" if task == "fill-mask" else "model"
    recipe = essentials(Recipe.read(run.path / "recipe.yaml"))
    unknown = f"{data['unk_share']:.3%} of the tokens" if data["unk_share"] is not None else ""
    sections = [
        f"# {name}",
        f"A {kind} trained with unmask: {describe_model(s | {'start': None, 'preset': name})}.",
        "## Trained on",
        _bullets(
            ("Text", ", ".join(code(public_name(source)) for source in data["sources"])),
            ("Size", counts(data["train"])),
            ("Held out", counts(data["heldout"])),
            ("Unknown to the tokenizer", unknown),
            ("Duplicates", describe_duplicates(data["duplicates"])),
            ("Started from", code(public_name(s["start"])) if s["start"] else ""),
        ),
        "## For how long",
        _bullets(
            ("Steps", describe_steps(s)),
            ("Tokens read", f"{s['tokens']:,}{epochs(s)}"),
            ("Time", duration(s["seconds"])),
            ("Hardware", hardware(s)),
        ),
        "## To what loss",
        _reached(s),
        "## Recipe",
        _bullets(*[(key, code(value)) for key, value in recipe.items() if value not in (None, "")]),
        "## Use",
        "transformers has no class for this family: the folder opens with unmask." if opens_here_alone(model) else "",
        "In this folder:",
        f"```sh\n{command('unmask fill', Path(), example(s))}\n```" if task == "fill-mask" else "",
        f"```python\n{snippet(model, '.', example(s))}\n```",
        "## Limits",
        "- A model of the text named above: of other subjects, languages and styles it knows little.\n"
        "- Small models trained for a short time are often wrong with confidence; see the held-out figures.\n"
        "- It repeats what its text says and implies. No evaluation of bias was made.",
    ]
    header = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    body = "\n\n".join(filter(None, sections))
    path = folder / "README.md"
    write_text(path, f"---\n{header}---\n\n{body}\n")
    return path


def _reached(s: dict[str, Any]) -> str:
    last, entropy = s["heldout"]["last"], s["data"]["unigram_entropy"]
    if not last:
        return "No held-out evaluation was made."
    lines = f"Held-out, at step {last['step']:,}: {describe_scores(last)}."
    if finite(entropy) and finite(last.get("mlm")):
        gap = entropy - last["mlm"]
        lines += (
            f" The MLM loss, {last['mlm']:.3f} nats, is {abs(gap):.2f} {'below' if gap > 0 else 'above'} "
            f"the unigram entropy of the text ({entropy:.3f}), which is what token frequencies alone give."
        )
    return lines


def essentials(recipe: dict[str, Any]) -> dict[str, Any]:
    """The fields of a recipe that a reader asks for first."""
    fields = ["batch", "length", "optimizer", "lr", "muon_lr", "weight_decay", "schedule", "warmup"]
    if dig(recipe, "train", "optimizer") != "muon":
        fields.remove("muon_lr")
    if not dig(recipe, "train", "lr"):
        fields.remove("lr")  # 0 stands for the optimizer's own default
    out = {"seed": recipe.get("seed"), "objective": recipe.get("objective")}
    out |= {f"mlm.{name}": dig(recipe, "mlm", name) for name in ("rate", "mask", "random", "keep")}
    return out | {f"train.{name}": dig(recipe, "train", name) for name in fields}


def _bullets(*rows: tuple[str, str]) -> str:
    return "\n".join(f"- {label}: {text}" for label, text in rows if text)


def code(value: Any) -> str:
    """A Markdown code span that no content can leave.

    >>> code("a"), code("a`b"), code("a\\nb")
    ('`a`', '`` a`b ``', '`a b`')
    """
    text = " ".join(str(value).split())
    fence = "`"
    while fence in text:
        fence += "`"
    return f"`{text}`" if fence == "`" else f"{fence} {text} {fence}"


def public_name(source: str) -> str:
    """A corpus or model without the folders of this machine; of a model on the hub its name and commit.

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


def pipeline(model: dict[str, Any]) -> tuple[str, str]:
    """(task on the hub, field of the output) of a model's class."""
    architecture = model.get("architecture") or "ForMaskedLM"
    found = [value for end, value in PIPELINES.items() if architecture.endswith(end)]
    return found[0] if found else ("feature-extraction", "last_hidden_state")


def example(s: dict[str, Any]) -> str:
    """A sentence to try, in the language of the run."""
    return EXAMPLES.get(s["data"]["language"], EXAMPLES["en"])


def opens_here_alone(model: dict[str, Any]) -> bool:
    """Whether transformers has no class for the model's family."""
    family = FAMILIES.get(model.get("family") or "")
    return family is not None and family.own


def snippet(model: dict[str, Any], folder: str, text: str) -> str:
    """Lines of Python that open the folder in its own class of transformers and use it."""
    if opens_here_alone(model):
        plain = " ".join(text.replace("[MASK]", " ").split())
        return f"import unmask\n\nmodel = unmask.load({folder!r})\nprint(model.embed({plain!r}).shape)"
    name = model.get("architecture") or "AutoModelForMaskedLM"
    task, output = pipeline(model)
    lines = [
        "import torch",
        f"from transformers import AutoTokenizer, {name}",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({folder!r})",
        f"model = {name}.from_pretrained({folder!r}).eval()",
        f"inputs = tokenizer({text!r}, return_tensors='pt')",
        "with torch.no_grad():",
    ]
    if task == "fill-mask":
        lines += [
            f"    scores = model(**inputs).{output}[0]",
            "masked = inputs['input_ids'][0] == tokenizer.mask_token_id",
            "print(tokenizer.convert_ids_to_tokens(scores[masked][0].topk(5).indices.tolist()))",
        ]
    else:
        lines += [f"    print(model(**inputs).{output})"]
    return "\n".join(lines)
