"""fill: what may stand under each [MASK], alone and together with the others, and the whole text filled."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

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

MASKS = re.compile(r"\[MASK\]|<mask>")  # what a person may type, whatever the tokenizer calls it


class FillSettings(TypedDict, total=False):
    """What `Predictor.fill` takes in addition to texts and `top_k`."""

    num_beams: int
    max_subwords: int
    candidates: Sequence[str] | None
    overflow: Overflow
    update: Update | None


@dataclass
class MaskedText:
    """A text with masks, read."""

    number: int
    text: str
    ids: Ids  # the row
    positions: list[int]  # of the masks in the row
    spans: list[tuple[int, int]]  # their characters, with the blank that a piece brings along


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
        for name, value, least in (("top_k", top_k, 1), ("num_beams", num_beams, 0), ("max_subwords", max_subwords, 1)):
            if not isinstance(value, int) or value < least:
                raise UserError(f"{name} {value!r}", expected=f"{least} or more")
        if candidates is not None and max_subwords > 1:
            raise UserError(
                "both max_subwords and candidates", expected="one of them: candidates may have several pieces"
            )
        mask = self.tokenizer.mask_token
        texts = [MASKS.sub(lambda _: mask, t) for t in texts]
        words = self._words(texts, max_subwords, candidates)
        blanks = self._read(texts, words.longest - 1, overflow)
        lengths = [len(b.ids) * len(b.positions) * words.longest for b in blanks]
        return map_in_chunks(blanks, lengths, lambda some: self._fill(some, words, top_k, num_beams), update)

    def examples(self, store: TokenStore, count: int, top_k: int) -> list[dict[str, Any]]:
        """A word hidden in a few held-out sentences: [{"text", "answer", "fills": [candidate, …]}, …]."""
        t = self.tokenizer
        rows = list(masked_sentences(store, count, min(MAX_SENTENCE_TOKENS, self.engine.config.max_positions - 2)))
        mask, out = t.mask_token, []
        before, _, after = t.special_token_layout[0]
        places = [MaskSlot(tuple(row.input_ids.tolist()), int(row.labels["mlm.positions"][0]), (0, 0)) for row in rows]
        for row, words in zip(rows, SingleTokenFiller(self.engine, self.allowed).at(places, top_k)):
            answer = display_token(t, int(row.labels["mlm.targets"][0]))
            text = t.decode(row.input_ids[len(before) : len(row) - len(after)])
            start = text.index(mask)
            if answer.startswith(" ") and start:  # the mask took the blank of the piece that it hides
                text, start = f"{text[:start]} {text[start:]}", start + 1
            (span,) = mask_spans(t, text, [(start, start + len(mask))])
            out.append(
                {"text": text, "answer": answer, "fills": [asdict(self._candidate(w, text, span)) for w in words]}
            )
        return out

    # ------------------------------------------------------------------------------------------------ reading

    def _words(self, texts: list[str], max_subwords: int, candidates: Sequence[str] | None) -> MaskFiller:
        if candidates is None:
            pieces = SingleTokenFiller(self.engine, self.allowed)
            return (
                pieces
                if max_subwords == 1
                else MultiTokenFiller(self.engine, self.tokenizer, self.allowed, max_subwords)
            )
        if isinstance(candidates, str) or not (wanted := list(dict.fromkeys(as_texts(candidates)))):
            raise UserError(f"candidates {candidates!r:.60}", expected="a list of words, one or more")
        written = {}
        for number, encoding in enumerate(self.tokenizer.encode_batch(texts)):
            where = [i for i, id in enumerate(encoding.ids) if id == self.tokenizer.mask]
            for m, i in enumerate(where):
                end = encoding.offsets[i][1]
                around = texts[number][: end - len(self.tokenizer.mask_token)], texts[number][end:]
                written[number, m] = [
                    self._pieces_of(w, *around, encoding.ids[:i], encoding.ids[i + 1 :]) for w in wanted
                ]
        return FixedCandidateFiller(
            self.engine, self.tokenizer.mask, written or {(0, 0): [(0,)]}
        )  # no mask is said in `_read`

    def _pieces_of(self, text: str, before: str, after: str, left: list[int], right: list[int]) -> Ids:
        """A candidate's pieces as the tokenizer writes them between what stands around the mask."""
        ids = self.tokenizer.encode(before + text + after)
        apart = len(ids) > len(left) + len(right) and ids[: len(left)] == left and ids[len(ids) - len(right) :] == right
        own = ids[len(left) : len(ids) - len(right)] if apart else self.tokenizer.encode(text)
        if not own or not all(self.allowed[id] for id in own):
            raise UserError(
                f"the candidate {text!r}: the vocabulary cannot write it", expected="words of known characters"
            )
        return tuple(own)

    def _read(self, texts: list[str], more: int, overflow: Overflow) -> list[MaskedText]:
        """`more`: pieces beyond one that each mask may become."""
        t, out = self.tokenizer, []
        for number, encoding in enumerate(t.encode_batch(texts)):
            where = [i for i, id in enumerate(encoding.ids) if id == t.mask]
            if not where:
                raise UserError(
                    f"no mask in {describe_item(texts, number)}: {shorten(texts[number])}",
                    expected=f"{t.mask_token}, written exactly so, wherever the model should put a word",
                    hint=f'"the president of the united {t.mask_token}"',
                )
            start, end = self.reader.window(
                len(encoding), where[0], where[-1] + 1, more * len(where), describe_item(texts, number), overflow
            )
            row = self.reader.row(encoding.ids[start:end], [i - start for i in where])
            spans = mask_spans(t, texts[number], [encoding.offsets[i] for i in where])
            out.append(
                MaskedText(
                    number, texts[number], tuple(row.input_ids.tolist()), row.labels["mlm.positions"].tolist(), spans
                )
            )
        return out

    # ------------------------------------------------------------------------------------------------ filling

    def _fill(self, blanks: list[MaskedText], words: MaskFiller, top_k: int, num_beams: int) -> list[FillMaskResult]:
        places = [MaskSlot(b.ids, p, (b.number, m)) for b in blanks for m, p in enumerate(b.positions)]
        found = iter(words.at(places, top_k))
        alone = [[next(found) for _ in b.positions] for b in blanks]
        beams = self._beam_fill(blanks, words, num_beams)
        best = [some[0].words for some in beams] if num_beams else self._fill_by_confidence(blanks, words, alone)
        out = []
        for n, (b, masks) in enumerate(zip(blanks, alone)):
            listed = [
                Mask(p, *span, [self._candidate(w, b.text, span) for w in some])
                for p, span, some in zip(b.positions, b.spans, masks)
            ]
            filled, where = fill_spans(self.tokenizer, b.text, b.spans, best[n])
            out.append(
                FillMaskResult(b.text, listed, filled, where, [self._joint(b, beam) for beam in beams[n][:top_k]])
            )
        return out

    def _fill_by_confidence(
        self, blanks: list[MaskedText], words: MaskFiller, alone: list[list[list[Word]]]
    ) -> list[list[Ids]]:
        """A word for every mask: a text's surest one is filled, the model asked again, until none is left."""
        rows = [b.ids for b in blanks]
        chosen: list[dict[int, Ids]] = [{} for _ in blanks]
        found = {(n, m): some[0] for n, masks in enumerate(alone) for m, some in enumerate(masks)}
        while found:
            for n in {n for n, _ in found}:
                m = max((m for k, m in found if k == n), key=lambda m: found[n, m].mean_logprob)
                chosen[n][m] = found[n, m].ids
                rows[n] = _fill_in(blanks[n], chosen[n])
            open_masks = [(n, m) for n, m in found if m not in chosen[n]]
            places = [
                MaskSlot(rows[n], _position(blanks[n], m, chosen[n]), (blanks[n].number, m)) for n, m in open_masks
            ]
            found = {key: some[0] for key, some in zip(open_masks, words.at(places, 1) if places else [])}
        return [[masks[m] for m in sorted(masks)] for masks in chosen]

    def _beam_fill(self, blanks: list[MaskedText], words: MaskFiller, width: int) -> list[list[Beam]]:
        """By beam search from left to right: the likeliest ways to fill all masks of a text; none when `width` is 0."""
        beams = [[Beam([], 0.0)][:width] for _ in blanks]
        for m in range(max(len(b.positions) for b in blanks)):
            jobs = [(n, beam) for n, b in enumerate(blanks) if m < len(b.positions) for beam in beams[n]]
            places = []
            for n, beam in jobs:
                known = dict(enumerate(beam.words))
                places.append(
                    MaskSlot(_fill_in(blanks[n], known), _position(blanks[n], m, known), (blanks[n].number, m))
                )
            grown: dict[int, list[Beam]] = {}
            for (n, beam), found in zip(jobs, words.at(places, width)):
                grown.setdefault(n, []).extend(Beam([*beam.words, w.ids], beam.logprob + w.logprob) for w in found)
            for n, some in grown.items():
                beams[n] = sorted(some, key=lambda beam: -beam.mean_logprob)[:width]
        return beams

    def _joint(self, blanks: MaskedText, beam: Beam) -> JointCandidate:
        text, spans = fill_spans(self.tokenizer, blanks.text, blanks.spans, beam.words)
        return JointCandidate(text, beam.logprob, [display_tokens(self.tokenizer, ids) for ids in beam.words], spans)

    def _candidate(self, w: Word, text: str, span: tuple[int, int]) -> Candidate:
        filled, _ = fill_spans(self.tokenizer, text, [span], [w.ids])
        token = display_tokens(self.tokenizer, w.ids)
        return Candidate(token, w.ids[0], math.exp(w.logprob), filled, w.ids, math.exp(w.mean_logprob))


@dataclass
class Beam:
    words: list[Ids]  # of the first masks
    logprob: float

    @property
    def mean_logprob(self) -> float:
        return self.logprob / sum(map(len, self.words))


def _fill_in(blanks: MaskedText, known: dict[int, Ids]) -> Ids:
    """The row with some of its masks filled."""
    out: list[int] = []
    done = 0
    for m, position in enumerate(blanks.positions):
        if m in known:
            out += [*blanks.ids[done:position], *known[m]]
            done = position + 1
    return (*out, *blanks.ids[done:])


def _position(blanks: MaskedText, m: int, known: dict[int, Ids]) -> int:
    """Where mask `m` stands when some before it were filled with words of several pieces."""
    return blanks.positions[m] + sum(len(ids) - 1 for k, ids in known.items() if k < m)
