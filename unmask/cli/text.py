"""Verbs about text: samples, tokenizers, stores, the cache."""

from pathlib import Path
from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import RecipeCommand, recipe_flags
from unmask.cli.options import Corpus, Json, Quiet, RecipeFile, Sets, emit, verb
from unmask.console import Console, write

tokenizer_app = typer.Typer(help="Train a tokenizer and look at it.", no_args_is_help=True, rich_markup_mode=None)
cache_app = typer.Typer(
    help="Prepared text and tokenizers kept for next time.", no_args_is_help=True, rich_markup_mode=None
)


@verb("unmask samples", "unmask samples --json")
def samples(as_json: Json = False) -> None:
    """List the corpora that pip packages provide, with size, licence and how to get each."""
    from unmask.cli.show.tables import samples_table

    found = unmask.samples()
    return emit(found) if as_json else samples_table(found)


@tokenizer_app.command("train", cls=RecipeCommand)
@verb(
    "unmask tokenizer train sample:python-docs --vocab-size 4096 -o runs/tokenizer",
    "unmask tokenizer train corpus/*.txt --tokenizer-type bpe --cased --special-token '<user>' -o runs/bpe",
    "zcat logs.gz | unmask tokenizer train - --tokenizer-type byte -o runs/bytes",
)
@recipe_flags("tokenizer train")
def tokenizer_train(
    corpus: Corpus,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    recipe: RecipeFile = None,
    sets: Sets = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train a tokenizer on text; report vocabulary, tokens per word and [UNK] rate on held-out text."""
    from unmask.api import make_recipe
    from unmask.cli.show.tables import tokenizer_report

    made = make_recipe(corpus, recipe, sets or (), **settings)
    report = unmask.train_tokenizer(None, out, recipe=made, console=Console(quiet=quiet or as_json))
    return emit(report) if as_json else tokenizer_report(report)


@tokenizer_app.command("show")
@verb("unmask tokenizer show runs/tokenizer 'The president spoke.'")
def tokenizer_show(folder: str, text: str, as_json: Json = False) -> None:
    """Show how a tokenizer cuts a text."""
    from unmask.api import model_in
    from unmask.text.tokenizer import Tokenizer

    t = Tokenizer.load(model_in(folder))
    ids = t.encode(text)
    if as_json:
        return emit({"tokens": [t.token(i) for i in ids], "ids": ids})
    write(" ".join(t.token(i) for i in ids))


@verb(
    "unmask prepare corpus/ -o runs/store",
    "unmask prepare reviews.csv --text-column review --tokenizer-type bpe --vocab-size 16384 -o runs/reviews",
    "unmask prepare news.txt.zst --tokenizer runs/tokenizer",
)
@recipe_flags("prepare")
def prepare(
    corpus: Corpus,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the store. Default: in the cache.")] = None,
    pairs: Annotated[
        list[int] | None, typer.Option(help="Row length for which sentence pairs are indexed now.")
    ] = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Tokenize a corpus into a memory-mapped store with document, sentence and word boundaries."""
    from unmask.api import make_recipe

    made = make_recipe(corpus, recipe, sets or (), **settings)
    store = unmask.prepare(None, out, recipe=made, lengths=pairs or (), console=Console(quiet=quiet or as_json))
    if as_json:
        return emit({"path": str(store.path), **store.meta})
    write(str(store.path))


@verb(
    "unmask show-batch runs/store",
    "unmask show-batch runs/store --objective mlm+nsp --rows 4 --mask-rate 0.3",
)
@recipe_flags("show-batch")
def show_batch(
    store: Annotated[str, typer.Argument()],
    objective: Annotated[str, typer.Option(help="mlm, mlm+nsp, mlm+sop, hybrid, span …")] = "mlm",
    rows: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 4,
    max_length: Annotated[int, typer.Option(help="Tokens per row.")] = 64,
    sets: Sets = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Print training rows with their masked, random and kept tokens coloured."""
    from unmask.api import make_recipe
    from unmask.cli.show.render import batch_rows

    made = make_recipe(None, None, sets or (), objective=objective, max_length=max_length, **settings)
    batch = unmask.show_batch(store, recipe=made, rows=rows)
    return emit(batch) if as_json else write(batch_rows(batch))


@cache_app.command("list")
@verb("unmask cache list")
def cache_list(as_json: Json = False) -> None:
    """What is kept, how large it is, when it was used."""
    from unmask.cli.show.tables import cache_table
    from unmask.text.cache import cache_entries

    entries = cache_entries()
    return emit(entries) if as_json else cache_table(entries)


@cache_app.command("prune")
@verb(
    "unmask cache prune                 # unfinished work",
    "unmask cache prune --older-than 30",
    "unmask cache prune --all",
)
def cache_prune(
    older_than: Annotated[float | None, typer.Option(help="Days since last use.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    as_json: Json = False,
) -> None:
    """Remove unfinished work, what was not used for some days, or everything."""
    from unmask.text.cache import prune

    removed = prune(older_than_days=older_than, everything=everything)
    if as_json:
        return emit(removed)
    write(f"removed {len(removed)} entries, {sum(e.bytes for e in removed) / 1e6:,.1f} MB")


VERBS = (samples, prepare, show_batch)
GROUPS = {"tokenizer": tokenizer_app, "cache": cache_app}
