"""Columns by name, number and content: Chinese names, tables without a header, and suggested commands that work."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs.tiny import model_folder, sentence
from typer.testing import CliRunner

from unmask import api
from unmask.cli import app
from unmask.errors import UserError
from unmask.labels.data_format import DataFormat
from unmask.labels.detect_task import pick_task
from unmask.labels.fields import Field, detected_columns
from unmask.labels.propose import guess_column, propose_flags
from unmask.labels.records import open_source
from unmask.recipe import Recipe, TaskRecipe
from unmask.registry import TASKS
from unmask.text.columns import map_columns, normalize_name

WORDY = "一部 电影 讲 了 很 长 的 故事"
CHINESE: dict[str, tuple[str, list[str], list[Any]]] = {  # columns of a file → task, and a row
    "评论 标签": ("classify", ["text", "label"], ["很好看", "正面"]),
    "内容 情感": ("classify", ["text", "label"], ["很好看", "正面"]),
    "編號 標題 類別": ("classify", ["text", "label"], ["1", "股市上涨", "财经"]),
    "文本 类别": ("classify", ["text", "label"], ["很好看", "正面"]),
    "句子1 句子2 标签": ("classify", ["text", "pair", "label"], ["天气好", "天气坏", "矛盾"]),
    "前提 假设 标签": ("classify", ["text", "pair", "label"], ["天气好", "天气坏", "矛盾"]),
    "句子1 句子2 相似度": ("embed", ["text", "positive", "score"], ["天气好", "天气不错", 0.5]),
    "文本 正例": ("embed", ["text", "positive"], ["天气好", "天气不错"]),
    "问题 段落 答案": ("answer", ["question", "context", "answers"], ["谁？", "李白写诗", "李白"]),
    "问题 选项 答案": ("choose", ["text", "choices", "label"], ["谁？", ["李白", "杜甫"], "A"]),
    "题干 选项A 选项B 答案": ("choose", ["text", "label"], ["谁？", "李白", "杜甫", "A"]),
    "原文 摘要": ("generate", ["text", "target"], [WORDY * 3, WORDY]),
    "查询 段落 相关性": ("rank", ["query", "passage", "relevance"], ["唐诗", "李白写诗", 1]),
}


@pytest.mark.parametrize("names", CHINESE)
def test_chinese_column_names_of_every_role(names: str, tmp_path: Path) -> None:
    task, roles, row = CHINESE[names]
    file = tmp_path / "a.jsonl"
    rows = [
        dict(zip(names.split(), [f"{v}{n}" if isinstance(v, str) and v == WORDY else v for v in row])) for n in range(4)
    ]
    file.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), "utf-8")
    source = open_source(str(file), [])
    kind = pick_task(TaskRecipe(), [source])
    assert kind.name == task
    assert list(detected_columns(kind.fields, source, TaskRecipe())) == roles
    findings: list[Any] = []
    settings = kind.data_format.resolve_auto([source], Recipe().task)
    assert len(kind.data_format.read(source, settings, findings)) in (1, 4) and not [f for f in findings if f.error]


def test_chinese_names_map_to_known_english_columns() -> None:
    columns = {name for task in TASKS.names() for field in TASKS[task].SPEC.fields for name in field.columns} | {
        "id",
        "title",
    }
    for name in (
        "文本",
        "内容",
        "评论",
        "句子",
        "标题",
        "标签",
        "类别",
        "情感",
        "问题",
        "答案",
        "选项",
        "摘要",
        "查询",
        "段落",
        "分数",
    ):
        assert normalize_name(name) in columns, name


def suggested_flags(hint: str, flags: str) -> list[str]:
    """Return the command with these flags from an error's hint, without the text after it. Several tasks may match a
    file."""
    commands = [text for text in re.findall(r"unmask (doctor .*?)(?: \(|, or |$)", hint) if flags in text]
    assert commands, f"{flags} is not in {hint}"
    return shlex.split(commands[0])


UNNAMED = {
    "tabs, no header": ("a.tsv", "".join(f"gj04\t{n % 2}\t{'*' * (n % 2)}\tThe sailors rode the breeze {n}.\n" for n in range(40)),
                        "--task classify --column text=4 --column label=2"),
    "commas, no header": ("a.csv", "".join(f"The sailors rode the breeze {n},{'ab'[n % 2]}\n" for n in range(40)),
                          "--task classify --column text=1 --column label=2"),
    "no header, any name": ("a.data", "".join(f"{'ab'[n % 2]}\tThe sailors rode the breeze {n}\n" for n in range(40)),
                            "--task classify --column text=2 --column label=1"),
    "names that say nothing": ("a.csv", "c0,my field\n" + "".join(f"{n % 3},The sailors rode the breeze {n}\n" for n in range(40)),
                               "--task classify --column 'text=my field' --column label=c0"),
    "two texts": ("pairs.txt", "\ufeffQuality\t#1 ID\t#1 String\t#2 String\n" + "".join(f'{n % 2}\t{n}\t"Ann rode the wind {n}\tBen rode the wind {n}\n' for n in range(40)),
                  "--task classify --column 'text=#1 String' --column 'pair=#2 String' --column label=Quality"),
    "scores": ("a.csv", "s,a,b\n" + "".join(f"{n / 7:.3f},Ann rode the wind {n},Ben rode a horse {n}\n" for n in range(40)),
               "--task embed --column text=a --column positive=b --column score=s"),
    "objects": ("a.jsonl", "".join(json.dumps({"review": {"body": f"so it went on {n}", "stars": n % 2}}) + "\n" for n in range(40)),
                "--task classify --column text=review.body --column label=review.stars"),
    "Chinese, no header": ("a.txt", "".join(f"{'好坏'[n % 2]}\t这部电影的故事讲得真不错{n}\n" for n in range(40)),
                           "--task classify --column text=2 --column label=1"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNNAMED)
def test_suggested_columns_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, content, flags = UNNAMED[name]
    Path(file).write_text(content, "utf-8")
    with pytest.raises(UserError, match="no task matches") as caught:
        api.doctor(file)
    assert "looks like text" in caught.value.message
    result = CliRunner().invoke(app, [*suggested_flags(caught.value.hint or "", flags), "--json"])
    report = json.loads(result.stdout)
    assert result.exit_code == 0 and report["errors"] == 0, report
    assert report["records"]["train"] == 40 and report["task"] == flags.split()[1]


@pytest.mark.parametrize(("labels", "proposed"), [(("a", "b", "c"), True), (("later", "urgent"), False)])
def test_task_with_fixed_labels_is_suggested_only_for_them(labels: tuple[str, ...], proposed: bool) -> None:
    fields = Field("message"), Field("urgency", (), "label", "target", labels=labels)
    spec = replace(TASKS["classify"].SPEC, name="urgency", data_format=DataFormat(*fields))
    guesses = [
        guess_column("1", [f"The sailors rode the breeze {n}" for n in range(40)]),
        guess_column("2", ["a", "b"] * 20),
    ]
    expected = ["--task urgency --column message=1 --column urgency=2"] if proposed else []
    assert propose_flags([spec], guesses, {}, ["1", "2"]) == expected


def test_suggestion_is_the_same_for_a_given_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, content, _ = UNNAMED["tabs, no header"]
    Path(file).write_text(content)
    (error,) = [f for f in api.doctor(file, task="classify")["findings"] if f["error"]]
    flags = re.findall(r"--column (\S+)", error["hint"])
    assert flags == ["text=4", "label=2"]
    assert api.doctor(file, task="classify", columns=dict(f.split("=") for f in flags))["errors"] == 0


NESTED = {
    "records deeper": {"version": 1, "data": {"reviews": [{"text": f"so {n}", "label": "ab"[n % 2]} for n in range(6)]}},
    "a list for each column": {"text": [f"so {n}" for n in range(6)], "label": list("ababab")},
    "an object for each column": {"text": {str(n): f"so {n}" for n in range(6)}, "label": {str(n): "ab"[n % 2] for n in range(6)}},
}  # fmt: skip


@pytest.mark.parametrize("name", NESTED)
def test_suggested_command_for_nested_json_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my file.json").write_text(json.dumps(NESTED[name]))
    with pytest.raises(UserError, match="nested JSON") as caught:
        api.doctor("my file.json")
    hint = caught.value.hint or ""
    assert hint.startswith("python -c ")
    subprocess.run(shlex.quote(sys.executable) + hint.removeprefix("python"), shell=True, check=True)
    report = api.doctor("my file.jsonl")
    assert (report["task"], report["records"]["train"], report["errors"]) == ("classify", 6, 0)


def test_column_numbers_are_one_based_and_names_take_precedence() -> None:
    roles = {"text": ("text",), "label": ("label",)}
    assert map_columns(["id", "a", "b"], roles, {"text": "2", "label": "3"}, ("text", "label"), "f") == {
        "text": "a",
        "label": "b",
    }
    assert map_columns(["2", "a", "b"], roles, {"text": "2"}, (), "f") == {"text": "2"}
    for wrong in ("0", "4", "-1"):
        with pytest.raises(UserError, match=f"no column '{wrong}'"):
            map_columns(["id", "a", "b"], roles, {"text": wrong}, (), "f")
    assert TaskRecipe(columns={"text": 4}).columns == {"text": "4"}  # type: ignore[dict-item]


def test_column_numbers_work_in_training_and_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [("gj04", sentence(n)[1], "", sentence(n)[0]) for n in range(40)]
    Path("train.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    by_number = {"text": 4, "label": 2}
    model = model_folder(tmp_path / "tiny")
    run = api.finetune(model, train="train.tsv", columns=by_number, steps=2, batch_size=4, out=tmp_path / "run")
    assert api.evaluate(run.path, "train.tsv")["records"] == 40  # as in training
    named = "id,text,date,author\n" + "".join(f"{n},{sentence(n)[0]},2020,Ann\n" for n in range(3))
    Path("named.csv").write_text(named)
    answers = api.predict(run.path, "named.csv")  # not its fourth column
    assert [a["text"] for a in answers] == [sentence(n)[0] for n in range(3)]
    Path("other.txt").write_text("".join(f"{row[3]}\t{row[1]}\t{n}\n" for n, row in enumerate(rows)))
    assert api.evaluate(run.path, "other.txt", columns={"text": 1, "label": 2})["records"] == 40
    command = ["predict", str(run.path), "other.txt", "--column", "text=1", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0 and rows[0][3] in result.stdout, result.output
    Path("unnamed.tsv").write_text("".join(f"{n}\t{row[3]}\t{row[1]}\n" for n, row in enumerate(rows)))
    with pytest.raises(UserError, match="no column for 'text'") as caught:
        api.predict(run.path, "unnamed.tsv", columns={"label": 3})
    assert "--column text=2" in (caught.value.hint or "")
    Path("texts.tsv").write_text("".join(f"{n}\t{row[3]}\n" for n, row in enumerate(rows)))
    with pytest.raises(UserError, match="no column for 'text'") as caught:
        api.predict(run.path, "texts.tsv")  # it has no label column and needs none
    assert caught.value.hint == "--column text=2"
    assert len(api.predict(run.path, "texts.tsv", columns={"text": 2})) == 40


def test_numeric_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("text,label\n" + "".join(f"so {n},{('0', '1')[n % 2]}\n" for n in range(30)))
    Path("dev.csv").write_text("text,label\n" + "".join(f"no {n},{('0.0', '1.0', '1')[n % 3]}\n" for n in range(9)))
    report = api.doctor(["train.csv", "dev.csv"])
    assert report["errors"] == 0, report["findings"]
    (finding,) = [f for f in report["findings"] if f["kind"] == "labels alike"]
    assert finding["location"] == "dev.csv:3" and "'1.0' is read as '1'" in finding["message"]
    Path("scores.csv").write_text("text,score\n" + "".join(f"so {n},{('0.5', '5.0')[n % 2]}\n" for n in range(30)))
    (warned,) = api.doctor("scores.csv")["findings"]
    assert "read as 2 labels ('0.5', '5')" in warned["message"] and not warned["error"]
    key = re.findall(r"--set (\S+)", warned["hint"])
    assert api.doctor("scores.csv", overrides=key)["findings"] == []


def test_hint_for_a_wrong_offset_gives_the_nearest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    context = "Ann saw Ben. Then Ann left, and Ann slept."
    row: dict[str, Any] = {
        "id": "1",
        "question": "who?",
        "context": context,
        "answers": [{"text": "Ann", "answer_start": 30}],
    }
    Path("train.jsonl").write_text(json.dumps(row) + "\n")
    (finding,) = [f for f in api.doctor("train.jsonl")["findings"] if f["error"]]
    assert finding["hint"] == "answer_start: 32" and "3 offsets, the nearest is 32" in finding["message"]
    row["answers"][0]["answer_start"] = int(finding["hint"].split()[1])
    Path("train.jsonl").write_text(json.dumps(row) + "\n")
    assert api.doctor("train.jsonl")["errors"] == 0
    spans = {"text": context, "spans": [{"start": 19, "end": 22, "label": "PER", "text": "Ann"}]}
    Path("spans.jsonl").write_text(json.dumps(spans) + "\n")
    (finding,) = [f for f in api.doctor("spans.jsonl")["findings"] if f["error"]]
    assert finding["hint"] == "its text is at 18–21"


def test_hint_for_a_ragged_file_without_header_is_its_columns(tmp_path: Path) -> None:
    """The hint is not `unmask doctor FILE --json`, which was just run."""
    file = tmp_path / "train.tsv"
    rows = [f"{n}\t{'good' if n % 2 else 'bad'}\t{sentence(n)[0]} {n}" for n in range(40)]
    rows[3] = "3\tgood"
    file.write_text("\n".join(rows) + "\n", "utf-8")
    run = CliRunner().invoke(app, ["doctor", str(file)])
    assert run.exit_code == 2
    advice = next(line.split("hint:")[1] for line in run.output.splitlines() if "hint:" in line)
    argv = suggested_flags(advice, "--column text=3 --column label=2")
    report = json.loads(CliRunner().invoke(app, [*argv, "--json"]).stdout)
    assert {f["location"] for f in report["findings"] if f["error"]} == {f"{file}:4"}


def test_empty_file_error_has_no_hint(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("", "utf-8")
    with pytest.raises(UserError, match="no rows; pass a file with records") as caught:
        api.doctor(str(file))
    assert caught.value.hint is None


def test_error_for_an_object_in_a_text_column_lists_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    rows = [{"text": {"id": 1, "body": sentence(n)[0]}, "label": "ab"[n % 2]} for n in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    findings = api.doctor(str(file), task="classify")["findings"]
    assert "--column text=NAME.body" in findings[-1]["hint"]
    assert not api.doctor(str(file), task="classify", columns={"text": "text.body"})["errors"]


def test_dates_are_not_suggested_as_labels(tmp_path: Path) -> None:
    file = tmp_path / "news.csv"
    rows = [f"{sentence(n)[0]} {sentence(n + 1)[0]} {n},2017/{n % 3 + 1}/27" for n in range(40)]
    file.write_text("body text,published\n" + "\n".join(rows) + "\n", "utf-8")
    with pytest.raises(UserError) as caught:
        api.doctor(str(file))
    assert "published" not in f"{caught.value.expected} {caught.value.hint}"
    assert "column published" not in caught.value.message


def test_tokenizer_show_accepts_a_run(tmp_path: Path) -> None:
    model_folder(tmp_path / "run" / "model")
    run = CliRunner().invoke(app, ["tokenizer", "show", str(tmp_path / "run"), sentence(0)[0]])
    assert run.exit_code == 0 and "film" in run.output
    assert " | " in run.output, "the boundaries of the tokens are not visible"
