"""Words of a new domain added to a tokenizer that exists (`--extend-vocab`): ids that were there keep their meaning.

The words are those that the tokenizer cuts into several pieces, ranked by the tokens that they save in a sample of the
corpus. They go into the vocabulary proper, not next to it as added tokens: those are searched for before lower-casing and
word splitting, and lose the blank before a word.

| model | entry | what else is cut otherwise |
|---|---|---|
| WordPiece | the word | words that begin with it, as the longest match wins: counted, and refused where it costs tokens |
| BPE | the word with its blank; a word that is an entry is taken whole (`ignore_merges`) | nothing |
| Unigram | `▁word`, a hair likelier than its pieces together | words that had these very pieces at their beginning |

A tokenizer of characters or bytes has no words, and is refused.
"""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import tokenizers

from unmask.errors import UserError
from unmask.files import new_folder, read_object, write_text
from unmask.text.cache import cache_dir
from unmask.text.checked import write_folder_checksums
from unmask.text.corpus import Corpus
from unmask.text.tokenizer import Tokenizer, cached_tokenizer
from unmask.text.vocabulary import sample_text

SAMPLE_MB = 20  # of text that is looked at: the frequent words of more are the same
MIN_COUNT = 5  # occurrences in the sample
HOLDOUT_EVERY = 10  # pieces of the sample of which one is kept to measure on
TIE_BREAK_EPS = 1e-3  # nats
REPORT_FILE = "extension.json"

Progress = Callable[[int], None]  # bytes read


@dataclass(frozen=True)
class NewWord:
    entry: str  # as the vocabulary writes it
    text: str  # as people do
    pieces: tuple[int, ...]  # ids in the old tokenizer
    saved: int  # tokens, in the sample


def extend_vocabulary(
    tokenizer: Tokenizer, texts: Iterable[str], count: int, progress: Progress | None = None
) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer with up to `count` words of `texts` added, and a report on text kept apart.

    >>> from unmask.recipe import TokenizerRecipe
    >>> old = Tokenizer.train(["the cat sat on the mat"] * 9, TokenizerRecipe(min_frequency=1))
    >>> new, report = extend_vocabulary(old, ["a tomcat sat", "The Tomcat!"] * 9, count=1)
    >>> [new.token(i) for i in new.encode("The TOMCAT sat.")], report["words"][0]["word"], new.size - old.size
    (['the', 'tomcat', 'sat', '[UNK]'], 'tomcat', 1)
    """
    _refuse(tokenizer)
    pieces, _ = sample_text(texts, SAMPLE_MB * 1e6, progress)
    kept = pieces[HOLDOUT_EVERY - 1 :: HOLDOUT_EVERY] or pieces[-1:]
    if len(pieces) > 1:
        pieces = [p for n, p in enumerate(pieces) if n % HOLDOUT_EVERY != HOLDOUT_EVERY - 1][: len(pieces) - len(kept)]
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts.update(pre_tokenize(tokenizer, piece))
    chosen = select_words(tokenizer, counts, count)
    new = add_words(tokenizer, chosen) if chosen else tokenizer
    before, after = (t.report(kept)["tokens_per_word"] for t in (tokenizer, new))
    return new, {
        "asked": count,
        "added": len(chosen),
        "vocabulary": new.size,
        "tokens_per_word": [before, after],
        "words": [
            {"word": w.text, "pieces": [tokenizer.token(i) for i in w.pieces], "saved": w.saved} for w in chosen[:10]
        ],
    }


def cached_extension(
    tokenizer: Tokenizer, corpus: Corpus, count: int, progress: Progress | None = None, keep: bool = True
) -> tuple[Tokenizer, dict[str, Any]]:
    """`extend_vocabulary`, done once for a corpus and kept in the cache."""
    key = f"{corpus.fingerprint()}\0{tokenizer.fingerprint()}\0{count}\0{SAMPLE_MB} {MIN_COUNT} {HOLDOUT_EVERY} {TIE_BREAK_EPS}"
    folder = cache_dir() / "tokenizers" / f"extended-{count}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if (folder / REPORT_FILE).exists():
        return cached_tokenizer(folder), read_object(folder / REPORT_FILE)
    new, report = extend_vocabulary(tokenizer, (document.text for document in corpus), count, progress)
    if keep:
        with suppress(OSError), new_folder(folder) as partial:  # another process was faster; or no room
            new.save(partial)
            write_text(partial / REPORT_FILE, json.dumps(report, ensure_ascii=False))
            write_folder_checksums(partial)
    return new, report


def describe(report: dict[str, Any]) -> str:
    """The report in two lines."""
    before, after = report["tokens_per_word"]
    if not report["added"]:
        return "vocabulary: no frequent word of this text is split into subwords; nothing was added"
    useful = ", ".join(f"{w['word']} ({' '.join(w['pieces'])})" for w in report["words"])
    return (
        f"vocabulary: {report['added']:,} words added, now {report['vocabulary']:,}; "
        f"tokens per word on held-out text {before:.3f} → {after:.3f}\n  most useful: {useful}"
    )


def added_token_subwords(old: Tokenizer, new: Tokenizer) -> dict[int, list[int]] | None:
    """New id → ids of its pieces in the old tokenizer; None when `new` is not `old` with words added."""
    if new.size < old.size or any(old.token(i) != new.token(i) for i in range(old.size)):
        return None
    out: dict[int, list[int]] = {}
    for i in range(old.size, new.size):
        out[i] = [t.id for t in old.backend.model.tokenize(new.token(i))]
        if not out[i]:
            return None
    return out


def pre_tokenize(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """The words of a text as the tokenizer's own rules cut them, before they are cut into pieces.

    >>> from unmask.recipe import TokenizerRecipe
    >>> list(pre_tokenize(Tokenizer.train(["a b"], TokenizerRecipe(min_frequency=1)), "Don't stop"))
    ['don', "'", 't', 'stop']
    """
    backend = tokenizer.backend
    normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
    for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal):
        yield word


def select_words(tokenizer: Tokenizer, counts: Counter[str], count: int) -> list[NewWord]:
    """The `count` words that save most tokens, the best first."""
    found = []
    unigram = type(tokenizer.backend.model).__name__ == "Unigram"
    for entry, n in counts.items():
        if n < MIN_COUNT:
            continue
        text = _plain(tokenizer, entry)
        if (
            len(text) < 2
            or not text[0].isalpha()
            or not all(c.isalnum() or unicodedata.category(c)[0] == "M" for c in text)
        ):
            continue  # numbers and signs have no use for an entry of their own
        if unigram and not entry.startswith("▁"):
            continue  # it would be found inside longer words too
        pieces = tuple(t.id for t in tokenizer.backend.model.tokenize(entry))
        if len(pieces) > 1 and tokenizer.unk not in pieces:
            found.append(NewWord(entry, text, pieces, n * (len(pieces) - 1)))
    found.sort(key=lambda w: (-w.saved, w.entry))
    found = found[: 2 * count]
    if found and type(tokenizer.backend.model).__name__ == "WordPiece":
        found = _net(tokenizer, counts, found)
    return found[:count]


def _net(tokenizer: Tokenizer, counts: Counter[str], found: list[NewWord]) -> list[NewWord]:
    """Savings with those of longer words that begin with a new one, which may be losses, or even [UNK]."""
    old, new = tokenizer.backend.model, add_words(tokenizer, found).backend.model
    entries = {w.entry for w in found}
    net: Counter[str] = Counter()
    for word, n in counts.items():
        begins = next((word[:end] for end in range(len(word), 1, -1) if word[:end] in entries), None)
        if begins:
            after = new.tokenize(word)
            lost = len(after) == 1 and after[0].id == tokenizer.unk
            net[begins] += -(10**12) if lost else n * (len(old.tokenize(word)) - len(after))
    kept = [NewWord(w.entry, w.text, w.pieces, net[w.entry]) for w in found if net[w.entry] > 0]
    return sorted(kept, key=lambda w: (-w.saved, w.entry))


def add_words(tokenizer: Tokenizer, chosen: Iterable[NewWord]) -> Tokenizer:
    """The same tokenizer with more entries, whose ids follow the last one there is."""
    raw = json.loads(tokenizer.backend.to_str())
    model = raw["model"]
    chosen = list(chosen)
    # Trap: an added token that the model itself does not know is renumbered when the file is read, after the last
    # entry of the model, which would now be another: so the model gets to know it.
    added = {i: t.content for i, t in tokenizer.backend.get_added_tokens_decoder().items()}
    if isinstance(model["vocab"], dict):
        model["vocab"] |= {token: i for i, token in added.items() if token not in model["vocab"]}
        model["vocab"] |= {word.entry: tokenizer.size + n for n, word in enumerate(chosen)}
        if model["type"] == "BPE":
            model["ignore_merges"] = True
    else:  # Unigram: a list of (piece, score), whose places are the ids
        scores = [score for _, score in model["vocab"]]
        lowest = min(scores)
        for i in range(len(scores), tokenizer.size):
            model["vocab"].append([added.get(i, f"<unused {i}>"), lowest])
            scores.append(lowest)
        # A hair for each piece saved, so that a word wins over its blank and another new word.
        hair = [TIE_BREAK_EPS * (len(w.pieces) - 1) for w in chosen]
        model["vocab"] += [[w.entry, sum(scores[i] for i in w.pieces) + h] for w, h in zip(chosen, hair)]
    named = {role: tokenizer.token(i) for role, i in tokenizer.roles.items()}
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(raw)), named)


def _refuse(tokenizer: Tokenizer) -> None:
    backend = tokenizer.backend
    kind = type(backend.model).__name__
    reason = ""
    if tokenizer.type in ("char", "byte") or kind == "WordLevel":
        reason = f"a {tokenizer.type} tokenizer has no words: every entry is one {tokenizer.type}"
    elif backend.pre_tokenizer is None:
        reason = "this tokenizer has no pre-tokenizer, so it has no word boundaries"
    elif kind == "BPE":
        # Taken whole, an entry that merges do not lead to would change how old text is cut.
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
    """Whether the entry stands for a whole word of some text."""
    text = backend.decoder.decode([token]) if backend.decoder else token
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)] == [token]


def _plain(tokenizer: Tokenizer, entry: str) -> str:
    """The word without its blank, and in letters where the vocabulary writes bytes."""
    if type(tokenizer.backend.model).__name__ == "WordPiece":
        return entry
    decoder = tokenizer.backend.decoder
    return (decoder.decode([entry]) if decoder else entry).replace("▁", " ").strip()
