"""Recipes from files, `--set` and Python: unusual but valid values are accepted, and invalid values raise with the name of the field."""

import typing
from pathlib import Path

import pytest
from pydantic import BaseModel

import unmask
from unmask.errors import UserError
from unmask.objectives.objective import build
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.runs.keywords import make_recipe, task_recipe
from unmask.text.tokenizer import Tokenizer


def value_at(recipe: Recipe, path: str) -> object:
    value: object = recipe
    for part in path.split("."):
        value = getattr(value, part)
    return value


def error_message(*sets: str) -> str:
    with pytest.raises(UserError) as caught:
        Recipe.build({}, sets)
    return caught.value.message


def literals(model: type[BaseModel], path: str = "") -> list[tuple[str, str]]:
    """Return (path, value) for every value of every field with fixed choices."""
    out = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if typing.get_origin(kind) is typing.Literal:
            out += [(path + name, value) for value in typing.get_args(kind)]
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            out += literals(kind, f"{path}{name}.")
    return out


LITERALS = literals(Recipe)


def test_choices_are_collected() -> None:
    assert {("train.compile", "on"), ("tokenizer.strip_accents", "no"), ("data.deduplicate", "off")} <= set(LITERALS)


@pytest.mark.parametrize(("path", "value"), LITERALS)
def test_every_choice_round_trips(path: str, value: str, tmp_path: Path) -> None:
    recipe = Recipe.build({}, [f"{path}={value}"])
    assert value_at(recipe, path) == value
    *sections, name = path.split(".")
    above = "".join(f"{'  ' * n}{section}:\n" for n, section in enumerate(sections))
    (tmp_path / "mine.yaml").write_text(f"{above}{'  ' * len(sections)}{name}: {value}\n")
    assert Recipe.build(Recipe.read(tmp_path / "mine.yaml")) == recipe
    recipe.write(tmp_path / "recipe.yaml")
    assert Recipe.build(Recipe.read(tmp_path / "recipe.yaml")) == recipe


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("train.lr", "5e-4", 5e-4),
        ("train.lr", "5E-4", 5e-4),
        ("train.lr", ".001", 1e-3),
        ("train.lr", "1.", 1.0),
        ("train.lr", "'5e-4'", 5e-4),
        ("train.tokens", "1e9", 1e9),
        ("train.tokens", "2_000_000", 2e6),
        ("train.steps", "1e3", 1000),
        ("train.steps", "010", 10),
        ("train.steps", "+10", 10),
        ("train.steps", "0x10", 16),
        ("train.steps", "null", None),
        ("train.eps", "1e-08", 1e-8),
        ("train.betas", "[0.9, 0.95]", (0.9, 0.95)),
        ("train.betas", "[9e-1, 0]", (0.9, 0.0)),
        ("train.max_length", "64:1", "64:1"),
        ("train.max_length", "64:0.9,128:0.1", "64:0.9,128:0.1"),
        ("train.max_grad_norm", "0", 0.0),
        ("train.warmup", "100", 100.0),
        ("train.wsd_decay_fraction", "1", 1.0),
        ("train.prefetch", "0", 0),
        ("train.eval_steps", "0", 0),
        ("train.gradient_checkpointing", "on", True),
        ("tokenizer.lowercase", "no", False),
        ("tokenizer.lowercase", "False", False),
        ("tokenizer.path", "2024-01-01", "2024-01-01"),
        ("tokenizer.special_tokens", "[yes, 'null', \"5e-4\"]", ["yes", "null", "5e-4"]),
        ("data.corpus", "[a.txt, sample:python-docs]", ["a.txt", "sample:python-docs"]),
        ("data.corpus", "['-']", ["-"]),
        ("data.minhash_sample", "0", 0),
        ("mlm.mask_rate", "0.3:0.15", "0.3:0.15"),
        ("mlm.mask_rate", "3e-1", 0.3),
        ("model", "{layers: 2, eps: 1e-5}", {"layers": 2, "eps": 1e-5}),
        ("init_from", "", ""),
        ("init_from", "a=b", "a=b"),
    ],
)
def test_valid_values_are_parsed(path: str, text: str, value: object, tmp_path: Path) -> None:
    recipe = Recipe.build({}, [f"{path}={text}"])
    assert value_at(recipe, path) == value
    assert type(value_at(recipe, path)) is type(value)
    recipe.write(tmp_path / "recipe.yaml")
    assert Recipe.build(Recipe.read(tmp_path / "recipe.yaml")) == recipe


ODD = [
    "off", "On", "y", "n", "true", "Null", "~", "", "5e-4", "1e5", ".5", "-.inf", ".nan", "64:1", "1:30:00", "0o17", "017",
    "0b11", "0x1F", "1_000", "2024-01-01", "=", "<<", "- a", "a: b", "#x", "'", '"', "[MASK]", "é\n中", " x ", "!!int 3",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_text_is_not_converted(text: str, tmp_path: Path) -> None:
    recipe = Recipe.build({"init_from": text, "tokenizer": {"special_tokens": [text]}, "model": {"a": [text, 1e-8, 3]}})
    recipe.write(tmp_path / "recipe.yaml")
    assert Recipe.read(tmp_path / "recipe.yaml") == recipe.model_dump(mode="json")


@pytest.mark.parametrize(
    "text",
    [
        *("data.eval_fraction=1", "data.eval_fraction=-0.1", "data.minhash_sample=-1", "data.workers=-1"),
        *("tokenizer.vocab_size=-1", "tokenizer.sample_mb=0", "tokenizer.sample_mb=.inf", "tokenizer.min_frequency=-1"),
        *(
            "mlm.mask_rate=0",
            "mlm.mask_rate=1.5",
            "mlm.mask_rate=.nan",
            "mlm.mask_rate=half",
            "mlm.mask_rate=0.3:0.2:0.1",
            "mlm.mask_rate=[0.1]",
        ),
        *("mlm.mask=-1", "mlm.mask=.nan", "mlm.random=2", "mlm.keep=-0.1", "mlm.num_static_masks=0"),
        *("train.minutes=0", "train.minutes=-1", "train.minutes=.inf", "train.tokens=0", "train.tokens=.nan"),
        *(
            "train.steps=0",
            "train.steps=-5",
            "train.steps=1.5",
            "train.epochs=0",
            "train.epochs=-1",
            "train.epochs=.nan",
        ),
        *(
            "train.batch_size=0",
            "train.micro_batch_size=-1",
            "train.lr=-1",
            "train.lr=.nan",
            "train.lr=.inf",
            "train.lr=fast",
        ),
        *("train.muon_lr=-1", "train.muon_lr=0", "train.weight_decay=-1", "train.weight_decay=.nan"),
        *("train.betas=[2,3]", "train.betas=[0.9,1]", "train.betas=[-1,0.9]", "train.betas=0.9", "train.betas=[0.9]"),
        *(
            "train.betas=[.nan,0.9]",
            "train.eps=-1",
            "train.eps=0",
            "train.max_grad_norm=-1",
            "train.max_grad_norm=.nan",
        ),
        *(
            "train.warmup=-1",
            "train.warmup=.inf",
            "train.wsd_decay_fraction=0",
            "train.wsd_decay_fraction=1.5",
            "train.wsd_decay_fraction=.nan",
        ),
        *(
            "train.num_evals=-1",
            "train.num_evals=0",
            "train.eval_steps=-1",
            "train.max_eval_examples=-3",
            "train.max_eval_examples=0",
        ),
        *("train.save_steps=0", "train.save_minutes=-1", "train.save_minutes=0", "train.save_total_limit=0"),
        *("train.logging_steps=0", "train.prefetch=-3", "train.threads=-1", "train.compile=true", "train.compile=offf"),
        *("train.max_length=[64]", "tokenizer.lowercase=maybe", "seed=x"),
    ],
)
def test_invalid_values_raise_with_the_field_name(text: str) -> None:
    path = text.partition("=")[0]
    message = error_message(text)
    assert message.startswith(f"recipe key {path}: "), message
    assert len(message.splitlines()) == 1 and "(got " in message, message


def test_every_number_has_bounds() -> None:
    def numbers(model: type[BaseModel]) -> list[str]:
        out = []
        for name, field in model.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                out += [f"{name}.{n}" for n in numbers(kind)]
            elif kind in (int, float) or typing.get_args(kind)[-1:] == (type(None),):
                out.append(name)
        return out

    number_fields = [n for n in numbers(Recipe) if n != "seed"]
    assert len(number_fields) > 25
    for path in number_fields:
        for value in ("-1", ".nan", ".inf"):
            assert f"recipe key {path}: " in error_message(f"{path}={value}")


def test_several_errors_are_listed_on_separate_lines() -> None:
    message = error_message("train.logging_steps=0", "mlm.mask_rate=[1]", "train.stpes=3").splitlines()
    assert message[0].startswith("unknown recipe key train.stpes (did you mean steps?)")
    assert sorted(message[1:]) == [
        "recipe key mlm.mask_rate: must be a valid string or a valid number (got [1])",
        "recipe key train.logging_steps: must be greater than or equal to 1 (got 0)",
    ]


def test_errors_of_list_items_are_on_one_line() -> None:
    assert error_message("train.betas=[2, 3]") == "recipe key train.betas: must be less than 1 (got 2, 3)"


def test_errors_of_field_combinations_show_no_dictionary() -> None:
    assert error_message("train.steps=1", "train.epochs=2") == (
        "recipe key train: set one of minutes, tokens, steps, epochs, got steps and epochs"
    )
    assert error_message("mlm.mask=0.5") == "recipe key mlm: mask + random + keep must be 1, got 0.7"


def test_value_for_a_section_raises() -> None:
    message = error_message("mlm=3")
    assert message.startswith("recipe key mlm: must be a section with the fields mask_rate, mask") and message.endswith(
        "(got 3)"
    )


@pytest.mark.parametrize(
    "text", ["train.max_length={a: b", "train.max_length=[1", "init_from='a", "init_from=!!python/name:os.x"]
)
def test_invalid_yaml_raises(text: str, tmp_path: Path) -> None:
    assert error_message(text).startswith(f"--set {text}: ")
    path, _, value = text.partition("=")
    (tmp_path / "mine.yaml").write_text(f"{path}: {value}\n")
    with pytest.raises(UserError, match=r"mine\.yaml"):
        Recipe.read(tmp_path / "mine.yaml")


def test_a_single_override_may_be_a_string() -> None:
    assert Recipe.build({}, "train.steps=2").train.steps == 2


@pytest.mark.parametrize(("name", "hint"), [("mlm+mlm", "mlm"), ("mlm+nsp+mlm", "mlm+nsp")])
def test_repeated_objective_raises(name: str, hint: str) -> None:
    tokenizer = Tokenizer.train(["a"], TokenizerRecipe(type="byte"))
    with pytest.raises(UserError, match="twice") as caught:
        build(Recipe.build({"objective": name}), tokenizer)
    assert name in caught.value.message and caught.value.hint == f"--objective {hint}"
    assert build(Recipe.build({"objective": hint}), tokenizer).name == hint


@pytest.mark.parametrize(
    "make", [lambda **short: make_recipe("corpus", **short), lambda **short: task_recipe("model", **short)]
)
def test_two_budgets_raise_with_their_flags(make) -> None:
    with pytest.raises(UserError) as error:
        make(epochs=1.0, steps=3)
    assert error.value.message == "--steps and --epochs cannot be combined: each sets the training budget"
    assert error.value.hint == "remove --steps or --epochs"


def test_dir_lists_the_public_api() -> None:
    assert {"load", "pretrain", "finetune", "UserError", *unmask.__all__} <= set(dir(unmask))
    assert all(callable(getattr(unmask, name)) for name in unmask.__all__ if not name.startswith("_"))


def test_large_recipe_round_trips_and_too_large_a_recipe_raises(
    tmp_path: Path,
) -> None:
    files = [f"texts/document-number-{n:06d}-of-the-corpus.txt" for n in range(9000)]  # as a shell expands texts/*.txt
    Recipe.build({"data": {"corpus": files}}).write(tmp_path / "recipe.yaml")
    assert Recipe.read(tmp_path / "recipe.yaml")["data"]["corpus"] == files
    (tmp_path / "a.txt").write_text("one text .\n" * 50)
    with pytest.raises(UserError, match="too large: ") as caught:
        unmask.pretrain([str(tmp_path / "a.txt")] * 60_000, steps=1, out=tmp_path / "run")
    assert "a pattern in quotes" in (caught.value.hint or "") and not (tmp_path / "run").exists()


def test_copy_with_unknown_fields_raises() -> None:
    """pydantic's own model_copy would keep them: a setting under an old name would be ignored."""
    for change in (lambda: Recipe().changed(train={"batch": 8}), lambda: Recipe().task.model_copy(update={"long": 1})):
        with pytest.raises(AssertionError, match="has no fields"):
            change()
