"""Span search against plain loops, and SQuAD scores against the logic of the official script, reimplemented here."""

import collections
import re
import string
import time
from itertools import pairwise

import numpy as np
import pytest

from unmask.tasks.answer import spans
from unmask.text.windows import strided_starts

# ------------------------------------------------------------------------------- the official logic as the reference


def squash(s: str) -> str:
    s = "".join(c for c in s.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", s, flags=re.UNICODE).split())


def f1_of(gold: str, answer: str) -> float:
    g, a = squash(gold).split() if gold else [], squash(answer).split() if answer else []
    same = sum((collections.Counter(g) & collections.Counter(a)).values())
    if len(g) == 0 or len(a) == 0:
        return int(g == a)
    if same == 0:
        return 0
    precision, recall = 1.0 * same / len(a), 1.0 * same / len(g)
    return (2 * precision * recall) / (precision + recall)


def best(answers: dict, scores: dict, na_probs: dict, has: dict) -> tuple[float, float]:
    current = best_score = sum(1 for k in has if not has[k])
    threshold = 0.0
    for qid in sorted(na_probs, key=lambda k: na_probs[k]):
        if has[qid]:
            current += scores[qid]
        elif answers[qid]:
            current += -1
        if current > best_score:
            best_score, threshold = current, na_probs[qid]
    return best_score / len(scores), threshold


def official(answers: dict, na_probs: dict, golds: dict, threshold: float) -> dict:
    has = {q: bool(golds[q]) for q in golds}
    exact, f1 = {}, {}
    for q in golds:
        references = [g for g in golds[q] if squash(g)] or [""]
        exact[q] = max(int(squash(g) == squash(answers[q])) for g in references)
        f1[q] = max(f1_of(g, answers[q]) for g in references)

    def applied(scores: dict) -> dict:
        return {q: float(not has[q]) if na_probs[q] > threshold else scores[q] for q in scores}

    out: dict[str, float] = {}
    for prefix, qids in (
        ("", list(has)),
        ("HasAns_", [q for q in has if has[q]]),
        ("NoAns_", [q for q in has if not has[q]]),
    ):
        if qids:
            out[prefix + "exact"] = sum(applied(exact)[q] for q in qids) / len(qids)
            out[prefix + "f1"] = sum(applied(f1)[q] for q in qids) / len(qids)
            out[prefix + "total"] = len(qids)
    out["best_exact"], out["best_exact_thresh"] = best(answers, exact, na_probs, has)
    out["best_f1"], out["best_f1_thresh"] = best(answers, f1, na_probs, has)
    return out


WORDS = [
    "the",
    "a",
    "an",
    "cat",
    "Cat",
    "dog.",
    "(red)",
    "U.S.",
    "us",
    "well-known",
    "1,000",
    "née",
    "",
    "!",
    "theatre",
    "x—the—y",
    "A",
]


@pytest.mark.parametrize("tenth", range(10))
def test_scores_match_the_official_script(tenth: int) -> None:
    for seed in range(tenth, 400, 10):
        compare_with_official(np.random.default_rng(seed))


def compare_with_official(rng: np.random.Generator) -> None:
    def text() -> str:
        return " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), rng.integers(0, 5)))

    n = int(rng.integers(1, 12))
    golds = [[text() or "x" for _ in range(rng.integers(0, 4))] for _ in range(n)]
    answers = [str(rng.choice([text(), "", *gold])) for gold in golds]
    na_probs = np.round(rng.normal(0, 3, n), int(rng.integers(0, 4))).tolist()  # some are equal
    threshold = float(rng.choice([0.0, -1.0, *na_probs]))
    ours = spans.squad_scores(answers, na_probs, golds, threshold)
    theirs = official(dict(enumerate(answers)), dict(enumerate(na_probs)), dict(enumerate(golds)), threshold)
    assert set(ours) == set(theirs)
    assert ours == pytest.approx(theirs, abs=1e-12)
    without = spans.squad_scores(answers, na_probs, golds)
    theirs = official(dict(enumerate(answers)), dict(enumerate(na_probs)), dict(enumerate(golds)), np.inf)
    assert without == pytest.approx({k: v for k, v in theirs.items() if not k.startswith("best")}, abs=1e-12)


def test_tuned_threshold_is_optimal() -> None:
    for seed in range(200):
        check_no_threshold_is_better(np.random.default_rng(seed))


def check_no_threshold_is_better(rng: np.random.Generator) -> None:
    n = int(rng.integers(2, 15))
    values, none, has = rng.random(n).round(1), rng.normal(0, 2, n).round(0), rng.random(n) < 0.5
    answered = np.ones(n, bool)

    def at(threshold: float) -> float:
        return float(np.where(none > threshold, ~has, np.where(has, values, 0.0)).mean())

    score, threshold = spans.best_null_threshold(values, none, answered, has, reachable=True)
    assert at(threshold) == pytest.approx(score)
    assert score == pytest.approx(max(at(t) for t in [*none, none.min() - 1]))


def test_chinese_is_compared_by_characters() -> None:
    golds = [["10世纪和11世纪"], ["法国"], []]
    scores = spans.squad_scores(["在10世纪", "法国。", ""], [0, 0, 0], golds, chinese=True)
    assert scores["f1"] == pytest.approx((0 + 0 + 1) / 3)  # whitespace tokens are useless
    # 在 10 世 纪 against 10 世 纪 和 11 世 纪: a common run of 3
    assert scores["zh_f1"] == pytest.approx((2 * 3 / (4 + 7) + 1 + 1) / 3)
    assert "zh_f1" not in spans.squad_scores(["a"], [0], [["a"]])
    assert spans.zh_f1("ABC 公司", "abc公司") == 1.0
    assert spans.zh_f1("，。", "") == 1.0 and spans.zh_f1("法", "国") == 0.0


# -------------------------------------------------------------------------------------------------------------- search


def test_best_spans_match_nested_loops() -> None:
    for seed in range(200):
        compare_with_loops(seed, np.random.default_rng(seed))


def compare_with_loops(seed: int, rng: np.random.Generator) -> None:
    n, max_length, top = int(rng.integers(1, 12)), int(rng.integers(1, 8)), int(rng.integers(1, 5))
    start, end = rng.normal(0, 2, (2, n)).round(seed % 2)  # half of them with equal sums
    if seed % 3 == 0:
        start[rng.integers(0, n)] = -np.inf
    every = [
        (s, e, start[s] + end[e])
        for s in range(n)
        for e in range(s, min(n, s + max_length))
        if start[s] + end[e] > -np.inf
    ]
    spans_found, total = spans.best_spans(start, end, max_length, top)
    assert spans_found == sorted(every, key=lambda x: (-x[2], x[0], x[1]))[:top]
    if every:
        assert total == pytest.approx(np.log(np.exp([x[2] for x in every]).sum()))


def test_windows_cover_everything_and_overlap() -> None:
    for tokens in range(40):
        for size in range(2, 12):
            for overlap in range(size // 2 + 1):
                starts = strided_starts(tokens, size, overlap)
                covered = {i for s in starts for i in range(s, min(tokens, s + size))}
                assert covered == set(range(tokens))
                assert all(b - a == size - overlap for a, b in pairwise(starts))
                assert len(starts) == 1 or starts[-2] + size < tokens  # none is redundant


def test_ten_thousand_windows_take_seconds() -> None:
    rng = np.random.default_rng(0)
    count, tokens = 1000, 384
    values = [rng.normal(size=(tokens, 2)).astype(np.float32) for _ in range(count)]
    offsets = np.stack([np.arange(tokens - 20) * 4, np.arange(tokens - 20) * 4 + 3], 1)
    window = spans.Window("abc " * tokens, offsets, 19)
    start_time = time.process_time()
    candidates = spans.collect_candidates(values, [window] * count, np.arange(count) // 3, 30, 3)
    assert time.process_time() - start_time < 2.0  # 10% of them take about 0.2 s
    assert len(candidates) == 334 and all(len(f.spans) >= 3 for f in candidates)


def test_offsets_refer_to_the_raw_text() -> None:
    assert spans.trim_offsets(" a\u3000b ", [(0, 2), (2, 4), (2, 3), (4, 5)]).tolist() == [
        [1, 2],
        [3, 4],
        [3, 3],
        [5, 5],
    ]
    assert spans.with_combining_marks("❤\ufe0f!", 0, 1) == (0, 2) and spans.with_combining_marks(
        "nai\u0308ve", 0, 5
    ) == (0, 5)
    assert spans.token_span(np.array([[0, 1], [0, 1], [0, 1], [1, 2]]), 0, 1) == (0, 2)
    assert spans.token_span(np.array([[0, 1], [3, 4]]), 1, 3) is None
