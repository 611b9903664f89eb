"""`unmask learn`: from labels, words and unlabeled text to a model folder, a report and the texts to label next."""

import json
import random
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest
from near import gap
from runs import learning, tiny
from runs.learning import TOPICS, chinese_rows, data_files, read_csv, texts_of, topic_rows, word_flags
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner, Result

import unmask
from unmask.cli import app
from unmask.errors import UserError
from unmask.train.run import Run

LINEAR = "linear model with self-training"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learning.model_folder(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip reports, and train the encoder for one epoch: most tests are about the other steps."""
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    monkeypatch.setattr("unmask.runs.learn_plan.EPOCHS", 1)


@pytest.fixture(scope="module")
def run(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("learn")
    return unmask.learn(**data_files(folder), init_from=start, out=folder / "run")


def step(run: Run, name: str) -> dict[str, Any]:
    return next(row for row in run.results()["steps"] if row["name"] == name)


def cli(*arguments: Any) -> Result:
    result = CliRunner().invoke(app, ["learn", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    return result


# ----------------------------------------------------------------------------------------------------- result folder


def test_model_folder_opens_in_transformers_and_gives_the_reported_test_score(run: Run) -> None:
    results = run.results()
    model = AutoModelForSequenceClassification.from_pretrained(results["model"])
    assert sorted(model.config.id2label.values()) == sorted(TOPICS)
    test = topic_rows(60, 9)
    predicted = [p["label"] for p in unmask.load(results["model"]).predict(texts_of(test))]
    accuracy = sum(a == row["label"] for a, row in zip(predicted, test)) / len(test)
    assert gap(accuracy, results["steps"][-1]["score"]) < 1e-9
    assert accuracy > 0.9


def test_results_have_the_schema_that_the_report_reads(run: Run) -> None:
    results = run.results()
    assert results["metric"] == "accuracy" and results["labels"] == list(TOPICS)
    assert results["counts"] == {"labeled": 24, "unlabeled": 200, "test": 60}
    names = ["TF-IDF + logistic regression", LINEAR, "fine-tuned model alone", "both together"]
    assert [row["name"] for row in results["steps"]] == names
    for row in results["steps"]:
        assert row["split"] == "test" and 0 <= row["score"] <= 1
        assert row.get("low", 0) <= row["score"] <= row.get("high", 1)
    assert results["steps"][1]["score"] > results["steps"][0]["score"]  # the unlabeled text helps
    assert {"points", "predicted", "level", "note"} <= results["curve"].keys()
    assert results["to_label"]["file"] == "to_label.csv" and results["seconds"] > 0
    assert json.loads((run.path / "results.json").read_text()) == results
    page = (run.path / "report.html").read_text("utf-8")
    assert LINEAR in page and results["to_label"]["texts"][0]["text"] in page


def test_texts_to_label_have_an_empty_label_and_a_suggestion(run: Run) -> None:
    rows = read_csv(run.path / "to_label.csv")
    assert list(rows[0]) == ["text", "label", "suggested", "probability"] and len(rows) == 50
    assert all(
        row["label"] == "" and row["suggested"] in TOPICS and 0.5 <= float(row["probability"]) <= 1 for row in rows
    )
    assert len({row["text"] for row in rows}) == 50
    assert {row["text"] for row in rows} <= set(texts_of(topic_rows(200, 2)))


@pytest.mark.usefixtures("fast")
def test_next_command_continues_with_the_labeled_texts(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a new label, all texts to label are rows without a label; with some, they are labeled records."""
    command = shlex.split(run.results()["commands"][1])
    assert command[:2] == ["unmask", "learn"] and "--from" in command
    result = cli(*command[2:], "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    again = Run(tmp_path / "run").results()
    assert again["counts"] == {"labeled": 24, "unlabeled": 200, "test": 60}
    assert "50 rows have no label and are used as unlabeled text" in " ".join(result.output.split())
    labeled = [
        row | {"label": row["suggested"] if n < 20 else ""} for n, row in enumerate(read_csv(run.path / "to_label.csv"))
    ]
    file = learning.write_csv(tmp_path / "labeled_now.csv", labeled)
    arguments = [str(file) if text.endswith("to_label.csv") else text for text in command[2:]]
    expected = json.loads(cli(*arguments, "--dry-run", "--json").stdout)
    assert expected["counts"] == {"labeled": 44, "unlabeled": 180, "test": 60}


@pytest.mark.usefixtures("fast")
def test_wrong_labels_are_listed(start: Path, tmp_path: Path) -> None:
    rows = topic_rows(120, 1)
    for row in rows[:6]:
        row["label"] = TOPICS[row["label"] == TOPICS[0]]
    file = learning.write_csv(tmp_path / "labeled.csv", rows)
    text = learning.write_texts(tmp_path / "more.jsonl", texts_of(topic_rows(300, 2)))
    run = unmask.learn(file, text=text, init_from=start, out=tmp_path / "run")
    suspects = read_csv(run.path / "suspicious_labels.csv")
    assert list(suspects[0]) == ["location", "text", "label", "suggested", "probability"]
    found = {row["text"] for row in suspects} & {row["text"] for row in rows[:6]}
    assert len(found) >= 4 and len(suspects) <= 12
    wrong = next(row for row in suspects if row["text"] == rows[0]["text"])
    assert wrong["location"] == f"{file}:2" and wrong["label"] == rows[0]["label"] != wrong["suggested"]
    assert [row["split"] for row in run.results()["steps"]] == ["cross-validation"] * 2  # no test file


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("parts", [("files",), ("files", "test"), ("files", "text")])
def test_text_and_test_file_are_optional(parts: tuple[str, ...], start: Path, tmp_path: Path) -> None:
    files = {name: path for name, path in data_files(tmp_path).items() if name in parts}
    run = unmask.learn(**files, init_from=start, out=tmp_path / "run")
    results = run.results()
    assert results["counts"].get("test", 0) == (60 if "test" in parts else 0)
    assert (run.path / "to_label.csv").exists() == ("text" in parts)
    assert [row["split"] for row in results["steps"]] == (["test"] * 3 if "test" in parts else [])
    assert unmask.load(results["model"]).predict(["seabaceda"])[0]["label"] in TOPICS
    from unmask.report.learning import summary_lines

    assert isinstance(summary_lines(results), str)


@pytest.mark.usefixtures("no_report")
def test_pretraining_is_the_first_step_without_a_model(tmp_path: Path) -> None:
    run = unmask.learn(**data_files(tmp_path), minutes=0.05, out=tmp_path / "run")
    assert (run.path / "pretrain" / "results.json").exists()
    corpus = Run(run.path / "pretrain").recipe().data.corpus
    assert [Path(path).name for path in corpus] == ["unlabeled.jsonl", "labeled_texts.jsonl"]  # no test texts
    assert Run(run.path / "finetune").recipe().init_from == str(run.path / "pretrain" / "model")
    assert step(run, "both together")["score"] > 0.8


# ------------------------------------------------------------------------------------------------------------- words


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("with_labels", [False, True])
@pytest.mark.parametrize("with_check", [False, True])
def test_words_label_the_texts(with_labels: bool, with_check: bool, start: Path, tmp_path: Path) -> None:
    files = data_files(tmp_path, unlabeled=400)
    if not with_labels:
        del files["files"]
    if with_check:
        files["check"] = learning.write_csv(tmp_path / "check.csv", topic_rows(30, 5))
    run = unmask.learn(**files, words=word_flags(), init_from=start, out=tmp_path / "run")
    assert step(run, LINEAR)["score"] > 0.85
    assert step(run, "counting the words")["score"] < step(run, LINEAR)["score"]
    assert any(row["split"] == "check" for row in run.results()["steps"]) == with_check
    assert run.results()["labels"] == list(TOPICS)
    assert unmask.load(run.results()["model"]).predict([" ".join(learning.words_of("sky")[20:26])])[0]["label"] == "sky"


@pytest.mark.usefixtures("fast")
def test_wrong_words_are_refused_with_the_reason(start: Path, tmp_path: Path) -> None:
    files = data_files(tmp_path, unlabeled=400)
    check = learning.write_csv(tmp_path / "check.csv", topic_rows(40, 5))
    exchanged = [f"{a}: {' '.join(learning.words_of(b, 10))}" for a, b in (TOPICS, TOPICS[::-1])]
    with pytest.raises(UserError, match=r"the words do not predict the labels of --check: \d+ of 40 records are right"):
        unmask.learn(text=files["text"], words=exchanged, check=check, init_from=start, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()  # --out can be used again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sea seaba"], "has no label or no words"),
        (["sea:", "sky: skyba"], "has no label or no words"),
        ([": seaba", "sky: skyba"], "has no label or no words"),
        (["sea: seaba"], "one label only: sea"),
        (["sea: seaba", "sky: Seaba"], "seaba is given for more than one label"),
        (["sea: nowhere", "sky: nothing"], r"only 0 of 200 texts have more words of 'sea'.*\n.*nowhere 0"),
    ],
)
def test_invalid_words_are_refused_before_training(words: list[str], message: str, tmp_path: Path) -> None:
    files = data_files(tmp_path)
    with pytest.raises(UserError) as caught:
        unmask.learn(text=files["text"], words=words, out=tmp_path / "run")
    assert re.search(message, str(caught.value)), caught.value
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("labels", "words", "message"),
    [
        (("sea", "sky", "land"), TOPICS, "no words for the label 'land' of the labeled records"),
        (TOPICS, ("sea", "sky", "land"), "gives words for 'land', but no record has this label"),
    ],
)
def test_words_and_labels_must_agree(
    labels: tuple[str, ...], words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    everything = ("sea", "sky", "land")
    file = learning.write_csv(tmp_path / "labeled.csv", topic_rows(30, 1, labels))
    text = learning.write_texts(tmp_path / "more.jsonl", texts_of(topic_rows(300, 2, everything)))
    with pytest.raises(UserError, match=message):
        unmask.learn(file, text=text, words=word_flags(topics=words), out=tmp_path / "run")


def test_labels_of_the_check_file_need_words(tmp_path: Path) -> None:
    files = data_files(tmp_path)
    check = learning.write_csv(tmp_path / "check.csv", topic_rows(30, 1, ("sea", "sky", "land")))
    with pytest.raises(UserError, match="no words for the label 'land' of the check records"):
        unmask.learn(text=files["text"], words=word_flags(), check=check)


# -------------------------------------------------------------------------------------------------------------- data


def dry_run(*files: Path, **settings: Any) -> dict[str, Any]:
    return unmask.dry_run_learn(list(files), **settings)


def test_rows_without_labels_are_unlabeled_texts(tmp_path: Path) -> None:
    rows = topic_rows(60, 1)
    for row in rows[20:]:
        row["label"] = ""
    expected = dry_run(learning.write_csv(tmp_path / "a.csv", rows))
    assert expected["counts"] == {"labeled": 20, "unlabeled": 40}
    assert expected["notes"] == ["40 rows have no label and are used as unlabeled text"]
    with pytest.raises(UserError, match="no row has a label"):
        dry_run(learning.write_csv(tmp_path / "none.csv", [row | {"label": ""} for row in rows]))


@pytest.mark.parametrize("name", ["test", "check"])
def test_rows_without_labels_are_errors_in_other_files(name: str, tmp_path: Path) -> None:
    files = data_files(tmp_path)
    rows = [row | {"label": row["label"] if n else ""} for n, row in enumerate(topic_rows(10, 4))]
    other = {name: learning.write_csv(tmp_path / "other.csv", rows)}
    with pytest.raises(UserError, match=r"other.csv:2: no label"):
        dry_run(files["files"], text=files["text"], words=word_flags(), **other)


def test_nothing_is_trained_on_a_test_text(tmp_path: Path) -> None:
    files, test = data_files(tmp_path), topic_rows(60, 9)
    labeled = learning.write_csv(tmp_path / "a.csv", [*topic_rows(24, 1), *test[:3]])
    copies = [row["text"].replace(" ", "  ") + "\n" for row in test[:10]]  # blanks do not make another text
    more = texts_of(topic_rows(100, 2))
    text = learning.write_texts(tmp_path / "more.jsonl", [*more, *more[:5], *copies, *texts_of(topic_rows(24, 1))])
    expected = dry_run(labeled, text=text, test=files["test"])
    assert expected["counts"] == {"labeled": 24, "unlabeled": 100, "test": 60}
    assert expected["notes"] == [
        "3 labeled records also in the test file: left out",
        "39 unlabeled texts are repeated, or also labeled or test records: left out",
    ]


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("kind", ["several", "number", "pair", "tag"])
def test_other_targets_are_learned_without_self_training(kind: str, start: Path, tmp_path: Path) -> None:
    def convert(row: dict[str, Any]) -> dict[str, Any]:
        is_sea = row["label"] == "sea"
        changes = {
            "several": {"label": ["wet", "blue"] if is_sea else ["blue"]},
            "number": {"label": (4.5 if is_sea else 1.25) + random.Random(row["text"]).random()},
            "pair": {"pair": "seababa seabace", "label": "same" if is_sea else "other"},
            "tag": {},
        }
        return row | changes[kind]

    files: dict[str, Any] = {}
    for name, count, seed in (("files", 60, 1), ("test", 40, 9)):
        if kind == "tag":
            files[name] = tiny.tagged(tmp_path / f"{name}.jsonl", count)
        else:
            files[name] = learning.write_jsonl(
                tmp_path / f"{name}.jsonl", [convert(r) for r in topic_rows(count, seed)]
            )
    text = learning.write_texts(tmp_path / "more.jsonl", texts_of(topic_rows(50, 2)))
    run = unmask.learn(**files, text=text, init_from=start, out=tmp_path / "run")
    results = run.results()
    assert [row["split"] for row in results["steps"]] == ["test"] * len(results["steps"]) and results["steps"]
    assert "to_label" not in results
    again = unmask.evaluate(results["model"], files["test"])
    assert gap(again[results["metric"]], results["steps"][-1]["score"]) < 1e-6
    if kind != "tag":
        assert results["steps"][-1]["score"] > (0.3 if kind == "number" else 0.5)  # a rank correlation


@pytest.mark.usefixtures("fast")
def test_pairs_without_labels_do_not_stop_the_run(start: Path, tmp_path: Path) -> None:
    rows = [
        row | {"pair": "seababa", "label": "" if n % 3 == 0 else row["label"]}
        for n, row in enumerate(topic_rows(60, 1))
    ]
    run = unmask.learn(learning.write_csv(tmp_path / "a.csv", rows), init_from=start, out=tmp_path / "run")
    assert run.results()["counts"] == {"labeled": 40, "unlabeled": 20}


def test_words_for_another_target_are_refused(start: Path, tmp_path: Path) -> None:
    rows = [row | {"pair": "seababa"} for row in topic_rows(60, 1)]
    file = learning.write_csv(tmp_path / "a.csv", rows)
    text = learning.write_texts(tmp_path / "more.jsonl", texts_of(topic_rows(200, 2)))
    with pytest.raises(UserError, match="--words needs records with one text and one label"):
        unmask.learn(file, text=text, words=word_flags(), init_from=start, out=tmp_path / "run")


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("case", ["four labels", "one record of a label", "imbalanced", "Chinese"])
def test_labels_of_all_kinds(case: str, start: Path, tmp_path: Path) -> None:
    topics = ("sea", "sky", "land", "city") if case == "four labels" else TOPICS
    make: Any = chinese_rows if case == "Chinese" else lambda count, seed: topic_rows(count, seed, topics)
    labeled, unlabeled, test = make(48, 1), make(400, 2), make(100, 9)
    if case == "one record of a label":
        labeled.append({"text": " ".join(learning.words_of("word", 12)[::-1]), "label": "rare"})
    if case == "imbalanced":
        labeled, unlabeled, test = (topic_rows(n, s, TOPICS, (0.92, 0.08)) for n, s in ((150, 1), (400, 2), (300, 9)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        run = unmask.learn(
            learning.write_csv(tmp_path / "a.csv", labeled),
            text=learning.write_texts(tmp_path / "more.jsonl", texts_of(unlabeled)),
            test=learning.write_csv(tmp_path / "test.csv", test),
            init_from=start,
            out=tmp_path / "run",
        )
    results = run.results()
    assert results["metric"] == ("macro_f1" if case == "imbalanced" else "accuracy")
    assert step(run, "both together")["score"] > (0.45 if case == "imbalanced" else 0.7), results["steps"]
    assert step(run, "both together")["score"] >= step(run, "TF-IDF + logistic regression")["score"] - 0.05
    assert len(unmask.load(results["model"]).predict([test[0]["text"]])[0]["scores"]) == len(results["labels"])


@pytest.mark.usefixtures("fast")
def test_texts_without_words_are_refused(start: Path, tmp_path: Path) -> None:
    rows = [{"text": "? !" * (n % 5 + 1) if n % 2 else "! ?" * (n % 7 + 1), "label": str(n % 2)} for n in range(30)]
    file = learning.write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(UserError, match="no linear model can be trained"):
        unmask.learn(file, init_from=start, out=tmp_path / "run")


# ------------------------------------------------------------------------------------------------------ command line


def test_dry_run_lists_the_steps_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = data_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = cli(files["files"], "--text", files["text"], "--test", files["test"], "--minutes", "10", "--dry-run")
    assert result.exit_code == 0, result.output
    for text in ("pre-train on all text", "compute hidden states", "fine-tune and blend", "24", "200"):
        assert text in result.output, result.output
    assert sorted(tmp_path.rglob("*")) == before
    with_model = json.loads(
        cli(files["files"], "--from", learning.model_folder(tmp_path / "model"), "--dry-run", "--json").stdout
    )
    assert [row["step"] for row in with_model["steps"]] == ["fine-tune and blend"]


@pytest.mark.usefixtures("fast")
def test_json_output_is_the_results_only(start: Path, tmp_path: Path) -> None:
    files = data_files(tmp_path)
    result = cli(files["files"], "--text", files["text"], "--from", start, "--out", tmp_path / "run", "--json")
    shown = json.loads(result.stdout)
    assert shown.pop("report") == str(tmp_path / "run" / "report.html")
    assert shown == Run(tmp_path / "run").results()
    again = cli("--resume", tmp_path / "run", "--json")  # finished already
    assert json.loads(again.stdout)["steps"] == shown["steps"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.csv"], "missing.csv"),
        (["labeled.csv", "--text", "missing/"], "missing"),
        (["labeled.csv", "--from", "missing"], "missing"),
        (["labeled.csv", "--test", "missing.csv"], "missing.csv"),
        (["labeled.csv", "--test", "land.csv"], "does not occur in the training records"),
        ([], "no labels to learn from"),
        (["--text", "more.jsonl"], "no labels to learn from"),
        (["--words", "a: b", "--words", "c: d"], "--words needs unlabeled text"),
        (["labeled.csv", "--check", "test.csv"], "--check checks the words of --words"),
        (["more.jsonl"], "label"),
        (["one.csv"], "every record has the label 'sea'"),
        (["empty.csv"], "empty"),
        (["labeled.csv", "--minutes", "0"], "minutes"),
        (["labeled.csv", "--minutes", "many"], "minutes"),
        (["--resume", "run", "--text", "more.jsonl"], "--resume"),
        (["labeled.csv", "--resume", "run"], "--resume"),
        (["--resume", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_give_an_error_and_no_folder(
    arguments: list[str], message: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_files(tmp_path)
    learning.write_csv(tmp_path / "one.csv", [row | {"label": "sea"} for row in topic_rows(30, 1)])
    learning.write_csv(tmp_path / "land.csv", topic_rows(30, 1, ("sea", "sky", "land")))
    (tmp_path / "empty.csv").write_text("")
    monkeypatch.chdir(tmp_path)
    options = [] if "--resume" in arguments or "--from" in arguments else ["--from", str(start)]
    result = cli(*arguments, *options)
    assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").rglob("run.json"))


def test_existing_folder_is_kept(start: Path, tmp_path: Path) -> None:
    files = data_files(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    assert cli(files["files"], "--from", start, "--out", tmp_path / "run").exit_code == 2
    assert (tmp_path / "run" / "mine.txt").read_text() == "mine"


# ----------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("setting", ["train.lr=3", "train.epochs=77", "model.layers=9", "mlm.mask_rate=0.5"])
def test_settings_that_are_not_used_are_rejected(setting: str, tmp_path: Path) -> None:
    files = data_files(tmp_path)
    with pytest.raises(UserError, match=f"chooses {setting.partition('=')[0]} itself"):
        dry_run(files["files"], text=files["text"], overrides=[setting])


def test_settings_that_are_used_are_accepted(tmp_path: Path) -> None:
    files, settings = data_files(tmp_path), ["train.threads=1", "train.precision=fp32", "data.text_column=text"]
    assert dry_run(files["files"], text=files["text"], minutes=3, overrides=settings)["minutes"] == 3


@pytest.mark.usefixtures("fast")
def test_texts_to_label_have_the_columns_of_the_labeled_file(start: Path, tmp_path: Path) -> None:
    """The next command names these columns, and reads both files."""
    files = data_files(tmp_path)
    rows = [{"review": row["text"], "stars": row["label"]} for row in topic_rows(24, 1)]
    own = learning.write_csv(tmp_path / "own.csv", rows)
    run = unmask.learn(
        own, text=files["text"], columns={"text": "review", "label": "stars"}, init_from=start, out=tmp_path / "run"
    )
    labels = read_csv(run.path / "to_label.csv")
    assert list(labels[0]) == ["review", "stars", "suggested", "probability"]
    label, again = (shlex.split(line) for line in run.results()["commands"][:2])
    assert label[label.index("--text-column") + 1] == "review" and label[label.index("--label-column") + 1] == "stars"
    assert shlex.split(label[label.index("--then") + 1]) == again
    learning.write_csv(run.path / "to_label.csv", [row | {"stars": row["suggested"]} for row in labels])
    assert json.loads(cli(*again[2:], "--dry-run", "--json").stdout)["counts"] == {"labeled": 74, "unlabeled": 150}


def test_copies_are_listed_with_the_points_they_lose(start: Path, tmp_path: Path) -> None:
    files = data_files(tmp_path)
    result = cli(
        files["files"],
        "--text",
        files["text"],
        "--test",
        files["test"],
        "--from",
        start,
        "--copies",
        "--out",
        tmp_path / "run",
    )
    assert result.exit_code == 0, result.output
    model, static, int8 = Run(tmp_path / "run").results()["copies"]
    assert [row["name"] for row in (model, static, int8)] == ["model", "static", "int8"]
    test = topic_rows(60, 9)
    for row in (static, int8):
        predicted = [p["label"] for p in unmask.load(row["path"]).predict(texts_of(test))]
        accuracy = sum(a == each["label"] for a, each in zip(predicted, test)) / len(test)
        assert gap(accuracy, row["score"]) < 1e-9 and gap(row["loss"], model["score"] - accuracy) < 1e-9
    assert static["texts_per_second"] > model["texts_per_second"] and static["megabytes"] > 0
    assert "points lost" in (tmp_path / "run" / "report.html").read_text("utf-8")
