"""Output of a run: no counts among its scores, the masked word next to its predictions, the label of f1, progress
bars that end at 100%."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console as RichConsole
from runs.tiny import labeled, model_folder, sentence
from sklearn.metrics import f1_score

from unmask import api, report
from unmask.console import Console
from unmask.report.page import measured
from unmask.report.view import RunView
from unmask.tasks.classify.targets import SingleLabel
from unmask.train.run import Run


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_answer_report_does_not_show_counts_as_scores(tmp_path: Path) -> None:
    rows = []
    for n in range(24):
        text = sentence(n)[0]
        name = text.split()[0]
        rows.append({"question": f"who saw film {n} ?", "context": text, "answers": [{"text": name, "start": 0}]})
    train, dev = write(tmp_path / "train.jsonl", rows[:16]), write(tmp_path / "dev.jsonl", rows[16:])
    run = api.finetune(
        model_folder(tmp_path / "start"),
        task="answer",
        train=train,
        dev=dev,
        steps=1,
        batch_size=4,
        out=tmp_path / "run",
    )
    assert run.read_json("results.json")["dev"]["total"] == 8  # the official script's number stays in the file
    assert {"exact", "f1"} <= set(names := measured(RunView(run))) and "total" not in names
    html = (run.path / "report.html").read_text("utf-8")
    assert "<td>f1</td>" in html and "<td>total</td>" not in html and "HasAns total" not in html


def test_fill_samples_include_the_masked_word(store: Any, tmp_path: Path) -> None:
    run = api.pretrain(store.path, preset="bert-tiny", steps=1, batch_size=4, max_length=32, out=tmp_path / "run", overrides=["model.layers=1"])  # fmt: skip
    fills = run.read_json("fills.json")
    html = (run.path / "report.html").read_text("utf-8")
    assert fills and html.count("Original word: “") == len(fills)
    run.write_json("fills.json", [{"text": "the [MASK] of it", "answer": " <state>", "fills": []}])
    report.write(run)
    assert "Original word: “&lt;state&gt;”." in (run.path / "report.html").read_text("utf-8")


def test_prepare_from_cache_ends_at_100_percent(text_file: Path) -> None:
    def progress_output() -> str:
        console = Console()
        console.rich = RichConsole(file=io.StringIO(), force_terminal=True, width=200)
        api.prepare(str(text_file), overrides=["tokenizer.vocab_size=700"], console=console)
        return console.rich.file.getvalue()  # type: ignore[attr-defined]

    progress_output()
    bar = [line for line in progress_output().replace("\r", "\n").splitlines() if "prepare" in line][-1]
    assert "100%" in bar and "already prepared" in bar


@pytest.mark.parametrize("labels", [["neg", "pos"], ["spam", "ham"], ["0", "1"]])
def test_binary_f1_matches_scikit_learn(labels: list[str]) -> None:
    target_type = SingleLabel({"labels": labels})
    assert target_type.positive_label == labels[1]
    truth = [labels[int(c)] for c in "0110100111"]
    predicted = [labels[int(c)] for c in "0100110011"]
    answers = [{"label": g, "scores": {name: float(name == g) for name in labels}} for g in predicted]
    scores = target_type.score(answers, [{"label": t} for t in truth])
    assert scores["f1"] == pytest.approx(f1_score(truth, predicted, pos_label=labels[1]))
    assert f"f1 and auc are for {labels[1]}" in target_type.describe([{"label": t} for t in truth])


def test_f1_is_omitted_for_more_than_two_labels_and_if_undefined() -> None:
    three = SingleLabel({"labels": ["a", "b", "c"]})
    scores = {"a": 1.0, "b": 0.0, "c": 0.0}
    assert "f1" not in three.score([{"label": "a", "scores": scores}], [{"label": "a"}])
    assert "f1 and" not in three.describe([{"label": "a"}])
    two = SingleLabel({"labels": ["a", "b"]})
    assert "f1" not in two.score([{"label": "a", "scores": {"a": 1.0, "b": 0.0}}], [{"label": "a"}])


def test_info_and_report_name_the_label_of_f1(tmp_path: Path) -> None:
    run = api.finetune(
        model_folder(tmp_path / "start"), train=labeled(tmp_path / "train.csv", 24),
        dev=labeled(tmp_path / "dev.csv", 8, 500), steps=1, batch_size=4, out=tmp_path / "run",
    )  # fmt: skip
    html = (run.path / "report.html").read_text("utf-8")
    assert "of the label pos" in html and "<td>f1</td>" in html


def pairs(path: Path, first: int, count: int) -> Path:
    return write(
        path, [{"text": sentence(n)[0], "positive": f"so {sentence(n)[0]}"} for n in range(first, first + count)]
    )


def test_embed_reports_its_score_before_training(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    start = model_folder(tmp_path / "start")
    files = {"train": pairs(tmp_path / "train.jsonl", 0, 24), "dev": pairs(tmp_path / "dev.jsonl", 300, 12)}
    run = api.finetune(start, task="embed", **files, steps=2, batch_size=4, out=tmp_path / "run", console=Console())
    progress_output = capsys.readouterr().err
    assert progress_output.index("before training") < progress_output.index("step 2/2")
    first = next(e for e in run.events() if e["event"] == "eval")
    assert first["step"] == 0 and 0 < first["mrr"] <= 1
    assert run.read_json("results.json")["best"]["step"] > 0  # the untrained model is not a candidate for the best one
    assert len([e for e in Run(run.path).events() if e["event"] == "eval" and e["step"] == 0]) == 1
