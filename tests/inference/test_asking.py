"""Inputs of a fine-tuned model are never dropped, misread or scored against labels that the model does not know."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from unmask import UserError, api
from unmask.cli import app
from unmask.inference.predictor import Predictor
from unmask.labels import detect_task, record_sets
from unmask.labels.formats.choices import add_label_indices
from unmask.labels.record_sets import open_files
from unmask.labels.records import Finding
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.report.usage import unmask_snippet
from unmask.runs.part import make_recipe, prepare
from unmask.tasks import folder as task_folder
from unmask.tasks.answer.task import Answer
from unmask.tasks.choose.task import Choose
from unmask.tasks.classify.task import Classify
from unmask.tasks.rank.task import Rank
from unmask.tasks.tag.task import Tag
from unmask.tasks.task import FitContext, Task
from unmask.text.tokenizer import Tokenizer
from unmask.train.run import Run

SHAPE = {"hidden": 32, "heads": 2, "layers": 1, "intermediate": 64, "max_positions": 64}
TOKENIZER = Tokenizer.train(["what a film, who is so dull? a joy 0123456789"] * 3, TokenizerRecipe(type="char"))


def make_model(heads: tuple[str, ...], labels: tuple[str, ...] = ("neg", "pos")) -> Model:
    return Model(preset("bert-tiny", vocab_size=TOKENIZER.size, labels=labels, **SHAPE), heads).init(0)


def task_predictor(kind: type[Task], task_state: dict[str, Any], head: str) -> Predictor:
    labels = tuple(task_state.get("labels", ("one",)))
    task = kind(Recipe(), TOKENIZER, {"length": 64} | task_state)
    return Predictor(make_model((head,), labels), TOKENIZER, "cpu", task)


def classifier(**task_state: Any) -> Predictor:
    return task_predictor(Classify, {"labels": ["neg", "pos"]} | task_state, "classify")


def save_classifier(path: Path, labels: tuple[str, ...] = ("neg", "pos"), pair: bool | None = None) -> str:
    hf.save(make_model(("classify",), labels), path, TOKENIZER)
    if pair is not None:
        task_state = {"length": 64, "labels": list(labels), "target": "single_label", "pair": pair}
        values = {"version": 2, "task": "classify", "settings": {}, "task_state": task_state}
        (path / "unmask.json").write_text(json.dumps(values))
    return str(path)


def write_csv(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


# ------------------------------------------------------------------------------------------------------- evaluate


def test_evaluate_reports_labels_unknown_to_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_classifier(tmp_path / "model")
    with pytest.raises(UserError, match=r"none of the labels.*'good' \(2\), 'bad' \(1\)") as caught:
        api.evaluate(model, write_csv(tmp_path / "a.csv", "text,label", "a joy,good", "so,good", "dull,bad"))
    assert caught.value.expected == "neg, pos"
    api.evaluate(model, write_csv(tmp_path / "b.csv", "text,label", "a joy,pos", "so,neg", "dull,bad"))
    assert "1 labels are unknown to the model and count as wrong: 'bad' (1)" in " ".join(
        capsys.readouterr().err.split()
    )
    api.evaluate(model, write_csv(tmp_path / "c.csv", "text,label", "a joy,pos", "so,pos"))
    assert "every record has the label 'pos'" in capsys.readouterr().err
    api.evaluate(model, write_csv(tmp_path / "d.csv", "text,label", "a joy,pos", "so,neg"))
    assert not capsys.readouterr().err
    unnamed = save_classifier(tmp_path / "unnamed", ("LABEL_0", "LABEL_1"))
    with pytest.raises(UserError, match="none of the labels") as caught:
        api.evaluate(unnamed, tmp_path / "d.csv")
    assert "--labels" in str(caught.value.hint) and "id2label" in str(caught.value.hint)


# -------------------------------------------------------------------------------------------------------- predict


def test_single_texts_and_pairs_are_not_confused(tmp_path: Path) -> None:
    single, paired, either = classifier(pair=False), classifier(pair=True), classifier()
    for p, parts in ((single, ("a", "b")), (paired, ("a",)), (either, ("a", "b", "c")), (either, ())):
        with pytest.raises(UserError, match=f"{len(parts)} texts given for the task classify"):
            p(*parts)
    assert {single("a")["label"], paired("a", "b")["label"], either("a")["label"]} <= {"neg", "pos"}
    assert either("a", "b")["scores"] == pytest.approx(paired("a", "b")["scores"])
    with pytest.raises(UserError, match="record 1 has a second text"):
        single.predict([{"text": "a", "pair": "b"}])
    file = write_csv(tmp_path / "p.csv", "text,pair", "a,b")
    with pytest.raises(UserError, match=r"p\.csv:2 has a second text"):
        api.predict(single, file)
    with pytest.raises(UserError, match=r"q\.csv:2 has no second text") as caught:
        api.predict(paired, write_csv(tmp_path / "q.csv", "text,other", "a,b"))
    assert caught.value.hint == "--column pair=NAME"
    assert len(api.predict(paired, tmp_path / "q.csv", columns={"pair": "other"})) == 1
    folder = Path(save_classifier(tmp_path / "m", pair=True))  # the code snippet of a report passes two texts as well
    exec(unmask_snippet(str(folder), task_folder.read_spec(folder)), {})


def test_task_state_stores_whether_records_are_pairs() -> None:
    records = [{"location": "", "text": "a", "label": "x"}, {"location": "", "text": "b", "label": "y"}]
    pairs = [r | {"pair": "c"} for r in records]
    context = FitContext(Recipe(), preset("bert-tiny"), None)
    assert Classify.fit_state(context, records).task_state["pair"] is False
    assert Classify.fit_state(context, pairs).task_state["pair"] is True
    assert "pair" not in Classify.fit_state(context, [*records, *pairs]).task_state


def test_predict_accepts_several_command_line_arguments(tmp_path: Path) -> None:
    single, paired = save_classifier(tmp_path / "one", pair=False), save_classifier(tmp_path / "two", pair=True)

    def run(*arguments: str, **more: Any) -> Any:
        result = CliRunner().invoke(app, ["predict", *arguments, "--json"], **more)
        return json.loads(result.stdout)

    assert [a["text"] for a in run(single, "a joy", "so", "dull")] == ["a joy", "so", "dull"]
    assert [(a["text"], a["pair"]) for a in run(paired, "a joy", "so")] == [("a joy", "so")]
    assert "3 texts" in run(paired, "a joy", "so", "dull")["error"]
    lines = run(single, "-", input="a joy\n\n \nso\n")
    assert [(a["text"], a["location"]) for a in lines] == [("a joy", "-:1"), ("so", "-:4")]
    assert run(paired, "-", input="\na joy\tso\n")[0] | {"label": 0, "probability": 0, "scores": 0} == {
        "text": "a joy", "pair": "so", "location": "-:2", "label": 0, "probability": 0, "scores": 0,
    }  # fmt: skip
    files = [write_csv(tmp_path / f"{n}.csv", "text", f"a {n}") for n in range(2)]
    assert [a["text"] for a in run(single, *files)] == ["a 0", "a 1"]


def test_predict_accepts_lists_and_records_and_rejects_other_types() -> None:
    p = classifier(pair=False)
    both = p(["a", "b"])
    assert both == p.predict(["a", {"text": "b"}])
    assert [a["scores"] for a in both] == [pytest.approx(a["scores"]) for a in (p("a"), p({"text": "b"}))]
    for wrong in (5, None, b"a", {"text": 5}, {"txt": "a"}, ["a", 5], [None]):
        with pytest.raises(UserError):
            p(wrong)
    for records in ("a text", {"text": "a"}, 5, None):
        with pytest.raises(UserError, match="a list of records or texts"):
            p.predict(records)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not text"):
        task_predictor(Tag, {"labels": ["O", "B-x", "I-x"], "scheme": "BIO"}, "tag").tag(5)  # type: ignore[arg-type]


def test_empty_inputs_and_invalid_choices_raise() -> None:
    answer = task_predictor(Answer, {"none": True, "threshold": 0.0}, "answer")
    with pytest.raises(UserError, match="the context is empty"):
        answer.answer("where?", " ")
    with pytest.raises(UserError, match="the question is empty"):
        answer("", "there")
    for wrong in ((5, "there"), ("where?", None)):
        with pytest.raises(UserError, match="not text"):
            answer.answer(*wrong)  # type: ignore[arg-type]
    choose = task_predictor(Choose, {}, "choose")
    for choices in ("so", 5, None):
        with pytest.raises(UserError, match="the choices are"):
            choose.choose("what", choices)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not text"):
        choose.choose("what", ["a", 5])  # type: ignore[list-item]
    assert choose.choose("what", ("a", "so"))["answer"] in ("a", "so")
    rank = task_predictor(Rank, {"most": 1.0}, "classify")
    assert rank("who", ["a", "so"])["scores"] == pytest.approx(rank("who", "a", "so")["scores"])
    with pytest.raises(UserError, match="1 texts"):
        rank("who")


# -------------------------------------------------------------------------------------------------------- finetune


def test_task_is_detected_from_the_given_columns(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", "essay,stars,x", "a,1,2")

    def kind(**columns: str) -> str:
        settings = Recipe.build({"task": {"columns": columns, "train": [file]}}).task
        return detect_task.pick_task(settings, open_files(settings, [])["train"]).name

    assert kind(text="essay", label="stars") == kind(label="stars", text="x") == "classify"
    assert kind(question="essay", context="x", answers="stars") == "answer"
    assert kind(text="essay", target="stars") == "generate"
    with pytest.raises(UserError, match="no task matches"):
        kind()
    file = write_csv(
        tmp_path / "b.csv", "review,label,text", "a,1,2"
    )  # one role is given, the other is recognized by its name
    assert kind(text="review") == "classify"
    file = write_csv(tmp_path / "c.csv", "first,other,score", "a,b,0.5")
    assert kind(text="first", positive="other") == "embed" and kind(text="first", pair="other") == "classify"


def test_max_length_beyond_the_model_raises_and_mismatched_head_is_reported(tmp_path: Path) -> None:
    start = save_classifier(tmp_path / "start", ("a", "b", "c"))
    train = write_csv(tmp_path / "t.csv", "text,label", *[f"a joy {n},{'xy'[n % 2]}" for n in range(24)])
    values: dict[str, Any] = {"init_from": start, "task": {"name": "classify", "train": [train]}}
    job = prepare(make_recipe(values))
    assert any("has a classify head with 3 labels, but the task needs 2" in note for note in job.notes)
    with pytest.raises(UserError, match="--max-length 65: the model has 64 positions"):
        prepare(make_recipe(values, ["task.max_length=65"]))


def test_errors_name_the_command_that_created_the_run(tmp_path: Path) -> None:
    for name, values in (("pretrain", {}), ("finetune", {"task": {"train": ["t.csv"]}})):
        (tmp_path / name).mkdir()
        Recipe.build(values).write(tmp_path / name / "recipe.yaml")
        assert Run(tmp_path / name).command_name() == name
        with pytest.raises(UserError, match=f"unmask {name} --resume {tmp_path / name}"):
            Run.ensure_new(tmp_path / name)
        with pytest.raises(UserError, match=f"unmask {name} --resume"):
            api.load(tmp_path / name)
    (tmp_path / "pretrain" / "run.json").write_text('{"version": 1, "kind": "seeds"}')
    assert Run(tmp_path / "pretrain").kind() == "seeds" and Run(tmp_path / "pretrain").command_name() == "finetune"
    (tmp_path / "pretrain" / "run.json").write_text('{"version": 1, "kind": 3}')
    with pytest.raises(UserError, match=r"run\.json.*kind"):
        Run(tmp_path / "pretrain").kind()
    Recipe.build({"task": {"name": "classify"}}).write(tmp_path / "pretrain" / "recipe.yaml")
    (tmp_path / "pretrain" / "run.json").unlink()
    assert Run(tmp_path / "pretrain").kind() == "finetune", "the recipe of an old quickstart classifier lists no files"
    (tmp_path / "finetune" / "tune.json").write_text("{}")
    assert Run(tmp_path / "finetune").command_name() == "tune"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").touch()
    with pytest.raises(UserError) as caught:
        Run.ensure_new(tmp_path / "other")
    assert caught.value.hint == "choose a different --out"
    with pytest.raises(UserError) as caught:
        Recipe.build({"task": {"nothing": 1}})
    assert "pretrain" not in str(caught.value.hint)


def test_run_directory_is_named_after_the_task_and_hints_use_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: (run.path / "report.html").touch())
    monkeypatch.chdir(tmp_path)
    start = save_classifier(tmp_path / "start")
    train = write_csv(tmp_path / "t.csv", "text,label", *[f"a joy {n},{('neg', 'pos')[n % 2]}" for n in range(24)])
    opened: list[str] = []
    reader = record_sets.open_source
    monkeypatch.setattr(record_sets, "open_source", lambda path, *a, **k: opened.append(path) or reader(path, *a, **k))
    run = api.finetune(start, train=train, steps=1)
    assert opened == [train]  # only once, although the run directory is named after the task in the file
    assert str(run.path) == "runs/finetune/classify-1" and run.read_json("task_state.json")["pair"] is False
    (tmp_path / "else where").mkdir()
    monkeypatch.chdir(tmp_path / "else where")
    shown = CliRunner().invoke(app, ["finetune", "--resume", "../runs/finetune/classify-1"]).stdout
    assert "unmask predict ../runs/finetune/classify-1/model" in shown
    assert "../runs/finetune/classify-1/report.html" in shown


def test_label_of_a_record_without_choices_is_not_reported_twice() -> None:
    findings: list[Finding] = []
    add_label_indices([{"location": "f:1", "choices": []}], [("B", [])], findings)
    assert findings == []
