"""Data augmentation with the model's own MLM head (`--augment-mlm 0.5`; after 1812.06705, without its label conditioning).

A fraction of the records is copied. In each copy, 15% of the words (at least one) are masked and replaced by words sampled from
the 50 most likely ones, never by the same word. Labels are kept, which is not always right: check `augmented.jsonl` in the run
folder. In records with entities, only words outside of entities are replaced, and the offsets after them are shifted. Sampling
is seeded by (seed, index of the new record); a resumed run reads the file.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unmask.batch import Example, batch_by_length, collate
from unmask.console import Console
from unmask.errors import UserError
from unmask.files import read_lines, write_lines
from unmask.labels.detect_task import all_specs
from unmask.labels.records import Record
from unmask.model import hf
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.seeds import generator
from unmask.text.token_text import CONTINUATION_PREFIX, display_token, is_ideograph
from unmask.text.tokenizer import Tokenizer
from unmask.text.vocabulary import CJK
from unmask.train.checkpoint import checksum
from unmask.train.distributed import World
from unmask.train.run import Run

FILE = "augmented.jsonl"
MASK_RATE, TOP_K = 0.15, 50
WORD = re.compile(f"[{CJK}]|[^\\W\\d_{CJK}]+")
OUTSIDE = "O"
WORD_TOKENIZERS = ("wordpiece", "bpe", "unigram")  # types of tokenizers whose tokens can be whole words


def check(recipe: Recipe, config: ModelConfig, task: str) -> None:
    if not recipe.task.augment_mlm:
        return
    training = TASKS[task].SPEC.training
    if not training.augmentable_fields:
        specs: dict[str, Any] = all_specs()
        supported = ", ".join(name for name, spec in specs.items() if spec.training.augmentable_fields)
        raise UserError(f"--augment-mlm with the task {task}: {training.why_not_augmentable}", expected=supported)
    if "mlm" not in FAMILIES[config.family].heads or config.logit_position == "next":
        raise UserError(
            f"--augment-mlm: this {config.family} model cannot fill masks", expected="a model with an MLM head"
        )


def rows(recipe: Recipe, records: Sequence[Record], run: Run, world: World, console: Console) -> list[Record]:
    """Return the augmented records of a run. They are created once and saved in its folder."""
    if not recipe.task.augment_mlm:
        return []
    path = run.path / FILE
    if world.is_main and not path.exists():
        loaded, tokenizer = hf.load(recipe.init_from, ("mlm",)), Tokenizer.load(recipe.init_from)
        if loaded.missing:
            raise UserError(
                f"--augment-mlm: {recipe.init_from} has no MLM head",
                hint="use a model with an MLM head (unmask info lists the heads), or remove --augment-mlm",
            )
        fields = TASKS[recipe.task.name].SPEC.training.augmentable_fields
        fraction = recipe.task.augment_mlm
        write_lines(path, rewrite(loaded.model, tokenizer, records, fraction, recipe.seed, console.say, fields))
    world.barrier()
    run.pin_checksum(FILE, checksum(path), world.is_main)
    augmented = list(read_lines(path))
    console.say(f"{len(augmented):,} augmented records were created with {recipe.init_from}: {path}")
    return augmented


@dataclass
class MaskedText:
    """A text in which some words are masked."""

    record: int  # index of the new record
    role: str
    words: list[tuple[int, int]]  # (start, end) of the masked words, in order
    row: Example


@torch.inference_mode()
def rewrite(
    model: Model,
    tokenizer: Tokenizer,
    records: Sequence[Record],
    fraction: float,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
    fields: Sequence[str] = ("text", "pair"),
) -> list[Record]:
    """Return `fraction` times as many new records, without those in which no word can be replaced."""
    if tokenizer.type not in WORD_TOKENIZERS:
        raise UserError(
            f"--augment-mlm: tokens of a {tokenizer.type} tokenizer are not words",
            expected=f"a tokenizer of type {', '.join(WORD_TOKENIZERS)}",
        )
    if all(OUTSIDE not in r["tags"] for r in records if "tags" in r) and any("tags" in r for r in records):
        raise UserError(
            "--augment-mlm: every word has a tag, so none can be replaced",
            expected="records with words outside of entities",
        )
    order = generator(seed, "augment").permutation(len(records))
    new = [dict(records[order[n % len(order)]]) for n in range(round(fraction * len(records)))]
    max_tokens = model.config.max_positions - len(tokenizer.build_inputs_with_special_tokens([])[0])
    masked_texts: list[MaskedText] = []
    for n, record in enumerate(new):
        for role in fields:
            if role in record:
                masked = mask_words(tokenizer, record, role, max_tokens, generator(seed, "augment", n, role))
                if masked:
                    masked_texts.append(MaskedText(n, role, *masked))
    word_starts, ideographs, ids_of_word = vocabulary(tokenizer, model.config.vocab_size)
    model.eval()
    replaced: dict[int, dict[str, list[tuple[int, int, str]]]] = {}
    not_replaced = 0  # number of words for which the vocabulary has no replacement
    for group in batch_by_length([len(m.row) for m in masked_texts]):
        batch = collate([masked_texts[i].row for i in group], tokenizer.pad).to(model.embedding.device)
        logits = iter(model.logits("mlm", model.encode(batch, batch.labels["mlm.positions"])).double().cpu().numpy())
        for masked_text in (masked_texts[i] for i in group):
            n, role = masked_text.record, masked_text.role
            text, rng = new[n][role], generator(seed, "augment", n, role, "fill")
            for start, end in masked_text.words:
                old = text[start:end]
                scores = np.where(ideographs if is_ideograph(old) else word_starts, next(logits), -np.inf)
                scores[ids_of_word.get(old.lower(), [])] = -np.inf
                token = sample_token(scores, rng)
                if token is None:
                    not_replaced += 1
                    continue
                word = match_case(old, display_token(tokenizer, token).strip())
                replaced.setdefault(n, {}).setdefault(role, []).append((start, end, word))
    if not_replaced and not replaced:
        raise UserError(
            "--augment-mlm: the vocabulary has no whole words to replace words with",
            hint="use a model with a larger vocabulary",
        )
    if not_replaced:
        say(f"--augment-mlm: {not_replaced:,} words were kept, since the vocabulary has no replacement for them")
    return [replace_words(new[n], replaced[n]) for n in sorted(replaced)]


def mask_words(
    tokenizer: Tokenizer, record: Record, role: str, max_tokens: int, rng: np.random.Generator
) -> tuple[list[tuple[int, int]], Example] | None:
    """Choose the words of a text to replace; return them and the row with one mask for each, or None if there are none."""
    text = record[role]
    (encoding,) = tokenizer.encode_batch([text])
    ends = np.array([end for _, end in encoding.offsets[:max_tokens]] or [0])
    words = [(s, e) for s, e in replaceable_words(record, role) if e <= ends[-1]]
    if not words:
        return None
    count = max(1, int(MASK_RATE * len(words) + rng.random()))
    chosen = [words[i] for i in np.sort(rng.choice(len(words), min(count, len(words)), replace=False))]
    ids: list[int] = []
    positions, last = [], -1
    for id, (start, end) in list(zip(encoding.ids, encoding.offsets))[:max_tokens]:
        word = next((n for n, (s, e) in enumerate(chosen) if start < e and s < end), None)
        if word is None:
            ids.append(id)
        elif word != last:  # one mask for all subwords of a word
            positions.append(len(ids))
            ids.append(int(tokenizer.mask or 0))
            last = word
    if len(positions) != len(chosen):  # the tokenizer drops a word, or joins two
        return None
    num_before = len(tokenizer.special_token_layout[0][0])  # special tokens before the text
    row, segments = tokenizer.build_inputs_with_special_tokens(ids)
    labels = {"mlm.positions": np.array(positions) + num_before}
    return chosen, Example(np.array(row), np.array(segments), labels=labels)


def replaceable_words(record: Record, role: str) -> list[tuple[int, int]]:
    """Return (start, end) of the words that may be replaced: letters only, outside of entities, and not the predicate."""
    text = record[role]
    if role == "text" and "words" in record:
        tags = record.get("tags") or [OUTSIDE] * len(record["words"])
        words = [(s, e) for (s, e), tag in zip(record["words"], tags) if tag == OUTSIDE and WORD.fullmatch(text[s:e])]
    else:
        words = [m.span() for m in WORD.finditer(text)]
    fixed = [(s["start"], s["end"]) for s in record.get("spans", ())] + [record.get("predicate", (0, 0))]
    return [(s, e) for s, e in words if role != "text" or not any(s < end and start < e for start, end in fixed)]


def vocabulary(tokenizer: Tokenizer, size: int) -> tuple[np.ndarray, np.ndarray, dict[str, list[int]]]:
    """Return masks of the ids that are words and of those that are Chinese characters, and the ids of each word."""
    word_starts, ideographs = np.zeros(size, bool), np.zeros(size, bool)
    ids_of_word: dict[str, list[int]] = {}
    for id in np.flatnonzero(~tokenizer.special[:size]).tolist():
        shown = display_token(tokenizer, id)
        word = shown.strip()
        if not word.isalpha():
            continue
        ids_of_word.setdefault(word.lower(), []).append(id)
        if is_ideograph(word):
            ideographs[id] = len(word) == 1
        elif tokenizer.type == "wordpiece":
            word_starts[id] = not shown.startswith(CONTINUATION_PREFIX)
        else:
            word_starts[id] = shown.startswith(" ")
    return word_starts, ideographs, ids_of_word


def sample_token(scores: np.ndarray, rng: np.random.Generator) -> int | None:
    """Sample an id from the TOP_K most likely ones; None if all scores are -inf."""
    best = np.argsort(-scores, kind="stable")[:TOP_K]
    best = best[np.isfinite(scores[best])]
    if not len(best):
        return None
    weights = np.exp(scores[best] - scores[best[0]])
    return int(rng.choice(best, p=weights / weights.sum()))


def match_case(old: str, new: str) -> str:
    """
    >>> match_case("The", "a"), match_case("USA", "france"), match_case("i", "we"), match_case("I", "we")
    ('A', 'FRANCE', 'we', 'We')
    """
    if len(old) > 1 and old.isupper():
        return new.upper()
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def replace_words(record: Record, replaced: dict[str, list[tuple[int, int, str]]]) -> Record:
    """Replace words (start, end, new word) in the texts of a record and shift its offsets.

    >>> old = {"location": "f:1", "text": "in old Rome now", "spans": [{"start": 7, "end": 11, "label": "loc"}]}
    >>> replace_words(old, {"text": [(3, 6, "ancient"), (12, 15, "then")]})
    {'location': 'f:1, rewritten', 'text': 'in ancient Rome then', 'spans': [{'start': 11, 'end': 15, 'label': 'loc'}]}
    """
    new: dict[str, Any] = {**record, "location": f"{record['location']}, rewritten"}
    for role, words in replaced.items():
        text, copied, parts = record[role], 0, []
        for start, end, word in words:
            parts += [text[copied:start], word]
            copied = end
        new[role] = "".join([*parts, text[copied:]])
    words = replaced.get("text", [])

    def shift(offset: int) -> int:
        """Return the new offset. No offset lies inside a replaced word."""
        return offset + sum(len(word) - (end - start) for start, end, word in words if end <= offset)

    if "spans" in record:
        new["spans"] = [{**s, "start": shift(s["start"]), "end": shift(s["end"])} for s in record["spans"]]
    if "predicate" in record:
        new["predicate"] = [shift(offset) for offset in record["predicate"]]
    if "words" in record:
        new["words"] = [[shift(start), shift(end)] for start, end in record["words"]]
    return new
