"""Masking units: which tokens are masked together, how many, and how they are replaced."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from objectives.rows import ORDINARY, TOKENIZER, row

import unmask
from unmask.batch import StepConfig
from unmask.console import Console
from unmask.errors import UserError
from unmask.model.config import preset
from unmask.objectives.mlm import MLM
from unmask.objectives.objective import build
from unmask.objectives.units import Phrases, read_phrases, sample_units, span_length_probabilities, word_spans
from unmask.recipe import DataRecipe, Recipe, TokenizerRecipe
from unmask.seeds import generator
from unmask.text.corpus import Corpus
from unmask.text.flags import WORD
from unmask.text.prepare import prepare
from unmask.text.rows import RowDataset
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer

UNITS = ["word", "span", "ngram", "phrase"]


@pytest.fixture(scope="module")
def phrases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("phrases") / "phrases.tsv"
    path.write_text("a\tLETTER\nbb\n\nthe end\tx\n")
    return path


def mlm_of(unit: str, phrases: Path | str = "", **more: object) -> MLM:
    options = {"phrases": str(phrases)} if unit == "phrase" else {}
    return MLM(Recipe.build({"mlm": {"mask_unit": unit, **options, **more}}), TOKENIZER)


def words_of(flags: np.ndarray, special: np.ndarray) -> np.ndarray:
    """Return the word index of each token, -1 for special tokens. Deliberately implemented differently from the
    package."""
    out, word = [], -1
    for flag, is_special, before in zip(flags, special, [True, *special[:-1]]):
        word += bool(flag & WORD or before) and not is_special
        out.append(-1 if is_special else word)
    return np.array(out)


@pytest.mark.parametrize("count", ["exact", "bernoulli"])
@pytest.mark.parametrize("unit", UNITS)
def test_mask_rate_is_exact_and_units_are_whole(unit: str, count: str, phrases: Path) -> None:
    """Also checks 80/10/10. Uses a million tokens (200,000 for bernoulli sampling) in rows of 512."""
    tokens, near = (1_000_000, 0.0015) if count == "exact" else (200_000, 0.0035)
    mlm, total, chosen, masked, kept = mlm_of(unit, phrases, sampling=count), 0, 0, 0, 0
    for i in range(tokens // 510):
        example = row(i % 100, 512)
        out = mlm.corrupt(example, generator(unit, i), StepConfig(0, 512, 0.15))
        at, targets = out.labels["mlm.positions"], out.labels["mlm.targets"]
        assert (targets == example.input_ids[at]).all()
        assert (np.diff(at) > 0).all()
        rest = np.delete(np.arange(512), at)
        assert (out.input_ids[rest] == example.input_ids[rest]).all()
        if i < 100:
            words = words_of(example.flags, TOKENIZER.special[example.input_ids])
            assert not set(words[at]) & set(words[rest]), "a word is partly masked"
        total, chosen = total + 510, chosen + len(at)
        masked += int((out.input_ids[at] == TOKENIZER.mask).sum())
        kept += int((out.input_ids[at] == targets).sum())
    assert chosen / total == pytest.approx(0.15, abs=near)
    assert masked / chosen == pytest.approx(
        0.8, abs=8 * near
    )  # a whole span shares one random choice, so there are fewer samples
    assert kept / chosen == pytest.approx(0.1 + 0.1 / len(ORDINARY), abs=6 * near)


@pytest.mark.parametrize("unit", ["span", "ngram"])
@pytest.mark.parametrize("rate", [0.15, 0.8])
def test_high_mask_rate_is_reached(unit: str, rate: float) -> None:
    mlm = mlm_of(unit)
    counts = [
        len(mlm.corrupt(row(i), generator(i), StepConfig(0, 128, rate)).labels["mlm.positions"]) for i in range(300)
    ]
    assert np.mean(counts) / 126 == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize("unit", ["span", "ngram"])
def test_span_lengths_follow_the_paper(unit: str) -> None:
    """Words per span, in rows where the end of a span is visible because no two spans touch."""
    mlm, chances = mlm_of(unit), span_length_probabilities(unit)
    seen = np.zeros(len(chances) + 1)
    for i in range(600):
        example = row(i % 50, 512)
        words = words_of(example.flags, TOKENIZER.special[example.input_ids])
        at = mlm.corrupt(example, generator("lengths", i), StepConfig(0, 512, 0.15)).labels["mlm.positions"]
        for run in np.split(words[at], np.flatnonzero(np.diff(at) > 1) + 1):
            seen[len(set(run))] += 1
    frequencies = seen[1:] / seen.sum()
    assert np.abs(frequencies - chances).max() < 0.015
    assert frequencies @ np.arange(1, len(frequencies) + 1) == pytest.approx(
        chances @ np.arange(1, len(chances) + 1), rel=0.04
    )


def test_mean_span_lengths() -> None:
    assert span_length_probabilities("span") @ np.arange(1, 11) == pytest.approx(3.797, abs=0.001)
    assert span_length_probabilities("ngram").tolist() == pytest.approx([6 / 11, 3 / 11, 2 / 11])


def mixed_replacement_fraction(unit: str, phrases: Path) -> float:
    """Fraction of masked units with at least two tokens whose tokens were replaced in different ways."""
    mlm, seen, differ = mlm_of(unit, phrases, mask=0.5, random=0.0, keep=0.5), 0, 0
    for i in range(100):
        example = row(i, 256)
        out = mlm.corrupt(example, generator("fate", i), StepConfig(0, 256, 0.15))
        at = out.labels["mlm.positions"]
        words = words_of(example.flags, TOKENIZER.special[example.input_ids])
        for word in set(words[at]):
            is_masked = out.input_ids[words == word] == TOKENIZER.mask
            seen += len(is_masked) > 1
            differ += 0 < is_masked.sum() < len(is_masked)
    return differ / seen


def test_replacement_is_per_token_for_words_and_per_unit_for_spans(phrases: Path) -> None:
    assert mixed_replacement_fraction("word", phrases) > 0.4
    assert mixed_replacement_fraction("ngram", phrases) > 0.4
    assert mixed_replacement_fraction("span", phrases) == 0
    assert mixed_replacement_fraction("phrase", phrases) == 0


def test_sampling_the_last_unit_preserves_the_mean() -> None:
    units = [(0, 3), (5, 9), (9, 10)]
    for budget in (0.5, 3.0, 5.0, 7.9):
        sizes = [sum(b - a for a, b in sample_units(units, budget, generator(budget, i))) for i in range(4000)]
        assert np.mean(sizes) == pytest.approx(budget, abs=0.12)


SIZES = {("wordpiece", "en"): 70, ("bpe", "en"): 275, ("bpe", "zh"): 275}  # so small that words are split
TEXT = {
    "en": "The interim president signed unforgettable treaties in New York. Readers of newspapers were surprised.\n",
    "zh": "中华人民共和国成立于一九四九年。我们在北京大学学习自然语言处理。\n",
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char", "byte"])
def test_whole_word_masking_with_every_tokenizer(kind: str, language: str, tmp_path: Path) -> None:
    """Uses the store's flags: each masked stretch of text consists of whole words, in Chinese and in English."""
    path = tmp_path / "text.txt"
    path.write_text(TEXT[language] * 30, "utf-8")
    data = DataRecipe(language=language, eval_fraction=0.0, deduplicate="off", document_boundary="file", workers=1)
    corpus = Corpus([str(path)], data)
    tokenizer = Tokenizer.train(
        (d.text for d in corpus), TokenizerRecipe(type=kind, vocab_size=SIZES.get((kind, language), 0))
    )
    rows = RowDataset(prepare(corpus, tokenizer, data, tmp_path / "store").train, tokenizer, 0)
    mlm = MLM(Recipe.build({"mlm": {"mask_unit": "word", "mask": 1, "random": 0, "keep": 0}}), tokenizer)
    multi_token = 0
    for i in range(20):
        example = rows.example(0, i % rows.count(48), StepConfig(0, 48))
        at = mlm.corrupt(example, generator(i), StepConfig(0, 48, 0.15)).labels["mlm.positions"]
        words = words_of(example.flags, tokenizer.special[example.input_ids])
        for word in set(words[at]):
            assert set(np.flatnonzero(words == word)) <= set(at.tolist())
            multi_token += int((words == word).sum() > 1)
    assert multi_token > 5


def test_phrases_are_masked_first(tmp_path: Path) -> None:
    text = "the united states of america and new york are names , the rest of it is words . " * 4
    path = tmp_path / "names.txt"
    path.write_text("new york\nunited states of america\tCOUNTRY\nunited states\n")
    tokenizer = Tokenizer.train([text], TokenizerRecipe(vocab_size=60, min_frequency=0))
    mlm = MLM(Recipe.build({"mlm": {"mask_unit": "phrase", "phrases": str(path)}}), tokenizer)
    encoding = tokenizer.encode_batch([text])[0]
    ids = np.array([tokenizer.cls, *encoding.ids, tokenizer.sep])
    flags = np.array([0, *(not t.startswith("##") for t in encoding.tokens), 0], np.uint8)
    matches = mlm.phrases.find(ids, *word_spans(np.flatnonzero(~tokenizer.special[ids]), flags))
    assert [tokenizer.decode(ids[a:b]) for a, b in matches] == ["united states of america", "new york"] * 4
    inside = np.zeros(len(ids), bool)
    for start, end in matches:
        inside[start:end] = True
    seen = 0
    for i in range(200):
        example = row(0)
        example.input_ids, example.flags = ids, flags
        at = mlm.corrupt(example, generator("named", i), StepConfig(0, 128, 0.15)).labels["mlm.positions"]
        assert inside[at].all(), "words were masked before all phrases"
        seen += len(at)
        high = mlm.corrupt(example, generator("named", i), StepConfig(0, 128, 0.6)).labels["mlm.positions"]
        assert set(np.flatnonzero(inside)) <= set(high.tolist())
        assert not inside[high].all()
    assert seen / 200 == pytest.approx(0.15 * (~tokenizer.special[ids]).sum(), rel=0.1)


def test_invalid_phrase_files_raise_before_the_text_is_read(tmp_path: Path) -> None:
    config = preset("bert-tiny")
    for mlm, message in (
        ({"mask_unit": "phrase"}, "needs a file of phrases"),
        ({"mask_unit": "phrase", "phrases": str(tmp_path / "none.txt")}, "cannot read"),
        ({"phrases": "x.txt"}, "mask_unit=phrase"),
    ):
        with pytest.raises(UserError, match=message):
            MLM.check(Recipe.build({"objective": "mlm", "mlm": mlm}), config)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UserError, match="no phrases"):
        read_phrases(str(tmp_path / "empty.txt"))
    with pytest.raises(UserError, match=r"mlm\.mask_unit"):
        Recipe.build({"mlm": {"mask_unit": "sentence"}})


def test_units_work_without_flags() -> None:
    """Without flags each token is its own word (rows of a task, or built by hand)."""
    example = row(0)
    example.flags = None
    for unit in ("word", "span", "ngram"):
        recipe = Recipe.build({"objective": "mlm", "mlm": {"mask_unit": unit}})
        out = build(recipe, TOKENIZER).corrupt(example, generator(1), StepConfig(0, 128, 0.15))
        assert 10 < len(out.labels["mlm.positions"]) < 30


class Text:
    """The part of the Split interface that the phrase search uses."""

    tokenizer = Tokenizer.train(["the red cat saw a blue dog and one more cat ."] * 50, TokenizerRecipe(vocab_size=58))

    def __init__(self, text: str):
        encoding = self.tokenizer.encode_batch([text])[0]
        self.tokens = np.array(encoding.ids, np.uint16)
        word = [-1, *encoding.word_ids]
        self.flags = np.array([WORD if a != b else 0 for a, b in pairwise(word)], np.uint8)


def phrases_from(text: Text, path: Path, lines: str) -> Phrases:
    path.write_text(lines)
    return Phrases(str(path), text.tokenizer)


def test_phrases_missing_from_the_text_are_reported(tmp_path: Path) -> None:
    text = Text("the red cat saw a blue dog . " * 3)
    lines = "red cat\tANIMAL\ncat\nRed Cat\ncat red\nblue\nblue do\ndog and\none\nmore\n\u4e2d\u6587\nred cat\n"
    phrases = phrases_from(text, tmp_path / "p.tsv", lines)
    missing, read = phrases.missing([text])
    assert missing == ["cat red", "blue do", "dog and", "one", "more", "\u4e2d\u6587"]
    assert read == len(text.tokens)
    message = phrases.report([text])
    assert message.startswith("4 of 10 phrases of ") and "occur in the text; missing: 'cat red', 'blue do'" in message
    assert message.endswith("'one', 'more', …"), "at most five are listed"
    also = phrases.report([text, Text("one more")])  # with a replay corpus
    assert also.startswith("6 of 10 ")
    with pytest.raises(UserError, match=r"none of the 2 phrases of .* occurs in the text, e\.g\. 'cat red'"):
        phrases_from(text, tmp_path / "q.tsv", "cat red\nzebra\n").report([text])


def test_long_text_is_sampled_for_phrases_and_fully_searched_before_raising(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.objectives.units.CHUNK_TOKENS", 8)
    monkeypatch.setattr("unmask.objectives.units.MAX_SAMPLED_TOKENS", 800)
    text = Text("the blue dog . " * 800 + "red cat " + "the blue dog . " * 2)  # 8 × 401 tokens and two
    some = phrases_from(text, tmp_path / "some.txt", "blue dog\nred cat\n")
    assert "occur in the 800 tokens searched; missing: 'red cat'" in some.report([text])
    only = phrases_from(text, tmp_path / "only.txt", "red cat\n")
    assert only.report([text]).startswith("1 of 1 phrases")
    for offset in range(8):  # also across a chunk boundary
        shifted = Text("the " * offset + "blue dog . " * 9 + "red cat " + "the " * 11)
        assert only.missing([shifted])[0] == []


def test_run_reports_the_phrase_count_and_raises_if_none_occurs(store: TokenStore, tmp_path: Path, capsys) -> None:
    file = tmp_path / "phrases.txt"
    recipe = {"model": {"hidden": 32, "layers": 1, "heads": 2, "intermediate": 64}, "train": {"threads": 1}}
    short = {
        "preset": "bert-tiny",
        "objective": "mlm+nsp",
        "mask_unit": "phrase",
        "steps": 1,
        "batch_size": 4,
        "max_length": 32,
    }
    file.write_text("the statement\nzebra crossing\n")
    run = unmask.pretrain(
        store.path, recipe=recipe, overrides=[f"mlm.phrases={file}"], out=tmp_path / "a", console=Console(), **short
    )
    assert f"1 of 2 phrases of {file} occur in the text; missing: 'zebra crossing'" in capsys.readouterr().err
    file.write_text("zebra crossing\n")
    with pytest.raises(UserError, match="none of the 1 phrases"):
        unmask.pretrain(store.path, recipe=recipe, overrides=[f"mlm.phrases={file}"], out=tmp_path / "b", **short)
    assert not (tmp_path / "b").exists()
    (run.path / "results.json").unlink()  # as if the run had been interrupted
    with pytest.raises(UserError, match=r"mlm\.phrases: .* has changed"):
        unmask.resume(run.path)
