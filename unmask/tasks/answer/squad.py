"""Build records of questions over passages, from SQuAD's nested JSON (1606.05250, 1806.03822) or from a table.

| format | answers |
|---|---|
| SQuAD json | data → paragraphs → qas → answers [{text, answer_start}], is_impossible; plausible_answers are ignored |
| `datasets` rows | answers {"text": […], "answer_start": […]}; empty lists mean no answer |
| plain rows | answer (text) and start; an empty answer means no answer; without start, the text is searched in the context |

A start is a character offset in the raw context. Answers that do not match the context are findings with a location and, if
possible, the correct offset.
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

KEYS = ("question", "id", "answers")  # keys of a question; the first one in the file is the question's location
_KEY = re.compile(rf'(?<!\\)"({"|".join(KEYS)})"\s*:')  # inside a JSON string, a quote is escaped with a backslash
COLUMNS = {name: name for name in ("id", "question", "context", "answers")} | {"impossible": "is_impossible"}
RawQuestion = tuple[str, dict[str, Any]]  # location, and {question, context, answers, …} as written in the file


def is_squad(value: Any) -> bool:
    """
    >>> is_squad({"data": [{"paragraphs": []}]}), is_squad({"data": [1]})
    (True, False)
    """
    data = value.get("data") if isinstance(value, dict) else None
    return isinstance(data, list) and any(isinstance(a, dict) and ("paragraphs" in a or "question" in a) for a in data)


def iter_questions(source: Source, findings: list[Finding]) -> Iterator[RawQuestion]:
    """Yield every question of a SQuAD file, with the context of its paragraph."""
    locations, file_location = _question_locations(source), source.location(1)
    for n, article in enumerate(_list_of_objects(source.value, "data", "the file", file_location, findings), 1):
        if "question" in article:
            yield locations.get(id(article), file_location), article
            continue
        name = f"article {n}"
        if isinstance(article.get("title"), str):
            name += f" ({article['title']:.40})"
        for paragraph in _list_of_objects(article, "paragraphs", name, file_location, findings):
            for qa in _list_of_objects(paragraph, "qas", name, file_location, findings):
                yield locations.get(id(qa), file_location), qa | {"context": paragraph.get("context")}


def _list_of_objects(
    parent: dict[str, Any], key: str, name: str, location: str, findings: list[Finding]
) -> list[dict[str, Any]]:
    """Return the objects of the list parent[key]; anything else in it is a finding. `name`: of the parent."""
    hint = "use the format of SQuAD: data → paragraphs → qas"
    items = parent.get(key)
    if not isinstance(items, list):
        findings.append(Finding(location, f"{name}: {key!r} is not a list of objects", hint, kind="structure"))
        return []
    for n, item in enumerate(items, 1):
        if not isinstance(item, dict):
            message = f"{name}: item {n} of {key!r} is {type(item).__name__}, not an object: {item!r:.40}"
            findings.append(Finding(location, message, hint, kind="structure"))
    return [item for item in items if isinstance(item, dict)]


def _question_locations(source: Source) -> dict[int, str]:
    """Return id(object) → "file:line" for each question, or "file:line:column" if questions share a line.

    The JSON parser does not report positions, so the keys of questions are searched in the text. They occur there in the same
    order as in the parsed value.
    """
    with open(Path(source.path).expanduser(), "rb") as raw:
        data = decompress(raw).read()
    text = "".join(decode(io.BytesIO(data), detect_encoding(data[:HEAD_BYTES]), lambda *_: None))
    owners, offsets = list(_key_owners(source.value)), [match.start() for match in _KEY.finditer(text)]
    if len(owners) != len(offsets):  # an object repeats a key, of which the parsed value has only the last
        return {}
    first_offset: dict[int, int] = {}
    for owner, offset in zip(owners, offsets):
        first_offset.setdefault(owner, offset)
    newlines = [match.start() for match in re.finditer("\n", text)]
    lines = {owner: bisect.bisect_left(newlines, offset) for owner, offset in first_offset.items()}
    share_lines = len(set(lines.values())) < len(lines)
    out = {}
    for owner, line in lines.items():
        column = first_offset[owner] - (newlines[line - 1] if line else -1)
        out[owner] = source.location(line + 1) + (f":{column}" if share_lines else "")
    return out


def _key_owners(value: Any) -> Iterator[int]:
    """Yield the id of the object for every key of KEYS, in the order of the file."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in KEYS:
                yield id(value)
            yield from _key_owners(inner)
    elif isinstance(value, list):
        for item in value:
            yield from _key_owners(item)


def build_record(
    raw: Mapping[str, Any], location: str, columns: Mapping[str, str], labeled: bool, findings: list[Finding]
) -> Record:
    """Build the record of one question, and check its answers against the context. `columns`: role → key."""

    def get(role: str) -> Any:
        return raw.get(columns[role]) if role in columns else None

    record: Record = {"location": location}
    if get("id") not in (None, ""):
        record["id"] = str(get("id"))
    record |= {role: parse_text(get(role), location, role, findings) for role in ("question", "context")}
    if not labeled:
        return record
    of_id = f" of {record['id']:.40}" if "id" in record else ""
    impossible = _parse_bool(get("impossible"))
    has_answers_key = "answers" in columns and columns["answers"] in raw
    answers = list(_iter_answers(get("answers"), get("start"), of_id, location, findings)) if has_answers_key else []
    if not has_answers_key and not impossible:
        hint = "if there are none, write answers: [] and is_impossible: true"
        findings.append(Finding(location, f"no answers{of_id}", hint))
    elif impossible is False and not answers:
        message = f"is_impossible{of_id} is false, yet there is no answer"
        findings.append(Finding(location, message, "add an answer, or set is_impossible to true"))
    elif impossible and answers:
        message = f"is_impossible{of_id} is true, yet there is an answer: {answers[0][0]!r:.40}"
        findings.append(Finding(location, message, "remove the answer, or set is_impossible to false"))
    has_starts = "start" in columns or not isinstance(get("answers"), str)
    located = [
        locate_answer(text, start, record["context"], of_id, location, has_starts, findings) for text, start in answers
    ]
    record["answers"] = [] if impossible else [answer for answer in located if answer]
    record["impossible"] = bool(impossible) or not answers
    return record


def _parse_bool(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(value.lower())
    return None if value is None else bool(value)


def _iter_answers(
    value: Any, start: Any, of_id: str, location: str, findings: list[Finding]
) -> Iterator[tuple[str, Any]]:
    """Yield (text, start) of each answer, from any of the supported formats."""
    if isinstance(value, str) and value[:1] in ("{", "["):  # a cell of a csv file, written by json or by str()
        value = _parse_literal(value)
    if isinstance(value, dict) and isinstance(value.get("text"), list | tuple):
        texts, starts = value["text"], value.get("answer_start", value.get("start"))
        starts = list(starts) if isinstance(starts, list | tuple) else [None] * len(texts)
        if len(starts) != len(texts):
            message = f"{len(texts)} answers{of_id}, but {len(starts)} starts"
            findings.append(Finding(location, message, "give one start per answer"))
        items = [{"text": t, "start": s} for t, s in zip(texts, starts)]
    elif isinstance(value, list | tuple):
        items = [a if isinstance(a, dict) else {"text": a, "start": start if len(value) == 1 else None} for a in value]
    elif isinstance(value, dict):
        items = [value]
    else:  # an empty cell means no answer
        items = [] if value is None or value != value or value == "" else [{"text": value, "start": start}]
    for item in items:
        text = parse_text(item.get("text", item.get("answer")), location, f"answer{of_id}", findings)
        if text:
            yield text, item.get("answer_start", item.get("start"))


def _parse_literal(text: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def locate_answer(
    text: str, start: Any, context: str, of_id: str, location: str, has_starts: bool, findings: list[Finding]
) -> dict[str, Any] | None:
    """Return the answer {text, start} as it occurs in the context, or None and a finding. `has_starts`: of the file."""
    if not context:
        return None
    name = f"the answer {text!r:.60}{of_id}"
    matches = [m.start() for m in re.finditer(f"(?={re.escape(text)})", context)]
    if start is None or start == "" or start != start:
        if len(matches) == 1 or (matches and not has_starts):
            if len(matches) > 1 or has_starts:
                position = f"the first of {len(matches)} matches in" if len(matches) > 1 else "the only match in"
                message = f"no answer_start for {name}: {matches[0]} is used, {position} the context"
                hint = f"answer_start: {matches[0]}"
                findings.append(Finding(location, message, hint, error=False, kind="answer start"))
            return {"text": text, "start": matches[0]}
        message = f"no answer_start for {name}, which occurs {_describe_offsets(matches)}"
        findings.append(Finding(location, message, "add answer_start, counted from 0", kind="answer start"))
        return None
    number = parse_int(start)
    if number is None:
        message = f"answer_start{of_id} is not a number: {start!r:.40}"
        findings.append(Finding(location, message, "give the offset in characters, counted from 0"))
        return None
    if 0 <= number < len(context):
        if context.startswith(text, number):
            return {"text": text, "start": number}
        ignoring_spaces = re.compile(r"\s*(" + r"\s+".join(map(re.escape, text.split())) + ")")
        match = ignoring_spaces.match(context, number)
        if match:
            message = (
                f"{name} differs from the context only in whitespace: {match[1]!r:.60} at {match.start(1)} is used"
            )
            findings.append(Finding(location, message, error=False, kind="answer blanks"))
            return {"text": match[1], "start": match.start(1)}
        message = f"{name} is not at {number}, where the context has {context[number : number + len(text)]!r:.60}"
    else:
        message = f"answer_start {number} of {name} is outside of the context, which has {len(context)} characters"
    nearest = min(matches, key=lambda offset: abs(offset - number), default=None)
    hint = "copy the answer from the context" if nearest is None else f"answer_start: {nearest}"
    message += f"; it occurs {_describe_offsets(matches, nearest)}"
    findings.append(Finding(location, message, hint, kind="answer place"))
    return None


def _describe_offsets(offsets: list[int], nearest: int | None = None) -> str:
    """
    >>> _describe_offsets([]), _describe_offsets([1, 5, 7, 9]), _describe_offsets([1, 5, 7, 9], 7), _describe_offsets([4], 4)
    ('nowhere in the context', 'at 4 offsets: 1, 5, 7 …', 'at 4 offsets, the nearest is 7', 'at 4')
    """
    if not offsets:
        return "nowhere in the context"
    if nearest is not None:
        return f"at {nearest}" if len(offsets) == 1 else f"at {len(offsets)} offsets, the nearest is {nearest}"
    return f"at {len(offsets)} offsets: {', '.join(map(str, offsets[:3]))}{' …' if len(offsets) > 3 else ''}"


def build_records(
    questions: Iterable[RawQuestion], columns: Mapping[str, str], labeled: bool, findings: list[Finding]
) -> list[Record]:
    """Build a record per question. Repeated ids are findings, because predictions are matched by id."""
    records, seen = [], dict[str, str]()
    for location, raw in questions:
        record = build_record(raw, location, columns, labeled, findings)
        if record.get("id") in seen:
            message = f"the id {record['id']!r:.40} is already used by {seen[record['id']]}"
            findings.append(Finding(location, message, "give each question its own id", kind="id"))
        elif "id" in record:
            seen[record["id"]] = location
        records.append(record)
    return records
