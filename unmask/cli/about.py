"""Commands that describe: info, presets, config, env."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import unmask
from unmask.cli.options import Json, command, print_json
from unmask.console import write


@command("unmask presets", "unmask presets --json")
def presets(as_json: Json = False) -> None:
    """List model presets, objectives and tasks."""
    from unmask.cli.show.about import presets_table
    from unmask.model.config import describe_presets

    catalog = describe_presets()
    return print_json(catalog) if as_json else write(*presets_table(catalog))


@command(
    "unmask config",
    "unmask config --section train",
    "unmask config --command finetune > recipe.yaml       # edit it, then: unmask finetune MODEL --recipe recipe.yaml",
)
def config(
    section: Annotated[
        str, typer.Option(help="Only this section, e.g. train or task.classify.", metavar="NAME", show_default="all")
    ] = "",
    command: Annotated[
        Literal["pretrain", "finetune"], typer.Option(help="Command whose defaults to print.")
    ] = "pretrain",
    as_json: Json = False,
) -> None:
    """Print the default recipe with comments."""
    from unmask.cli.show.about import commented_recipe
    from unmask.recipe import Recipe

    values: dict[str, Any] = Recipe.load_builtin("finetune") if command == "finetune" else {}
    recipe = Recipe.build(values)
    return print_json(recipe.model_dump(mode="json")) if as_json else write(commented_recipe(recipe, section))


@command("unmask env", "unmask env --json")
def env(as_json: Json = False) -> None:
    """Show versions, hardware and installed extras."""
    from unmask.cli.show.about import env_facts
    from unmask.cli.show.tables import print_facts
    from unmask.train.run import environment

    result = environment()
    return print_json(result) if as_json else print_facts(env_facts(result))


@command("unmask info runs/pretrain/bert-mini-1", "unmask info runs/pretrain/bert-mini-1 --json")
def info(
    run: Annotated[Path, typer.Argument(help="Run folder or model folder.", metavar="FOLDER")], as_json: Json = False
) -> None:
    """Show a run (status, metrics) or a model (architecture)."""
    from unmask.cli.show.tables import print_facts
    from unmask.inference.describe import description_lines
    from unmask.report import facts
    from unmask.train.run_files import explain_damage

    summary = unmask.info(run)
    if as_json:
        return print_json(summary)
    with explain_damage(run):
        print_facts(description_lines(summary) if summary.get("kind") == "model" else facts(summary))
