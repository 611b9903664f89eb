"""The interface for task authors: at most 15 methods, 3 of them required; everything else is declared as data."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from unmask.labels.data_format import DataFormat
from unmask.labels.detect_task import pick_task
from unmask.labels.fields import Field, group_key, inputs_of, labels_of, target_key
from unmask.labels.records import Finding, open_source
from unmask.recipe import TaskRecipe
from unmask.registry import TASKS
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import Task

FORM = DataFormat(
    Field("text", ("text", "claim")),
    Field("beside", ("beside",), "texts", required=False),
    Field("stance", ("stance",), "label", "target"),
    Field("weight", ("weight",), "number", "target", required=False),
)
SPEC = TaskSpec(name="stance", about="", data_format=FORM, heads=("classify",), terms=("stance",), output="choice", group_by="text")  # fmt: skip


def methods(kind: type) -> dict[str, Any]:
    """Public methods that a subclass may override."""
    members = {name: inspect.getattr_static(kind, name) for name in vars(kind) if not name.startswith("_")}
    plain = {name: getattr(value, "__func__", value) for name, value in members.items()}
    return {n: f for n, f in plain.items() if inspect.isfunction(f) and not getattr(f, "__final__", False)}


def test_the_protocol_has_at_most_15_methods() -> None:
    task, form = methods(Task), methods(DataFormat)
    assert set(form) == {"matches", "resolve_auto", "read"}
    assert len(task) + len(form) <= 15, sorted({*task, *form})
    required = {name for name, f in task.items() if "NotImplementedError" in inspect.getsource(f)}
    assert required == {"encode", "decode", "score"}


@pytest.mark.parametrize("name", TASKS.names())
def test_tasks_override_only_the_protocol(name: str) -> None:
    """Final methods and base-class properties are the same for every task."""
    base = {n for n in vars(Task) if not n.startswith("__")} - set(methods(Task)) - {"SPEC", "name", "heads", "config"}
    assert not base & set(vars(TASKS[name])), "final"
    assert not set(vars(TASKS[name])) & {"fields", "metric", "read", "recognises", "matches"}


def test_data_format_of_fields_reads_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"claim": "it rains", "beside": ["wet", "grey"], "stance": "for", "weight": "2"}\n'
        '{"claim": "it snows", "stance": "against", "weight": "much"}\n{"claim": "", "stance": "for"}\n'
    )
    findings: list[Finding] = []
    source = open_source(str(tmp_path / "a.jsonl"), findings)
    first, second, _ = FORM.read(source, TaskRecipe(), findings)
    at = str(tmp_path / "a.jsonl")
    expected = {"location": f"{at}:1", "text": "it rains", "beside": ["wet", "grey"], "stance": "for", "weight": 2.0}
    assert first == expected and second["weight"] == 0.0 and "beside" not in second
    assert [f.location for f in findings if f.error] == [f"{at}:2", f"{at}:3"] and findings[0].kind == "weight"
    assert FORM.matches(source)
    unlabeled = FORM.read(source, TaskRecipe(columns={"text": "claim"}), [], labeled=False)
    assert all({"text"} <= set(r) <= {"location", "text", "beside"} for r in unlabeled)
    assert inputs_of(SPEC, first) == ("it rains", "wet", "grey") and group_key(SPEC, first) == ("it rains",)
    assert labels_of(SPEC, first) == ["for"] and target_key(SPEC, first) == "for"


def test_duplicate_pair_with_different_scores_is_a_contradiction(tmp_path: Path) -> None:
    from unmask.labels.doctor import check_records

    rows = [
        {"location": f"a:{n}", "text": "a cat", "positive": "a dog", "score": score}
        for n, score in enumerate((1.0, 4.0))
    ]
    assert [f.kind for f in check_records({"train": rows}, TASKS["embed"].SPEC)] == ["contradiction"]


def test_selection_metric_depends_on_the_records() -> None:
    spec = TASKS["embed"].SPEC
    pair = {"text": "a", "positive": "b"}
    assert [spec.metric([r]) for r in (pair | {"score": 1}, pair, {"text": "a"})] == ["spearman", "mrr", "uniformity"]
    assert spec.metric() == "spearman" and SPEC.metric() == "accuracy"


def test_broken_package_does_not_affect_other_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    monkeypatch.setitem(TASKS._discover(), "broken", EntryPoint("broken", "no_such_package:Task", "unmask.tasks"))
    (tmp_path / "a.csv").write_text("text,label\nso good,pos\nso bad,neg\n")
    with pytest.warns(UserWarning, match="broken"):
        assert pick_task(TaskRecipe(), [open_source(str(tmp_path / "a.csv"), [])]).name == "classify"
