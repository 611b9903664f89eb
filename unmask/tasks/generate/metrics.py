"""Metrics of generated text: ROUGE (Lin 2004), and BLEU and chrF of sacrebleu. All are scaled to 0–1.

ROUGE equals that of the rouge-score package without stemming. Its words depend on the language:

| language | words                                                            | BLEU's words |
|----------|------------------------------------------------------------------|--------------|
| en       | runs of a–z and 0–9, in lower case (rouge-score's rule)          | 13a          |
| zh       | every Chinese character, and runs of other letters and digits    | zh           |
| other    | the same as zh: rouge-score's rule would leave nothing to compare | 13a          |

With several references, each ROUGE score takes its best reference; BLEU and chrF have their own rules.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from unmask.tasks.metrics import f1_scores
from unmask.text.segmentation import detect_common_language, scoring_words

Words = list[str]
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")  # F-measures


def language(texts: Sequence[str]) -> str:
    """Return zh for Chinese, en if most words are ASCII, else other.

    >>> language(["a cat"]), language(["一只猫 cat"]), language(["кот"]), language([])
    ('en', 'zh', 'other', 'en')
    """
    if detect_common_language(texts) == "zh":
        return "zh"
    words = [word for text in texts for word in scoring_words(text, "other") if not word.isdigit()]
    return "en" if 2 * sum(map(str.isascii, words)) >= len(words) else "other"


def rouge(references: Sequence[str], prediction: str, language: str = "en") -> dict[str, float]:
    """Return the F-measures of one prediction, each for its best reference.

    >>> rouge(["the cat sat"], "the cat")["rougeL"]
    0.8
    """
    per_reference = [_rouge(reference, prediction, language) for reference in references]
    return {name: max(scores[name] for scores in per_reference) for name in ROUGE}


def _rouge(reference: str, prediction: str, language: str) -> dict[str, float]:
    expected, predicted = scoring_words(reference, language), scoring_words(prediction, language)
    out = {}
    for n in (1, 2):
        a, b = (Counter(zip(*(tokens[i:] for i in range(n)))) for tokens in (expected, predicted))
        out[f"rouge{n}"] = f1_scores((a & b).total(), b.total(), a.total())[2]
    out["rougeL"] = out["rougeLsum"] = f1_scores(lcs_length(expected, predicted), len(predicted), len(expected))[2]
    expected_lines, predicted_lines = (
        [scoring_words(line, language) for line in text.split("\n") if line] for text in (reference, prediction)
    )
    if not len(expected_lines) == len(predicted_lines) == 1:
        hits = summary_hits(expected_lines, predicted_lines)
        out["rougeLsum"] = f1_scores(hits, len(predicted), len(expected))[2]
    return out


def lcs_length(a: Words, b: Words) -> int:
    """Return the length of the longest common subsequence (bit-parallel algorithm, Hyyrö 2004).

    >>> lcs_length("a b c d".split(), "b x d a".split())
    2
    """
    positions: dict[str, int] = {}  # word → bit set of its positions in a
    for i, word in enumerate(a):
        positions[word] = positions.get(word, 0) | 1 << i
    all_bits = (1 << len(a)) - 1
    row = all_bits  # row of the dynamic-programming table: bit i is 0 where the length grows
    for word in b:
        match = row & positions.get(word, 0)
        row = (row + match | row - match) & all_bits
    return len(a) - row.bit_count()


def summary_hits(expected: Sequence[Words], predicted: Sequence[Words]) -> int:
    """Return the hits of ROUGE-Lsum.

    They are the words of each expected line that are on a longest common subsequence with any predicted line. No word counts more often
    than it occurs in either text.
    """
    remaining = Counter(w for line in expected for w in line) & Counter(w for line in predicted for w in line)
    hits = 0
    for line in expected:
        for index in sorted(set().union(*(_lcs_indices(line, other) for other in predicted))):
            if remaining[line[index]] > 0:
                remaining[line[index]] -= 1
                hits += 1
    return hits


def _lcs_indices(a: Words, b: Words) -> list[int]:
    """Return the indices in `a` of one longest common subsequence, traced from the end. On ties, skip the word of `a`."""
    lengths = [[0] * (len(b) + 1)]
    for word in a:
        above, row = lengths[-1], [0]
        for j, other in enumerate(b):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        lengths.append(row)
    indices, i, j = [], len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            indices.append(i)
        elif lengths[i][j - 1] > lengths[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return indices


def scores(references: Sequence[Sequence[str]], predictions: Sequence[str], language: str = "en") -> dict[str, float]:
    """Return the mean ROUGE of the predictions, and corpus BLEU and chrF.

    >>> scores([["the cat sat on the mat"]], ["the cat sat on the mat"])["bleu"]
    1.0
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if not predictions:
        return dict.fromkeys((*ROUGE, "bleu", "chrf"), 0.0)
    rouges = [rouge(texts, prediction, language) for texts, prediction in zip(references, predictions, strict=True)]
    out = {name: sum(scores[name] for scores in rouges) / len(rouges) for name in ROUGE}
    streams: Any = list(zip_longest(*references))  # sacrebleu expects the first references, then the second ones, …
    bleu = BLEU(tokenize="zh" if language == "zh" else "13a").corpus_score(list(predictions), streams)
    out["bleu"] = min(1.0, bleu.score / 100)  # the score may be 100.00000000000004
    out["chrf"] = CHRF().corpus_score(list(predictions), streams).score / 100
    return out
