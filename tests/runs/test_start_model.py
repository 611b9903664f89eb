"""Defaults that depend on the initial model: `unmask pretrain` saves its number of tokens, and `unmask finetune` reads it."""

import json
from pathlib import Path

import pytest
from runs import tiny
from transformers import AutoModelForMaskedLM

import unmask
from unmask.model import hf
from unmask.recipe import Recipe
from unmask.runs.keywords import make_recipe

LITTLE = (1e-3, 0.5, "mean", 0.2)  # lr, layerwise_lr_decay, pooling, token_mask_rate
SHAPE = [f"model.{name}={value}" for name, value in tiny.SHAPE.items()]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    (folder / "text.txt").write_text("\n".join(f"a {word} is number {n}" for n, word in enumerate(tiny.WORDS * 20)))
    settings = {"steps": 40, "batch_size": 32, "max_length": 64, "overrides": [*SHAPE, "train.threads=1"]}
    return unmask.pretrain(folder / "text.txt", out=folder / "run", **settings).model


def tokens_of(model: Path) -> int:
    return json.loads((model / "config.json").read_text())["unmask_pretrained_tokens"]


def resolved(model: Path, folder: Path, overrides: tuple[str, ...] = (), **settings: object) -> tuple[object, ...]:
    """Return the defaults that a run of one step chooses."""
    files = {"train": tiny.labeled(folder / "train.csv", 30)} | settings
    run = unmask.finetune(model, out=folder / "run", steps=1, overrides=["train.threads=1", *overrides], **files)
    recipe = run.recipe()
    return recipe.train.lr, recipe.train.layerwise_lr_decay, recipe.task.pooling, recipe.task.token_mask_rate


def test_pretraining_saves_the_number_of_tokens(pretrained: Path, tmp_path: Path) -> None:
    assert 0 < tokens_of(pretrained) <= 40 * 32 * 64
    assert hf.load(pretrained).config.pretrained_tokens == tokens_of(pretrained)  # larger than any size of the weights
    info = AutoModelForMaskedLM.from_pretrained(pretrained, output_loading_info=True)[1]
    assert not info["missing_keys"] and not info["unexpected_keys"]
    text = pretrained.parents[1] / "text.txt"
    settings = {"steps": 2, "batch_size": 8, "max_length": 32, "overrides": ["train.threads=1"]}
    continued = unmask.pretrain(text, init_from=pretrained, out=tmp_path / "run", **settings).model
    assert tokens_of(pretrained) < tokens_of(continued) <= tokens_of(pretrained) + 2 * 8 * 32


def test_continuing_a_public_model_leaves_the_number_unknown(pretrained: Path, tmp_path: Path) -> None:
    public = as_public(pretrained, tmp_path / "public")
    text = pretrained.parents[1] / "text.txt"
    settings = {"steps": 2, "batch_size": 8, "max_length": 32, "overrides": ["train.threads=1"]}
    continued = unmask.pretrain(text, init_from=public, out=tmp_path / "run", **settings).model
    assert "unmask_pretrained_tokens" not in json.loads((continued / "config.json").read_text())


def as_public(model: Path, folder: Path, tokens: int = 0) -> Path:
    """Copy a model, and remove or replace its number of tokens."""
    folder.mkdir()
    for file in model.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    del config["unmask_pretrained_tokens"]
    config |= {"unmask_pretrained_tokens": tokens} if tokens else {}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_little_pretraining_gets_its_own_defaults(pretrained: Path, tmp_path: Path) -> None:
    assert resolved(pretrained, tmp_path) == LITTLE


@pytest.mark.parametrize("tokens", [0, 10**9])
def test_long_or_unknown_pretraining_gets_the_usual_defaults(tokens: int, pretrained: Path, tmp_path: Path) -> None:
    model = as_public(pretrained, tmp_path / "model", tokens)
    lr, decay, pooling, mask_rate = resolved(model, tmp_path)
    assert lr == pytest.approx(5e-5 * 768 / 32) and (decay, pooling, mask_rate) == (0.9, "auto", None)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, (5, 3)), ({"epochs": 2}, (2, 2)), ({"steps": 1}, (None, None))],
)
def test_epochs(settings: dict, expected: tuple[float | None, ...], pretrained: Path, tmp_path: Path) -> None:
    """The default number depends on the model. A given budget replaces it."""
    file, found = tiny.labeled(tmp_path / "train.csv", 30), []
    for model in (pretrained, as_public(pretrained, tmp_path / "public")):
        plan = unmask.dry_run_finetune(model, train=file, overrides=["train.threads=1"], **settings)
        found.append(plan["recipe"]["train"]["epochs"])
    assert tuple(found) == expected


def test_given_settings_are_kept(pretrained: Path, tmp_path: Path) -> None:
    given = ("train.layerwise_lr_decay=0.8", "task.token_mask_rate=0", "task.pooling=cls")
    assert resolved(pretrained, tmp_path, given, lr=3e-4) == (3e-4, 0.8, "cls", 0.0)


def test_tasks_without_masked_inputs_or_pooling_get_only_the_rates(pretrained: Path, tmp_path: Path) -> None:
    found = resolved(pretrained, tmp_path, task="tag", train=tiny.tagged(tmp_path / "train.conll", 24))
    assert found == (1e-3, 0.5, "auto", None)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"minutes": 3}, "modernbert-tiny"),
        ({"minutes": 10}, "modernbert-tiny"),
        ({"minutes": 11}, "modernbert-mini"),
        ({"steps": 5}, "modernbert-mini"),
        ({}, "modernbert-mini"),
        ({"minutes": 3, "preset": "modernbert-mini"}, "modernbert-mini"),
        ({"minutes": 3, "recipe": {"preset": "bert-mini"}}, "bert-mini"),
        ({"minutes": 3, "overrides": ["preset=bert-mini"]}, "bert-mini"),
    ],
)
def test_few_minutes_choose_a_smaller_model(settings: dict, expected: str) -> None:
    recipe: Recipe = make_recipe("corpus/", **settings)
    assert recipe.preset == expected
