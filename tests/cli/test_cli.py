"""The command line: panels, choices and defaults in `--help`, renamed flags, and commands about the program itself."""

import json
import re
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner, Result

from tests.documented import all_commands
from unmask import renamed
from unmask.cli import PANELS, app
from unmask.cli.flags import default_of_command, settings_of_command
from unmask.recipe import Recipe
from unmask.settings import load, settings_of


def run(*arguments: str, columns: int = 200) -> Result:
    with mock.patch("typer.rich_utils.MAX_WIDTH", columns):
        return CliRunner().invoke(app, list(arguments))


def test_commands_are_listed_in_panels_and_fit_80_columns() -> None:
    shown = run("--help", columns=80).output
    for panel in PANELS:
        assert f"─ {panel} ─" in shown
    assert "..." not in shown.replace("[ARGS]...", "") and "…" not in shown
    assert "<bool>" not in shown


def test_choices_and_defaults_are_shown() -> None:
    shown = run("pretrain", "--help").output
    assert (
        "auto|fp32|bf16" in shown
        and "[default: modernbert-mini; modernbert-tiny with --minutes" in shown
        and "Random seed." in shown
    )
    assert "UNIT" in shown and "Choices: token, word, span, ngram, phrase." in shown


@pytest.mark.parametrize("name", [name for name, _ in all_commands()])
def test_help_fits_80_columns_and_shows_no_python_types(name: str) -> None:
    shown = run(*name.split(), "--help", columns=80).output
    assert not re.search(r"<(bool|str|int|float|list|path|file)|\{[A-Z]", shown), shown
    about = shown.partition("Usage:")[2].partition("Examples:")[0].splitlines()
    assert not any(line.startswith("  ") and line.strip() for line in about[1:]), (
        about
    )  # paragraphs start at the margin
    below = shown.partition("Examples:")[2].partition("╭")[0].rstrip().splitlines()[1:]
    assert below and all(line.startswith("   ") for line in below), below  # a wrapped line would start at the margin


@pytest.mark.parametrize("group", ["", "tokenizer", "cache"])
def test_group_help_shows_no_python_types(group: str) -> None:
    assert "<bool>" not in run(*group.split(), "--help", columns=80).output


def test_config_and_reference_explain_automatic_defaults() -> None:
    shown = run("config", "--section", "tokenizer").stdout
    assert "# Vocabulary size. 0: 8192, smaller for small corpora. (--vocab-size)" in shown
    assert "[true|false|auto] (--cased)" in shown
    reference = (Path(__file__).parents[2] / "docs" / "recipe.md").read_text("utf-8")
    assert "| `tokenizer.vocab_size` | `0` (8192, smaller for small corpora) |" in reference


@pytest.mark.parametrize("name", ["pretrain", "finetune", "tune"])
def test_flag_defaults_match_the_recipe(name: str) -> None:
    shown = " ".join(run(name, "--help").output.replace("│", " ").split())
    for setting in settings_of_command(name):
        if default := default_of_command(setting.shown, name):
            assert f"[default: {default}]" in shown or setting.switch, setting.path


@pytest.mark.parametrize(
    ("arguments", "new"),
    [
        (["fill", "m", "t", "--top", "3"], "--top-k"),
        (["fill", "m", "t", "--joint=3"], "--num-beams"),
        (["pretrain", "c", "--batch", "8"], "--batch-size"),
        (["pretrain", "c", "--column", "x"], "--text-column"),
        (["prepare", "c", "--pairs", "64"], "--index-pairs"),
        (["score", "m", "--pairs", "f"], "--minimal-pairs"),
        (["tokenizer", "train", "c", "--kind", "bpe"], "--tokenizer-type"),
        (["tune", "m", "--search", "lr"], "--params"),
        (["next", "a", "b"], "unmask next-sentence"),
    ],
)
def test_renamed_flags_and_commands_raise_with_the_new_name(arguments: list[str], new: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and f"was renamed to {new}" in result.output


def test_renamed_flag_is_recognized_only_on_its_own_command() -> None:
    assert "renamed" not in run("finetune", "m", "--column", "text=a", "--dry-run").output
    assert "No such option" in run("info", "x", "--top", "3").output


def test_old_recipe_keys_raise_and_old_recipe_files_load(tmp_path: Path) -> None:
    result = run("pretrain", "c", "--set", "train.batch=8", "--dry-run")
    assert result.exit_code == 2 and "train.batch was renamed to train.batch_size" in result.output
    paths = {setting.path for setting in settings_of(Recipe)}
    assert set(renamed.KEYS.values()) <= paths and not set(renamed.KEYS) & paths
    file = tmp_path / "old.yaml"
    file.write_text("start: a\nmlm: {rate: 0.2, unit: named}\ntask: {kind: tag, aux: 'mlm:0.3'}\ntrain: {batch: 4}\n")
    recipe = Recipe.build(Recipe.read(file))
    assert (recipe.init_from, recipe.mlm.mask_rate, recipe.mlm.mask_unit) == ("a", 0.2, "phrase")
    assert (recipe.task.name, recipe.task.aux_mlm, recipe.train.batch_size) == ("tag", 0.3, 4)


def test_config_output_round_trips() -> None:
    assert Recipe.build(load(run("config").stdout)) == Recipe()
    tuned = Recipe.build(Recipe.load_builtin("finetune"))
    assert Recipe.build(load(run("config", "--command", "finetune").stdout)) == tuned
    part = run("config", "--section", "train").stdout
    assert "batch_size: 32" in part and "mask_rate" not in part and "(--batch-size)" in part
    wrong = run("config", "--section", "trian")
    assert wrong.exit_code == 2 and "did you mean train?" in wrong.output


def test_presets_and_env() -> None:
    presets = json.loads(run("presets", "--json").stdout)
    assert (
        presets["presets"]["bert-base"]["layers"] == 12 and "mlm" in presets["objectives"] and "tag" in presets["tasks"]
    )
    assert "bert-base" in run("presets").stdout
    assert "torch" in json.loads(run("env", "--json").stdout)["versions"]
    assert "extras" in run("env").stdout
