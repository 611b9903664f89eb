"""Commands that use a model: fill, generate, score, embed, explain, attention, next-sentence, search."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import unmask
from unmask.cli.options import (
    OUTPUT,
    Backend,
    BatchSize,
    Device,
    Json,
    Model,
    command,
    print_json,
    split_commas,
)
from unmask.console import write
from unmask.errors import UserError

Overflow = Annotated[
    Literal["error", "window"],
    typer.Option(help="Texts over the maximum length: raise an error, or use windows."),
]
TextColumn = Annotated[
    str, typer.Option("--text-column", help="Text column of a table.", show_default="text", metavar="NAME")
]
Texts = Annotated[
    list[str],
    typer.Argument(help="Texts, a file (lines, or the text column of a table), or - for stdin.", metavar="TEXT..."),
]
DECODING = "Decoding"  # panel of `--help`


@command(
    'unmask fill runs/pretrain/bert-mini-1 "the [MASK] of the united states"',
    'unmask fill runs/docs/model "the [MASK] of a [MASK]" --top-k 3 --num-beams 10 --json',
    'unmask fill runs/docs/model "a word of up to three subwords: [MASK]" --max-subwords 3',
    'unmask fill runs/docs/model "the list is [MASK]" --candidates sorted,empty,reversed',
)
def fill(
    model: Model,
    text: Annotated[list[str], typer.Argument(help="Texts with one or more [MASK] tokens.", metavar="TEXT...")],
    top_k: Annotated[int, typer.Option(min=1, help="Candidates per mask.", metavar="N", rich_help_panel=DECODING)] = 5,
    num_beams: Annotated[
        int,
        typer.Option(
            min=0,
            help="Fill all masks jointly, with beam search of this width. 0: independently.",
            metavar="N",
            rich_help_panel=DECODING,
        ),
    ] = 0,
    max_subwords: Annotated[
        int, typer.Option(min=1, help="Maximum subword tokens per mask.", metavar="N", rich_help_panel=DECODING)
    ] = 1,
    candidates: Annotated[
        str | None, typer.Option(help="Only predict these words.", metavar="WORD,…", rich_help_panel=DECODING)
    ] = None,
    overflow: Overflow = "error",
    device: Device = "auto",
    batch_size: BatchSize = None,
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Fill [MASK] tokens."""
    from unmask.cli.show.render import fills_table

    words = None if candidates is None else [word for word in split_commas(candidates) or [] if word]
    results = unmask.load(model, device, backend, batch_size).fill(
        text, top_k, num_beams=num_beams, max_subwords=max_subwords, candidates=words, overflow=overflow
    )
    return print_json(results[0] if len(results) == 1 else results) if as_json else write(fills_table(results))


@command(
    'unmask generate runs/pretrain/gpt2-mini-1 "the list is" --max-new-tokens 20',
    'unmask generate runs/pretrain/gpt2-mini-1 "the list is" "a tuple" --do-sample --temperature 0.8 --seed 1 --json',
    'unmask generate runs/pretrain/bart-mini-1 "the list is [MASK] in place" --num-beams 4',
)
def generate(
    model: Model,
    text: Annotated[
        list[str], typer.Argument(help="Texts to continue; for T5 and BART, source texts.", metavar="TEXT...")
    ],
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Maximum tokens to generate.", show_default="64", metavar="N")
    ] = None,
    min_new_tokens: Annotated[int | None, typer.Option(help="Minimum tokens to generate.", metavar="N")] = None,
    num_beams: Annotated[int | None, typer.Option(help="Beam width. 1: greedy decoding.", metavar="N")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Beam search: above 0 favors longer texts.", metavar="NUMBER")
    ] = None,
    do_sample: Annotated[
        bool,
        typer.Option("--do-sample", help="Sample instead of taking the most likely token.", rich_help_panel="Sampling"),
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="Lower is more deterministic, higher more random.", metavar="NUMBER", rich_help_panel="Sampling"
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Sample from the k most likely tokens.", metavar="N", rich_help_panel="Sampling")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help="Sample from the smallest set with this probability.", metavar="NUMBER", rich_help_panel="Sampling"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.", metavar="N", rich_help_panel="Sampling")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1 penalizes repeated tokens.", metavar="NUMBER")
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(help="Never repeat an n-gram of this size.", metavar="N")
    ] = None,
    device: Device = "auto",
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Generate text.

    Unset options fall back to the model's generation_config.json.
    """
    options = dict(locals())
    settings = {k: v for k, v in options.items() if k not in ("model", "text", "as_json", "device", "backend")}
    from unmask.cli.show.render import continuation_text

    continuations = unmask.load(model, device, backend).generate(text, **(settings | {"do_sample": do_sample or None}))
    return print_json(continuations) if as_json else write(*map(continuation_text, continuations))


@command('unmask next-sentence runs/pretrain/bert-mini-1 "He opened the door." "The room was empty."')
def next_sentence(
    model: Model,
    a: Annotated[str, typer.Argument(help="First text.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Second text.", metavar="B")],
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Predict whether text B follows text A (NSP)."""
    from unmask.cli.show.render import next_table

    answer = unmask.load(model, device).next_sentence(a, b)
    return print_json(answer) if as_json else write(next_table(a, b, answer))


@command(
    'unmask score runs/docs/model "The list is sorted in place ."',
    'unmask score runs/docs/model "The list is sorted ." "The list are sorted ." --method within-word',
    "unmask score runs/docs/model lines.txt --json",
    "unmask score runs/docs/model --minimal-pairs blimp.jsonl --json",
)
def score(
    model: Model,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, a file (lines, or the text column of a table), or - for stdin.", metavar="TEXT..."),
    ] = None,
    method: Annotated[
        Literal["pll", "within-word"],
        typer.Option(help="Pseudo-log-likelihood; within-word also masks the later subwords of a word."),
    ] = "pll",
    minimal_pairs: Annotated[
        str | None,
        typer.Option(help="Compute accuracy on minimal pairs (BLiMP format): file or folder.", metavar="FILE"),
    ] = None,
    text_column: TextColumn = "",
    overflow: Overflow = "error",
    device: Device = "auto",
    batch_size: BatchSize = None,
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Score texts by log-likelihood per token."""
    from unmask.cli.show.introspection import pairs_table
    from unmask.cli.show.render import score_table
    from unmask.inference.inputs import read_texts_or_files

    if bool(text) == bool(minimal_pairs):
        message = "both texts and --minimal-pairs were given" if text else "no text was given"
        raise UserError(message, hint="unmask score MODEL TEXT, or --minimal-pairs FILE")
    texts, _ = read_texts_or_files(text or [], text_column)  # finds a missing file before the model is loaded
    loaded: Any = unmask.load(model, device, backend, batch_size)
    if minimal_pairs:
        pairs = loaded.minimal_pairs(minimal_pairs, method)
        return print_json(pairs) if as_json else write(pairs_table(pairs))
    scores = loaded.score(texts, method, overflow)
    return print_json(scores[0] if len(scores) == 1 else scores) if as_json else write(*map(score_table, scores))


@command(
    'unmask embed MODEL "a text" --json',
    "unmask embed MODEL texts.txt -o vectors.npy --layer 3 --pooling mean",
    "unmask embed MODEL sentences.csv --word bank --plot bank.png",
)
def embed(
    model: Model,
    text: Texts,
    pooling: Annotated[
        Literal["auto", "mean", "cls", "token"],
        typer.Option(help="token: one vector per token.", show_default="as the model was trained, else mean"),
    ] = "auto",
    layer: Annotated[
        int, typer.Option(help="0: embeddings, 1: first layer, …; -1: the model's output.", metavar="N")
    ] = -1,
    word: Annotated[
        str | None, typer.Option(help="Embed each occurrence of this word instead of the texts.", metavar="WORD")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="With --word: PCA scatter plot, colored by the column `sense`.", metavar="FILE"),
    ] = None,
    text_column: TextColumn = "",
    overflow: Annotated[
        Literal["error", "window"] | None,
        typer.Option(
            help="Texts over the maximum length: raise an error, or average windows.",
            show_default="error; window for a sentence-transformers folder",
        ),
    ] = None,
    device: Device = "auto",
    batch_size: BatchSize = None,
    backend: Backend = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the vectors to FILE.npy.", metavar="FILE", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute embeddings of texts, tokens or a word."""
    from unmask.inference import vector_files

    options = vector_files.EmbedOptions(out, pooling, layer, word, plot, overflow)
    vector_files.embed(unmask.load(model, device, backend, batch_size), text, text_column, options, as_json)


@command(
    'unmask explain runs/finetune/classify-1 "what a film"',
    'unmask explain runs/finetune/classify-1 "what a film" --target neg --json',
    'unmask explain runs/docs/model "the list is [MASK] in place"',
)
def explain(
    model: Model,
    text: Annotated[
        list[str],
        typer.Argument(help="Input of the task, a text with a [MASK], or a text to continue.", metavar="TEXT..."),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="Label, WORD=TAG, answer, choice or word to explain.", show_default="the prediction", metavar="TEXT"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Integration steps; more is more precise.", metavar="N")] = 50,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Explain a prediction with integrated gradients."""
    from unmask.cli.show.introspection import explanation_lines

    explanation = unmask.load(model, device).explain(*text, target=target, steps=steps)
    return print_json(explanation) if as_json else write(explanation_lines(explanation))


@command(
    'unmask attention MODEL "the list is sorted"',
    'unmask attention MODEL "the list is sorted" "it is in order" --layer 3 --head 2',
)
def attention(
    model: Model,
    text: Annotated[str, typer.Argument(help="Text.", metavar="TEXT")],
    pair: Annotated[str | None, typer.Argument(help="Second text of the pair.", metavar="[PAIR]")] = None,
    layer: Annotated[
        int | None, typer.Option(min=1, help="Layer, from 1.", show_default="the last", metavar="N")
    ] = None,
    head: Annotated[
        int | None, typer.Option(min=1, help="Head, from 1.", show_default="the mean of all heads", metavar="N")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show attention weights by layer and head."""
    from unmask.cli.show.introspection import attention_table

    result = unmask.load(model, device).attention(text, pair)
    return print_json(result) if as_json else write(attention_table(result, layer, head))
