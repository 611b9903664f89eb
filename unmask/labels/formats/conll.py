"""Read files with one word per line (CoNLL columns, CoNLL-U) into sentences: text, and the span of each word in it.

| format      | words                                    | text                                                          |
|-------------|------------------------------------------|---------------------------------------------------------------|
| columns     | first column, tag in the last one        | words joined by spaces; Chinese characters without            |
| CoNLL-U     | FORM, tag in UPOS; handles 1-2 and 1.1   | `# text =`, else words joined by spaces except SpaceAfter=No  |

A sentence is {"location", "text", "words": [[start, end], …], "tags": […], "lines": […]}; `lines` is
for messages about single tags.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from unmask.errors import UserError, nearest
from unmask.labels.records import Finding, Source
from unmask.text.layout import CONLL_SUFFIXES, ENTITY_TAG
from unmask.text.segmentation import has_chinese

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
ROLES = ("word", "tag")
SAMPLE_LINES = 400  # used to detect the format
_NUMBER = re.compile(r"\d+(-\d+|\.\d+)?")
_WITH_POSITION = re.compile(r"(.{1,2}?)(\d+)", re.S)
Line = tuple[int, list[str]]  # number, fields


def is_conll(source: Source) -> bool:
    """Return whether a file has a word and its tag on each line, judging from its suffix or its first lines."""
    if source.file_format != "text":
        return False
    if source.path.lower().removesuffix(".gz").endswith(CONLL_SUFFIXES):
        return True
    lines = [text for _, text in source.lines[:SAMPLE_LINES] if text.strip() and text[0] != "#"]
    rows = [split_fields(text, "\t" in text) for text in lines]
    width, count = next(iter(Counter(map(len, rows)).most_common(1)), (1, 0))
    if width == 1 or 4 * count < 3 * len(rows):  # a ragged line is reported when it is read
        return False
    return all(ENTITY_TAG.fullmatch(row[-1]) for row in rows if len(row) == width) or is_conllu(source)


def is_headerless_conll(source: Source) -> bool:
    """Return whether a csv or tsv file has no header, and a word and its tag on each line."""
    rows = [row for _, row in source.rows[:SAMPLE_LINES]]
    tags = [list(row.values())[-1] for row in rows if row]
    texts = sum(" " in str(next(iter(row.values()), "")).strip() for row in rows)  # cells that are not words
    if source.file_format != "table" or len(source.columns) < 2 or 20 * texts > len(rows):
        return False
    names = [] if source.layout.columns else source.columns[-1:]  # numbered columns: the file has no header
    return all(isinstance(tag, str) and ENTITY_TAG.fullmatch(tag) for tag in [*names, *tags])


def is_conllu(source: Source) -> bool:
    rows = [text.split("\t") for _, text in source.lines[:SAMPLE_LINES] if text.strip() and text[0] != "#"]
    good = sum(len(row) == len(CONLLU_COLUMNS) and bool(_NUMBER.fullmatch(row[0])) for row in rows)
    return good > 0.8 * len(rows) or (good > 0 and source.path.lower().removesuffix(".gz").endswith(".conllu"))


def split_fields(text: str, tabs: bool) -> list[str]:
    """Split a line into columns at spaces and tabs only, since a word may be any other white space.

    >>> split_fields("New York\\tB-loc", True), split_fields("Paris  NNP B-loc ", False)
    (['New York', 'B-loc'], ['Paris', 'NNP', 'B-loc'])
    """
    return text.rstrip("\r").split("\t") if tabs else [x for x in re.split(r"[ \t]+", text.strip(" \t\r")) if x]


def read_conll(
    source: Source, columns: Mapping[str, str], findings: list[Finding], labeled: bool = True
) -> list[dict[str, Any]]:
    unknown = next((role for role in columns if role not in ROLES), None)
    if unknown is not None:
        raise UserError(f"unknown role {unknown!r}{nearest(unknown, list(ROLES))}", expected=", ".join(ROLES))
    if not labeled:
        columns = {role: name for role, name in columns.items() if role != "tag"}
    reader = _read_conllu if is_conllu(source) else _read_columns
    return list(reader(source, columns, findings, labeled))


# -------------------------------------------------------------------------------------------------- columns


def _read_columns(
    source: Source, columns: Mapping[str, str], findings: list[Finding], labeled: bool
) -> Iterator[dict[str, Any]]:
    token_lines = [text for _, text in source.lines if text.strip()]
    tabs = 2 * sum("\t" in text for text in token_lines) > len(token_lines)
    widths = Counter(len(split_fields(text, tabs)) for text in token_lines).most_common(1)
    width = widths[0][0] if widths else 2
    names = next((text.split("=", 1)[1].split() for text in token_lines[:1] if "global.columns" in text), [])
    word = column_index(columns.get("word", "1"), width, names, source)
    tag = column_index(columns.get("tag", str(width)), width, names, source) if labeled else -1
    if labeled and word == tag:
        message = "it has one column" if width < 2 else "the word and the tag are in the same column"
        expected = "a word, a tab and its tag on each line"
        raise UserError(f"{source.path}: {message}", expected=expected, hint="pass --column tag=N")
    sentences: list[list[Line]] = []
    for block in blocks(source):
        rows: list[Line] = []
        for line, text in block:
            row = split_fields(text, tabs)
            if row[0].startswith("-DOCSTART-"):
                continue
            if text.startswith("#") and not rows and (len(row) != width or re.match(r"#\s*\S+\s*=", text)):
                continue  # a comment; "#" with a tag is a word
            if len(row) != width and (labeled or len(row) <= word):  # without labels, a word is enough
                message = f"{len(row)} columns, but other lines have {width}: {text[:40]!r}"
                hint = f"write a word and its tag separated by {'a tab' if tabs else 'a space'}, an empty line after each sentence"
                findings.append(Finding(source.location(line), message, hint, kind="columns"))
            elif not row[word]:
                findings.append(Finding(source.location(line), "a tag without a word", "add the word", kind="no word"))
            elif tag >= 0 and not row[tag]:
                message = f"{row[word]!r} has no tag"
                findings.append(Finding(source.location(line), message, "add the tag", kind="no tag"))
            else:
                rows.append((line, [row[word], row[tag] if tag >= 0 else ""]))
        if rows:
            sentences.append(rows)
    sentences = _strip_positions(source, sentences, findings)
    with_spaces = not _is_character_level([row[0] for rows in sentences for _, row in rows])
    for rows in sentences:
        words = [row[0] for _, row in rows]
        text, spans = join_words(words, [with_spaces or needs_space(a, b) for a, b in pairwise(words)])
        yield _sentence(source, text, spans, [row[1] for _, row in rows] if tag >= 0 else None, [n for n, _ in rows])


def blocks(source: Source) -> Iterator[list[tuple[int, str]]]:
    """Yield runs of lines that are not blank. A line of tabs only is blank too."""
    block: list[tuple[int, str]] = []
    for line, text in source.lines:
        if text.strip(" \t\r\n"):
            block.append((line, text))
        elif block:
            yield block
            block = []
    if block:
        yield block


def column_index(name: str, width: int, names: Sequence[str], source: Source) -> int:
    """Return the 0-based index of a column, given its name or its number from 1 (negative numbers count from the end)."""
    lower = [other.lower() for other in names]
    if name.lower() in lower:
        return lower.index(name.lower())
    number = int(name) if re.fullmatch(r"-?\d+", name) else 0
    if not 1 <= abs(number) <= width:
        raise UserError(
            f"{source.path}: no column {name!r}{nearest(name.lower(), lower)}",
            expected=f"1 to {width}" + (f", or {', '.join(lower)}" if names else ""),
            hint="pass --column tag=N",
        )
    return number - 1 if number > 0 else width + number


def _strip_positions(source: Source, sentences: list[list[Line]], findings: list[Finding]) -> list[list[Line]]:
    """Remove the position in a segment that follows each character in some files (科0 技1 in Weibo NER)."""
    out: list[list[Line]] = []
    words = jumps = 0
    for rows in sentences:
        previous, stripped = -1, []
        for line, (word, tag) in rows:
            match = _WITH_POSITION.fullmatch(word)
            if not match:
                return sentences
            words, jumps = words + 1, jumps + (int(match[2]) not in (0, previous + 1))
            previous = int(match[2])
            stripped.append((line, [match[1], tag]))
        out.append(stripped)
    if words < 10 or jumps > 0.01 * words or not any(has_chinese(row[0]) for rows in out for _, row in rows):
        return sentences
    (line, (word, _)), (_, (character, _)) = sentences[0][0], out[0][0]
    message = f"every character is followed by its position in a segment ({word}), which is removed ({character})"
    findings.append(Finding(source.location(line), message, error=False, kind="segments"))
    return out


def _is_character_level(words: Sequence[str]) -> bool:
    """Return whether the words are characters of Chinese text: nearly all have length 1, and enough are Chinese."""
    single = sum(len(word) == 1 or set(word) == {"\ufffd"} for word in words)
    chinese = sum(map(has_chinese, words))
    letters = sum(word.isalpha() for word in words)
    return chinese > 0 and single >= 0.95 * len(words) and 3 * chinese >= letters


def needs_space(a: str, b: str) -> bool:
    """Return whether two words of Chinese text need a space between them, because they are Latin words or numbers."""
    return len(a) + len(b) > 2 and (a[-1] + b[0]).isascii() and (a[-1] + b[0]).isalnum()


def join_words(words: Sequence[str], spaces: Sequence[bool]) -> tuple[str, list[list[int]]]:
    """Return the text and the span of each word. `spaces`: whether a space follows each word, except the last one.

    >>> join_words(["It", "'s", "me"], [False, True])
    ("It's me", [[0, 2], [2, 4], [5, 7]])
    """
    parts, spans, end = [], [], 0
    for n, word in enumerate(words):
        spans.append([end, end + len(word)])
        space = " " if n < len(words) - 1 and spaces[n] else ""
        parts += [word, space]
        end += len(word) + len(space)
    return "".join(parts), spans


def _sentence(
    source: Source, text: str, spans: list[list[int]], tags: list[str] | None, lines: list[int]
) -> dict[str, Any]:
    sentence: dict[str, Any] = {"location": source.location(lines[0]), "text": text, "words": spans, "lines": lines}
    return sentence if tags is None else sentence | {"tags": tags}


# -------------------------------------------------------------------------------------------------- CoNLL-U


def _read_conllu(
    source: Source, columns: Mapping[str, str], findings: list[Finding], labeled: bool
) -> Iterator[dict[str, Any]]:
    width = len(CONLLU_COLUMNS)
    word, tag = (
        column_index(columns.get(role, default), width, CONLLU_COLUMNS, source)
        for role, default in zip(ROLES, ("form", "upos"))
    )
    for block in blocks(source):
        rows: list[tuple[str, str, int, bool]] = []  # word, tag, line, whether a space follows
        remaining = 0  # words of a multiword token that are still to come
        for line, row in ((line, text.split("\t")) for line, text in block if not text.startswith("#")):
            location = source.location(line)
            if len(row) != width or not _NUMBER.fullmatch(row[0]):
                count = f"{len(row)} columns; CoNLL-U has {width}"
                message = count if len(row) != width else f"the id {row[0]!r} is not a number"
                hint = "separate the columns with tabs and write _ for an empty one"
                findings.append(Finding(location, message, hint, kind="columns"))
                continue
            if "." in row[0]:  # an empty node, which is not in the text
                continue
            space = "SpaceAfter=No" not in row[9].split("|")
            if "-" in row[0]:
                first, last = map(int, row[0].split("-"))
                remaining, start = last - first + 1, len(rows)
                multiword = (row[word], "", line, space)
                continue
            if labeled and row[tag] == "_" != row[word]:
                message = f"{row[word]!r} has no {CONLLU_COLUMNS[tag]}"
                findings.append(Finding(location, message, "add the tag", kind="no tag"))
            rows.append((row[word], row[tag], line, space and not remaining))
            if remaining:
                remaining -= 1
                if not remaining:
                    rows[-1] = (*rows[-1][:3], multiword[3])
                    # "du" = "de" + "le" is one word with both tags
                    if "".join(row[0] for row in rows[start:]) != multiword[0]:
                        both = "+".join(row[1] for row in rows[start:])
                        rows[start:] = [(multiword[0], both, *multiword[2:])]
        if rows:
            words, tags, lines, spaces = map(list, zip(*rows))
            text, spans = _conllu_text(source, block, words, spaces, lines[0], findings)
            yield _sentence(source, text, spans, tags if labeled else None, lines)


def _conllu_text(
    source: Source,
    block: Sequence[tuple[int, str]],
    words: list[str],
    spaces: list[bool],
    line: int,
    findings: list[Finding],
) -> tuple[str, list[list[int]]]:
    """Return the text of a sentence, from `# text =` if its words are the same, and the span of each word."""
    comment = next((text.split("=", 1)[1].strip() for _, text in block if re.match(r"#\s*text\s*=", text)), None)
    joined = join_words(words, spaces)
    if comment is None or comment == joined[0]:
        return joined
    spans = find_words(comment, words)
    if spans is not None:
        return comment, spans
    message = f"the words differ from # text = {comment[:40]}"
    findings.append(Finding(source.location(line), message, "the comment is ignored", error=False, kind="text"))
    return joined


def find_words(text: str, words: Sequence[str]) -> list[list[int]] | None:
    """Return the spans of consecutive words in a text, or None if it has anything but white space between them.

    >>> find_words("It's  me", ["It", "'s", "me"]), find_words("It is", ["It", "'s"])
    ([[0, 2], [2, 4], [6, 8]], None)
    """
    spans, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            return None
        end = start + len(word)
        spans.append([start, end])
    return None if text[end:].strip() else spans
