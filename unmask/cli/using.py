"""Verbs that use a model."""

from pathlib import Path
from typing import Annotated

import typer

from unmask.cli.options import Json, Model, emit, examples, friendly


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


VERBS = {"info": info, "fill": fill, "generate": generate, "next": next, "score": score}
