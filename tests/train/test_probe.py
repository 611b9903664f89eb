"""Step-time estimation for large models from partial models: bounded work, and parts that add up to the whole step."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import unmask
from unmask.model.config import preset
from unmask.objectives.objective import build
from unmask.recipe import Recipe
from unmask.runs.estimate import RandomRows
from unmask.train import probe
from unmask.train.loader import Loader, micro_batches
from unmask.train.schedule import plan

WIDE = {"hidden": 64, "heads": 2, "intermediate": 192, "layers": 6}


def operations(work) -> float:
    """Count operations instead of seconds, so that the result is the same on every machine."""
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())


@pytest.mark.parametrize(
    ("name", "objective", "optimizer"),
    [
        ("bert-mini", "mlm+nsp", "muon"),
        ("bert-mini", "mlm", "adamw"),
        ("modernbert-mini", "mlm", "muon"),
        ("albert-mini", "mlm+sop", "muon"),
        ("electra-mini", "rtd", "muon"),
        ("gpt2-mini", "clm", "muon"),
        ("t5-mini", "span", "muon"),
    ],
)
def test_the_parts_add_up_to_the_whole_step(
    name: str, objective: str, optimizer: str, store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = WIDE | ({"decoder_layers": 6} if name.startswith("t5") else {})
    values = {"preset": name, "objective": objective, "train": {"batch_size": 16, "max_length": 32, "steps": 10}}
    values["train"]["optimizer"] = optimizer
    recipe = Recipe.model_validate(values)
    tokenizer = store.tokenizer if name not in ("gpt2-mini", "t5-mini") else _own(name)
    config = preset(name, vocab_size=tokenizer.size, **tokenizer.config_ids(), **shape)
    built = build(recipe, tokenizer, config)
    loader = Loader(RandomRows(built.rows, 1000, tokenizer), built, 0)
    p = plan(recipe, {32: 1000})
    trainer = probe._trainer(recipe, config, built, loader, p)
    batches = micro_batches(loader, (0, 16), p.step_config(0), 16, trainer.world)
    real = operations(lambda: trainer.step(0, batches))
    monkeypatch.setattr(probe, "_seconds", operations)
    monkeypatch.setattr(probe, "MAX_WHOLE_STEP_FLOPS", 0.0)
    monkeypatch.setattr(probe, "MAX_PROBE_FLOPS", 6 * 3 * 4 * 32 * 100_000.0)
    measured = probe.measure_step_time(recipe, config, built, loader, p)
    assert measured.layers == 2 and 1 <= measured.rows < 16
    assert measured.seconds[32] == pytest.approx(real, rel=0.15)
    assert "1 and 2 of 6 layers" in measured.basis


def _own(name: str):
    from unmask.model.config import with_tokenizer
    from unmask.text.tokenizer import Tokenizer

    settings = with_tokenizer(Recipe(preset=name)).tokenizer
    return Tokenizer.train(["the cat sat on the mat and saw a dog . " * 50], settings)


def test_large_model_is_never_fully_allocated(text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--preset bert-large --dry-run` uses shapes of all 24 layers, weights of two, and a bounded amount of work."""
    monkeypatch.setattr(probe, "MAX_PROBE_FLOPS", 1e9)  # one row: the test does not need an exact time
    monkeypatch.setattr(probe, "_update_seconds", lambda trainer, whole: 1.0)
    layer_counts: list[int] = []
    trainer = probe._trainer

    def watched(recipe, config, *rest):
        layer_counts.append(config.layers)
        return trainer(recipe, config, *rest)

    monkeypatch.setattr(probe, "_trainer", watched)
    estimate = unmask.dry_run(
        text_file, preset="bert-large", steps=10, batch_size=32, max_length=64, tokenizer_type="byte"
    )
    assert layer_counts == [1, 2]
    assert estimate["measured"]["layers"] == 2 and estimate["measured"]["rows"] == 1
    assert "of 24 layers" in estimate["measured"]["basis"]
    assert 302_000_000 < estimate["parameters"] < 310_000_000  # with a byte vocabulary
    assert estimate["memory_bytes"]["weights"] == 4 * estimate["parameters"]
    assert estimate["seconds_per_step"][64] > 0 and estimate["minutes"] > 0


def test_probe_work_is_bounded() -> None:
    for name in ("bert-base", "bert-large"):
        for length in (128, 512):
            recipe = Recipe.model_validate({"preset": name, "objective": "mlm", "train": {"max_length": length}})
            outlines = [_outline(probe._shallow(preset(name), layers)) for layers in (1, 2)]
            passed = sum(probe.REPEATS * probe.pass_flops(model, length) for model in outlines)
            assert passed <= 1.5 * probe.MAX_PROBE_FLOPS  # for one row, the minimum
            assert probe.update_flops(outlines[0], recipe) < 5e11  # once
            whole = _outline(preset(name))
            assert (
                4 * (probe.pass_flops(whole, 32 * length) + probe.update_flops(whole, recipe))
                > 10 * probe.MAX_WHOLE_STEP_FLOPS
            )


def _outline(config):
    with torch.device("meta"):
        from unmask.model.model import Model

        return Model(config, ("mlm",))


def test_wide_layers_are_timed_with_fewer_rows(text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ELMo has two layers at any size."""
    monkeypatch.setattr(probe, "MAX_WHOLE_STEP_FLOPS", 0.0)
    monkeypatch.setattr(probe, "MAX_PROBE_FLOPS", 1.0)
    small = {"model": {"hidden": 32, "intermediate": 64}}
    estimate = unmask.dry_run(text_file, preset="elmo-mini", steps=5, batch_size=4, max_length=16, recipe=small)
    assert estimate["measured"]["rows"] == 1 and "1 and 2 of 2 layers" in estimate["measured"]["basis"]


def test_small_model_is_timed_with_whole_steps(text_file: Path) -> None:
    estimate = unmask.dry_run(
        text_file, preset="bert-tiny", steps=5, batch_size=4, max_length=16, tokenizer_type="byte"
    )
    assert estimate["measured"] == {"basis": "whole steps were timed", "rows": 4, "layers": 2}
