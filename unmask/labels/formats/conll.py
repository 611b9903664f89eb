"""Files with a word per line: CoNLL columns and CoNLL-U, → sentences with their text and the place of each word in it.

| form        | words                                    | text                                                          |
|-------------|------------------------------------------|---------------------------------------------------------------|
| columns     | first column, tag in the last one        | words with blanks between; Chinese characters without any     |
| CoNLL-U     | FORM, tag in UPOS, 1-2 and 1.1 as it says | `# text =`, else words with blanks but after SpaceAfter=No    |

A sentence is {"location", "text", "words": [[start, end], …], "tags": […], "lines": […]}; `lines` is for telling where a tag is wrong.
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
MAX_LINES = 400  # lines
_NUMBER = re.compile(r"\d+(-\d+|\.\d+)?")
_PLACE = re.compile(r"(.{1,2}?)(\d+)", re.S)
Line = tuple[int, list[str]]  # number, fields


def is_conll(source: Source) -> bool:
    """Whether a file has a word and its tag on each line, by its name or by its first lines."""
    if source.file_format != "text":
        return False
    if source.path.lower().removesuffix(".gz").endswith(CONLL_SUFFIXES):
        return True
    rows = [split_fields(text, "\t" in text) for _, text in source.lines[:MAX_LINES] if text.strip() and text[0] != "#"]
    width, count = next(iter(Counter(map(len, rows)).most_common(1)), (1, 0))
    if width == 1 or 4 * count < 3 * len(rows):  # a ragged line is reported when it is read
        return False
    return all(ENTITY_TAG.fullmatch(row[-1]) for row in rows if len(row) == width) or is_conllu(source)


def is_headerless_conll(source: Source) -> bool:
    """Whether a csv or tsv has no header but a word and its tag from its first line on."""
    tags = [list(row.values())[-1] for _, row in source.rows[:MAX_LINES] if row]
    texts = sum(" " in str(next(iter(row.values()), "")).strip() for _, row in source.rows[:MAX_LINES])
    if (
        source.file_format != "table" or len(source.columns) < 2 or 20 * texts > len(source.rows[:MAX_LINES])
    ):  # no words
        return False
    names = [] if source.layout.columns else source.columns[-1:]  # numbered ones are not in the file
    return all(isinstance(tag, str) and ENTITY_TAG.fullmatch(tag) for tag in [*names, *tags])


def is_conllu(source: Source) -> bool:
    rows = [text.split("\t") for _, text in source.lines[:MAX_LINES] if text.strip() and text[0] != "#"]
    good = sum(len(row) == len(CONLLU_COLUMNS) and bool(_NUMBER.fullmatch(row[0])) for row in rows)
    return good > 0.8 * len(rows) or (good > 0 and source.path.lower().endswith(".conllu"))


def split_fields(text: str, tabs: bool) -> list[str]:
    """A line's columns; blanks and tabs alone part them, as a word may be any other white space.

    >>> split_fields("New York\\tB-loc", True), split_fields("Paris  NNP B-loc ", False)
    (['New York', 'B-loc'], ['Paris', 'NNP', 'B-loc'])
    """
    return text.rstrip("\r").split("\t") if tabs else [x for x in re.split(r"[ \t]+", text.strip(" \t\r")) if x]


def read_conll(
    source: Source, columns: Mapping[str, str], findings: list[Finding], labeled: bool = True
) -> list[dict[str, Any]]:
    unknown = next((role for role in columns if role not in ROLES), None)
    if unknown is not None:
        raise UserError(f"no role {unknown!r}{nearest(unknown, list(ROLES))}", expected=", ".join(ROLES))
    if not labeled:
        columns = {role: name for role, name in columns.items() if role != "tag"}
    reader = _read_conllu if is_conllu(source) else _columns
    return list(reader(source, columns, findings, labeled))


# -------------------------------------------------------------------------------------------------- columns


def _columns(
    source: Source, given: Mapping[str, str], findings: list[Finding], labeled: bool
) -> Iterator[dict[str, Any]]:
    token_lines = [text for _, text in source.lines if text.strip()]
    tabs = 2 * sum("\t" in text for text in token_lines) > len(token_lines)
    usual = Counter(len(split_fields(text, tabs)) for text in token_lines).most_common(1)
    width = usual[0][0] if usual else 2
    names = next((text.split("=", 1)[1].split() for text in token_lines[:1] if "global.columns" in text), [])
    word = column_index(given.get("word", "1"), width, names, source)
    tag = column_index(given.get("tag", str(width)), width, names, source) if labeled else -1
    if labeled and word == tag:
        what = (
            "there is one column; a word and its tag are expected" if width < 2 else "word and tag are the same column"
        )
        raise UserError(
            f"{source.path}: {what}", expected="a word, a tab and its tag on each line", hint="--column tag=N"
        )
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
                what = f"{len(row)} columns, the other lines have {width}: {text[:40]!r}"
                hint = f"a word and its tag separated by {'a tab' if tabs else 'a space'}, an empty line after each sentence"
                findings.append(Finding(source.location(line), what, hint, kind="columns"))
            elif not row[word]:
                findings.append(Finding(source.location(line), "a tag without a word", "add the word", kind="no word"))
            elif tag >= 0 and not row[tag]:
                findings.append(
                    Finding(source.location(line), f"{row[word]!r} has no tag", "add the tag", kind="no tag")
                )
            else:
                rows.append((line, [row[word], row[tag] if tag >= 0 else ""]))
        if rows:
            sentences.append(rows)
    sentences = _without_places(source, sentences, findings)
    apart = not _by_character([row[0] for rows in sentences for _, row in rows])
    for rows in sentences:
        words = [row[0] for _, row in rows]
        text, spans = join_words(words, [apart or needs_space(a, b) for a, b in pairwise(words)])
        yield _sentence(source, text, spans, [row[1] for _, row in rows] if tag >= 0 else None, [n for n, _ in rows])


def blocks(source: Source) -> Iterator[list[tuple[int, str]]]:
    """Runs of lines that are not blank. A line of tabs alone is blank too."""
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
    """The column of a name or a number, counted from 1 (from the end when below 0); counted from 0 in the answer."""
    lower = [known.lower() for known in names]
    if name.lower() in lower:
        return lower.index(name.lower())
    number = int(name) if re.fullmatch(r"-?\d+", name) else 0
    if not 1 <= abs(number) <= width:
        raise UserError(
            f"{source.path}: no column {name!r}{nearest(name.lower(), lower)}",
            expected=f"1 to {width}" + (f", or {', '.join(lower)}" if names else ""),
            hint="--column tag=N",
        )
    return number - 1 if number > 0 else width + number


def _without_places(source: Source, sentences: list[list[Line]], findings: list[Finding]) -> list[list[Line]]:
    """Characters that carry their place in a segment (科0 技1, as Weibo's) without it."""
    out: list[list[Line]] = []
    words = jumps = 0
    for rows in sentences:
        last, bare = -1, []
        for line, (word, tag) in rows:
            match = _PLACE.fullmatch(word)
            if not match:
                return sentences
            words, jumps = words + 1, jumps + (int(match[2]) not in (0, last + 1))
            last = int(match[2])
            bare.append((line, [match[1], tag]))
        out.append(bare)
    if words < 10 or jumps > 0.01 * words or not any(has_chinese(row[0]) for rows in out for _, row in rows):
        return sentences
    (line, (word, _)), (_, (character, _)) = sentences[0][0], out[0][0]
    what = f"every character is followed by its position in a segment ({word}); the position is removed ({character})"
    findings.append(Finding(source.location(line), what, error=False, kind="segments"))
    return out


def _by_character(words: Sequence[str]) -> bool:
    """Whether the words are characters of Chinese text: nearly all of one character, most of them Chinese."""
    single = sum(len(word) == 1 or set(word) == {"\ufffd"} for word in words)
    chinese = sum(map(has_chinese, words))
    letters = sum(word.isalpha() for word in words)
    return chinese > 0 and single >= 0.95 * len(words) and 3 * chinese >= letters


def needs_space(a: str, b: str) -> bool:
    """Between two words of Chinese text: only where Latin words would run together."""
    return len(a) + len(b) > 2 and (a[-1] + b[0]).isascii() and (a[-1] + b[0]).isalnum()


def join_words(words: Sequence[str], blanks: Sequence[bool]) -> tuple[str, list[list[int]]]:
    """The text and the place of each word; `blanks` says after which of them, but the last, a blank stands.

    >>> join_words(["It", "'s", "me"], [False, True])
    ("It's me", [[0, 2], [2, 4], [5, 7]])
    """
    parts, spans, at = [], [], 0
    for n, word in enumerate(words):
        spans.append([at, at + len(word)])
        blank = " " if n < len(words) - 1 and blanks[n] else ""
        parts += [word, blank]
        at += len(word) + len(blank)
    return "".join(parts), spans


def _sentence(
    source: Source, text: str, spans: list[list[int]], tags: list[str] | None, lines: list[int]
) -> dict[str, Any]:
    sentence: dict[str, Any] = {"location": source.location(lines[0]), "text": text, "words": spans, "lines": lines}
    return sentence if tags is None else sentence | {"tags": tags}


# -------------------------------------------------------------------------------------------------- CoNLL-U


def _read_conllu(
    source: Source, given: Mapping[str, str], findings: list[Finding], labeled: bool
) -> Iterator[dict[str, Any]]:
    width = len(CONLLU_COLUMNS)
    word, tag = (
        column_index(given.get(role, usual), width, CONLLU_COLUMNS, source)
        for role, usual in zip(ROLES, ("form", "upos"))
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
                    if (
                        "".join(row[0] for row in rows[start:]) != multiword[0]
                    ):  # "du" = "de" + "le": one word, both tags
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
    """Where the words stand in a text, one after the other with nothing but white space between; None when they do not.

    >>> find_words("It's  me", ["It", "'s", "me"]), find_words("It is", ["It", "'s"])
    ([[0, 2], [2, 4], [6, 8]], None)
    """
    spans, at = [], 0
    for word in words:
        start = text.find(word, at)
        if start < 0 or text[at:start].strip():
            return None
        at = start + len(word)
        spans.append([start, at])
    return None if text[at:].strip() else spans
