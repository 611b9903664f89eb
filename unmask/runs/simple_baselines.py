"""What the simplest answers reach, for every task but classify (whose are in baseline.py): nothing is trained but counts of words.

| task     | baseline                  | the answer                                                                        |
|----------|---------------------------|-----------------------------------------------------------------------------------|
| tag      | most frequent tag         | of each word the tag it has most often in the training records; of others "O"     |
| answer   | nearest sentence          | the sentence of the passage that shares most with the question (TF-IDF)           |
| choose   | TF-IDF                    | the choice that shares most with question and context                             |
|          | most frequent place       | always the first, or the second …, as most often in the training records          |
| generate | first N sentences         | of the text; N = sentences of the targets (median)                                |
| embed    | TF-IDF                    | vectors of words                                                                  |
| rank     | BM25                      | over the passages of all records                                                  |

Scores are the task's own, of the same records that judge the model.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from unmask.inference.search import words
from unmask.labels.formats import schemes
from unmask.labels.records import Record
from unmask.tasks import contrastive
from unmask.tasks.answer.task import Answer as Reading
from unmask.tasks.generate.task import Generate
from unmask.tasks.tag.task import Tag
from unmask.tasks.task import Answer, Task
from unmask.text.segmentation import detect_language, sentence_starts, split_words

Found = dict[str, dict[str, float]]  # baseline → its scores
K1, B = 1.5, 0.75  # of BM25
ENOUGH = 2000  # training records that tell how much a sentence has to share with its question


def tag(task: Tag, train: Sequence[Record], judged: Sequence[Record]) -> Found:
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for record in train:
        at = record.get("words") or split_words(record["text"], _borders(record))
        for (start, end), name in zip(at, task.truth(record, at)):
            seen[record["text"][start:end]][name] += 1
    everything = sum(seen.values(), Counter[str]())
    usual = everything.most_common(1)[0][0] if task.scheme == "none" else schemes.OUTSIDE
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    answers = []
    for record in judged:
        text, at = record["text"], record.get("words") or split_words(record["text"])
        tags = [best.get(text[start:end], usual) for start, end in at]
        answer: Answer = {"tags": tags, "words": at}
        if task.scheme != "none":
            found = schemes.read(tags)
            answer["tags"] = schemes.write(found, len(at), task.scheme)
            answer["entities"] = [{"start": at[a][0], "end": at[b - 1][1], "label": label} for a, b, label in found]
        answers.append(answer)
    return {"most frequent tag": task.score(answers, judged)}


def _borders(record: Record) -> list[int]:
    return [at for span in record.get("spans", ()) for at in (span["start"], span["end"])]


def answer(task: Reading, train: Sequence[Record], judged: Sequence[Record]) -> Found:
    """A sentence that shares too little is "no answer", where there may be none: how little is learnt from training records."""
    tfidf = vectors(text for r in train for text in (r["question"], r["context"]))

    def nearest(record: Record) -> Answer:
        parts = sentences(record["context"])
        near = (tfidf.transform(parts) @ tfidf.transform([record["question"]]).T).toarray()[:, 0]
        return {"answer": parts[int(near.argmax())], "score": float(near.max())}

    own, known = copy(task), train[:ENOUGH]
    own.learnt = task.learnt | {"threshold": None if task.learnt["threshold"] is None else 0.0}
    own.doubt([nearest(r) for r in known] if own.learnt["threshold"] is not None else [], known)
    return {"nearest sentence": own.score([nearest(r) for r in judged], judged)}


def choose(task: Task, train: Sequence[Record], judged: Sequence[Record]) -> Found:
    tfidf = vectors(text for r in train for text in (r.get("context", ""), r["text"], *r["choices"]))
    near, places = [], []
    usual = Counter(r["label"] for r in train).most_common(1)[0][0]
    for r in judged:
        asked = tfidf.transform([f"{r.get('context', '')} {r['text']}"])
        near.append(_chosen((tfidf.transform(r["choices"]) @ asked.T).toarray()[:, 0]))
        places.append(_chosen(np.arange(len(r["choices"])) == min(usual, len(r["choices"]) - 1)))
    return {"TF-IDF": task.score(near, judged), "most frequent place": task.score(places, judged)}


def _chosen(scores: np.ndarray) -> Answer:
    return {"choice": int(scores.argmax()), "scores": scores.astype(float).tolist()}


def generate(task: Generate, train: Sequence[Record], judged: Sequence[Record]) -> Found:
    count = max(1, round(float(np.median([len(sentences(r["target"])) for r in train]))))
    answers = [{"output": " ".join(sentences(r["text"])[:count])} for r in judged]
    return {"first sentence" if count == 1 else f"first {count} sentences": task.score(answers, judged)}


def embed(task: Task, train: Sequence[Record], judged: Sequence[Record]) -> Found:
    """Nothing where there are no pairs: how evenly word vectors are spread says nothing."""
    if not all("positive" in r for r in judged):
        return {}
    tfidf = vectors(text for r in train for text in (r["text"], r.get("positive", "")))
    asked, texts = [r["text"] for r in judged], [r["positive"] for r in judged]
    a, b = tfidf.transform(asked), tfidf.transform(texts)
    near = np.asarray(a.multiply(b).sum(1)).ravel().tolist()
    places = contrastive.places(a, b, asked, texts)
    answers = [{"similarity": cosine, "place": place} for cosine, place in zip(near, places)]
    return {"TF-IDF": contrastive.score(answers, judged, ())}


def rank(task: Task, train: Sequence[Record], judged: Sequence[Record]) -> Found:
    passages = dict.fromkeys(p for r in (*train, *judged) for p in r["passages"])
    counts = {p: Counter(words(p)) for p in passages}
    held = Counter(word for found in counts.values() for word in found)
    mean = max(1.0, float(np.mean([found.total() for found in counts.values()])))

    def score(query: Iterable[str], passage: str) -> float:
        found, total = counts[passage], 0.0
        norm = K1 * (1 - B + B * found.total() / mean)
        for word in query:
            rare = math.log(1 + (len(counts) - held[word] + 0.5) / (held[word] + 0.5))
            total += rare * found[word] / (found[word] + norm)
        return total

    answers = []
    for r in judged:
        query = words(r["query"])
        answers.append({"scores": [score(query, p) for p in r["passages"]]})
    return {"BM25": task.score(answers, judged)}


def sentences(text: str) -> list[str]:
    """
    >>> sentences("It rained. We left.")
    ['It rained.', 'We left.']
    """
    starts = [*sentence_starts(text, detect_language(text)).tolist(), len(text)]
    return [part for a, b in pairwise(starts) if (part := text[a:b].strip())] or [""]


def vectors(texts: Iterable[str]) -> Any:
    """TF-IDF of lower-case words, Chinese ones as the segmenter cuts them."""
    return TfidfVectorizer(analyzer=words, sublinear_tf=True).fit(dict.fromkeys(texts))


SIMPLE: dict[str, Callable[[Any, Sequence[Record], Sequence[Record]], Found]] = {
    "tag": tag,
    "answer": answer,
    "choose": choose,
    "generate": generate,
    "embed": embed,
    "rank": rank,
}
