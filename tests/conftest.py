"""Shared fixtures. Each test process uses one thread unless OMP_NUM_THREADS is set (two processes would compete) and its own cache;
`store` is a small real token store."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from unmask.recipe import DataRecipe, TokenizerRecipe
from unmask.text.corpus import Corpus
from unmask.text.prepare import prepare
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep tests out of the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["UNMASK_CACHE"] = str(folder)
    return folder


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip report figures: they take longer than a tiny run and have their own tests."""
    monkeypatch.setattr("unmask.report.write", lambda run: None)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 300 kB of Python's documentation, with blank lines between documents."""
    from pydoc_data.topics import topics

    path = tmp_path_factory.mktemp("text") / "topics.txt"
    blocks = ["\n".join(line for line in text.splitlines() if line.strip()) for _, text in sorted(topics.items())]
    path.write_text("\n\n".join(blocks)[:300_000], "utf-8")
    return path


@pytest.fixture(scope="session")
def store(text_file: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    corpus = Corpus([str(text_file)], DataRecipe(eval_fraction=0.1))
    tokenizer = Tokenizer.train((d.text for d in corpus), TokenizerRecipe(vocab_size=1000))
    return prepare(corpus, tokenizer, DataRecipe(eval_fraction=0.1), tmp_path_factory.mktemp("store") / "store")
