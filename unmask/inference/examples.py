"""Example rows for inspection: training rows as an objective corrupts them, and held-out sentences with one masked word."""

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

MIN_SENTENCE_TOKENS, MAX_SENTENCE_TOKENS = 6, 30  # of an example sentence
MAX_SKIPPED_SENTENCES = 200  # sentences searched for one example


def show_batch(store: str | Path, recipe: Recipe, rows: int) -> MaskedBatch:
    """Return the first training rows of a store, with the tokens that the objective masked, replaced or kept."""
    from unmask.objectives.objective import build
    from unmask.train.loader import Loader
    from unmask.train.schedule import length_schedule, plan

    token_store = TokenStore.open(store)
    if recipe.objective == "auto":
        recipe = recipe.model_copy(update={"objective": "mlm"})
    objective = build(recipe, token_store.tokenizer)
    loader = Loader(
        RowDataset(token_store.train, token_store.tokenizer, recipe.seed, objective.rows), objective, recipe.seed
    )
    rows_by_length = {n: loader.rows.count(n) for n, _ in length_schedule(recipe.train)}
    step_config = plan(recipe, rows_by_length).step_config(0)
    examples = [loader.example(n, step_config) for n in range(min(rows, rows_by_length[step_config.length]))]
    return masked_batch(examples, token_store.tokenizer)


def masked_batch(examples: Iterable[Example], tokenizer: Tokenizer) -> MaskedBatch:
    """Make corrupted rows readable. The original tokens are in the labels of the rows."""
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
        notes.append("the segments are swapped" if example.labels["sop"].item() else "the segments are in their order")
    if example.prefix_length == 0:
        notes.append("each token is predicted from the tokens before it")
    elif example.prefix_length is not None and example.prefix_length < len(example):
        notes.append(
            f"the first {example.prefix_length} tokens see each other; the others are predicted from left to right"
        )
    if "bilm.forwards.targets" in example.labels:
        notes.append("each token is predicted from the tokens before it, and from the tokens after it")
    if "cbow.targets" in example.labels:
        notes.append(f"{len(example.labels['cbow.targets'])} tokens are predicted from the words around them")
    if example.decoder_input_ids is not None:
        ids = example.decoder_input_ids[1:].tolist()
        target = "".join(
            f" {tokenizer.token(i)}" if tokenizer.special[i] else tokens_to_readable_text(tokenizer, [i]) for i in ids
        )
        notes.append(f"decoder target: {target.strip()}")
    return "; ".join(notes)


def _parts(example: Example, tokenizer: Tokenizer) -> Iterator[Part]:
    """Yield the parts of a row. Adjacent unchanged tokens are joined, because several byte tokens may be one character."""
    labels = example.labels
    targets = dict(zip(labels.get("mlm.positions", ()), labels.get("mlm.targets", ())))
    unchanged: list[int] = []
    for i, id in enumerate(example.input_ids.tolist()):
        if i not in targets and not tokenizer.special[id]:
            unchanged.append(id)
            continue
        if unchanged:
            yield _part("text", tokens_to_readable_text(tokenizer, unchanged))
            unchanged = []
        if i not in targets:
            yield _part("special", f" {tokenizer.token(id)}")
            continue
        original = tokens_to_readable_text(tokenizer, [int(targets[i])])
        if id == tokenizer.mask:
            yield Part("masked", original, tokenizer.token(id))
        else:
            state = "kept" if id == targets[i] else "random"
            yield Part(state, original, tokens_to_readable_text(tokenizer, [id]))
    if unchanged:
        yield _part("text", tokens_to_readable_text(tokenizer, unchanged))


def _part(state: str, text: str) -> Part:
    return Part(state, text, text)


def masked_sentences(store: TokenStore, count: int, max_tokens: int = MAX_SENTENCE_TOKENS) -> Iterator[Example]:
    """Yield at most `count` rows, spread evenly over the held-out text, or over the training text if nothing is held out."""
    split = store.heldout if len(store.heldout.sentences) > 1 else store.train
    bounds = np.linspace(0, len(split.sentences) - 1, count + 1).astype(int)
    for low, high in pairwise(bounds):
        for s in range(low, min(high, low + MAX_SKIPPED_SENTENCES)):
            row = _mask_one_word(split, s, store.tokenizer, max_tokens)
            if row is not None:
                yield row
                break


def _mask_one_word(split: Split, sentence: int, t: Tokenizer, max_tokens: int) -> Example | None:
    """Return a sentence with the middle one of its single-token words masked, or None if it has none."""
    start, end = int(split.sentences[sentence]), split.sentence_end(sentence)
    if not MIN_SENTENCE_TOKENS <= end - start <= max_tokens:
        return None
    ids = np.array(t.build_inputs_with_special_tokens(split.tokens[start:end].tolist())[0], np.int64)
    offset = len(t.special_token_layout[0][0])  # special tokens before the text
    starts_word = np.append((split.flags[start:end] & WORD) > 0, True)
    is_single_token = starts_word[:-1] & starts_word[1:]
    positions = np.flatnonzero(is_single_token) + offset
    usable = [i for i in positions if any(c.isalpha() for c in t.token(ids[i]))]
    if not usable or t.special[split.tokens[start:end]].any():
        return None
    masked = usable[len(usable) // 2]
    labels = {"mlm.positions": np.array([masked]), "mlm.targets": ids[[masked]]}
    assert t.mask is not None
    ids[masked] = t.mask
    return Example(ids, labels=labels)
