"""LabelFile: reads texts, saves each label, keeps everything else, resumes, and refuses to overwrite changes of other programs."""

import csv
import gzip
import io
import json
import os
import stat
from pathlib import Path

import pytest

from unmask.errors import UserError
from unmask.labels.label_file import FileChanged, LabelFile, labels_path

AWKWARD = [
    'so, "so"',
    "two\nlines",
    "two\r\nlines",
    "",
    " spaces ",
    "tab\tinside",
    "'quoted'",
    "form\x0cfeed",
    "好",
    "a;b|c",
]


def write_csv(path: Path, rows: list[list[str]], delimiter: str = ",", encoding: str = "utf-8") -> Path:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows(rows)
    path.write_bytes(out.getvalue().encode(encoding))
    return path


def read_csv(path: Path, delimiter: str = ",", encoding: str = "utf-8") -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_bytes().decode(encoding), newline=""), delimiter=delimiter))


def to_label(path: Path) -> Path:
    """Write a file as `unmask learn` does."""
    rows = [[f"text {n}", "", "neg" if n % 3 else "pos", str(n / 10)] for n in range(6)]
    return write_csv(path, [["text", "label", "suggested", "probability"], *rows])


# --------------------------------------------------------------------------------------------------------- saving


@pytest.mark.parametrize(
    ("name", "delimiter", "encoding"),
    [
        ("a.csv", ",", "utf-8"),
        ("a.csv", ";", "utf-8-sig"),
        ("a.csv", "|", "utf-16"),
        ("a.tsv", "\t", "utf-8"),
        ("a.txt", "\t", "utf-8"),
    ],
)
def test_other_cells_survive_every_label(tmp_path: Path, name: str, delimiter: str, encoding: str) -> None:
    rows = [["id", "text", "label", "note"], *([str(n), f"文本 {n} {a}", "", a] for n, a in enumerate(AWKWARD))]
    path = write_csv(tmp_path / name, rows, delimiter, encoding)
    start = path.read_bytes()
    file = LabelFile(labels_path(path), labels=["甲", "乙"])
    assert path.read_bytes() == start  # opening writes nothing
    assert file.texts == [row[1] for row in rows[1:]]
    for index in (3, 0, 9, 1, 2, 4, 5, 6, 7, 8):
        file.set_label(index, "甲乙"[index % 2])
        rows[index + 1][2] = "甲乙"[index % 2]
        assert read_csv(path, delimiter, encoding) == rows
    assert path.read_bytes().startswith(start[:2])  # the byte order mark
    file.set_label(2, "")
    rows[3][2] = ""
    assert read_csv(path, delimiter, encoding) == rows
    assert LabelFile(path).next_unlabeled() == 2 and LabelFile(path).num_labeled == 9


def test_legacy_encoding_becomes_utf_8_with_the_first_label(tmp_path: Path) -> None:
    rows = [["text", "label", "note"], *([f"这部电影很好看，第 {n} 次", "", "保留"] for n in range(5))]
    path = write_csv(tmp_path / "a.csv", rows, encoding="gb18030")
    file = LabelFile(path, labels=["é"])
    assert file.converted_from == "gb18030" and file.texts == [row[0] for row in rows[1:]]
    file.set_label(0, "é")
    rows[1][1] = "é"
    assert read_csv(path, encoding="utf-8-sig") == rows
    assert LabelFile(path).texts == file.texts and not LabelFile(path).converted_from


def test_rows_without_a_new_label_keep_their_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = ['"text" ,"label"\r\n', '"quoted",""\r\n', "\r\n", "plain,\n", '"last",pos']
    path.write_bytes("".join(lines).encode())
    LabelFile(path, labels=["pos"]).set_label(1, "pos")
    assert path.read_bytes().decode() == "".join([*lines[:3], "plain,pos\n", lines[4]])


def test_quotes_of_a_tab_separated_file_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"Yes" he said\t\n"No\tpos\n', "utf-8")
    file = LabelFile(path, labels=["pos", "neg"])
    assert file.texts == ['"Yes" he said', '"No']
    file.set_label(0, "neg")
    assert path.read_text("utf-8") == 'text\tlabel\n"Yes" he said\tneg\n"No\tpos\n'
    with pytest.raises(UserError, match="contains control characters"):
        LabelFile(path, labels=["a", "b\tc"])


def test_jsonl_keeps_other_keys_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    objects = [
        {"id": 1, "review": {"body": "so\nso \u2028 好", "stars": [1, 2.50]}, "label": None},
        {"review": {"body": "fine"}, "label": 1, "big": 10**20, "half": "\ud800"},
        {"review": {"body": "no label key"}},
    ]
    lines = [json.dumps(value, ensure_ascii=n == 1) for n, value in enumerate(objects)]
    path.write_text("\n\n".join(lines) + "\n", "utf-8")
    file = LabelFile(path, text_column="review.body", labels=["1", "二"])
    assert file.texts[0] == "so\nso \u2028 好" and file.current == ["", "1", ""]
    for index, label in ((2, "1"), (0, "二"), (1, "二")):
        file.set_label(index, label)
        objects[index]["label"] = label
        assert [json.loads(line) for line in path.read_text("utf-8").split("\n") if line] == objects
    file.set_label(0, "")
    assert json.loads(path.read_text("utf-8").split("\n")[0])["label"] is None
    assert LabelFile(path, text_column="review.body").next_unlabeled() == 0


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_missing_label_column_is_added_with_the_first_label(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(
        "id,text\r\n1,a b\r\n2,c d\r\n" if name == "a.csv" else '{"text": "a b"}\n{"text": "c d"}\n', newline=""
    )
    before = path.read_bytes()
    file = LabelFile(path, label_column="stars", labels=["x"])
    assert file.adds_column and path.read_bytes() == before
    file.set_label(1, "x")
    again = LabelFile(path, label_column="stars")
    assert (again.texts, again.current, again.adds_column) == (["a b", "c d"], ["", "x"], False)
    if name == "a.csv":
        assert path.read_bytes() == b"id,text,stars\r\n1,a b,\r\n2,c d,x\r\n"


def test_rows_with_missing_fields_get_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nso good\nbad film\n", "utf-8")
    LabelFile(path, labels=["pos", "neg"]).set_label(1, "neg")
    assert read_csv(path) == [["text", "label"], ["so good"], ["bad film", "neg"]]


def test_plain_text_is_labeled_in_a_csv_file_next_to_it(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text('first, "quoted"\n\n第二行\n', "utf-8")
    target = labels_path(path)
    assert target == tmp_path / "texts.txt.csv"
    LabelFile(target, labels=["a"]).set_label(1, "a")
    assert labels_path(path) == target  # resumes
    assert read_csv(target) == [["text", "label"], ['first, "quoted"', ""], ["第二行", "a"]]
    assert path.read_text("utf-8") == 'first, "quoted"\n\n第二行\n'
    path.write_text("other\n", "utf-8")
    with pytest.raises(UserError, match="has other texts than"):
        labels_path(path)
    assert read_csv(target)[2] == ["第二行", "a"]


def test_links_and_permissions_are_kept_and_leftovers_removed(tmp_path: Path) -> None:
    real, link = to_label(tmp_path / "real.csv"), tmp_path / "link.csv"
    real.chmod(0o600)
    link.symlink_to(real)
    leftover = tmp_path / "real.csv.999999999.partial"  # of a killed process
    leftover.write_text("half a file")
    LabelFile(link).set_label(0, "pos")
    assert link.is_symlink() and read_csv(real)[1][1] == "pos"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert not leftover.exists() and len(list(tmp_path.iterdir())) == 2


# ------------------------------------------------------------------------------------------------ other programs


def test_changes_of_other_programs_are_not_overwritten(tmp_path: Path) -> None:
    path = to_label(tmp_path / "a.csv")
    first, second = LabelFile(path), LabelFile(path)
    first.set_label(0, "pos")
    with pytest.raises(FileChanged, match=r"another program changed or removed a\.csv"):
        second.set_label(1, "neg")
    assert [row[1] for row in read_csv(path)[1:3]] == ["pos", ""] and second.current[1] == ""
    first.set_label(1, "neg")  # its own changes are known
    status = path.stat()
    same_size = path.read_bytes().replace(b"text 5", b"TEXT 5")
    path.write_bytes(same_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(FileChanged):
        first.set_label(2, "neg")
    assert path.read_bytes() == same_size
    path.unlink()
    with pytest.raises(FileChanged):
        first.set_label(2, "neg")
    assert not path.exists()


def test_touching_the_file_is_not_a_change(tmp_path: Path) -> None:
    file = LabelFile(to_label(tmp_path / "a.csv"))
    os.utime(file.path, (1, 1))
    file.set_label(0, "pos")
    assert read_csv(file.path)[1][1] == "pos"


def test_failed_save_keeps_file_and_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LabelFile(to_label(tmp_path / "a.csv"))
    before = file.path.read_bytes()

    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match=r"not saved: cannot write .*No space left"):
            file.set_label(0, "pos")
    assert file.path.read_bytes() == before and file.current[0] == ""
    file.set_label(1, "neg")
    assert [row[1] for row in read_csv(file.path)[1:3]] == ["", "neg"]


# --------------------------------------------------------------------------------------------------------- labels


def test_labels_come_from_the_file_most_frequent_first(tmp_path: Path) -> None:
    path = to_label(tmp_path / "a.csv")
    assert LabelFile(path).labels == ["neg", "pos"]
    file = LabelFile(path, labels=["pos", "neg", "pos"])
    assert file.labels == ["pos", "neg"]
    assert (file.suggested[0], file.probabilities[5]) == ("pos", 0.5)


def test_label_that_is_not_in_the_list_is_kept(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [["text", "label"], ["a b", "mixed"], ["c d", ""]])
    file = LabelFile(path, labels=["pos", "neg"])
    assert (file.labels, file.current, file.next_unlabeled()) == (["pos", "neg"], ["mixed", ""], 1)
    file.set_label(1, "pos")
    assert read_csv(path) == [["text", "label"], ["a b", "mixed"], ["c d", "pos"]]
    assert file.next_unlabeled() == len(file) == 2


def test_chinese_column_names_are_recognized(tmp_path: Path) -> None:
    file = LabelFile(write_csv(tmp_path / "a.csv", [["评论", "标签"], ["很好", "正面"], ["很差", ""]]))
    assert (file.text_column, file.label_column, file.labels, file.adds_column) == ("评论", "标签", ["正面"], False)


def test_rows_without_a_text_are_left_out(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [["text", "label"], ["a", ""], [" ", ""], ["b", ""]])
    file = LabelFile(path, labels=["x"])
    file.set_label(1, "x")
    assert (file.texts, file.num_empty) == (["a", "b"], 1)
    assert read_csv(path)[1:] == [["a", ""], [" ", ""], ["b", "x"]]


# --------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\nso good,\n", "has no labels yet"),
        ("a.csv", "", "the file has no rows"),
        ("a.csv", "text,label\n", "the file has no rows"),
        ("a.txt", "\n\n", "the file has no rows"),
        ("a.csv", "text,label\n,\n ,\n", "has no texts"),
        ("a.csv", "id,first,second\n1,so good,so bad\n2,a,b\n", "no column 'text'"),
        (
            "a.csv",
            "so good it is today,pos\nso bad it was,neg\nso so it seems,pos\n",
            "looks like data, not like a header",
        ),
        ("a.csv", "text,label,label\na,b,c\n", "2 columns are named 'label'"),
        ("a.csv", 'text,label\n"never closed,pos\nfine,neg\n', "unclosed quote"),
        ("a.csv", "text,label\n" + "".join(f"t {n},l{n}\n" for n in range(51)), "51 different labels"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": \n', "not JSON"),
        ("a.jsonl", '{"text": "a", "label": ["x", "y"]}\n', "does not have one label per text"),
        ("a.json", '[{"text": "a", "label": "x"}, {"text": "b"}]', "not a table that can be labeled"),
        ("a.csv", "text,label\n好好好好好,x\n".encode() + b"bad \xff,y\n", "some bytes are not text"),
        ("a.csv.gz", gzip.compress(b"text,label\na,b\n"), "compressed files cannot be labeled"),
    ],
)
def test_mistakes_have_their_own_messages(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = tmp_path / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as error:
        LabelFile(labels_path(path))
    assert error.value.expected or error.value.hint
    assert path.read_bytes() == data and len(list(tmp_path.iterdir())) == 1


def test_labels_and_columns_are_checked(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", [["text", "label"], ["a text", ""]])
    for columns, labels, message in (
        (("text", "text"), ["a"], "cannot hold both"),
        (("text", "label"), ["a\nb"], "control characters"),
        (("text", "label"), [str(n) for n in range(51)], "--labels has 51"),
        (("txt", "label"), ["a"], "no column 'txt'"),
    ):
        with pytest.raises(UserError, match=message):
            LabelFile(path, *columns, labels=labels)
    for missing in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(UserError, match=r"no such file|this is a folder"):
            labels_path(missing)
