"""Read files of queries and relevant passages: one record per query. `task.py` lists the formats."""

from collections.abc import Mapping, Sequence
from typing import Any

from unmask.errors import UserError
from unmask.labels.data_format import DataFormat, parse_number
from unmask.labels.fields import Field, assign_columns, file_fields, usual_columns
from unmask.labels.formats.trec import is_qrels, queries_by_position, read_qrels, read_run, read_texts
from unmask.labels.records import Finding, Record, Source, parse_text, table_rows
from unmask.recipe import TaskRecipe
from unmask.seeds import permute, stable_seed

FIELDS = (
    Field("query", ("query", "question", "search")),
    Field("query_id", ("query_id", "qid", "query-id"), "id", "other"),
    Field("passage", ("passage", "document", "doc", "text", "answer"), "text", "other"),
    Field("passage_id", ("passage_id", "doc_id", "docid", "docno", "pid", "corpus-id"), "id", "other"),
    Field("relevance", ("relevance", "label", "score", "rel", "grade"), "grades", "target"),
    Field("positives", ("positives", "positive", "pos"), "texts", "other"),
    Field("negatives", ("negatives", "negative", "neg"), "texts", "other"),
    Field("queries", (), "file", "other"),
    Field("passages", ("passages",), "texts", caption="PASSAGE", or_file=True),
    Field("candidates", (), "file", "other"),
)


class RankForm(DataFormat):
    fields = FIELDS

    def matches(self, source: Source) -> bool:
        names = source.names
        if source.file_format == "table" and "query" in names:
            return bool("positives" in names or {"pos", "neg"} <= names or "passages" in names or (
                names & {"passage", "document", "doc"} and names & set(usual_columns(self.fields)["relevance"])))  # fmt: skip
        return source.file_format in ("text", "table") and is_qrels(source)

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        if {"queries", "candidates"} & set(settings.columns) or is_qrels(source):
            return _read_qrels(source, settings, findings)
        columns = assign_columns(FIELDS, source, settings, ("query",))
        if "positives" in columns and "passage" not in columns:
            return _read_positives(source, columns, settings, findings, labeled)
        if "passages" in columns:
            return _read_passage_lists(source, columns, settings, findings, labeled)
        return _read_pairs(source, settings, findings, labeled)


def _read_pairs(source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool) -> list[Record]:
    """Read a table with a row per query and passage; the rows of a query become one record."""
    needed = ("query", "passage", *(("relevance",) if labeled else ()))
    columns = assign_columns(FIELDS, source, settings, needed)
    records: dict[str, Record] = {}
    for location, row in table_rows(source, "csv, tsv, jsonl or parquet with the columns query, passage and relevance"):
        query = parse_text(row.get(columns["query"]), location, "query", findings)
        key = str(row.get(columns["query_id"])) if "query_id" in columns else query
        record = records.setdefault(key, {"location": location, "query": query, "passages": [], "relevance": []})
        if query != record["query"]:
            message = f"the query with the id {key!r} differs from the one at {record['location']}"
            findings.append(Finding(location, message, "give every query a unique id", kind="query"))
        record["passages"].append(parse_text(row.get(columns["passage"]), location, "passage", findings))
        if "passage_id" in columns:
            record.setdefault("ids", []).append(str(row.get(columns["passage_id"])))
        if "relevance" in columns:
            grade = _parse_grade(row.get(columns["relevance"]), location, findings) if labeled else 0.0
            record["relevance"].append(grade)
    if labeled:
        _check_grades(list(records.values()), settings.rank.candidate_pool_size, findings)
    return list(records.values())


def _read_passage_lists(
    source: Source, columns: Mapping[str, str], settings: TaskRecipe, findings: list[Finding], labeled: bool
) -> list[Record]:
    """Read a file with a row per query: a list of passages, and a list of their relevances."""
    records = []
    for location, row in table_rows(source, "jsonl"):
        passages = _parse_texts(row.get(columns["passages"]), location, "passage", findings)
        values = row.get(columns.get("relevance", ""))
        grades = [_parse_grade(v, location, findings) for v in values] if labeled and isinstance(values, list) else []
        if labeled and len(grades) != len(passages):
            message = f"{len(passages)} passages, but {len(grades)} relevances"
            findings.append(Finding(location, message, "give one relevance per passage", kind="relevance"))
            grades = [0.0] * len(passages)
        query = parse_text(row.get(columns["query"]), location, "query", findings)
        records.append({"location": location, "query": query, "passages": passages, "relevance": grades})
    if labeled:
        _check_grades(records, settings.rank.candidate_pool_size, findings)
    return records


def _read_positives(
    source: Source, columns: Mapping[str, str], settings: TaskRecipe, findings: list[Finding], labeled: bool
) -> list[Record]:
    """Read a file with a row per query: a list of relevant passages, and optionally one of passages that are not."""
    records: list[Record] = []
    without_negatives: list[Record] = []
    for location, row in table_rows(source, "jsonl"):
        query = parse_text(row.get(columns["query"]), location, "query", findings)
        positives = _parse_texts(row.get(columns["positives"]), location, "positive", findings)
        negatives = _parse_texts(row.get(columns.get("negatives", "")) or [], location, "negative", findings)
        grades = [float(labeled)] * len(positives) + [0.0] * len(negatives)
        record = {"location": location, "query": query, "passages": positives + negatives, "relevance": grades}
        records.append(record)
        if not negatives:
            without_negatives.append(record)
    if labeled:
        passages: dict[str, str] = {p: p for r in records for p in r["passages"]}
        _add_random_passages(without_negatives, passages, settings.rank.candidate_pool_size, findings)
        _warn_equal_grades(records, findings)
    return records


def _read_qrels(source: Source, settings: TaskRecipe, findings: list[Finding]) -> list[Record]:
    """Read TREC relevance judgments; the queries and passages that their ids refer to are in other files."""
    files = settings.columns
    missing = next((role for role in ("queries", "passages") if role not in files), None)
    if missing:
        raise UserError(
            f"{source.path} contains relevance judgments by id, and the {missing} are in another file",
            hint="--column queries=FILE --column passages=FILE (csv, tsv, jsonl, lines or TREC's xml)",
        )
    unknown = sorted(set(files) - set(file_fields(FIELDS)))
    if unknown:
        raise UserError(
            f"--column {unknown[0]}=… cannot be used with relevance judgments by id",
            expected=", ".join(file_fields(FIELDS)),
        )
    queries, passages = read_texts(files["queries"], findings), read_texts(files["passages"], findings)
    run = read_run(files["candidates"], findings) if "candidates" in files else {}
    judgments = read_qrels(source, findings)
    renumbered = queries_by_position([j.query for j in judgments], queries)
    if renumbered is not None:
        message = (
            "some query ids are not in the file of queries, so all ids are read as positions in it, counted from 1"
        )
        findings.append(Finding(f"{source.path}:1", message, error=False, kind="place"))
        queries = renumbered
    records: dict[str, Record] = {}
    judged: set[tuple[str, str]] = set()
    for j in judgments:
        unknown_role = "query" if j.query not in queries else "passage" if j.passage not in passages else ""
        if unknown_role:
            message = f"no {unknown_role} has the id {getattr(j, unknown_role)!r}; the judgment is ignored"
            findings.append(Finding(j.location, message, error=False, kind=f"no such {unknown_role}"))
            continue
        record = records.setdefault(
            j.query, {"location": j.location, "query": queries[j.query], "passages": [], "relevance": [], "ids": []}
        )
        if (j.query, j.passage) in judged:
            message = f"the passage {j.passage!r} is judged twice; the first judgment is used"
            findings.append(Finding(j.location, message, error=False))
            continue
        judged.add((j.query, j.passage))
        _append_passage(record, passages[j.passage], j.relevance, j.passage)
    if not records:
        raise UserError(
            f"{source.path}: no judgment refers to both a query and a passage of the given files",
            expected=f"query ids of {files['queries']} and passage ids of {files['passages']}",
        )
    for query_id, record in records.items():
        for passage_id in run.get(query_id, ()):
            if passage_id in passages and (query_id, passage_id) not in judged:
                _append_passage(record, passages[passage_id], 0.0, passage_id)
    without_run = [record for query_id, record in records.items() if query_id not in run]
    _add_random_passages(without_run, passages, settings.rank.candidate_pool_size, findings)
    return list(records.values())


def _append_passage(record: Record, passage: str, relevance: float, passage_id: str) -> None:
    record["passages"].append(passage)
    record["relevance"].append(relevance)
    if "ids" in record:
        record["ids"].append(passage_id)


def _add_random_passages(
    records: Sequence[Record], passages: Mapping[str, str], pool_size: int, findings: list[Finding]
) -> None:
    """Add random passages (id → text) with relevance 0 until each query has `pool_size`. The choice depends on the query only."""
    ids, num_extended = list(passages), 0
    for record in records:
        judged, num_before = set(record["passages"]), len(record["passages"])
        key = stable_seed(0, "pool", record["query"])
        for i in range(len(ids)):
            if len(record["passages"]) >= pool_size:
                break
            passage_id = ids[permute(i, len(ids), key)]  # lazily: a query needs few of possibly millions of passages
            if passages[passage_id] not in judged:
                _append_passage(record, passages[passage_id], 0.0, passage_id)
        num_extended += len(record["passages"]) > num_before
    if num_extended:
        message = (
            f"{num_extended:,} queries have fewer than {pool_size} passages: "
            "random ones were added, which count as not relevant"
        )
        hint = "change task.rank.candidate_pool_size, or pass the results of a search with --column candidates=RUN"
        findings.append(Finding(records[0]["location"], message, hint, error=False, kind="pool"))


def _check_grades(records: Sequence[Record], pool_size: int, findings: list[Finding]) -> None:
    """Add random passages if the file lists only relevant ones, and warn about queries whose grades are all equal."""
    if all(grade > 0 for r in records for grade in r["relevance"]):
        passages = {key: text for r in records for key, text in zip(r.get("ids") or r["passages"], r["passages"])}
        _add_random_passages(records, passages, pool_size, findings)
    _warn_equal_grades(records, findings)


def _warn_equal_grades(records: Sequence[Record], findings: list[Finding]) -> None:
    for r in records:
        if not any(grade > 0 for grade in r["relevance"]) or len(set(r["relevance"])) < 2:
            message = "all passages of this query are equally relevant, so it adds nothing to training or evaluation"
            hint = "add a relevant passage and one that is not"
            findings.append(Finding(r["location"], message, hint, error=False, kind="alike"))


def _parse_texts(value: Any, location: str, role: str, findings: list[Finding]) -> list[str]:
    return [parse_text(item, location, role, findings) for item in (value if isinstance(value, list) else [value])]


def _parse_grade(value: Any, location: str, findings: list[Finding]) -> float:
    return parse_number(value, location, "relevance", findings, "write 0, 1, 2 …")
