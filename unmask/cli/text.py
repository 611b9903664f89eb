"""Commands for text: samples, prepare, show-batch, tokenizer, cache."""

from pathlib import Path
from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import RecipeCommand, recipe_flags
from unmask.cli.help import HelpGroup
from unmask.cli.options import OUTPUT, Corpus, Json, Overrides, Quiet, RecipeFile, command, print_json
from unmask.console import Console, write

TOKENIZER = typer.Typer(
    name="tokenizer", cls=HelpGroup, help="Train and inspect tokenizers.", no_args_is_help=True, rich_markup_mode="rich"
)
CACHE = typer.Typer(
    name="cache",
    cls=HelpGroup,
    help="Manage cached corpora and tokenizers.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@command("unmask samples", "unmask samples --json")
def samples(as_json: Json = False) -> None:
    """List sample corpora, available as pip packages."""
    from unmask.cli.show.tables import samples_table

    listed = unmask.samples()
    return print_json(listed) if as_json else samples_table(listed)


@TOKENIZER.command("train", cls=RecipeCommand)
@command(
    "unmask tokenizer train sample:python-docs --vocab-size 4096 -o runs/tokenizer",
    "unmask tokenizer train corpus/*.txt --tokenizer-type bpe --cased --special-token '<user>' -o runs/bpe",
    "zcat logs.gz | unmask tokenizer train - --tokenizer-type byte -o runs/bytes",
)
@recipe_flags("tokenizer train")
def tokenizer_train(
    corpus: Corpus,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write.", metavar="FOLDER", rich_help_panel=OUTPUT)
    ],
    recipe: RecipeFile = None,
    overrides: Overrides = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train a tokenizer on text.

    Reports vocabulary, tokens per word and [UNK] rate on held-out text.
    """
    from unmask.api import make_recipe
    from unmask.cli.show.tables import tokenizer_report

    settled = make_recipe(corpus, recipe, overrides or (), **settings)
    report = unmask.train_tokenizer(None, out, recipe=settled, console=Console(quiet=quiet or as_json))
    return print_json(report) if as_json else tokenizer_report(report)


@TOKENIZER.command("show", cls=RecipeCommand)
@command("unmask tokenizer show runs/tokenizer 'The president spoke.'")
def tokenizer_show(
    folder: Annotated[str, typer.Argument(help="Tokenizer, model or run folder.", metavar="FOLDER")],
    text: Annotated[str, typer.Argument(help="Text to tokenize.", metavar="TEXT")],
    as_json: Json = False,
) -> None:
    """Show how a tokenizer splits a text."""
    from unmask.api import model_in
    from unmask.text.tokenizer import Tokenizer

    t = Tokenizer.load(model_in(folder))
    ids = t.encode(text)
    if as_json:
        return print_json({"tokens": [t.token(i) for i in ids], "ids": ids})
    write(" | ".join(t.token(i) for i in ids))


@command(
    "unmask prepare corpus/ -o runs/store",
    "unmask prepare reviews.csv --text-column review --tokenizer-type bpe --vocab-size 16384 -o runs/reviews",
    "unmask prepare news.txt.zst --tokenizer runs/tokenizer",
)
@recipe_flags("prepare")
def prepare(
    corpus: Corpus,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the store.",
            show_default="in the cache",
            metavar="FOLDER",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    index_pairs: Annotated[
        list[int] | None,
        typer.Option(help="Index sentence pairs for this sequence length now. Repeatable.", metavar="N"),
    ] = None,
    recipe: RecipeFile = None,
    overrides: Overrides = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Tokenize a corpus into a reusable store.

    The store is memory-mapped and keeps document, sentence and word boundaries.
    """
    from unmask.api import make_recipe

    settled = make_recipe(corpus, recipe, overrides or (), **settings)
    store = unmask.prepare(
        None, out, recipe=settled, lengths=index_pairs or (), console=Console(quiet=quiet or as_json)
    )
    if as_json:
        return print_json({"path": str(store.path), **store.meta})
    write(str(store.path))


@command(
    "unmask show-batch runs/store",
    "unmask show-batch runs/store --objective mlm+nsp --rows 4 --mask-rate 0.3",
)
@recipe_flags("show-batch")
def show_batch(
    store: Annotated[
        str, typer.Argument(help="Folder of a token store, as printed by `unmask prepare`.", metavar="STORE")
    ],
    objective: Annotated[str, typer.Option(help="Objective; `unmask presets` lists them.", metavar="NAME")] = "mlm",
    rows: Annotated[int, typer.Option(min=1, help="Sequences to show.", metavar="N")] = 4,
    max_length: Annotated[int, typer.Option(help="Tokens per sequence.", metavar="N")] = 64,
    overrides: Overrides = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Show training sequences as an objective corrupts them."""
    from unmask.api import make_recipe
    from unmask.cli.show.render import batch_rows

    settled = make_recipe(None, None, overrides or (), objective=objective, max_length=max_length, **settings)
    batch = unmask.show_batch(store, recipe=settled, rows=rows)
    return print_json(batch) if as_json else write(batch_rows(batch))


@CACHE.command("list", cls=RecipeCommand)
@command("unmask cache list")
def cache_list(as_json: Json = False) -> None:
    """List cached corpora and tokenizers."""
    from unmask.cli.show.tables import cache_table
    from unmask.text.cache import cache_entries

    entries = cache_entries()
    return print_json(entries) if as_json else cache_table(entries)


@CACHE.command("prune", cls=RecipeCommand)
@command(
    "unmask cache prune                 # unfinished work",
    "unmask cache prune --older-than 30",
    "unmask cache prune --all",
)
def cache_prune(
    older_than: Annotated[
        float | None, typer.Option(help="Remove entries unused for this many days.", metavar="DAYS")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove everything.")] = False,
    as_json: Json = False,
) -> None:
    """Remove unfinished, old or all cache entries."""
    from unmask.text.cache import prune

    removed = prune(older_than_days=older_than, everything=everything)
    if as_json:
        return print_json(removed)
    write(f"removed {len(removed)} entries, {sum(e.bytes for e in removed) / 1e6:,.1f} MB")
