"""Train the vocabulary of a new tokenizer.

Characters with an entry of their own:

- wordpiece and unigram: ASCII, and the most frequent characters that make up 99% of the text; then, in 25% of the remaining
  entries, those up to 99.99%; the rest only in entries that words leave unused. So Chinese keeps its thousands of characters,
  and stray symbols do not displace words. Wordpiece has each letter as `x` and as `##x`, so that a word of up to 100 such
  letters is never [UNK].
- char: every character that occurs `min_frequency` times, up to `vocab_size`.
- bpe and byte: all 256 bytes.

The same text and settings give the same vocabulary in every process and with any number of threads. The library's trainers do
not guarantee this: see the traps in `_wordpiece` (exact) and `_unigram` (by rounding, so that a score exactly between two
rounded values could still differ; this was never observed).

Measured on two busy cores, mostly on source code, with 8,192 entries: 100 MB (the default sample) take 60 s and 480 MB of
memory for wordpiece, 50 s and 470 MB for bpe. 20 MB, the maximum for unigram, take 110 s and 310 MB.
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

CORE_COVERAGE, MAX_COVERAGE = 0.99, 0.9999  # fractions of the characters in the text
MAX_UNIGRAM_MB = 20  # maximum text for a Unigram tokenizer, which takes ten times as long to train as the other types
PART_CHARS = 8192  # unit of sampling, so that a huge document is neither used completely nor dropped completely

# Ideographs that BERT splits off, one token each.
CJK = "㐀-䶿一-鿿豈-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f"
# A unigram token never crosses a space or the border between letters, ideographs and other symbols.
_UNIGRAM_WORD = r"▁?[\p{L}\p{M}\p{N}&&[^\p{Han}]]+|▁?\p{Han}+|▁?[^▁\p{L}\p{M}\p{N}]+|▁+"


def train_vocabulary(
    texts: Iterable[str], settings: TokenizerRecipe, progress: Callable[[int], None] | None = None
) -> tuple[tokenizers.Tokenizer, list[str], dict[str, int]]:
    """Return the tokenizer without post-processing, its special tokens (ids 0, 1, …), and the amount of text read and used.

    The template's last tokens are not added yet, but `vocab_size` includes them.
    """
    last = len(TEMPLATES[settings.template].last)
    requested = settings.vocab_size  # 0: the default, which adapts to the text; other sizes are reached or rejected
    special = _special_tokens(settings.model_copy(update={"vocab_size": requested or VOCABULARY}))
    settings = settings.model_copy(update={"vocab_size": (requested or VOCABULARY) - last})
    max_mb = min(settings.sample_mb, MAX_UNIGRAM_MB) if settings.type == "unigram" else settings.sample_mb
    parts, counts = sample_text(texts, max_mb * 1e6, progress)
    if settings.special_tokens:  # they are not words, so their letters are not training text
        pattern = re.compile("|".join(re.escape(token) for token in settings.special_tokens))
        parts = [text for part in parts for text in pattern.split(part)]
    if not any(part.strip() for part in parts):
        raise UserError(
            f"no text to train a tokenizer on ({counts['documents']:,} documents, all empty)",
            expected="text files, folders, globs, '-' or sample:NAME",
            hint="unmask samples lists available sample texts",
        )
    backend = _TRAINERS[settings.type](parts, settings, special)
    size = backend.get_vocab_size() + last
    if size == len(special) + last:
        raise UserError(
            f"no character occurs {settings.min_frequency} times in the text ({counts['used_bytes']:,} bytes)",
            hint="use more text, or --set tokenizer.min_frequency=1",
        )
    if size < requested and settings.type in ("wordpiece", "bpe", "unigram"):
        raise UserError(
            f"a vocabulary of {requested:,} is larger than the text supports: "
            f"{counts['used_bytes']:,} bytes gave {size:,} {settings.type} entries",
            expected=f"at most {size:,} for this text",
            hint=f"--vocab-size {size - size % 64 if size >= 512 else size}, or use more text"
            if size >= 8
            else "use more text",
        )
    return backend, special, counts


def sample_text(
    texts: Iterable[str], limit: float, progress: Callable[[int], None] | None = None
) -> tuple[list[str], dict[str, int]]:
    """Sample at most `limit` bytes of UTF-8, in parts spread over the whole text. Return the parts and counts.

    The sample is deterministic: the parts whose index has the smallest hash are kept. This needs one pass, memory for `limit`
    bytes, and no knowledge of the length of the text.

    >>> sample_text((str(i) for i in range(1000)), limit=12)
    (['634', '669', '906', '958'], {'documents': 1000, 'read_bytes': 2890, 'used_bytes': 12})
    """
    heap: list[tuple[int, int, int, str]] = []  # (-hash, index, bytes, part): the largest hash on top
    documents = read = used = index = 0
    for text in texts:
        documents += 1
        for part in _split(text):
            part = re.sub("[\ud800-\udfff]", "\ufffd", part)
            size = len(part) if part.isascii() else len(part.encode())
            number = int.from_bytes(hashlib.blake2b(b"%d" % index, digest_size=8).digest())
            heapq.heappush(heap, (-number, index, size, part))
            read, used, index = read + size, used + size, index + 1
            while used > limit and len(heap) > 1:
                used -= heapq.heappop(heap)[2]
        if progress:
            progress(read)
    parts = [part for _, _, _, part in sorted(heap, key=lambda entry: entry[1])]
    return parts, {"documents": documents, "read_bytes": read, "used_bytes": used}


def _split(text: str) -> Iterator[str]:
    """Yield parts of at most PART_CHARS characters that end before a line break or a space if possible."""
    start = 0
    while len(text) - start > PART_CHARS:
        end = start + PART_CHARS
        space = max(text.rfind("\n", start + 1, end), text.rfind(" ", start + 1, end))
        end = space if space > 0 else end
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _special_tokens(settings: TokenizerRecipe) -> list[str]:
    custom, template = settings.special_tokens, TEMPLATES[settings.template]
    built_in = {*template.tokens, *template.last}
    invalid = [token for token in custom if not token.strip() or token in built_in or custom.count(token) > 1]
    if invalid:
        raise UserError(
            f"special_tokens {invalid[0]!r}: empty, duplicate, or a built-in special token", expected="e.g. <url>, [E1]"
        )
    special = [*template.tokens, *custom]
    count = len(special) + len(template.last)
    min_size = count + (256 if settings.type in ("bpe", "byte") else 1)
    if settings.type != "byte" and settings.vocab_size < min_size:
        raise UserError(
            f"vocab_size {settings.vocab_size}: no room for {count} special tokens and the alphabet",
            expected=f"at least {min_size} for {settings.type}",
            hint=f"--vocab-size {min_size}",
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
    if settings.type == "unigram":  # Nmt: whitespace becomes a space, control characters are removed
        steps = [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    elif settings.type == "char":
        steps = [normalizers.NFC()]
    if lower:
        steps.append(normalizers.Lowercase())
    if strip:  # composed again, because NFD splits Korean syllables
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    return normalizers.Sequence(steps)


def _count_characters(
    parts: list[str], normalizer: normalizers.Normalizer, compose: bool, spaces: bool = False
) -> Counter[str]:
    """Count the characters after normalization. Normalizing each distinct character, not the text, is five times as fast.

    `compose`: whether the normalizer composes letters and accents, which a single character cannot show.
    """
    raw: Counter[str] = Counter()
    for part in parts:
        raw.update(unicodedata.normalize("NFC", part) if compose else part)
    counts: Counter[str] = Counter()
    for character, n in raw.items():
        for normalized in normalizer.normalize_str(character):
            if spaces or not normalized.isspace():
                counts[normalized] += n
    return counts


def _alphabet(
    counts: Counter[str], settings: TokenizerRecipe, room: int, forms: Callable[[str], list[str]]
) -> tuple[list[str], list[str]]:
    """Return single-character entries, most frequent first: the initial ones, and those for entries left unused.

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
        if character.isascii() or seen < CORE_COVERAGE * total:
            core.add(character)
        elif seen < MAX_COVERAGE * total:
            common.append(character)
        seen += counts[character]
    budget = (room - sum(len(forms(c)) for c in core)) // 4
    initial = core.copy()
    for character in common:
        budget -= len(forms(character))
        if budget >= 0:
            initial.add(character)
    first = [form for c in ranked if c in initial for form in forms(c)]
    spare = [form for c in ranked if c not in initial for form in forms(c)]
    return first[:room], spare


def _wordpiece(parts: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    """Train with BPE merges, saved as a WordPiece vocabulary, as the library's trainer does.

    Trap: that trainer numbers the `##x` in the order of a hash table and merges equally frequent pairs in the order of their
    numbers, so every run gave a different vocabulary. Passing the `##x` as special tokens fixes their numbers. The final model
    is created from the vocabulary, without these special tokens.
    """
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=_unk(settings)))
    backend.normalizer = _normalizer(settings)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts = _count_characters(parts, backend.normalizer, compose=False)
    room = settings.vocab_size - len(special)
    forms, spare = _alphabet(counts, settings, room, lambda c: [c] if _is_single_word(c) else [c, f"##{c}"])
    alphabet = sorted(form for form in forms if len(form) == 1)
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_frequency,
        special_tokens=special + sorted(form for form in forms if len(form) > 1),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    interruptible(lambda: backend.train_from_iterator(parts, trainer))
    trained = backend.get_vocab()
    ordered = [*sorted(trained, key=lambda token: trained[token]), *spare][: settings.vocab_size]
    vocabulary = {token: i for i, token in enumerate(ordered)}
    backend = _with_model(backend, models.WordPiece(vocabulary, unk_token=_unk(settings), max_input_chars_per_word=100))
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _is_single_word(character: str) -> bool:
    """Return whether BERT splits a character off (ideographs, punctuation), so that it never has the prefix `##`."""
    ascii_symbol = character.isascii() and character.isprintable() and not character.isalnum()
    return bool(re.match(f"[{CJK}]", character)) or ascii_symbol or unicodedata.category(character).startswith("P")


def _bpe(parts: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
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
    interruptible(lambda: backend.train_from_iterator(parts, trainer))
    return backend


def _unigram(parts: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    """Train a unigram vocabulary. Two traps:

    - The trainer keeps every character of the text, so rare ones are replaced by spaces before.
    - It adds floats in the order of a hash table, so scores differ in the last digits from run to run. They are rounded, and
      the entries are sorted by score.
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
    counts = _count_characters(parts, normalizer, compose=True)
    room = settings.vocab_size - len(special) - 1  # 1: the space
    alphabet, spare = _alphabet(counts, settings, room, lambda c: [c])
    if rare := "".join(sorted(set(counts) - set(alphabet))):
        pattern = re.compile(f"[{re.escape(rare)}]")
        parts = [pattern.sub(" ", normalizer.normalize_str(part)) for part in parts]
    trainer = trainers.UnigramTrainer(
        vocab_size=settings.vocab_size, special_tokens=special, unk_token=_unk(settings), show_progress=False
    )
    interruptible(lambda: backend.train_from_iterator(parts, trainer))
    entries = json.loads(backend.to_str())["model"]["vocab"][len(special) :]
    entries = sorted(((token, round(score, 4)) for token, score in entries), key=lambda x: (-x[1], x[0]))
    free = settings.vocab_size - len(special) - len(entries)
    entries += [(character, entries[-1][1] - 1) for character in spare[:free]]
    return _with_model(
        backend, models.Unigram([(token, 0.0) for token in special] + entries, unk_id=special.index(_unk(settings)))
    )


def _char(parts: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    normalizer = _normalizer(settings)
    counts = _count_characters(parts, normalizer, compose=True, spaces=True)
    frequent = [c for c, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])) if n >= settings.min_frequency]
    vocabulary = {token: i for i, token in enumerate([*special, *frequent][: settings.vocab_size])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=_unk(settings)))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return backend


def _byte(parts: list[str], settings: TokenizerRecipe, special: list[str]) -> tokenizers.Tokenizer:
    """Create a byte-level BPE without merges. Nothing is trained."""
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
    """Return the printable character of each byte in byte-level BPE (GPT-2's table)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (256 + n for n in range(256))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _with_model(backend: tokenizers.Tokenizer, model: models.Model) -> tokenizers.Tokenizer:
    new = tokenizers.Tokenizer(model)
    new.normalizer, new.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    if backend.decoder is not None:
        new.decoder = backend.decoder
    return new
