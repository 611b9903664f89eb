"""Prepare a corpus for training: load or train its tokenizer, and build its token store and those of replay corpora."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from unmask.console import Console
from unmask.errors import UserError
from unmask.files import new_folder
from unmask.model.config import with_tokenizer
from unmask.recipe import Recipe
from unmask.text import extend as extension
from unmask.text.checked import write_folder_checksums
from unmask.text.corpus import Corpus
from unmask.text.mix import parse_replay as mix_parts
from unmask.text.prepare import prepare as build_store
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer, cached_tokenizer, tokenizer_folder


@contextmanager
def reading_progress(console: Console, title: str, corpus: Corpus) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of the bytes of a corpus that have been read."""
    with console.bar(title) as update:
        total = corpus.bytes()
        yield lambda read: update(min(read, total), total, "")


def train_tokenizer(recipe: Recipe, folder: Path, console: Console) -> dict[str, Any]:
    """Train a tokenizer on a corpus, save it in `folder` and return a report on held-out text."""
    recipe = with_tokenizer(recipe)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists", hint="choose a different folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot create the folder {folder}: {error.strerror}", hint="choose a different folder with -o"
        ) from None
    try:
        return _train_tokenizer(recipe, folder, console)
    except (UserError, KeyboardInterrupt):  # remove the folder if it is still empty
        with suppress(OSError):
            folder.rmdir()
        raise


def _train_tokenizer(recipe: Recipe, folder: Path, console: Console) -> dict[str, Any]:
    source = open_corpus(recipe, console)
    heldout: list[str] = []
    size = 0

    def training_texts():
        nonlocal size
        for n, document in enumerate(source):
            if n % 50 == 49 and size < 2_000_000:
                heldout.append(document.text)
                size += len(document.text)
            else:
                yield document.text

    with reading_progress(console, "tokenizer", source) as progress:
        tokenizer = Tokenizer.train(training_texts(), recipe.tokenizer, progress)
    tokenizer.save(folder)
    for text in source.report.lines():
        console.say(f"  {text}")
    texts = heldout or [d.text for d in islice(source, 20)]
    report = tokenizer.report(texts)
    return {
        "path": str(folder),
        **report,
        "special_tokens": [tokenizer.token(i) for i in range(tokenizer.size) if tokenizer.special[i]],
        "measured_on": "validation documents"
        if heldout
        else "the training text itself (too few documents to hold out)",
        "trained_on": tokenizer.trained_on,
    }


def open_corpus(recipe: Recipe, console: Console) -> Corpus:
    if not recipe.data.corpus:
        raise UserError(
            "no corpus given",
            expected="paths, folders, globs, '-' or sample:NAME",
            hint="unmask pretrain sample:python-docs",
        )
    corpus = Corpus(recipe.data.corpus, recipe.data)
    console.say(corpus.describe())
    return corpus


def find_tokenizer(recipe: Recipe, corpus: Corpus, console: Console) -> Tokenizer:
    """Return the tokenizer in the recipe, that of the initial model, or one trained on the corpus (and cached)."""
    settings = recipe.tokenizer
    if recipe.init_from:
        # Compare values, not `model_fields_set`: the saved recipe of a run has every field set.
        defaults = type(settings)().model_dump()
        changed = [
            n for n, v in settings.model_dump().items() if v != defaults[n] and n not in ("path", "num_added_tokens")
        ]
        if changed:
            raise UserError(
                f"--from {recipe.init_from} has its own tokenizer; {', '.join(sorted(changed))} cannot be changed",
                hint="remove the tokenizer settings",
            )
    elif settings.num_added_tokens:
        raise UserError(
            f"--extend-vocab {settings.num_added_tokens} needs --from: a new model gets a new tokenizer",
            hint="use --from MODEL --extend-vocab N, or --vocab-size N for a new tokenizer",
        )
    if settings.path or recipe.init_from:
        tokenizer = Tokenizer.load(settings.path or recipe.init_from)
        for text in tokenizer.notes:
            console.say(text)
        if settings.num_added_tokens:
            with reading_progress(console, "vocabulary", corpus) as progress:
                tokenizer, report = extension.cached_extension(tokenizer, corpus, settings.num_added_tokens, progress)
            console.say(extension.describe(report))
        return tokenizer
    settings = with_tokenizer(recipe).tokenizer
    folder = tokenizer_folder(corpus, settings)
    if (folder / "tokenizer.json").exists():
        tokenizer = cached_tokenizer(folder)
        console.say(f"tokenizer: {settings.type}, {tokenizer.size:,} tokens, trained on this text before (cached)")
        return tokenizer
    with reading_progress(console, "tokenizer", corpus) as progress:
        tokenizer = Tokenizer.train((d.text for d in corpus), settings, progress)
    with (
        suppress(OSError),
        new_folder(folder) as partial,
    ):  # fails if another process has just written the same tokenizer
        tokenizer.save(partial)
        write_folder_checksums(partial)
    console.say(f"tokenizer: {settings.type}, {tokenizer.size:,} tokens, trained on this text")
    return tokenizer


def prepare(recipe: Recipe, console: Console, out: str | Path | None = None, lengths: Sequence[int] = ()) -> TokenStore:
    """Tokenize a corpus into a memory-mapped token store, in `out` or in the cache under a key of its settings."""
    if len(recipe.data.corpus) == 1 and (Path(recipe.data.corpus[0]) / "meta.json").exists():
        store = TokenStore.open(recipe.data.corpus[0])
        store.index(lengths)
        if (
            recipe.tokenizer.num_added_tokens
            and store.tokenizer.fingerprint() == Tokenizer.load(recipe.init_from).fingerprint()
        ):
            raise UserError(
                f"--extend-vocab: the store {store.path} was already tokenized without added tokens",
                hint="give the text instead of the store",
            )
        return store
    source = open_corpus(recipe, console)
    tokenizer = find_tokenizer(recipe, source, console)
    with console.bar("prepare") as update:
        store = build_store(source, tokenizer, recipe.data, out, update, lengths)
    for text in store.meta["corpus"].get("lines", []):
        console.say(f"  {text}")
    console.say(store.describe())
    return store


def prepare_replay(recipe: Recipe, tokenizer: Tokenizer, lengths: Sequence[int], console: Console) -> list[str]:
    """Tokenize the corpora of `data.replay` with the corpus's tokenizer; return the folders of their stores."""
    folders = []
    for part in mix_parts(recipe.data.replay):
        if (Path(part.source) / "meta.json").exists():
            store = TokenStore.open(part.source)
            store.index(lengths)
        else:
            source = Corpus([part.source], recipe.data)
            console.say(f"replay, {float(part.share):.0%} of the rows: {source.describe()}")
            with console.bar("prepare") as update:
                store = build_store(source, tokenizer, recipe.data, None, update, lengths)
        folders.append(str(store.path))
    return folders
