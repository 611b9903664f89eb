"""ROUGE, BLEU and chrF match rouge-score and sacrebleu."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from unmask.tasks.generate import metrics
from unmask.text.segmentation import scoring_words

EN = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "it's", "3.5", "U.S.", "naïve", "don't", "—", "!", "end"]
ZH = ["猫", "在", "垫", "子", "上", "睡", "觉", "。", "GPT2", "模", "型", "，", "好"]


def texts(rng: random.Random, vocabulary: list[str], joint: str, max_words: int = 14) -> str:
    """Lines of a few words; sometimes empty, sometimes only a blank line."""
    lines = [
        joint.join(rng.choices(vocabulary, k=rng.randint(0, max_words))) for _ in range(rng.choice([1, 1, 1, 2, 4]))
    ]
    return rng.choice(["", "\n", "...", "\n".join(lines), "\n".join(lines), "\n".join(lines), "\n".join(lines)])


def cases(language: str, count: int) -> list[tuple[list[str], str]]:
    rng = random.Random(language)
    vocabulary, joint = (EN, " ") if language == "en" else (ZH, "")
    out = []
    for _ in range(count):
        references = [texts(rng, vocabulary, joint) or "a" for _ in range(rng.choice([1, 1, 2, 3]))]
        out.append((references, rng.choice([references[0], *[texts(rng, vocabulary, joint)] * 5])))
    return out


class Characters:
    def tokenize(self, text: str) -> list[str]:
        return scoring_words(text, "zh")


@pytest.mark.parametrize(("language", "tokenizer"), [("en", None), ("zh", Characters())])
def test_rouge_matches_rouge_score(language: str, tokenizer: Any) -> None:
    scorer = RougeScorer(list(metrics.ROUGE), use_stemmer=False, tokenizer=tokenizer)
    data = cases(language, 300)
    assert any(not answer for _, answer in data) and any("\n" in answer for _, answer in data)
    for references, answer in data:
        theirs = scorer.score_multi(references, answer)
        assert metrics.rouge(references, answer, language) == pytest.approx(
            {name: theirs[name].fmeasure for name in metrics.ROUGE}, abs=1e-12
        ), (references, answer)


def test_rouge_of_long_texts_matches_rouge_score() -> None:
    rng = random.Random(0)
    scorer = RougeScorer(list(metrics.ROUGE))
    for _ in range(5):
        a, b = (" ".join(rng.choices("abcdefghij", k=rng.randint(100, 300))) for _ in range(2))
        assert metrics.rouge([a], b)["rougeL"] == pytest.approx(scorer.score(a, b)["rougeL"].fmeasure, abs=1e-12)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_bleu_and_chrf_match_sacrebleu(language: str) -> None:
    data, rng = cases(language, 400), random.Random(1)
    for size in [1] * 200 + [2, 5, 20, 100]:
        subset = rng.sample(data, size)
        references, answers = [r for r, _ in subset], [a for _, a in subset]
        max_references = max(map(len, references))
        streams: Any = [[r[n] if n < len(r) else None for r in references] for n in range(max_references)]
        bleu = sacrebleu.corpus_bleu(answers, streams, tokenize="zh" if language == "zh" else "13a").score
        chrf = sacrebleu.corpus_chrf(answers, streams).score
        ours = metrics.scores(references, answers, language)
        assert (ours["bleu"], ours["chrf"]) == pytest.approx((bleu / 100, chrf / 100), abs=1e-9)


def mteval_tokens(text: str) -> list[str]:
    """The rules of mteval-v13a that these cases need: punctuation and Chinese characters are separate tokens, a dot
    inside a number is not."""
    out = []
    for before, c, after in zip(f" {text}", text, f"{text[1:]} "):
        is_separate = c == "!" or (c == "." and not (before.isdigit() and after.isdigit())) or c in ZH
        out.append(f" {c} " if is_separate else c)
    return "".join(out).split()


def grams(items: Sequence[str], n: int) -> list[str]:
    return ["\0".join(items[i : i + n]) for i in range(len(items) - n + 1)]


def shared(a: list[str], b: list[str]) -> int:
    return sum(min(a.count(x), b.count(x)) for x in set(a))


def plain_bleu(references: list[list[str]], answers: list[str]) -> float:
    """Papineni et al. 2002 over a corpus; an order without a match counts as half, a quarter … of one (NIST
    smoothing)."""
    hits, totals, num_predicted, num_reference = [0] * 4, [0] * 4, 0, 0
    for alternatives, answer in zip(references, answers):
        cut, theirs = mteval_tokens(answer), [mteval_tokens(r) for r in alternatives]
        num_predicted += len(cut)
        num_reference += min((abs(len(r) - len(cut)), len(r)) for r in theirs)[
            1
        ]  # the closest length; the shorter one on ties
        for n in range(1, 5):
            predicted_grams = grams(cut, n)
            hits[n - 1] += sum(
                min(predicted_grams.count(x), max(grams(r, n).count(x) for r in theirs)) for x in set(predicted_grams)
            )
            totals[n - 1] += len(predicted_grams)
    if not hits[0] or not all(totals):
        return 0.0
    product, smoothing = 1.0, 1
    for hit, total in zip(hits, totals):
        smoothing *= 1 if hit else 2
        product *= (hit or 1 / smoothing) / total
    return product**0.25 * min(1.0, math.exp(1 - num_reference / num_predicted))


def plain_chrf(references: list[list[str]], answers: list[str]) -> float:
    """Popović 2015: precision and recall of character 1- to 6-grams without spaces, averaged, with recall weighted
    twice. Of several references, the best for each prediction counts."""

    def counted(reference: str, answer: str) -> list[tuple[int, int, int]]:
        a, r = ("".join(t.split()) for t in (answer, reference))
        lists = [(grams(a, n), grams(r, n)) for n in range(1, 7)]
        return [(shared(x, y), len(x) if y else 0, len(y)) for x, y in lists]

    def score(counts: list[tuple[int, int, int]]) -> float:
        ratios = [(hit / x, hit / y) for hit, x, y in counts if x and y]
        precision, recall = (sum(p[i] for p in ratios) / max(1, len(ratios)) for i in (0, 1))
        return 5 * precision * recall / (4 * precision + recall) if precision + recall else 0.0

    best = [max((counted(r, a) for r in alternatives), key=score) for alternatives, a in zip(references, answers)]
    return score([(sum(h), sum(x), sum(y)) for h, x, y in (zip(*order) for order in zip(*best))])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_bleu_and_chrf_match_their_definitions(language: str) -> None:
    """Reimplemented from the papers, to detect wrong use of a library (argument order, percentages)."""
    data, rng, seen = cases(language, 300), random.Random(2), set()
    for size in [1] * 100 + [2] * 30 + [5] * 20 + [30] * 5:
        references, answers = map(list, zip(*rng.sample(data, size)))
        ours = metrics.scores(references, answers, language)
        expected = plain_bleu(references, answers), plain_chrf(references, answers)
        assert (ours["bleu"], ours["chrf"]) == pytest.approx(expected, abs=1e-9), (references, answers)
        seen |= {0 < expected[0] < 1, 0 < expected[1] < 1, "all right" if expected == (1.0, 1.0) else ""}
    assert seen >= {True, False, "all right"}


def test_empty_input_scores_zero() -> None:
    assert set(metrics.scores([], []).values()) == {0.0}
    assert set(metrics.scores([["a cat"]], [""]).values()) == {0.0}


def test_language_is_detected_by_most_letters() -> None:
    assert metrics.language(["Ein schöner Satz"]) == "en"
    assert metrics.language(["用 BERT 和 GPT 来做摘要任务的方法与模型"]) == "zh"
    assert metrics.language(["Кошка сидела на коврике"]) == "other"
    assert scoring_words("Кошка_сидела", "other") == ["кошка", "сидела"]
