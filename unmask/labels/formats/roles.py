"""Semantic roles: who did what to whom, one record per predicate.

| file                   | a sentence                                             | predicate                    | roles              |
|------------------------|--------------------------------------------------------|------------------------------|--------------------|
| CoNLL-2005, CoNLL-2012 | a word per line, a column of brackets per predicate    | `(V*)` in its column         | `(A0*` … `*)`      |
| CoNLL-2009             | 14 tab-separated columns, then a column per predicate  | `Y` in FILLPRED              | on single words    |
| a line per predicate   | `1 Ann runs home ||| B-A0 B-V B-A4`                    | its number, counted from 0   | BIO tags           |
| tables                 | words, tags and a column `predicate` (entity_tables)   | its number, or the word      | BIO tags           |

A record is {"text", "words", "tags", "predicate": [start, end]}: the predicate by its characters, since a word may occur twice.
The tag of the predicate itself (V, and C-V for its particle) is left out: it is given, not predicted.

`arguments` counts as the scorer of CoNLL-2005 (srl-eval.pl) does: a role and its continuations (A1, C-A1) are one argument, which
is right when all its parts and its role are; references (R-A0) are roles of their own; V is not counted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from unmask.errors import UserError, nearest
from unmask.labels.formats import schemes
from unmask.labels.formats.conll import MAX_LINES, blocks, column_index, join_words, needs_space, split_fields
from unmask.labels.records import Finding, Record, Source
from unmask.text.segmentation import has_chinese

VERB = ("V", "C-V")
FIXED = 14  # columns of CoNLL-2009 before those of the predicates
FILLPRED = 12
_BRACKETS = re.compile(r"(?:\([^\s()*]+)*\*(?:[^\s()*]*\))*")
_LINE = re.compile(r"\s*(\d+)\s+(\S.*?)\s*\|\|\|\s*(\S.*?)\s*")
_NUMBERED = re.compile(r"(.+)#(\d+)", re.S)
Row = tuple[int, list[str]]  # line, columns
Argument = tuple[int, Any, str]  # first character, all parts, role


# --------------------------------------------------------------------------------------------------- detection


def detect_format(source: Source) -> str:
    """brackets (CoNLL-2005 and 2012), heads (CoNLL-2009), lines, or "" for a file without predicates."""
    if source.file_format != "text":
        return ""
    head = [text for _, text in source.lines[:MAX_LINES] if text.strip()]
    if head and all(_LINE.fullmatch(text) for text in head):
        return "lines"
    looked = Source(source.path, "text", lines=source.lines[:MAX_LINES])
    sentences = [_rows(block) for block in blocks(looked)][: -1 if len(source.lines) > MAX_LINES else None]
    if any(map(_predicate_columns, sentences)):
        return "brackets"
    return "heads" if any(_heads(rows) for rows in sentences) and all(map(_is_2009, sentences)) else ""


def _rows(block: Sequence[tuple[int, str]]) -> list[Row]:
    tabs = all("\t" in text for _, text in block)
    return [(line, split_fields(text, tabs)) for line, text in block if not re.match(r"#\s*(begin|end)\b", text)]


def _width(rows: Sequence[Row]) -> int:
    """The number of columns; 0 where lines differ."""
    widths = {len(row) for _, row in rows}
    return widths.pop() if len(widths) == 1 else 0


def _predicate_columns(rows: Sequence[Row]) -> list[int]:
    """Columns of nothing but brackets, with a (V*."""
    return [
        n
        for n in range(1, _width(rows))
        if any("(V*" in row[n] for _, row in rows) and all(_BRACKETS.fullmatch(row[n]) for _, row in rows)
    ]


def _is_2009(rows: Sequence[Row]) -> bool:
    numbered = all(row[0] == str(n) for n, (_, row) in enumerate(rows, 1))
    return numbered and all(len(row) >= FIXED and row[FILLPRED] in ("Y", "_") for _, row in rows)


def _heads(rows: Sequence[Row]) -> list[int]:
    """The predicates of a CoNLL-2009 sentence."""
    return [n for n, (_, row) in enumerate(rows) if row[FILLPRED] == "Y"] if _is_2009(rows) else []


# ----------------------------------------------------------------------------------------------------- reading


def read_roles(source: Source, columns: Mapping[str, str], findings: list[Finding]) -> list[Record]:
    """A record per predicate; sentences without one have none."""
    form = detect_format(source)
    if form == "lines":
        return [record for number, text in source.lines if (record := _of_line(source, number, text, findings))]
    records: list[Record] = []
    before = len(findings)
    for block in blocks(source):
        rows = [(line, row) for line, row in _rows(block) if not row[0].startswith("-DOCSTART-")]
        width = _width(rows)
        if not width:
            if rows:
                what = f"lines of {len(rows[0][1])} and of other numbers of columns in one sentence"
                findings.append(Finding(source.location(rows[0][0]), what, "one column per predicate", kind="columns"))
            continue
        usual = "2" if form == "heads" else "4" if _is_2012(rows) else "1"
        word = column_index(columns.get("word", usual), width, (), source)
        words = [row[word] for _, row in rows]
        text, spans = _joined(words)
        for at, own, found in (_of_heads if form == "heads" else _of_brackets)(source, rows, findings):
            tags = schemes.entities_to_tags([x for x in found if x[2] not in VERB], len(words), "BIO")
            records.append(
                {"location": source.location(rows[at][0]), "text": text, "words": spans, "tags": tags,
                 "predicate": [spans[own[0]][0], spans[own[1] - 1][1]], "lines": [line for line, _ in rows]}
            )  # fmt: skip
    if not records and len(findings) == before:
        findings.append(
            Finding(source.location(1), "the file has no predicate", "mark one with (V*)", kind="no predicate")
        )
    elif form == "brackets" and records and _without_words(records):
        raise UserError(
            f"{source.path}: the column of words is missing",
            hint="paste words.txt props.txt > train.conll; or --column word=N",
        )
    return records


def _joined(words: Sequence[str]) -> tuple[str, list[list[int]]]:
    apart = 2 * sum(map(has_chinese, words)) < len(words)
    return join_words(words, [apart or needs_space(a, b) for a, b in pairwise(words)])


def _without_words(records: Sequence[Record]) -> bool:
    """Whether most of the words are the `-` of a column of predicates."""
    words = [r["text"][a:b] for r in records for a, b in r["words"]]
    return 2 * words.count("-") > len(words)


def _is_2012(rows: Sequence[Row]) -> bool:
    return all(len(row) > 11 and row[1].isdigit() and row[2] == str(n) for n, (_, row) in enumerate(rows))


Found = Iterator[tuple[int, tuple[int, int], list[schemes.Entity]]]  # row, words of the predicate, roles


def _of_brackets(source: Source, rows: Sequence[Row], findings: list[Finding]) -> Found:
    for column in _predicate_columns(rows):
        roles: list[schemes.Entity] = []
        opened: list[tuple[int, str]] = []
        for n, (line, row) in enumerate(rows):
            begins, _, ends = row[column].partition("*")
            opened += [(n, label) for label in re.findall(r"\(([^\s()*]+)", begins)]
            for _ in range(ends.count(")")):
                if not opened:
                    findings.append(
                        Finding(source.location(line), "closing bracket without an opening one", kind="brackets")
                    )
                    continue
                first, label = opened.pop()
                if opened:
                    what = f"{label} inside {opened[0][1]}: only the outer role is read"
                    findings.append(Finding(source.location(line), what, error=False, kind="nested roles"))
                else:
                    roles.append((first, n + 1, label))
        for first, label in opened:
            findings.append(Finding(source.location(rows[first][0]), f"({label} is never closed", kind="brackets"))
        verb = next(((a, b) for a, b, label in roles if label == "V"), None)
        if verb:
            yield verb[0], verb, roles


def _of_heads(source: Source, rows: Sequence[Row], findings: list[Finding]) -> Found:
    predicates = _heads(rows)
    if len(rows[0][1]) != FIXED + len(predicates):
        what = f"{len(predicates)} predicates (Y in FILLPRED) and {len(rows[0][1]) - FIXED} columns of roles"
        findings.append(
            Finding(source.location(rows[0][0]), what, "one column of roles for each predicate", kind="columns")
        )
        return
    for k, at in enumerate(predicates):
        labels = [row[FIXED + k] for _, row in rows]
        yield at, (at, at + 1), [(n, n + 1, label) for n, label in enumerate(labels) if label != "_"]


def _of_line(source: Source, number: int, text: str, findings: list[Finding]) -> Record | None:
    match = _LINE.fullmatch(text)
    if not match:
        if text.strip():
            what, hint = f"not a line per predicate: {text[:40]!r}", "1 Ann runs home ||| B-A0 B-V B-A4"
            findings.append(Finding(source.location(number), what, hint, kind="columns"))
        return None
    words, tags = match[2].split(), match[3].split()
    if len(words) != len(tags):
        what = f"{len(tags)} tags for {len(words)} words"
        findings.append(Finding(source.location(number), what, "one tag for each word", kind="columns"))
        return None
    joined, spans = _joined(words)
    record = {"location": source.location(number), "text": joined, "words": spans, "tags": tags}
    return set_predicate(record, int(match[1]), findings)


def set_predicate(record: Record, value: Any, findings: list[Finding]) -> Record | None:
    """The record with its predicate, told by a number (from 0), 0 and 1 for each word, the word itself, or None: as its tags say."""
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
    """[start, end) of a predicate that a person names: a word of the text, the n-th of its occurrences (`run#2`), or its place.

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
    found, number = _occurrences(text, word), 0
    match = _NUMBERED.fullmatch(word)
    if not found and match:
        word, number = match[1], int(match[2])
        found = _occurrences(text, word)
    if not found:
        words = re.findall(r"\w+(?:[-'’]\w+)*", text)
        raise UserError(
            f"the predicate {word!r:.40} is not in the text{nearest(word, words)}",
            expected=", ".join(dict.fromkeys(words))[:200],
        )
    if number > len(found) or (len(found) > 1 and not number):
        times = "once" if len(found) == 1 else f"{len(found)} times"
        raise UserError(
            f"the predicate {word!r:.40} occurs {times} in the text",
            expected=", ".join(f"{word}#{n}" for n in range(1, len(found) + 1)),
            hint=f"--predicate '{word}#1'",
        )
    return found[number - 1 if number else 0]


def _occurrences(text: str, word: str) -> list[list[int]]:
    """As it is written, or else in any case; whole words, but of Chinese any place."""
    whole = re.escape(word) if has_chinese(word) else rf"(?<!\w){re.escape(word)}(?!\w)"
    for flags in (0, re.IGNORECASE):
        if found := [[m.start(), m.end()] for m in re.finditer(whole, text, flags)]:
            return found
    return []


# ----------------------------------------------------------------------------------------------------- scoring


def arguments(roles: Iterable[tuple[int, int, str]]) -> list[Argument]:
    """Roles by characters → arguments, as srl-eval.pl counts them.

    >>> arguments([(0, 3, "A1"), (4, 8, "V"), (9, 12, "C-A1"), (13, 15, "C-A2")])
    [(0, ((0, 3), (9, 12)), 'A1'), (13, ((13, 15),), 'A2')]
    """
    found: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}
    for start, end, role in sorted(roles):
        name = role.removeprefix("C-")
        if name != role and name in last:
            last[name].append((start, end))
            continue
        last[name] = [(start, end)]  # a continuation of nothing begins an argument
        found.append((name, last[name]))
    return [(parts[0][0], tuple(parts), name) for name, parts in found if name != "V"]
