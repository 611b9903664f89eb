"""Warnings of a run name a real cause, and suggest only settings that the run does not use already."""

from pathlib import Path

import pytest

from unmask import api
from unmask.model.config import preset
from unmask.recipe import TrainRecipe
from unmask.text.store import TokenStore
from unmask.train.diagnostics import LossMonitor, corpus_warnings, plateau_advice


def test_document_end_is_not_counted_as_unknown_token(tmp_path: Path) -> None:
    """GPT-2's unknown token is `<|endoftext|>`, which ends every document: with short documents it is 5% of the
    tokens."""
    text = tmp_path / "lines.txt"
    text.write_text("\n".join(f"line {n} is a short document" for n in range(300)))
    store = api.prepare(
        text, tmp_path / "store", preset="gpt2-mini", document_boundary="line", tokenizer_type="bpe", vocab_size=300
    )
    assert store.tokenizer.unk == store.tokenizer.sep
    train = store.meta["train"]
    assert train["documents"] > 0.05 * train["tokens"]
    assert (train["unk_tokens"], train["unk_share"]) == (0, 0.0)
    assert corpus_warnings(store.meta) == []
    older = store.meta | {"train": train | {"unk_tokens": train["documents"]}}  # as in stores of older versions
    assert corpus_warnings(older) == []


def test_unknown_tokens_cause_a_warning(store: TokenStore) -> None:
    train = store.meta["train"] | {"unk_tokens": store.meta["train"]["tokens"] // 10}
    assert "of the tokens are [UNK]" in corpus_warnings(store.meta | {"train": train})[0]


@pytest.mark.parametrize(
    ("name", "optimizer", "embeddings", "suggested"),
    [
        ("modernbert-mini", "muon", "corpus_statistics", []),
        ("modernbert-mini", "adamw", "corpus_statistics", ["train.optimizer=muon"]),
        ("bert-mini", "muon", "corpus_statistics", ["modernbert-mini"]),
        (
            "bert-mini",
            "adamw",
            "random",
            ["modernbert-mini", "train.optimizer=muon", "train.embedding_init=corpus_statistics"],
        ),
    ],
)
def test_plateau_warning_suggests_only_unused_settings(
    name: str, optimizer: str, embeddings: str, suggested: list[str]
) -> None:
    settings = TrainRecipe.model_validate({"optimizer": optimizer, "embedding_init": embeddings})
    advice = plateau_advice(settings, preset(name), is_new_model=True)
    health = LossMonitor(unigram_entropy=5.0, steps=100, advice=advice)
    (warning,) = [text for step in range(100) for text in health.check(step, {"mlm": 5.1})]
    assert "still at the unigram entropy" in warning and "learning rate" in warning
    every = ["modernbert-mini", "train.optimizer=muon", "train.embedding_init=corpus_statistics"]
    assert [text for text in every if text in warning] == suggested


def test_plateau_advice_for_a_loaded_model_suggests_no_preset() -> None:
    assert "preset" not in plateau_advice(TrainRecipe(), preset("bert-mini"), is_new_model=False)
