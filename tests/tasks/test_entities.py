"""Entity scores equal seqeval's, in its default and in its strict mode."""

import random
import warnings
from typing import Any

import pytest
from seqeval.metrics import accuracy_score, classification_report, f1_score, precision_score, recall_score
from seqeval.scheme import IOB2, IOBES, Entities

from unmask.labels.formats import schemes
from unmask.tasks.tag import entities
from unmask.tasks.tag.details import confusion_details

warnings.filterwarnings("ignore", module="seqeval")
NAMES = {"BIO": ("BI", IOB2), "BIOES": ("BIES", IOBES)}


def random_tags(rng: random.Random, letters: str, lengths: list[int], outside: float) -> list[list[str]]:
    tags = [f"{letter}-{label}" for letter in letters for label in ("per", "loc")]
    return [["O" if rng.random() < outside else rng.choice(tags) for _ in range(n)] for n in lengths]


def keep_valid(tags: list[str], scheme: Any) -> list[tuple[int, int, str]]:
    """Keep only tags that are valid in the scheme, so that only the scoring is compared."""
    return [(e.start, e.end, e.tag) for e in Entities([tags], scheme).entities[0]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
@pytest.mark.parametrize("strict", [False, True])
def test_scores_match_seqeval(scheme: str, strict: bool) -> None:
    letters, theirs = NAMES[scheme]
    rng = random.Random(5)
    settings = {"mode": "strict", "scheme": theirs} if strict else {}
    for case in range(220):
        lengths = [rng.randrange(1, 8) for _ in range(rng.randrange(1, 6))]
        outside = {0: 1.0, 1: 0.0}.get(case % 11, 0.5)  # no entity at all; nothing but entities
        truth = random_tags(rng, letters, lengths, outside)
        predicted = random_tags(rng, letters, lengths, 1.0 if case % 7 == 0 else 0.5)  # an empty prediction
        if case % 3 == 0:
            predicted = [[a if rng.random() < 0.7 else b for a, b in zip(x, y)] for x, y in zip(truth, predicted)]
        expected, scores = (
            [keep_valid(t, theirs) if strict else schemes.tags_to_entities(t) for t in tags]
            for tags in (truth, predicted)
        )
        ours = entities.scores(expected, scores)
        if not any(expected) and not any(scores):
            assert set(ours.values()) == {0.0}  # seqeval's strict mode fails on it
            continue
        for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
            assert ours[name] == pytest.approx(function(truth, predicted, **settings), abs=1e-12), (truth, predicted)
        assert ours["macro_f1"] == pytest.approx(f1_score(truth, predicted, average="macro", **settings), abs=1e-12)
        report = classification_report(truth, predicted, output_dict=True, **settings)
        for line in entities.per_label(expected, scores):
            for name in ("precision", "recall", "support"):
                assert line[name] == pytest.approx(report[line["label"]][name])
        assert entities.accuracy(truth, predicted) == pytest.approx(accuracy_score(truth, predicted))


def test_empty_input_has_zero_scores() -> None:
    assert entities.scores([], []) == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "macro_f1": 0.0}
    assert entities.accuracy([], []) == 0.0
    assert confusion_details([], []) == {}


def test_confusion_matrix_rows_are_true_labels() -> None:
    details = confusion_details([["O", "B-a"], ["B-a"]], [["O", "O"], ["B-a"]])
    assert details == {"confusion": {"labels": ["B-a", "O"], "matrix": [[1, 1], [0, 1]]}}
    assert confusion_details([["a", "b", "c"]], [["a", "b", "c"]], max_tags=2) == {}
