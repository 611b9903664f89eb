"""Combinations of objectives, the errors for invalid ones, and third-party objectives."""

import pytest
import torch
from objectives.rows import TOKENIZER

from unmask.batch import StepConfig, collate
from unmask.errors import UserError
from unmask.model.config import preset, presets
from unmask.model.model import Model
from unmask.objectives.objective import SumObjective, build, check, parse
from unmask.recipe import Recipe
from unmask.seeds import generator
from unmask.text.rows import RowDataset
from unmask.text.store import TokenStore

SMALL = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64}


@pytest.mark.parametrize("text", ["mlm+sop", "nsp+mlm", "mlm+nsp", "distill+sop"])
def test_valid_combinations_parse(text: str) -> None:
    assert [k.name for k in parse(text)] == text.split("+")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nsp+sop", "need different pairs"),
        ("mlm+nsp+sop", "need different pairs"),
        ("clm+nsp", "clm cannot be combined"),
        ("mlm+clm", "clm cannot be combined"),
        ("rtd+mlm", "trained by mlm already"),
        ("span+mlm", "no other objective reads"),
        ("denoise+sop", "no other objective reads"),
        ("hybrid+mlm", "hybrid cannot be combined"),
        ("prefix+mlm", "prefix cannot be combined"),
        ("mlm+mlm", "names a part twice"),
        ("mlm+distill", "both have the term mlm"),
        ("mlm+nps", "did you mean nsp"),
    ],
)
def test_invalid_combinations_raise_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        parse(text)


@pytest.mark.parametrize(
    ("objective", "name", "reason", "fits"),
    [
        ("span", "bert-mini", "has none", "t5-mini"),
        ("denoise", "gpt2-mini", "has none", "bart-mini"),
        ("mlm", "gpt2-mini", "bidirectional", "bert-mini"),
        ("mlm+nsp", "gpt-mini", "bidirectional", "bert-mini"),
        ("mlm", "t5-mini", "predicts with its decoder", "roberta-mini"),
        ("clm", "bart-mini", "predicts with its decoder", "gpt2-mini"),
        ("mlm", "elmo-mini", "lstm", "albert-mini"),
        ("rtd", "gpt2-mini", "bidirectional", "electra-mini"),
    ],
)
def test_incompatible_model_raises_and_lists_compatible_presets(
    objective: str, name: str, reason: str, fits: str
) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        check(Recipe.build({"objective": objective}), preset(name))
    assert fits in caught.value.expected
    assert name not in caught.value.expected.replace(",", "").split()


def test_every_preset_supports_its_default_objective() -> None:
    for name in presets():
        config = preset(name)
        check(Recipe.build({"objective": config.default_objective}), config)


def test_head_depends_on_the_family() -> None:
    for name, head in (("gpt2-mini", "lm"), ("bert-tiny", "mlm"), ("modernbert-mini", "mlm")):
        assert build(Recipe.build({"objective": "clm"}), TOKENIZER, preset(name)).heads == (head,)


def test_sum_objective_calls_loss_positions_of_each_part_once(store: TokenStore) -> None:
    recipe = Recipe.build({"objective": "mlm+sop"})
    objective = build(recipe, store.tokenizer)
    assert isinstance(objective, SumObjective)
    model = Model(preset("bert-tiny", vocab_size=store.tokenizer.size, **SMALL), objective.heads).init(0).eval()
    rows = RowDataset(store.train, store.tokenizer, 0, objective.rows)
    step_config = StepConfig(0, 64, 0.15)
    batch = collate(
        [objective.corrupt(rows.example(0, i, step_config), generator(i), step_config) for i in range(4)], 0
    )
    calls = dict.fromkeys(objective.terms, 0)
    for part in objective.parts:

        def counted(model, batch, part=part, reads=part.loss_positions):
            calls[part.name] += 1
            return reads(model, batch)

        part.loss_positions = counted
    with torch.no_grad():
        once = objective.loss(model, batch)
        assert calls == {"mlm": 1, "sop": 1}
        hidden = model.encode(batch, objective.loss_positions(model, batch))
        again = objective.logits_and_targets(model, hidden, batch)
    for name, (logits, targets) in again.items():
        assert torch.equal(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"), once[name][0])
