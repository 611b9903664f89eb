"""Labeled files in practice: encodings, separators, compression and values of every type; each record has its correct line number."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from unmask.errors import UserError
from unmask.labels.records import Finding, Source, open_source, parse_text
from unmask.text.columns import map_columns

ROWS = [{"text": "a café in Zürich", "label": "pos"}, {"text": "très mauvais, déjà vu", "label": "neg"}]
CSV = 'text,label\na café in Zürich,pos\n"très mauvais, déjà vu",neg\n'
JSONL = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def read(path: Path) -> tuple[Source, list[Finding]]:
    findings: list[Finding] = []
    return open_source(str(path), findings), findings


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


FORMS: dict[str, bytes] = {
    "plain.csv": CSV.encode(),
    "bom.csv": b"\xef\xbb\xbf" + CSV.encode(),
    "utf16.csv": CSV.encode("utf-16"),
    "utf16be.csv": b"\xfe\xff" + CSV.encode("utf-16-be"),
    "latin.csv": CSV.encode("cp1252"),
    "crlf.csv": CSV.replace("\n", "\r\n").encode(),
    "semicolon.csv": b"text;label\n" + CSV.split("\n", 1)[1].replace(",pos", ";pos").replace(",neg", ";neg").encode(),
    "tab.tsv": "".join(
        f"{a}\t{b}\n" for a, b in [("text", "label"), *((r["text"], r["label"]) for r in ROWS)]
    ).encode(),
    "lines.jsonl": JSONL.encode(),
    "utf16.jsonl": JSONL.encode("utf-16"),
    "blank.jsonl": JSONL.replace("\n", "\n\n").encode(),
    "list.json": json.dumps(ROWS, indent=1).encode(),
    "utf16.json": json.dumps(ROWS, indent=1, ensure_ascii=False).encode("utf-16"),
    "really_lines.json": JSONL.encode(),
    "table.parquet": parquet(ROWS),
    "packed.csv.gz": gzip.compress(CSV.encode()),
    "packed.jsonl.zst": zstandard.compress(JSONL.encode()),
    "packed.json.gz": gzip.compress(json.dumps(ROWS).encode()),
    "WRITTEN.CSV": CSV.encode(),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_file_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FORMS[name])
    source, findings = read(tmp_path / name)
    assert source.file_format == "table" and source.columns == ["text", "label"]
    assert [row for _, row in source.rows] == ROWS
    assert findings == []


LINES = {
    "plain.csv": [2, 3],
    "blank.jsonl": [1, 3],
    "list.json": [2, 6],
    "table.parquet": [1, 2],  # the record number
    "packed.json.gz": [1, 1],
}


@pytest.mark.parametrize("name", LINES)
def test_line_numbers_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FORMS[name])
    assert [line for line, _ in read(tmp_path / name)[0].rows] == LINES[name]


def test_multi_line_record_has_the_number_of_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\n"one\ntwo\n\nfour",pos\nlast,neg\n')
    source, findings = read(tmp_path / "a.csv")
    assert source.rows == [(2, {"text": "one\ntwo\n\nfour", "label": "pos"}), (6, {"text": "last", "label": "neg"})]
    assert findings == []


def test_bare_quotes_in_a_tsv_belong_to_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('text\tlabel\n"so they say\tpos\nit "is" good\tneg\n')
    source, findings = read(tmp_path / "a.tsv")
    assert [row["text"] for _, row in source.rows] == ['"so they say', 'it "is" good'] and findings == []


def test_nul_bytes_are_removed_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text,label\na\0b,pos\nc,neg\n")
    source, (finding,) = read(tmp_path / "a.csv")
    assert source.rows[0][1]["text"] == "ab"
    assert finding.location.endswith("a.csv:2") and not finding.error


def test_every_invalid_line_is_reported(tmp_path: Path) -> None:
    lines = ['{"text": "a", "label": "x"}', "{oops"] * 60
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source, findings = read(tmp_path / "a.jsonl")
    assert len(source.rows) == 60
    assert [f.location.rpartition(":")[2] for f in findings] == [str(n) for n in range(2, 121, 2)]
    assert all(f.error and f.hint for f in findings)


def test_json_list_with_other_items_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n {"text": "a", "label": "x"},\n "b",\n {"text": "c", "label": "y"}\n]')
    source, (finding,) = read(tmp_path / "a.json")
    assert [line for line, _ in source.rows] == [2, 4] and finding.location.endswith("a.json:3")


def test_directory_and_missing_file_raise(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(CSV)
    with pytest.raises(UserError, match="a folder") as caught:
        read(tmp_path)
    assert "train.csv" in (caught.value.hint or "")
    with pytest.raises(UserError, match=r"nowhere\.csv: no such file"):
        read(tmp_path / "nowhere.csv")


@pytest.mark.parametrize(("name", "content", "words"), [
    ("a.json", b'[{"text": "a"},\n {"text": oops}]', r"a\.json:2: not JSON"),
    ("a.json", b"\xff\xd8\xff" + bytes(range(256)) * 9, "image"),
    ("a.json.gz", gzip.compress(b"[1, 2]" * 9, mtime=0)[:-9], "cannot be read"),
    ("a.parquet", b"PAR1 and no more", "cannot be read"),
    ("a.csv", b"PK\x03\x04rest of a workbook", "zip archive"),
    ("a.jsonl", b"one\ntwo\n", "no line is a JSON object"),
], ids=["bad json", "image", "cut gzip", "bad parquet", "workbook", "no objects"])  # fmt: skip
def test_unreadable_files_raise(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=words):
        read(tmp_path / name)


@pytest.mark.parametrize(("value", "text"), [
    (1, "1"), (1.0, "1"), ("1", "1"), ("1.0", "1.0"), (0.5, "0.5"), (1e15, "1000000000000000"), (1234567.0, "1234567"),
    (-2, "-2"), (True, "true"), (False, "false"), ("True", "True"), ("a\r\nb", "a\r\nb"), (" a ", " a "),
])  # fmt: skip
def test_values_are_converted_to_text(value: Any, text: str) -> None:
    findings: list[Finding] = []
    assert parse_text(value, "a:1", "label", findings) == text and not findings


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "no label"), ("", "no label"), (float("nan"), "no label"), ("  ", "an empty label"), ({}, "dict")],
)
def test_missing_values_are_reported(value: Any, message: str) -> None:
    findings: list[Finding] = []
    assert parse_text(value, "a:1", "label", findings) == ""
    assert message in findings[0].message and findings[0].location == "a:1" and findings[0].hint and findings[0].error


def test_number_in_a_text_column_is_a_warning() -> None:
    findings: list[Finding] = []
    assert parse_text(5, "a.jsonl:1", "text", findings) == "5" and parse_text(5, "a.jsonl:1", "label", findings) == "5"
    assert [(f.error, f.message) for f in findings] == [(False, "text is a number (5), read as text")]


def test_lone_surrogate_is_replaced_without_shifting_offsets() -> None:
    findings: list[Finding] = []
    assert parse_text("a\ud83db", "a:1", "text", findings) == "a\ufffdb"
    assert [f.error for f in findings] == [False]


def test_columns_are_mapped_by_name_or_by_the_user() -> None:
    roles = {"text": ("text", "review"), "label": ("label", "stars")}
    assert map_columns(["Review", "stars"], roles, {}, ("text", "label"), "a") == {"text": "Review", "label": "stars"}
    assert map_columns(["x", "text"], roles, {"text": "x"}, ("text",), "a") == {"text": "x"}
    with pytest.raises(UserError, match="did you mean review"):
        map_columns(["review"], roles, {"text": "reveiw"}, ("text",), "a")
    with pytest.raises(UserError, match="unknown role 'txt'"):
        map_columns(["review"], roles, {"txt": "review"}, ("text",), "a")
    with pytest.raises(UserError, match="no column for 'label'") as caught:
        map_columns(["review", "y"], roles, {}, ("text", "label"), "a")
    assert caught.value.hint == "pass --column label=NAME"
