"""Examples of how to use a model: unmask commands, and Python snippets for unmask and other libraries."""

from pathlib import Path
from typing import Any

from unmask.errors import quote
from unmask.model.families import FAMILIES
from unmask.report.view import RunView
from unmask.tasks.spec import TaskSpec

# Classes of transformers by their ending: the hub's pipeline, and the field of their output that holds the scores.
PIPELINES = {
    "ForMaskedLM": ("fill-mask", "logits"),
    "ForPreTraining": ("fill-mask", "prediction_logits"),
    "ForSequenceClassification": ("text-classification", "logits"),
}
EXAMPLES = {"zh": "今天的天气很[MASK]。", "en": "the weather is very [MASK] today."}


# -------------------------------------------------------------------------------------------- a pre-trained model


def pretrained_command(folder: Path, model: dict[str, Any]) -> str:
    """Return a command to try a pre-trained model, depending on its heads. `model` is its `view.shape`."""
    quoted = quote(folder)
    family = FAMILIES.get(model.get("family") or "")
    heads = family.architectures.get(model["architecture"], ()) if family else ()
    if (folder / "generator").is_dir():  # ELECTRA: the discriminator judges tokens, its generator proposes them
        return f'unmask fill {quoted}/generator "… [MASK] …"'
    if model.get("logit_position") == "next":
        return f'unmask generate {quoted} "…"'
    if "mlm" in heads:
        return f'unmask fill {quoted} "… [MASK] …"'
    return f'unmask generate {quoted} "…"' if "lm" in heads else f"unmask info {quoted}"


def pipeline(model: dict[str, Any]) -> tuple[str, str]:
    """Return the hub's pipeline for a model's class, and the field of its output."""
    architecture = model.get("architecture") or "ForMaskedLM"
    matches = [value for end, value in PIPELINES.items() if architecture.endswith(end)]
    return matches[0] if matches else ("feature-extraction", "last_hidden_state")


def example(s: dict[str, Any]) -> str:
    """Return an example sentence in the language of the run."""
    return EXAMPLES.get(s["data"]["language"], EXAMPLES["en"])


def own_example(view: RunView, s: dict[str, Any]) -> str:
    """Return the text of the run's first example fill, or else `example`."""
    texts = [f["text"] for f in view.fills if "[MASK]" in f["text"] and len(f["text"]) < 200]
    return texts[0] if texts else example(s)


def snippet(model: dict[str, Any], folder: str, text: str) -> str:
    """Return Python code that loads and uses a pre-trained model with its transformers class, or with unmask."""
    if is_unmask_only(model):
        plain = " ".join(text.replace("[MASK]", " ").split())
        return f"import unmask\n\nmodel = unmask.load({folder!r})\nprint(model.embed({plain!r}).shape)"
    task, output = pipeline(model)
    lines = [f"    print(model(**inputs).{output})"]
    if task == "fill-mask":
        lines = [
            f"    scores = model(**inputs).{output}[0]",
            "masked = inputs['input_ids'][0] == tokenizer.mask_token_id",
            "print(tokenizer.convert_ids_to_tokens(scores[masked][0].topk(5).indices.tolist()))",
        ]
    name = model.get("architecture") or "AutoModelForMaskedLM"
    return _program(name, folder, f"tokenizer({text!r}, return_tensors='pt')", lines)


# --------------------------------------------------------------------------------------------- a fine-tuned model


def captions(spec: TaskSpec | None) -> list[str]:
    """Return the names of the inputs, as placeholders."""
    return spec.captions() if spec else ["TEXT"]


def typed_inputs(spec: TaskSpec | None) -> str:
    """Return the placeholder arguments of `unmask predict`."""
    return " ".join(f'"{caption}"' for caption in captions(spec))


def unmask_snippet(folder: str, spec: TaskSpec | None) -> str:
    names = captions(spec)
    return f"import unmask\n\nprint(unmask.predict({folder!r}, {[tuple(names) if len(names) > 1 else names[0]]}))"


def library_snippet(model: dict[str, Any], folder: str, spec: TaskSpec | None) -> str:
    """Return Python code that uses the model with another library; "" if no other library can load it."""
    if spec is None or is_unmask_only(model, spec) or not spec.usage.pipeline:
        return ""
    usage, names = spec.usage, captions(spec)
    if usage.library != "transformers":
        name, module = usage.auto_class, usage.library.replace("-", "_")
        return f"from {module} import {name}\n\nmodel = {name}({folder!r})\nprint(model.{usage.result})"
    if len(names) > 1 and not (spec.bound and spec.bound.text_pairs) and not usage.inputs:
        return ""  # transformers' tokenizers cannot encode these inputs
    inputs = usage.inputs or f"tokenizer({', '.join(map(repr, names))}, return_tensors='pt')"
    result = usage.result if "(" in usage.result else f"model(**inputs).{usage.result}"
    lines = [f"    print({result})"]
    if spec.output == "choice" and spec.labels:
        lines = [
            "    best = model(**inputs).logits[0].argmax(-1)",
            "print([model.config.id2label[i] for i in best.flatten().tolist()])",
        ]
    return _program(usage.auto_class or str(model.get("architecture")), folder, inputs, lines)


# ---------------------------------------------------------------------------------------------------------- both


def is_unmask_only(model: dict[str, Any], spec: TaskSpec | None = None) -> bool:
    """Return whether no other library can load the model for its purpose."""
    family = FAMILIES.get(model.get("family") or "")
    writes = (model.get("architecture") or "").endswith(("LMHeadModel", "ForConditionalGeneration"))
    return (family is not None and family.unmask_only) or (spec is not None and spec.output == "text" and not writes)


def _program(name: str, folder: str, inputs: str, last: list[str]) -> str:
    lines = [
        "import torch",
        f"from transformers import AutoTokenizer, {name}",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({folder!r})",
        f"model = {name}.from_pretrained({folder!r}).eval()",
        f"inputs = {inputs}",
        "with torch.no_grad():",
        *last,
    ]
    return "\n".join(lines)
