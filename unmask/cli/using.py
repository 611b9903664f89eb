"""Verbs that use a model: to ask it, to look inside, to export it, to search with it."""

from pathlib import Path
from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import recipe_flags
from unmask.cli.options import Json, Model, Quiet, emit, listed, verb
from unmask.console import Console, write
from unmask.errors import UserError

Backend = Annotated[str, typer.Option(help="torch, onnx (an exported folder), or auto: as the folder is.")]
LongText = Annotated[str, typer.Option("--overflow", help="A text too long: refuse, or windows (read in parts).")]
Layer = Annotated[int, typer.Option(help="0 = the embeddings, 1 = the first layer …; -1 = what the model gives.")]
TextColumn = Annotated[str, typer.Option("--text-column", help="Column of a table with the texts.")]
Texts = Annotated[list[str], typer.Argument(help="Texts, a file (lines, or a table's column text), or - for stdin.")]


@verb("unmask info runs/pretrain/bert-mini-1", "unmask info runs/pretrain/bert-mini-1 --json")
def info(run: Path, as_json: Json = False) -> None:
    """Show a run: what it is, how far it came, what it reached. Or a model folder: which heads it has, which not."""
    from unmask.cli.show.tables import print_facts
    from unmask.inference.describe import lines
    from unmask.report import facts
    from unmask.train.run_files import shown

    found = unmask.info(run)
    if as_json:
        return emit(found)
    with shown(run):
        print_facts(lines(found) if found.get("kind") == "model" else facts(found))


@verb(
    'unmask fill runs/quickstart-1/pretrain "a film that is [MASK] to the last minute ."',
    'unmask fill runs/docs/model "the [MASK] of a [MASK]" --top 3 --joint 10 --json',
    'unmask fill runs/docs/model "a word of up to three pieces: [MASK]" --grow 3',
    'unmask fill runs/docs/model "the list is [MASK]" --candidates sorted,empty,reversed',
)
def fill(
    model: Model,
    text: Annotated[list[str], typer.Argument(help="Texts with one [MASK] or several.")],
    top: Annotated[int, typer.Option(min=1, help="Candidates per mask.")] = 5,
    joint: Annotated[int, typer.Option(min=0, help="Fill all masks together, following so many ways; 0 = no.")] = 0,
    grow: Annotated[int, typer.Option(min=1, help="Pieces that a mask may become at most.")] = 1,
    candidates: Annotated[str | None, typer.Option(help="The only words allowed, with commas between.")] = None,
    long: LongText = "error",
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Fill the [MASK]s of a text."""
    from unmask.cli.show.render import fills_table

    words = None if candidates is None else [word for word in listed(candidates) or [] if word]
    predictor: Any = unmask.load(model, backend=backend)  # which refuses a `long` that it does not know
    found = predictor.fill(text, top, num_beams=joint, max_subwords=grow, candidates=words, overflow=long)
    return emit(found[0] if len(found) == 1 else found) if as_json else write(fills_table(found))


@verb(
    'unmask generate runs/pretrain/gpt2-mini-1 "the list is" --max-new-tokens 20',
    'unmask generate runs/pretrain/gpt2-mini-1 "the list is" "a tuple" --do-sample --temperature 0.8 --seed 1 --json',
    'unmask generate runs/pretrain/bart-mini-1 "the list is [MASK] in place" --num-beams 4',
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
    from unmask.cli.show.render import continuation_text

    made = unmask.load(model).generate(text, **(settings | {"do_sample": do_sample or None}))
    return emit(made) if as_json else write(*map(continuation_text, made))


@verb('unmask next runs/pretrain/bert-mini-1 "He opened the door." "The room was empty."')
def next(model: Model, a: str, b: str, as_json: Json = False) -> None:
    """Judge whether text B follows text A (models trained with nsp)."""
    from unmask.cli.show.render import next_table

    answer = unmask.load(model).next_sentence(a, b)
    return emit(answer) if as_json else write(next_table(a, b, answer))


@verb(
    'unmask score runs/docs/model "The list is sorted in place ."',
    'unmask score runs/docs/model "The list is sorted ." "The list are sorted ." --method within-word',
    "unmask score runs/docs/model lines.txt --json",
    "unmask score runs/docs/model --pairs blimp.jsonl --json",
)
def score(
    model: Model,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, a file (lines, or a table's column text), - for stdin, or none with --pairs."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="pll, or within-word: later pieces of a word are hidden with a piece.")
    ] = "pll",
    pairs: Annotated[
        str | None, typer.Option(help="File (or folder) with sentence_good and sentence_bad, as BLiMP's.")
    ] = None,
    column: TextColumn = "",
    long: LongText = "error",
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """How likely a text is, token by token: an odd word stands out. Or, with --pairs, how often the better sentence wins."""
    from unmask.cli.show.introspection import pairs_table
    from unmask.cli.show.render import score_table
    from unmask.inference.inputs import read_texts_or_files

    if bool(text) == bool(pairs):
        raise UserError(
            "both texts and --pairs" if text else "no text", hint="unmask score MODEL TEXT, or --pairs FILE"
        )
    texts, _ = read_texts_or_files(text or [], column)  # a missing file is found before the model is read
    loaded: Any = unmask.load(model, backend=backend)
    if pairs:
        judged = loaded.minimal_pairs(pairs, method)
        return emit(judged) if as_json else write(pairs_table(judged))
    found = loaded.score(texts, method, long)
    return emit(found[0] if len(found) == 1 else found) if as_json else write(*map(score_table, found))


@verb(
    'unmask embed MODEL "a text" --json',
    "unmask embed MODEL texts.txt -o vectors.npy --layer 3 --pooling mean",
    "unmask embed MODEL sentences.csv --word bank --plot bank.png",
)
def embed(
    model: Model,
    text: Texts,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where the vectors go: NAME.npy.")] = None,
    pooling: Annotated[
        str, typer.Option(help="auto (as the model was trained, else mean), mean, cls, or token: one per token.")
    ] = "auto",
    layer: Layer = -1,
    word: Annotated[str | None, typer.Option(help="Vectors of this word wherever it stands, not of the texts.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="With --word: a picture of them, by their sense where told.")
    ] = None,
    column: TextColumn = "",
    long: Annotated[
        str | None,
        typer.Option(help="A text too long: refuse, or windows (the default of a sentence-transformers folder)."),
    ] = None,
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Vectors of texts, of their tokens, or of a word in many sentences, from any layer."""
    from unmask.inference import vector_files

    options = vector_files.EmbedOptions(out, pooling, layer, word, plot, long)
    vector_files.embed(unmask.load(model, backend=backend), text, column, options, as_json)


@verb(
    'unmask explain runs/finetune/classify-1 "what a film"',
    'unmask explain runs/finetune/classify-1 "what a film" --target neg --json',
    'unmask explain runs/docs/model "the list is [MASK] in place"',
)
def explain(
    model: Model,
    text: Annotated[
        list[str], typer.Argument(help="What the model's task asks, a text with a [MASK], or one to be continued.")
    ],
    target: Annotated[
        str | None, typer.Option(help="Label, WORD=TAG, answer, choice or word to explain. Default: the model's own.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of the integral: more are more exact.")] = 50,
    as_json: Json = False,
) -> None:
    """Which words made the model answer so (integrated gradients)."""
    from unmask.cli.show.introspection import explanation_lines

    found = unmask.load(model).explain(*text, target=target, steps=steps)
    return emit(found) if as_json else write(explanation_lines(found))


@verb(
    'unmask attention MODEL "the list is sorted"',
    'unmask attention MODEL "the list is sorted" "it is in order" --layer 3 --head 2',
)
def attention(
    model: Model,
    text: str,
    pair: Annotated[str | None, typer.Argument(help="A second text in the same row.")] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="From 1. Default: the last.")] = None,
    head: Annotated[int | None, typer.Option(min=1, help="From 1. Default: the mean of all heads.")] = None,
    as_json: Json = False,
) -> None:
    """Where each token looks, by layer and head."""
    from unmask.cli.show.introspection import attention_table

    found = unmask.load(model).attention(text, pair)
    return emit(found) if as_json else write(attention_table(found, layer, head))


@verb(
    "unmask export runs/finetune/classify-1 --to onnx",
    "unmask export runs/finetune/classify-1 --to onnx --int8 --data test.csv -o classifier-int8",
    "unmask export runs/docs/model --to onnx --dry-run --json",
)
@recipe_flags("export")
def export(
    model: Model,
    to: Annotated[str, typer.Option(help="The format: onnx.")] = "onnx",
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights in 8 bits: smaller and faster, a little less exact.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder, never overwritten. Default: beside the model, MODEL-onnx."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Labelled file (text for a model without a task): the metric may fall by 0.5 points at most."
        ),
    ] = None,
    push: Annotated[str, typer.Option(help="Upload it to the Hugging Face hub under this name.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written.")] = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Write a model as ONNX graphs that answer without torch. They are compared with the model first; what differs is refused."""
    from unmask.cli.show.export import lines

    found = unmask.export(
        model, format=to, int8=int8, out=out, data=data or (), push=push, dry_run=dry_run,
        console=Console(quiet=as_json), **settings,
    )  # fmt: skip
    return emit(found) if as_json else write(*lines(found))


@verb(
    'unmask search passages.txt "how is a list sorted"',
    'unmask search reviews.csv "a long film" --column text=review',
    'unmask search passages.jsonl "how is a list sorted" --embed runs/finetune/embed-1 --rank runs/finetune/rank-1 --top 5',
    "unmask search passages.jsonl --queries queries.tsv --judgements qrels.txt --embed runs/finetune/embed-1",
    "unmask search passages.jsonl --queries queries.tsv --run found.txt       # candidates to fine-tune `rank` on",
)
@recipe_flags("search")
def search(
    passages: Annotated[str, typer.Argument(help="Passages: lines, csv, tsv, jsonl, parquet or TREC's xml.")],
    query: Annotated[str, typer.Argument(help="What is looked for.")] = "",
    embed: Annotated[str | None, typer.Option(help="Model that gives sentence vectors, beside BM25.")] = None,
    rank: Annotated[str | None, typer.Option(help="Model that puts in order what was found.")] = None,
    bm25: Annotated[bool, typer.Option(help="Search by words.")] = True,
    top: Annotated[int, typer.Option(min=1, help="Passages to show.")] = 10,
    queries: Annotated[str | None, typer.Option(help="File of queries, to measure the search instead.")] = None,
    judgements: Annotated[str | None, typer.Option(help="TREC qrels of these queries.")] = None,
    run: Annotated[
        str | None, typer.Option(help="File for what is found for these queries, as a TREC run (100 passages each).")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Search passages by words, by sentence vectors, or both, and put what was found in order."""
    console = Console(quiet=quiet or as_json)
    found = unmask.search(
        passages, query, embedder=embed, reranker=rank, bm25=bm25, top_k=top, queries=queries, qrels=judgements,
        save_run=run, console=console, **settings,
    )  # fmt: skip
    if as_json:
        return emit(found)
    if isinstance(found, dict):
        from unmask.cli.show.tables import scores

        if judgements:
            scores(found)
        return write(run) if run else None
    if not found:
        console.say("no passage has a word of the query")
    for hit in found:
        text = " ".join(hit["text"].split())
        write(f"{hit['rank']:>3}  {hit['score']:.4f}  {hit['id']}  {text[:160]}{'…' * (len(text) > 160)}")


VERBS = (info, fill, generate, next, score, embed, explain, attention, export, search)
