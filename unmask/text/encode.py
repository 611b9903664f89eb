"""Texts → token numbers, and where their words and sentences start.

Boundaries come from the characters a token covers, never from marks such as `##` or `Ġ`, so that they hold
for every tokenizer. A word is what `text.word_ids` says (by segmenter in Chinese); a token starts one when
its first character that is not a space lies in another word than the last character of the token before. So a
token inside a word, and the second byte of a character, start none; a token that is only spaces belongs to
the word that follows.

Documents are joined and worked on together: numpy costs some microseconds a call, and a corpus of lines has
ten thousand documents in a megabyte.
"""

from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from unmask.text.dedupe import minhash_signature
from unmask.text.fast_wordpiece import FastWordPiece
from unmask.text.flags import DOCUMENT, SENTENCE, WORD
from unmask.text.segmentation import Language, detect_language, sentence_starts, word_ids
from unmask.text.tokenizer import Tokenizer

AT_ONCE = 1 << 16  # characters tokenized at once: the library needs some 200 bytes per token while it does


@dataclass(slots=True)
class EncodeTask:
    """One document on its way to a worker."""

    text: str
    heldout: bool = False
    sampled: bool = False  # wanted: its MinHash signature
    tail: float = 0.0  # share of the document, at its end, that is held out while the rest is trained on
    alone: bool = False  # the corpus has no other document


@dataclass(slots=True)
class SplitArrays:
    """Documents of one split, as the store keeps them but counted from 0; each ends with [SEP]."""

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
    without_tokens: int  # documents of which the tokenizer left nothing


Encoded = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids (n,), flags (n,), first tokens of sentences (s,)


class DocumentEncoder:
    """Turns batches of documents into arrays; `language` is one for all, or "auto": each document's own."""

    def __init__(self, tokenizer: Tokenizer, language: str):
        self.tokenizer, self.language = tokenizer, language
        self.pieces = FastWordPiece(tokenizer) if FastWordPiece.supports_tokenizer(tokenizer) else None
        self.dtype = np.dtype(np.uint16 if tokenizer.size <= 1 << 16 else np.uint32)

    def __call__(self, batch: list[EncodeTask]) -> EncodeResult:
        languages = [self._language(work.text) for work in batch]
        signatures = [minhash_signature(w.text, language) for w, language in zip(batch, languages) if w.sampled]
        encoded: list[Encoded] = [_NOTHING] * len(batch)
        # Apart by language, and by what `pieces` can do: one odd character must not slow down a whole batch.
        groups: dict[tuple[Language, bool], list[int]] = {}
        for i, (work, language) in enumerate(zip(batch, languages)):
            quick = self.pieces is not None and self.pieces.supports(work.text)
            groups.setdefault((language, quick), []).append(i)
        for (language, _), here in groups.items():
            for i, document in zip(here, self.encode([batch[i].text for i in here], language)):
                encoded[i] = document
        train: list[Encoded] = []
        heldout: list[Encoded] = []
        for work, document in zip(batch, encoded):
            if not len(document[0]):
                continue
            if work.tail:
                head, end = _cut(document, work.tail)
                if end is not None:
                    heldout.append(end)
                # one sentence cannot be cut: then all of it is held out, unless nothing would be left
                (train if end is not None or work.alone else heldout).append(head)
            else:
                (heldout if work.heldout else train).append(document)
        sep, empty = self.tokenizer.sep, np.zeros((0, 64), np.uint32)
        return EncodeResult(
            _join(train, sep, self.dtype),
            _join(heldout, sep, self.dtype),
            np.stack(signatures) if signatures else empty,
            sum(not len(ids) for ids, _, _ in encoded),
        )

    def encode(self, texts: list[str], language: Language) -> list[Encoded]:
        """Every text on its own; a text without tokens gives empty arrays."""
        lengths = np.array([len(text) + 1 for text in texts])
        bases = np.cumsum(lengths) - lengths  # where each text starts in the joined one
        sentences = [sentence_starts(text, language) for text in texts]
        starts = np.concatenate([s + base for s, base in zip(sentences, bases.tolist())])
        joined = "\n".join([*texts, ""])
        words = word_ids(joined, language)
        space = words < 0
        # The line breaks between texts count as words, so that spaces at a text's end do not reach the next.
        words[bases + lengths - 1] = len(joined) + np.arange(len(texts))
        if self.pieces is not None and self.pieces.supports(joined):
            ids, spans = self.pieces.encode(joined, space)
        else:
            ids, spans = self._tokenize(texts, sentences, bases)
        firsts = np.searchsorted(spans[:, 0], bases)  # each text's first token
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
        """ids (n,) and spans (n, 2) in characters of the joined text; long texts are cut between sentences."""
        ids, spans = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.int64)]
        waiting: list[str] = []
        places: list[int] = []

        def flush() -> None:
            for encoding, place in zip(self.tokenizer.encode_batch(waiting), places):
                ids.append(np.array(encoding.ids, np.int64))
                # fromiter over the flattened pairs: twice as fast as np.array on a list of tuples
                flat = np.fromiter(chain.from_iterable(encoding.offsets), np.int64, 2 * len(encoding))
                spans.append(flat.reshape(-1, 2) + place)
            waiting.clear()
            places.clear()

        size = 0
        for text, starts, base in zip(texts, sentences, bases.tolist()):
            for begin, end in pairwise(_cuts(text, starts)):
                waiting.append(text[begin:end])
                places.append(base + begin)
                size += end - begin
                if size >= AT_ONCE:
                    flush()
                    size = 0
        flush()
        return np.concatenate(ids), np.concatenate(spans)


def boundaries(
    words: np.ndarray, spans: np.ndarray, starts: np.ndarray, firsts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Flags of the tokens, and the tokens at which sentences start.

    `words` (characters,): the word each is in, -1 for spaces; `spans` (tokens, 2): characters each covers;
    `starts`: characters at which sentences begin; `firsts`: first token of each document (of a document
    without tokens, that of the next). Below: "ab c" as the tokens "a", "b", " c" (with its space).

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
    blank = first >= spans[:, 1]  # only spaces, or nothing at all
    last_word = np.where(blank, first_word, word_at[spans[:, 1] - 1])
    flags = np.zeros(len(spans), np.uint8)
    flags[1:][first_word[1:] != last_word[:-1]] = WORD
    # The first token at or after each sentence's first character; a sentence without any token vanishes.
    documents = firsts[firsts < len(spans)]
    sentences = np.unique(np.append(documents, np.searchsorted(np.maximum.accumulate(first), starts)))
    sentences = sentences[sentences < len(spans)]
    flags[sentences] |= SENTENCE | WORD
    flags[documents] |= DOCUMENT
    return flags, sentences


_NOTHING: Encoded = (np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int64))


def _cuts(text: str, starts: np.ndarray) -> list[int]:
    """Where to cut a long text; the space between sentences goes with the second, as byte-level BPE has it."""
    cuts = [0]
    if len(text) > AT_ONCE:
        after = np.searchsorted(starts, np.arange(AT_ONCE, len(text), AT_ONCE))
        for cut in np.unique(starts[after[after < len(starts)]]).tolist():
            while cut > 0 and text[cut - 1].isspace():
                cut -= 1
            if cut > cuts[-1]:
                cuts.append(cut)
    return [*cuts, len(text)]


def _cut(document: Encoded, tail: float) -> tuple[Encoded, Encoded | None]:
    """In two, before the sentence nearest to the last `tail` of the tokens; None for one that is one sentence."""
    ids, flags, sentences = document
    if len(sentences) < 2:
        return document, None
    at = int(np.argmin(np.abs(sentences[1:] - len(ids) * (1 - tail)))) + 1
    token = int(sentences[at])
    second = flags[token:].copy()
    second[0] |= DOCUMENT
    return (ids[:token], flags[:token], sentences[:at]), (ids[token:], second, sentences[at:] - token)


def _join(documents: list[Encoded], sep: int, dtype: np.dtype) -> SplitArrays:
    lengths = np.array([len(ids) + 1 for ids, _, _ in documents], np.int64)
    first = np.cumsum(lengths) - lengths
    counts = np.array([len(s) for _, _, s in documents], np.int64)
    tokens: np.ndarray = np.full(int(lengths.sum()), sep, dtype)
    flags = np.zeros(len(tokens), np.uint8)
    sentences = [np.zeros(0, np.int64)]
    for (ids, marks, starts), at in zip(documents, first.tolist()):
        tokens[at : at + len(ids)] = ids
        flags[at : at + len(ids)] = marks
        sentences.append(starts + at)
    return SplitArrays(tokens, flags, first, np.concatenate(sentences), np.cumsum(counts) - counts)
