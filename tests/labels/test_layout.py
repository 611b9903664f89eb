"""Labelled files under any name: what they are is found in their content; prose stays prose, and a doubt is said."""

import gzip
import json
from pathlib import Path

import pytest

from unmask.errors import UserError
from unmask.labels.detect_task import pick_task
from unmask.labels.records import Finding, Source, open_source
from unmask.recipe import TaskRecipe
from unmask.text.corpus import Corpus
from unmask.text.layout import detect_layout, quotes_are_text

ROWS = [{"text": f"they left, or so I heard {n}", "label": ("pos", "neg")[n % 2]} for n in range(12)]
TABS = "text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in ROWS)
COMMAS = "text,label\n" + "".join(f'"{r["text"]}",{r["label"]}\n' for r in ROWS)
SEMICOLONS = "text;label\n" + "".join(f"{r['text']};{r['label']}\n" for r in ROWS)
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)


def read(path: Path, content: str | bytes = "", **options: object) -> tuple[Source, list[Finding]]:
    if content:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    findings: list[Finding] = []
    return open_source(str(path), findings, **options), findings  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a.txt", "a.data", "a", "a.csv", "a.tsv", "a.json", "a.jsonl", "train.labelled"])
@pytest.mark.parametrize(
    "content",
    [TABS, b"\xef\xbb\xbf" + TABS.encode(), COMMAS, SEMICOLONS, JSONL, json.dumps(ROWS), json.dumps(ROWS, indent=1)],
    ids=["tabs", "tabs, BOM", "commas", "semicolons", "jsonl", "json", "json over lines"],
)
def test_the_name_decides_nothing(name: str, content: str | bytes, tmp_path: Path) -> None:
    source, findings = read(tmp_path / name, content)
    assert [row for _, row in source.rows] == ROWS and findings == []
    assert source.file_format == "table" and pick_task(TaskRecipe(), [source]).name == "classify"


def test_a_compressed_table_without_an_ending(tmp_path: Path) -> None:
    source, findings = read(tmp_path / "a.txt.gz", gzip.compress(TABS.encode()))
    assert [row for _, row in source.rows] == ROWS and findings == []


PROSE = {
    "commas": "Yes, he said, it is late.\nShe left, alone, at ten.\nNo one, not Ann, came by.\n" * 9,
    "one comma in each line": "Roses are red, violets are blue.\nSugar is sweet, and so are you.\n" * 9,
    "some tabs": "A line without a tab is here.\n" * 9 + "A line\twith one.\nAnother\twith one, too.\n",
    "indented": "\tOnce there was a man who sang.\n\tHe sang all day.\n" * 9,
    "semicolons": "He came; he saw.\nShe went away and did not look back; nobody knew.\nIt rained.\n" * 9,
    "Chinese": "这部电影很好看，我很喜欢。\n演员不错，故事也好。\n" * 9,
    "brackets": "[1] See the note on page nine.\n{or not} as the case may be.\n" * 9,
    "quotes": '"No," he said.\n"Yes, it is."\n' * 9,
    "one line with a tab": "what a\tfilm\n",
}


@pytest.mark.parametrize("name", PROSE)
def test_prose_stays_text(name: str, tmp_path: Path) -> None:
    source, findings = read(tmp_path / "a.txt", PROSE[name])
    assert source.file_format == "text" and findings == []
    assert [text for _, text in source.lines] == PROSE[name].rstrip("\n").split("\n")


LINES = {
    "words and tags": "Bob\tB-per\nleft\tO\nAnn\tB-per\n",
    "parts of speech": "Bob\tNNP\nleft\tVBD\n\nAnn\tNNP\nsat\tVBD\ndown\tRP\n\n",
    "judgements": "1\t0\tdoc7\t1\n1\t0\tdoc9\t0\n2\t0\tdoc7\t2\n",
    "a run": "1\tQ0\tdoc7\t1\t9.5\tme\n1\tQ0\tdoc9\t2\t8.5\tme\n",
    "CoNLL-U": "1\tBob\tBob\tPROPN\t_\t_\t0\troot\t_\t_\n2\tleft\tleave\tVERB\t_\t_\t1\tx\t_\t_\n",
}


@pytest.mark.parametrize("name", LINES)
def test_lines_of_other_readers_are_left_to_them(name: str, tmp_path: Path) -> None:
    source, findings = read(tmp_path / "a.txt", LINES[name])
    assert source.file_format == "text" and source.lines and findings == []


def test_a_doubt_is_refused_and_said(tmp_path: Path) -> None:
    """As many commas on each line as in a table, and neither names nor labels: nothing is trained on it unasked."""
    content = "".join(f"town {n} of the north,land {n * 7 % 41} by the sea\n" for n in range(20))
    source, findings = read(tmp_path / "a.txt", content)
    assert [f.kind for f in findings] == ["layout"] and not findings[0].error
    with pytest.raises(UserError, match="a table or plain text") as caught:
        pick_task(TaskRecipe(), [source])
    assert "--task embed" in (caught.value.hint or "")
    assert pick_task(TaskRecipe(name="embed"), [source]).name == "embed"
    ragged = "".join("\t".join(["some words here"] * (2 + n % 3)) + "\n" for n in range(20))
    assert detect_layout(ragged, ".txt").ambiguous


def test_text_for_pre_training_is_read_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TABS)
    assert next(iter(Corpus([str(tmp_path / "a.txt")]))).text == TABS.strip()


@pytest.mark.parametrize(
    ("lines", "bare"),
    [
        (["a\tb", '1\t"so they say', "0\tno"], True),  # would run to the end
        (["a\tb", '1\t"so they say', "0\tno", '1\t"and so on'], True),  # would run to the next one
        (["a\tb", '1\t"so they say', "0\tno\tmore", "0\tno", '1\t"and'], True),  # and a ragged row
        (["a\tb", '1\t"So," he said', "0\tno"], True),  # text after the closing quote
        (["a\tb", '1\t"over', 'two lines"', "0\tno"], False),
        (["a\tb", '1\t"so ""good""', 'a film"', "0\tno"], False),
        (["a\tb\tc", '1\t"over', 'two lines"\t1', "0\tno\t1"], False),
        (["a\tb", '1\t"a tab\tin it"', "0\tno"], False),
        (["a\tb", '1\t"so ""good"""', '0\t"no"'], False),
        (["a\tb", '1\tit "is" so', "0\tno"], False),  # quotes inside are no quoting either way
    ],
)
def test_quotes_in_a_table_with_tabs(lines: list[str], bare: bool) -> None:
    assert quotes_are_text(lines) == bare


def test_a_stray_quote_after_the_first_megabyte_swallows_nothing(tmp_path: Path) -> None:
    lines = [f"{n}\t{'so it was said ' * 4}{n}\tpos" for n in range(20_000)]
    lines[19_000] = '19000\t"so they say\tneg'
    source, findings = read(tmp_path / "a.tsv", "id\ttext\tlabel\n" + "\n".join(lines) + "\n")
    assert len(source.rows) == 20_000 and findings == []
    assert source.rows[19_000][1]["text"] == '"so they say'


def test_a_table_without_a_header_has_numbered_columns(tmp_path: Path) -> None:
    content = "".join(f"gj04\t{n % 2}\t\tThe sailors rode the breeze {n}.\n" for n in range(9))
    source, (found,) = read(tmp_path / "a.tsv", content)
    assert source.columns == ["1", "2", "3", "4"] and len(source.rows) == 9 and source.rows[0][0] == 1
    assert found.kind == "header" and not found.error and "--column text=N" in found.hint
    assert read(tmp_path / "a.tsv", columns={"text": "4"})[1] == []  # nothing to say: the user knows
    long = "How did you like the new film?,stars\nVery much,5\n"
    assert read(tmp_path / "b.csv", long)[0].columns == ["1", "2"]
    named, findings = read(tmp_path / "b.csv", columns={"label": "stars"})  # a name that the first line has
    assert named.columns[1] == "stars" and len(named.rows) == 1 and findings == []


def test_fields_after_the_last_column_are_a_warning_unless_values_are_displaced(tmp_path: Path) -> None:
    rows = "".join(f"{n},so it is {n},{'ab'[n % 2]}\n" for n in range(12))
    source, findings = read(
        tmp_path / "a.csv", f"id,text,label\n{rows}12,and so on,a,checked by Ann\n13,well, well,b\n"
    )
    assert len(source.rows) == 14
    assert [(f.location.rpartition(":")[2], f.error) for f in findings] == [("14", False), ("15", True)]
    assert "are ignored" in findings[0].hint and "quote fields" in findings[1].hint
    _, findings = read(tmp_path / "b.tsv", "en\tfr\nso\tsi\nno\tnon\tby Ann\n")
    assert [(f.message, f.error) for f in findings] == [("3 fields, the header has 2", False)]
    _, findings = read(tmp_path / "c.tsv", f"id\ttext\tlabel\n{rows.replace(',', chr(9))}12\tcut off\n")
    assert [(f.location.rpartition(":")[2], f.error) for f in findings] == [
        ("14", True)
    ] and "missing fields" in findings[0].hint


def test_an_empty_file_is_empty_whatever_its_name(tmp_path: Path) -> None:
    for name in ("a.json", "a.jsonl", "a.csv", "a.txt"):
        source, findings = read(tmp_path / name, b" \n")
        assert source.empty and [f.message for f in findings] == ["the file has no rows"]
