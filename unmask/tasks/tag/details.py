"""What a report shows of tags: figures per label, which tags are mistaken for which, sentences answered worst and right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unmask.labels.formats.schemes import NO_ENTITIES, format_spans, span_tuples
from unmask.labels.records import Record
from unmask.tasks import metrics
from unmask.tasks.details import TABLE
from unmask.tasks.tag import entities

if TYPE_CHECKING:
    from unmask.tasks.tag.task import Tag

WORST, BEST = 20, 10  # sentences


def details(task: "Tag", predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
    wanted = [task.true_tags(r, a["words"]) for a, r in zip(predictions, records, strict=True)]
    found = [a["tags"] for a in predictions]
    lines = []  # (number of mistakes, what is shown)
    for record, prediction, tags in zip(records, predictions, wanted):
        wrong, expected, predicted = (_words if task.scheme == "none" else _entities)(record, prediction, tags)
        text = record["text"]
        if "predicate" in record:
            text += f"  [{text[slice(*record['predicate'])]}]"
        line = {
            "location": record.get("location", ""),
            "text": text,
            "expected": expected,
            "predicted": predicted,
            "score": prediction["score"],
        }
        lines.append((wrong, line))
    bad = sorted((x for x in lines if x[0]), key=lambda x: (-x[0], -x[1]["score"]))
    return {
        "per_label": entities.per_label(task.expected_spans(records), [task.predicted_spans(a) for a in predictions]),
        **mistaken(wanted, found),
        "errors": [line for _, line in bad[:WORST]],
        "examples": [line for wrong, line in lines if not wrong and line["expected"] != NO_ENTITIES][:BEST],
    }


def mistaken(wanted: Sequence[Sequence[str]], found: Sequence[Sequence[str]], most: int = TABLE) -> dict[str, Any]:
    """The table of the words' tags and what was said of them; none with more than `most` tags.

    >>> mistaken([["O", "B-a", "B-a"]], [["O", "O", "B-a"]])
    {'confusion': {'labels': ['B-a', 'O'], 'matrix': [[1, 1], [0, 1]]}}
    """
    truth, given = ([tag for tags in several for tag in tags] for several in (wanted, found))
    names = sorted({*truth, *given})
    if not 0 < len(names) <= most:
        return {}
    place = {name: n for n, name in enumerate(names)}
    table = metrics.confusion([place[tag] for tag in truth], [place[tag] for tag in given], len(names))
    return {"confusion": {"labels": names, "matrix": table.tolist()}}


def _words(record: Record, prediction: dict[str, Any], tags: Sequence[str]) -> tuple[int, str, str]:
    """Mistakes, what was wanted and what was said, word by word: of the wrong words, else of all."""
    words = [record["text"][a:b] for a, b in prediction["words"]]
    triples = list(zip(words, tags, prediction["tags"]))
    wrong = [x for x in triples if x[1] != x[2]]
    expected, predicted = (" ".join(f"{x[0]}/{x[n]}" for x in wrong or triples) for n in (1, 2))
    return len(wrong), expected, predicted


def _entities(record: Record, prediction: dict[str, Any], tags: Sequence[str]) -> tuple[int, str, str]:
    expected, predicted = set(span_tuples(record["spans"])), set(span_tuples(prediction["entities"]))
    return len(expected ^ predicted), format_spans(record["text"], expected), format_spans(record["text"], predicted)
