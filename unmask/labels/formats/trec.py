"""Read the files of a search collection: passages, queries, relevance judgments (TREC qrels) and runs.

Passages and queries: csv, tsv (with or without a header), jsonl with an id and a text (as in BEIR), "id<tab>text" lines, plain lines
(the id is the line number), or TREC XML. Judgments: `query 0 passage relevance` lines, or a table with a header (BEIR). A run, the
results of a search: `query Q0 passage rank score name` lines.
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
SAMPLE_ROWS = 200  # used to distinguish ids from texts
WHITE_SPACE = re.compile(r"\s+")


class Judgment(NamedTuple):
    location: str  # file:line
    query: str
    passage: str
    relevance: float


def read_texts(path: str, findings: list[Finding], columns: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return id → text of passages or queries. `columns`: role (id, title, text) → column name or number."""
    file_findings: list[Finding] = []
    source = open_source(path, file_findings, columns=dict(columns or {}))
    only_one_line = source.empty and _is_headerless(source)  # the only line is a text, not a header
    ignored = ("header", "layout", "empty") if only_one_line else ("header", "layout")  # a header is optional here
    findings += [finding for finding in file_findings if finding.kind not in ignored]
    if source.file_format == "table":
        items = _read_table(source, findings, dict(columns or {}))
    else:
        content = "\n".join(line for _, line in source.lines)
        is_xml = re.match(r"\s*<(\?xml|doc|top|DOC|TOP)\b", content)
        items = _read_xml(content, source.path) if is_xml else _read_lines(source)
    texts: dict[str, str] = {}
    for location, key, text in items:
        if key in texts:
            findings.append(Finding(location, f"the id {key!r} occurs twice", "give each text a unique id"))
        texts[key] = text
    return texts


def _is_headerless(source: Source) -> bool:
    """Return whether the first line is an id and a text instead of a header, as in MS MARCO's tsv. Ids are not longer than texts."""
    if len(source.columns) != 2 or source.names & set(TEXT):
        return False
    rows = [dict(zip(source.columns, source.columns)), *(row for _, row in source.rows[:SAMPLE_ROWS])]
    first, second = (sum(len(str(row.get(name) or "")) for row in rows) for name in source.columns)
    return first <= second


def _read_table(source: Source, findings: list[Finding], chosen_columns: dict[str, str]) -> list[tuple[str, str, str]]:
    if not chosen_columns and _is_headerless(source):
        first = [] if source.layout.columns else [(1, dict(zip(source.columns, source.columns)))]
        rows = [*first, *source.rows]
        columns = dict(zip(("id", "text"), source.columns))
    else:
        rows = source.rows
        columns = map_columns(
            source.columns, {"id": ID, "title": TITLE, "text": TEXT}, chosen_columns, ("text",), source.path
        )
    out = []
    for number, (line, row) in enumerate(rows, 1):
        location = source.location(line)
        text = parse_text(row.get(columns["text"]), location, "text", findings)
        title = str(row.get(columns.get("title", "")) or "")
        key = row.get(columns["id"]) if "id" in columns else number
        out.append((location, str(key).strip(), join_title(title, text)))
    return out


def join_title(title: str, text: str) -> str:
    """Prepend a title to its text, unless the text starts with it.

    >>> join_title("Wings", "Wings and flow"), join_title("Wings", "On flow")
    ('Wings and flow', 'Wings On flow')
    """
    return text if not title or text.startswith(title) else f"{title} {text}"


def _read_xml(content: str, path: str) -> list[tuple[str, str, str]]:
    """Parse <doc><docno>1</docno><text>…</text></doc> and <top><num>1</num><title>…</title></top>, as in TREC: without a root element."""
    out: list[tuple[str, str, str]] = []
    for block in re.finditer(r"<(doc|top)\b[^>]*>(.*?)</\1>", content, re.S | re.I):
        elements = {
            tag.lower(): " ".join(html.unescape(value).split())
            for tag, value in re.findall(r"<(\w+)>(.*?)</\1>", block[2], re.S)
        }
        key = elements.get("docno") or elements.get("num") or elements.get("id") or str(len(out) + 1)
        text = join_title(elements.get("title", ""), elements.get("text", "") or elements.get("desc", ""))
        line = content.count("\n", 0, block.start()) + 1
        out.append((f"{path}:{line}", key.removeprefix("Number:").strip(), text.strip()))
    return out


def _read_lines(source: Source) -> list[tuple[str, str, str]]:
    lines = [(source.location(n), n, line.strip()) for n, line in source.lines if line.strip()]
    if all("\t" in line for _, _, line in lines):
        return [(location, *(part.strip() for part in line.split("\t", 1))) for location, _, line in lines]  # type: ignore[misc]
    return [(location, str(n), line) for location, n, line in lines]


def is_qrels(source: Source) -> bool:
    """Return whether a file has judgments: lines with four fields (query, 0, passage, integer), or BEIR's header."""
    if source.file_format == "table":
        names = source.names
        return "query" not in names and all(
            names & set(QRELS_COLUMNS[role]) for role in ("query", "passage", "relevance")
        )
    sample = [WHITE_SPACE.split(line.strip()) for _, line in source.lines[:20] if line.strip()]
    fields = [f for f in sample if len(f) == 4 and re.fullmatch(r"-?\d+", f[3])]
    if not fields or 4 * len(fields) < 3 * len(sample):  # a bad line is reported when it is read
        return False
    second = {f[1].lower() for f in fields}  # the iteration, an unused field with the same value on every line
    return len(second) == 1 and (second <= {"0", "q0"} or (len(fields) > 2 and second.pop().isdecimal()))


def read_qrels(source: Source, findings: list[Finding]) -> list[Judgment]:
    if source.file_format == "table":
        columns = map_columns(source.columns, QRELS_COLUMNS, {}, tuple(QRELS_COLUMNS), source.path)
        rows = [(line, [str(row.get(columns[role], "")) for role in QRELS_COLUMNS]) for line, row in source.rows]
    else:
        rows = []
        for line, text in source.lines:
            fields = WHITE_SPACE.split(text.strip())
            if len(fields) == 4:
                rows.append((line, [fields[0], fields[2], fields[3]]))
            elif text.strip():
                message = f"{len(fields)} fields instead of 4: {text.strip():.40}"
                findings.append(Finding(source.location(line), message, "write: query 0 passage relevance"))
    judgments = []
    for line, (query, passage, grade) in rows:
        try:
            judgments.append(Judgment(source.location(line), query.strip(), passage.strip(), float(grade)))
        except ValueError:
            findings.append(Finding(source.location(line), f"relevance {grade!r} is not a number", "write 0, 1, 2 …"))
    return judgments


def read_run(path: str, findings: list[Finding]) -> dict[str, dict[str, float]]:
    """Return query → passage → score."""
    source, run = open_source(path, findings), {}  # type: ignore[var-annotated]
    for line, text in source.lines:
        fields = WHITE_SPACE.split(text.strip())
        try:
            run.setdefault(fields[0], {})[fields[2]] = float(fields[4])
        except (IndexError, ValueError):
            if text.strip():
                message, hint = f"not a line of a run: {text:.40}", "write: query Q0 passage rank score name"
                findings.append(Finding(source.location(line), message, hint))
    return run


def queries_by_position(query_ids: Sequence[str], queries: dict[str, str]) -> dict[str, str] | None:
    """Return the queries by their position in the file if the judgments refer to positions (as in Cranfield), else None.

    `query_ids`: the query ids of the judgments.

    >>> queries_by_position(["1", "2"], {"1": "wings", "4": "flow"})
    {'1': 'wings', '2': 'flow'}
    >>> queries_by_position(["1", "4"], {"1": "wings", "4": "flow"}) is None
    True
    """
    by_position = {str(n): text for n, text in enumerate(queries.values(), 1)}
    return by_position if not set(query_ids) <= set(queries) and set(query_ids) <= set(by_position) else None
