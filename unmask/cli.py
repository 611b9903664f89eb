"""The command line: parse, call `unmask.api`, print. Nothing heavy is imported before a verb is chosen."""

import inspect
import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from unmask import __version__
from unmask.errors import UserError

app = typer.Typer(
    help="From raw text to a masked language model you can use.\n\n"
    "Begin with: unmask quickstart, or unmask pretrain FOLDER --minutes 5",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
tokenizer_app = typer.Typer(help="Train a tokenizer and look at it.", no_args_is_help=True, rich_markup_mode=None)
cache_app = typer.Typer(
    help="Prepared text and tokenizers kept for next time.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(tokenizer_app, name="tokenizer")
app.add_typer(cache_app, name="cache")

Corpus = Annotated[
    list[str], typer.Argument(help="Paths, folders, globs, '-' (standard input) or sample:NAME.", metavar="CORPUS...")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and results.")]
Documents = Annotated[
    str | None, typer.Option(help="One document per file, block (blank lines), line or record. Default: detected.")
]
Column = Annotated[str | None, typer.Option(help="Column with the text (csv, tsv, jsonl, parquet).")]
Encoding = Annotated[str | None, typer.Option(help="Of text files. Default: UTF-8, else detected.")]
Language = Annotated[str | None, typer.Option(help="en or zh: rules for sentences and words. Default: detected.")]
MaskUnit = Annotated[str | None, typer.Option(help="token, word, span, ngram or named. Default: token.")]
Kind = Annotated[str | None, typer.Option(help="wordpiece, bpe, unigram, char or byte.")]
VocabSize = Annotated[
    int | None, typer.Option(help="Entries of the vocabulary. Default: 8192, or what the text supports.")
]
Cased = Annotated[bool, typer.Option("--cased", help="Keep upper case and accents.")]
Special = Annotated[
    list[str] | None, typer.Option("--special", help="A special token of your own; repeat for several.")
]
Tokenizer = Annotated[
    str | None, typer.Option("--tokenizer", help="Folder of a tokenizer to use instead of training one.")
]
Workers = Annotated[int | None, typer.Option(help="Processes that tokenize. Default: one per core.")]
Heldout = Annotated[float | None, typer.Option(help="Share of documents kept for evaluation.")]
RecipeFile = Annotated[Path | None, typer.Option("--recipe", help="A YAML recipe; flags win over it.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of the recipe: --set train.checkpoint_every=10.", metavar="KEY=VALUE"),
]


# The flags about text and tokenizer that `prepare` and `pretrain` have in common.
TEXT: dict[str, Any] = {
    "tokenizer": Tokenizer,
    "kind": Kind,
    "vocab_size": VocabSize,
    "cased": Cased,
    "special": Special,
    "documents": Documents,
    "column": Column,
    "encoding": Encoding,
    "language": Language,
    "heldout": Heldout,
    "workers": Workers,
}


def text_options(after: str) -> Callable:
    """Puts the flags of TEXT behind the parameter `after`; the function gets them as `**text`, by the recipe's names."""

    def add(function: Callable) -> Callable:
        own = list(inspect.signature(function).parameters.values())[:-1]  # without **text
        shared = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "cased" else None, annotation=kind
            )
            for name, kind in TEXT.items()
        ]
        at = [p.name for p in own].index(after) + 1
        named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

        @wraps(function)
        def run(**given: Any) -> Any:
            text = {name: given.pop(name) for name in TEXT}
            text["lowercase"] = False if text.pop("cased") else None
            text["special_tokens"] = text.pop("special") or None
            return function(**given, **text)

        run.__signature__ = inspect.Signature([*named[:at], *shared, *named[at:]])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
        return run

    return add


def examples(*lines: str) -> Callable:
    """Adds worked examples to a verb's help."""

    def add(function: Callable) -> Callable:
        shown = "\n".join(f"  {line}" for line in lines)
        function.__doc__ = f"{(function.__doc__ or '').strip()}\n\n\b\nExamples:\n{shown}\n"
        return function

    return add


def friendly(function: Callable) -> Callable:
    """A user's mistake is printed without a traceback and ends with exit code 2; Ctrl-C with 130."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        from unmask.errors import UserError

        try:
            return function(*args, **kwargs)
        except UserError as error:
            typer.secho(f"error: {error}", fg="red" if sys.stderr.isatty() else None, err=True)
            raise typer.Exit(2 if type(error) is UserError else 130) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)
            raise typer.Exit(130) from None

    return run


def emit(value: Any) -> None:
    """JSON on standard output, or nothing else."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=1, default=str))


def _console(quiet: bool, as_json: bool = False):
    from unmask.train.log import Console

    return Console(quiet=quiet or as_json)


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
@friendly
@examples("unmask quickstart", "unmask quickstart --minutes 1 --out runs/first")
def quickstart(
    minutes: Annotated[float, typer.Option(help="Minutes of pre-training.")] = 5.0,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    seed: int = 0,
    as_json: Json = False,
) -> None:
    """Movie reviews → tokenizer → pre-trained model → classifier, against TF-IDF. About 15 minutes on two cores."""
    from unmask import api

    result = api.quickstart(out, minutes=minutes, seed=seed, console=_console(False, as_json))
    if as_json:
        emit(result)


@app.command()
@friendly
@examples("unmask samples", "unmask samples --json")
def samples(as_json: Json = False) -> None:
    """List the corpora that pip packages provide, with size, licence and how to get each."""
    from unmask import api

    found = api.samples()
    if as_json:
        return emit(found)
    from unmask.tables import samples_table

    samples_table(found)


@tokenizer_app.command("train")
@friendly
@examples(
    "unmask tokenizer train sample:python-docs --vocab-size 4096 -o runs/tokenizer",
    "unmask tokenizer train corpus/*.txt --kind bpe --cased --special '<user>' -o runs/bpe",
    "zcat logs.gz | unmask tokenizer train - --kind byte -o runs/bytes",
)
def tokenizer_train(
    corpus: Corpus,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    kind: Kind = None,
    vocab_size: VocabSize = None,
    cased: Cased = False,
    special: Special = None,
    documents: Documents = None,
    column: Column = None,
    encoding: Encoding = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a tokenizer on text; report vocabulary, tokens per word and [UNK] rate on held-out text."""
    from unmask import api

    made = api.make_recipe(
        corpus, recipe, sets or (), kind=kind, vocab_size=vocab_size, lowercase=False if cased else None,
        special_tokens=special or None, documents=documents, column=column, encoding=encoding,
    )  # fmt: skip
    report = api.train_tokenizer(None, out, recipe=made, console=_console(quiet, as_json))
    if as_json:
        return emit(report)
    from unmask.tables import tokenizer_report

    tokenizer_report(report)


@tokenizer_app.command("show")
@friendly
@examples("unmask tokenizer show runs/tokenizer 'The president spoke.'")
def tokenizer_show(folder: str, text: str, as_json: Json = False) -> None:
    """Show how a tokenizer cuts a text."""
    from unmask.data.tokenizer import Tokenizer

    t = Tokenizer.load(folder)
    ids = t.encode(text)
    if as_json:
        return emit({"tokens": [t.token(i) for i in ids], "ids": ids})
    typer.echo(" ".join(t.token(i) for i in ids))


@app.command()
@friendly
@examples(
    "unmask prepare corpus/ -o runs/store",
    "unmask prepare reviews.csv --column review --kind bpe --vocab-size 16384 -o runs/store",
    "unmask prepare news.txt.zst --tokenizer runs/tokenizer",
)
@text_options(after="out")
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
    **text: Any,
) -> None:
    """Tokenize a corpus into a memory-mapped store with document, sentence and word boundaries."""
    from unmask import api

    made = api.make_recipe(corpus, recipe, sets or (), **text)
    store = api.prepare(None, out, recipe=made, lengths=pairs or (), console=_console(quiet, as_json))
    if as_json:
        return emit({"path": str(store.path), **store.meta})
    typer.echo(store.path)


@app.command("show-batch")
@friendly
@examples(
    "unmask show-batch runs/store",
    "unmask show-batch runs/store --objective mlm+nsp --rows 4 --mask-rate 0.3",
)
def show_batch(
    store: str,
    objective: Annotated[str, typer.Option(help="mlm, mlm+nsp, mlm+sop, hybrid, span …")] = "mlm",
    rows: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 4,
    length: Annotated[int, typer.Option(help="Tokens per row.")] = 64,
    mask_rate: Annotated[str | None, typer.Option(help="Share of tokens chosen.")] = None,
    mask_unit: MaskUnit = None,
    seed: int = 0,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Print training rows with their masked, random and kept tokens coloured."""
    from unmask import api
    from unmask.serve.show import print_batch

    made = api.make_recipe(
        None, None, sets or (), objective=objective, mask_rate=mask_rate, mask_unit=mask_unit, seed=seed, length=length
    )
    batch = api.show_batch(store, recipe=made, rows=rows)
    if as_json:
        return emit(batch.as_dict())
    print_batch(batch)


@app.command()
@friendly
@examples(
    "unmask pretrain corpus/ --minutes 5",
    "unmask pretrain reviews.csv --column review --preset bert-mini --objective mlm+nsp --epochs 3",
    "unmask pretrain corpus/ --objective mlm --mask-unit word --mask-rate 0.3:0.15 --minutes 5",
    "unmask pretrain sample:python-docs --preset bert-tiny --steps 200 --set train.checkpoint_every=50 --out runs/docs",
    "unmask pretrain corpus/ --from runs/docs/model --steps 500      # go on with another text",
    "unmask pretrain corpus/ --from runs/docs/model --extend-vocab 500 --mix general/:0.2 --steps 500",
    "unmask pretrain --resume runs/docs                              # go on after a kill or Ctrl-C",
    "torchrun --nproc-per-node 2 -m unmask pretrain corpus/ --steps 1000 --out runs/two",
)
@text_options(after="lr")
def pretrain(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(help="Paths, folders, globs, '-', sample:NAME, or a prepared store.", metavar="CORPUS..."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="bert-tiny … bert-large, modernbert-mini … Default: modernbert-mini.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="mlm, mlm+nsp, mlm+sop, rtd, clm, span … Default: the family's own.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="Model folder or hub name to continue from.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Budget in minutes (measured once, then frozen as steps).")
    ] = None,
    tokens: Annotated[float | None, typer.Option(help="Budget in tokens.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps. Default: 1000.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Budget in passes over the text.")] = None,
    batch: Annotated[int | None, typer.Option(help="Rows per update.")] = None,
    length: Annotated[str | None, typer.Option(help="Tokens per row, or a schedule: 128:0.9,512:0.1.")] = None,
    mask_rate: Annotated[str | None, typer.Option(help="Share of tokens chosen, or START:END.")] = None,
    mask_unit: MaskUnit = None,
    lr: Annotated[float | None, typer.Option(help="AdamW's learning rate.")] = None,
    extend_vocab: Annotated[
        int | None, typer.Option(min=1, help="With --from: words of the corpus to add to the model's tokenizer.")
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="PATH:0.2 = a fifth of the rows from another text, against forgetting; repeatable."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. Default: the best there is.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32 or bf16. Default: bf16 where the device is fast at it.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything drawn at random.")] = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder, never overwritten. Default: runs/pretrain/…")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Run folder to continue, bit for bit.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print recipe, parameters, memory, steps and time; train nothing.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **text: Any,
) -> None:
    """Pre-train a model on text: tokenizer, preparation, training, report, all in one."""
    given = [name for name, value in locals().items() if value and name not in ("resume", "as_json", "quiet", "text")]
    given += [name for name, value in text.items() if value is not None]
    from unmask import api

    console = _console(quiet, as_json)
    if resume:
        if given:
            raise UserError(
                f"--resume takes everything from the run; got {', '.join(given)} beside it",
                fix=f"unmask pretrain --resume {resume}",
            )
        run = api.resume(resume, console=console)
    else:
        made = api.make_recipe(
            corpus or None, recipe, sets or (), preset=preset, objective=objective, start=start, minutes=minutes,
            tokens=tokens, steps=steps, epochs=epochs, batch=batch, length=length, mask_rate=mask_rate,
            mask_unit=mask_unit, lr=lr, extend_vocab=extend_vocab, mix=mix or None, device=device, precision=precision,
            seed=seed, **text,
        )  # fmt: skip
        if dry_run:
            expected = api.dry_run(recipe=made)
            if as_json:
                return emit(expected)
            from unmask.tables import dry_run_text

            return typer.echo(dry_run_text(expected))
        run = api.pretrain(recipe=made, out=out, console=console)
    if int(os.environ.get("RANK", "0")):
        return  # one of several processes: the first one speaks
    if as_json:
        emit(api.info(run.path))
    elif quiet:
        typer.echo(run.path)
    else:
        typer.echo(api.info(run.path)["use"])


@app.command()
@friendly
@examples("unmask info runs/pretrain/bert-mini-1", "unmask info runs/pretrain/bert-mini-1 --json")
def info(run: Path, as_json: Json = False) -> None:
    """Show a run: what it is, how far it came, what it reached. Or a model folder: which heads it has, which not."""
    from unmask import api

    found = api.info(run)
    if as_json:
        return emit(found)
    from unmask.tables import model_summary, run_summary

    model_summary(found) if found.get("kind") == "model" else run_summary(found)


Model = Annotated[str, typer.Argument(help="Model folder, run folder or hub name.")]


@app.command()
@friendly
@examples(
    'unmask fill runs/quickstart/model "a film that is [MASK] to the last minute ."',
    'unmask fill runs/docs/model "the [MASK] of a [MASK]" --top 3 --json',
)
def fill(
    model: Model,
    text: Annotated[str, typer.Argument(help="Text with one [MASK] or several.")],
    top: Annotated[int, typer.Option(min=1, help="Candidates per mask.")] = 5,
    as_json: Json = False,
) -> None:
    """Fill the [MASK]s of a text."""
    from unmask import api

    filling = api.load(model).fill(text, top=top)
    if as_json:
        return emit(filling.as_dict())
    from unmask.serve.show import print_fill

    print_fill(filling)


@app.command()
@friendly
@examples(
    'unmask generate runs/gpt2/model "the list is" --max-new-tokens 20',
    'unmask generate runs/gpt2/model "the list is" "a tuple" --do-sample --temperature 0.8 --seed 1 --json',
    'unmask generate runs/bart/model "the list is [MASK] in place" --num-beams 4',
)
def generate(
    model: Model,
    text: Annotated[list[str], typer.Argument(help="Texts to continue, or for T5 and BART to rewrite.")],
    max_new_tokens: Annotated[int | None, typer.Option(help="Tokens to add at most. Default: 64.")] = None,
    min_new_tokens: Annotated[int | None, typer.Option(help="Tokens to add at least.")] = None,
    num_beams: Annotated[
        int | None, typer.Option(help="Beams of the search; 1 = the likeliest token each time.")
    ] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Of beam search: above 0 favours long texts.")] = None,
    do_sample: Annotated[
        bool, typer.Option("--do-sample", help="Draw tokens instead of taking the likeliest.")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="Drawing: below 1 bolder in what is likely, above 1 wilder.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Drawing: only from the k likeliest.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Drawing: only from the likeliest that make up this share.")
    ] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1 makes used tokens less likely.")] = None,
    no_repeat_ngram_size: Annotated[int | None, typer.Option(help="No run of so many tokens twice.")] = None,
    seed: Annotated[int | None, typer.Option(help="Drawing: the same seed gives the same text.")] = None,
    as_json: Json = False,
) -> None:
    """Continue a text, or with an encoder-decoder rewrite it. What is not given is as the model's folder says."""
    settings = {name: value for name, value in locals().items() if name not in ("model", "text", "as_json")}
    from unmask import api

    made = api.load(model).generate(text, **(settings | {"do_sample": do_sample or None}))
    if as_json:
        return emit([answer.as_dict() for answer in made])
    from unmask.serve.show import print_continuations

    print_continuations(made)


@app.command()
@friendly
@examples('unmask next runs/bert/model "He opened the door." "The room was empty."')
def next(model: Model, a: str, b: str, as_json: Json = False) -> None:
    """Judge whether text B follows text A (models trained with nsp)."""
    from unmask import api

    answer = api.load(model).next(a, b)
    if as_json:
        return emit(answer)
    from unmask.serve.show import print_next

    print_next(a, b, answer)


@app.command()
@friendly
@examples('unmask score runs/docs/model "The list is sorted in place ."')
def score(model: Model, text: str, as_json: Json = False) -> None:
    """Pseudo-log-likelihood of a text, token by token: an odd word stands out."""
    from unmask import api

    result = api.load(model).score(text)
    if as_json:
        return emit(result.as_dict())
    from unmask.serve.show import print_score

    print_score(result)


@cache_app.command("list")
@friendly
@examples("unmask cache list")
def cache_list(as_json: Json = False) -> None:
    """What is kept, how large it is, when it was used."""
    from unmask.data.cache import cached

    entries = cached()
    if as_json:
        return emit([e.as_dict() for e in entries])
    from unmask.tables import cache_table

    cache_table(entries)


@cache_app.command("prune")
@friendly
@examples(
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
    from unmask.data.cache import prune

    removed = prune(older_than_days=older_than, everything=everything)
    if as_json:
        return emit([e.as_dict() for e in removed])
    freed = sum(e.bytes for e in removed)
    typer.echo(f"removed {len(removed)} entries, {freed / 1e6:,.1f} MB")


def main() -> None:
    app()
