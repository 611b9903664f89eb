"""What is done with a corpus before training: find or train its tokenizer, prepare its store and those of the mix."""

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
    """A bar of how many of the corpus's bytes are read."""
    with console.bar(title) as update:
        total = corpus.bytes()
        yield lambda read: update(min(read, total), total, "")


def train_tokenizer(recipe: Recipe, folder: Path, console: Console) -> dict[str, Any]:
    """Train a tokenizer on a corpus and save it in `folder`; a report on text held out from its training."""
    recipe = with_tokenizer(recipe)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already", hint="another folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}", hint="another folder with -o") from None
    try:
        return _train_tokenizer(recipe, folder, console)
    except (UserError, KeyboardInterrupt):  # a new folder is still empty, and nobody needs it
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
        "measured_on": "held-out documents" if heldout else "the training text itself (too few documents to hold out)",
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
    """The one named in the recipe, the one of the model to continue, or one trained on the corpus (and cached)."""
    settings = recipe.tokenizer
    if recipe.init_from:
        # Compared by value: a run's own recipe, read again, has every field set.
        usual = type(settings)().model_dump()
        changed = [
            n for n, v in settings.model_dump().items() if v != usual[n] and n not in ("path", "num_added_tokens")
        ]
        if changed:
            raise UserError(
                f"--from {recipe.init_from} brings its own tokenizer; {', '.join(sorted(changed))} cannot be changed",
                hint="leave out the tokenizer's settings",
            )
    elif settings.num_added_tokens:
        raise UserError(
            f"--extend-vocab {settings.num_added_tokens} without a model to continue: a new model gets a tokenizer of this text",
            hint="--from MODEL --extend-vocab N, or --vocab-size N for a new tokenizer",
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
    with suppress(OSError), new_folder(folder) as partial:  # another process was faster, with the same result
        tokenizer.save(partial)
        write_folder_checksums(partial)
    console.say(f"tokenizer: {settings.type}, {tokenizer.size:,} tokens, trained on this text")
    return tokenizer


def prepare(recipe: Recipe, console: Console, out: str | Path | None = None, lengths: Sequence[int] = ()) -> TokenStore:
    """Corpus → memory-mapped token store: in `out`, or in the cache under a key of its settings."""
    if len(recipe.data.corpus) == 1 and (Path(recipe.data.corpus[0]) / "meta.json").exists():
        store = TokenStore.open(recipe.data.corpus[0])
        store.index(lengths)
        if (
            recipe.tokenizer.num_added_tokens
            and store.tokenizer.fingerprint() == Tokenizer.load(recipe.init_from).fingerprint()
        ):
            raise UserError(
                f"--extend-vocab: the store {store.path} is cut already, without new words",
                hint="give the text itself in place of the store",
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
    """The texts of `data.replay`, cut with the corpus's tokenizer: the folders of their stores."""
    folders = []
    for part in mix_parts(recipe.data.replay):
        if (Path(part.source) / "meta.json").exists():
            store = TokenStore.open(part.source)
            store.index(lengths)
        else:
            source = Corpus([part.source], recipe.data)
            console.say(f"mixed in, {float(part.share):.0%} of the rows: {source.describe()}")
            with console.bar("prepare") as update:
                store = build_store(source, tokenizer, recipe.data, None, update, lengths)
        folders.append(str(store.path))
    return folders
