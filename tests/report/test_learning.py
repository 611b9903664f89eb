"""The report of a `learn` run: the result and the decision in sentences, for any subset of its results."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from report.learned import CURVE, RESULTS, STEPS, make
from report.test_task_report import INJECTIONS, Page
from rich.cells import cell_len

from unmask import api, report
from unmask.report.learning import clean, sections, sentences, summary_lines
from unmask.report.learning_figures import plot, plot_steps


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in RESULTS.items() if key not in keys}


def test_sentences_have_the_result_and_the_decision() -> None:
    assert sentences(RESULTS) == [
        "With 100 labels and 8,000 unlabeled texts: accuracy 81.2% (95% CI: 79.4% to 82.9%) on 2,000 test records. "
        "TF-IDF + logistic regression with the same labels: 72.3%.",
        "Twice as many labels (200) would give about 83.1% (80% interval: 80.9% to 85.2%), "
        "four times as many (400) about 85.0% (82.0% to 88.0%).",
        "Label next: the 50 texts in to_label.csv. 2 labels look wrong: check suspicious_labels.csv.",
    ]


def test_cross_validation_and_other_splits_are_named() -> None:
    steps = [STEPS[0] | {"split": "cross-validation"}, STEPS[-1]]
    assert "with the same labels: 72.3% in cross-validation." in sentences({**RESULTS, "steps": steps})[0]
    only = sentences({"metric": "macro_f1", "steps": [STEPS[0] | {"split": "cross-validation"}]})
    assert only == ["Macro f1 72.3% (95% CI: 70.3% to 74.2%) in cross-validation."]


def test_an_earlier_step_that_scored_higher_is_named() -> None:
    steps = copy.deepcopy(STEPS)
    assert "higher" not in sentences(RESULTS)[0]
    steps[1]["score"] = 0.82
    assert sentences({**RESULTS, "steps": steps})[0].endswith(
        "An earlier step scored higher: TF-IDF + self-training, 82.0%."
    )


def test_without_labels_there_is_no_comparison_with_the_same_labels() -> None:
    first = sentences({**RESULTS, "counts": {"labeled": 0, "unlabeled": 1}})[0]
    assert first.startswith("Without labels, with 1 unlabeled text: accuracy 81.2%")
    assert "TF-IDF + logistic regression: 72.3%." in first


def test_a_refused_curve_gives_its_reason() -> None:
    curve = {
        "points": CURVE["points"],
        "predicted": [],
        "note": "the model is still too close to chance to extrapolate",
    }
    told = sentences({**RESULTS, "curve": curve})[1]
    assert told == "What more labels would give is not known: the model is still too close to chance to extrapolate."


def test_the_curve_of_another_step_is_named() -> None:
    curve = {**CURVE, "step": "TF-IDF + logistic regression"}
    assert sentences({**RESULTS, "curve": curve})[1].endswith(
        "These are scores of TF-IDF + logistic regression, now about 79.5%."
    )
    assert "These are scores" not in sentences({**RESULTS, "curve": {**CURVE, "step": STEPS[-1]["name"]}})[1]


def test_suspects_are_mentioned_only_if_they_were_searched() -> None:
    none_found = sentences({**RESULTS, "suspects": {"file": "", "records": []}})[-1]
    assert none_found == "Label next: the 50 texts in to_label.csv. No label looks wrong."
    assert "wrong" not in " ".join(sentences(without("suspects")))
    one = {"file": "s.csv", "records": RESULTS["suspects"]["records"][:1]}
    assert "1 label looks wrong: check s.csv." in sentences({**RESULTS, "suspects": one})[-1]


def test_terminal_table_is_at_most_80_columns_wide() -> None:
    steps = copy.deepcopy(STEPS)
    steps[0] |= {"name": "自训练" * 20, "split": "cross-validation", "seconds": 36000.0}
    steps[1]["name"] = "a very long name of a step that does not fit into the table"
    assert max(cell_len(line) for line in summary_lines(RESULTS).splitlines()) <= 80
    table = summary_lines({**RESULTS, "steps": steps}).split("\n\n")[0].splitlines()
    assert len(table) == 5 and len(widths := {cell_len(line) for line in table}) == 1 and max(widths) <= 80  # aligned
    assert "…" in table[1] and re.search(r" cv +10:00:00$", table[1])
    assert table[4].split() == ["blend", "of", "encoder", "and", "linear", "model", "81.2%", "79.4%", "to", "82.9%", "test", "0:02"]  # fmt: skip


def test_page_shows_every_part(tmp_path: Path) -> None:
    html = report.write(make(tmp_path / "run")).read_text("utf-8")
    page = Page(html)
    text = " ".join(page.text.split())
    for sentence in sentences(RESULTS):
        assert sentence in text
    for heading in (
        "What each step gave", "What more labels would give", "Texts to label next", "Labels that look wrong",
        "Copies of the model", "Next commands", "Summary",
    ):  # fmt: skip
        assert f"<h2>{heading}</h2>" in html
    assert text.index("With 100 labels") < text.index("What each step gave") < text.index("Next commands")
    for row in (*RESULTS["to_label"]["texts"], *RESULTS["suspects"]["records"]):
        assert " ".join(row["text"].split()) in text
    assert (
        "train.csv:12" in text
        and "20,000" in text
        and "4.1 MB" in text
        and "pre-trained on the unlabeled texts" in text
    )
    assert html.count("<pre>unmask ") == 3
    assert text.count("40 more") == 1
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 2
    assert (tmp_path / "run" / "steps.png").exists() and (tmp_path / "run" / "learning_curve.png").exists()
    assert "Scores" not in re.findall("<h2>(.*?)</h2>", html)


@pytest.mark.parametrize("key", sorted(RESULTS))
def test_every_key_may_be_missing_or_wrong(key: str, tmp_path: Path) -> None:
    for wrong in (None, [], {}, "x", 3, float("nan"), [None, 1, "x", {}], {"points": 3, "texts": [1], "records": "x"}):
        for results in (without(key), {**RESULTS, key: wrong}):
            summary_lines(results)
            sections(results)
            plot(results)
    run = make(tmp_path / "run", dict.fromkeys(RESULTS, "x") | {key: RESULTS[key]})
    assert dict(report.facts(report.summary(run)))["state"] == "finished"
    assert "finished" in report.write(run).read_text("utf-8")


@pytest.mark.parametrize("results", [{}, {"metric": "accuracy"}, None])
def test_runs_with_few_or_no_results(results: dict[str, Any] | None, tmp_path: Path) -> None:
    run = make(tmp_path / "run", results)
    html = report.write(run).read_text("utf-8")
    assert "What each step gave" not in html
    assert ("unmask learn --resume" in html) == (not results)


def test_wrong_rows_are_left_out_of_a_table(tmp_path: Path) -> None:
    steps = [*STEPS, {"name": "failed", "score": None}, "x", {"score": float("nan")}]
    assert sentences({**RESULTS, "steps": steps}) == sentences(RESULTS)
    html = report.write(make(tmp_path / "run", {**RESULTS, "copies": [{"name": "static", "score": 0.5}]})).read_text()
    assert "<td>static</td><td>50.0%</td><td>–</td><td>–</td><td>–</td><td></td>" in html.replace("\n", "")


def test_user_text_is_escaped(tmp_path: Path) -> None:
    rows = [{"text": x, "location": x, "label": x, "suggested": x, "probability": 0.5} for x in INJECTIONS]
    results = {
        **RESULTS, "labels": INJECTIONS, "commands": INJECTIONS, "to_label": {"file": INJECTIONS[0], "texts": rows},
        "suspects": {"file": INJECTIONS[1], "records": rows},
        "steps": [STEPS[0] | {"name": x, "note": x, "split": x} for x in INJECTIONS],
        "copies": [{"name": x, "path": x} for x in INJECTIONS],
    }  # fmt: skip
    page = Page(report.write(make(tmp_path / "run", results)).read_text("utf-8"))
    clean_page = Page(report.write(make(tmp_path / "plain")).read_text("utf-8"))
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in clean_page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "<script>own(0)</script>" in page.text


def test_info_describes_the_run(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    summary = api.info(run.path)
    assert summary["kind"] == "learn" and summary["decision"] == sentences(RESULTS) and summary["seconds"] == 412
    assert summary["results"]["to_label"]["texts"] == 50  # a count: the texts are in results.json
    lines = report.facts(summary)
    assert ("records", "100 labeled, 8,000 unlabeled, 2,000 test") in lines
    assert ("TF-IDF + self-training", "79.1% (95% CI: 77.3% to 80.8%) on the test set") in lines
    assert [text for label, text in lines if label == "use"] == RESULTS["commands"]


def test_steps_are_plotted_in_order_with_the_final_one_last() -> None:
    steps = [*STEPS[:2], STEPS[2] | {"name": "微调", "split": "cross-validation"}, STEPS[3]]
    ax = plot_steps(clean({**RESULTS, "steps": steps})).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        STEPS[0]["name"], STEPS[1]["name"], "step 3", STEPS[3]["name"],
    ]  # fmt: skip
    bottom, top = ax.get_ylim()
    assert bottom > top  # the first step is at the top
    assert [text.get_text() for text in ax.texts] == ["72.3%", "79.1%", "76.8%", "81.2%"]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [dot.get_markerfacecolor() == "#ffffff" for dot in dots] == [False, False, True, False]


def test_steps_without_times_have_no_time_column() -> None:
    steps = [{key: value for key, value in step.items() if key != "seconds"} for step in STEPS]
    lines = summary_lines({**RESULTS, "steps": steps}).split("\n\n")[0].splitlines()
    assert "time" in summary_lines(RESULTS) and "time" not in lines[0] and len(lines) == 1 + len(STEPS)
