"""Mask filling: the candidates of each [MASK], jointly filled texts, and the best filled text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from tokenizers import Encoding

from unmask.errors import UserError
from unmask.inference.answers import Candidate, FillMaskResult, JointCandidate, Mask
from unmask.inference.engine import Engine
from unmask.inference.examples import MAX_SENTENCE_TOKENS, masked_sentences
from unmask.inference.inputs import as_texts, describe_item, shorten
from unmask.inference.mask_fillers import (
    FixedCandidateFiller,
    Ids,
    MaskFiller,
    MaskSlot,
    MultiTokenFiller,
    SingleTokenFiller,
    Word,
    regular_tokens,
)
from unmask.inference.progress import Update, map_in_chunks
from unmask.inference.reader import Overflow, Reader
from unmask.text.store import TokenStore
from unmask.text.token_text import display_token, display_tokens, fill_spans, mask_spans

MASKS = re.compile(r"\[MASK\]|<mask>")  # accepted for every tokenizer, whatever its mask token is


class FillSettings(TypedDict, total=False):
    """Keywords of `Predictor.fill`, except texts and `top_k`."""

    num_beams: int
    max_subwords: int
    candidates: Sequence[str] | None
    overflow: Overflow
    update: Update | None


@dataclass
class MaskedText:
    number: int  # index of the text
    text: str
    ids: Ids  # the row
    positions: list[int]  # positions of the masks in the row
    # Spans of the masks in the text. A span includes the space before the mask if tokens of this tokenizer start with it.
    spans: list[tuple[int, int]]


@dataclass
class Beam:
    words: list[Ids]  # one for each mask that is filled so far, from left to right
    logprob: float

    @property
    def mean_logprob(self) -> float:
        return self.logprob / sum(map(len, self.words))


class Filler:
    def __init__(self, engine: Engine, reader: Reader):
        self.engine, self.reader, self.tokenizer = engine, reader, reader.tokenizer
        self.allowed = regular_tokens(reader.tokenizer, engine.config.vocab_size)

    def fill(
        self,
        texts: list[str],
        top_k: int = 5,
        num_beams: int = 0,
        max_subwords: int = 1,
        candidates: Sequence[str] | None = None,
        overflow: Overflow = "error",
        update: Update | None = None,
    ) -> list[FillMaskResult]:
        for name, value, minimum in (
            ("top_k", top_k, 1),
            ("num_beams", num_beams, 0),
            ("max_subwords", max_subwords, 1),
        ):
            if not isinstance(value, int) or value < minimum:
                raise UserError(f"invalid {name} {value!r}", expected=f"an integer, {minimum} or more")
        if candidates is not None and max_subwords > 1:
            raise UserError(
                "both max_subwords and candidates are given",
                hint="remove max_subwords: candidates may have any number of subwords",
            )
        texts = [MASKS.sub(lambda _: self.tokenizer.mask_token, text) for text in texts]
        filler = self._make_filler(texts, max_subwords, candidates)
        masked = self._encode(texts, filler.max_subwords - 1, overflow)
        lengths = [len(m.ids) * len(m.positions) * filler.max_subwords for m in masked]
        return map_in_chunks(masked, lengths, lambda chunk: self._fill(chunk, filler, top_k, num_beams), update)

    def examples(self, store: TokenStore, count: int, top_k: int) -> list[dict[str, Any]]:
        """Mask a word in a few held-out sentences and fill it: [{"text", "answer", "fills": [candidate, …]}, …]."""
        t = self.tokenizer
        rows = list(masked_sentences(store, count, min(MAX_SENTENCE_TOKENS, self.engine.config.max_positions - 2)))
        mask, out = t.mask_token, []
        before, _, after = t.special_token_layout[0]
        slots = [MaskSlot(tuple(row.input_ids.tolist()), int(row.labels["mlm.positions"][0]), (0, 0)) for row in rows]
        for row, words in zip(rows, SingleTokenFiller(self.engine, self.allowed).top_words(slots, top_k)):
            answer = display_token(t, int(row.labels["mlm.targets"][0]))
            text = t.decode(row.input_ids[len(before) : len(row) - len(after)])
            start = text.index(mask)
            if answer.startswith(" ") and start:  # the mask replaced a token that includes the space before the word
                text, start = f"{text[:start]} {text[start:]}", start + 1
            (span,) = mask_spans(t, text, [(start, start + len(mask))])
            fills = [asdict(self._candidate(word, text, span)) for word in words]
            out.append({"text": text, "answer": answer, "fills": fills})
        return out

    # ------------------------------------------------------------------------------------------------ encoding

    def _make_filler(self, texts: list[str], max_subwords: int, candidates: Sequence[str] | None) -> MaskFiller:
        if candidates is None:
            if max_subwords == 1:
                return SingleTokenFiller(self.engine, self.allowed)
            return MultiTokenFiller(self.engine, self.tokenizer, self.allowed, max_subwords)
        if isinstance(candidates, str) or not (words := list(dict.fromkeys(as_texts(candidates)))):
            raise UserError(f"invalid candidates {candidates!r:.60}", expected="a list of one or more words")
        ids = {}
        for number, encoding in enumerate(self.tokenizer.encode_batch(texts)):
            for m, i in enumerate(self._mask_positions(encoding)):
                end = encoding.offsets[i][1]
                context = texts[number][: end - len(self.tokenizer.mask_token)], texts[number][end:]
                ids[number, m] = [
                    self._candidate_ids(w, *context, encoding.ids[:i], encoding.ids[i + 1 :]) for w in words
                ]
        # If no text has a mask, `_encode` raises an error before this placeholder is used.
        return FixedCandidateFiller(self.engine, self.tokenizer.mask, ids or {(0, 0): [(0,)]})

    def _mask_positions(self, encoding: Encoding) -> list[int]:
        return [i for i, id in enumerate(encoding.ids) if id == self.tokenizer.mask]

    def _candidate_ids(self, word: str, before: str, after: str, left: list[int], right: list[int]) -> Ids:
        """Return the subwords of a candidate in place of the mask.

        `before`, `after`: the text around the mask; `left`, `right`: its token ids. If the tokenizer merges the word with
        its neighbors, the word is encoded without context.
        """
        ids = self.tokenizer.encode(before + word + after)
        end = len(ids) - len(right)
        is_separable = len(left) < end and ids[: len(left)] == left and ids[end:] == right
        subwords = ids[len(left) : end] if is_separable else self.tokenizer.encode(word)
        if not subwords or not all(self.allowed[id] for id in subwords):
            raise UserError(
                f"the tokenizer cannot encode the candidate {word!r}",
                expected="a word without special tokens and unknown characters",
            )
        return tuple(subwords)

    def _encode(self, texts: list[str], extra_subwords: int, overflow: Overflow) -> list[MaskedText]:
        """Encode the texts, with room for `extra_subwords` more tokens per mask."""
        t, out = self.tokenizer, []
        for number, encoding in enumerate(t.encode_batch(texts)):
            text, item, positions = texts[number], describe_item(texts, number), self._mask_positions(encoding)
            if not positions:
                raise UserError(
                    f"no mask in {item}: {shorten(text)}",
                    expected=f"{t.mask_token}, written exactly like this, in place of the word to predict",
                    hint=f'unmask fill MODEL "the president of the united {t.mask_token}"',
                )
            extra = extra_subwords * len(positions)
            start, end = self.reader.window(len(encoding), positions[0], positions[-1] + 1, extra, item, overflow)
            row = self.reader.row(encoding.ids[start:end], [i - start for i in positions])
            spans = mask_spans(t, text, [encoding.offsets[i] for i in positions])
            ids = tuple(row.input_ids.tolist())
            out.append(MaskedText(number, text, ids, row.labels["mlm.positions"].tolist(), spans))
        return out

    # ------------------------------------------------------------------------------------------------ filling

    def _fill(self, masked: list[MaskedText], filler: MaskFiller, top_k: int, num_beams: int) -> list[FillMaskResult]:
        slots = [_slot(m, i, {}) for m in masked for i in range(len(m.positions))]
        words = iter(filler.top_words(slots, top_k))
        independent = [[next(words) for _ in m.positions] for m in masked]  # top words by text and mask
        beams = self._beam_fill(masked, filler, num_beams)
        best = [b[0].words for b in beams] if num_beams else self._fill_by_confidence(masked, filler, independent)
        out = []
        for n, (m, words_by_mask) in enumerate(zip(masked, independent)):
            masks = [
                Mask(position, *span, [self._candidate(word, m.text, span) for word in words])
                for position, span, words in zip(m.positions, m.spans, words_by_mask)
            ]
            filled, spans = fill_spans(self.tokenizer, m.text, m.spans, best[n])
            out.append(
                FillMaskResult(m.text, masks, filled, spans, [self._joint_candidate(m, b) for b in beams[n][:top_k]])
            )
        return out

    def _fill_by_confidence(
        self, masked: list[MaskedText], filler: MaskFiller, independent: list[list[list[Word]]]
    ) -> list[list[Ids]]:
        """Return a word for every mask: fill the most confident mask of each text, predict the others again, and repeat."""
        filled: list[dict[int, Ids]] = [{} for _ in masked]
        best = {(n, i): words[0] for n, masks in enumerate(independent) for i, words in enumerate(masks)}
        while best:
            for n in {n for n, _ in best}:
                i = max((i for k, i in best if k == n), key=lambda i: best[n, i].mean_logprob)
                filled[n][i] = best[n, i].ids
            open_masks = [(n, i) for n, i in best if i not in filled[n]]
            slots = [_slot(masked[n], i, filled[n]) for n, i in open_masks]
            best = {key: words[0] for key, words in zip(open_masks, filler.top_words(slots, 1) if slots else [])}
        return [[words[i] for i in sorted(words)] for words in filled]

    def _beam_fill(self, masked: list[MaskedText], filler: MaskFiller, width: int) -> list[list[Beam]]:
        """Fill all masks of each text jointly by beam search from left to right. Return no beams if `width` is 0."""
        beams = [[Beam([], 0.0)][:width] for _ in masked]
        for i in range(max(len(m.positions) for m in masked)):
            jobs = [(n, beam) for n, m in enumerate(masked) if i < len(m.positions) for beam in beams[n]]
            slots = [_slot(masked[n], i, dict(enumerate(beam.words))) for n, beam in jobs]
            extended: dict[int, list[Beam]] = {}
            for (n, beam), words in zip(jobs, filler.top_words(slots, width)):
                extended.setdefault(n, []).extend(Beam([*beam.words, w.ids], beam.logprob + w.logprob) for w in words)
            for n, candidates in extended.items():
                beams[n] = sorted(candidates, key=lambda beam: -beam.mean_logprob)[:width]
        return beams

    def _joint_candidate(self, masked: MaskedText, beam: Beam) -> JointCandidate:
        text, spans = fill_spans(self.tokenizer, masked.text, masked.spans, beam.words)
        return JointCandidate(text, beam.logprob, [display_tokens(self.tokenizer, ids) for ids in beam.words], spans)

    def _candidate(self, word: Word, text: str, span: tuple[int, int]) -> Candidate:
        filled, _ = fill_spans(self.tokenizer, text, [span], [word.ids])
        token = display_tokens(self.tokenizer, word.ids)
        return Candidate(token, word.ids[0], math.exp(word.logprob), filled, word.ids, math.exp(word.mean_logprob))


def _slot(masked: MaskedText, mask: int, filled: dict[int, Ids]) -> MaskSlot:
    """Return the slot of mask number `mask` in a row whose masks in `filled` (mask number → word) are already filled."""
    row: list[int] = []
    end = 0
    for i, position in enumerate(masked.positions):
        if i in filled:
            row += [*masked.ids[end:position], *filled[i]]
            end = position + 1
    shift = sum(len(ids) - 1 for i, ids in filled.items() if i < mask)  # words before the mask have several tokens
    return MaskSlot((*row, *masked.ids[end:]), masked.positions[mask] + shift, (masked.number, mask))
