"""Span corruption (T5) and denoising (BART): what is removed, and that the targets restore the text."""

import numpy as np
import pytest
import torch
from objectives.rows import TOKENIZER, row

from unmask.batch import StepConfig, collate
from unmask.errors import UserError
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.denoise import Denoise, permute_sentences, poisson_span_lengths
from unmask.objectives.objective import build
from unmask.objectives.span import Span, sample_noise_mask
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.seeds import generator
from unmask.text.flags import SENTENCE
from unmask.text.tokenizer import Tokenizer

PHASE = StepConfig(0, 128, 0.15)
SENTINELS = [f"<extra_id_{i}>" for i in range(40)]
T5 = Tokenizer.train(["a"], TokenizerRecipe(type="byte", special_tokens=SENTINELS))


def restored(ids: np.ndarray, answer: np.ndarray) -> list[int]:
    """Replace each sentinel of the row by the tokens that follow it in the target."""
    spans: dict[int, list[int]] = {}
    current = -1
    for id in answer.tolist():
        if id in T5.sentinels:
            current = id
            spans[current] = []
        else:
            spans[current].append(id)
    return [x for id in ids.tolist() for x in spans.get(id, [id])]


@pytest.mark.parametrize("documents", [False, True])
def test_span_targets_restore_the_text(documents: bool) -> None:
    span = Span(Recipe.build({}), T5)
    removed = total = spans = 0
    lengths = set()
    for i in range(800):
        example = row(i, 128, T5, documents)
        out = span.corrupt(example, generator("span", i), PHASE)
        answer = out.labels["span.targets"]
        used = [id for id in out.input_ids.tolist() if id in T5.sentinels]
        assert used == T5.sentinels[: len(used)], "sentinels are out of order"
        assert answer[0] == T5.sentinels[0]
        assert answer[-2:].tolist() == [T5.sentinels[len(used)], T5.sep]
        assert restored(out.input_ids, answer[:-1]) == example.input_ids.tolist()
        assert out.decoder_input_ids[1:].tolist() == answer[:-1].tolist()
        assert out.decoder_input_ids[0] == span.start
        assert out.labels["span.decoder_positions"].tolist() == list(range(len(answer)))
        removed += len(answer) - len(used) - 2
        spans += len(used)
        total += int((~T5.special[example.input_ids]).sum())
        lengths.add(len(out.input_ids))
    assert removed / total == pytest.approx(0.15, abs=0.003)
    assert removed / spans == pytest.approx(3.0, abs=0.2)
    assert documents or len(lengths) == 1, "rows of equal length must stay equal in length"


def test_span_lengths_vary_and_every_token_can_be_masked() -> None:
    taken = np.array([sample_noise_mask(126, 0.15, 3.0, 99, generator(i)) for i in range(3000)])
    assert (taken.sum(1) == 19).all()
    runs = (np.diff(taken.astype(int), prepend=0, axis=1) == 1).sum(1)
    assert (runs == 6).all()
    chance = taken[:, 10:-10].mean(0)
    assert chance.min() > 0.1
    assert chance.max() < 0.2
    sizes = np.concatenate([np.diff(np.flatnonzero(np.diff(np.r_[0, t.astype(int), 0])))[::2] for t in taken])
    assert sizes.mean() == pytest.approx(19 / 6)
    assert set(range(1, 9)) <= set(sizes.tolist())


@pytest.mark.parametrize(
    ("n", "rate", "mean", "max_spans"), [(0, 0.15, 3, 9), (1, 0.5, 3, 9), (2, 0.9, 1, 9), (200, 0.5, 1, 9)]
)
def test_span_masks_of_extreme_rows(n: int, rate: float, mean: float, max_spans: int) -> None:
    noise_mask = sample_noise_mask(n, rate, mean, max_spans, generator(0))
    assert len(noise_mask) == n
    assert (np.diff(noise_mask.astype(int), prepend=0) == 1).sum() <= max_spans


def test_span_requires_sentinels() -> None:
    with pytest.raises(UserError, match="sentinels"):
        Span(Recipe.build({}), TOKENIZER)


def denoise(noise: str = "infill+permute") -> Denoise:
    return Denoise(Recipe.build({"denoise": {"noise": noise}}), TOKENIZER)


def test_infill_masks_30_percent_in_poisson_spans() -> None:
    """All tokens of a row are distinct, so the gap between two kept tokens is what a mask replaces."""
    objective, mask = denoise("infill"), TOKENIZER.mask
    removed = total = 0
    words: list[int] = []
    for i in range(300):
        example = row(i, 256)
        example.input_ids[1:-1] = generator(i).permutation(256)[:254] + 5  # all distinct
        out = objective.corrupt(example, generator("infill", i), PHASE)
        assert (out.labels["denoise.targets"] == example.input_ids).all()
        kept = [id for id in out.input_ids.tolist() if id != mask]
        where = {id: n for n, id in enumerate(example.input_ids.tolist())}
        positions = [where[id] for id in kept]
        assert positions == sorted(positions), "kept tokens changed their order"
        assert len(out.input_ids) <= len(example.input_ids)
        removed, total = removed + 256 - len(kept), total + 254
        # Masks between two kept neighbors: one replaces the gap, the others are zero-length spans.
        after = -1
        masks = 0
        for id in out.input_ids.tolist():
            if id == mask:
                masks += 1
                continue
            gap = np.arange(after + 1, where[id])
            if len(gap):
                words.append(int(((example.flags[gap] & 1) > 0).sum()))
                masks -= 1
            words += [0] * masks
            after, masks = where[id], 0
    assert removed / total == pytest.approx(0.3, abs=0.004)
    assert np.mean(words) == pytest.approx(3.0, abs=0.1)
    frequencies = np.bincount(words, minlength=12)[:12] / len(words)
    chances, none = poisson_span_lengths(3.0)
    assert frequencies[0] == pytest.approx(none, abs=0.01)
    assert np.abs(frequencies[1:12] - (1 - none) * chances[:11]).max() < 0.02


def test_permute_shuffles_sentences_within_documents() -> None:
    objective = denoise("permute")
    moved = 0
    for i in range(100):
        example = row(i, 128, documents=True)
        out = objective.corrupt(example, generator("permute", i), PHASE)
        order = permute_sentences(TOKENIZER.special[example.input_ids], example.flags, generator("order", i))
        assert sorted(order) == list(range(128))
        assert (order[[0, 64, 127]] == [0, 64, 127]).all(), "special tokens moved"
        assert set(order[1:64]) == set(range(1, 64)), "sentences left their document"
        breaks = order[1:][np.diff(order) != 1]
        assert all(example.flags[b] & SENTENCE or TOKENIZER.special[example.input_ids[b]] for b in breaks)
        assert sorted(out.input_ids) == sorted(example.input_ids)
        moved += (out.input_ids != example.input_ids).any()
    assert moved > 90


def test_delete_and_rotate() -> None:
    example = row(0, 128)
    num_deleted = [128 - len(denoise("delete").corrupt(example, generator(i), PHASE).input_ids) for i in range(500)]
    assert np.mean(num_deleted) == pytest.approx(0.3 * 126, abs=0.1)
    rotate, starts = denoise("rotate"), set()
    for i in range(300):
        ids = rotate.corrupt(example, generator(i), PHASE).input_ids
        assert ids[0] == TOKENIZER.cls
        assert ids[-1] == TOKENIZER.sep
        body = example.input_ids[1:-1]
        shift = next(s for s in range(126) if (np.roll(body, -s) == ids[1:-1]).all())
        starts.add(shift)
    assert len(starts) > 100


@pytest.mark.parametrize("noise", ["infill+delete", "shuffle", "infill+infill", ""])
def test_invalid_noise_raises(noise: str) -> None:
    with pytest.raises(UserError, match="denoise"):
        Recipe.build({"denoise": {"noise": noise}})


@pytest.mark.parametrize(("name", "family"), [("span", "t5-mini"), ("denoise", "bart-mini")])
def test_decoder_loss_ignores_padding(name: str, family: str) -> None:
    """Also with padded decoder rows: the loss of a batch is the sum of the losses of its rows."""
    tokenizer = T5 if name == "span" else TOKENIZER
    shape = {"hidden": 32, "heads": 2, "layers": 2, "decoder_layers": 2, "intermediate": 64}
    ids = {"pad_id": tokenizer.pad, "sep_id": tokenizer.sep}
    config = preset(family, vocab_size=tokenizer.size, **shape, **ids)
    objective = build(Recipe.build({"objective": name}), tokenizer, config)
    model = Model(config, objective.heads).init(0).eval()
    assert objective.start == config.start_id
    rows = [objective.corrupt(row(i, n, tokenizer), generator(i), PHASE) for i, n in enumerate((64, 48))]
    with torch.no_grad():
        whole = objective.loss(model, collate(rows, tokenizer.pad))[name]
        parts = [objective.loss(model, collate([r], tokenizer.pad))[name] for r in rows]
    assert whole[1] == sum(n for _, n in parts)
    assert float(whole[0]) == pytest.approx(sum(float(x) for x, _ in parts), rel=1e-5)
