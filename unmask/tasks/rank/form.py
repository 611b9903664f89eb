"""Files that say which passages answer a query → one record per query."""

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

    def read(
        self, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True
    ) -> list[Record]:
        if {"queries", "candidates"} & set(settings.columns) or is_qrels(source):
            return _qrels(source, settings, findings)
        columns = assign_columns(FIELDS, source, settings, ("query",))
        if "positives" in columns and "passage" not in columns:
            return _lists(source, columns, settings, findings, labelled)
        if "passages" in columns:
            return _whole(source, columns, settings, findings, labelled)
        return _pairs(source, settings, findings, labelled)


def _pairs(source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool) -> list[Record]:
    """A row per query and passage; those of one query become one record."""
    needed = ("query", "passage", *(("relevance",) if labelled else ()))
    columns = assign_columns(FIELDS, source, settings, needed)
    records: dict[str, Record] = {}
    for at, row in table_rows(source, "csv, tsv, jsonl or parquet with the columns query, passage and relevance"):
        query = parse_text(row.get(columns["query"]), at, "query", findings)
        key = str(row.get(columns["query_id"])) if "query_id" in columns else query
        record = records.setdefault(key, {"location": at, "query": query, "passages": [], "relevance": []})
        if query != record["query"]:
            what = f"the query of id {key!r} is another one than in {record['location']}"
            findings.append(Finding(at, what, "give each query an id of its own", kind="query"))
        record["passages"].append(parse_text(row.get(columns["passage"]), at, "passage", findings))
        if "passage_id" in columns:
            record.setdefault("ids", []).append(str(row.get(columns["passage_id"])))
        if "relevance" in columns:
            record["relevance"].append(_grade(row.get(columns["relevance"]), at, findings) if labelled else 0.0)
    if labelled:
        _complete(list(records.values()), settings.rank.candidate_pool_size, findings)
    return list(records.values())


def _whole(
    source: Source, columns: Mapping[str, str], settings: TaskRecipe, findings: list[Finding], labelled: bool
) -> list[Record]:
    """A row per query, with all of its passages and relevances."""
    records = []
    for at, row in table_rows(source, "jsonl"):
        passages = _texts(row.get(columns["passages"]), at, "passage", findings)
        given = row.get(columns.get("relevance", ""))
        grades = [_grade(g, at, findings) for g in given] if labelled and isinstance(given, list) else []
        if labelled and len(grades) != len(passages):
            what = f"{len(passages)} passages and {len(grades)} relevances"
            findings.append(Finding(at, what, "as many of each", kind="relevance"))
            grades = [0.0] * len(passages)
        query = parse_text(row.get(columns["query"]), at, "query", findings)
        records.append({"location": at, "query": query, "passages": passages, "relevance": grades})
    if labelled:
        _complete(records, settings.rank.candidate_pool_size, findings)
    return records


def _lists(
    source: Source, columns: Mapping[str, str], settings: TaskRecipe, findings: list[Finding], labelled: bool
) -> list[Record]:
    """A row per query, with its positives, and perhaps its negatives."""
    records: list[Record] = []
    lacking: list[Record] = []
    for at, row in table_rows(source, "jsonl"):
        query = parse_text(row.get(columns["query"]), at, "query", findings)
        good = _texts(row.get(columns["positives"]), at, "positive", findings)
        bad = _texts(row.get(columns.get("negatives", "")) or [], at, "negative", findings)
        grades = [float(labelled)] * len(good) + [0.0] * len(bad)
        records.append({"location": at, "query": query, "passages": good + bad, "relevance": grades})
        lacking += [] if bad else [records[-1]]
    if not labelled:
        return records
    everything: dict[str, str] = {p: p for r in records for p in r["passages"]}
    _fill(lacking, everything, settings.rank.candidate_pool_size, findings)
    _alike(records, findings)
    return records


def _qrels(source: Source, settings: TaskRecipe, findings: list[Finding]) -> list[Record]:
    """Judgements by id, with the files of queries and passages that they speak of."""
    lacking = next((role for role in ("queries", "passages") if role not in settings.columns), None)
    if lacking:
        raise UserError(
            f"{source.path} holds judgements by id: the {lacking} are in another file",
            hint="--column queries=FILE --column passages=FILE (csv, tsv, jsonl, lines or TREC's xml)",
        )
    unknown = sorted(set(settings.columns) - set(file_fields(FIELDS)))
    if unknown:
        raise UserError(f"--column {unknown[0]}=… beside judgements by id", expected=", ".join(file_fields(FIELDS)))
    queries = read_texts(settings.columns["queries"], findings)
    passages = read_texts(settings.columns["passages"], findings)
    run = read_run(settings.columns["candidates"], findings) if "candidates" in settings.columns else {}
    judgements = read_qrels(source, findings)
    placed = queries_by_position([j.query for j in judgements], queries)
    if placed is not None:
        what = "its queries are counted from 1 in the order of their file, whose own numbers are others: read so"
        findings.append(Finding(f"{source.path}:1", what, error=False, kind="place"))
        queries = placed
    records: dict[str, Record] = {}
    known: set[tuple[str, str]] = set()
    for j in judgements:
        wrong = "query" if j.query not in queries else "passage" if j.passage not in passages else ""
        if wrong:
            name = getattr(j, wrong)
            findings.append(
                Finding(j.location, f"no {wrong} has the id {name!r}; left out", error=False, kind=f"no such {wrong}")
            )
            continue
        record = records.setdefault(
            j.query, {"location": j.location, "query": queries[j.query], "passages": [], "relevance": [], "ids": []}
        )
        if (j.query, j.passage) in known:
            findings.append(
                Finding(j.location, f"the passage {j.passage!r} is judged twice; the first counts", error=False)
            )
            continue
        known.add((j.query, j.passage))
        record["ids"].append(j.passage)
        record["passages"].append(passages[j.passage])
        record["relevance"].append(j.relevance)
    if not records:
        raise UserError(f"{source.path}: none of its judgements is of a query and a passage in the files given")
    for name, record in records.items():
        found = [p for p in run.get(name, ()) if p in passages and (name, p) not in known]
        record["ids"] += found
        record["passages"] += [passages[p] for p in found]
        record["relevance"] += [0.0] * len(found)
    _fill([r for name, r in records.items() if name not in run], passages, settings.rank.candidate_pool_size, findings)
    return list(records.values())


def _fill(records: Sequence[Record], passages: Mapping[str, str], pool: int, findings: list[Finding]) -> None:
    """Others of the same collection, drawn once, until a query has `pool` passages: none of them is judged."""
    names, filled = list(passages), 0
    for record in records:
        known, before = set(record["passages"]), len(record["passages"])
        key = stable_seed(0, "pool", record["query"])
        for i in range(len(names)):
            if len(record["passages"]) >= pool:
                break
            n = permute(i, len(names), key)  # one by one: a query needs few of a collection's many
            if passages[names[n]] not in known:
                record["passages"].append(passages[names[n]])
                record["relevance"].append(0.0)
                if "ids" in record:
                    record["ids"].append(names[n])
        filled += len(record["passages"]) > before
    if filled:
        what = f"{filled:,} queries have fewer than {pool} passages: others were drawn and count as not relevant"
        findings.append(
            Finding(
                records[0]["location"], what, "task.rank.candidate_pool_size, or --column candidates=RUN", False, "pool"
            )
        )


def _complete(records: Sequence[Record], pool: int, findings: list[Finding]) -> None:
    """Where only relevant passages are named, a query is given others."""
    if all(grade > 0 for r in records for grade in r["relevance"]):
        everything = {name: text for r in records for name, text in zip(r.get("ids") or r["passages"], r["passages"])}
        _fill(records, everything, pool, findings)
    _alike(records, findings)


def _alike(records: Sequence[Record], findings: list[Finding]) -> None:
    for r in records:
        if not any(g > 0 for g in r["relevance"]) or len(set(r["relevance"])) < 2:
            what = "nothing to learn from this query, or to judge by: its passages are all alike in relevance"
            findings.append(
                Finding(r["location"], what, "add a relevant and another passage", error=False, kind="alike")
            )


def _texts(value: Any, at: str, role: str, findings: list[Finding]) -> list[str]:
    return [parse_text(each, at, role, findings) for each in (value if isinstance(value, list) else [value])]


def _grade(value: Any, at: str, findings: list[Finding]) -> float:
    return parse_number(value, at, "relevance", findings, "write 0, 1, 2 …")
