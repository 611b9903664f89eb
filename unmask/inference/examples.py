"""Rows to look at: what an objective made of the text, and held-out sentences with one word hidden."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from unmask.batch import Example
from unmask.inference.answers import MaskedBatch, Part, Row
from unmask.recipe import Recipe
from unmask.text.flags import WORD
from unmask.text.rows import RowDataset
from unmask.text.store import Split, TokenStore
from unmask.text.token_text import tokens_to_readable_text
from unmask.text.tokenizer import Tokenizer

MIN_SENTENCE_TOKENS, MAX_SENTENCE_TOKENS = 6, 30  # tokens of a sentence worth showing


def show_batch(store: str | Path, recipe: Recipe, rows: int) -> MaskedBatch:
    """The first training rows of a store as the objective corrupts them: what is masked, random, kept."""
    from unmask.objectives.objective import build
    from unmask.train.loader import Loader
    from unmask.train.schedule import length_schedule, plan

    opened = TokenStore.open(store)
    if recipe.objective == "auto":
        recipe = recipe.model_copy(update={"objective": "mlm"})
    objective = build(recipe, opened.tokenizer)
    loader = Loader(RowDataset(opened.train, opened.tokenizer, recipe.seed, objective.rows), objective, recipe.seed)
    count = {n: loader.rows.count(n) for n, _ in length_schedule(recipe.train)}
    step_config = plan(recipe, count).step_config(0)
    examples = [loader.example(n, step_config) for n in range(min(rows, count[step_config.length]))]
    return masked_batch(examples, opened.tokenizer)


def masked_batch(examples: Iterable[Example], tokenizer: Tokenizer) -> MaskedBatch:
    """Corrupted rows for people. What stood under a mask is in the row's own labels."""
    rows = []
    for example in examples:
        labels, parts = example.labels, list(_parts(example, tokenizer))
        is_next = int(labels["nsp"].item()) == 0 if "nsp" in labels else None
        chosen = sum(len(values) for name, values in labels.items() if name.endswith(".targets"))
        rows.append(Row(len(example), chosen, is_next, parts, _note(example, tokenizer)))
    return MaskedBatch(rows)


def _note(example: Example, tokenizer: Tokenizer) -> str:
    """Describe what an objective predicts for a row in addition to its masks."""
    notes = []
    if "sop" in example.labels:
        notes.append("the halves are swapped" if example.labels["sop"].item() else "the halves are in their order")
    if example.prefix_length == 0:
        notes.append("each token is predicted from those before it")
    elif example.prefix_length is not None and example.prefix_length < len(example):
        notes.append(f"the first {example.prefix_length} tokens see each other; the rest is predicted, one by one")
    if "bilm.forwards.targets" in example.labels:
        notes.append("each token is predicted from those before it, and from those after it")
    if "cbow.targets" in example.labels:
        notes.append(f"{len(example.labels['cbow.targets'])} tokens are predicted from the words around them")
    if example.decoder_input_ids is not None:
        ids = example.decoder_input_ids[1:].tolist()
        shown = "".join(
            f" {tokenizer.token(i)}" if tokenizer.special[i] else tokens_to_readable_text(tokenizer, [i]) for i in ids
        )
        notes.append(f"to be written: {shown.strip()}")
    return "; ".join(notes)


def _parts(example: Example, tokenizer: Tokenizer) -> Iterator[Part]:
    """Untouched neighbours are joined: several byte pieces may be one character."""
    labels = example.labels
    target = dict(zip(labels.get("mlm.positions", ()), labels.get("mlm.targets", ())))
    untouched: list[int] = []
    for i, id in enumerate(example.input_ids.tolist()):
        if i not in target and not tokenizer.special[id]:
            untouched.append(id)
            continue
        if untouched:
            yield _part("text", tokens_to_readable_text(tokenizer, untouched))
            untouched = []
        if i not in target:
            yield _part("special", f" {tokenizer.token(id)}")
        elif id == tokenizer.mask:
            yield Part("masked", tokens_to_readable_text(tokenizer, [int(target[i])]), tokenizer.token(id))
        else:
            state = "kept" if id == target[i] else "random"
            yield Part(
                state, tokens_to_readable_text(tokenizer, [int(target[i])]), tokens_to_readable_text(tokenizer, [id])
            )
    if untouched:
        yield _part("text", tokens_to_readable_text(tokenizer, untouched))


def _part(state: str, text: str) -> Part:
    return Part(state, text, text)


def masked_sentences(store: TokenStore, count: int, max_tokens: int = MAX_SENTENCE_TOKENS) -> Iterator[Example]:
    """At most `count` rows, spread evenly over the held-out text (of the training text where none is)."""
    split = store.heldout if len(store.heldout.sentences) > 1 else store.train
    borders = np.linspace(0, len(split.sentences) - 1, count + 1).astype(int)
    for low, high in pairwise(borders):
        for s in range(low, min(high, low + 200)):  # a stretch without a usable sentence is passed over
            row = _mask_one_word(split, s, store.tokenizer, max_tokens)
            if row is not None:
                yield row
                break


def _mask_one_word(split: Split, sentence: int, t: Tokenizer, max_tokens: int) -> Example | None:
    """The sentence between its special tokens, with the middle one of its one-piece words hidden; None if it has none."""
    start, end = int(split.sentences[sentence]), split.sentence_end(sentence)
    if not MIN_SENTENCE_TOKENS <= end - start <= max_tokens:
        return None
    ids = np.array(t.build_inputs_with_special_tokens(split.tokens[start:end].tolist())[0], np.int64)
    first = len(t.special_token_layout[0][0])  # special tokens before the text
    begins = np.append((split.flags[start:end] & WORD) > 0, True)
    whole = begins[:-1] & begins[1:]  # a word starts here, and another one right after
    usable = [i + first for i in np.flatnonzero(whole) if any(c.isalpha() for c in t.token(ids[i + first]))]
    if not usable or t.special[split.tokens[start:end]].any():
        return None
    hidden = usable[len(usable) // 2]
    labels = {"mlm.positions": np.array([hidden]), "mlm.targets": ids[[hidden]]}
    assert t.mask is not None
    ids[hidden] = t.mask
    return Example(ids, labels=labels)
