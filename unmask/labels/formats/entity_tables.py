"""Read tables with entities: a text with character spans, or a list of words with a list of tags.

| columns                    | a cell                                                                               |
|----------------------------|--------------------------------------------------------------------------------------|
| spans, entities, labels    | [{"start": 0, "end": 5, "label": "loc"}, …] or [[0, 5, "loc"], …], offsets in `text`  |
| tokens + tags or ner_tags  | ["Paris", "is"] and ["B-loc", "O"]; numbers are indices into `task.labels`            |
| predicate (semantic roles) | its word index (from 0), 0 or 1 for each word, or the word itself                     |

With a predicate, words and tags may also be strings separated by spaces, as in csv files.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from unmask.labels.formats.conll import find_words, join_words
from unmask.labels.formats.roles import set_predicate
from unmask.labels.records import Finding, Source, parse_text, table_rows
from unmask.text.columns import map_columns, normalize_name

ROLES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "content", "document", "data"),
    "word": ("tokens", "words"),
    "tag": ("tags", "ner_tags", "pos_tags", "upos", "ner"),
    "spans": ("spans", "entities", "labels", "label"),
    "predicate": ("predicate", "predicate_index", "predicate_idx", "verb", "verb_index", "pred", "pred_idx"),
}
EXPECTED = 'CoNLL columns, CoNLL-U, or a table with {"text", "spans"} or {"tokens", "tags"}'
KEYS = {"start": ("start", "begin", "start_offset"), "end": ("end", "stop", "end_offset")}
LABELS = ("label", "type", "tag", "entity", "entity_group", "entity_type")


def has_entities(source: Source) -> bool:
    """Return whether a table has lists of words with tags, or texts with spans."""
    row = next((row for _, row in source.rows if any(isinstance(v, list) and v for v in row.values())), {})
    cells = {normalize_name(name): value for name, value in row.items() if isinstance(value, list)}
    names = source.names
    if all(names & set(ROLES[role]) for role in ("word", "tag", "predicate")):
        return True
    words = [cells[name] for name in ROLES["word"] if name in cells]
    if words and any(len(cells[name]) == len(words[0]) for name in ROLES["tag"] if name in cells):
        return True
    items = [cells[name][0] for name in ROLES["spans"] if cells.get(name)]
    return bool(names & set(ROLES["text"])) and any(_parse_span(item) is not None for item in items)


def read_table(
    source: Source, columns: Mapping[str, str], labels: Sequence[str], findings: list[Finding], labeled: bool = True
) -> list[dict[str, Any]]:
    role_columns = map_columns(source.columns, ROLES, columns, (), source.path)
    by_words = "word" in role_columns and ("tag" in role_columns or not labeled or "text" not in role_columns)
    needed = ("word", "tag") if by_words else ("text", "spans")
    map_columns(source.columns, ROLES, columns, needed if labeled else needed[:1], source.path)
    if not labeled:
        role_columns = {role: name for role, name in role_columns.items() if role not in ("tag", "spans")}
    records = []
    for location, row in table_rows(source, EXPECTED):
        if by_words:
            record = _read_words(location, row, role_columns, labels, findings)
        else:
            text = parse_text(row.get(role_columns["text"]), location, "text", findings)
            record = {"location": location, "text": text}
            value = row.get(role_columns.get("spans", ""))
            if labeled:
                record["spans"] = _read_spans(value, text, location, findings)
        if record and ("predicate" in role_columns or _is_role_row(record)):
            record = set_predicate(record, row.get(role_columns.get("predicate", "")), findings) or {}
        if record:
            records.append(record)
    return records


def _is_role_row(record: Mapping[str, Any]) -> bool:
    """Return whether the tags are semantic roles: A0 or ARG0, and a V."""
    tags = record.get("tags", ())
    return any(re.fullmatch(r"[BIES]-(A|ARG)\d", tag) for tag in tags) and any(tag in ("B-V", "S-V") for tag in tags)


def _read_words(
    location: str,
    row: Mapping[str, Any],
    role_columns: Mapping[str, str],
    labels: Sequence[str],
    findings: list[Finding],
) -> dict[str, Any]:
    words, tags = row.get(role_columns["word"]), row.get(role_columns.get("tag", ""))
    if "predicate" in role_columns:
        words, tags = (cell.split() if isinstance(cell, str) else cell for cell in (words, tags))
    if not isinstance(words, list) or not words or not all(isinstance(w, str) and w for w in words):
        message = f"{role_columns['word']} is {words!r:.40}, not a list of words"
        findings.append(Finding(location, message, 'write ["a", "list", "of", "words"]', kind="no words"))
        return {}
    text = row.get(role_columns.get("text", ""))
    spans = find_words(text, words) if isinstance(text, str) else None
    if spans is None:
        text, spans = join_words(words, [True] * len(words))
    record: dict[str, Any] = {"location": location, "text": text, "words": spans}
    if tags is None:
        return record
    if not isinstance(tags, list) or len(tags) != len(words):
        message = f"{len(tags) if isinstance(tags, list) else 'no list of'} tags for {len(words)} words"
        findings.append(Finding(location, message, "write one tag for each word", kind="columns"))
        return {}
    named = [_name(tag, labels) for tag in tags]
    if None in named:
        message = f"the tag {tags[named.index(None)]!r:.20} is not a name"
        hint = "name the tag ids, starting with 0: --labels O,B-PER,I-PER"
        findings.append(Finding(location, message, hint, kind="numbers"))
        return {}
    return record | {"tags": named}


def _name(tag: Any, labels: Sequence[str]) -> str | None:
    if isinstance(tag, str) and tag:
        return tag
    is_index = isinstance(tag, int) and not isinstance(tag, bool) and 0 <= tag < len(labels)
    return labels[tag] if is_index else None


def _parse_span(item: Any) -> tuple[Any, Any, Any, Any] | None:
    """Return (start, end, label, text or None) of a span in any supported notation, or None."""
    if isinstance(item, list | tuple) and len(item) == 3 and isinstance(item[0], int):
        return item[0], item[1], item[2], None
    if isinstance(item, dict):
        ends = [next((item[key] for key in KEYS[end] if key in item), None) for end in ("start", "end")]
        label = next((item[key] for key in LABELS if key in item), None)
        if None not in (*ends, label):
            return ends[0], ends[1], label[0] if isinstance(label, list) and label else label, item.get("text")
    return None


def _read_spans(value: Any, text: str, location: str, findings: list[Finding]) -> list[dict[str, Any]]:
    """Return the valid spans, sorted. Add a finding for each of the others."""

    def report(message: str, hint: str, kind: str) -> None:
        findings.append(Finding(location, message, hint, kind=kind))

    if value is None:
        return []
    if not isinstance(value, list):
        report(f"the spans are {value!r:.40}, not a list", 'write [{"start": 0, "end": 5, "label": "loc"}]', "spans")
        return []
    good: list[dict[str, Any]] = []
    for item in value:
        parsed = _parse_span(item)
        if parsed is None or any(type(offset) is not int for offset in parsed[:2]) or parsed[2] in ("", None):
            report(f"{item!r:.60} is not a valid span", 'write {"start": 0, "end": 5, "label": "loc"}', "spans")
            continue
        start, end, label, span_text = parsed
        span_name = f"the span {start}–{end} ({label})"
        if start >= end:
            report(f"{span_name} is empty", "the end is the offset after the last character", "empty span")
        elif start < 0 or end > len(text):
            message = f"{span_name} is outside the text of {len(text)} characters"
            report(message, _hint(text, span_text, start), "span outside")
        elif not text[start:end].strip():
            report(f"{span_name} contains only white space", "remove it", "empty span")
        elif isinstance(span_text, str) and span_text != text[start:end]:
            message = f"{span_name} is {text[start:end]!r:.40} in the text, not {span_text!r:.40}"
            report(message, _hint(text, span_text, start), "span text")
        else:
            good.append({"start": start, "end": end, "label": str(label)})
    good.sort(key=lambda s: (s["start"], s["end"]))
    kept: list[dict[str, Any]] = []
    for span in good:
        if kept and kept[-1] == span:
            continue  # duplicate
        if kept and span["start"] < kept[-1]["end"]:
            a, b = ("{start}–{end} ({label})".format(**s) for s in (kept[-1], span))
            report(f"the spans {a} and {b} overlap", "a word can have one tag: keep one of them", "overlap")
        else:
            kept.append(span)
    return kept


def _hint(text: str, span_text: Any, start: int) -> str:
    """Return a hint with the occurrence of the span's text nearest to its start, or else about how to count offsets."""
    if isinstance(span_text, str) and span_text:
        offsets = [match.start() for match in re.finditer(f"(?={re.escape(span_text)})", text)]
        if offsets:
            nearest = min(offsets, key=lambda offset: abs(offset - start))
            return f"its text is at {nearest}–{nearest + len(span_text)}"
    astral = any(ord(c) > 0xFFFF for c in text)  # two UTF-16 units each
    return "count characters, not UTF-16 units: an emoji is one" if astral else "count characters from 0"
