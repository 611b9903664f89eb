"""What a report shows of tags: figures per label, which tags are mistaken for which, sentences answered worst and right."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unmask.data.records import Record
from unmask.tasks import entities

if TYPE_CHECKING:
    from unmask.tasks.tag import Tag

WORST, BEST = 20, 10  # sentences
NOTHING = "–"


def details(task: "Tag", answers: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
    wanted = [task.truth(r, a["words"]) for a, r in zip(answers, records, strict=True)]
    found = [a["tags"] for a in answers]
    lines = []  # (number of mistakes, what is shown)
    for record, answer, tags in zip(records, answers, wanted):
        wrong, want, got = (_words if task.scheme == "none" else _entities)(record, answer, tags)
        line = {"at": record.get("at", ""), "text": record["text"], "want": want, "got": got, "score": answer["score"]}
        lines.append((wrong, line))
    bad = sorted((x for x in lines if x[0]), key=lambda x: (-x[0], -x[1]["score"]))
    if task.scheme == "none":
        sets = [[[(n, n, tag) for n, tag in enumerate(tags)] for tags in several] for several in (wanted, found)]
    else:
        sets = [[places(r["spans"]) for r in records], [places(a["entities"]) for a in answers]]
    matrix = entities.confusion(wanted, found)
    return {
        "per_label": entities.per_label(*sets),
        **({"confusion": matrix} if matrix else {}),
        "errors": [line for _, line in bad[:WORST]],
        "examples": [line for wrong, line in lines if not wrong and line["want"] != NOTHING][:BEST],
    }


def _words(record: Record, answer: dict[str, Any], tags: Sequence[str]) -> tuple[int, str, str]:
    """Mistakes, what was wanted and what was said, word by word: of the wrong words, else of all."""
    words = [record["text"][a:b] for a, b in answer["words"]]
    triples = list(zip(words, tags, answer["tags"]))
    wrong = [x for x in triples if x[1] != x[2]]
    want, got = (" ".join(f"{x[0]}/{x[n]}" for x in wrong or triples) for n in (1, 2))
    return len(wrong), want, got


def _entities(record: Record, answer: dict[str, Any], tags: Sequence[str]) -> tuple[int, str, str]:
    want, got = set(places(record["spans"])), set(places(answer["entities"]))
    return len(want ^ got), shown(record["text"], want), shown(record["text"], got)


def places(listed: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, str]]:
    return [(e["start"], e["end"], e["label"]) for e in listed]


def shown(text: str, found: Iterable[tuple[int, int, str]]) -> str:
    """
    >>> shown("in New York", {(3, 11, "loc")})
    'New York (loc)'
    """
    return "; ".join(f"{text[a:b]} ({label})" for a, b, label in sorted(found)) or NOTHING
