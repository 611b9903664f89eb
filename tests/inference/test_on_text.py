"""A fixed masking that makes MLM runs comparable, and `unmask evaluate` of a pre-trained model on any text."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.objectives.objective import build
from unmask.recipe import Recipe
from unmask.report import facts
from unmask.text.store import TokenStore
from unmask.train.eval_sets import FIXED, fixed_eval_set, supports_fixed_masking
from unmask.train.run import Run

TINY = ["model.layers=1", "model.hidden=32", "model.heads=2", "model.intermediate=32", "train.num_evals=2"]
SHORT = {"preset": "bert-tiny", "steps": 4, "batch_size": 4, "max_length": 32}


def evals(run: Run) -> list[dict]:
    return [e for e in run.events() if e["event"] == "eval"]


@pytest.fixture(scope="module")
def runs(store: TokenStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Runs with equal initial weights and a negligible learning rate, so that losses under the same masking must be equal."""
    folder = tmp_path_factory.mktemp("runs")
    settings = [*TINY, "train.lr=1e-12", "train.optimizer=adamw", "train.weight_decay=0"]
    options = {
        "token": {"objective": "mlm"},
        "word": {"objective": "mlm", "mask_unit": "word", "mask_rate": "0.4"},
        "pairs": {"objective": "mlm+nsp", "mask_rate": "0.3"},
    }
    return {
        name: unmask.pretrain(store.path, out=folder / name, overrides=settings, **SHORT, **keywords)
        for name, keywords in options.items()
    }


def test_fixed_masking_is_equal_for_every_run(runs: dict[str, Run]) -> None:
    last = {name: evals(run)[-1] for name, run in runs.items()}
    own = [e["mlm"] for e in last.values()]
    fixed = [e["fixed"]["mlm"] for e in last.values()]
    assert max(fixed) - min(fixed) < 1e-4  # the same sequences and masks, whatever the mask unit, rate and objective
    assert max(own) - min(own) > 1e-3  # the runs' own masks differ


def test_fixed_masking_matches_the_documented_rates(store: TokenStore) -> None:
    """Compared with the documented values, not with the code: 15% of the tokens, 80/10/10."""
    t = store.tokenizer
    eval_set = fixed_eval_set(store.heldout, t, preset("bert-tiny"), "mlm", 64, None)
    again = fixed_eval_set(store.heldout, t, preset("bert-tiny"), "mlm", 64, None)
    ids = np.concatenate([batch.input_ids.numpy().ravel() for batch in eval_set.batches])
    assert np.array_equal(ids, np.concatenate([batch.input_ids.numpy().ravel() for batch in again.batches]))
    positions = [
        (batch.labels["mlm.positions"], batch.labels["mlm.targets"], batch.input_ids.flatten())
        for batch in eval_set.batches
    ]
    chosen = torch.cat([ids[where] for where, _, ids in positions]).numpy()
    targets = torch.cat([target for _, target, _ in positions]).numpy()
    ordinary = sum(int((~t.special[b.input_ids.numpy()]).sum()) for b in eval_set.batches) + int(
        (chosen == t.mask).sum()
    )
    assert len(chosen) / ordinary == pytest.approx(0.15, abs=0.01)
    assert (chosen == t.mask).mean() == pytest.approx(0.8, abs=0.05)
    assert (chosen == targets).mean() == pytest.approx(0.1, abs=0.04)
    assert (FIXED.mask_rate, FIXED.mask, FIXED.random, FIXED.keep, FIXED.mask_unit) == (0.15, 0.8, 0.1, 0.1, "token")


def test_info_and_report_show_the_mlm_loss(runs: dict[str, Run], capsys: pytest.CaptureFixture) -> None:
    run = runs["pairs"]
    last = evals(run)[-1]
    assert last["loss"] == pytest.approx(last["mlm"] + last["nsp"])
    assert last["perplexity"] == pytest.approx(math.exp(last["mlm"]))
    lines = dict(facts(unmask.info(run.path)))
    assert lines["validation"].startswith(f"loss {last['loss']:.3f}, MLM loss {last['mlm']:.3f}, perplexity")
    assert lines["fixed masking"].startswith(f"loss {last['fixed']['mlm']:.3f}") and "15%" in lines["fixed masking"]
    html = (run.path / "report.html").read_text()
    assert "<th>MLM loss</th>" in html and "MLM loss, fixed masking" in html and f"{last['fixed']['mlm']:.3f}" in html
    plain = (runs["token"].path / "report.html").read_text()
    assert "<th>MLM loss</th>" not in plain and "MLM loss, fixed masking" in plain


def test_terminal_shows_the_mlm_loss(store: TokenStore, tmp_path: Path) -> None:
    words = ["pretrain", str(store.path), "--preset", "bert-tiny", "--objective", "mlm+nsp", "--steps", "2"]
    words += ["--batch-size", "2", "--max-length", "32", "--out", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, [*words, *(x for s in TINY for x in ("--set", s))])
    assert shown.exit_code == 0, shown.output
    last = evals(Run(tmp_path / "run"))[-1]
    assert f"mlm loss {last['mlm']:.3f}  perplexity" in shown.output
    assert f"fixed masking: mlm loss {last['fixed']['mlm']:.3f}" in shown.output


def test_evaluate_pretrained_model_on_any_text(runs: dict[str, Run], text_file: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"sentence_good": f"the list {n} is sorted", "sentence_bad": f"the list {n} are sorted"} for n in range(5)]
    pairs.write_text("\n".join(map(json.dumps, rows)))
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "some.txt").write_text(text_file.read_text()[:40_000])
    model = str(runs["word"].path)
    words = ["evaluate", model, str(folder), "--minimal-pairs", str(pairs), "--max-length", "32", "--json"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    metrics = json.loads(shown.stdout)
    assert metrics["objective"] == "mlm" and metrics["masking"].startswith("15%")
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    assert 0 <= metrics["accuracy"] <= 1 and metrics["predicted"] > 100 and metrics["length"] == 32
    assert metrics["pairs"]["count"] == 5 and 0 <= metrics["pairs"]["accuracy"] <= 1
    printed = CliRunner().invoke(app, words[:-1])
    for word in ("perplexity", "accuracy", "minimal pairs", "unigram entropy", f"{metrics['loss']:.4f}"):
        assert word in printed.output


def test_evaluate_on_the_store_equals_the_logged_loss(runs: dict[str, Run], store: TokenStore) -> None:
    metrics = unmask.evaluate(runs["pairs"].path, store.path, max_length=32, max_rows=512)
    assert metrics["loss"] == pytest.approx(evals(runs["pairs"])[-1]["fixed"]["mlm"], rel=1e-4)


def test_fixed_masking_loss_equals_a_manual_computation(runs: dict[str, Run], store: TokenStore) -> None:
    """Compute the mean of -ln p of the masked tokens without an objective."""
    metrics = unmask.evaluate(runs["token"].path, store.path, max_length=32, max_rows=8)
    loaded = hf.load(runs["token"].model).model.eval()
    (batch,) = fixed_eval_set(store.heldout, store.tokenizer, loaded.config, "mlm", 32, 8).batches
    where, targets = batch.labels["mlm.positions"], batch.labels["mlm.targets"]
    with torch.no_grad():
        hidden = loaded.encode(batch).flatten(0, 1)[where]
        logprobs = loaded.logits("mlm", hidden).log_softmax(-1)
    picked = logprobs[torch.arange(len(targets)), targets]
    assert metrics["predicted"] == len(targets) and metrics["rows"] == 8
    assert metrics["loss"] == pytest.approx(float(-picked.mean()), rel=1e-4)
    assert metrics["accuracy"] == pytest.approx(float((logprobs.argmax(-1) == targets).float().mean()))


def pretrain(name: str, objective: str, text_file: Path, folder: Path) -> Path:
    sets = ["model.layers=1", "model.hidden=32", "model.heads=2", "train.num_evals=1"]
    sets += ["model.decoder_layers=1"] if name.startswith("t5") else []
    return unmask.pretrain(
        text_file,
        preset=name,
        objective=objective,
        steps=1,
        batch_size=2,
        max_length=32,
        vocab_size=400,
        overrides=sets,
        out=folder,
    ).model


def test_causal_model_is_evaluated_with_next_token_loss(text_file: Path, tmp_path: Path) -> None:
    model = pretrain("gpt2-mini", "clm", text_file, tmp_path / "run")
    metrics = unmask.evaluate(model, text_file, max_length=32, max_rows=4)
    assert (metrics["objective"], metrics["masking"], metrics["unk_share"]) == ("clm", None, 0.0)
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    assert "fixed" not in evals(Run(tmp_path / "run"))[-1]
    both = pretrain("bert-tiny", "hybrid", text_file, tmp_path / "hybrid")
    assert unmask.evaluate(both, text_file, max_length=32, max_rows=4)["objective"] == "clm"


def test_models_without_a_text_loss_raise(text_file: Path, tmp_path: Path) -> None:
    for name, objective in (("t5-mini", "span"), ("electra-mini", "rtd")):
        model = pretrain(name, objective, text_file, tmp_path / name)
        with pytest.raises(UserError, match="has no loss on plain text"):
            unmask.evaluate(model, text_file)
    assert unmask.evaluate(model / "generator", text_file, max_length=16, max_rows=2)["objective"] == "mlm"


def test_invalid_combinations_raise(runs: dict[str, Run], text_file: Path, tmp_path: Path) -> None:
    model = runs["token"].path
    with pytest.raises(UserError, match="--max-length 4"):
        unmask.evaluate(model, text_file, max_length=4)
    with pytest.raises(UserError, match="positions of this model"):
        unmask.evaluate(model, text_file, max_length=100_000)
    with pytest.raises(UserError, match="not fine-tuned"):
        unmask.evaluate(model, text_file, columns={"text": "review"})
    with pytest.raises(UserError, match="--bad-rows"):
        unmask.evaluate(model, text_file, bad_rows="skip")
    with pytest.raises(UserError):
        unmask.evaluate(model, tmp_path / "nowhere.txt")
    other = unmask.prepare(text_file, tmp_path / "other", vocab_size=300)
    with pytest.raises(UserError, match="another tokenizer"):
        unmask.evaluate(model, other.path)


def test_objectives_supported_by_fixed_masking(store: TokenStore) -> None:
    config = preset("bert-tiny", vocab_size=store.tokenizer.size)
    metrics = {
        name: supports_fixed_masking(build(Recipe(objective=name), store.tokenizer, config))
        for name in ("mlm", "mlm+nsp", "mlm+sop", "clm", "hybrid", "prefix")
    }
    assert metrics == {"mlm": True, "mlm+nsp": True, "mlm+sop": True, "clm": False, "hybrid": False, "prefix": False}
