"""Files and words of `unmask learn`: roles, rows without a label, the order of the labels; the model of such a run."""

import random
from pathlib import Path

import pytest

import unmask
from unmask.errors import UserError
from unmask.runs.keywords import learn_recipe
from unmask.runs.learn_data import LearnData

PRAISE = ["fine", "warm", "funny", "great", "wonderful"]
BLAME = ["dull", "cold", "slow", "terrible", "awful"]
WORDS = ["positive: great wonderful", "negative: terrible awful"]  # not in sorted order


def rows(count: int, seed: int, without_label: int = -1) -> list[str]:
    rng = random.Random(seed)
    labels = ["negative" if n % 2 else "positive" for n in range(count)]
    adjectives = [rng.sample(BLAME if label == "negative" else PRAISE, 2) for label in labels]
    texts = [f"the film was {a} and {b} {rng.randrange(10**6)}." for a, b in adjectives]
    return [f"{text},{'' if n == without_label else label}" for n, (text, label) in enumerate(zip(texts, labels))]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join(["text,label", *lines]) + "\n", "utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "more.txt").write_text("".join(line.split(",")[0] + "\n" for line in rows(200, 3)), "utf-8")
    sets = {"few": rows(16, 0), "check": rows(16, 1), "test": rows(20, 2)}
    names = {name: write(tmp_path / f"{name}.csv", lines) for name, lines in sets.items()}
    return names | {"text": str(tmp_path / "more.txt")}


def test_words_are_checked_on_a_file_that_is_not_trained_on(files: dict[str, str]) -> None:
    data = LearnData.read(learn_recipe(None, files["text"], files["check"], words=WORDS, test=files["test"]))
    assert (len(data.labeled), len(data.check), len(data.test), len(data.texts)) == (0, 16, 20, 200)


def test_only_training_rows_may_have_no_label(files: dict[str, str], tmp_path: Path) -> None:
    gap = write(tmp_path / "gap.csv", rows(16, 5, without_label=4))
    data = LearnData.read(learn_recipe(gap, files["text"], None))
    assert (len(data.labeled), len(data.texts)) == (15, 201)
    with pytest.raises(UserError, match=r"gap.csv:6: no label"):
        LearnData.read(learn_recipe(files["few"], files["text"], None, test=gap))


def test_words_need_the_labels_of_the_files(files: dict[str, str]) -> None:
    with pytest.raises(UserError, match="--words has no words for the label 'negative' of the labeled records"):
        unmask.dry_run_learn(files["few"], text=files["text"], words=["pos: great", "neg: awful"])


def test_model_from_words(files: dict[str, str], tmp_path: Path) -> None:
    """The linear model predicts the same labels before and after it is blended, and the run folder opens as a model."""
    run = unmask.learn(
        text=files["text"], words=WORDS, test=files["test"], minutes=0.05, out=tmp_path / "run",
        overrides=["train.threads=1"],
    )  # fmt: skip
    steps = {step["name"]: step["score"] for step in run.results()["steps"]}
    components = unmask.train.run.Run(run.path / "finetune").results()["components"]
    (linear,) = [row["accuracy"] for row in components if row["baseline"] == "linear alone"]
    assert linear == steps["linear model with self-training"] > 0.8
    assert unmask.load(run.path).predict(["the film was great and warm"])[0]["label"] == "positive"


def test_other_tasks_leave_out_the_linear_model(tmp_path: Path) -> None:
    sentences = [f"Ann B-PER\nlives O\nin O\nRome B-LOC\n{n} O\n" for n in range(24)]
    (tmp_path / "train.conll").write_text("\n".join(sentences), "utf-8")
    run = unmask.learn(
        tmp_path / "train.conll", minutes=0.05, out=tmp_path / "run", overrides=["train.threads=1", "data.eval_fraction=0.1"]
    )  # fmt: skip
    assert [step["name"] for step in run.results()["steps"]] == ["fine-tuned model"]
