"""Read files for semantic role labeling, with one record per predicate.

| file                   | a sentence                                             | predicate                    | roles              |
|------------------------|--------------------------------------------------------|------------------------------|--------------------|
| CoNLL-2005, CoNLL-2012 | one word per line, a column of brackets per predicate  | `(V*)` in its column         | `(A0*` … `*)`      |
| CoNLL-2009             | 14 tab-separated columns, then a column per predicate  | `Y` in FILLPRED              | on single words    |
| one line per predicate | `1 Ann runs home ||| B-A0 B-V B-A4`                    | its word index, from 0       | BIO tags           |
| tables                 | words, tags and a column `predicate` (entity_tables)   | its word index, or the word  | BIO tags           |

A record is {"text", "words", "tags", "predicate": [start, end]}. The predicate has character offsets, since a word may occur twice.
The tag of the predicate itself (V, and C-V for its particle) is removed: it is an input, not a target.

`arguments` follows the scorer of CoNLL-2005 (srl-eval.pl). A role and its continuations (A1, C-A1) are one argument, which is
correct if its role and all its parts are. References (R-A0) are separate roles. V is not scored.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from unmask.errors import UserError, nearest
from unmask.labels.formats import schemes
from unmask.labels.formats.conll import SAMPLE_LINES, blocks, column_index, join_words, needs_space, split_fields
from unmask.labels.records import Finding, Record, Source
from unmask.text.segmentation import has_chinese

VERB = ("V", "C-V")
NUM_FIXED_COLUMNS = 14  # columns of CoNLL-2009 before those of the predicates
FILLPRED = 12  # index of its column that marks predicates with Y
_BRACKETS = re.compile(r"(?:\([^\s()*]+)*\*(?:[^\s()*]*\))*")
_LINE = re.compile(r"\s*(\d+)\s+(\S.*?)\s*\|\|\|\s*(\S.*?)\s*")
_NUMBERED = re.compile(r"(.+)#(\d+)", re.S)
Row = tuple[int, list[str]]  # line, columns
Argument = tuple[int, Any, str]  # first character, all parts, role


# --------------------------------------------------------------------------------------------------- detection


def detect_format(source: Source) -> str:
    """Return "brackets" (CoNLL-2005 and 2012), "heads" (CoNLL-2009), "lines", or "" for a file without predicates."""
    if source.file_format != "text":
        return ""
    head = [text for _, text in source.lines[:SAMPLE_LINES] if text.strip()]
    if head and all(_LINE.fullmatch(text) for text in head):
        return "lines"
    sample = Source(source.path, "text", lines=source.lines[:SAMPLE_LINES])
    sentences = [_rows(block) for block in blocks(sample)][: -1 if len(source.lines) > SAMPLE_LINES else None]
    if any(map(_predicate_columns, sentences)):
        return "brackets"
    return "heads" if any(_heads(rows) for rows in sentences) and all(map(_is_2009, sentences)) else ""


def _rows(block: Sequence[tuple[int, str]]) -> list[Row]:
    tabs = all("\t" in text for _, text in block)
    return [(line, split_fields(text, tabs)) for line, text in block if not re.match(r"#\s*(begin|end)\b", text)]


def _width(rows: Sequence[Row]) -> int:
    """Return the number of columns, or 0 if lines differ."""
    widths = {len(row) for _, row in rows}
    return widths.pop() if len(widths) == 1 else 0


def _predicate_columns(rows: Sequence[Row]) -> list[int]:
    """Return the columns that contain only brackets, including (V*."""
    return [
        n
        for n in range(1, _width(rows))
        if any("(V*" in row[n] for _, row in rows) and all(_BRACKETS.fullmatch(row[n]) for _, row in rows)
    ]


def _is_2009(rows: Sequence[Row]) -> bool:
    numbered = all(row[0] == str(n) for n, (_, row) in enumerate(rows, 1))
    return numbered and all(len(row) >= NUM_FIXED_COLUMNS and row[FILLPRED] in ("Y", "_") for _, row in rows)


def _heads(rows: Sequence[Row]) -> list[int]:
    """Return the word indices of the predicates of a CoNLL-2009 sentence."""
    return [n for n, (_, row) in enumerate(rows) if row[FILLPRED] == "Y"] if _is_2009(rows) else []


# ----------------------------------------------------------------------------------------------------- reading


def read_roles(source: Source, columns: Mapping[str, str], findings: list[Finding]) -> list[Record]:
    """Return one record per predicate."""
    file_format = detect_format(source)
    if file_format == "lines":
        return [record for number, text in source.lines if (record := _read_line(source, number, text, findings))]
    read_predicates = _read_heads if file_format == "heads" else _read_brackets
    records: list[Record] = []
    num_findings = len(findings)
    for block in blocks(source):
        rows = [(line, row) for line, row in _rows(block) if not row[0].startswith("-DOCSTART-")]
        width = _width(rows)
        if not width:
            if rows:
                message = f"the lines of this sentence differ in their number of columns (first: {len(rows[0][1])})"
                hint = "write one column per predicate on each line"
                findings.append(Finding(source.location(rows[0][0]), message, hint, kind="columns"))
            continue
        default = "2" if file_format == "heads" else "4" if _is_2012(rows) else "1"
        word = column_index(columns.get("word", default), width, (), source)
        words = [row[word] for _, row in rows]
        text, spans = _join(words)
        for n, (start, end), roles in read_predicates(source, rows, findings):
            tags = schemes.entities_to_tags([role for role in roles if role[2] not in VERB], len(words), "BIO")
            records.append(
                {"location": source.location(rows[n][0]), "text": text, "words": spans, "tags": tags,
                 "predicate": [spans[start][0], spans[end - 1][1]], "lines": [line for line, _ in rows]}
            )  # fmt: skip
    if not records and len(findings) == num_findings:
        message, hint = "the file has no predicate", "mark predicates with (V*)"
        findings.append(Finding(source.location(1), message, hint, kind="no predicate"))
    elif file_format == "brackets" and records and _words_are_missing(records):
        raise UserError(
            f"{source.path}: the column with the words is missing",
            hint="run `paste words.txt props.txt > train.conll`, or pass --column word=N",
        )
    return records


def _join(words: Sequence[str]) -> tuple[str, list[list[int]]]:
    with_spaces = 2 * sum(map(has_chinese, words)) < len(words)
    return join_words(words, [with_spaces or needs_space(a, b) for a, b in pairwise(words)])


def _words_are_missing(records: Sequence[Record]) -> bool:
    """Return whether most words are "-", the filler of the predicate column."""
    words = [r["text"][a:b] for r in records for a, b in r["words"]]
    return 2 * words.count("-") > len(words)


def _is_2012(rows: Sequence[Row]) -> bool:
    return all(len(row) > 11 and row[1].isdigit() and row[2] == str(n) for n, (_, row) in enumerate(rows))


Predicates = Iterator[tuple[int, tuple[int, int], list[schemes.Entity]]]  # row, words of the predicate, roles


def _read_brackets(source: Source, rows: Sequence[Row], findings: list[Finding]) -> Predicates:
    for column in _predicate_columns(rows):
        roles: list[schemes.Entity] = []
        opened: list[tuple[int, str]] = []
        for n, (line, row) in enumerate(rows):
            opening, _, closing = row[column].partition("*")
            opened += [(n, label) for label in re.findall(r"\(([^\s()*]+)", opening)]
            for _ in range(closing.count(")")):
                if not opened:
                    message = "closing bracket without an opening one"
                    findings.append(Finding(source.location(line), message, kind="brackets"))
                    continue
                first, label = opened.pop()
                if opened:
                    message = f"the role {label} is inside {opened[0][1]}; only the outer role is used"
                    findings.append(Finding(source.location(line), message, error=False, kind="nested roles"))
                else:
                    roles.append((first, n + 1, label))
        for first, label in opened:
            findings.append(Finding(source.location(rows[first][0]), f"({label} is never closed", kind="brackets"))
        verb = next(((a, b) for a, b, label in roles if label == "V"), None)
        if verb:
            yield verb[0], verb, roles


def _read_heads(source: Source, rows: Sequence[Row], findings: list[Finding]) -> Predicates:
    predicates = _heads(rows)
    if len(rows[0][1]) != NUM_FIXED_COLUMNS + len(predicates):
        num_roles = len(rows[0][1]) - NUM_FIXED_COLUMNS
        message = f"{len(predicates)} predicates (Y in FILLPRED), but {num_roles} columns of roles"
        hint = "write one column of roles for each predicate"
        findings.append(Finding(source.location(rows[0][0]), message, hint, kind="columns"))
        return
    for k, index in enumerate(predicates):
        labels = [row[NUM_FIXED_COLUMNS + k] for _, row in rows]
        yield index, (index, index + 1), [(n, n + 1, label) for n, label in enumerate(labels) if label != "_"]


def _read_line(source: Source, number: int, text: str, findings: list[Finding]) -> Record | None:
    match = _LINE.fullmatch(text)
    if not match:
        if text.strip():
            message, hint = f"not a predicate line: {text[:40]!r}", "write 1 Ann runs home ||| B-A0 B-V B-A4"
            findings.append(Finding(source.location(number), message, hint, kind="columns"))
        return None
    words, tags = match[2].split(), match[3].split()
    if len(words) != len(tags):
        message = f"{len(tags)} tags for {len(words)} words"
        findings.append(Finding(source.location(number), message, "write one tag for each word", kind="columns"))
        return None
    joined, spans = _join(words)
    record = {"location": source.location(number), "text": joined, "words": spans, "tags": tags}
    return set_predicate(record, int(match[1]), findings)


def set_predicate(record: Record, value: Any, findings: list[Finding]) -> Record | None:
    """Set the predicate of a record and remove its V tags; return None and add a finding if it is invalid.

    `value`: a word index (from 0), 0 or 1 for each word, the word itself, or None to use the V tag.
    """
    text, words = record["text"], record.get("words")
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, list) and words and len(value) == len(words) and set(value) == {0, 1}:
        value = value.index(1)
    if value is None:
        verbs = [(a, b) for a, b, label in schemes.tags_to_entities(record.get("tags", ())) if label == "V"]
        value = [words[verbs[0][0]][0], words[verbs[0][1] - 1][1]] if words and verbs else None
    elif isinstance(value, int) and not isinstance(value, bool) and words:
        value = words[value] if 0 <= value < len(words) else value
    try:
        record["predicate"] = locate_predicate(text, value)
    except UserError as error:
        findings.append(Finding(record["location"], error.message, error.expected or "", kind="predicate"))
        return None
    if "tags" in record:
        record["tags"] = [schemes.OUTSIDE if schemes.parse_tag(tag)[1] in VERB else tag for tag in record["tags"]]
    if "spans" in record:
        record["spans"] = [span for span in record["spans"] if span["label"] not in VERB]
    return record


def locate_predicate(text: str, predicate: Any) -> list[int]:
    """Return [start, end) of a predicate given as a word of the text, its n-th occurrence (`run#2`), or a span.

    >>> locate_predicate("Ann runs home", "runs"), locate_predicate("a run is a run", "run#2"), locate_predicate("Ann runs home", [4, 8])
    ([4, 8], [11, 14], [4, 8])
    """
    if isinstance(predicate, Mapping):
        predicate = [predicate.get("start"), predicate.get("end")]
    if isinstance(predicate, list | tuple) and len(predicate) == 2 and all(type(x) is int for x in predicate):
        start, end = predicate
        if 0 <= start < end <= len(text) and text[start:end].strip():
            return [start, end]
        raise UserError(
            f"the predicate {start}–{end} is not a span of the text", expected=f"0 to {len(text)}, end after start"
        )
    if not isinstance(predicate, str) or not predicate.strip():
        raise UserError(
            f"no predicate for {text!r:.60}" if predicate is None else f"the predicate {predicate!r:.40} is not a word",
            expected="a word of the text, or its [start, end]",
            hint="unmask predict MODEL TEXT --predicate WORD",
        )
    return _occurrence(text, predicate.strip())


def _occurrence(text: str, word: str) -> list[int]:
    spans, number = _occurrences(text, word), 0
    match = _NUMBERED.fullmatch(word)
    if not spans and match:
        word, number = match[1], int(match[2])
        spans = _occurrences(text, word)
    if not spans:
        words = re.findall(r"\w+(?:[-'’]\w+)*", text)
        raise UserError(
            f"the predicate {word!r:.40} is not in the text{nearest(word, words)}",
            expected=", ".join(dict.fromkeys(words))[:200],
        )
    if number > len(spans) or (len(spans) > 1 and not number):
        times = "once" if len(spans) == 1 else f"{len(spans)} times"
        raise UserError(
            f"the predicate {word!r:.40} occurs {times} in the text",
            expected=", ".join(f"{word}#{n}" for n in range(1, len(spans) + 1)),
            hint=f"pass --predicate '{word}#1'",
        )
    return spans[number - 1 if number else 0]


def _occurrences(text: str, word: str) -> list[list[int]]:
    """Return the spans of a word in a text, ignoring case if there is no exact match. Chinese words match anywhere."""
    pattern = re.escape(word) if has_chinese(word) else rf"(?<!\w){re.escape(word)}(?!\w)"
    for flags in (0, re.IGNORECASE):
        if spans := [[m.start(), m.end()] for m in re.finditer(pattern, text, flags)]:
            return spans
    return []


# ----------------------------------------------------------------------------------------------------- scoring


def arguments(roles: Iterable[tuple[int, int, str]]) -> list[Argument]:
    """Group roles, given by character offsets, into arguments in the way of srl-eval.pl.

    >>> arguments([(0, 3, "A1"), (4, 8, "V"), (9, 12, "C-A1"), (13, 15, "C-A2")])
    [(0, ((0, 3), (9, 12)), 'A1'), (13, ((13, 15),), 'A2')]
    """
    grouped: list[tuple[str, list[tuple[int, int]]]] = []
    latest: dict[str, list[tuple[int, int]]] = {}
    for start, end, role in sorted(roles):
        name = role.removeprefix("C-")
        if name != role and name in latest:
            latest[name].append((start, end))
            continue
        latest[name] = [(start, end)]  # a continuation without a role before it starts an argument
        grouped.append((name, latest[name]))
    return [(parts[0][0], tuple(parts), name) for name, parts in grouped if name != "V"]
