"""export: a model folder → a folder that answers without torch, written only when it answers as the model does.

DIR/onnx/*.onnx beside config.json, tokenizer.json, unmask.json (the task's), modules.json (of sentence vectors), generation_config.json,
README.md and export.json, which says what the graphs are and what was compared. The layout is the one that optimum,
sentence-transformers and transformers.js read: onnx/model.onnx, with 8-bit weights onnx/model_quantized.onnx.

The folder is made beside DIR and renamed when the gate has let it pass: DIR is whole or not there.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask import __version__
from unmask.console import Console
from unmask.errors import UserError, quote
from unmask.files import new_folder, write_json, write_text
from unmask.inference.onnx_engine import FILE, VERSION, OnnxEngine
from unmask.model import hf
from unmask.model.config_file import GENERATION_FILE, default_generation, write_config
from unmask.model.model import Model
from unmask.tasks import folder as task_folder
from unmask.tasks.task import Task
from unmask.text.tokenizer import Tokenizer

FORMATS = ("onnx",)
NAME = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")  # of a repository on the hub


@dataclass
class Source:
    """What is exported."""

    folder: Path
    settings: dict[str, Any]  # config.json as it stands
    model: Model
    tokenizer: Tokenizer
    task: Task | None


def open_source(folder: str | Path) -> Source:
    loaded = hf.load(folder)
    if loaded.missing:
        raise UserError(
            f"{folder}: {', '.join(loaded.missing)} do not have the shape that config.json says",
            hint="copy or download the folder again",
        )
    tokenizer = Tokenizer.load(loaded.folder, loaded.config.vocab_size)
    task = task_folder.read(loaded.folder, loaded.config, loaded.model.heads, tokenizer)
    refuse_unfit(loaded.model, task)
    return Source(loaded.folder, loaded.settings, loaded.model, tokenizer, task)


def refuse_unfit(model: Model, task: Task | None) -> None:
    config = model.config
    what = {"lstm": "ELMo's LSTMs and characters", "bag": "CBOW's windows"}.get(config.encoder)
    if what:
        raise UserError(f"a {config.family} model is not exported: {what} have no graph here", expected="Transformers")
    if config.decoder_layers and "lm" not in model.heads:
        raise UserError(
            f"this {config.family} model has no lm head: its decoder says nothing", expected="one with the lm head"
        )
    if task is not None and task.spec.output == "text" and not config.causal and not config.decoder_layers:
        raise UserError(
            f"a {config.family} model that writes is not exported: a graph has no prefix mask",
            expected="GPT-2, T5 or BART",
        )


def plan(source: Source, int8: bool, out: Path) -> dict[str, Any]:
    """What would be written."""
    from unmask.exporting.graph import graphs_of, heads_of

    model, task = source.model, source.task
    graphs = graphs_of(model)
    ending = "_quantized" if int8 else ""
    found = {
        "folder": str(out),
        "format": "onnx",
        "precision": "int8" if int8 else "fp32",
        "family": model.config.family,
        "task": None if task is None else task.name,
        "heads": heads_of(model),
        "graphs": {g.name: f"onnx/{g.name}{ending}.onnx" for g in graphs},
        "inputs": {g.name: [name for name in g.inputs if name != "at"] for g in graphs},
        "outputs": {g.name: g.outputs for g in graphs},
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    left = [name for name in model.heads if name == hf.GENERATOR]
    return found | ({"left_out": [f"{hf.GENERATOR}: export {source.folder / hf.GENERATOR} by itself"]} if left else {})


def export(source: Source, out: Path, int8: bool, console: Console, measure: Any = None) -> dict[str, Any]:
    """The folder, and what was compared. `measure`: a Predictor → its metric on the user's file (export_gate.py)."""
    from unmask.exporting import checks
    from unmask.exporting.graph import graphs_of, outputs_of, write_graph
    from unmask.exporting.onnx_file import quantize
    from unmask.inference.predictor import Predictor
    from unmask.inference.torch_engine import TorchEngine

    told, model, task = plan(source, int8, out), source.model, source.task
    check_free(out)
    engine = TorchEngine(model, "cpu")
    graphs = graphs_of(model)
    total, done = len(graphs) * (2 if int8 else 1) + (2 if int8 else 1) + (1 if measure else 0), 0
    with whole_or_not(out) as folder, console.bar("export") as update:

        def begin(what: str) -> None:
            nonlocal done
            update(done, total, what)
            done += 1

        write_beside(source, folder)
        about = {
            "version": VERSION,
            "format": "onnx",
            "precision": told["precision"],
            "task": told["task"],
            "output": None if task is None else task.spec.output,
            "grouped": task is not None and task.spec.grouped,
            "pooling": (task.bound.pooling or None) if task is not None else None,
            "heads": told["heads"],
            "graphs": told["graphs"],
            "outputs": outputs_of(told["heads"]),
            "parameters": told["parameters"],
            "by": f"unmask {__version__}",
        }
        write_json(folder / FILE, about)
        for graph in graphs:
            begin(f"writes {graph.name}.onnx")
            write_graph(graph, folder / told["graphs"][graph.name])
        begin("compares it with the model")
        compared: dict[str, Any] = {
            "largest_difference": checks.check_equal(engine, OnnxEngine(folder, "cpu"), task, source.tokenizer.pad)
        }
        if int8:
            for graph in graphs:
                begin(f"{graph.name}.onnx in 8 bits")
                quantize(folder / told["graphs"][graph.name])
            begin("compares answers")
            if measure is None:
                compared |= checks.check_drift(engine, OnnxEngine(folder, "cpu"), task, source.tokenizer)
        if measure is not None:
            begin("measures both on the file")
            ours = Predictor(engine, source.tokenizer, task=task)
            theirs = Predictor(OnnxEngine(folder, "cpu"), source.tokenizer, task=task)
            compared |= checks.check_metric(measure, ours, theirs)
        write_json(folder / FILE, about | {"compared": compared})
        write_card(source, folder, about | {"compared": compared})
        update(total, total, "")
    size = sum(file.stat().st_size for file in (out / "onnx").iterdir())
    return told | {"compared": compared, "bytes": size}


# ------------------------------------------------------------------------------------------------------------- the folder


def check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already", hint="-o DIR with another name, or remove it")


@contextmanager
def whole_or_not(out: Path) -> Iterator[Path]:
    """`new_folder`, with errors for people."""
    try:
        with new_folder(out) as folder:
            yield folder
    except OSError as error:
        raise UserError(
            f"cannot write {out}: {error.strerror or error}", hint="-o DIR where you may write and there is room"
        ) from None


def write_beside(source: Source, folder: Path) -> None:
    """What a model folder holds, but the weights."""
    config, model = source.model.config, source.model
    settings = source.settings
    if not settings.get("architectures"):
        architecture = config.architecture(model.heads)
        settings = {"architectures": [architecture], "model_type": config.family} | write_config(
            config, architecture, model.heads
        )
    write_json(folder / "config.json", settings)
    source.tokenizer.save(folder, segments=config.segments > 1, max_length=config.max_positions)
    if "lm" in model.heads:
        write_json(folder / GENERATION_FILE, model.generation or default_generation(config))
    if source.task is not None:
        task_folder.write(source.task, folder)


def write_card(source: Source, folder: Path, about: dict[str, Any]) -> None:
    """The model's own card, where it has one, and a section on the graph."""
    own = source.folder / "README.md"
    card = (
        own.read_text("utf-8", "replace").rstrip()
        if own.is_file()
        else "---\nlibrary_name: onnx\ntags: [unmask, onnx]\n---\n\n# Model"
    )
    compared, files = about["compared"], ", ".join(f"`{file}`" for file in about["graphs"].values())
    lines = [
        f"\n\n## ONNX ({about['precision']})\n",
        f"{files}: this model without its torch weights, exported by {about['by']}.",
        f"Every output of the graph in fp32 was compared with the model: the largest difference is {compared['largest_difference']:.1e}.",
    ]
    if "drift" in compared:
        lines.append(
            f"8-bit weights move {compared['output']} by {compared['drift']:.4f} ({compared['kind']}) on {compared['sentences']} sentences."
        )
    if "metric" in compared:
        lines.append(
            f"{compared['metric']} on {compared['records']:,} records: {compared['torch']:.4f} in torch, {compared['onnx']:.4f} here."
        )
    lines.append('\n```python\nimport unmask\n\nmodel = unmask.load("FOLDER", backend="onnx")\n```\n')
    write_text(folder / "README.md", card + "\n".join(lines))


# ---------------------------------------------------------------------------------------------------------------- the hub


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UserError(f"--push {name}", expected="NAME or OWNER/NAME: letters, digits, - _ .")


def push(folder: Path, name: str) -> str:
    """Upload the folder; its address. A repository that is not there yet is made, open to its owner alone."""
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message="ONNX export")
    except Exception as error:  # of the hub, of its HTTP client, of the network: they have no common class
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(
            f"the hub did not take {name}: {reason}; the export itself is whole, in {folder}",
            hint=f"hf auth login, then: hf upload {name} {quote(folder)}",
        ) from None
    return str(address)
