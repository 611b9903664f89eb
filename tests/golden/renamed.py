"""Map recorded names of version 0.1 to today's names. The recorded files themselves are never edited.

Only keys and fixed values are renamed. User-facing texts (messages, hints, suggested commands) are left out. Every number is compared as
recorded.
"""

from typing import Any

from unmask.renamed import upgrade

KEYS = {
    "at": "location",
    "what": "message",
    "fix": "hint",
    "continue": "resume_command",
    "use": "example_command",
    "unread": "unexpected_keys",
    "per_piece": "mean_token_probability",
    "ended": "finish_reason",
    "compared": "validation",
    "unmask_predicts": "unmask_logit_position",
    "learnt": "task_state",
    "want": "expected",
    "got": "predicted",
    "over_seeds": "seed_summary",
    "median": "selected_seed",
    "kept_seed": "selected_seed",
    "on": "split",
    "stretches": "length_phases",
    "key": "fingerprint",
}
FILES = {"learnt.json": "task_state.json"}
TEXTS = {"message", "hint"}  # user-facing texts
TARGETS = {"one": "single_label", "several": "multi_label", "number": "regression"}


def to_current_names(value: Any) -> Any:
    """
    >>> to_current_names({"findings": [{"at": "a.csv:2", "what": "no label", "count": 1}]})
    {'findings': [{'location': 'a.csv:2', 'count': 1}]}
    """
    if isinstance(value, dict):
        if "preset" in value and "train" in value:  # a recipe
            value = upgrade(value)
        if isinstance(value.get("settings"), dict):  # of a task or of the best trial of a search
            settings = upgrade({"task": value["settings"], "train": value["settings"]})
            value = value | {"settings": settings["train" if "lr" in value["settings"] else "task"]}
        if "trial" in value and "batch" in value:  # a trial of a search
            value = {"batch_size" if key == "batch" else key: item for key, item in value.items()}
        if "kind" in value and "vocabulary" in value:  # a tokenizer
            value = {"type" if key == "kind" else key: item for key, item in value.items()}
        if value.get("target") in TARGETS:
            value = value | {"target": TARGETS[value["target"]]}
        if isinstance(value.get("ended"), bool):
            value = value | {"ended": "eos" if value["ended"] else "length"}
        if "learnt" in value and value.get("version") == 1:  # unmask.json
            value = value | {"version": 2}
        if "end" not in value and isinstance(value.get("start", 0), str | None):  # a run: the model it starts from
            value = {"init_from" if key == "start" else key: item for key, item in value.items()}
        if isinstance(value.get("heldout"), dict) and ("unk_share" in value or "best" in value["heldout"]):  # a run
            new = "eval" if "unk_share" in value else "evaluation"
            value = {new if key == "heldout" else key: item for key, item in value.items()}
        if "files" in value and isinstance(value["files"], list):
            value = value | {"files": sorted(_current_file_name(name) for name in value["files"])}
        renamed = {KEYS.get(key, key): item for key, item in value.items()}
        return {key: to_current_names(item) for key, item in renamed.items() if key not in TEXTS}
    return [to_current_names(item) for item in value] if isinstance(value, list) else value


def _current_file_name(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{FILES.get(last, last)}"
