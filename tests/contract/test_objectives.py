"""Contract of all families and objectives: every family overfits with its default objective, every objective trains a compatible model,
and a saved model reloads and resumes bit for bit.

Training repeats eight rows, so a working model memorizes them.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from unmask.batch import Batch
from unmask.model import hf
from unmask.model.config import ModelConfig, preset, with_tokenizer
from unmask.model.families import FAMILIES
from unmask.model.model import Model
from unmask.objectives.objective import Objective, build
from unmask.recipe import DataRecipe, Recipe
from unmask.registry import OBJECTIVES
from unmask.text.corpus import Corpus
from unmask.text.prepare import prepare
from unmask.text.rows import RowDataset
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer
from unmask.train.distributed import World
from unmask.train.loader import Loader
from unmask.train.schedule import plan
from unmask.train.trainer import Trainer

LENGTH, ROWS, STEPS = 24, 8, 250
SMALL = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "dropout": 0.0, "attention_dropout": 0.0}
FITS = {"bilm": "elmo-mini", "cbow": "cbow-mini", "span": "t5-mini", "denoise": "bart-mini"}  # else bert-tiny
# Fraction of the first loss that must be reached, if not 0.1: a mean of word vectors cannot distinguish all
# positions, and two small LSTMs take longer than the other models.
LOSS_FRACTIONS = {"cbow": 0.5, "bilm": 0.25}


def config_of(name: str, tokenizer: Tokenizer) -> ModelConfig:
    """Return a tiny version of the preset: SMALL without the fields that the family does not allow to change."""
    base = preset(name)
    fixed = FAMILIES[base.family].fixed
    more: dict[str, Any] = {"embedding": 16} if base.embedding else {}
    more |= {"decoder_layers": 2} if base.decoder_layers else {}
    more |= {"generator": 0.5}
    ids = {"vocab_size": tokenizer.size, "pad_id": tokenizer.pad, "cls_id": tokenizer.cls, "sep_id": tokenizer.sep}
    fields = {**SMALL, **more, **ids}
    return preset(name, **{key: value for key, value in fields.items() if key not in fixed})


@cache
def store_of(settings: str, text: Path) -> TokenStore:
    """Build a token store with the tokenizer type that the family uses."""
    recipe = Recipe.model_validate_json(settings)
    corpus = Corpus([str(text)], DataRecipe(eval_fraction=0.1))
    kind = recipe.tokenizer.type
    tokens = recipe.tokenizer.model_copy(update={"vocab_size": {"bpe": 320, "unigram": 250}.get(kind, 250)})
    tokenizer = Tokenizer.train((d.text for d in corpus), tokens)
    return prepare(corpus, tokenizer, DataRecipe(eval_fraction=0.1), text.with_name(f"store-{abs(hash(settings))}"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pydoc_data.topics import topics

    path = tmp_path_factory.mktemp("contract") / "text.txt"
    blocks = ["\n".join(line for line in t.splitlines() if line.strip()) for _, t in sorted(topics.items())]
    path.write_text("\n\n".join(blocks)[:40_000], "utf-8")
    return path


def make_trainer(
    name: str, objective: str, text: Path, teacher: Path | None = None
) -> tuple[Trainer, Batch, TokenStore]:
    """Return a trainer for a tiny model of preset `name`, its batch of eight rows and the store."""
    recipe = Recipe.build({"preset": name, "objective": objective, "distill": {"teacher": str(teacher or "")}})
    settings = with_tokenizer(recipe.model_copy(update={"objective": "auto"}))
    store = store_of(Recipe(preset="bert-tiny", tokenizer=settings.tokenizer).model_dump_json(), text)
    train = {"steps": STEPS, "batch_size": ROWS, "max_length": LENGTH, "schedule": "constant", "warmup": 0}
    recipe = Recipe.build({**recipe.model_dump(exclude={"train"}), "train": train})
    config = config_of(name, store.tokenizer)
    built = build(recipe, store.tokenizer, config)
    model = Model(config, built.heads).init(1)
    loader = Loader(RowDataset(store.train, store.tokenizer, 1, built.rows), built, 1)
    p = plan(recipe, {LENGTH: loader.rows.count(LENGTH)})
    trainer = Trainer(model, built, recipe.train, p, 1, World(0, 1))
    return trainer, loader.batch(0, ROWS, p.step_config(0)), store


def steps(trainer: Trainer, batch: Batch, first: int, last: int) -> list[float]:
    return [trainer.step(s, [(0, batch)]).values["loss"] for s in range(first, last)]


def assert_overfits(trainer: Trainer, batch: Batch, below: float) -> None:
    losses = steps(trainer, batch, 0, 1)
    while losses[-1] >= below * losses[0] and len(losses) < STEPS:
        losses += steps(trainer, batch, len(losses), len(losses) + 5)
    assert losses[-1] < below * losses[0], f"{losses[0]:.3f} → {min(losses):.3f}"


def assert_reloads(trainer: Trainer, batch: Batch, store: TokenStore, folder: Path) -> Model:
    objective, model = trainer.objective, trainer.model
    hf.save(model, folder, store.tokenizer)
    again = hf.load(folder, heads=objective.heads)
    assert not again.missing
    assert not again.unexpected
    reloaded = again.model.state_dict()
    for key, value in model.state_dict().items():
        assert torch.equal(value, reloaded[key]), key
    first, second = (evaluate(objective, m.eval(), batch) for m in (model, again.model))
    assert first == second
    return again.model


@torch.no_grad()
def evaluate(objective: Objective, model: Model, batch: Batch) -> dict[str, float]:
    return {name: float(value) for name, (value, _) in objective.evaluate(model, batch).items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_family_overfits_with_its_default_objective(family: str, text: Path, tmp_path: Path) -> None:
    name = next(iter(FAMILIES[family].presets))
    objective = preset(name).default_objective
    trainer, batch, store = make_trainer(name, objective, text)
    assert set(trainer.objective.target_counts(batch)) == set(trainer.objective.terms)
    assert_overfits(trainer, batch, LOSS_FRACTIONS.get(objective, 0.1))
    model = assert_reloads(trainer, batch, store, tmp_path / "model")
    # Resume: training continues from the saved weights and optimizer state as if uninterrupted.
    train = trainer.settings
    other = Trainer(model, trainer.objective, train, trainer.plan, 1, World(0, 1))
    state = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in trainer.optimizers.state().items()}
    other.optimizers.load_state(state)
    assert steps(trainer, batch, 40, 43) == steps(other, batch, 40, 43)
    for (key, value), again in zip(trainer.model.named_parameters(), other.model.parameters(), strict=True):
        assert torch.equal(value, again), key


@pytest.mark.parametrize("family", ["bert-tiny", "modernbert-mini"])
@pytest.mark.parametrize("name", [*OBJECTIVES.names(), "mlm+nsp", "mlm+sop"])
def test_objective_reduces_the_loss(name: str, family: str, text: Path, tmp_path: Path) -> None:
    """Covers both encoder architectures. Objectives that need another model type are covered by the test above."""
    if name in FITS:
        return
    teacher = None
    if name == "distill":
        trainer, batch, store = make_trainer(family, "mlm", text)
        teacher = tmp_path / "teacher"
        hf.save(trainer.model, teacher, store.tokenizer)
    trainer, batch, store = make_trainer(family, name, text, teacher)
    assert set(trainer.objective.target_counts(batch)) == set(trainer.objective.terms)
    losses = steps(trainer, batch, 0, 25)
    assert losses[-1] < 0.7 * losses[0]
    assert_reloads(trainer, batch, store, tmp_path / "model")


@pytest.mark.parametrize("name", [*OBJECTIVES.names(), "mlm+nsp"])
def test_trainer_can_be_sent_to_a_child_process(name: str, text: Path, tmp_path: Path) -> None:
    """`train/precision.py` needs this to try bf16."""
    teacher = tmp_path / "teacher"
    if name == "distill":
        trainer, _, store = make_trainer("bert-tiny", "mlm", text)
        hf.save(trainer.model, teacher, store.tokenizer)
    trainer, batch, _ = make_trainer(FITS.get(name, "bert-tiny"), name, text, teacher)
    torch.save([trainer, batch], tmp_path / "trainer.pt")
    copied, same_batch = torch.load(tmp_path / "trainer.pt", weights_only=False)
    assert copied.gradients(0, [(0, same_batch)]) == trainer.gradients(0, [(0, batch)])


def test_every_objective_is_covered() -> None:
    own = {part for family in (f for _, f in FAMILIES.working()) for part in family.objective.split("+")}
    assert set(FITS) <= own
