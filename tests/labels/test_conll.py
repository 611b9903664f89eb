"""Files of words and tags, and of texts and spans: words are read with their offsets, and every error is reported with file and line."""

import json
from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UserError
from unmask.labels.formats.conll import is_conllu
from unmask.labels.records import Finding, Record, Source, open_source
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.tasks.tag.task import Tag


def read(
    path: Path, text: str | list[Any], labeled: bool = True, **settings: Any
) -> tuple[list[Record], list[Finding]]:
    """Return the records and findings of a file with this text or these JSON lines."""
    path.write_text(text if isinstance(text, str) else "".join(json.dumps(x) + "\n" for x in text), "utf-8")
    task = Recipe.build({"task": settings}).task
    findings: list[Finding] = []
    return Tag.SPEC.data_format.read(open_source(str(path), findings), task, findings, labeled), findings


def words(record: Record) -> list[str]:
    return [record["text"][a:b] for a, b in record["words"]]


def marked(record: Record) -> list[tuple[str, str]]:
    return [(record["text"][s["start"] : s["end"]], s["label"]) for s in record["spans"]]


def line_and_kind(findings: list[Finding]) -> list[tuple[str, str]]:
    """Return (line, kind) of the findings."""
    return [(f.location.rpartition(":")[2], f.kind) for f in findings]


def test_tag_prefix_without_a_label_is_reported(tmp_path: Path) -> None:
    _, findings = read(tmp_path / "a.conll", "New\tB\nYork\tI-loc\nis\tO\n\nAnn\tB-per\n")
    assert line_and_kind([f for f in findings if f.error]) == [("1", "tag")] and "B-LABEL" in findings[0].hint
    assert not [f for f in read(tmp_path / "b.conll", "New\tB\nYork\tI\nis\tO\n")[1] if f.error]


def test_columns_separated_by_tabs_or_spaces(tmp_path: Path) -> None:
    tabs = "-DOCSTART-\tO\n\n# id = 7\nNew York\tB-loc\n#\tO\n\t\nBob\tB-per\n"
    records, findings = read(tmp_path / "a.conll", tabs)
    assert not findings and [words(r) for r in records] == [["New York", "#"], ["Bob"]]
    assert [r["location"].rpartition(":")[2] for r in records] == ["4", "7"]
    assert marked(records[0]) == [("New York", "loc")] and records[0]["text"] == "New York #"
    blanks = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-org\nrejects VBZ B-VP O\n\n\nBob NNP B-NP B-per\n"
    records, findings = read(tmp_path / "b.txt", blanks)
    assert not findings and [r["tags"] for r in records] == [["B-org", "O"], ["B-per"]]
    records, findings = read(tmp_path / "b.txt", blanks, columns={"tag": "2"})
    assert not findings and records[0]["tags"] == ["NNP", "VBZ"] and "spans" not in records[0]
    records, _ = read(tmp_path / "b.txt", blanks, columns={"tag": "-2", "word": "1"})
    assert marked(records[0]) == [("EU", "NP"), ("rejects", "VP")]
    with pytest.raises(UserError, match="no column '9'"):
        read(tmp_path / "b.txt", blanks, columns={"tag": "9"})
    with pytest.raises(UserError, match="unknown role 'tagg'"):
        read(tmp_path / "b.txt", blanks, columns={"tagg": "2"})
    with pytest.raises(UserError, match="one column"):
        read(tmp_path / "c.conll", "Bob\nleft\n")
    assert words(read(tmp_path / "c.conll", "Bob\nleft\n", labeled=False)[0][0]) == ["Bob", "left"]


def test_chinese_characters_are_joined_without_spaces(tmp_path: Path) -> None:
    plain = "北\tB-loc\n京\tI-loc\n有\tO\nN\tO\nB\tO\nA\tO\n。\tO\n"
    records, findings = read(tmp_path / "a.conll", plain)
    assert not findings and records[0]["text"] == "北京有NBA。" and marked(records[0]) == [("北京", "loc")]
    places = ["科0", "技1", "全0", "方1", "位2", "资0", "讯1", "在0", "北0", "京1", "20", "01", "，0"]
    tagged = "".join(f"{w}\t{'B-loc' if n == 8 else 'I-loc' if n == 9 else 'O'}\n" for n, w in enumerate(places))
    records, findings = read(tmp_path / "weibo.conll", tagged)
    assert records[0]["text"] == "科技全方位资讯在北京20，" and marked(records[0]) == [("北京", "loc")]
    assert line_and_kind(findings) == [("1", "segments")] and not findings[0].error
    records, findings = read(tmp_path / "b.conll", "MP3\tO\nA4\tO\n" * 10)  # words that end in digits are words
    assert not findings and words(records[0])[0] == "MP3"


UNIVERSAL = """# newdoc id = x
# sent_id = 1
# text = Don't  sell (Vámonos)!
1-2	Don't	_	_	_	_	_	_	_	_
1	Do	do	AUX	VB	_	3	aux	_	_
2	n't	not	PART	RB	_	3	advmod	_	_
3	sell	sell	VERB	VB	_	0	root	_	_
3.1	it	it	PRON	PRP	_	_	_	3:obj	_
4	(	(	PUNCT	-LRB-	_	5	punct	_	SpaceAfter=No
5-6	Vámonos	_	_	_	_	_	_	_	SpaceAfter=No
5	Vamos	ir	VERB	VB	_	3	x	_	_
6	nos	nosotros	PRON	PRP	_	5	obj	_	_
7	)	)	PUNCT	-RRB-	_	5	punct	_	SpaceAfter=No
8	!	!	PUNCT	.	_	3	punct	_	_

"""


UNIVERSAL_WORD = "\t".join(["1", "Do", "do", "AUX", "VB", "_", "2", "aux", "_", "_"])


def test_universal_dependencies(tmp_path: Path) -> None:
    records, findings = read(tmp_path / "a.conllu", UNIVERSAL)
    (record,) = records
    assert not findings and record["text"] == "Don't  sell (Vámonos)!"
    assert words(record) == ["Do", "n't", "sell", "(", "Vámonos", ")", "!"]
    assert record["tags"] == ["AUX", "PART", "VERB", "PUNCT", "VERB+PRON", "PUNCT", "PUNCT"]
    without = "\n".join(line for line in UNIVERSAL.split("\n") if "# text" not in line)
    records, _ = read(tmp_path / "b.conllu", without, columns={"tag": "xpos"})
    assert records[0]["text"] == "Don't sell (Vámonos)!" and records[0]["tags"][:2] == ["VB", "RB"]
    assert read(tmp_path / "b.conllu", without, columns={"tag": "lemma"})[0][0]["tags"][:2] == ["do", "not"]
    wrong = UNIVERSAL.replace("# text = Don't", "# text = Do not").replace("3\tsell\tsell\tVERB", "3\tsell\tVERB")
    records, findings = read(tmp_path / "c.conllu", wrong)
    assert line_and_kind(findings) == [("7", "columns"), ("5", "text")] and [f.error for f in findings] == [True, False]


def test_a_compressed_conllu_file_is_recognized_by_its_suffix() -> None:
    lines = [UNIVERSAL_WORD, *["a line that is damaged"] * 9]
    sources = [Source(path, "text", lines=list(enumerate(lines, 1))) for path in ("a.conllu", "a.conllu.gz", "a.txt")]
    assert [is_conllu(source) for source in sources] == [True, True, False]


def test_column_errors_are_reported(tmp_path: Path) -> None:
    text = "Bob\tB-per\nof\nNew\tI-loc\nYork\tX-loc\n\tO\n.\t\nA\tB\tC\n!\tO\n"
    _, findings = read(tmp_path / "a.conll", text)
    assert sorted(line_and_kind(findings)) == [
        ("2", "columns"), ("3", "order of tags"), ("4", "tag"), ("5", "no word"), ("6", "no tag"), ("7", "columns"),
    ]  # fmt: skip
    assert [f.error for f in findings if f.kind == "order of tags"] == [False]


def test_i_tag_without_b_tag_is_repaired_or_rejected(tmp_path: Path) -> None:
    text = "in\tO\nNew\tI-loc\nYork\tI-loc\nBob\tB-per\n"
    records, findings = read(tmp_path / "a.conll", text)
    assert records[0]["tags"] == ["O", "B-loc", "I-loc", "B-per"] and marked(records[0])[0] == ("New York", "loc")
    assert line_and_kind(findings) == [("2", "order of tags")] and not findings[0].error
    _, findings = read(tmp_path / "a.conll", text, tag={"invalid_tags": "error"})
    assert str(findings[0]).endswith("a.conll:2: I-loc after O (BIO); B- begins an entity") and findings[0].error
    _, findings = read(
        tmp_path / "b.conll", "New\tB-loc\nYork\tE-loc\nBob\tB-per\nx\tO\n", tag={"invalid_tags": "error"}
    )
    assert line_and_kind(findings) == [("4", "order of tags")]
    records, findings = read(
        tmp_path / "c.conll", "New\tI-loc\nYork\tI-loc\nRome\tB-loc\n", tag={"invalid_tags": "error"}
    )
    assert records[0]["tags"] == ["B-loc", "I-loc", "B-loc"]  # IOB1 is valid, but reported
    assert line_and_kind(findings) == [("1", "scheme")] and not findings[0].error
    records, findings = read(tmp_path / "d.conll", text, tag={"scheme": "none"})
    assert not findings and records[0]["tags"][1] == "I-loc" and "spans" not in records[0]


def test_spans_in_three_formats(tmp_path: Path) -> None:
    lines = [
        {"text": "a 👨‍👩‍👧 in Rome", "spans": [{"start": 11, "end": 15, "label": "loc", "text": "Rome"}]},
        {"text": "Rome", "spans": [[0, 4, "loc"]]},
        {"text": "Rome\r\nParis", "spans": [{"start_offset": 6, "end_offset": 11, "type": "loc"}]},
        {"text": "nothing", "spans": []},
    ]
    records, findings = read(tmp_path / "a.jsonl", lines)
    assert not findings
    assert [marked(r) for r in records] == [[("Rome", "loc")], [("Rome", "loc")], [("Paris", "loc")], []]
    for name in ("entities", "labels", "label"):
        renamed = [{"text": x["text"], name: x["spans"]} for x in lines]
        assert [r["spans"] for r in read(tmp_path / "b.jsonl", renamed)[0]] == [r["spans"] for r in records]
        source = open_source(str(tmp_path / "b.jsonl"), [])
        assert [task for task in TASKS.names() if TASKS[task].SPEC.data_format.matches(source)] == ["tag"]


def test_span_errors_are_reported(tmp_path: Path) -> None:
    def span(start: Any, end: Any, **more: Any) -> dict[str, Any]:
        return {"start": start, "end": end, "label": "loc"} | more

    wrong = [
        ([span(0, 4), span(2, 6)], "overlap"),
        ([span(5, 40)], "span outside"),
        ([span(-1, 4)], "span outside"),
        ([span(3, 3)], "empty span"),
        ([span(4, 5)], "empty span"),
        ([span(0, 4, text="Paris")], "span text"),
        ([span("0", 4)], "spans"),
        (["Rome"], "spans"),
        ("Rome", "spans"),
    ]
    lines = [{"text": "Rome 😀 Paris", "spans": spans} for spans, _ in wrong]
    _, findings = read(tmp_path / "a.jsonl", lines)
    assert line_and_kind(findings) == [(str(n), kind) for n, (_, kind) in enumerate(wrong, 1)]
    assert all(f.error and f.hint for f in findings)
    assert "its text is at 7–12" in str(findings[5])
    _, findings = read(tmp_path / "b.jsonl", [{"text": "NewYork", "spans": [span(0, 3)]}])
    assert line_and_kind(findings) == [("1", "cut word")] and not findings[0].error


def test_lists_of_words_and_tags(tmp_path: Path) -> None:
    rows: list[Any] = [{"tokens": ["in", "Rome", "."], "ner_tags": [0, 1, 0]}]
    records, findings = read(tmp_path / "a.jsonl", rows)
    assert line_and_kind(findings) == [("1", "numbers")] and not records
    records, findings = read(tmp_path / "a.jsonl", rows, labels=["O", "B-loc", "I-loc"])
    assert not findings and marked(records[0]) == [("Rome", "loc")] and records[0]["text"] == "in Rome ."
    rows = [{"tokens": ["in", "Rome", "."], "tags": ["ADP", "PROPN", "PUNCT"], "text": "in Rome."}]
    records, findings = read(
        tmp_path / "b.jsonl", [*rows, {"tokens": ["a"], "tags": []}, {"tokens": "a b", "tags": []}]
    )
    assert records[0]["text"] == "in Rome." and words(records[0]) == ["in", "Rome", "."]
    assert line_and_kind(findings) == [("2", "columns"), ("3", "no words")]
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    parquet_findings: list[Finding] = []
    source = open_source(str(tmp_path / "c.parquet"), parquet_findings)
    assert (
        Tag.SPEC.data_format.read(source, Recipe().task, parquet_findings)[0]["tags"] == rows[0]["tags"]
        and not parquet_findings
    )
    assert Tag.SPEC.data_format.matches(source)


def test_format_is_recognized_from_the_content(tmp_path: Path) -> None:
    for name, text, tag in [
        ("a.txt", "Bob\tB-per\nleft\tO\n", True),
        (
            "f.txt",
            "Bob\tB-per\nleft\tO\nfor\tO\nRome\n\nAnn\tB-per\nwaits\tO\n",
            True,
        ),  # a ragged line is an error, not another format
        ("b.txt", "A text of words .\nAnother of five words .\n", False),
        ("c.txt", UNIVERSAL, True),
        ("d.csv", "text,label\nwhat a film,pos\n", False),
        ("e.jsonl", '{"text": "a b", "labels": ["x", "y"]}\n', False),
    ]:
        (tmp_path / name).write_text(text)
        source = open_source(str(tmp_path / name), [])
        assert Tag.SPEC.data_format.matches(source) == tag, name
        assert not tag or [task for task in TASKS.names() if TASKS[task].SPEC.data_format.matches(source)] == ["tag"]
    records, findings = read(tmp_path / "g.tsv", "Bob\tB-per\nleft\tO\n\nAnn\tB-per\n")
    assert [r["tags"] for r in records] == [["B-per", "O"], ["B-per"]] and not findings
    with pytest.raises(UserError, match=r"from the first line on.*\n?.*mv .*h.csv .*h.conll"):
        read(tmp_path / "h.csv", "Bob,B-per\nleft,O\nAnn,B-per\n")
    texts = tmp_path / "i.csv"  # texts with labels that look like tags
    texts.write_text("".join(f"a text of words {n},{'BO'[n % 2]}\n" for n in range(30)))
    assert not Tag.SPEC.data_format.matches(open_source(str(texts), []))
    records, findings = read(tmp_path / "lines.txt", "A text of words .\n\nAnother.\n", labeled=False)
    assert [r["text"] for r in records] == ["A text of words .", "Another."] and not findings


def test_a_few_stray_b_tags_do_not_change_the_iob1_scheme(tmp_path: Path) -> None:
    text = "New\tI-loc\nYork\tI-loc\nand\tO\nBob\tI-per\n\n" * 500 + "in\tO\nRome\tB-loc\n\nParis\tB-loc\nfell\tO\n"
    records, findings = read(tmp_path / "a.conll", text)
    assert [f.kind for f in findings] == ["scheme", "order of tags", "order of tags"]
    assert [line_and_kind(findings)[n][0] for n in (1, 2)] == ["2502", "2504"]
    assert records[0]["tags"] == ["B-loc", "I-loc", "O", "B-per"] and records[-2]["tags"] == ["O", "B-loc"]
