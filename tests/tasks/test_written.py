"""ROUGE, BLEU and chrF are those of rouge-score and sacrebleu."""

import random
from typing import Any

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from unmask.tasks import written

EN = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "it's", "3.5", "U.S.", "naïve", "don't", "—", "!", "end"]
ZH = ["猫", "在", "垫", "子", "上", "睡", "觉", "。", "GPT2", "模", "型", "，", "好"]


def texts(rng: random.Random, vocabulary: list[str], joint: str, longest: int = 14) -> str:
    """Lines of a few words; now and then nothing at all, or nothing but a blank line."""
    lines = [joint.join(rng.choices(vocabulary, k=rng.randint(0, longest))) for _ in range(rng.choice([1, 1, 1, 2, 4]))]
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
        return written.words(text, "zh")


@pytest.mark.parametrize(("language", "tokenizer"), [("en", None), ("zh", Characters())])
def test_rouge_is_that_of_rouge_score(language: str, tokenizer: Any) -> None:
    scorer = RougeScorer(list(written.ROUGE), use_stemmer=False, tokenizer=tokenizer)
    made = cases(language, 300)
    assert any(not answer for _, answer in made) and any("\n" in answer for _, answer in made)
    for references, answer in made:
        theirs = scorer.score_multi(references, answer)
        assert written.rouge(references, answer, language) == pytest.approx(
            {name: theirs[name].fmeasure for name in written.ROUGE}, abs=1e-12
        ), (references, answer)


def test_long_texts_too() -> None:
    rng = random.Random(0)
    scorer = RougeScorer(list(written.ROUGE))
    for _ in range(5):
        a, b = (" ".join(rng.choices("abcdefghij", k=rng.randint(100, 300))) for _ in range(2))
        assert written.rouge([a], b)["rougeL"] == pytest.approx(scorer.score(a, b)["rougeL"].fmeasure, abs=1e-12)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_bleu_and_chrf_are_sacrebleu_s(language: str) -> None:
    made, rng = cases(language, 400), random.Random(1)
    for size in [1] * 200 + [2, 5, 20, 100]:
        some = rng.sample(made, size)
        references, answers = [r for r, _ in some], [a for _, a in some]
        most = max(map(len, references))
        streams: Any = [[r[n] if n < len(r) else None for r in references] for n in range(most)]
        bleu = sacrebleu.corpus_bleu(answers, streams, tokenize="zh" if language == "zh" else "13a").score
        chrf = sacrebleu.corpus_chrf(answers, streams).score
        ours = written.scores(references, answers, language)
        assert (ours["bleu"], ours["chrf"]) == pytest.approx((bleu / 100, chrf / 100), abs=1e-9)


def test_nothing_to_compare_is_nothing() -> None:
    assert set(written.scores([], []).values()) == {0.0}
    assert set(written.scores([["a cat"]], [""]).values()) == {0.0}


def test_the_language_is_that_of_most_letters() -> None:
    assert written.language(["Ein schöner Satz"]) == "en"
    assert written.language(["用 BERT 和 GPT 来做摘要任务的方法与模型"]) == "zh"
    assert written.language(["Кошка сидела на коврике"]) == "other"
    assert written.words("Кошка_сидела", "other") == ["кошка", "сидела"]
