"""RTD: replacements are sampled, not argmax; a sample equal to the token counts as original; no gradient flows
through sampling."""

import numpy as np
import pytest
import torch
from objectives.rows import TOKENIZER, row

from unmask.batch import StepConfig, collate
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.objective import build
from unmask.objectives.rtd import RTD, sample
from unmask.recipe import Recipe
from unmask.seeds import generator
from unmask.train.distributed import World
from unmask.train.schedule import plan
from unmask.train.trainer import Trainer

PHASE = StepConfig(0, 64, 0.15)
SHAPE = {"vocab_size": TOKENIZER.size, "hidden": 32, "heads": 4, "layers": 2, "intermediate": 64}


def make(family: str = "electra-mini", **settings: object) -> tuple[RTD, Model]:
    more = {"embedding": 32} if family.startswith("electra") else {}
    config = preset(family, **SHAPE, **more, dropout=0.0, attention_dropout=0.0)
    objective = build(Recipe.build({"objective": "rtd", "rtd": settings}), TOKENIZER, config)
    return objective, Model(config, objective.heads).init(0)


def batch_of(objective: RTD, rows: range, length: int = 64):
    return collate([objective.corrupt(row(i, length), generator("rtd", i), PHASE) for i in rows], TOKENIZER.pad)


def test_sampling_follows_the_distribution() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.0, 0.2]])).repeat(100_000, 1)
    noise = torch.from_numpy(np.random.default_rng(0).random(100_000, dtype=np.float32))
    frequencies = torch.bincount(sample(logits, noise), minlength=4) / 100_000
    assert frequencies.tolist() == pytest.approx([0.5, 0.3, 0.0, 0.2], abs=0.005)
    top = torch.tensor([1.0 - 2**-24])
    assert int(sample(torch.zeros(1, 7), top)) == 6


def test_fifteen_percent_are_selected_and_all_are_masked() -> None:
    objective, _ = make()
    chosen = masked = 0
    for i in range(2000):
        out = objective.corrupt(row(i % 100), generator("share", i), PHASE)
        chosen += len(out.labels["mlm.targets"])
        masked += int((out.input_ids == TOKENIZER.mask).sum())
    assert chosen / (2000 * 126) == pytest.approx(0.15, abs=0.0015)
    assert masked == chosen
    kept, _ = make(mask=0.85)
    outs = [kept.corrupt(row(i % 100), generator("share", i), PHASE) for i in range(1000)]
    assert sum(int((o.input_ids == TOKENIZER.mask).sum()) for o in outs) / sum(
        len(o.labels["mlm.targets"]) for o in outs
    ) == pytest.approx(0.85, abs=0.01)


def test_correct_sample_counts_as_original_and_loss_covers_every_token() -> None:
    objective, model = make()
    rows = [objective.corrupt(row(i, n), generator("pad", i), PHASE) for i, n in enumerate((64, 40, 64))]
    batch = collate(rows, TOKENIZER.pad)
    with torch.no_grad():
        out = objective._forward(model.eval(), batch)
    logits, targets = out["rtd_mlm"]
    sampled = sample(logits, batch.labels["rtd.noise"])
    guesses, replaced = out["rtd"]
    assert len(guesses) == len(replaced) == 64 + 40 + 64 == batch.tokens
    assert int(replaced.sum()) == int((sampled != targets).sum()) > 0
    assert objective.target_counts(batch) == {"rtd_mlm": len(targets), "rtd": batch.tokens}
    for _, parameter in model.heads["generator"].heads.named_parameters():  # a generator that is always right
        parameter.data.zero_()
    right = torch.full_like(logits, -1e4).scatter(1, targets[:, None], 1e4)
    model.heads["generator"].logits = lambda head, hidden: right
    with torch.no_grad():
        assert int(objective._forward(model, batch)["rtd"][1].sum()) == 0


def test_no_gradient_flows_through_sampling() -> None:
    """The discriminator loss does not train the generator; both train only the shared embeddings."""
    objective, model = make()
    batch = batch_of(objective, range(4))
    objective.loss(model, batch)["rtd"][0].backward()
    shared = {id(p) for p in model.encoder.embeddings.parameters()}
    generator_only = [p for p in model.heads["generator"].parameters() if id(p) not in shared]
    assert generator_only
    assert all(p.grad is None or not p.grad.any() for p in generator_only)
    assert model.embedding.grad.any()
    assert objective.weights == {"rtd": 50.0}


def test_samples_do_not_depend_on_batch_splitting() -> None:
    """One batch of six rows and two of three, as on two processes, give the same sums."""
    objective, model = make()
    model.eval().double()
    with torch.no_grad():
        whole = objective.loss(model, batch_of(objective, range(6)))
        parts = [objective.loss(model, batch_of(objective, r)) for r in (range(3), range(3, 6))]
    for name, (total, count) in whole.items():
        assert float(total) == pytest.approx(sum(float(p[name][0]) for p in parts), rel=1e-6)
        assert count == sum(p[name][1] for p in parts)


@pytest.mark.parametrize("family", ["bert-tiny", "modernbert-mini"])
def test_other_encoders_support_rtd(family: str) -> None:
    objective, model = make(family)
    terms = objective.evaluate(model, batch_of(objective, range(2)))
    assert set(terms) == {"rtd_mlm", "rtd_mlm_accuracy", "rtd", "rtd_accuracy"}


def test_discriminator_input_contains_the_samples() -> None:
    objective, model = make()
    batch = batch_of(objective, range(4))
    at = batch.labels["mlm.positions"]
    seen: list[torch.Tensor] = []
    model.eval().encoder.register_forward_pre_hook(lambda module, args: seen.append(args[0].flatten()))
    with torch.no_grad():
        logits, _ = objective._forward(model, batch)["rtd_mlm"]
    assert torch.equal(seen[0][at], sample(logits, batch.labels["rtd.noise"]))
    assert not torch.equal(seen[0][at], logits.argmax(-1))
    others = torch.ones(batch.input_ids.numel(), dtype=torch.bool)
    others[at] = False
    assert torch.equal(seen[0][others], batch.input_ids.flatten()[others])


def test_trainer_applies_term_weights() -> None:
    objective, model = make()
    recipe = Recipe.build({"train": {"steps": 1, "max_length": 64, "batch_size": 4, "max_grad_norm": 0.0}})
    trainer = Trainer(model, objective, recipe.train, plan(recipe, {64: 4}), 0, World(0, 1))
    batch = batch_of(objective, range(4))
    terms = objective.loss(model.train(), batch)
    total = sum((50 if name == "rtd" else 1) * value / n for name, (value, n) in terms.items())
    total.backward()
    expected = model.heads["rtd"].dense.weight.grad.clone()
    values = trainer.step(0, [(0, batch)]).values
    assert values["loss"] == pytest.approx(float(total.detach()), rel=1e-5)
    assert values["loss"] == pytest.approx(values["rtd_mlm"] + 50 * values["rtd"], rel=1e-6)
    assert torch.allclose(model.heads["rtd"].dense.weight.grad, expected, rtol=1e-3, atol=1e-7)
    metrics = trainer.evaluate([batch])
    assert metrics["loss"] == pytest.approx(metrics["rtd_mlm"] + 50 * metrics["rtd"], rel=1e-6)
