"""Details of a tagging report: metrics per label, a confusion matrix, the worst sentences and some correct ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unmask.labels.formats.schemes import NO_ENTITIES, format_spans, span_tuples
from unmask.labels.records import Record
from unmask.tasks import metrics
from unmask.tasks.details import MAX_CONFUSION_LABELS
from unmask.tasks.tag import entities

if TYPE_CHECKING:
    from unmask.tasks.tag.task import Tag

MAX_ERRORS_SHOWN, MAX_EXAMPLES_SHOWN = 20, 10  # sentences


def details(task: "Tag", predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
    y_true = [task.true_tags(r, p["words"]) for p, r in zip(predictions, records, strict=True)]
    y_pred = [p["tags"] for p in predictions]
    compare = _compare_words if task.scheme == "none" else _compare_entities
    rows = []  # (number of errors, row of the report)
    for record, prediction, tags in zip(records, predictions, y_true):
        num_errors, expected, predicted = compare(record, prediction, tags)
        text = record["text"]
        if "predicate" in record:
            text += f"  [{text[slice(*record['predicate'])]}]"
        row = {
            "location": record.get("location", ""),
            "text": text,
            "expected": expected,
            "predicted": predicted,
            "score": prediction["score"],
        }
        rows.append((num_errors, row))
    worst = sorted((x for x in rows if x[0]), key=lambda x: (-x[0], -x[1]["score"]))[:MAX_ERRORS_SHOWN]
    correct = [row for num_errors, row in rows if not num_errors and row["expected"] != NO_ENTITIES]
    return {
        "per_label": entities.per_label(task.expected_spans(records), [task.predicted_spans(p) for p in predictions]),
        **confusion_details(y_true, y_pred),
        "errors": [row for _, row in worst],
        "examples": correct[:MAX_EXAMPLES_SHOWN],
    }


def confusion_details(
    y_true: Sequence[Sequence[str]], y_pred: Sequence[Sequence[str]], max_tags: int = MAX_CONFUSION_LABELS
) -> dict[str, Any]:
    """Return the confusion matrix of the words' tags, or {} if there are more than `max_tags` tags.

    >>> confusion_details([["O", "B-a", "B-a"]], [["O", "O", "B-a"]])
    {'confusion': {'labels': ['B-a', 'O'], 'matrix': [[1, 1], [0, 1]]}}
    """
    expected, predicted = ([tag for tags in sentences for tag in tags] for sentences in (y_true, y_pred))
    names = sorted({*expected, *predicted})
    if not 0 < len(names) <= max_tags:
        return {}
    tag2id = {name: n for n, name in enumerate(names)}
    matrix = metrics.confusion([tag2id[tag] for tag in expected], [tag2id[tag] for tag in predicted], len(names))
    return {"confusion": {"labels": names, "matrix": matrix.tolist()}}


def _compare_words(record: Record, prediction: dict[str, Any], tags: Sequence[str]) -> tuple[int, str, str]:
    """Return the number of errors, and the expected and predicted tags of the wrong words (of all words if none is wrong)."""
    words = [record["text"][a:b] for a, b in prediction["words"]]
    triples = list(zip(words, tags, prediction["tags"]))
    wrong = [x for x in triples if x[1] != x[2]]
    expected, predicted = (" ".join(f"{x[0]}/{x[n]}" for x in wrong or triples) for n in (1, 2))
    return len(wrong), expected, predicted


def _compare_entities(record: Record, prediction: dict[str, Any], tags: Sequence[str]) -> tuple[int, str, str]:
    expected, predicted = set(span_tuples(record["spans"])), set(span_tuples(prediction["entities"]))
    return len(expected ^ predicted), format_spans(record["text"], expected), format_spans(record["text"], predicted)
