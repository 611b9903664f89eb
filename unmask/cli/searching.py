"""The verb that searches: search."""

from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import recipe_flags
from unmask.cli.options import Json, Quiet, emit, verb
from unmask.console import Console, write


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
        passages, query, embedder=embed, reranker=rank, bm25=bm25, top=top, queries=queries, judgements=judgements,
        run=run, console=console, **settings,
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


VERBS = (search,)
