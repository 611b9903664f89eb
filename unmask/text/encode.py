"""Encode documents: token ids, and the tokens at which words and sentences start.

Boundaries are computed from the characters that a token covers, not from prefixes such as `##` or `Ġ`, so they are correct for
every tokenizer. Words are defined by `segmentation.word_ids` (a segmenter for Chinese). A token starts a word if its first
character that is not a space is in a different word than the last character of the previous token. A token inside a word and
the second byte of a character therefore start no word. A token that consists of spaces belongs to the next word.

Documents are joined and processed together, because a numpy call takes some microseconds and a megabyte of short lines has ten
thousand documents.
"""

from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from unmask.text.dedupe import minhash_signature
from unmask.text.fast_wordpiece import FastWordPiece
from unmask.text.flags import DOCUMENT, SENTENCE, WORD
from unmask.text.segmentation import Language, detect_language, sentence_starts, word_ids
from unmask.text.tokenizer import Tokenizer

BATCH_CHARS = 1 << 16  # characters tokenized at a time: the library needs about 200 bytes per token meanwhile


@dataclass(slots=True)
class EncodeTask:
    """A document for a worker to encode."""

    text: str
    heldout: bool = False
    sampled: bool = False  # compute its MinHash signature
    tail: float = 0.0  # fraction of the document, at its end, that is held out
    is_only_document: bool = False  # of the corpus


@dataclass(slots=True)
class SplitArrays:
    """Documents of one split in the layout of the store, with offsets from 0. Each document ends with [SEP]."""

    tokens: np.ndarray  # (N,) uint16 | uint32
    flags: np.ndarray  # (N,) uint8
    documents: np.ndarray  # (D,) int64: first token of each
    sentences: np.ndarray  # (S,) int64: first token of each
    document_sentences: np.ndarray  # (D,) int64: first sentence of each


@dataclass(slots=True)
class EncodeResult:
    train: SplitArrays
    heldout: SplitArrays
    signatures: np.ndarray  # (sampled documents, 64) uint32
    without_tokens: int  # number of documents for which the tokenizer returned no token


Encoded = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids (n,), flags (n,), first tokens of sentences (s,)


class DocumentEncoder:
    """Encodes batches of documents. `language` is "auto" to detect it per document."""

    def __init__(self, tokenizer: Tokenizer, language: str):
        self.tokenizer, self.language = tokenizer, language
        self.wordpiece = FastWordPiece(tokenizer) if FastWordPiece.supports_tokenizer(tokenizer) else None
        self.dtype = np.dtype(np.uint16 if tokenizer.size <= 1 << 16 else np.uint32)

    def __call__(self, batch: list[EncodeTask]) -> EncodeResult:
        languages = [self._language(task.text) for task in batch]
        signatures = [minhash_signature(task.text, lang) for task, lang in zip(batch, languages) if task.sampled]
        encoded: list[Encoded] = [_EMPTY] * len(batch)
        # Group by language and by whether the fast path applies: one odd character must not slow down the whole batch.
        groups: dict[tuple[Language, bool], list[int]] = {}
        for i, (task, language) in enumerate(zip(batch, languages)):
            fast = self.wordpiece is not None and self.wordpiece.supports(task.text)
            groups.setdefault((language, fast), []).append(i)
        for (language, _), indices in groups.items():
            for i, document in zip(indices, self.encode([batch[i].text for i in indices], language)):
                encoded[i] = document
        train: list[Encoded] = []
        heldout: list[Encoded] = []
        for task, document in zip(batch, encoded):
            if not len(document[0]):
                continue
            if task.tail:
                head, tail = _split_tail(document, task.tail)
                if tail is not None:
                    heldout.append(tail)
                # A document of one sentence cannot be split: it is held out, unless the training split would be empty.
                (train if tail is not None or task.is_only_document else heldout).append(head)
            else:
                (heldout if task.heldout else train).append(document)
        sep, empty = self.tokenizer.sep, np.zeros((0, 64), np.uint32)
        return EncodeResult(
            _join(train, sep, self.dtype),
            _join(heldout, sep, self.dtype),
            np.stack(signatures) if signatures else empty,
            sum(not len(ids) for ids, _, _ in encoded),
        )

    def encode(self, texts: list[str], language: Language) -> list[Encoded]:
        """Encode every text separately. A text without tokens gets empty arrays."""
        lengths = np.array([len(text) + 1 for text in texts])
        bases = np.cumsum(lengths) - lengths  # offset of each text in the joined text
        sentences = [sentence_starts(text, language) for text in texts]
        starts = np.concatenate([s + base for s, base in zip(sentences, bases.tolist())])
        joined = "\n".join([*texts, ""])
        words = word_ids(joined, language)
        space = words < 0
        # The line breaks between texts count as words, so that spaces at the end of a text do not belong to the next word.
        words[bases + lengths - 1] = len(joined) + np.arange(len(texts))
        if self.wordpiece is not None and self.wordpiece.supports(joined):
            ids, spans = self.wordpiece.encode(joined, space)
        else:
            ids, spans = self._tokenize(texts, sentences, bases)
        firsts = np.searchsorted(spans[:, 0], bases)  # first token of each text
        flags, sentence_tokens = boundaries(words, spans, starts, firsts)
        token_ends = np.append(firsts[1:], len(ids))
        s_firsts = np.searchsorted(sentence_tokens, firsts)
        s_ends = np.append(s_firsts[1:], len(sentence_tokens))
        return [
            (ids[a:b], flags[a:b], sentence_tokens[c:d] - a)
            for a, b, c, d in zip(firsts.tolist(), token_ends.tolist(), s_firsts.tolist(), s_ends.tolist())
        ]

    def _language(self, text: str) -> Language:
        if self.language == "auto":
            return detect_language(text)
        return "zh" if self.language == "zh" else "en"

    def _tokenize(
        self, texts: list[str], sentences: list[np.ndarray], bases: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ids (n,) and spans (n, 2) in characters of the joined text. Long texts are split between sentences."""
        ids, spans = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.int64)]
        pending: list[str] = []
        offsets: list[int] = []

        def flush() -> None:
            for encoding, offset in zip(self.tokenizer.encode_batch(pending), offsets):
                ids.append(np.array(encoding.ids, np.int64))
                # fromiter over the flattened pairs: twice as fast as np.array on a list of tuples
                flat = np.fromiter(chain.from_iterable(encoding.offsets), np.int64, 2 * len(encoding))
                spans.append(flat.reshape(-1, 2) + offset)
            pending.clear()
            offsets.clear()

        size = 0
        for text, starts, base in zip(texts, sentences, bases.tolist()):
            for begin, end in pairwise(_split_points(text, starts)):
                pending.append(text[begin:end])
                offsets.append(base + begin)
                size += end - begin
                if size >= BATCH_CHARS:
                    flush()
                    size = 0
        flush()
        return np.concatenate(ids), np.concatenate(spans)


def boundaries(
    words: np.ndarray, spans: np.ndarray, starts: np.ndarray, firsts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the flags (tokens,) and the tokens at which sentences start.

    `words` (characters,): word number of each character, -1 for spaces. `spans` (tokens, 2): characters of each token.
    `starts`: first characters of the sentences. `firsts`: first token of each document; a document without tokens has
    that of the next document. The example is "ab c" with the tokens "a", "b", " c" (with its space).

    >>> flags, sentences = boundaries(
    ...     np.array([0, 0, -1, 1]), np.array([[0, 1], [1, 2], [2, 4]]), np.array([0, 3]), np.array([0])
    ... )
    >>> flags.tolist(), sentences.tolist()
    ([7, 0, 3], [0, 2])
    """
    if not len(spans):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    # solid[i]: the first character at or after i that is not a space
    solid = np.where(words >= 0, np.arange(len(words)), len(words))
    solid = np.append(np.minimum.accumulate(solid[::-1])[::-1], len(words))
    word_at = np.append(words, -1)
    first = solid[spans[:, 0]]
    first_word = word_at[first]
    only_spaces = first >= spans[:, 1]  # or no character at all
    last_word = np.where(only_spaces, first_word, word_at[spans[:, 1] - 1])
    flags = np.zeros(len(spans), np.uint8)
    flags[1:][first_word[1:] != last_word[:-1]] = WORD
    # The first token at or after each sentence's first character. A sentence without tokens is dropped.
    documents = firsts[firsts < len(spans)]
    sentences = np.unique(np.append(documents, np.searchsorted(np.maximum.accumulate(first), starts)))
    sentences = sentences[sentences < len(spans)]
    flags[sentences] |= SENTENCE | WORD
    flags[documents] |= DOCUMENT
    return flags, sentences


_EMPTY: Encoded = (np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int64))


def _split_points(text: str, starts: np.ndarray) -> list[int]:
    """Return where to split a long text. The space between sentences goes to the second, as in byte-level BPE."""
    points = [0]
    if len(text) > BATCH_CHARS:
        after = np.searchsorted(starts, np.arange(BATCH_CHARS, len(text), BATCH_CHARS))
        for point in np.unique(starts[after[after < len(starts)]]).tolist():
            while point > 0 and text[point - 1].isspace():
                point -= 1
            if point > points[-1]:
                points.append(point)
    return [*points, len(text)]


def _split_tail(document: Encoded, fraction: float) -> tuple[Encoded, Encoded | None]:
    """Split before the sentence nearest to the last `fraction` of the tokens. The tail of a single sentence is None."""
    ids, flags, sentences = document
    if len(sentences) < 2:
        return document, None
    sentence = int(np.argmin(np.abs(sentences[1:] - len(ids) * (1 - fraction)))) + 1
    token = int(sentences[sentence])
    tail_flags = flags[token:].copy()
    tail_flags[0] |= DOCUMENT
    return (ids[:token], flags[:token], sentences[:sentence]), (ids[token:], tail_flags, sentences[sentence:] - token)


def _join(documents: list[Encoded], sep: int, dtype: np.dtype) -> SplitArrays:
    lengths = np.array([len(ids) + 1 for ids, _, _ in documents], np.int64)
    first = np.cumsum(lengths) - lengths
    counts = np.array([len(s) for _, _, s in documents], np.int64)
    tokens: np.ndarray = np.full(int(lengths.sum()), sep, dtype)
    flags = np.zeros(len(tokens), np.uint8)
    sentences = [np.zeros(0, np.int64)]
    for (ids, document_flags, starts), offset in zip(documents, first.tolist()):
        tokens[offset : offset + len(ids)] = ids
        flags[offset : offset + len(ids)] = document_flags
        sentences.append(starts + offset)
    return SplitArrays(tokens, flags, first, np.concatenate(sentences), np.cumsum(counts) - counts)
