"""Further training records, rewritten by the model itself (`--augment-mlm 0.5`; after 1812.06705, without its labels).

A share of the records is taken again; in each, 15 % of the words (one at least) stand behind a mask and are filled with words drawn from the
start model's MLM head, among its 50 likeliest, never the word itself. Labels stay, which is not always right: look at `augmented.jsonl` in the
run folder. With entities, only words outside of them are changed, and places behind a new word are moved. What is drawn is addressed by
(seed, number of the new record); a resumed run reads the file.
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
WORD_TOKENIZERS = ("wordpiece", "bpe", "unigram")  # of tokenizers whose pieces can be words


def share(recipe: Recipe) -> float:
    return recipe.task.augment_mlm


def check(recipe: Recipe, config: ModelConfig, task: str) -> None:
    if not share(recipe):
        return
    training = TASKS[task].SPEC.training
    if not training.augmentable_fields:
        specs: dict[str, Any] = all_specs()
        able = ", ".join(name for name, spec in specs.items() if spec.training.augmentable_fields)
        raise UserError(f"--augment-mlm with the task {task}: {training.why_not_augmentable}", expected=able)
    if "mlm" not in FAMILIES[config.family].heads or config.logit_position == "next":
        raise UserError(
            f"--augment-mlm: a {config.family} model of this kind fills no masks", expected="a model with an MLM head"
        )


def rows(recipe: Recipe, records: Sequence[Record], run: Run, world: World, console: Console) -> list[Record]:
    """The further records of a run: made once, and read from its folder ever after."""
    if not share(recipe):
        return []
    path = run.path / FILE
    if world.is_main and not path.exists():
        loaded, tokenizer = hf.load(recipe.init_from, ("mlm",)), Tokenizer.load(recipe.init_from)
        if loaded.missing:
            raise UserError(
                f"--augment-mlm: {recipe.init_from} has no MLM head to rewrite with",
                hint="a model that fills masks (unmask info says which heads one has), or without --augment-mlm",
            )
        fields = TASKS[recipe.task.name].SPEC.training.augmentable_fields
        made = rewrite(loaded.model, tokenizer, records, share(recipe), recipe.seed, console.say, fields)
        write_lines(path, made)
    world.barrier()
    run.pin_checksum(FILE, checksum(path), world.is_main)
    found = list(read_lines(path))
    console.say(f"{len(found):,} further records are rewritten by {recipe.init_from}: {path}")
    return found


@dataclass
class MaskedText:
    """A text with masks where words are to be put."""

    record: int  # of the new ones
    role: str
    words: list[tuple[int, int]]  # places in the text, in order
    row: Example


@torch.inference_mode()
def rewrite(
    model: Model,
    tokenizer: Tokenizer,
    records: Sequence[Record],
    share: float,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
    fields: Sequence[str] = ("text", "pair"),
) -> list[Record]:
    """So many new records as `share` says; one that has no word to change, or none to put in its place, is left out."""
    if tokenizer.type not in WORD_TOKENIZERS:
        raise UserError(
            f"--augment-mlm: tokens of a {tokenizer.type} tokenizer are no words", expected=", ".join(WORD_TOKENIZERS)
        )
    if all("O" not in r["tags"] for r in records if "tags" in r) and any("tags" in r for r in records):
        raise UserError(
            "--augment-mlm: every word has a tag, so none can be changed",
            expected="entities, with words outside of them",
        )
    order = generator(seed, "augment").permutation(len(records))
    count = round(share * len(records))
    new = [dict(records[order[n % len(order)]]) for n in range(count)]
    room = model.config.max_positions - len(tokenizer.build_inputs_with_special_tokens([])[0])
    blanks: list[MaskedText] = []
    for n, record in enumerate(new):
        for role in fields:
            if role in record:
                made = mask_words(tokenizer, record, role, room, generator(seed, "augment", n, role))
                if made:
                    blanks.append(MaskedText(n, role, *made))
    starting, ideographs, written = vocabulary(tokenizer, model.config.vocab_size)
    model.eval()
    changed: dict[int, dict[str, list[tuple[int, int, str]]]] = {}
    stayed = 0  # words for which there is no other
    for group in batch_by_length([len(b.row) for b in blanks]):
        batch = collate([blanks[g].row for g in group], tokenizer.pad).to(model.embedding.device)
        logits = model.logits("mlm", model.encode(batch, batch.labels["mlm.positions"])).double().cpu().numpy()
        at = 0
        for g in group:
            blank = blanks[g]
            text, rng = new[blank.record][blank.role], generator(seed, "augment", blank.record, blank.role, "fill")
            for start, end in blank.words:
                old = text[start:end]
                scores = np.where(ideographs if is_ideograph(old) else starting, logits[at], -np.inf)
                scores[written.get(old.lower(), [])] = -np.inf
                at += 1
                drawn = sample_token(scores, rng)
                if drawn is None:
                    stayed += 1
                    continue
                put = changed.setdefault(blank.record, {}).setdefault(blank.role, [])
                put.append((start, end, match_case(old, display_token(tokenizer, drawn).strip())))
    if stayed and not changed:
        raise UserError("--augment-mlm: the tokenizer has no whole words to put in", hint="a larger vocabulary")
    if stayed:
        say(f"--augment-mlm: for {stayed:,} words the vocabulary has no other of their kind: they stay")
    return [replace_words(new[n], changed[n]) for n in sorted(changed)]


def mask_words(
    tokenizer: Tokenizer, record: Record, role: str, room: int, rng: np.random.Generator
) -> tuple[list[tuple[int, int]], Example] | None:
    """The words of a text that are to be changed, and its row with a mask for each; None where there are none."""
    text = record[role]
    (encoding,) = tokenizer.encode_batch([text])
    ends = np.array([end for _, end in encoding.offsets[:room]] or [0])
    words = [(s, e) for s, e in replaceable_words(record, role) if e <= ends[-1]]
    if not words:
        return None
    count = max(1, int(MASK_RATE * len(words) + rng.random()))
    chosen = [words[i] for i in np.sort(rng.choice(len(words), min(count, len(words)), replace=False))]
    ids: list[int] = []
    masks, last = [], -1
    for id, (start, end) in list(zip(encoding.ids, encoding.offsets))[:room]:
        inside = next((n for n, (s, e) in enumerate(chosen) if start < e and s < end), None)
        if inside is None:
            ids.append(id)
        elif inside != last:  # one mask for all pieces of a word
            masks.append(len(ids))
            ids.append(int(tokenizer.mask or 0))
            last = inside
    if len(masks) != len(chosen):  # the tokenizer drops a word, or joins two
        return None
    before = len(tokenizer.special_token_layout[0][0])
    row, segments = tokenizer.build_inputs_with_special_tokens(ids)
    labels = {"mlm.positions": np.array(masks) + before}
    return chosen, Example(np.array(row), np.array(segments), labels=labels)


def replaceable_words(record: Record, role: str) -> list[tuple[int, int]]:
    """Places of words that may change: made of letters, of no entity, and not the predicate."""
    text = record[role]
    if role == "text" and "words" in record:
        tags = record.get("tags") or [OUTSIDE] * len(record["words"])
        words = [(s, e) for (s, e), tag in zip(record["words"], tags) if tag == OUTSIDE and WORD.fullmatch(text[s:e])]
    else:
        words = [m.span() for m in WORD.finditer(text)]
    taken = [(s["start"], s["end"]) for s in record.get("spans", ())] + [record.get("predicate", (0, 0))]
    return [(s, e) for s, e in words if role != "text" or not any(s < end and start < e for start, end in taken)]


def vocabulary(tokenizer: Tokenizer, size: int) -> tuple[np.ndarray, np.ndarray, dict[str, list[int]]]:
    """Which ids are whole words, which of them Chinese characters, and the ids of each word."""
    starting, ideographs = np.zeros(size, bool), np.zeros(size, bool)
    written: dict[str, list[int]] = {}
    for id in np.flatnonzero(~tokenizer.special[:size]).tolist():
        shown = display_token(tokenizer, id)
        word = shown.strip()
        if not word.isalpha():
            continue
        written.setdefault(word.lower(), []).append(id)
        if is_ideograph(word):
            ideographs[id] = len(word) == 1
        else:
            starting[id] = (
                not shown.startswith(CONTINUATION_PREFIX) if tokenizer.type == "wordpiece" else shown.startswith(" ")
            )
    return starting, ideographs, written


def sample_token(scores: np.ndarray, rng: np.random.Generator) -> int | None:
    """An id by its probability among the likeliest; None where none is possible."""
    best = np.argsort(-scores, kind="stable")[:TOP_K]
    best = best[np.isfinite(scores[best])]
    if not len(best):
        return None
    shares = np.exp(scores[best] - scores[best[0]])
    return int(rng.choice(best, p=shares / shares.sum()))


def match_case(old: str, new: str) -> str:
    """
    >>> match_case("The", "a"), match_case("USA", "france"), match_case("i", "we"), match_case("I", "we")
    ('A', 'FRANCE', 'we', 'We')
    """
    if len(old) > 1 and old.isupper():
        return new.upper()
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def replace_words(record: Record, changed: dict[str, list[tuple[int, int, str]]]) -> Record:
    """
    >>> old = {"location": "f:1", "text": "in old Rome now", "spans": [{"start": 7, "end": 11, "label": "loc"}]}
    >>> replace_words(old, {"text": [(3, 6, "ancient"), (12, 15, "then")]})
    {'location': 'f:1, rewritten', 'text': 'in ancient Rome then', 'spans': [{'start': 11, 'end': 15, 'label': 'loc'}]}
    """
    out: dict[str, Any] = {**record, "location": f"{record['location']}, rewritten"}
    for role, words in changed.items():
        text, done, parts = record[role], 0, []
        for start, end, word in words:
            parts += [text[done:start], word]
            done = end
        out[role] = "".join([*parts, text[done:]])
    words = changed.get("text", [])

    def moved(place: int) -> int:
        """A word that was put in lies whole before or behind any border."""
        return place + sum(len(word) - (end - start) for start, end, word in words if end <= place)

    if "spans" in record:
        out["spans"] = [{**s, "start": moved(s["start"]), "end": moved(s["end"])} for s in record["spans"]]
    if "predicate" in record:
        out["predicate"] = [moved(place) for place in record["predicate"]]
    if "words" in record:
        out["words"] = [[moved(start), moved(end)] for start, end in record["words"]]
    return out
