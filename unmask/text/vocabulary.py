"""Train the vocabulary of a new tokenizer, by kind.

Which characters get a piece (wordpiece, unigram): ASCII and the most frequent ones that make up 99 % of the
text; then, in a quarter of the room that is left, those up to 99.99 %; and the rest where words leave a place
empty. So Chinese keeps its thousands, and stray signs take no place from the words. Wordpiece has each letter
both as `x` and as `##x`, so that a word of such letters (100 at most) is never [UNK]. `char` takes every character that
occurs `min_frequency` times, `vocab_size` at most; `bpe` and `byte` have all 256 bytes.

The same text and settings give the same vocabulary, in every process and with any number of threads. The
library's trainers alone do not: see the traps in `_wordpiece` (exact) and `_unigram` (by rounding, so a score or a
piece on the very edge could still fall either way; not seen in any run).

Measured on two busy cores, mostly source code, 8,192 pieces: 100 MB (the default sample) take 60 s and 480 MB of
memory for wordpiece, 50 s and 470 MB for bpe; 20 MB take 110 s and 310 MB for unigram, which looks at no more.
"""

import hashlib
import heapq
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from unmask.errors import UserError
from unmask.sections import VOCABULARY, TokenizerRecipe
from unmask.stopping import interruptible
from unmask.text.templates import TEMPLATES

CORE, COVERAGE = 0.99, 0.9999  # of the characters in the text
UNIGRAM_MB = 20  # of text: its time is ten times that of the others
PIECE = 8192  # characters; the unit of sampling and training: a huge document is neither all nor nothing

# The ideographs that BERT sets apart, one token each.
CJK = "㐀-䶿一-鿿豈-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f"
# What a unigram piece may not cross: a blank, and the border between letters, ideographs and other signs.
_UNIGRAM_WORD = r"▁?[\p{L}\p{M}\p{N}&&[^\p{Han}]]+|▁?\p{Han}+|▁?[^▁\p{L}\p{M}\p{N}]+|▁+"


def train_vocabulary(
    texts: Iterable[str], settings: TokenizerRecipe, progress: Callable[[int], None] | None = None
) -> tuple[tokenizers.Tokenizer, list[str], dict[str, int]]:
    """→ the bare tokenizer, its special tokens (ids 0, 1, …), and how much text was read and used.

    The tokens that its template puts last are not in it yet, but have their place in `vocab_size`.
    """
    last = len(TEMPLATES[settings.template].last)
    asked = settings.vocab_size  # a number that was asked for is kept or refused; the default adapts to the text
    special = _special_tokens(settings.model_copy(update={"vocab_size": asked or VOCABULARY}))
    settings = settings.model_copy(update={"vocab_size": (asked or VOCABULARY) - last})
    limit = min(settings.sample_mb, UNIGRAM_MB) if settings.type == "unigram" else settings.sample_mb
    pieces, counts = sample_text(texts, limit * 1e6, progress)
    if settings.special_tokens:  # they are not words: nothing is learned from their letters
        own = re.compile("|".join(re.escape(token) for token in settings.special_tokens))
        pieces = [part for piece in pieces for part in own.split(piece)]
    if not any(piece.strip() for piece in pieces):
        raise UserError(
            f"no text to train a tokenizer on ({counts['documents']:,} documents, all empty)",
            expected="text files, folders, globs, '-' or sample:NAME",
            hint="unmask samples lists available sample texts",
        )
    backend = _TRAINERS[settings.type](pieces, settings, special)
    size = backend.get_vocab_size() + last
    if size == len(special) + last:
        raise UserError(
            f"no character occurs {settings.min_frequency} times in the text ({counts['used_bytes']:,} bytes)",
            hint="use more text, or --set tokenizer.min_frequency=1",
        )
    if size < asked and settings.type in ("wordpiece", "bpe", "unigram"):
        raise UserError(
            f"a vocabulary of {asked:,} is larger than the text supports: "
            f"{counts['used_bytes']:,} bytes gave {size:,} {settings.type} pieces",
            expected=f"at most {size:,} for this text",
            hint=f"--vocab-size {size - size % 64 if size >= 512 else size}, or use more text"
            if size >= 8
            else "use more text",
        )
    return backend, special, counts


def sample_text(
    texts: Iterable[str], limit: float, progress: Callable[[int], None] | None = None
) -> tuple[list[str], dict[str, int]]:
    """At most `limit` bytes of UTF-8 in pieces spread over all of the text, always the same ones; and counts.

    Each piece gets a number from a hash of its ordinal, and the pieces with the smallest numbers stay: one
    pass, memory bounded by `limit`, and nobody needs to know beforehand how long the text is.

    >>> pieces, counts = sample_text((str(i) for i in range(1000)), limit=12)
    >>> pieces, counts
    (['634', '669', '906', '958'], {'documents': 1000, 'read_bytes': 2890, 'used_bytes': 12})
    """
    heap: list[tuple[int, int, int, str]] = []  # (-number, ordinal, bytes, piece): the largest number on top
    documents = read = used = ordinal = 0
    for text in texts:
        documents += 1
        for piece in _cut(text):
            piece = re.sub("[\ud800-\udfff]", "\ufffd", piece)
            size = len(piece) if piece.isascii() else len(piece.encode())
            number = int.from_bytes(hashlib.blake2b(b"%d" % ordinal, digest_size=8).digest())
            heapq.heappush(heap, (-number, ordinal, size, piece))
            read, used, ordinal = read + size, used + size, ordinal + 1
            while used > limit and len(heap) > 1:
                used -= heapq.heappop(heap)[2]
        if progress:
            progress(read)
    pieces = [piece for _, _, _, piece in sorted(heap, key=lambda entry: entry[1])]
    return pieces, {"documents": documents, "read_bytes": read, "used_bytes": used}


def _cut(text: str) -> Iterator[str]:
    """Pieces of at most PIECE characters, ending before a line break or a blank where there is one."""
    start = 0
    while len(text) - start > PIECE:
        end = start + PIECE
        at = max(text.rfind("\n", start + 1, end), text.rfind(" ", start + 1, end))
        end = at if at > 0 else end
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _special_tokens(settings: TokenizerRecipe) -> list[str]:
    own, template = settings.special_tokens, TEMPLATES[settings.template]
    built_in = {*template.tokens, *template.last}
    bad = [token for token in own if not token.strip() or token in built_in or own.count(token) > 1]
    if bad:
        raise UserError(
            f"special_tokens {bad[0]!r}: empty, duplicate, or a built-in special token", expected="e.g. <url>, [E1]"
        )
    special = [*template.tokens, *own]
    count = len(special) + len(template.last)
    least = count + (256 if settings.type in ("bpe", "byte") else 1)
    if settings.type != "byte" and settings.vocab_size < least:
        raise UserError(
            f"vocab_size {settings.vocab_size}: no room for {count} special tokens and the alphabet",
            expected=f"at least {least} for {settings.type}",
            hint=f"--vocab-size {least}",
        )
    return special


def _unk(settings: TokenizerRecipe) -> str:
    return TEMPLATES[settings.template].roles["unk"]


def _normalizer(settings: TokenizerRecipe) -> normalizers.Normalizer:
    lower = bool(settings.lowercase)
    strip = lower if settings.strip_accents == "auto" else settings.strip_accents == "yes"
    if settings.type == "wordpiece":
        return normalizers.BertNormalizer(strip_accents=strip, lowercase=lower)
    steps: list[normalizers.Normalizer] = []
    if settings.type == "unigram":  # Nmt: line breaks and other blanks become spaces, control characters go
        steps = [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    elif settings.type == "char":
        steps = [normalizers.NFC()]
    if lower:
        steps.append(normalizers.Lowercase())
    if strip:  # composed again, or Korean syllables would fall apart
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    return normalizers.Sequence(steps)


def _count(pieces: list[str], normalizer: normalizers.Normalizer, compose: bool, blanks: bool = False) -> Counter[str]:
    """Characters after normalisation, of each distinct character and not of the text: five times as fast.

    `compose`: whether the normalisation joins letters and accents, which no character shows alone.
    """
    raw: Counter[str] = Counter()
    for piece in pieces:
        raw.update(unicodedata.normalize("NFC", piece) if compose else piece)
    counts: Counter[str] = Counter()
    for character, n in raw.items():
        for normal in normalizer.normalize_str(character):
            if blanks or not normal.isspace():
                counts[normal] += n
    return counts


def _alphabet(
    counts: Counter[str], settings: TokenizerRecipe, room: int, forms: Callable[[str], list[str]]
) -> tuple[list[str], list[str]]:
    """Single-character pieces, the most frequent first: those to start from, and those for places left over.

    >>> counts = Counter({"a": 9_000, "中": 900, "~": 2, "☃": 2, "é": 1})
    >>> _alphabet(counts, TokenizerRecipe(), room=10, forms=lambda c: [c])
    (['a', '中', '~', '☃'], [])
    >>> _alphabet(counts, TokenizerRecipe(), room=5, forms=lambda c: [c])
    (['a', '中', '~'], ['☃'])
    """
    total, seen = sum(counts.values()), 0
    core, common = set(), []
    ranked = [c for c, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])) if n >= settings.min_frequency]
    for character in ranked:
        if character.isascii() or seen < CORE * total:
            core.add(character)
        elif seen < COVERAGE * total:
            common.append(character)
        seen += counts[character]
    quarter = (room - sum(len(forms(c)) for c in core)) // 4
    kept = core.copy()
    for character in common:
        quarter -= len(forms(character))
        if quarter >= 0:
            kept.add(character)
    first = [form for c in ranked if c in kept for form in forms(c)]
    last = [form for c in ranked if c not in kept for form in forms(c)]
    return first[:room], last


def _wordpiece(pieces: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    """BPE merges, kept as a WordPiece vocabulary, which is what the library's trainer does.

    Trap: that trainer numbers the `##x` in the order of a hash table, and equally frequent pairs are merged
    in the order of their numbers, so every run gave another vocabulary. Handing the `##x` over as "special
    tokens" fixes their numbers; a fresh model then forgets that they were special.
    """
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=_unk(settings)))
    backend.normalizer = _normalizer(settings)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts = _count(pieces, backend.normalizer, compose=False)
    room = settings.vocab_size - len(special)
    forms, spare = _alphabet(counts, settings, room, lambda c: [c] if _stands_alone(c) else [c, f"##{c}"])
    alphabet = sorted(form for form in forms if len(form) == 1)
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        special_tokens=special + sorted(form for form in forms if len(form) > 1),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    interruptible(lambda: backend.train_from_iterator(pieces, trainer))
    found = backend.get_vocab()
    ordered = [*sorted(found, key=lambda token: found[token]), *spare][: settings.vocab_size]
    vocabulary = {token: i for i, token in enumerate(ordered)}
    backend = _copy(backend, models.WordPiece(vocabulary, unk_token=_unk(settings), max_input_chars_per_word=100))
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _stands_alone(character: str) -> bool:
    """Ideographs and punctuation, as BERT splits: never inside a word, so never with `##`."""
    ascii_sign = character.isascii() and character.isprintable() and not character.isalnum()
    return bool(re.match(f"[{CJK}]", character)) or ascii_sign or unicodedata.category(character).startswith("P")


def _bpe(pieces: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = _normalizer(settings)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        special_tokens=special,
        initial_alphabet=bytes_to_unicode(),
        show_progress=False,
    )
    interruptible(lambda: backend.train_from_iterator(pieces, trainer))
    return backend


def _unigram(pieces: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    """Two traps. The trainer keeps every character it meets: the rare ones are blanked out beforehand. And it
    adds floats in the order of a hash table, so that scores differ in the last digits from run to run: they
    are rounded, and pieces sorted by them.
    """
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizer = _normalizer(settings)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
            pre_tokenizers.Split(Regex(_UNIGRAM_WORD), "isolated"),
        ]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    counts = _count(pieces, normalizer, compose=True)
    room = settings.vocab_size - len(special) - 1  # 1: the blank
    kept, spare = _alphabet(counts, settings, room, lambda c: [c])
    if rare := "".join(sorted(set(counts) - set(kept))):
        drop = re.compile(f"[{re.escape(rare)}]")
        pieces = [drop.sub(" ", normalizer.normalize_str(piece)) for piece in pieces]
    trainer = trainers.UnigramTrainer(
        vocab_size=settings.vocab_size, special_tokens=special, unk_token=_unk(settings), show_progress=False
    )
    interruptible(lambda: backend.train_from_iterator(pieces, trainer))
    learned = json.loads(backend.to_str())["model"]["vocab"][len(special) :]
    learned = sorted(((piece, round(score, 4)) for piece, score in learned), key=lambda x: (-x[1], x[0]))
    free = settings.vocab_size - len(special) - len(learned)
    learned += [(character, learned[-1][1] - 1) for character in spare[:free]]
    return _copy(
        backend, models.Unigram([(token, 0.0) for token in special] + learned, unk_id=special.index(_unk(settings)))
    )


def _char(pieces: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    normalizer = _normalizer(settings)
    counts = _count(pieces, normalizer, compose=True, blanks=True)
    kept = [c for c, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])) if n >= settings.min_frequency]
    vocabulary = {token: i for i, token in enumerate([*special, *kept][: settings.vocab_size])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=_unk(settings)))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return backend


def _byte(pieces: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    """Byte-level BPE without a merge. Nothing is trained."""
    backend = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate([*special, *bytes_to_unicode()])}, []))
    backend.normalizer = _normalizer(settings)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


_TRAINERS: dict[str, Callable[[list[str], TokenizerRecipe, list[str]], tokenizers.Tokenizer]] = {
    "wordpiece": _wordpiece,
    "bpe": _bpe,
    "unigram": _unigram,
    "char": _char,
    "byte": _byte,
}


def bytes_to_unicode() -> list[str]:
    """The printable character that byte-level BPE writes for each byte, by value: GPT-2's table."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (256 + n for n in range(256))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _copy(backend: tokenizers.Tokenizer, model: models.Model) -> tokenizers.Tokenizer:
    new = tokenizers.Tokenizer(model)
    new.normalizer, new.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    if backend.decoder is not None:
        new.decoder = backend.decoder
    return new
