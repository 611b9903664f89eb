"""Batched inputs: one result per input, in order, equal to single calls; and the handling of over-long texts."""

from typing import Any

import numpy as np
import pytest
from near import near
from server.serving import base_model, task_model

import unmask
from unmask.errors import UserError
from unmask.inference.predictor import Predictor

TASKS = ("classify", "tag", "answer", "choose", "rank", "embed")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    root = tmp_path_factory.mktemp("many")
    base_model(root / "mlm")
    for task in TASKS:
        task_model(root / task, root / "mlm", task)
    return {name: unmask.load(root / name) for name in ("mlm", *TASKS)}


INPUTS: dict[str, list[tuple[Any, ...]]] = {
    "classify": [("Ann lives in Rome",), ("Ben",)],
    "tag": [("Ann lives in Rome",), ("Ben",)],
    "answer": [("who lives in Rome ?", "Ann lives in Rome"), ("where ?", "Ben lives in Oslo , far away")],
    "choose": [("Ann lives", ["in Rome", "red"]), ("Ben", ["a", "b", "lives in Oslo"])],
    "rank": [("Rome", ["Ann lives in Rome", "Ben"]), ("Oslo", ["Ben lives in Oslo", "Ann", "red"])],
}


@pytest.mark.parametrize("task", INPUTS)
def test_list_of_inputs_returns_a_list_of_predictions(models: dict[str, Predictor], task: str) -> None:
    method = getattr(models[task], task)
    alone = [method(*example) for example in INPUTS[task]]
    together = method(*(list(column) for column in zip(*INPUTS[task])))
    assert len(together) == 2 and together[0] != together[1]
    for one, other in zip(alone, together):
        if task == "rank":
            assert [row["index"] for row in one] == [row["index"] for row in other]
            assert [row["score"] for row in one] == near([row["score"] for row in other], 1e-5)
        else:
            assert str(one.get("label", one.get("answer", one.get("tags")))) == str(
                other.get("label", other.get("answer", other.get("tags")))
            )
    iterated = method(*(iter(column) for column in zip(*INPUTS[task])))
    assert len(iterated) == 2


@pytest.mark.parametrize("task", ["answer", "choose", "rank"])
def test_lists_of_different_lengths_raise(models: dict[str, Predictor], task: str) -> None:
    first, second = (list(column) for column in zip(*INPUTS[task]))
    with pytest.raises(UserError, match="inputs of different lengths"):
        getattr(models[task], task)([*first, "one more"], second)


def test_attention_and_explain_accept_lists(models: dict[str, Predictor]) -> None:
    p = models["mlm"]
    texts = ["Ann lives", "Ben"]
    for one, text in zip(p.attention(texts), texts, strict=True):
        np.testing.assert_array_equal(one.weights, p.attention(text).weights)
    pairs = p.attention(texts, ["in Rome", "in Oslo"])
    np.testing.assert_array_equal(pairs[1].weights, p.attention("Ben", "in Oslo").weights)
    with pytest.raises(UserError, match="2 texts and 1 pairs"):
        p.attention(texts, ["in Rome"])
    explanations = p.explain(["Ann [MASK]", ("Ann", "Ben")], steps=4)
    alone = [p.explain("Ann [MASK]", steps=4), p.explain("Ann", "Ben", steps=4)]
    assert [one.target for one in explanations] == [one.target for one in alone]
    assert explanations[1].value == pytest.approx(alone[1].value)


LONG = "Ann lives in Rome " * 60


@pytest.mark.parametrize("task", TASKS)
def test_overflow_error_raises_for_long_texts(models: dict[str, Predictor], task: str) -> None:
    example: Any = {
        "answer": ("who ?", LONG),
        "choose": ("Ann", [LONG, "Ben"]),
        "rank": ("Ann", [LONG, "Ben"]),
    }.get(task, LONG)
    p = models[task]
    assert len(p.predict([example])) == 1
    with pytest.raises(UserError, match="tokens") as caught:
        p.predict([example], overflow="error")
    assert "--overflow" in str(caught.value)
    assert len(p.predict([example])) == 1  # overflow applies to a single call
    with pytest.raises(UserError, match="window, truncate, error"):
        p.predict([example], overflow="cut")


def test_overflow_changes_the_result(models: dict[str, Predictor]) -> None:
    text = LONG + "red blue far away " * 40
    p = models["classify"]
    whole, first = (p.classify(text, overflow=overflow)["scores"] for overflow in ("window", "truncate"))
    assert whole != first
    own = models["embed"]
    assert own.embed(text).shape == own.embed(text, overflow="window").shape
    with pytest.raises(UserError, match="tokens"):
        own.embed(text, overflow="error")


def test_invalid_layer_and_dropped_word_raise(models: dict[str, Predictor]) -> None:
    layer: Any = 1.5
    with pytest.raises(UserError, match=r"layer 1\.5"):
        models["mlm"].embed("Ann", layer=layer)
    with pytest.raises(UserError, match="tokenizer drops"):
        models["mlm"].word_vectors("\u200b\u200b", ["Ann\u200b\u200bBen"])


def test_methods_lists_callable_names(models: dict[str, Predictor]) -> None:
    for p in models.values():
        assert all(callable(getattr(p, name)) for name in p.methods())
    assert {"minimal_pairs", "word_vectors"} <= set(models["mlm"].methods())
    assert "minimal_pairs" not in models["classify"].methods()
