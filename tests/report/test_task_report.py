"""Reports of fine-tuned models: all available details are shown, user text is escaped, and nothing is fetched."""

import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from runs.tiny import labeled, model_folder

from unmask import api, report
from unmask.cli.show.tables import print_facts
from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field
from unmask.numeric import wilson_interval
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.report import facts
from unmask.report.page import _task_section
from unmask.report.view import RunView
from unmask.tasks.embed.task import Embed
from unmask.tasks.intervals import intervals
from unmask.tasks.spec import TaskSpec, Usage
from unmask.text.store import TokenStore
from unmask.train.log import Log
from unmask.train.run import Run

# Injections into text, attributes, styles and scripts. Each contains its index, so that it can be identified in the page.
INJECTIONS = [
    pattern.replace("1", str(n))
    for n, pattern in enumerate(
        [
            "<script>own(1)</script>",
            "<img src=x onerror=own(1)>",
            '"><svg onload=own(1)>',
            "' onmouseover='own(1)",
            "</td></tr></table><h1>own1</h1>",
            "</title><script>own(1)</script>",
            "<!-- own1",
            "--><b>own1</b>",
            "]]><script>own(1)</script>",
            "{{ own1 }}",
            "{% for x in own1 %}",
            "<style>*{display:none}</style>own1",
            "</style><script>own(1)</script>",
            "javascript:own(1)",
            "<a href=javascript:own(1)>x</a>",
            "<iframe srcdoc='<script>own(1)</script>'></iframe>",
            "&lt;script&gt;own(1)&lt;/script&gt;",
            "&#60;b&#62;own1",
            "<base href=//evil1>",
            "<meta http-equiv=refresh content='0;url=//evil1'>",
            "<link rel=stylesheet href=//evil1>",
            "<form action=//evil1><input autofocus onfocus=own(1)>",
            "<details open ontoggle=own(1)>",
            "<math><mi>own1",
            "<body onload=own(1)>",
            "\u2028<script>own(1)</script>",
            "<ſcript>own(1)</ſcript>",
            "＜script＞own(1)＜/script＞",
            "\\x3cscript\\x3eown(1)",
            "%3Cscript%3Eown(1)",
            "<scr<script>ipt>own(1)</script>",
            "<SCRIPT SRC=//evil1>",
            "<video><source onerror=own(1)>",
            "<object data=//evil1>",
            "<embed src=//evil1>",
            "<marquee onstart=own(1)>",
            "`><script>own(1)</script>",
            "'\"><script>own(1)</script>",
            "<plaintext>own1",
            "<textarea>own1",
            "</pre>own1<b>",
            "</summary></details>own1",
            "<noscript><p title='</noscript><img src=x onerror=own(1)>'>",
            "<xmp>own1",
            "<template><script>own(1)</script>",
            "<button onclick=own(1)>x",
            "<b style='background:url(//evil1)'>x",
            "${own(1)}",
            "<?php own(1) ?>",
            "%own1<br/>",
        ]
    )
]
DETAILS = {
    "per_label": [{"label": "a", "precision": 0.9, "recall": 0.8, "f1": 0.85, "support": 40, "threshold": 0.4}],
    "confusion": {"labels": ["a", "b"], "matrix": [[30, 10], [5, 55]]},
    "calibration": {
        "bins": [{"confidence": 0.6, "accuracy": 0.5, "count": 30}, {"confidence": 0.9, "accuracy": 0.8, "count": 70}],
        "ece": 0.08, "temperature": 1.5, "before": {"ece": 0.21, "bins": []},
    },
    "pr": [{"label": "a", "precision": [0.4, 0.9, 1.0], "recall": [1.0, 0.8, 0.0]}],
    "scatter": {"truth": [1.0, 2.0, 3.0], "predicted": [1.5, 2.0, 2.5]},
    "errors": [{"location": "test.csv:7", "text": "what a film", "expected": "a", "predicted": "b", "score": 0.97}],
    "examples": [{"location": "test.csv:9", "text": "a film", "expected": "a", "predicted": "a", "score": 0.9}],
    "by_length": [{"length": "0–50", "records": 3, "accuracy": 0.5}],
}  # fmt: skip


def make(path: Path, details: dict | None = None, **results) -> Run:
    run = Run.create(path, "finetune", "x")
    Recipe.build({"init_from": "base", "task": {"name": "classify", "train": ["train.csv"]}}).write(
        run.path / "recipe.yaml"
    )
    run.write_json("environment.json", {"cpu": "Test CPU", "threads": 1})
    log = Log(run.log)
    for step in range(1, 21):
        log.write("train", step=step, loss=2 / step, grad_norm=1.0, lr_factor=1 - step / 20, elapsed=step, tokens=10)
        if step % 5 == 0:
            log.write("eval", step=step, elapsed=step, accuracy=step / 25, macro_f1=step / 30)
    log.close()
    if details is not None:
        run.write_json("details.json", {"test": details})
        scores = {"records": 100, "accuracy": 0.85, "macro_f1": 0.8}
        best = {"step": 20, "accuracy": 0.8}
        values = {"task": "classify", "metric": "accuracy", "step": 20, "best": best, "test": scores, "seconds": 20.0}
        values["intervals"] = {"test": {"accuracy": wilson_interval(85, 100)}}
        run.write_json("results.json", values | results)
    return run


class Page(HTMLParser):
    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_report_shows_all_available_details(tmp_path: Path) -> None:
    run = make(tmp_path / "run", DETAILS, baselines=[{"baseline": "tf-idf", "split": "test", "accuracy": 0.7}])
    run.write_json(
        "findings.json", [{"location": "train.csv:3", "message": "no label", "hint": "fill it in", "error": False}]
    )
    page = Page(report.write(run).read_text("utf-8"))
    for words in (
        "0.850 accuracy", "0.767 to 0.907", "100 test records", "train.csv:3: no label; fill it in", "macro f1", "threshold",
        "8.0%", "21.0% before", "Temperature 1.50", "what a film", "The worst errors", "0–50", "By length", "tf-idf",
        "unmask predict", "AutoModelForSequenceClassification" if (run.model).exists() else "unmask.predict", "Test CPU",
    ):  # fmt: skip
        assert words in " ".join(page.text.split()), words
    for name in ("curves", "confusion", "calibration", "pr", "scatter"):
        save_figure = Image.open(io.BytesIO((run.path / f"{name}.png").read_bytes())).convert("L")
        assert np.asarray(save_figure).std() > 5, name


def test_missing_sections_are_omitted(tmp_path: Path) -> None:
    run = make(tmp_path / "started")
    page = Page(report.write(run).read_text("utf-8"))
    assert "interrupted" in page.text and f"unmask finetune --resume {run.path}" in page.text
    assert "Scores" not in page.text.replace("Dev scores", "") and "Confusion" not in page.text
    empty = Run.create(tmp_path / "empty", "finetune", "x")
    Recipe.build({"init_from": "base", "task": {"train": ["t.csv"]}}).write(empty.path / "recipe.yaml")
    assert report.write(empty).exists() and not (empty.path / "curves.png").exists()
    for key in DETAILS:  # each part alone
        empty.write_json("details.json", {"dev": {key: DETAILS[key]}})
        assert _task_section(RunView(empty), "")["set"] == "dev"


@pytest.mark.parametrize("kind", ["finetune", "seeds", "tune", "quickstart", "somebody's"])
def test_report_of_every_task(tmp_path: Path, kind: str) -> None:
    run = make(tmp_path / "run", {}, seed_summary=[], selected_seed=1)
    run.write_json("run.json", {"version": 1, "kind": kind})
    page = Page(report.write(run).read_text("utf-8"))
    assert "finished" in page.text and "0.850 accuracy" in page.text.replace("\n", " ")


def test_report_of_an_uninstalled_task_shows_known_parts(tmp_path: Path) -> None:
    run = make(tmp_path / "run", DETAILS, task="haiku")
    recipe = yaml.safe_load((run.path / "recipe.yaml").read_text())
    recipe["task"]["name"] = "haiku"
    (run.path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    run.model.mkdir()
    assert "The worst errors" in report.write(run).read_text("utf-8")
    card = (run.model / "README.md").read_text("utf-8")
    front = yaml.safe_load(card.split("---")[1])
    assert front["library_name"] == "unmask" and "pipeline_tag" not in front
    assert "A model for haiku" in card and "unmask.predict('.', ['TEXT'])" in card and "transformers" not in card


def test_third_party_spec_defines_the_usage_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rhyme:
        SPEC = TaskSpec(
            name="rhyme", about="two lines → whether they rhyme", heads=("classify",), terms=("rhyme",), output="choice",
            data_format=DataFormat(Field("line"), Field("other", caption="OTHER LINE"), Field("label", holds="label", use="target")),
            usage=Usage(pipeline="text-classification", auto_class="AutoModelForSequenceClassification"),
        ).bind(text_pairs=True, labels=("no", "yes"))  # fmt: skip

    monkeypatch.setitem(TASKS._builtin, "rhyme", Rhyme)
    run = make(tmp_path / "run", DETAILS, task="rhyme")
    text = (run.path / "recipe.yaml").read_text().replace("name: classify", "name: rhyme")
    (run.path / "recipe.yaml").write_text(text)
    run.model.mkdir()
    page = Page(report.write(run).read_text("utf-8"))
    card = (run.model / "README.md").read_text("utf-8")
    assert f'unmask predict {run.model} "LINE" "OTHER LINE"' in page.text
    assert "pipeline_tag: text-classification" in card and "unmask.predict('.', [('LINE', 'OTHER LINE')])" in card
    assert "tokenizer('LINE', 'OTHER LINE', return_tensors='pt')" in card and "id2label" in card


def test_damaged_file_is_reported(tmp_path: Path) -> None:
    run = make(tmp_path / "run", DETAILS)
    (run.path / "task_state.json").write_text("{")
    assert any("task_state.json" in w["text"] for w in report.summary(run)["warnings"])


def test_user_text_is_escaped_and_nothing_is_fetched(tmp_path: Path) -> None:
    assert len(INJECTIONS) == len(set(INJECTIONS)) == 50
    safe_label = Page(report.write(make(tmp_path / "plain", DETAILS)).read_text("utf-8"))
    rows = [{"location": x, "text": x, "expected": x, "predicted": [x], "score": 0.5} for x in INJECTIONS]
    evil = DETAILS | {
        "errors": rows, "examples": rows, INJECTIONS[0]: [{INJECTIONS[1]: INJECTIONS[2]}],
        "per_label": [{"label": x, "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1} for x in INJECTIONS],
        "confusion": {"labels": INJECTIONS[:15], "matrix": [[1] * 15] * 15},
        "pr": [{"label": x, "precision": [1.0, 0.0], "recall": [0.0, 1.0]} for x in INJECTIONS],
    }  # fmt: skip
    run = make(tmp_path / "<b onclick=own(1)>evil", evil)
    run.write_json("findings.json", [{"location": x, "message": x, "hint": x} for x in INJECTIONS])
    run.write_json("task_state.json", {"labels": INJECTIONS})
    page = Page(report.write(run).read_text("utf-8"))
    assert {tag for tag, _ in page.tags} - {tag for tag, _ in safe_label.tags} <= {"details", "summary"}
    allowed = {"charset", "name", "content", "lang", "class", "scope", "media", "srcset", "alt", "src", "style"}
    assert {name for _, attributes in page.tags for name in attributes} <= allowed
    for tag, attributes in page.tags:
        assert all(
            str(v).startswith("data:image/svg+xml;base64,") for k, v in attributes.items() if k in ("src", "srcset")
        )
        assert re.fullmatch(
            r"(background: color-mix\(in srgb, var\(--accent\) \d+%, transparent\))?", attributes.get("style") or ""
        ), tag
    assert "script" not in {tag for tag, _ in page.tags}
    for x in INJECTIONS:
        assert page.text.count(x) >= 3, x


def test_findings_are_grouped_by_kind_with_the_most_serious_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the terminal, `unmask info` and the report: overlap of the test set with training is listed after
    duplicates."""
    model_folder(tmp_path / "model")
    train = labeled(tmp_path / "train.csv", 60).read_text().splitlines()
    (tmp_path / "train.csv").write_text("\n".join([*train, *(f"again {n},pos" for n in range(150) for _ in "ab")]))
    (tmp_path / "test.csv").write_text("\n".join([train[0], *train[5:9], "a new one,neg", "and another,pos"]))
    run = api.finetune(
        tmp_path / "model", train=tmp_path / "train.csv", test=tmp_path / "test.csv", steps=1, out=tmp_path / "run"
    )
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    warnings = [w["text"] for w in api.info(run.path)["warnings"]]
    html = (tmp_path / "run" / "report.html").read_text()
    shown = Page(html[html.index("<h2>Warnings") : html.index("<h2>Scores")])
    for lines in (printed, warnings):
        copies, leaks = (
            n for n, line in enumerate(lines) for kind in ("duplicate", "leakage") if f"× {kind}: " in line
        )
        assert copies < leaks == len(lines) - 1, lines
        assert "4 × leakage: " in lines[leaks] and "(4 of 6 records of test are)" in lines[leaks]
        assert re.search(r"1[5-9]\d × duplicate: ", lines[copies])  # a run keeps at most 100 findings, and their total
    assert shown.text.index("× duplicate") < shown.text.index("× leakage")
    assert [a.get("class") for tag, a in shown.tags if tag == "p"][-1] == "warning serious"


def test_real_run_has_a_report_and_a_card_with_working_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    model_folder(tmp_path / "model")
    labeled(tmp_path / "train.csv", 60), labeled(tmp_path / "test.csv", 30, 101)
    run = api.finetune(
        tmp_path / "model", task="classify", train=tmp_path / "train.csv", test=tmp_path / "test.csv", epochs=12, lr=3e-3,
        out=tmp_path / "run",
    )  # fmt: skip
    page = (run.path / "report.html").read_text("utf-8")
    assert f"unmask predict {run.model}" in page and f"unmask serve {run.model}" in page and "Confusion" in page
    card = (run.model / "README.md").read_text("utf-8")
    front = yaml.safe_load(card.split("---")[1])
    assert front["pipeline_tag"] == "text-classification" and "accuracy" in front["metrics"]
    assert str(tmp_path) not in card and "`train.csv`" in card
    snippets = re.findall(r"```python\n(.*?)```", card, re.S)
    assert len(snippets) == 2
    monkeypatch.chdir(run.model)
    for lines in snippets:
        exec(lines.replace("TEXT", "anna saw a good film number 3 ."), {})
        assert "pos" in capsys.readouterr().out
    info = api.info(run.path)
    assert info["state"] == "finished" and info["task"] == "classify" and info["records"]["test"] == 30
    assert dict(facts(info))["use"] == f'unmask predict {run.model} "TEXT"'
    print_facts(facts(info))
    (run.path / "report.html").unlink()
    api.resume(run.path)  # finished, but killed before its report
    assert (run.path / "report.html").exists()


def test_interrupted_run_shows_the_resume_command(tmp_path: Path) -> None:
    run = make(tmp_path / "started")
    summary = report.summary(run)
    assert summary["state"] == "interrupted" and summary["best"]["accuracy"] == pytest.approx(0.8)
    assert dict(facts(summary))["resume with"] == f"unmask finetune --resume {run.path}"
    with run.lock():
        assert report.summary(run)["state"] == "running"


def task_with_score(score: Callable[..., dict[str, float]], independent: bool = True) -> Any:
    spec = SimpleNamespace(fields=(), ranked_field="" if independent else "positive")
    return SimpleNamespace(score=score, SPEC=spec)


def test_counts_and_thresholds_have_no_interval() -> None:
    rng = np.random.default_rng(0)
    answers, records = rng.normal(size=50).tolist(), (rng.random(50) < 0.5).tolist()

    def score(answers: list[float], records: list[bool]) -> dict[str, float]:
        return {
            "f1": float(np.mean(answers)),
            "total": 50,
            "HasAns_total": sum(records),
            "best_f1_thresh": max(answers),
        }

    scores = {"records": 50, **score(answers, records)}
    assert set(intervals(task_with_score(score), answers, records, scores)) == {"f1"}


def test_scored_pairs_have_an_interval_but_ranked_pools_do_not(store: TokenStore) -> None:
    task = Embed(Recipe(), store.tokenizer, {"length": 32, "loss": "pairs"})
    rng = np.random.default_rng(0)
    truth = rng.random(40)
    answers = [{"similarity": float(s), "place": 1 + n % 4} for n, s in enumerate(truth + rng.normal(0, 0.3, 40))]
    pairs = [{"text": "a", "positive": "b"} for _ in answers]
    scored = [{**record, "score": float(s)} for record, s in zip(pairs, truth)]
    scores = task.score(answers, scored)
    low, high = intervals(task, answers, scored, scores)["spearman"]
    assert low < scores["spearman"] < high < 1
    assert intervals(task, answers, pairs, task.score(answers, pairs)) == {}


def test_intervals_have_95_percent_coverage() -> None:
    """For 400 samples of 80 records, about 95% of the intervals contain the true value, for a proportion and another
    score."""
    rng = np.random.default_rng(0)
    assert (
        np.mean([lo <= 0.8 <= hi for lo, hi in (wilson_interval(rng.binomial(80, 0.8), 80) for _ in range(2000))])
        > 0.93
    )
    task = task_with_score(lambda answers, records: {"mean": float(np.mean(answers))})
    covered = 0
    for _ in range(200):
        values = rng.normal(1.0, 1.0, 80).tolist()
        low, high = intervals(task, values, values, {"records": 80, "mean": float(np.mean(values))})["mean"]
        covered += low <= 1.0 <= high
    assert 0.89 <= covered / 200 <= 0.99
    assert intervals(task, [1.0] * 20, [1.0] * 20, {"mean": 1.0}) == {}, "identical values: the bootstrap has no spread"
