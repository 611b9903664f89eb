"""How near a written text is to the one wanted: ROUGE (Lin 2004), and BLEU and chrF by sacrebleu. All are shares of 1.

ROUGE gives the numbers of the rouge-score package without stemming. What its words are depends on the language:

| language | words                                                            | BLEU's words |
|----------|------------------------------------------------------------------|--------------|
| en       | runs of a–z and 0–9, in lower case (rouge-score's rule)          | 13a          |
| zh       | every Chinese character, and runs of other letters and digits    | zh           |
| other    | the same as zh: rouge-score's rule would leave nothing to compare | 13a          |

Of several references the best one counts, for each score by itself; BLEU and chrF have rules of their own for several.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from unmask.tasks.metrics import f1_scores
from unmask.text.segmentation import detect_common_language, scoring_words

Words = list[str]
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")  # F-measures


def language(texts: Sequence[str]) -> str:
    """zh where it is Chinese (`language_of`), else en or other, by what most of the words are.

    >>> language(["a cat"]), language(["一只猫 cat"]), language(["кот"]), language([])
    ('en', 'zh', 'other', 'en')
    """
    if detect_common_language(texts) == "zh":
        return "zh"
    found = [word for text in texts for word in scoring_words(text, "other") if not word.isdigit()]
    return "en" if 2 * sum(map(str.isascii, found)) >= len(found) else "other"


def rouge(references: Sequence[str], prediction: str, language: str = "en") -> dict[str, float]:
    """The F-measures of one answer, each against the reference that suits it best.

    >>> rouge(["the cat sat"], "the cat")["rougeL"]
    0.8
    """
    found = [_rouge(reference, prediction, language) for reference in references]
    return {name: max(scores[name] for scores in found) for name in ROUGE}


def _rouge(reference: str, prediction: str, language: str) -> dict[str, float]:
    wanted, predicted = scoring_words(reference, language), scoring_words(prediction, language)
    out = {}
    for n in (1, 2):
        a, b = (Counter(zip(*(tokens[i:] for i in range(n)))) for tokens in (wanted, predicted))
        out[f"rouge{n}"] = f1_scores((a & b).total(), b.total(), a.total())[2]
    out["rougeL"] = f1_scores(common_length(wanted, predicted), len(predicted), len(wanted))[2]
    lines, made = (
        [scoring_words(line, language) for line in text.split("\n") if line] for text in (reference, prediction)
    )
    one = len(lines) == len(made) == 1  # then both are the same
    out["rougeLsum"] = out["rougeL"] if one else f1_scores(summary_hits(lines, made), len(predicted), len(wanted))[2]
    return out


def common_length(a: Words, b: Words) -> int:
    """Length of the longest common subsequence, a row of its table at a time as the bits of one number (Hyyrö 2004).

    >>> common_length("a b c d".split(), "b x d a".split())
    2
    """
    where: dict[str, int] = {}
    for i, word in enumerate(a):
        where[word] = where.get(word, 0) | 1 << i
    every = (1 << len(a)) - 1
    row = every  # a 0 at i: the table grows there
    for word in b:
        match = row & where.get(word, 0)
        row = (row + match | row - match) & every
    return len(a) - row.bit_count()


def summary_hits(wanted: Sequence[Words], predicted: Sequence[Words]) -> int:
    """ROUGE-Lsum's hits: of each line that is wanted, the words on a longest common subsequence with any line of the answer; no word
    counts more often than it stands in either text."""
    left = Counter(w for line in wanted for w in line) & Counter(w for line in predicted for w in line)
    hits = 0
    for line in wanted:
        for place in sorted(set().union(*(_common_places(line, other) for other in predicted))):
            if left[line[place]] > 0:
                left[line[place]] -= 1
                hits += 1
    return hits


def _common_places(a: Words, b: Words) -> list[int]:
    """Places in `a` of one longest common subsequence: read from the end, and where two are as long, the one that leaves out `a`'s word."""
    lengths = [[0] * (len(b) + 1)]
    for word in a:
        above, row = lengths[-1], [0]
        for j, other in enumerate(b):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        lengths.append(row)
    places, i, j = [], len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            places.append(i)
        elif lengths[i][j - 1] > lengths[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return places


def scores(references: Sequence[Sequence[str]], predictions: Sequence[str], language: str = "en") -> dict[str, float]:
    """Means of ROUGE over the answers; BLEU and chrF of all of them together.

    >>> scores([["the cat sat on the mat"]], ["the cat sat on the mat"])["bleu"]
    1.0
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if not predictions:
        return dict.fromkeys((*ROUGE, "bleu", "chrf"), 0.0)
    found = [rouge(several, prediction, language) for several, prediction in zip(references, predictions, strict=True)]
    out = {name: sum(one[name] for one in found) / len(found) for name in ROUGE}
    most = max(len(several) for several in references)
    streams: Any = [[several[n] if n < len(several) else None for several in references] for n in range(most)]
    bleu = BLEU(tokenize="zh" if language == "zh" else "13a")
    out["bleu"] = min(
        1.0, bleu.corpus_score(list(predictions), streams).score / 100
    )  # its 100 may be 100.00000000000004
    out["chrf"] = CHRF().corpus_score(list(predictions), streams).score / 100
    return out
