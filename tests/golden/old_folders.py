"""Values read from the directories in `old/`, through `unmask.api` and the command line; used by `make_old.py` and `test_old_folders.py`."""

import json
import tarfile
from pathlib import Path
from typing import Any

from golden.recordings import INPUTS, command, read, read_log, to_json

from unmask import api

FOLDER = Path(__file__).with_name("old")
TEXT = "bob lives in oslo ."
UNFINISHED = {"pretrain": "pretrain", "classify": "finetune", "tag": "finetune", "seeds": "finetune", "tasks": "finetune", "tune": "tune"}  # fmt: skip
FINISHED = ("pretrain", "classify", "seeds", "tasks", "tune")
TASKS = {  # model → the file it was trained on
    "classify": "one", "several": "several", "number": "number", "pair": "pair", "tag": "tag", "answer": "answer", "choose": "choose",
    "generate": "generate", "continue": "generate", "embed": "embed", "rank": "rank", "onnx": "one",
}  # fmt: skip
FILLS = ("albert-mini", "bert-tiny", "distilbert-mini", "modernbert-mini", "roberta-mini", "xlm-roberta-mini")
FAMILIES = (*FILLS, "bart-mini", "cbow-mini", "electra-mini", "elmo-mini", "gpt-mini", "gpt2-mini", "t5-mini")
MACHINE_KEYS = {"environment", "tokens_per_second"}


def unpack(folder: Path) -> None:
    for file in sorted(FOLDER.glob("*.tar.gz")):
        with tarfile.open(file) as archive:
            archive.extractall(folder, filter="data")


def resume_run(kind: str) -> dict[str, Any]:
    """Resume a killed run; return its losses and results."""
    folder = Path("unfinished", kind)
    command(UNFINISHED[kind], "--resume", str(folder), "--quiet")
    values: dict[str, Any] = {}
    for log in sorted(folder.rglob("log.jsonl")):
        values[str(log)] = read_log(log.parent)
    for results in sorted(folder.rglob("results.json")) if kind != "pretrain" else []:  # pre-training wrote none
        values[str(results)] = read("results.json", results.parent)
    return to_json(values)


def run_info(path: str) -> Any:
    """Return `unmask info PATH --json` without machine-dependent values."""
    return without_machine_keys(to_json(json.loads(command("info", path, "--json"))))


def without_machine_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_machine_keys(item) for key, item in value.items() if key not in MACHINE_KEYS}
    return [without_machine_keys(item) for item in value] if isinstance(value, list) else value


def task_model_values(name: str) -> Any:
    """Return info and predictions of a task model."""
    return to_json(
        {"info": run_info(f"models/{name}"), "predictions": api.predict(f"models/{name}", INPUTS[TASKS[name]])}
    )


def pretrained_model_values(family: str) -> Any:
    """Return info, an embedding and fills of a pre-trained model."""
    model = f"models/{family}"
    vector = api.load(model).embed(TEXT)
    fills = json.loads(command("fill", model, "bob lives in [MASK] .", "--json")) if family in FILLS else []
    return to_json({"info": run_info(model), "vector": vector, "fills": fills})


def store_batch() -> Any:
    return json.loads(command("show-batch", "store", "--max-length", "32", "--rows", "2", "--json"))


NEW_FIELDS = {"init": "pretrained", "blend": "none", "unlabeled": [], "words": []}  # of task, newer than these recipes


def recipe_plans() -> Any:
    """Return the dry run of the recipe files."""
    pretraining, task = api.dry_run(recipe="recipe.yaml"), api.dry_run_finetune(recipe="task.yaml")
    for plan in (pretraining, task):
        for name, default in NEW_FIELDS.items():
            assert plan["recipe"]["task"].pop(name) == default
        plan["recipe"]["task"]["token_mask_rate"] = plan["recipe"]["task"]["token_mask_rate"] or 0.0  # null: auto
    keys = ("recipe", "architecture", "parameters", "steps", "tokens")
    return to_json([{key: plan[key] for key in keys if key in plan} for plan in (pretraining, task)])


def all_values() -> dict[str, Any]:
    return {
        "finished": {kind: run_info(f"finished/{kind}") for kind in FINISHED},
        "tasks": {name: task_model_values(name) for name in TASKS},
        "families": {name: pretrained_model_values(name) for name in FAMILIES},
        "store": store_batch(),
        "recipes": recipe_plans(),
        "resumed": {kind: resume_run(kind) for kind in UNFINISHED},
    }
