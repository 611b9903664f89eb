"""Questions over passages → records: SQuAD's nested json (1606.05250, 1806.03822), or a table with a question in each row.

| form | answers |
|---|---|
| SQuAD json | data → paragraphs → qas → answers [{text, answer_start}], is_impossible; plausible_answers are not read |
| `datasets` rows | answers {"text": […], "answer_start": […]}; empty lists = no answer |
| plain rows | answer (text) and start; an empty answer = no answer; without start, the place where the text stands |

A place is a character of the raw context. What does not fit is found with its line, and where it can be said, with what would.
"""

import ast
import bisect
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unmask.labels.records import Finding, Record, Source, parse_int, parse_text
from unmask.text.decode import decode, decompress, detect_encoding
from unmask.text.detect import HEAD_BYTES

KEYS = ("question", "id", "answers")  # of a question: where one of them stands is its place
_KEY = re.compile(rf'(?<!\\)"({"|".join(KEYS)})"\s*:')  # inside a JSON string, a quote has a backslash before it
COLUMNS = {
    "id": "id",
    "question": "question",
    "context": "context",
    "answers": "answers",
    "impossible": "is_impossible",
}
Raw = tuple[str, dict[str, Any]]  # place, {question, context, answers, …} as the file has them


def is_squad(value: Any) -> bool:
    """
    >>> is_squad({"data": [{"paragraphs": []}]}), is_squad({"data": [1]})
    (True, False)
    """
    data = value.get("data") if isinstance(value, dict) else None
    return isinstance(data, list) and any(isinstance(a, dict) and ("paragraphs" in a or "question" in a) for a in data)


def questions(source: Source, findings: list[Finding]) -> Iterator[Raw]:
    """Every question of a SQuAD file, with the context of its paragraph."""
    places = _places(source)

    def at(value: Any) -> str:
        return places.get(id(value), source.location(1))

    for n, article in enumerate(_list(source.value, "data", source.location(1), findings), 1):
        if "question" in article:
            yield at(article), article
            continue
        where, held = source.location(1), f"article {n}"
        if isinstance(article.get("title"), str):
            held += f" ({article['title']:.40})"
        for paragraph in _list(article, "paragraphs", where, findings, held):
            for qa in _list(paragraph, "qas", where, findings, held):
                yield at(qa), qa | {"context": paragraph.get("context")}


def _list(value: Any, key: str, at: str, findings: list[Finding], held: str = "the file") -> list[dict[str, Any]]:
    items = value.get(key)
    if not isinstance(items, list):
        findings.append(Finding(at, f"{held}: {key!r} is no list of objects", "as SQuAD has it", kind="structure"))
        return []
    for n, item in enumerate(items, 1):
        if not isinstance(item, dict):
            what = f"{held}: item {n} of {key!r} is {type(item).__name__}, no object: {item!r:.40}"
            findings.append(Finding(at, what, "as SQuAD has it", kind="structure"))
    return [item for item in items if isinstance(item, dict)]


def _places(source: Source) -> dict[int, str]:
    """id of each object of the value → "file:line" of its question; with the column too where several share the line."""
    with open(Path(source.path).expanduser(), "rb") as raw:
        data = decompress(raw).read()
    text = "".join(decode(io.BytesIO(data), detect_encoding(data[:HEAD_BYTES]), lambda *_: None))
    order, found = list(_owners(source.value)), [match.start() for match in _KEY.finditer(text)]
    if len(order) != len(found):  # a key twice in one object: only the last one is in the value
        return {}
    first: dict[int, int] = {}
    for owner, position in zip(order, found):
        first.setdefault(owner, position)
    breaks = [match.start() for match in re.finditer("\n", text)]
    lines = {owner: bisect.bisect_left(breaks, position) for owner, position in first.items()}
    shared = len(set(lines.values())) < len(lines)
    out = {}
    for owner, line in lines.items():
        column = first[owner] - (breaks[line - 1] if line else -1)
        out[owner] = f"{source.location(line + 1)}:{column}" if shared else source.location(line + 1)
    return out


def _owners(value: Any) -> Iterator[int]:
    """The objects that hold a key of KEYS, once for each, in the order of the file."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if key in KEYS:
                yield id(value)
            yield from _owners(inside)
    elif isinstance(value, list):
        for item in value:
            yield from _owners(item)


def record_of(
    raw: Mapping[str, Any], at: str, columns: Mapping[str, str], labelled: bool, findings: list[Finding]
) -> Record:
    """One question as a record, its answers checked against the context. `columns`: role → key."""

    def get(role: str) -> Any:
        return raw.get(columns[role]) if role in columns else None

    record: Record = {"location": at}
    if get("id") not in (None, ""):
        record["id"] = str(get("id"))
    record |= {role: parse_text(get(role), at, role, findings) for role in ("question", "context")}
    if not labelled:
        return record
    name = f" of {record['id']:.40}" if "id" in record else ""
    impossible = _flag(get("impossible"))
    there = "answers" in columns and columns["answers"] in raw
    given = list(_answers(get("answers"), get("start"), name, at, findings)) if there else []
    if not there and not impossible:
        findings.append(Finding(at, f"no answers{name}", "answers: [] and is_impossible: true if there are none"))
    elif impossible is False and not given:
        findings.append(Finding(at, f"is_impossible is false{name}, yet there is no answer", "give one, or true"))
    elif impossible and given:
        findings.append(
            Finding(at, f"is_impossible{name}, yet there is an answer: {given[0][0]!r:.40}", "remove one of the two")
        )
    column = "start" in columns or not isinstance(get("answers"), str)
    found = [place(text, start, record["context"], name, at, column, findings) for text, start in given]
    record["answers"] = [] if impossible else [answer for answer in found if answer]
    record["impossible"] = bool(impossible) or not given
    return record


def _flag(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(value.lower())
    return None if value is None else bool(value)


def _answers(value: Any, start: Any, name: str, at: str, findings: list[Finding]) -> Iterator[tuple[str, Any]]:
    """(text, start) of each answer, in any of the ways they are written."""
    if isinstance(value, str) and value[:1] in ("{", "["):  # a cell of a csv file, written by json or by str()
        value = _parsed(value)
    if isinstance(value, dict) and isinstance(value.get("text"), list | tuple):
        starts = value.get("answer_start", value.get("start"))
        starts = list(starts) if isinstance(starts, list | tuple) else [None] * len(value["text"])
        if len(starts) != len(value["text"]):
            what = f"{len(value['text'])} answers{name}, {len(starts)} starts"
            findings.append(Finding(at, what, "as many of both"))
        items = [{"text": t, "start": s} for t, s in zip(value["text"], starts)]
    elif isinstance(value, list | tuple):
        items = [a if isinstance(a, dict) else {"text": a, "start": start if len(value) == 1 else None} for a in value]
    elif isinstance(value, dict):
        items = [value]
    else:  # an empty cell means no answer
        items = [] if value is None or value != value or value == "" else [{"text": value, "start": start}]
    for item in items:
        text = parse_text(item.get("text", item.get("answer")), at, f"answer{name}", findings)
        if text:
            yield text, item.get("answer_start", item.get("start"))


def _parsed(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def place(
    text: str, start: Any, context: str, name: str, at: str, column: bool, findings: list[Finding]
) -> dict[str, Any] | None:
    """An answer as it stands in the context; None when it is not where it is said to be. `column`: whether starts are given."""
    if not context:
        return None
    number = parse_int(start)
    shown = f"the answer {text!r:.60}{name}"
    exactly = [m.start() for m in re.finditer(f"(?={re.escape(text)})", context)]
    if start is None or start == "" or start != start:
        if len(exactly) == 1 or (exactly and not column):
            if len(exactly) > 1 or column:
                more = f", the first of {len(exactly)} places" if len(exactly) > 1 else ""
                what = f"no answer_start{name}: taken as {exactly[0]}{more}, where {text!r:.60} stands"
                findings.append(Finding(at, what, f"answer_start: {exactly[0]}", error=False, kind="answer start"))
            return {"text": text, "start": exactly[0]}
        what = f"no answer_start, and {shown} stands at {_some(exactly)}"
        findings.append(Finding(at, what, "say where it begins", kind="answer start"))
        return None
    if number is None:
        findings.append(Finding(at, f"answer_start{name} is no number: {start!r:.40}", "count characters from 0"))
        return None
    if 0 <= number < len(context):
        if context.startswith(text, number):
            return {"text": text, "start": number}
        loose = re.compile(r"\s*(" + r"\s+".join(map(re.escape, text.split())) + ")")
        match = loose.match(context, number)
        if match:  # blanks alone differ: of what stands there, or before it
            what = (
                f"{shown} differs from the context at {number} by blanks: taken as {match[1]!r:.60} at {match.start(1)}"
            )
            findings.append(Finding(at, what, error=False, kind="answer blanks"))
            return {"text": match[1], "start": match.start(1)}
        what = f"{shown} is not at {number}, where the context has {context[number : number + len(text)]!r:.60}"
    else:
        what = f"answer_start {number} of {shown} is outside of the context, which has {len(context)} characters"
    nearest = min(exactly, key=lambda start: abs(start - number), default=None)
    here = f"; it is at {_some(exactly, nearest)}"
    hint = "copy the answer from the context" if nearest is None else f"answer_start: {nearest}"
    findings.append(Finding(at, what + here, hint, kind="answer place"))
    return None


def _some(places: list[int], nearest: int | None = None) -> str:
    """
    >>> _some([]), _some([1, 5, 7, 9]), _some([1, 5, 7, 9], 7), _some([4], 4)
    ('no place of the context', '4 places: 1, 5, 7 …', '4 places, the nearest is 7', '4')
    """
    if not places:
        return "no place of the context"
    if nearest is not None:
        return str(nearest) if len(places) == 1 else f"{len(places)} places, the nearest is {nearest}"
    return f"{len(places)} places: {', '.join(map(str, places[:3]))}{' …' if len(places) > 3 else ''}"


def records(rows: Iterable[Raw], columns: Mapping[str, str], labelled: bool, findings: list[Finding]) -> list[Record]:
    """Every question as a record. Ids that two of them share are found: predictions by id could not be told apart."""
    out, seen = [], dict[str, str]()
    for at, row in rows:
        record = record_of(row, at, columns, labelled, findings)
        if record.get("id") in seen:
            what = f"the id {record['id']!r:.40} is that of {seen[record['id']]} too"
            findings.append(Finding(at, what, "give each question its own id", kind="id"))
        elif "id" in record:
            seen[record["id"]] = at
        out.append(record)
    return out
