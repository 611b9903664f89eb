"""Sparse embedding training: AdamW on the occurring tokens equals AdamW on the whole table, and other rows do not
change."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from near import gap
from runs.tiny import NAMES, WORDS, model_folder, plan_of

from unmask.model.config import preset
from unmask.model.model import Model
from unmask.runs.part import Part, build_train_loader, make_recipe, prepare
from unmask.tasks.objective import objective_of
from unmask.train.distributed import World
from unmask.train.sparse_embedding import restrict_embedding
from unmask.train.trainer import Trainer

RECORDS = [{"text": f"{NAMES[n % 4]} saw a {WORDS[n % 12]}", "label": "ab"[n % 2]} for n in range(30)]
SETTINGS = {
    "steps": 12,
    "batch_size": 4,
    "lr": 0.01,
    "weight_decay": 0.0,
    "max_grad_norm": 0.1,
    "threads": 1,
    "num_evals": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reached")
    model_folder(folder / "start")
    (folder / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in RECORDS))
    return folder


def trained(folder: Path, restricted: bool, **task: Any) -> tuple[Part, Trainer, np.ndarray]:
    """Return the job after its steps, and the tokens of its rows."""
    values = {"name": "classify", "train": [str(folder / "train.jsonl")], **task}
    job = prepare(make_recipe({"init_from": str(folder / "start"), "task": values, "train": SETTINGS}))
    loader = build_train_loader(job)
    assert loader.tokens is not None
    plan = plan_of(job.recipe, int(loader.lengths.max()), len(loader.lengths))
    tokens = loader.tokens if restricted else None
    trainer = Trainer(job.model, loader.objective, job.recipe.train, plan, 0, World(0, 1), tokens)
    for _ in trainer.run(loader):
        pass
    return job, trainer, loader.tokens


@pytest.mark.parametrize("task", [{}, {"token_mask_rate": 0.3}], ids=["plain", "hidden"])
def test_updates_equal_adamw_on_the_whole_table(folder: Path, task: dict[str, Any]) -> None:
    (ours, trainer, tokens), (theirs, dense, _) = (trained(folder, restricted, **task) for restricted in (True, False))
    assert trainer.used_rows
    assert not dense.used_rows
    before = prepare(ours.recipe).model
    for (name, a), b in zip(ours.model.state_dict().items(), theirs.model.state_dict().values(), strict=True):
        assert gap(a, b) <= 1e-5, name
    moved = (ours.model.embedding != before.embedding).any(1).numpy()
    assert 20 < moved.sum() <= len(tokens) < len(moved) / 2
    assert set(np.flatnonzero(moved)) <= set(tokens.tolist())


def test_optimizer_state_covers_only_occurring_tokens(folder: Path) -> None:
    _, trainer, tokens = trained(folder, True)
    state = trainer.optimizers.state()["encoder.embeddings.tokens.weight::exp_avg"]
    assert len(state) == len(tokens)


def test_shared_embedding_is_trained_whole() -> None:
    tokens = np.arange(5)
    tied = Model(preset("bert-tiny", vocab_size=50, labels=("a", "b")), ("classify", "mlm"))
    assert restrict_embedding(tied, tokens) is None
    assert restrict_embedding(Model(preset("bart-mini", vocab_size=50), ("lm",)), tokens) is None
    frozen = Model(preset("bert-tiny", vocab_size=50, labels=("a", "b")), ("classify",))
    assert restrict_embedding(frozen, tokens) is not None
    assert restrict_embedding(frozen, None) is None
    assert not frozen.encoder.embeddings.tokens.sparse  # later training of all tokens has dense gradients again
    frozen.freeze()
    assert restrict_embedding(frozen, tokens) is None


def test_last_layer_computes_only_loss_positions(folder: Path) -> None:
    job, _, _ = trained(folder, True)
    batch = build_train_loader(job).batch(0, 4, plan_of(job.recipe, 16, 30).step_config(0))
    seen: list[torch.Size] = []
    for layer in job.model.encoder.layers:
        layer.mlp.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    loss = objective_of(job.task).loss(job.model.eval(), batch)["classify"][0]
    *before, last = seen
    assert all(shape[:2] == batch.input_ids.shape for shape in before)
    assert tuple(last[:1]) == (4,)
    assert len(last) == 2
    logits = job.model.logits("classify", job.model.encode(batch), batch.attention_mask)  # for all positions
    whole = torch.nn.functional.cross_entropy(logits, batch.labels["classify.targets"].view(-1), reduction="sum")
    torch.testing.assert_close(loss, whole)
