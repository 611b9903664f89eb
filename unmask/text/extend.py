"""Add words of a new domain to an existing tokenizer (`--extend-vocab`). Existing ids keep their meaning.

Candidates are words that the tokenizer splits into several subwords, ranked by the number of tokens that they save in a sample
of the corpus. They are added to the model's vocabulary, not as added tokens: those are matched before lower-casing and word
splitting, and lose the space before a word.

| model | entry | other words that are tokenized differently |
|---|---|---|
| WordPiece | the word | words that start with it (longest match first); an entry that costs more tokens than it saves is rejected |
| BPE | the word with its space; a word that is an entry is not split (`ignore_merges`) | none |
| Unigram | `▁word`, slightly more probable than its subwords together | words that started with exactly these subwords |

Character and byte tokenizers have no words and are rejected.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from unicodedata import category

import tokenizers

from unmask.errors import UserError
from unmask.files import new_folder, read_object, write_text
from unmask.text.cache import cache_dir
from unmask.text.checked import write_folder_checksums
from unmask.text.corpus import Corpus
from unmask.text.tokenizer import Tokenizer, cached_tokenizer
from unmask.text.vocabulary import sample_text

SAMPLE_MB = 20  # size of the sample; more text has the same frequent words
MIN_COUNT = 5  # occurrences in the sample
HOLDOUT_EVERY = 10  # one of this many parts of the sample is held out for the report
TIE_BREAK_EPS = 1e-3  # nats
REPORT_FILE = "extension.json"

Progress = Callable[[int], None]  # bytes read


@dataclass(frozen=True)
class NewWord:
    entry: str  # as in the vocabulary
    text: str  # without the space marker and byte encoding
    subwords: tuple[int, ...]  # ids in the old tokenizer
    saved: int  # tokens saved in the sample


def extend_vocabulary(
    tokenizer: Tokenizer, texts: Iterable[str], count: int, progress: Progress | None = None
) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer with up to `count` words of `texts` added, and a report measured on held-out text.

    >>> from unmask.recipe import TokenizerRecipe
    >>> old = Tokenizer.train(["the cat sat on the mat"] * 9, TokenizerRecipe(min_frequency=1))
    >>> new, report = extend_vocabulary(old, ["a tomcat sat", "The Tomcat!"] * 9, count=1)
    >>> [new.token(i) for i in new.encode("The TOMCAT sat.")], report["words"][0]["word"], new.size - old.size
    (['the', 'tomcat', 'sat', '[UNK]'], 'tomcat', 1)
    """
    check_extendable(tokenizer)
    parts, _ = sample_text(texts, SAMPLE_MB * 1e6, progress)
    heldout = parts[HOLDOUT_EVERY - 1 :: HOLDOUT_EVERY] or parts[-1:]
    if len(parts) > 1:
        parts = [p for n, p in enumerate(parts) if n % HOLDOUT_EVERY != HOLDOUT_EVERY - 1][: len(parts) - len(heldout)]
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(pre_tokenize(tokenizer, part))
    chosen = select_words(tokenizer, counts, count)
    new = add_words(tokenizer, chosen) if chosen else tokenizer
    before, after = (t.report(heldout)["tokens_per_word"] for t in (tokenizer, new))
    return new, {
        "asked": count,
        "added": len(chosen),
        "vocabulary": new.size,
        "tokens_per_word": [before, after],
        "words": [
            {"word": w.text, "pieces": [tokenizer.token(i) for i in w.subwords], "saved": w.saved} for w in chosen[:10]
        ],
    }


def cached_extension(
    tokenizer: Tokenizer, corpus: Corpus, count: int, progress: Progress | None = None, keep: bool = True
) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the result of `extend_vocabulary`, from the cache if it was computed before; `keep` writes it there."""
    key = f"{corpus.fingerprint()}\0{tokenizer.fingerprint()}\0{count}\0{SAMPLE_MB} {MIN_COUNT} {HOLDOUT_EVERY} {TIE_BREAK_EPS}"
    folder = cache_dir() / "tokenizers" / f"extended-{count}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if (folder / REPORT_FILE).exists():
        return cached_tokenizer(folder), read_object(folder / REPORT_FILE)
    new, report = extend_vocabulary(tokenizer, (document.text for document in corpus), count, progress)
    if keep:
        with suppress(OSError), new_folder(folder) as partial:  # another process was faster, or the disk is full
            new.save(partial)
            write_text(partial / REPORT_FILE, json.dumps(report, ensure_ascii=False))
            write_folder_checksums(partial)
    return new, report


def describe(report: dict[str, Any]) -> str:
    """Format the report in two lines."""
    before, after = report["tokens_per_word"]
    if not report["added"]:
        return "vocabulary: no frequent word of this text is split into subwords; nothing was added"
    useful = ", ".join(f"{w['word']} ({' '.join(w['pieces'])})" for w in report["words"])
    return (
        f"vocabulary: {report['added']:,} words added, now {report['vocabulary']:,}; "
        f"tokens per word on validation text {before:.3f} → {after:.3f}\n  most useful: {useful}"
    )


def added_token_subwords(old: Tokenizer, new: Tokenizer) -> dict[int, list[int]] | None:
    """Map each new id to the ids of its subwords in `old`. Return None if `new` is not `old` with words added."""
    if new.size < old.size or any(old.token(i) != new.token(i) for i in range(old.size)):
        return None
    out: dict[int, list[int]] = {}
    for i in range(old.size, new.size):
        out[i] = [t.id for t in old.backend.model.tokenize(new.token(i))]
        if not out[i]:
            return None
    return out


def pre_tokenize(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Yield the words of a text as the tokenizer's pre-tokenizer splits it.

    >>> from unmask.recipe import TokenizerRecipe
    >>> list(pre_tokenize(Tokenizer.train(["a b"], TokenizerRecipe(min_frequency=1)), "Don't stop"))
    ['don', "'", 't', 'stop']
    """
    backend = tokenizer.backend
    normalized = backend.normalizer.normalize_str(text) if backend.normalizer else text
    for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalized):
        yield word


def select_words(tokenizer: Tokenizer, counts: Counter[str], count: int) -> list[NewWord]:
    """Return the `count` words that save the most tokens, best first."""
    candidates = []
    model = type(tokenizer.backend.model).__name__
    for entry, n in counts.items():
        if n < MIN_COUNT:
            continue
        text = _entry_text(tokenizer, entry)
        if len(text) < 2 or not text[0].isalpha() or not all(c.isalnum() or category(c)[0] == "M" for c in text):
            continue  # numbers and symbols are not added
        if model == "Unigram" and not entry.startswith("▁"):
            continue  # it would match inside longer words too
        subwords = tuple(t.id for t in tokenizer.backend.model.tokenize(entry))
        if len(subwords) > 1 and tokenizer.unk not in subwords:
            candidates.append(NewWord(entry, text, subwords, n * (len(subwords) - 1)))
    candidates.sort(key=lambda w: (-w.saved, w.entry))
    candidates = candidates[: 2 * count]
    if candidates and model == "WordPiece":
        candidates = _net_savings(tokenizer, counts, candidates)
    return candidates[:count]


def _net_savings(tokenizer: Tokenizer, counts: Counter[str], candidates: list[NewWord]) -> list[NewWord]:
    """Recompute the savings including longer words that start with a candidate: these may need more tokens, or be [UNK]."""
    old, new = tokenizer.backend.model, add_words(tokenizer, candidates).backend.model
    entries = {w.entry for w in candidates}
    net: Counter[str] = Counter()
    for word, n in counts.items():
        prefix = next((word[:end] for end in range(len(word), 1, -1) if word[:end] in entries), None)
        if prefix:
            after = new.tokenize(word)
            is_unk = len(after) == 1 and after[0].id == tokenizer.unk
            net[prefix] += -(10**12) if is_unk else n * (len(old.tokenize(word)) - len(after))
    useful = [NewWord(w.entry, w.text, w.subwords, net[w.entry]) for w in candidates if net[w.entry] > 0]
    return sorted(useful, key=lambda w: (-w.saved, w.entry))


def add_words(tokenizer: Tokenizer, chosen: Iterable[NewWord]) -> Tokenizer:
    """Return a copy of the tokenizer with more entries; their ids follow the last existing one."""
    raw = json.loads(tokenizer.backend.to_str())
    model = raw["model"]
    chosen = list(chosen)
    # Trap: when the file is loaded, an added token that is not in the model's vocabulary is renumbered after the last entry of
    # the model, which is a different one now. So added tokens are put into the model's vocabulary too.
    added = {i: t.content for i, t in tokenizer.backend.get_added_tokens_decoder().items()}
    if isinstance(model["vocab"], dict):
        model["vocab"] |= {token: i for i, token in added.items() if token not in model["vocab"]}
        model["vocab"] |= {word.entry: tokenizer.size + n for n, word in enumerate(chosen)}
        if model["type"] == "BPE":
            model["ignore_merges"] = True
    else:  # Unigram: a list of (subword, score); the index is the id
        scores = [score for _, score in model["vocab"]]
        lowest = min(scores)
        for i in range(len(scores), tokenizer.size):
            model["vocab"].append([added.get(i, f"<unused {i}>"), lowest])
            scores.append(lowest)
        # A bonus per saved subword, so that a word wins over its space marker plus another new word.
        bonus = [TIE_BREAK_EPS * (len(w.subwords) - 1) for w in chosen]
        model["vocab"] += [[w.entry, sum(scores[i] for i in w.subwords) + b] for w, b in zip(chosen, bonus)]
    named = {role: tokenizer.token(i) for role, i in tokenizer.roles.items()}
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(raw)), named)


def check_extendable(tokenizer: Tokenizer) -> None:
    """Raise UserError if words cannot be added to the tokenizer."""
    backend = tokenizer.backend
    kind = type(backend.model).__name__
    reason = ""
    if tokenizer.type in ("char", "byte") or kind == "WordLevel":
        reason = f"a {tokenizer.type} tokenizer has no words: every entry is one {tokenizer.type}"
    elif backend.pre_tokenizer is None:
        reason = "this tokenizer has no pre-tokenizer, so it has no word boundaries"
    elif kind == "BPE":
        # With ignore_merges, an entry that merges cannot produce would change how existing text is tokenized.
        special = set(backend.get_added_tokens_decoder())
        for token, i in backend.get_vocab(with_added_tokens=False).items():
            if i not in special and [t.id for t in backend.model.tokenize(token)] != [i] and _is_word(backend, token):
                reason = f"its entry {token!r} cannot be produced by its merges, so adding whole words would change how existing text is tokenized"
                break
    if reason:
        raise UserError(
            f"--extend-vocab: {reason}",
            expected="a wordpiece, bpe or unigram tokenizer",
            hint="remove --extend-vocab to keep the vocabulary of the model",
        )


def _is_word(backend: tokenizers.Tokenizer, token: str) -> bool:
    """Return whether the entry is a whole word."""
    text = backend.decoder.decode([token]) if backend.decoder else token
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)] == [token]


def _entry_text(tokenizer: Tokenizer, entry: str) -> str:
    """Return the word of a vocabulary entry, without its space marker and with bytes decoded."""
    if type(tokenizer.backend.model).__name__ == "WordPiece":
        return entry
    decoder = tokenizer.backend.decoder
    return (decoder.decode([entry]) if decoder else entry).replace("▁", " ").strip()
