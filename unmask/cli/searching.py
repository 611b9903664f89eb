"""unmask search."""

from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import recipe_flags
from unmask.cli.options import BatchSize, Device, Json, Quiet, command, print_json
from unmask.console import Console, write


@command(
    'unmask search passages.txt "how is a list sorted"',
    'unmask search reviews.csv "a long film" --column text=review',
    'unmask search passages.jsonl "how is a list sorted" --embedder runs/finetune/embed-1 --reranker runs/finetune/rank-1 --top-k 5',
    "unmask search passages.jsonl --queries queries.tsv --qrels qrels.txt --embedder runs/finetune/embed-1",
    "unmask search passages.jsonl --queries queries.tsv --save-run found.txt       # candidates to fine-tune a re-ranker on",
)
@recipe_flags("search")
def search(
    passages: Annotated[
        str, typer.Argument(help="Passages: lines, csv, tsv, jsonl, parquet or TREC xml.", metavar="FILE")
    ],
    query: Annotated[str, typer.Argument(help="Query.", metavar="[QUERY]", show_default=False)] = "",
    embedder: Annotated[
        str | None, typer.Option(help="Also search by embeddings of this model.", metavar="MODEL")
    ] = None,
    reranker: Annotated[str | None, typer.Option(help="Re-rank with this cross-encoder.", metavar="MODEL")] = None,
    bm25: Annotated[bool, typer.Option(help="Search with BM25.")] = True,
    top_k: Annotated[int, typer.Option(min=1, help="Passages to show.", metavar="N")] = 10,
    queries: Annotated[
        str | None, typer.Option(help="File of queries.", metavar="FILE", rich_help_panel="Evaluation")
    ] = None,
    qrels: Annotated[
        str | None,
        typer.Option(
            help="Relevance judgments (TREC qrels): print metrics.", metavar="FILE", rich_help_panel="Evaluation"
        ),
    ] = None,
    save_run: Annotated[
        str | None,
        typer.Option(
            help="Write the top 100 passages per query as a TREC run.", metavar="FILE", rich_help_panel="Evaluation"
        ),
    ] = None,
    device: Device = "auto",
    batch_size: BatchSize = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Search passages: BM25, embeddings, re-ranking."""
    console = Console(quiet=quiet or as_json)
    results = unmask.search(
        passages, query, embedder=embedder, reranker=reranker, bm25=bm25, top_k=top_k, queries=queries, qrels=qrels,
        save_run=save_run, device=device, batch_size=batch_size, console=console, **settings,
    )  # fmt: skip
    if as_json:
        return print_json(results)
    if isinstance(results, dict):
        from unmask.cli.show.tables import scores

        if qrels:
            scores(results)
        return write(save_run) if save_run else None
    if not results:
        console.say("no passage contains a word of the query")
    for hit in results:
        text = " ".join(hit["text"].split())
        write(f"{hit['rank']:>3}  {hit['score']:.4f}  {hit['id']}  {text[:160]}{'…' * (len(text) > 160)}")
