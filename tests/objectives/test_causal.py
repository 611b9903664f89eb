"""CLM, prefix LM and hybrid: target positions, visible context, and separate documents in packed rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from objectives.rows import ORDINARY, TOKENIZER, row

from unmask.batch import Example, StepConfig, collate
from unmask.errors import UserError
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.objective import Objective, build
from unmask.recipe import Recipe
from unmask.seeds import generator
from unmask.text.flags import DOCUMENT
from unmask.text.rows import RowDataset
from unmask.text.store import TokenStore

PHASE = StepConfig(0, 64, 0.15)
SMALL = {"vocab_size": TOKENIZER.size, "hidden": 32, "heads": 2, "layers": 3, "intermediate": 64}
FAMILIES = ["bert-tiny", "modernbert-mini", "gpt2-mini"]


def make(name: str, family: str, **sections: object) -> tuple[Objective, Model]:
    shape = SMALL | ({"local_window": 8} if family.startswith("modern") else {})
    config = preset(family, **shape)
    objective = build(Recipe.build({"objective": name, **sections}), TOKENIZER, config)
    return objective, Model(config, objective.heads).init(0).eval()


def predictions(objective: Objective, model: Model, example: Example) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        batch = collate([example], TOKENIZER.pad)
        outputs = objective.logits_and_targets(model, objective._hidden(model, batch), batch)
    return {name: logits for name, (logits, _) in outputs.items()}


def test_clm_predicts_every_next_token_except_after_the_last() -> None:
    objective, _ = make("clm", "bert-tiny")
    example = row(3, 64, documents=True)
    out = objective.corrupt(example, generator(0), PHASE)
    assert (out.input_ids == example.input_ids).all()
    assert out.labels["clm.positions"].tolist() == list(range(62))
    assert (out.labels["clm.targets"] == example.input_ids[1:63]).all()
    assert TOKENIZER.sep in out.labels["clm.targets"].tolist(), "the end of a document is predicted"
    assert out.prefix_length == 0
    assert make("clm", "gpt2-mini")[0].corrupt(example, generator(0), PHASE).prefix_length is None, (
        "the model applies the causal mask itself"
    )


def test_separate_documents_do_not_predict_the_next_document() -> None:
    example = row(3, 64, documents=True)
    example.document_ids = np.cumsum((example.flags & DOCUMENT) > 0)
    for name in ("clm", "prefix", "hybrid"):
        objective, _ = make(name, "bert-tiny", mlm={"mask_rate": 0.9})
        for i in range(20):
            labels = objective.corrupt(example, generator(name, i), replace(PHASE, mask_rate=0.9)).labels
            for key in labels:
                position = 33 if key == "mlm.positions" else 32  # of the masked token, or of the one before it
                assert not key.endswith(".positions") or position not in labels[key].tolist()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["clm", "prefix", "hybrid"])
def test_later_tokens_do_not_affect_earlier_predictions(name: str, family: str) -> None:
    """Bit-exact. Tokens of the prefix may be visible, so the change is made after it."""
    objective, model = make(name, family, hybrid={"clm_fraction": 1.0})
    candidates = (objective.corrupt(row(5, 64), generator("cut", i), PHASE) for i in range(99))
    example = next(e for e in candidates if (e.prefix_length or 0) < 40)
    positions = next(v for k, v in example.labels.items() if k.endswith(".positions") and len(v))
    change_position = int(positions[len(positions) // 2]) + 1
    ids = example.input_ids.copy()
    ids[change_position:-1] = generator("other").choice(ORDINARY, len(ids) - 1 - change_position)
    before, after = (predictions(objective, model, replace(example, input_ids=x)) for x in (example.input_ids, ids))
    term = objective.terms[-1]
    earlier = int((positions < change_position).sum())
    assert torch.equal(before[term][:earlier], after[term][:earlier])
    assert not torch.equal(before[term][earlier:], after[term][earlier:]), "later positions see the change"


def test_prefix_length_is_uniform_and_loss_starts_after_it() -> None:
    objective, _ = make("prefix", "bert-tiny")
    cuts = []
    for i in range(4000):
        out = objective.corrupt(row(0, 32), generator("cut", i), PHASE)
        cuts.append(out.prefix_length)
        assert out.labels["prefix.positions"].tolist() == list(range(out.prefix_length - 1, 30))
        assert (out.labels["prefix.targets"] == out.input_ids[out.prefix_length : 31]).all()
    assert set(cuts) == set(range(1, 31))
    assert np.bincount(cuts)[1:].std() < 25  # expected 133 each; √133 = 12


def test_hybrid_predicts_at_previous_position_and_half_of_rows_are_causal() -> None:
    objective, model = make("hybrid", "bert-tiny")
    causal = chosen = total = 0
    for i in range(6000):
        example = row(i % 50, 64)
        out = objective.corrupt(example, generator("hybrid", i), PHASE)
        labels = out.labels
        causal += out.prefix_length == 0
        if out.prefix_length == 0:
            assert len(labels["clm.targets"]) == 62
            assert not len(labels["mlm.targets"])
        else:
            assert out.prefix_length == 64
            assert (example.input_ids[labels["mlm.positions"]] == labels["mlm.targets"]).all()
            batch = collate([out], TOKENIZER.pad)
            assert (objective.loss_positions(model, batch).numpy() == labels["mlm.positions"] - 1).all()
            assert not len(labels["clm.targets"])
            chosen, total = chosen + len(labels["mlm.targets"]), total + 62
    assert causal / 6000 == pytest.approx(0.5, abs=0.02)
    assert chosen / total == pytest.approx(0.15, abs=0.003)
    assert objective.weights == {"mlm": 0.5, "clm": 0.5}
    rows = [objective.corrupt(row(i, 64), generator("hybrid", i), PHASE) for i in range(6)]
    batch = collate(rows, TOKENIZER.pad)
    terms = objective.loss(model, batch)
    assert {name: n for name, (_, n) in terms.items()} == objective.target_counts(batch)


def test_hybrid_masked_rows_attend_to_both_sides_but_not_the_target() -> None:
    objective, model = make(
        "hybrid", "bert-tiny", hybrid={"clm_fraction": 0.0}, mlm={"mask": 1, "random": 0, "keep": 0}
    )
    example = row(1, 64)
    out = objective.corrupt(example, generator(0), PHASE)
    before = predictions(objective, model, out)["mlm"]
    later = out.input_ids.copy()
    later[-2] = ORDINARY[0] if later[-2] != ORDINARY[0] else ORDINARY[1]
    assert not torch.equal(before[0], predictions(objective, model, replace(out, input_ids=later))["mlm"][0])
    assert (out.input_ids[out.labels["mlm.positions"]] == TOKENIZER.mask).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_same_document_attention_separates_documents(family: str, store: TokenStore) -> None:
    """With a real store: document ids change where documents start, and tokens attend only within their document."""
    full_attention, same_document = (
        RowDataset(store.train, store.tokenizer, 0, "stream", same_document=on) for on in (False, True)
    )
    step_config = StepConfig(0, 64)
    example = next(
        e for e in (same_document.example(0, i, step_config) for i in range(300)) if e.document_ids.max() == 1
    )
    i = next(i for i in range(300) if (same_document.example(0, i, step_config).input_ids == example.input_ids).all())
    assert full_attention.example(0, i, step_config).document_ids is None
    border = int(np.flatnonzero(np.diff(example.document_ids))[0])
    assert example.input_ids[border] == store.tokenizer.sep
    assert example.flags[border + 1] & DOCUMENT
    assert example.document_ids[0] == 0
    model = Model(preset(family, **SMALL | {"vocab_size": store.tokenizer.size}), ()).init(0).eval()
    other = example.input_ids.copy()
    other[1:border] = other[1:border][::-1]
    hidden = []
    for ids in (example.input_ids, other):
        with torch.no_grad():
            hidden.append(model.encode(collate([replace(example, input_ids=ids)], 0))[0])
    assert torch.equal(hidden[0][border + 1 :], hidden[1][border + 1 :])
    assert not torch.equal(hidden[0][:border], hidden[1][:border])


def test_row_starting_inside_a_document_has_correct_document_ids() -> None:
    """The flag of the very first token is not a boundary: [CLS] belongs to the document that follows."""
    from types import SimpleNamespace

    flags = np.array([7, 1, 1, 0, 7, 1, 1, 0] * 8, np.uint8)
    tokens = np.where(flags == 0, TOKENIZER.sep, ORDINARY[3])
    rows = RowDataset(SimpleNamespace(tokens=tokens, flags=flags), TOKENIZER, 0, "stream", same_document=True)
    for i in range(rows.count(14)):
        e = rows.example(0, i, StepConfig(0, 14))
        assert e.document_ids[0] == e.document_ids[1] == 0
        starts = np.flatnonzero(e.flags & DOCUMENT)
        assert np.flatnonzero(np.diff(e.document_ids)).tolist() == [s - 1 for s in starts if s > 1]


def test_same_document_attention_raises_for_pairs_and_decoders() -> None:
    for name, family in (("mlm+nsp", "bert-tiny"), ("span", "t5-mini"), ("mlm+sop", "albert-mini")):
        with pytest.raises(UserError, match="document_attention"):
            build(
                Recipe.build({"objective": name, "train": {"document_attention": "same_document"}}),
                TOKENIZER,
                preset(family),
            )
