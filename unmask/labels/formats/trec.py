"""Files of a search collection: passages, queries, judgements (TREC qrels) and runs.

Passages and queries: csv, tsv (with or without a header), jsonl with an id and a text (BEIR's too), "id<tab>text" lines, plain lines
(the id is the line's number), or TREC's XML. Judgements: `query 0 passage relevance` lines, or a table with a header (BEIR). A run is
what a search found: `query Q0 passage rank score name` lines.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unmask.labels.records import Finding, Source, open_source, parse_text
from unmask.text.columns import map_columns

TITLE = ("title",)
TEXT = ("text", "passage", "query", "question", "contents", "content", "body", "document", "sentence", "abstract", "review", "comment", "tweet", "message", "post")  # fmt: skip
ID = ("_id", "id", "query_id", "qid", "passage_id", "doc_id", "docid", "docno", "pid", "num")
QRELS_COLUMNS = {
    "query": ("query_id", "query-id", "qid"),
    "passage": ("passage_id", "corpus-id", "corpus_id", "doc_id", "docid", "docno", "pid"),
    "relevance": ("relevance", "score", "label", "rel", "grade"),
}
LOOKED_AT = 200  # rows sampled to distinguish ids from texts
LINE = re.compile(r"\s+")


class Judgment(NamedTuple):
    location: str  # file:line
    query: str
    passage: str
    relevance: float


def read_texts(path: str, findings: list[Finding], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Id → text, of passages or of queries. `given`: names of columns, by role (id, title, text)."""
    found: list[Finding] = []
    source = open_source(path, found, columns=dict(given or {}))
    alone = source.empty and _headless(source)  # the first line is all there is, and it is a text
    usual = ("header", "layout", "empty") if alone else ("header", "layout")  # no line of names is needed here
    findings += [finding for finding in found if finding.kind not in usual]
    if source.file_format == "table":
        pairs = _table(source, findings, dict(given or {}))
    else:
        whole = "\n".join(line for _, line in source.lines)
        pairs = _xml(whole, source.path) if re.match(r"\s*<(\?xml|doc|top|DOC|TOP)\b", whole) else _lines(source)
    out: dict[str, str] = {}
    for at, name, text in pairs:
        if name in out:
            findings.append(Finding(at, f"the id {name!r} occurs twice", "give each text a unique id"))
        out[name] = text
    return out


def _headless(source: Source) -> bool:
    """Whether the first line is an id and a text instead of a header, as in MS MARCO's tsv. Ids are not longer than texts."""
    if len(source.columns) != 2 or source.names & set(TEXT):
        return False
    rows = [dict(zip(source.columns, source.columns)), *(row for _, row in source.rows[:LOOKED_AT])]
    first, second = (sum(len(str(row.get(name) or "")) for row in rows) for name in source.columns)
    return first <= second


def _table(source: Source, findings: list[Finding], given: dict[str, str]) -> list[tuple[str, str, str]]:
    if not given and _headless(source):
        first = [] if source.layout.columns else [(1, dict(zip(source.columns, source.columns)))]
        rows = [*first, *source.rows]
        columns = dict(zip(("id", "text"), source.columns))
    else:
        rows = source.rows
        columns = map_columns(source.columns, {"id": ID, "title": TITLE, "text": TEXT}, given, ("text",), source.path)
    out = []
    for number, (line, row) in enumerate(rows, 1):
        at = source.location(line)
        text = parse_text(row.get(columns["text"]), at, "text", findings)
        title = str(row.get(columns.get("title", "")) or "")
        name = row.get(columns["id"]) if "id" in columns else number
        out.append((at, str(name).strip(), join_title(title, text)))
    return out


def join_title(title: str, text: str) -> str:
    """A title before its text, unless the text begins with it.

    >>> join_title("Wings", "Wings and flow"), join_title("Wings", "On flow")
    ('Wings and flow', 'Wings On flow')
    """
    return text if not title or text.startswith(title) else f"{title} {text}"


def _xml(whole: str, path: str) -> list[tuple[str, str, str]]:
    """<doc><docno>1</docno><text>…</text></doc> and <top><num>1</num><title>…</title></top>, as TREC has them: no root needed."""
    out: list[tuple[str, str, str]] = []
    for block in re.finditer(r"<(doc|top)\b[^>]*>(.*?)</\1>", whole, re.S | re.I):
        parts = {
            tag.lower(): " ".join(html.unescape(value).split())
            for tag, value in re.findall(r"<(\w+)>(.*?)</\1>", block[2], re.S)
        }
        name = parts.get("docno") or parts.get("num") or parts.get("id") or str(len(out) + 1)
        text = join_title(parts.get("title", ""), parts.get("text", "") or parts.get("desc", ""))
        line = whole.count("\n", 0, block.start()) + 1
        out.append((f"{path}:{line}", name.removeprefix("Number:").strip(), text.strip()))
    return out


def _lines(source: Source) -> list[tuple[str, str, str]]:
    lines = [(source.location(n), n, line.strip()) for n, line in source.lines if line.strip()]
    if all("\t" in line for _, _, line in lines):
        return [(at, *(part.strip() for part in line.split("\t", 1))) for at, _, line in lines]  # type: ignore[misc]
    return [(at, str(n), line) for at, n, line in lines]


def is_qrels(source: Source) -> bool:
    """Whether a file holds judgements: lines of four fields (query, 0, passage, whole number), or BEIR's header."""
    if source.file_format == "table":
        names = source.names
        return "query" not in names and all(
            names & set(QRELS_COLUMNS[role]) for role in ("query", "passage", "relevance")
        )
    looked_at = [LINE.split(line.strip()) for _, line in source.lines[:20] if line.strip()]
    fields = [f for f in looked_at if len(f) == 4 and re.fullmatch(r"-?\d+", f[3])]
    if not fields or 4 * len(fields) < 3 * len(looked_at):  # a bad line is reported when it is read
        return False
    second = {f[1].lower() for f in fields}  # the iteration, which nobody uses: the same on every line
    return len(second) == 1 and (second <= {"0", "q0"} or (len(fields) > 2 and second.pop().isdecimal()))


def read_qrels(source: Source, findings: list[Finding]) -> list[Judgment]:
    if source.file_format == "table":
        columns = map_columns(source.columns, QRELS_COLUMNS, {}, tuple(QRELS_COLUMNS), source.path)
        rows = [(line, [str(row.get(columns[role], "")) for role in QRELS_COLUMNS]) for line, row in source.rows]
    else:
        rows = []
        for line, text in source.lines:
            fields = LINE.split(text.strip())
            if len(fields) == 4:
                rows.append((line, [fields[0], fields[2], fields[3]]))
            elif text.strip():
                what = f"{len(fields)} fields, not 4: {text.strip():.40}"
                findings.append(Finding(source.location(line), what, "write: query 0 passage relevance"))
    out = []
    for line, (query, passage, grade) in rows:
        try:
            out.append(Judgment(source.location(line), query.strip(), passage.strip(), float(grade)))
        except ValueError:
            findings.append(Finding(source.location(line), f"relevance {grade!r} is not a number", "write 0, 1, 2 …"))
    return out


def read_run(path: str, findings: list[Finding]) -> dict[str, dict[str, float]]:
    """Query → passage → score."""
    source, out = open_source(path, findings), {}  # type: ignore[var-annotated]
    for line, text in source.lines:
        fields = LINE.split(text.strip())
        try:
            out.setdefault(fields[0], {})[fields[2]] = float(fields[4])
        except (IndexError, ValueError):
            if text.strip():
                findings.append(
                    Finding(
                        source.location(line), f"not a line of a run: {text:.40}", "query Q0 passage rank score name"
                    )
                )
    return out


def queries_by_position(asked: Sequence[str], queries: dict[str, str]) -> dict[str, str] | None:
    """The queries by their place in the file, where judgements count them so (Cranfield's do); None where they do not.

    >>> queries_by_position(["1", "2"], {"1": "wings", "4": "flow"})
    {'1': 'wings', '2': 'flow'}
    >>> queries_by_position(["1", "4"], {"1": "wings", "4": "flow"}) is None
    True
    """
    placed = {str(n): text for n, text in enumerate(queries.values(), 1)}
    return placed if not set(asked) <= set(queries) and set(asked) <= set(placed) else None
