"""Export a model folder to a folder that runs without torch. It is written only if its outputs match the model's.

The folder has onnx/*.onnx, config.json, tokenizer.json, unmask.json (for a task), modules.json (for sentence vectors),
generation_config.json, README.md and export.json, which describes the graphs and how they were validated. optimum,
sentence-transformers and transformers.js read this layout: onnx/model.onnx, or onnx/model_quantized.onnx with int8 weights.

The export is written to a temporary folder and renamed after all checks, so that an incomplete export never exists.
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
from unmask.inference.exported import FILE, VERSION
from unmask.inference.onnx_engine import POSITIONS, OnnxEngine
from unmask.model import hf
from unmask.model.config_file import GENERATION_FILE, default_generation, write_config
from unmask.model.model import Model
from unmask.tasks import folder as task_folder
from unmask.tasks.task import Task
from unmask.text.tokenizer import Tokenizer

REPOSITORY = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")


@dataclass
class Source:
    """The model that is exported."""

    folder: Path
    settings: dict[str, Any]  # config.json
    model: Model
    tokenizer: Tokenizer
    task: Task | None


def open_source(folder: str | Path) -> Source:
    loaded = hf.load(folder)
    if loaded.missing:
        raise UserError(
            f"{folder}: the shapes of {', '.join(loaded.missing)} do not match config.json",
            hint="copy or download the folder again",
        )
    tokenizer = Tokenizer.load(loaded.folder, loaded.config.vocab_size)
    task = task_folder.load_task(loaded.folder, loaded.config, loaded.model.heads, tokenizer)
    return Source(loaded.folder, loaded.settings, loaded.model, tokenizer, task)


def check_exportable(model: Model, task: Task | None) -> None:
    config = model.config
    unsupported = {"lstm": "ELMo's LSTMs and characters", "bag": "CBOW's windows"}.get(config.encoder)
    if unsupported:
        raise UserError(
            f"cannot export a {config.family} model: {unsupported} are not supported", expected="a Transformer"
        )
    if config.decoder_layers and "lm" not in model.heads:
        raise UserError(f"this {config.family} model has no LM head and cannot be exported")
    if task is not None and task.spec.output == "text" and not config.causal and not config.decoder_layers:
        raise UserError(
            f"cannot export a {config.family} model that generates text: a graph has no prefix mask",
            expected="GPT-2, T5 or BART",
        )


def plan(source: Source, int8: bool, out: Path) -> dict[str, Any]:
    """Return a description of the export, without writing it."""
    from unmask.exporting.graph import graphs_of, heads_of

    model, task = source.model, source.task
    graphs = graphs_of(model)
    suffix = "_quantized" if int8 else ""
    description = {
        "folder": str(out),
        "format": "onnx",
        "precision": "int8" if int8 else "fp32",
        "family": model.config.family,
        "task": None if task is None else task.name,
        "heads": heads_of(model),
        "graphs": {g.name: f"onnx/{g.name}{suffix}.onnx" for g in graphs},
        "inputs": {g.name: [name for name in g.inputs if name != POSITIONS] for g in graphs},
        "outputs": {g.name: g.outputs for g in graphs},
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    if hf.GENERATOR in model.heads:
        description["skipped"] = [f"{hf.GENERATOR}: export {source.folder / hf.GENERATOR} separately"]
    return description


def export(source: Source, out: Path, int8: bool, console: Console, measure: Any = None) -> dict[str, Any]:
    """Write the folder; return its description and the results of the checks. `measure`: see checks.py."""
    from unmask.exporting import checks
    from unmask.exporting.graph import graphs_of, outputs_of, write_graph
    from unmask.exporting.onnx_file import quantize
    from unmask.inference.predictor import Predictor
    from unmask.inference.torch_engine import TorchEngine

    planned, task, tokenizer = plan(source, int8, out), source.task, source.tokenizer
    check_free(out)
    engine = TorchEngine(source.model, "cpu")
    graphs = graphs_of(source.model)
    total, done = (len(graphs) + 1) * (2 if int8 else 1) + (1 if measure else 0), 0
    with atomic_folder(out) as folder, console.bar("export") as update:

        def start_step(step: str) -> None:
            nonlocal done
            update(done, total, step)
            done += 1

        copy_metadata(source, folder)
        about = {
            "version": VERSION,
            "format": "onnx",
            "precision": planned["precision"],
            "task": planned["task"],
            "output": None if task is None else task.spec.output,
            "grouped": task is not None and task.spec.grouped,
            "pooling": (task.bound.pooling or None) if task is not None else None,
            "heads": planned["heads"],
            "graphs": planned["graphs"],
            "outputs": outputs_of(planned["heads"]),
            "parameters": planned["parameters"],
            "by": f"unmask {__version__}",
        }
        write_json(folder / FILE, about)
        for graph in graphs:
            start_step(f"writing {graph.name}.onnx")
            write_graph(graph, folder / planned["graphs"][graph.name])
        start_step("comparing outputs")
        difference = checks.check_equal(engine, OnnxEngine(folder, "cpu"), task, tokenizer.pad)
        validation: dict[str, Any] = {"largest_difference": difference}
        if int8:
            for graph in graphs:
                start_step(f"quantizing {graph.name}.onnx")
                quantize(folder / planned["graphs"][graph.name])
            start_step("comparing predictions")
            if measure is None:
                validation |= checks.check_drift(engine, OnnxEngine(folder, "cpu"), task, tokenizer)
        if measure is not None:
            start_step("evaluating on the data")
            reference, exported = (Predictor(e, tokenizer, task=task) for e in (engine, OnnxEngine(folder, "cpu")))
            validation |= checks.check_metric(measure, reference, exported)
        write_json(folder / FILE, about | {"validation": validation})
        write_card(source, folder, about, validation)
        update(total, total, "")
    size = sum(file.stat().st_size for file in (out / "onnx").iterdir())
    return planned | {"validation": validation, "bytes": size}


# ------------------------------------------------------------------------------------------------------------- the folder


def check_free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} already exists", hint="choose another folder with -o DIR, or remove it")


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """Yield `new_folder(out)`, with a UserError if it cannot be written."""
    try:
        with new_folder(out) as folder:
            yield folder
    except OSError as error:
        hint = "choose a writable folder on a disk with free space: -o DIR"
        raise UserError(f"cannot write {out}: {error.strerror or error}", hint=hint) from None


def copy_metadata(source: Source, folder: Path) -> None:
    """Write the files of a model folder except the weights."""
    config, model, settings = source.model.config, source.model, source.settings
    if not settings.get("architectures"):
        architecture = config.architecture(model.heads)
        written = write_config(config, architecture, model.heads)
        settings = {"architectures": [architecture], "model_type": config.family} | written
    write_json(folder / "config.json", settings)
    source.tokenizer.save(folder, segments=config.segments > 1, max_length=config.max_positions)
    if "lm" in model.heads:
        write_json(folder / GENERATION_FILE, model.generation or default_generation(config))
    if source.task is not None:
        task_folder.save_task(source.task, folder)


def write_card(source: Source, folder: Path, about: dict[str, Any], validation: dict[str, Any]) -> None:
    """Write the model's card, or a minimal one, with a section about the graph."""
    file = source.folder / "README.md"
    default = "---\nlibrary_name: onnx\ntags: [unmask, onnx]\n---\n\n# Model"
    card = file.read_text("utf-8", "replace").rstrip() if file.is_file() else default
    files = ", ".join(f"`{name}`" for name in about["graphs"].values())
    v = validation
    lines = [
        f"\n\n## ONNX ({about['precision']})\n",
        f"{files}: this model as ONNX, exported by {about['by']}.",
        f"The largest difference between any fp32 output and PyTorch is {v['largest_difference']:.1e}.",
    ]
    if "drift" in v:
        lines.append(
            f"int8 weights change {v['output']} by {v['drift']:.4f} ({v['kind']}) on {v['sentences']} sentences."
        )
    if "metric" in v:
        lines.append(
            f"{v['metric']} on {v['records']:,} records: {v['torch']:.4f} in PyTorch, {v['onnx']:.4f} in ONNX."
        )
    lines.append('\n```python\nimport unmask\n\nmodel = unmask.load("FOLDER", backend="onnx")\n```\n')
    write_text(folder / "README.md", card + "\n".join(lines))


# ---------------------------------------------------------------------------------------------------------------- the hub


def check_repository(name: str) -> None:
    if not REPOSITORY.fullmatch(name):
        raise UserError(f"invalid repository name: {name}", expected="NAME or OWNER/NAME: letters, digits, - _ .")


def push(folder: Path, name: str) -> str:
    """Upload the folder and return its URL. A new repository is private."""
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        url = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(repo_id=url.repo_id, folder_path=folder, commit_message="unmask export")
    except Exception as error:  # errors of the hub, its HTTP client and the network have no common class
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(
            f"cannot upload {name}: {reason}; the export is complete in {folder}",
            hint=f"hf auth login, then: hf upload {name} {quote(folder)}",
        ) from None
    return str(url)
