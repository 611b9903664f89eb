"""Tables with entities: a text with spans of characters, or a list of words with a list of tags.

| columns                    | a cell                                                                               |
|----------------------------|--------------------------------------------------------------------------------------|
| spans, entities, labels    | [{"start": 0, "end": 5, "label": "loc"}, …] or [[0, 5, "loc"], …], places in `text`   |
| tokens + tags or ner_tags  | ["Paris", "is"] and ["B-loc", "O"]; numbers stand for the names in `task.labels`      |
| predicate (semantic roles) | its number among the words (from 0), 0 and 1 for each word, or the word itself         |

With a predicate, words and tags may also be texts with blanks between them, as a csv has them.
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
    """Whether a table holds lists of words with tags, or texts with spans."""
    row = next((row for _, row in source.rows if any(isinstance(v, list) and v for v in row.values())), {})
    cells = {normalize_name(name): value for name, value in row.items() if isinstance(value, list)}
    names = source.names
    if all(names & set(ROLES[role]) for role in ("word", "tag", "predicate")):
        return True
    words = [cells[name] for name in ROLES["word"] if name in cells]
    if words and any(len(cells[name]) == len(words[0]) for name in ROLES["tag"] if name in cells):
        return True
    items = [cells[name][0] for name in ROLES["spans"] if cells.get(name)]
    return bool(names & set(ROLES["text"])) and any(_ends(item) is not None for item in items)


def read_table(
    source: Source, columns: Mapping[str, str], labels: Sequence[str], findings: list[Finding], labeled: bool = True
) -> list[dict[str, Any]]:
    found = map_columns(source.columns, ROLES, columns, (), source.path)
    by_words = "word" in found and ("tag" in found or not labeled or "text" not in found)
    needed = ("word", "tag") if by_words else ("text", "spans")
    map_columns(source.columns, ROLES, columns, needed if labeled else needed[:1], source.path)
    if not labeled:
        found = {role: name for role, name in found.items() if role not in ("tag", "spans")}
    records = []
    for at, row in table_rows(source, EXPECTED):
        if by_words:
            record = _of_words(at, row, found, labels, findings)
        else:
            text = parse_text(row.get(found["text"]), at, "text", findings)
            record = {"location": at, "text": text}
            value = row.get(found.get("spans", ""))
            if labeled:
                record["spans"] = _spans(value, text, at, findings)
        if record and ("predicate" in found or _is_role_row(record)):
            record = set_predicate(record, row.get(found.get("predicate", "")), findings) or {}
        if record:
            records.append(record)
    return records


def _is_role_row(record: Mapping[str, Any]) -> bool:
    """Whether the tags name a predicate among numbered roles: A0 or ARG0, and one V."""
    tags = record.get("tags", ())
    return any(re.fullmatch(r"[BIES]-(A|ARG)\d", tag) for tag in tags) and any(tag in ("B-V", "S-V") for tag in tags)


def _of_words(
    at: str, row: Mapping[str, Any], found: Mapping[str, str], labels: Sequence[str], findings: list[Finding]
) -> dict[str, Any]:
    words, tags = row.get(found["word"]), row.get(found.get("tag", ""))
    if "predicate" in found:
        words, tags = (cell.split() if isinstance(cell, str) else cell for cell in (words, tags))
    if not isinstance(words, list) or not words or not all(isinstance(w, str) and w for w in words):
        what = f"{found['word']} is {words!r:.40}, not a list of words"
        findings.append(Finding(at, what, '["a", "list", "of", "words"]', kind="no words"))
        return {}
    text = row.get(found.get("text", ""))
    spans = find_words(text, words) if isinstance(text, str) else None
    if spans is None:
        text, spans = join_words(words, [True] * len(words))
    record: dict[str, Any] = {"location": at, "text": text, "words": spans}
    if tags is None:
        return record
    if not isinstance(tags, list) or len(tags) != len(words):
        what = f"{len(tags) if isinstance(tags, list) else 'no list of'} tags for {len(words)} words"
        findings.append(Finding(at, what, "one tag for each word", kind="columns"))
        return {}
    named = [_name(tag, labels) for tag in tags]
    if None in named:
        what = f"the tag {tags[named.index(None)]!r:.20} is not a name"
        hint = "name the tag ids, starting with 0: --labels O,B-PER,I-PER"
        findings.append(Finding(at, what, hint, kind="numbers"))
        return {}
    return record | {"tags": named}


def _name(tag: Any, labels: Sequence[str]) -> str | None:
    if isinstance(tag, str) and tag:
        return tag
    known = isinstance(tag, int) and not isinstance(tag, bool) and 0 <= tag < len(labels)
    return labels[tag] if known else None


def _ends(item: Any) -> tuple[Any, Any, Any, Any] | None:
    """Start, end, label and text (or None) of one span, whichever way it is written."""
    if isinstance(item, list | tuple) and len(item) == 3 and isinstance(item[0], int):
        return item[0], item[1], item[2], None
    if isinstance(item, dict):
        ends = [next((item[key] for key in KEYS[end] if key in item), None) for end in ("start", "end")]
        label = next((item[key] for key in LABELS if key in item), None)
        if None not in (*ends, label):
            return ends[0], ends[1], label[0] if isinstance(label, list) and label else label, item.get("text")
    return None


def _spans(value: Any, text: str, at: str, findings: list[Finding]) -> list[dict[str, Any]]:
    """Spans that can be used, in their order; what is wrong with the others is found."""

    def wrong(what: str, hint: str, kind: str) -> None:
        findings.append(Finding(at, what, hint, kind=kind))

    if value is None:
        return []
    if not isinstance(value, list):
        wrong(f"the spans are {value!r:.40}, not a list", '[{"start": 0, "end": 5, "label": "loc"}]', "spans")
        return []
    good: list[dict[str, Any]] = []
    for item in value:
        ends = _ends(item)
        if (
            ends is None
            or any(isinstance(e, bool) or not isinstance(e, int) for e in ends[:2])
            or ends[2] in ("", None)
        ):
            wrong(f"{item!r:.60} is not a valid span", '{"start": 0, "end": 5, "label": "loc"}', "spans")
            continue
        start, end, label, said = ends
        where = f"the span {start}–{end} ({label})"
        if start >= end:
            wrong(f"{where} is empty", "the end is the offset after the last character", "empty span")
        elif start < 0 or end > len(text):
            wrong(f"{where} is outside the text of {len(text)} characters", _hint(text, said, start), "span outside")
        elif not text[start:end].strip():
            wrong(f"{where} contains only white space", "remove it", "empty span")
        elif isinstance(said, str) and said != text[start:end]:
            what = f"{where} is {text[start:end]!r:.40} in the text, not {said!r:.40}"
            wrong(what, _hint(text, said, start), "span text")
        else:
            good.append({"start": start, "end": end, "label": str(label)})
    good.sort(key=lambda s: (s["start"], s["end"]))
    kept: list[dict[str, Any]] = []
    for span in good:
        if kept and kept[-1] == span:
            continue  # written twice
        if kept and span["start"] < kept[-1]["end"]:
            a, b = ("{start}–{end} ({label})".format(**s) for s in (kept[-1], span))
            wrong(f"the spans {a} and {b} overlap", "a word can have one tag: keep one of them", "overlap")
        else:
            kept.append(span)
    return kept


def _hint(text: str, said: Any, start: int) -> str:
    """Where the words that a span names are nearest to its start, or why its places may be others."""
    places = (
        [match.start() for match in re.finditer(f"(?={re.escape(said)})", text)]
        if isinstance(said, str) and said
        else []
    )
    if places:
        at = min(places, key=lambda place: abs(place - start))
        return f"its text is at {at}–{at + len(said)}"
    odd = any(ord(c) > 0xFFFF for c in text)
    return "count characters, not UTF-16 units: an emoji is one" if odd else "count characters from 0"
