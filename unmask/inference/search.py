"""Search over passages: BM25 and sentence vectors find candidates, reciprocal rank fusion joins them, a cross-encoder puts them in order.

Each stage may be left out. BM25 (text/bm25.py) reads lower-case words, Chinese ones as the segmenter cuts them. The
vectors' index is exact (faiss, inner product of vectors of length 1). Fusion (Cormack et al. 2009) adds 1 / (60 + place) over the
stages: places need no common scale. The re-ranker reads the best `rerank` of what was found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.console import Console
from unmask.errors import UserError
from unmask.files import write_text
from unmask.inference.predictor import Predictor
from unmask.inference.predictor import load as load_predictor
from unmask.labels.formats.trec import queries_by_position, read_qrels, read_texts
from unmask.labels.records import Finding, open_source
from unmask.numeric import l2_normalize
from unmask.tasks.ranking import evaluate_run, mean_metrics, rank_order
from unmask.text.bm25 import BM25, extract_terms

CANDIDATES_PER_STAGE = 100  # passages that each stage gives to the next
RRF_K = 60  # of the fusion: how much the first places differ
PASSAGES_PER_CHUNK = 256  # passages embedded between two signs of progress
AnyModel = str | Path | Predictor | None


class Index:
    """Passages that can be searched.

    >>> index = Index(["a list of numbers", "a class with methods"])
    >>> [hit["id"] for hit in index.search("which numbers?", top_k=1)]
    ['1']
    """

    def __init__(
        self,
        passages: Sequence[str] | Mapping[str, str],
        bm25: bool = True,
        embedder: AnyModel = None,
        reranker: AnyModel = None,
        console: Console | None = None,
    ):
        texts = passages if isinstance(passages, Mapping) else {str(n): text for n, text in enumerate(passages, 1)}
        self.ids, self.texts = list(texts), list(texts.values())
        if not self.texts:
            raise UserError("no passages to search")
        self.embedder, self.reranker = _model(embedder), _model(reranker, "text-ranking")
        if not bm25 and self.embedder is None:
            raise UserError("nothing to search with", hint="leave BM25 on, or give a model that embeds")
        console = console or Console(quiet=True)
        self.bm25 = _bm25(self.texts, console) if bm25 else None
        self.vectors = _vectors(self.texts, self.embedder, console) if self.embedder else None

    def search(self, query: str, top_k: int = 10, rerank: int = 50) -> list[dict[str, Any]]:
        """The best passages: [{"rank", "id", "text", "score", and the place in each stage that found it}, …]."""
        return self.search_all([query], top_k, rerank)[0]

    def search_all(
        self, queries: Sequence[str], top_k: int = 10, rerank: int = 50, console: Console | None = None
    ) -> list[list[dict[str, Any]]]:
        if top_k < 1:
            raise UserError(f"top_k {top_k}", expected="1 or more passages")
        depth = min(len(self.texts), max(CANDIDATES_PER_STAGE, top_k))
        stages = {}
        if self.bm25 is not None:
            stages["bm25"] = [self.bm25.best(extract_terms(query), depth) for query in queries]
        if self.vectors is not None and self.embedder is not None:
            scores, places = self.vectors.search(_embedded(self.embedder, queries), depth)
            stages["vectors"] = [list(zip(p.tolist(), s.tolist())) for p, s in zip(places, scores)]
        out = []
        with (console or Console(quiet=True)).bar("search") as update:
            for n, query in enumerate(queries):
                lists = {name: found[n] for name, found in stages.items()}
                out.append(self._answer(query, lists, top_k, rerank))
                update(n + 1, len(queries), "")
        return out

    def _answer(
        self, query: str, stages: Mapping[str, Sequence[tuple[int, float]]], top_k: int, rerank: int
    ) -> list[dict[str, Any]]:
        lists = list(stages.values())
        scores = dict(lists[0]) if len(lists) == 1 else fuse([[p for p, _ in found] for found in lists])
        best = sorted(scores, key=lambda p: (-scores[p], p))
        if self.reranker is not None:
            read = best[: max(rerank, top_k)]
            answer = self.reranker.predict([(query, [self.texts[p] for p in read])])[0] if read else {}
            given = answer.get("scores", ())
            scores = dict(zip(read, given))
            best = [read[i] for i in rank_order(given, [f"{len(read) - i:09d}" for i in range(len(read))])]
        places = {name: {p: n for n, (p, _) in enumerate(found, 1)} for name, found in stages.items()}
        return [
            {"rank": n, "id": self.ids[p], "text": self.texts[p], "score": float(scores[p])}
            | {f"{name}_rank": found[p] for name, found in places.items() if p in found}
            for n, p in enumerate(best[:top_k], 1)
        ]


def retrieve(
    query: str | Sequence[str],
    passages: Sequence[str] | Mapping[str, str],
    bm25: bool = True,
    embedder: AnyModel = None,
    reranker: AnyModel = None,
    top_k: int = 10,
    rerank: int = 50,
    console: Console | None = None,
) -> Any:
    """Search once: a list of hits for a query, a list of such lists for several. For many searches keep an `Index`."""
    index = Index(passages, bm25, embedder, reranker, console)
    found = index.search_all([query] if isinstance(query, str) else list(query), top_k, rerank, console)
    return found[0] if isinstance(query, str) else found


def fuse(lists: Sequence[Sequence[int]]) -> dict[int, float]:
    """Reciprocal rank fusion: passage → its score.

    >>> {p: round(s, 4) for p, s in fuse([[7, 8], [8, 9]]).items()}
    {7: 0.0164, 8: 0.0325, 9: 0.0161}
    """
    scores: dict[int, float] = {}
    for found in lists:
        for place, passage in enumerate(found, 1):
            scores[passage] = scores.get(passage, 0.0) + 1 / (RRF_K + place)
    return scores


def search_run(index: Index, queries: Mapping[str, str], console: Console | None = None) -> dict[str, dict[str, float]]:
    """Query → passage → score, best first, as `judge` and a TREC run have it."""
    hits = index.search_all(list(queries.values()), CANDIDATES_PER_STAGE, console=console)
    return {name: {hit["id"]: -float(hit["rank"]) for hit in found} for name, found in zip(queries, hits)}


def write_run(path: str | Path, run: Mapping[str, Mapping[str, float]]) -> None:
    """A run as TREC writes it: `unmask finetune --task rank … --column candidates=FILE` reads it."""
    lines = [
        f"{query} Q0 {passage} {place} {score:g} unmask\n"
        for query, found in run.items()
        for place, (passage, score) in enumerate(found.items(), 1)
    ]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_text(Path(path), "".join(lines))


def _bm25(texts: Sequence[str], console: Console) -> BM25:
    with console.bar("words") as update:
        cut = []
        for n, text in enumerate(texts, 1):
            cut.append(extract_terms(text))
            update(n, len(texts), "")
    if not any(cut):
        raise UserError("no word in any of the passages")
    return BM25(cut)


def _vectors(texts: Sequence[str], model: Predictor, console: Console) -> Any:
    try:
        import faiss
    except ImportError:
        raise UserError("search needs faiss-cpu", hint="pip install 'unmask[search]'") from None
    index = faiss.IndexFlatIP(model.config.hidden)
    with console.bar("vectors") as update:
        for start in range(0, len(texts), PASSAGES_PER_CHUNK):
            index.add(_embedded(model, texts[start : start + PASSAGES_PER_CHUNK]))
            update(min(start + PASSAGES_PER_CHUNK, len(texts)), len(texts), "")
    return index


def _embedded(model: Predictor, texts: Sequence[str]) -> np.ndarray:
    """Of length 1, whether or not the model makes them so: then the inner product is the cosine."""
    return np.ascontiguousarray(l2_normalize(model.embed(list(texts))), np.float32)


def _model(model: AnyModel, pipeline: str = "") -> Predictor | None:
    found = model if isinstance(model, Predictor) or model is None else load_predictor(model)
    if pipeline and found is not None:
        try:
            found.require_pipeline(pipeline)
        except UserError as error:
            raise UserError(f"{model} cannot put passages in order: {error.message}", hint=error.hint) from None
    return found


@dataclass
class SearchFiles:
    """What a search reads: passages, queries and judgements, each by its id."""

    passages: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, float]]

    @classmethod
    def read(
        cls, passages: str, queries: Any = None, judgements: Any = None, columns: Mapping[str, str] | None = None
    ) -> "SearchFiles":
        """`columns`: of the passages, where their names are not the usual ones."""
        findings: list[Finding] = []
        texts = read_texts(passages, findings, columns)
        asked = read_texts(str(queries), findings) if queries else {}
        judged = read_qrels(open_source(str(judgements), findings), findings) if judgements else []
        if errors := [finding for finding in findings if finding.error]:
            raise UserError("\n".join(str(finding) for finding in errors[:20]))
        qrels: dict[str, dict[str, float]] = {}
        for j in judged:
            qrels.setdefault(j.query, {})[j.passage] = j.relevance
        return cls(texts, queries_by_position([j.query for j in judged], asked) or asked, qrels)


def evaluate_search(index: Index, files: SearchFiles, run: str | Path | None, console: Console) -> dict[str, Any]:
    """The scores of a search by its judgements; what it found also goes to the file `run`."""
    found = search_run(index, files.queries, console)
    if run:
        write_run(run, found)
    known = {name: grades for name, grades in files.qrels.items() if name in files.queries}
    scores = mean_metrics(list(evaluate_run(found, known).values()))
    return {"records": len(known if files.qrels else files.queries), "passages": len(files.passages)} | scores
