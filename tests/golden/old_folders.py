"""What is said of the folders in `old/`, through `unmask.api` and the command line: for `make_old.py` and `test_old_folders.py`."""

import json
import tarfile
from pathlib import Path
from typing import Any

from golden.recordings import ASKED, command, logged, plain, read

from unmask import api

FOLDER = Path(__file__).with_name("old")
TEXT = "bob lives in oslo ."
UNFINISHED = {"pretrain": "pretrain", "classify": "finetune", "tag": "finetune", "seeds": "finetune", "tasks": "finetune", "tune": "tune"}  # fmt: skip
FINISHED = ("pretrain", "classify", "seeds", "tasks", "tune")
TASKS = {  # model → the file whose records it was trained on
    "classify": "one", "several": "several", "number": "number", "pair": "pair", "tag": "tag", "answer": "answer", "choose": "choose",
    "generate": "generate", "continue": "generate", "embed": "embed", "rank": "rank", "onnx": "one",
}  # fmt: skip
FILLS = ("albert-mini", "bert-tiny", "distilbert-mini", "modernbert-mini", "roberta-mini", "xlm-roberta-mini")
FAMILIES = (*FILLS, "bart-mini", "cbow-mini", "electra-mini", "elmo-mini", "gpt-mini", "gpt2-mini", "t5-mini")
OF_MACHINE = {"environment", "tokens_per_second"}


def unpack(folder: Path) -> None:
    for file in sorted(FOLDER.glob("*.tar.gz")):
        with tarfile.open(file) as archive:
            archive.extractall(folder, filter="data")


def resumed(kind: str) -> dict[str, Any]:
    """Losses and results of a run that was killed, gone on with to its end."""
    folder = Path("unfinished", kind)
    command(UNFINISHED[kind], "--resume", str(folder), "--quiet")
    found: dict[str, Any] = {}
    for log in sorted(folder.rglob("log.jsonl")):
        found[str(log)] = logged(log.parent)
    for results in sorted(folder.rglob("results.json")) if kind != "pretrain" else []:  # which had none
        found[str(results)] = read("results.json", results.parent)
    return plain(found)


def described(path: str) -> Any:
    """`unmask info PATH --json`, without what only the machine decides."""
    return without(plain(json.loads(command("info", path, "--json"))))


def without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without(item) for key, item in value.items() if key not in OF_MACHINE}
    return [without(item) for item in value] if isinstance(value, list) else value


def answered(name: str) -> Any:
    """A model of a task."""
    return plain(
        {"info": described(f"models/{name}"), "predictions": api.predict(f"models/{name}", ASKED[TASKS[name]])}
    )


def shown(family: str) -> Any:
    """A pre-trained model."""
    model = f"models/{family}"
    vector = api.load(model).embed(TEXT)
    fills = json.loads(command("fill", model, "bob lives in [MASK] .", "--json")) if family in FILLS else []
    return plain({"info": described(model), "vector": vector, "fills": fills})


def batch_of_store() -> Any:
    return json.loads(command("show-batch", "store", "--max-length", "32", "--rows", "2", "--json"))


def recipes() -> Any:
    """What the recipe files mean."""
    found, task = api.dry_run(recipe="recipe.yaml"), api.dry_run_finetune(recipe="task.yaml")
    for each in (found, task):
        assert each["recipe"]["task"].pop("init") == "pretrained"  # a setting that recipes have only had since
    kept = ("recipe", "architecture", "parameters", "steps", "tokens")
    return plain([{key: each[key] for key in kept if key in each} for each in (found, task)])


def everything() -> dict[str, Any]:
    return {
        "finished": {kind: described(f"finished/{kind}") for kind in FINISHED},
        "tasks": {name: answered(name) for name in TASKS},
        "families": {name: shown(name) for name in FAMILIES},
        "store": batch_of_store(),
        "recipes": recipes(),
        "resumed": {kind: resumed(kind) for kind in UNFINISHED},
    }
