"""Corpus reading: every format and encoding, and every problem reported with its file and line."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from unmask.errors import UserError
from unmask.recipe import DataRecipe
from unmask.text.corpus import Corpus
from unmask.text.decode import decompress
from unmask.text.readers import MAX_DOCUMENT_CHARS


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path_factory.mktemp("cache")))


def corpus(*sources, **settings) -> Corpus:
    return Corpus([str(source) for source in sources], DataRecipe(**settings))


def texts(*sources, **settings) -> list[str]:
    return [document.text for document in corpus(*sources, **settings)]


def read(*sources, **settings) -> Corpus:
    """A corpus that was iterated once."""
    loaded = corpus(*sources, **settings)
    list(loaded)
    return loaded


def problems_of(loaded: Corpus) -> list[str]:
    return [str(problem) for problem in loaded.report.problems]


BLOCKS = "First text.\nStill first.\n\nSecond text.\n \n\nThird text.\n"
BLOCK_TEXTS = ["First text.\nStill first.", "Second text.", "Third text."]


# ------------------------------------------------------------------------------------------------- sources


def test_folder_is_recursive_sorted_and_skips_hidden_files(tmp_path):
    for name in ("b.txt", "a/c.txt", "a/b/d.txt", ".hidden.txt", ".git/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    loaded = read(tmp_path)
    assert [Path(f.name).relative_to(tmp_path).as_posix() for f in loaded.files] == ["b.txt", "a/c.txt", "a/b/d.txt"]
    assert loaded.report.files == 3


def test_symlink_loop_terminates(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert texts(tmp_path) == ["text"]


def test_glob_and_duplicate_paths(tmp_path):
    for name in ("1.txt", "2.txt", "3.md", "deep/4.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert texts(f"{tmp_path}/*.txt", tmp_path / "1.txt") == ["1.txt", "2.txt"]
    assert texts(f"{tmp_path}/**/*.txt") == ["1.txt", "2.txt", "deep/4.txt"]
    (tmp_path / "odd[1].txt").write_text("brackets")
    assert texts(tmp_path / "odd[1].txt") == ["brackets"]


STDIN = "from unmask.text.corpus import Corpus; c = Corpus(['-'])\nfor _ in 1, 2: print([d.text for d in c])"


@pytest.mark.parametrize(
    "data",
    [
        BLOCKS.encode(),
        gzip.compress(BLOCKS.encode(), mtime=0),
        "\n".join(json.dumps({"text": t}) for t in BLOCK_TEXTS).encode(),
    ],
    ids=["text", "gzip", "jsonl"],
)
def test_standard_input_can_be_read_twice(data):
    run = subprocess.run([sys.executable, "-c", STDIN], input=data, capture_output=True, check=True)
    assert run.stdout.decode().splitlines() == [str(BLOCK_TEXTS)] * 2
    spooled = list((Path(os.environ["UNMASK_CACHE"]) / "stdin").iterdir())
    assert [path.read_bytes() for path in spooled] == [data]


def test_named_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"printf 'one\n\ntwo\n\nthree' > {tmp_path}/pipe"]):
        loaded = corpus(tmp_path / "pipe")
    assert [d.text for d in loaded] == [d.text for d in loaded] == ["one", "two", "three"]


def test_missing_paths(tmp_path):
    (tmp_path / "corpus.txt").write_text("text")
    with pytest.raises(UserError, match=r"no such file.*corpsu\.txt \(did you mean corpus\.txt\?\)"):
        corpus(tmp_path / "corpsu.txt")
    with pytest.raises(UserError, match="no such file"):
        corpus(tmp_path / "no" / "such")
    with pytest.raises(UserError, match="no file matches"):
        corpus(f"{tmp_path}/*.parquet")


@pytest.mark.parametrize("content", [None, b"", b" \n\n \r\n", b"\xef\xbb\xbf"])
def test_empty_corpus(tmp_path, content):
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match="the corpus is empty"):
        texts(tmp_path)
    with pytest.raises(UserError, match="the corpus is empty"):
        corpus()


# ------------------------------------------------------------------------------------------------- formats

PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
RECORDS = ["one, text", 'two "quoted"\nlines', "三"]


def as_jsonl() -> bytes:
    return b"".join(json.dumps({"id": i, "text": t}).encode() + b"\n" for i, t in enumerate(RECORDS))


FORMATS = {
    "a.txt": (BLOCKS.encode(), BLOCK_TEXTS),
    "a.md": (BLOCKS.encode(), BLOCK_TEXTS),
    "a.unknown": (BLOCKS.encode(), BLOCK_TEXTS),
    "noending": (BLOCKS.encode(), BLOCK_TEXTS),
    "a.jsonl": (as_jsonl(), RECORDS),
    "a.ndjson": (as_jsonl(), RECORDS),
    "a.json": (as_jsonl(), RECORDS),
    "a.csv": ('id,text\n1,"one, text"\n2,"two ""quoted""\nlines"\n3,三\n'.encode(), RECORDS),
    "semicolon.csv": ('id;text\n1;one, text\n2;"two ""quoted""\nlines"\n3;三\n'.encode(), RECORDS),
    "a.tsv": ('id\ttext\n1\tone, text\n2\t"two ""quoted""\nlines"\n3\t三\n'.encode(), RECORDS),
    "bare.tsv": (b'id\ttext\n1\t"one, text\n2\ttwo "quoted"\n3\tx\n', ['"one, text', 'two "quoted"', "x"]),
}


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("name", FORMATS)
def test_formats(tmp_path, name, packing):
    data, expected = FORMATS[name]
    path = tmp_path / (name + packing)
    path.write_bytes(PACKED[packing](data))
    loaded = read(path)
    assert texts(path) == expected
    assert not loaded.report.problems
    assert loaded.read_bytes == loaded.bytes() == path.stat().st_size


def test_several_compressed_frames(tmp_path):
    for ending in (".gz", ".zst"):
        path = tmp_path / f"a.txt{ending}"
        path.write_bytes(PACKED[ending](b"one\n\ntwo\n\n") + PACKED[ending](b"three\n\nfour"))
        assert texts(path) == ["one", "two", "three", "four"]
        assert not read(path).report.problems


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet(tmp_path, kind):
    values = [f"text {i}" for i in range(1000)] + [None, "", "last"]
    columns = {"id": list(range(1003)), "text": pa.array(values, pa.string()).cast(kind)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=100)
    loaded = corpus(tmp_path / "a.parquet")
    documents = list(loaded)
    assert [d.text for d in documents] == [v for v in values if v]
    assert documents[-1].line == 1003
    assert loaded.report.counts == {"empty_records": 2}
    assert loaded.read_bytes == loaded.bytes()


def test_single_json_value_raises_and_suggests_a_command(tmp_path):
    (tmp_path / "a.json").write_text('[{"text": "one"},\n {"text": "two"}]')
    with pytest.raises(UserError, match=r"jq -c"):
        corpus(tmp_path / "a.json")


# --------------------------------------------------------------------------------------------- documents


def test_start_lines_of_documents(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\n" + BLOCKS)
    assert [(d.text, d.line) for d in corpus(path)] == list(zip(BLOCK_TEXTS, [3, 6, 9]))
    assert [(d.text, d.line) for d in corpus(path, document_boundary="line")][-2:] == [
        ("Second text.", 6),
        ("Third text.", 9),
    ]
    assert [(d.text, d.line) for d in corpus(path, document_boundary="file")] == [(BLOCKS.strip(), 3)]


def test_folder_of_speeches_is_one_document_per_file(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text(f"Friends {i}!\n\nA paragraph.\n\nAnother one.\n")
    loaded = read(tmp_path)
    assert loaded.report.documents == 5
    assert "one document per file (5 text files" in loaded.describe()


def test_document_boundary_of_single_files_is_inferred(tmp_path):
    cases = {
        "paragraph": BLOCKS,
        "line": "A first sentence stands here.\nA second one follows.\nA third one ends it.\n" * 50,
        "line ": "the first review without a stop\nAnother review\nGreat\n" * 50,
        "line  ": ("Just a sentence per line.\n" * 5000) + "\n" + ("Another sentence.\n" * 5000),  # a stray blank line
        "file": (
            "This text was wrapped at a width of some sixty characters so\n"
            "that no line is a sentence of its own and most of the lines\n"
            "go on in lower case where the one before it stopped being a\n"
            "line, which is how many old texts are written. And that is\n"
        )
        * 30,
    }
    for mode, text in cases.items():
        (tmp_path / "a.txt").write_text(text)
        loaded = corpus(tmp_path / "a.txt")
        assert loaded.files[0].mode == mode.strip(), mode
        assert f"one document per {mode.strip()} (" in loaded.describe()


def test_shards_are_not_documents(tmp_path):
    for i in range(4):
        (tmp_path / f"shard{i}.txt").write_text("A line of text that is a sentence.\n" * 10_000)
    assert {file.mode for file in corpus(tmp_path).files} == {"line"}


def test_explicit_document_boundary(tmp_path):
    (tmp_path / "a.txt").write_text(BLOCKS)
    assert len(texts(tmp_path / "a.txt", document_boundary="line")) == 4
    assert "as requested" in corpus(tmp_path / "a.txt", document_boundary="line").describe()
    with pytest.raises(UserError, match="has no records"):
        corpus(tmp_path / "a.txt", document_boundary="record")
    (tmp_path / "a.csv").write_text("review,stars\none text,5\n")
    description = corpus(tmp_path / "a.csv", document_boundary="line").describe()
    assert "one document per record" in description
    assert "'review' is the only text column; csv has records; --document-boundary line is only for text" in description
    assert "only for text" not in corpus(tmp_path / "a.csv", document_boundary="record").describe()


@pytest.mark.parametrize("mode", ["file", "paragraph", "line"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_chunk_size_does_not_change_documents(tmp_path, monkeypatch, mode, ends):
    """Reading in chunks of 7 bytes gives the same documents at the same lines."""
    text = "\ufeff" + ("Ünïcödé 文本 text.\nsecond line\n \n\nНовый блок\n\n\n\nlast" * 3)
    (tmp_path / "a.txt").write_bytes(text.replace("\n", ends).encode())
    whole = list(corpus(tmp_path / "a.txt", document_boundary=mode))
    monkeypatch.setattr("unmask.text.decode.CHUNK_BYTES", 7)
    assert list(corpus(tmp_path / "a.txt", document_boundary=mode)) == whole
    assert "\ufeff" not in whole[0].text
    assert "\r" not in whole[0].text


def test_long_document_is_split_at_natural_boundaries(tmp_path):
    sentence = "This is a sentence of the very long document. "
    text = sentence * (3 * MAX_DOCUMENT_CHARS // len(sentence))
    (tmp_path / "a.txt").write_text("short\n" + text + "\nshort again\n")
    loaded = corpus(tmp_path / "a.txt", document_boundary="line")
    documents = list(loaded)
    parts = documents[1:-1]
    assert len(parts) in (3, 4)
    assert all(len(d.text) <= MAX_DOCUMENT_CHARS and d.text.endswith("document.") and d.line == 2 for d in parts)
    assert " ".join(d.text for d in parts) == text.strip()
    assert documents[-1].text == "short again"
    assert documents[-1].line == 3
    assert problems_of(loaded) == [
        f"{tmp_path}/a.txt:2: line of {len(text):,} characters, split into {len(parts)} documents",
    ]


def test_long_record_is_split(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "词" * (2 * MAX_DOCUMENT_CHARS + 5)}) + "\n")
    loaded = corpus(tmp_path / "a.jsonl")
    assert [len(d.text) for d in loaded] == [MAX_DOCUMENT_CHARS, MAX_DOCUMENT_CHARS, 5]
    assert loaded.report.counts == {"split_documents": 1}


# --------------------------------------------------------------------------------------------- encodings

ENCODED = {
    "utf-8": "Ünïcödé 文本",
    "utf-8-sig": "Ünïcödé 文本",
    "utf-16": "Ünïcödé 文本",
    "utf-32": "Ünïcödé 文本",
    "gb18030": "我们喜欢这部电影，因为它很好看。导演很厉害！",
    "big5": "我們喜歡這部電影，因為它很好看。導演很厲害！",
    "cp1252": "Ça va très bien, merci – déjà vu à l’hôtel.",
    "cp1251": "Привет, как дела сегодня? Всё хорошо.",
    "shift_jis": "こんにちは世界、今日はいい天気ですね。",
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_encodings_are_detected(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes(ENCODED[encoding].encode(encoding))
    loaded = corpus(tmp_path / "a.txt")
    assert [d.text for d in loaded] == [ENCODED[encoding]]
    assert loaded.files[0].encoding == encoding.removesuffix("-sig")
    assert not loaded.report.problems
    assert texts(tmp_path / "a.txt", encoding=encoding) == [ENCODED[encoding]]


def test_encoding_detected_after_ascii_start(tmp_path):
    """The first two MiB are ASCII, so the encoding is detected at the first non-ASCII byte."""
    lines = "plain text\n" * 200_000 + "Ça a été très agréable, à l’été.\n" * 20
    (tmp_path / "a.txt").write_bytes(lines.encode("cp1252"))
    loaded = corpus(tmp_path / "a.txt", document_boundary="line")
    assert [d.text for d in loaded][-1] == "Ça a été très agréable, à l’été."
    assert not loaded.report.problems


def test_unknown_encoding(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for name in ("utf8x", "base64", "no such"):
        with pytest.raises(UserError, match=r"unknown encoding.*\n.*gb18030"):
            corpus(tmp_path / "a.txt", encoding=name)


def test_explicit_encoding_without_byte_order_mark(tmp_path):
    for name in ("utf-16-le", "utf-16-be"):
        for text in ("Ünïcödé text in UTF-16", "我们昨天在学校的图书馆里读书。\n老师说：这一本书很有意思！\n"):
            path = tmp_path / "a.txt"
            path.write_bytes(text.encode(name))
            with pytest.raises(UserError, match=f"not text but .*\n.*\n  hint:     pass --encoding {name} "):
                corpus(path)
            assert texts(path, encoding=name, document_boundary="file") == [text.strip()]
    (tmp_path / "b.txt").write_text("text")
    assert f"--encoding {name}" in corpus(tmp_path).describe()
    assert f"--encoding {name}" in problems_of(read(tmp_path))[0]


# ----------------------------------------------------------------------------------------------- problems


def test_undecodable_bytes_are_repaired_and_located(tmp_path):
    (tmp_path / "a.txt").write_bytes("größer\n".encode() * 3 + b"bad \xff\xfe byte\n" + "größer\n".encode() + b"b\xc3")
    loaded = corpus(tmp_path / "a.txt", document_boundary="line")
    assert [d.text for d in loaded][3:] == ["bad \ufffd byte", "größer", "b\ufffd"]
    assert loaded.report.counts == {"repaired_bytes": 3}
    assert [p.rsplit(": ")[0] for p in problems_of(loaded)] == [f"{tmp_path}/a.txt:4", f"{tmp_path}/a.txt:6"]


def test_replacement_characters_in_the_source_are_accepted(tmp_path):
    (tmp_path / "a.txt").write_text("a \ufffd b")
    assert not read(tmp_path / "a.txt").report.problems


def test_control_characters(tmp_path):
    (tmp_path / "a.txt").write_bytes("one\ntw\0o\x07 page\x0cbreak\nquoted \x93so\x94\n".encode() + b"text " * 20)
    loaded = corpus(tmp_path / "a.txt", document_boundary="line")
    assert [d.text for d in loaded][:3] == ["one", "two page break", "quoted “so”"]
    assert loaded.report.counts == {"control_characters": 5}
    assert problems_of(loaded)[0] == f"{tmp_path}/a.txt:2: U+0000 removed"
    assert problems_of(loaded)[-1] == f"{tmp_path}/a.txt:3: U+0094 read as '”'"


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 9, b"%PDF-1.4 text", b"PK\x03\x04 zip", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"]
)
def test_binary_file(tmp_path, data):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(UserError, match=r"a\.txt: not text but"):
        corpus(tmp_path)
    (tmp_path / "b.txt").write_text("text")
    loaded = corpus(tmp_path)
    assert [d.text for d in loaded] == ["text"]
    assert loaded.report.counts == {"skipped_files": 1}
    assert problems_of(loaded)[0].startswith(f"{tmp_path}/a.txt: not text but")
    assert "1 files skipped" in loaded.describe()


def test_readable_part_of_a_damaged_archive_is_used(tmp_path):
    whole = gzip.compress(os.urandom(1).hex().encode() + b"\n\nsome text\n\n" + os.urandom(100_000).hex().encode())
    (tmp_path / "a.txt.gz").write_bytes(whole[:-2000])
    loaded = corpus(tmp_path / "a.txt.gz", document_boundary="paragraph")
    assert "some text" in [d.text for d in loaded]
    assert loaded.report.counts == {"damaged_files": 1}
    assert problems_of(loaded)[0].startswith(f"{tmp_path}/a.txt.gz: ")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match=r"a\.parquet: cannot be read"):
        corpus(tmp_path / "a.parquet")


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("mode", ["file", "paragraph", "line"])
def test_truncated_archive_is_read_up_to_the_truncation(tmp_path, ending, mode):
    """The document at the truncation point is used too, in the first and in the second of two frames."""
    lines = [os.urandom(30).hex() for _ in range(20_000)]
    text = "".join(f"{line}\n\n" if i % 1000 == 999 else f"{line}\n" for i, line in enumerate(lines))
    half = PACKED[ending](text.encode())
    path = tmp_path / f"a.txt{ending}"
    for data in (half[: len(half) * 2 // 3], half + half[: len(half) * 2 // 3], half + half[:-1], half[:-1]):
        path.write_bytes(data)
        loaded = corpus(path, document_boundary=mode)
        documents = [d.text for d in loaded]
        assert loaded.report.counts["damaged_files"] == 1
        assert not loaded.report.counts["empty_files"]
        assert "end" in problems_of(loaded)[0]
        text_read = "".join("".join(documents).split())
        whole = "".join(lines) * 2
        assert whole.startswith(text_read)
        assert len(text_read) > (len(data) / len(half) - 0.4) * len(whole) / 2
        if mode != "file":
            unit = "\n\n" if mode == "paragraph" else "\n"
            assert documents[:10] == [part.strip() for part in text.split(unit)[:20] if part.strip()][:10]
    path.write_bytes(half + half)
    assert not read(path, document_boundary=mode).report.counts["damaged_files"]


def test_truncated_archive_of_records(tmp_path):
    lines = [json.dumps({"text": os.urandom(30).hex()}) + "\n" for _ in range(10_000)]
    for ending in (".gz", ".zst"):
        data = PACKED[ending]("".join(lines).encode())
        (tmp_path / f"a.jsonl{ending}").write_bytes(data[: len(data) // 2])
        loaded = corpus(tmp_path / f"a.jsonl{ending}")
        documents = [d.text for d in loaded]
        assert documents == [json.loads(line)["text"] for line in lines[: len(documents)]]
        assert len(documents) > 3000
        assert loaded.report.counts["damaged_files"] == 1


def test_highly_compressed_zst_is_read_in_bounded_chunks():
    stream = decompress(io.BytesIO(zstandard.compress(bytes(200_000_000), 19)))
    tracemalloc.start()
    size = 0
    while data := stream.read1(1 << 20):
        assert len(data) <= 1 << 20
        size += len(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 200_000_000
    assert peak < 80_000_000


def test_problems_of_json_lines(tmp_path):
    lines = [
        '{"text": "good"}',
        '{"text": "cut off',
        '{"title": "no text"}',
        '{"text": 5}',
        "[1, 2]",
        '{"text": null}',
        '{"text": " "}',
        "",
        '"a bare string"',
        '{"text": "lone \\ud83d surrogate"}',
        '{"text": "pair \\ud83d\\ude00 nul \\u0000 crlf \\r\\n"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    loaded = corpus(tmp_path / "a.jsonl")
    assert [(d.text, d.line) for d in loaded] == [
        ("good", 1),
        ("a bare string", 9),
        ("lone \ufffd surrogate", 10),
        ("pair 😀 nul  crlf", 11),
    ]
    assert loaded.report.counts == {
        "bad_json": 1,
        "missing_values": 1,
        "not_text": 2,
        "empty_records": 2,
        "repaired_surrogates": 1,
        "control_characters": 1,
    }
    assert [int(p.removeprefix(f"{tmp_path}/a.jsonl:").split(":")[0]) for p in problems_of(loaded)] == [
        2,
        3,
        4,
        5,
        6,
        7,
        10,
        11,
    ]


def test_problems_of_csv(tmp_path):
    (tmp_path / "a.csv").write_text('id,text\n1,good\n2\n3,more,than\n\n4,"two\nlines"\n5,\n6,"never closed\n7,x\n')
    loaded = corpus(tmp_path / "a.csv")
    assert [(d.text, d.line) for d in loaded] == [("good", 2), ("more", 4), ("two\nlines", 6), ("never closed\n7,x", 9)]
    assert problems_of(loaded) == [
        f"{tmp_path}/a.csv:3: 1 field, the header has 2",
        f"{tmp_path}/a.csv:3: no 'text'",
        f"{tmp_path}/a.csv:4: 3 fields, the header has 2",
        f"{tmp_path}/a.csv:8: 'text' is empty",
    ]


def test_unclosed_quote_is_bounded(tmp_path, monkeypatch):
    import csv

    monkeypatch.setattr("unmask.text.readers.MAX_FIELD_CHARS", 200_000)
    before = csv.field_size_limit(131_072)
    try:
        (tmp_path / "a.csv").write_text("text\ngood\n" + '"never closed\n' + "row\n" * 100_000)
        loaded = read(tmp_path / "a.csv")
    finally:
        csv.field_size_limit(before)
    assert problems_of(loaded)[0].startswith(f"{tmp_path}/a.csv:3: skipped up to line ")
    assert loaded.report.documents > 40_000


def test_json_line_above_the_limit_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.text.readers.MAX_LINE_CHARS", 3_000_000)
    lines = ["a" * 10, "b" * 4_000_000, "c" * 2_500_000, "d"]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
    loaded = corpus(tmp_path / "a.jsonl")
    assert [(d.text[0], d.line) for d in loaded] == [("a", 1), ("c", 3), ("c", 3), ("c", 3), ("d", 4)]
    assert problems_of(loaded)[0].startswith(f"{tmp_path}/a.jsonl:2: 4,000,012 characters")


def test_long_csv_field(tmp_path):
    (tmp_path / "a.csv").write_text("text\n" + "w " * 200_000 + "\nshort\n")
    assert [len(text) for text in texts(tmp_path / "a.csv")] == [399_999, 5]


def test_empty_file_among_others(tmp_path):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.txt").write_text("text")
    (tmp_path / "c.csv").write_text("\n")
    assert problems_of(read(tmp_path)) == [f"{tmp_path}/{name}: no text in it" for name in ("a.txt", "c.csv")]


def test_report_is_bounded_and_complete(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n' + "bad\n" * 10_000)
    loaded = read(tmp_path / "a.jsonl")
    assert loaded.report.counts["bad_json"] == 10_000
    assert len(loaded.report.problems) == 20
    assert len(str(loaded.report).splitlines()) < 10
    assert json.loads(json.dumps(loaded.report.as_dict()))["bad_json"] == 10_000
    list(loaded)
    assert loaded.report.counts["bad_json"] == 10_000, "the report must cover only the last iteration"


# ------------------------------------------------------------------------------------------------ columns


def write_table(path: Path, columns: dict[str, list]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(dict(zip(columns, row))) for row in zip(*columns.values())))
    else:
        rows = [columns, *zip(*columns.values())]
        path.write_text("\n".join(("\t" if path.suffix == ".tsv" else ",").join(map(str, row)) for row in rows))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_columns(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    write_table(path, {"title": ["t1", "t2"], "lead": ["l1", "l2"], "stars": [1, 2]})
    assert texts(path, text_column="lead") == ["l1", "l2"]
    with pytest.raises(UserError, match=r"(?s)no column 'text'.*title, lead, stars.*--text-column NAME"):
        corpus(path)
    with pytest.raises(UserError, match=r"no column 'titel' \(did you mean title\?\)"):
        corpus(path, text_column="titel")
    write_table(path, {"title": ["t1", "t2"], "Review": ["r1", "r2"], "stars": [1, 2]})
    assert texts(path) == ["r1", "r2"]
    assert "column 'Review' (there is no column 'text'" in corpus(path).describe()
    write_table(path, {"id": [7, 8], "saying": ["s1", "s2"]})
    assert texts(path) == ["s1", "s2"]


def test_table_without_the_text_column_is_reported_and_skipped(tmp_path):
    write_table(tmp_path / "a.csv", {"year": [1], "who": ["x"], "where": ["y"]})
    write_table(tmp_path / "b.csv", {"text": ["t"]})
    loaded = corpus(tmp_path)
    assert [d.text for d in loaded] == ["t"]
    assert problems_of(loaded) == [f"{tmp_path}/a.csv: no column 'text'"]


# ------------------------------------------------------------------------------------- fingerprint, memory


def test_fingerprint(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(BLOCKS)
    first = corpus(path).fingerprint()
    assert first == corpus(path).fingerprint()
    assert first != corpus(path, document_boundary="line").fingerprint()
    assert first == corpus(path, eval_fraction=0.1).fingerprint()
    path.rename(tmp_path / "b.txt")
    assert first == corpus(tmp_path / "b.txt").fingerprint()
    (tmp_path / "b.txt").write_text(BLOCKS.replace("Third", "Fourth"))
    assert first != corpus(tmp_path / "b.txt").fingerprint()


def test_pickle(tmp_path):
    (tmp_path / "a.txt").write_text(BLOCKS)
    loaded = read(tmp_path / "a.txt")
    assert list(pickle.loads(pickle.dumps(loaded))) == list(loaded)


# VmHWM, not ru_maxrss: that one survives exec, so it would be the size of the test process.
PEAK = r"""
import re, sys
from unmask.text.corpus import Corpus
from unmask.recipe import DataRecipe
corpus = Corpus([sys.argv[1]], DataRecipe(document_boundary=sys.argv[2]))
count = sum(1 for _ in corpus)
print(count, int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


def peak(path: Path, documents: str = "auto") -> tuple[int, int]:
    """Return (documents, MiB) of iterating a corpus in a subprocess."""
    run = subprocess.run([sys.executable, "-c", PEAK, str(path), documents], capture_output=True, check=True, text=True)
    count, memory = run.stdout.split()
    print(path.name, count, memory)
    return int(count), int(memory)


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
def test_line_of_100_mb_is_read_in_bounded_memory(tmp_path, ending):
    word = b"word " * 200_000  # 1 MB
    (tmp_path / "small.txt").write_bytes(word)
    path = tmp_path / f"big{ending}"
    with gzip.open(path, "wb", 1) if ending.endswith("gz") else open(path, "wb") as out:
        for _ in range(100):
            out.write(word)
    small_peak = peak(tmp_path / "small.txt")[1]
    count, large_peak = peak(path)
    assert 95 <= count <= 102
    assert large_peak < small_peak + 20, (large_peak, small_peak)


def test_skipped_json_line_is_not_held_in_memory(tmp_path):
    """A record may take 64 MiB; skipping one of 300 MB may not take more."""
    (tmp_path / "small.jsonl").write_text('{"text": "good"}\n')
    with open(tmp_path / "big.jsonl", "w") as out:
        out.write('{"text": "good"}\n{"text": "')
        for _ in range(300):
            out.write("word " * 200_000)
        out.write('"}\n')
    small_peak = peak(tmp_path / "small.jsonl")[1]
    count, large_peak = peak(tmp_path / "big.jsonl")
    assert count == 1
    assert large_peak < small_peak + 64 + 20, (large_peak, small_peak)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.parquet"])
def test_memory_does_not_grow_with_the_corpus(tmp_path, name):
    text = "A sentence that is part of a text of some length, as texts are. " * 15

    def write(path: Path, megabytes: int) -> Path:
        if path.suffix == ".parquet":
            with pq.ParquetWriter(
                path, pa.schema({"text": pa.string()}), compression="none", use_dictionary=False
            ) as out:
                for i in range(megabytes):
                    out.write_table(pa.table({"text": [f"{i} {j} {text}" for j in range(1000)]}))
            return path
        line = {".txt": text + "\n\n", ".jsonl": json.dumps({"text": text}) + "\n", ".csv": f'"{text}"\n'}[path.suffix]
        with open(path, "w") as out:
            out.write("text\n" if path.suffix == ".csv" else "")
            for _ in range(megabytes):
                out.write(line * 1000)
        return path

    small, big = write(tmp_path / f"small-{name}", 10), write(tmp_path / f"big-{name}", 200)
    small_count, small_peak = peak(small)
    large_count, large_peak = peak(big)
    assert large_count == 20 * small_count
    assert large_peak < small_peak + (60 if name.endswith("parquet") else 20), (
        large_peak,
        small_peak,
    )  # arrow's allocator keeps some
