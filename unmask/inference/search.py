"""Passage search: BM25 and sentence vectors find candidates, reciprocal rank fusion merges them, and a cross-encoder re-ranks them.

Every stage is optional. BM25 (text/bm25.py) uses lower-case words; Chinese text is split by the segmenter. The vector index is exact
(faiss, inner product of vectors of length 1). Fusion (Cormack et al. 2009) adds 1 / (60 + rank) over the stages, so their scores
need no common scale. The re-ranker scores the best `rerank` candidates.
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

CANDIDATES_PER_STAGE = 100  # passages
RRF_K = 60  # constant of reciprocal rank fusion; larger values reduce the weight of the first ranks
PASSAGES_PER_CHUNK = 256  # embedded between two progress updates
AnyModel = str | Path | Predictor | None


class Index:
    """Searchable passages.

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
        device: str = "auto",
        batch_size: int | None = None,
    ):
        texts = passages if isinstance(passages, Mapping) else {str(n): text for n, text in enumerate(passages, 1)}
        self.ids, self.texts = list(texts), list(texts.values())
        if not self.texts:
            raise UserError("no passages to search")
        self.embedder = _load_model(embedder, device, batch_size)
        self.reranker = _load_model(reranker, device, batch_size, "text-ranking")
        if not bm25 and self.embedder is None:
            raise UserError(
                "nothing to search with: BM25 is off, and no embedder is given",
                hint="remove --no-bm25 (bm25=False), or add --embedder MODEL",
            )
        console = console or Console(quiet=True)
        self.bm25 = _build_bm25(self.texts, console) if bm25 else None
        self.vectors = _build_vector_index(self.texts, self.embedder, console) if self.embedder else None

    def search(self, query: str, top_k: int = 10, rerank: int = 50) -> list[dict[str, Any]]:
        """Return the best passages: [{"rank", "id", "text", "score", and "STAGE_rank" for each stage that found it}, …]."""
        return self.search_all([query], top_k, rerank)[0]

    def search_all(
        self, queries: Sequence[str], top_k: int = 10, rerank: int = 50, console: Console | None = None
    ) -> list[list[dict[str, Any]]]:
        if top_k < 1:
            raise UserError(f"invalid top_k {top_k}", expected="1 or more")
        depth = min(len(self.texts), max(CANDIDATES_PER_STAGE, top_k))
        stages = {}
        if self.bm25 is not None:
            stages["bm25"] = [self.bm25.best(extract_terms(query), depth) for query in queries]
        if self.vectors is not None and self.embedder is not None:
            scores, passages = self.vectors.search(_embed(self.embedder, queries), depth)
            stages["vectors"] = [list(zip(p.tolist(), s.tolist())) for p, s in zip(passages, scores)]
        out = []
        with (console or Console(quiet=True)).bar("search") as update:
            for n, query in enumerate(queries):
                candidates = {name: results[n] for name, results in stages.items()}
                out.append(self._rank(query, candidates, top_k, rerank))
                update(n + 1, len(queries), "")
        return out

    def _rank(
        self, query: str, stages: Mapping[str, Sequence[tuple[int, float]]], top_k: int, rerank: int
    ) -> list[dict[str, Any]]:
        """Fuse and re-rank the candidates of each stage: (index of a passage, score), best first."""
        lists = list(stages.values())
        scores = dict(lists[0]) if len(lists) == 1 else fuse([[p for p, _ in candidates] for candidates in lists])
        best = sorted(scores, key=lambda p: (-scores[p], p))
        if self.reranker is not None and best:
            best = best[: max(rerank, top_k)]
            new_scores = self.reranker.predict([(query, [self.texts[p] for p in best])])[0]["scores"]
            scores = dict(zip(best, new_scores))
            best = [best[i] for i in rank_order(new_scores, [f"{len(best) - i:09d}" for i in range(len(best))])]
        ranks = {name: {p: n for n, (p, _) in enumerate(candidates, 1)} for name, candidates in stages.items()}
        return [
            {"rank": n, "id": self.ids[p], "text": self.texts[p], "score": float(scores[p])}
            | {f"{name}_rank": by_passage[p] for name, by_passage in ranks.items() if p in by_passage}
            for n, p in enumerate(best[:top_k], 1)
        ]


def check_arguments(query: str, queries: Any, output: Any) -> None:
    """Raise UserError unless there is a query, or a file of queries with a file of qrels or a run to write."""
    if queries and not query and not output:
        reason = "--queries needs --qrels FILE, to print metrics, or --save-run FILE, to write the results"
        raise UserError(reason, hint="add --save-run found.txt, for example")
    if bool(query) == bool(queries) or (output and not queries):
        options = "QUERY, or --queries FILE with --qrels FILE or --save-run FILE"
        raise UserError("give either a query or a file of queries", expected=options)


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
    """Return a list of hits for a query, or a list of lists for several queries. For repeated searches, keep an `Index`."""
    index = Index(passages, bm25, embedder, reranker, console)
    hits = index.search_all([query] if isinstance(query, str) else list(query), top_k, rerank, console)
    return hits[0] if isinstance(query, str) else hits


def fuse(lists: Sequence[Sequence[int]]) -> dict[int, float]:
    """Merge rankings by reciprocal rank fusion. Return passage → score.

    >>> {p: round(s, 4) for p, s in fuse([[7, 8], [8, 9]]).items()}
    {7: 0.0164, 8: 0.0325, 9: 0.0161}
    """
    scores: dict[int, float] = {}
    for passages in lists:
        for rank, passage in enumerate(passages, 1):
            scores[passage] = scores.get(passage, 0.0) + 1 / (RRF_K + rank)
    return scores


def search_run(index: Index, queries: Mapping[str, str], console: Console | None = None) -> dict[str, dict[str, float]]:
    """Return query → passage → score, best first, as in a TREC run. The score is the negative rank."""
    results = index.search_all(list(queries.values()), CANDIDATES_PER_STAGE, console=console)
    return {name: {hit["id"]: -float(hit["rank"]) for hit in hits} for name, hits in zip(queries, results)}


def write_run(path: str | Path, run: Mapping[str, Mapping[str, float]]) -> None:
    """Write a TREC run, which can be used as training candidates: `unmask finetune --task rank … --column candidates=FILE`."""
    lines = [
        f"{query} Q0 {passage} {rank} {score:g} unmask\n"
        for query, passages in run.items()
        for rank, (passage, score) in enumerate(passages.items(), 1)
    ]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_text(Path(path), "".join(lines))


def _build_bm25(texts: Sequence[str], console: Console) -> BM25:
    with console.bar("words") as update:
        terms = []
        for n, text in enumerate(texts, 1):
            terms.append(extract_terms(text))
            update(n, len(texts), "")
    if not any(terms):
        raise UserError("no word in any of the passages", hint="search with vectors only: --no-bm25 --embedder MODEL")
    return BM25(terms)


def _build_vector_index(texts: Sequence[str], model: Predictor, console: Console) -> Any:
    try:
        import faiss
    except ImportError:
        raise UserError("search needs faiss-cpu, which is not installed", hint="pip install 'unmask[search]'") from None
    index = faiss.IndexFlatIP(model.config.hidden)
    with console.bar("vectors") as update:
        for start in range(0, len(texts), PASSAGES_PER_CHUNK):
            index.add(_embed(model, texts[start : start + PASSAGES_PER_CHUNK]))
            update(min(start + PASSAGES_PER_CHUNK, len(texts)), len(texts), "")
    return index


def _embed(model: Predictor, texts: Sequence[str]) -> np.ndarray:
    """Return vectors (N, D) of length 1, so that the inner product is the cosine similarity."""
    return np.ascontiguousarray(l2_normalize(model.embed(list(texts))), np.float32)


def _load_model(model: AnyModel, device: str, batch_size: int | None, pipeline: str = "") -> Predictor | None:
    predictor = model
    if not isinstance(predictor, Predictor | None):
        predictor = load_predictor(predictor, device, batch_size=batch_size)
    if pipeline and predictor is not None:
        try:
            predictor.require_pipeline(pipeline)
        except UserError as error:
            raise UserError(f"{model} cannot re-rank passages: {error.message}", hint=error.hint) from None
    return predictor


@dataclass
class SearchFiles:
    """Passages, queries and relevance judgments (qrels), by their ids."""

    passages: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, float]]

    @classmethod
    def read(
        cls, passages: str, queries: Any = None, qrels: Any = None, columns: Mapping[str, str] | None = None
    ) -> "SearchFiles":
        """Read the files. `columns` are those of the passages, if they do not have the standard names."""
        findings: list[Finding] = []
        texts = read_texts(passages, findings, columns)
        query_texts = read_texts(str(queries), findings) if queries else {}
        judgments = read_qrels(open_source(str(qrels), findings), findings) if qrels else []
        if errors := [finding for finding in findings if finding.error]:
            raise UserError("\n".join(str(finding) for finding in errors[:20]))
        relevance: dict[str, dict[str, float]] = {}
        for j in judgments:
            relevance.setdefault(j.query, {})[j.passage] = j.relevance
        return cls(texts, queries_by_position([j.query for j in judgments], query_texts) or query_texts, relevance)


def evaluate_search(index: Index, files: SearchFiles, run: str | Path | None, console: Console) -> dict[str, Any]:
    """Return the metrics of a search against the qrels. Write the results to the file `run` if given."""
    results = search_run(index, files.queries, console)
    if run:
        write_run(run, results)
    qrels = {name: grades for name, grades in files.qrels.items() if name in files.queries}
    scores = mean_metrics(list(evaluate_run(results, qrels).values()))
    return {"records": len(qrels if files.qrels else files.queries), "passages": len(files.passages)} | scores
