"""`--blend linear`: an encoder and a linear model on n-grams predict as one model, everywhere; `--unlabeled` trains the linear one."""

import json
import random
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from near import gap
from runs import tiny
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import unmask
from unmask.console import Console
from unmask.errors import UserError
from unmask.runs.part import dev_subset, make_recipe, prepare
from unmask.tasks.blend import COMPONENTS, FILE, UntrainableError
from unmask.tasks.classify.blend import SOFT_LABELS, _share_by_agreement
from unmask.tasks.classify.linear import LinearModel, ngram_spans
from unmask.tasks.classify.self_training import self_train
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")
TEXTS = ["anna saw a lovely film", "bob saw a dull and poor film", "a film"]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        words = tiny.GOOD if n % 2 else tiny.BAD
        text = f"{rng.choice(tiny.NAMES)} saw a {rng.choice(words)} film number {n + 1000 * seed}"
        rows.append({"text": text, "label": "pos" if n % 2 else "neg"})
    return rows


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.model_folder(tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def run(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("blend")
    files: dict[str, Any] = {
        name: write_jsonl(folder / f"{name}.jsonl", make_rows(count, seed))
        for seed, (name, count) in enumerate({"train": 40, "dev": 120, "test": 60}.items())
    }
    return unmask.finetune(start, **files, blend="linear", steps=4, out=folder / "run", overrides=["task.patience=0"])


def test_results_contain_each_part_alone_and_both_together(run: Run) -> None:
    results = run.results()
    assert [(row["baseline"], row["split"]) for row in results["components"]] == [
        (f"{name} alone", split) for split in ("dev", "test") for name in COMPONENTS
    ]
    linear = next(r for r in results["components"] if r["baseline"] == "linear alone" and r["split"] == "test")
    assert linear["accuracy"] > 0.95 and results["test"]["accuracy"] > 0.95  # the encoder is hardly trained


def test_prediction_is_the_weighted_sum_of_both_logits(run: Run) -> None:
    predictor = unmask.load(run.model)
    blend = predictor.require_task().blend
    assert blend is not None
    theirs = AutoModelForSequenceClassification.from_pretrained(run.model).eval()  # the encoder alone
    tokenizer, linear = AutoTokenizer.from_pretrained(run.model), LinearModel.load(run.model, 2)
    temperature = predictor.require_task().task_state["temperature"]
    for text, prediction in zip(TEXTS, predictor.predict(TEXTS)):
        with torch.no_grad():
            encoder = theirs(**tokenizer(text, return_tensors="pt")).logits[0].numpy()
        logits = blend.weights["encoder"] * encoder + blend.weights["linear"] * linear.logits([{"text": text}])[0]
        expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
        assert gap(list(prediction["scores"].values()), expected) < 1e-4


def test_exported_model_predicts_the_same(run: Run, tmp_path: Path) -> None:
    unmask.export(run.model, out=tmp_path / "onnx")
    assert (tmp_path / "onnx" / FILE).is_file()
    expected = [p["probability"] for p in unmask.load(run.model).predict(TEXTS)]
    assert gap([p["probability"] for p in unmask.load(tmp_path / "onnx").predict(TEXTS)], expected) < 1e-4


def test_explanation_adds_up_to_the_blended_logit(run: Run) -> None:
    predictor = unmask.load(run.model)
    text = "anna saw a lovely film"
    explanation = predictor.explain(text, target="pos", steps=30)
    task = predictor.require_task()
    assert gap(explanation.value, task.compute_outputs(predictor.engine, [{"text": text}]).values[0][1]) < 1e-4
    assert abs(explanation.delta) < 0.05 * abs(explanation.value - explanation.baseline)
    best = max(explanation.tokens, key=lambda token: token.score)
    assert text[best.start : best.end] == "lovely", explanation.tokens


def test_damaged_file_is_reported(run: Run, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run.model, tmp_path / "model")
    (tmp_path / "model" / FILE).write_bytes(b"nothing")
    with pytest.raises(UserError, match=f"cannot read .*{FILE}"):
        unmask.load(tmp_path / "model")
    with pytest.raises(UserError, match="do not fit"):
        LinearModel.load(run.model, 3)


@pytest.mark.parametrize("target", ["several", "number", "pair"])
def test_other_problem_types_blend_too(target: str, start: Path, tmp_path: Path) -> None:
    rows = make_rows(120)
    random.Random(3).shuffle(rows)
    for row in rows:
        is_good = row["label"] == "pos"
        if target == "several":
            row["label"] = ["film", "good"] if is_good else ["film"]
        elif target == "number":
            row["label"] = 4.5 if is_good else 1.5
        else:
            row["pair"] = "a good film"
    train, test = (write_jsonl(tmp_path / f"{n}.jsonl", rows[n::2]) for n in range(2))
    settings = ["task.classify.problem_type=regression"] if target == "number" else []
    trained = unmask.finetune(
        start, train=train, test=test, blend="linear", steps=2, overrides=settings, out=tmp_path / "run"
    )
    metric = {"several": "micro_f1", "number": "r2", "pair": "accuracy"}[target]
    linear = next(
        r for r in trained.results()["components"] if r["baseline"] == "linear alone" and r["split"] == "test"
    )
    assert linear[metric] > 0.9, linear
    again = unmask.evaluate(trained.model, test)
    assert gap(again[metric], trained.results()["test"][metric]) < 1e-6


def test_unsupported_combinations_are_rejected(start: Path, tmp_path: Path) -> None:
    conll = tmp_path / "a.conll"
    conll.write_text("anna B-PER\nsaw O\n\n" * 30)
    for settings in ({"blend": "linear"}, {"unlabeled": conll}):
        with pytest.raises(UserError, match="the task tag does not support it"):
            unmask.finetune(start, task="tag", train=conll, **settings)
    train = write_jsonl(tmp_path / "train.jsonl", make_rows(40))
    text = tmp_path / "text.txt"
    text.write_text("anna saw a film\n")
    with pytest.raises(UserError, match="--blend linear"):
        unmask.finetune(start, train=train, unlabeled=text)
    pairs = write_jsonl(tmp_path / "pairs.jsonl", [row | {"pair": "a film"} for row in make_rows(40)])
    with pytest.raises(UserError, match="records with one text and one label"):
        unmask.finetune(start, train=pairs, unlabeled=text, blend="linear")


def test_texts_without_words_leave_the_encoder_alone(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": "? !" if n % 2 else "! ?", "label": str(n % 2)} for n in range(12)]
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    console = Console()
    trained = unmask.finetune(start, train=train, blend="linear", steps=1, out=tmp_path / "run", console=console)
    assert "the encoder is used alone" in " ".join(capsys.readouterr().err.split())
    assert not (trained.model / FILE).exists()


# ------------------------------------------------------------------------------------------------ self-training


def synonym_texts(count: int, seed: int) -> list[dict[str, Any]]:
    """Texts of two topics with 40 words each; a few labeled texts contain only some of the words."""
    rng = random.Random(seed)
    topics = {"sea": [f"sea{n}x" for n in range(40)], "sky": [f"sky{n}x" for n in range(40)]}
    filler = [f"word{n}x" for n in range(30)]
    labels = [rng.choice(list(topics)) for _ in range(count)]
    return [
        {"text": " ".join(rng.sample(topics[label], 4) + rng.sample(filler, 6)), "label": label} for label in labels
    ]


def accuracy(model: LinearModel, rows: list[dict[str, Any]]) -> float:
    return float(np.mean([["sea", "sky"][k] == r["label"] for k, r in zip(model.logits(rows).argmax(-1), rows)]))


def test_unlabeled_texts_help_when_labels_are_few() -> None:
    state, test = {"labels": ["sea", "sky"]}, synonym_texts(400, 9)
    train, unlabeled = synonym_texts(16, 1), [row["text"] for row in synonym_texts(1500, 2)]
    trained = self_train(state, train, unlabeled)
    assert trained.model is not None
    alone, together = accuracy(LinearModel.fit(state, train), test), accuracy(trained.model, test)
    assert together > 0.85 and together > alone + 0.1, (alone, together)


def test_texts_of_another_domain_are_left_out() -> None:
    state, train = {"labels": ["sea", "sky"]}, synonym_texts(40, 1)
    foreign = [" ".join(random.Random(n).sample([f"other{k}x" for k in range(50)], 10)) for n in range(500)]
    assert self_train(state, train, foreign).model is None
    mixed = [*foreign, *(row["text"] for row in synonym_texts(500, 2))]
    trained = self_train(state, train, mixed)
    assert trained.model is not None and int(re.search(r"(\d+) are unlike", trained.note)[1]) in range(500, 550)
    assert accuracy(trained.model, synonym_texts(200, 9)) > 0.9


def test_cross_validation_rejects_self_training_that_hurts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The labels depend on one word, which two dimensions cannot represent, so the teacher predicts at random."""
    monkeypatch.setattr("unmask.tasks.classify.views.DIMENSIONS", 2)
    rng = random.Random(0)
    rows = [row | {"label": rng.choice(["sea", "sky"])} for row in synonym_texts(1200, 1)]
    for row in rows:
        row["text"] += f" {row['label']}mark"
    trained = self_train({"labels": ["sea", "sky"]}, rows[:200], [row["text"] for row in rows[200:]])
    assert trained.model is None and "in cross-validation" in trained.note, trained.note


def test_unlabeled_file_reaches_the_model(start: Path, tmp_path: Path) -> None:
    train = write_jsonl(tmp_path / "train.jsonl", make_rows(40))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{row['text']} lately\n" for row in make_rows(300, 5)))
    settings: dict[str, Any] = {"train": train, "blend": "linear", "steps": 2}
    trained = unmask.finetune(
        start, **settings, unlabeled=text, out=tmp_path / "run", overrides=["data.document_boundary=line"]
    )
    linear = LinearModel.load(trained.model, 2)
    assert "lately" in linear.features.vectorizer_.vocabulary_  # occurs only in the unlabeled text


def test_rare_label_and_tiny_corpus_still_train() -> None:
    state = {"labels": ["sea", "sky"]}
    rows = synonym_texts(400, 1)
    lopsided = [r for r in rows if r["label"] == "sea"][:119] + [r for r in rows if r["label"] == "sky"][:1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert self_train(state, lopsided, [row["text"] for row in synonym_texts(300, 2)]).note
        assert LinearModel.fit(state, lopsided).regularization is None
    few = [{"text": "a blue sea", "label": "sea"}, {"text": "a wide sky", "label": "sky"}]
    assert self_train(state, few, ["the sea", "the sky"]).note
    assert "fewer unlabeled texts" in self_train(state, few, ["the sea"]).note
    with pytest.raises(UntrainableError, match="same label"):
        LinearModel.fit(state, few[:1])


def test_both_labels_have_attributions(run: Run) -> None:
    linear = LinearModel.load(run.model, 2)
    positive, negative = (linear.attributions(["a lovely film"], label) for label in (1, 0))
    assert any(value for *_, value in negative)
    for record_label, spans in ((1, positive), (0, negative)):
        logit = linear.logits([{"text": "a lovely film"}])[0][record_label] - linear.bias[record_label]
        assert gap(sum(value for *_, value in spans), logit) < 1e-5


def test_resume_with_changed_unlabeled_text_raises(start: Path, tmp_path: Path) -> None:
    train, text = write_jsonl(tmp_path / "train.jsonl", make_rows(40)), tmp_path / "text.txt"
    text.write_text("".join(f"{row['text']}\n" for row in make_rows(60, 5)))
    settings: dict[str, Any] = {"train": train, "unlabeled": text, "blend": "linear", "steps": 4}
    trained = unmask.finetune(start, **settings, out=tmp_path / "run", overrides=["train.save_steps=2"])
    (trained.path / "results.json").unlink()
    text.write_text("".join(f"{row['text']}\n" for row in make_rows(60, 6)))
    with pytest.raises(UserError, match="have changed since the run started"):
        unmask.resume(trained.path)


def test_dev_records_during_training_are_spread_over_the_file(start: Path, tmp_path: Path) -> None:
    rows = sorted(make_rows(60), key=lambda row: str(row["label"]))
    files = {
        "train": [str(write_jsonl(tmp_path / "train.jsonl", make_rows(40, 1)))],
        "dev": [str(write_jsonl(tmp_path / "dev.jsonl", rows))],
    }
    recipe = make_recipe(
        {"init_from": str(start), "task": {"name": "classify", **files}, "train": {"max_eval_examples": 20}}
    )
    subset = dev_subset(prepare(recipe))
    assert len(subset) == 20 and Counter(row["label"] for row in subset) == {"neg": 10, "pos": 10}


@pytest.mark.parametrize("unit", ["word", "char"])
def test_ngram_spans_are_those_of_the_vectorizer(unit: str) -> None:
    text = "Good films,  and don't\nbad  films 这家 餐厅" if unit == "word" else "这家 餐厅  很好吃\n\nOK"
    model = LinearModel.fit({"labels": ["a", "b"]}, [{"text": text, "label": "a"}, {"text": f"{text} z", "label": "b"}])
    model.features.unit_ = unit
    from sklearn.feature_extraction.text import TfidfVectorizer

    from unmask.tasks.classify.linear import NGRAMS

    expected = TfidfVectorizer(**NGRAMS[unit]).build_analyzer()(text)
    assert sorted(ngram for ngram, *_ in ngram_spans(text, unit)) == sorted(expected)


# -------------------------------------------------------------------------------- --blend FOLDER, as `unmask learn` uses it


def linear_folder(folder: Path, soft_labels: list[dict[str, Any]] | None = None) -> Path:
    folder.mkdir()
    LinearModel.fit({"labels": ["neg", "pos"]}, make_rows(40, 1)).save(folder)
    if soft_labels is not None:
        write_jsonl(folder / SOFT_LABELS, soft_labels)
    return folder


def soft(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        row | {"scores": {label: 0.9 if label == row["label"] else 0.1 for label in ("neg", "pos")}} for row in rows
    ]


def test_blend_with_a_folder_uses_its_linear_model(start: Path, tmp_path: Path) -> None:
    folder = linear_folder(tmp_path / "linear")
    train, test = (write_jsonl(tmp_path / f"{n}.jsonl", make_rows(30, n)) for n in (2, 3))
    trained = unmask.finetune(
        start,
        train=train,
        test=test,
        blend=str(folder),
        steps=2,
        out=tmp_path / "run",
        overrides=["task.dev_fraction=0"],
    )
    ours, given = LinearModel.load(trained.model, 2), LinearModel.load(folder, 2)
    assert np.array_equal(ours.weights, given.weights) and np.array_equal(ours.bias, given.bias)
    assert ours.features.vectorizer_.vocabulary_ == given.features.vectorizer_.vocabulary_
    assert unmask.evaluate(trained.model, test)["accuracy"] == trained.results()["test"]["accuracy"] > 0.7


def test_blend_with_a_wrong_folder_is_refused(start: Path, tmp_path: Path) -> None:
    train = write_jsonl(tmp_path / "train.jsonl", make_rows(40))
    with pytest.raises(UserError, match=r"no such folder with a linear\.safetensors"):
        unmask.finetune(start, train=train, blend=str(tmp_path / "missing"))
    three = write_jsonl(tmp_path / "three.jsonl", [row | {"label": str(n % 3)} for n, row in enumerate(make_rows(40))])
    folder = linear_folder(tmp_path / "linear")
    with pytest.raises(UserError, match="do not fit"):
        unmask.finetune(start, train=three, blend=str(folder), steps=1, out=tmp_path / "run")


class Fixed:
    """A task with given logits of the encoder."""

    labels = ("neg", "pos")

    def __init__(self, right: float):
        self.right = right  # share of the records that the encoder predicts as the soft labels do

    def compute_outputs(self, model: Any, records: list[dict[str, Any]]) -> "Fixed":
        number = round(self.right * len(records))
        y = [
            ["neg", "pos"].index(r["label"]) if n < number else 1 - ["neg", "pos"].index(r["label"])
            for n, r in enumerate(records)
        ]
        self.logits = np.eye(2)[y]
        return self

    def record_means(self) -> np.ndarray:
        return self.logits


def test_share_of_the_encoder_follows_its_agreement_with_the_soft_labels(tmp_path: Path) -> None:
    folder = linear_folder(tmp_path / "linear", soft(make_rows(100, 5)))
    linear = LinearModel.load(folder, 2)  # agrees with all of them
    shares = [
        _share_by_agreement(Fixed(right), None, linear, folder / SOFT_LABELS)  # type: ignore[arg-type]
        for right in (0.3, 0.5, 0.7, 0.9, 1.0)
    ]
    assert shares[0] == shares[1] == 0  # chance
    assert shares == sorted(shares) and shares[2] < 0.25 and gap(shares[4], 0.5) < 1e-9
    assert _share_by_agreement(Fixed(1.0), None, linear, tmp_path / "missing") == 0.5  # type: ignore[arg-type]


def test_encoder_that_learned_nothing_gets_no_share(start: Path, tmp_path: Path) -> None:
    folder = linear_folder(tmp_path / "linear", soft(make_rows(100, 5)))
    train = write_jsonl(tmp_path / "train.jsonl", make_rows(30, 2))
    trained = unmask.finetune(
        start, train=train, blend=str(folder), out=tmp_path / "run", steps=1, lr=1e-9, overrides=["task.dev_fraction=0"]
    )
    encoder, linear = LinearModel.load(trained.model, 2).blend_weights
    assert encoder < 0.1 * linear
