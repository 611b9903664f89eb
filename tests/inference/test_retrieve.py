"""Search: each stage compared with its definition, rank fusion, input files, and errors for missing parts."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from near import near
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.console import Console
from unmask.errors import UserError
from unmask.inference.predictor import Predictor
from unmask.inference.search import Index, SearchFiles, evaluate_search, fuse, retrieve
from unmask.labels.formats.trec import read_run
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.tasks.embed.task import Embed
from unmask.tasks.rank.task import Rank
from unmask.text.bm25 import extract_terms
from unmask.text.store import TokenStore

PASSAGES = {
    "d1": "a list of numbers is sorted in place",
    "d2": "the class has methods and a list of bases",
    "d3": "strings are immutable sequences",
    "d4": "我们昨天在学校的图书馆里读书",
    "d5": "modules are imported once",
}
SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "max_positions": 64}


@pytest.fixture(scope="module")
def models(store: TokenStore) -> tuple[Predictor, Predictor]:
    config = preset("bert-tiny", vocab_size=store.tokenizer.size, labels=("relevance",), **SHAPE)
    task_state = {"length": 32, "pooling": "mean", "normalised": True, "lower": False, "prompt": "", "loss": "pairs"}
    embed = Embed(Recipe(), store.tokenizer, task_state)
    rank = Rank(Recipe(), store.tokenizer, {"length": 32, "most": 1.0})
    return (
        Predictor(Model(config, ()).init(1), store.tokenizer, "cpu", embed),
        Predictor(Model(config, ("classify",)).init(2), store.tokenizer, "cpu", rank),
    )


def bm25(query: list[str], texts: list[list[str]], k1: float = 1.5, b: float = 0.75) -> list[float]:
    """Reference BM25 in the variant of Lucene, the default of bm25s."""
    average = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        total = 0.0
        for word in query:
            document_frequency = sum(word in t for t in texts)
            if not document_frequency:
                continue
            count = text.count(word)
            idf = math.log(1 + (len(texts) - document_frequency + 0.5) / (document_frequency + 0.5))
            total += idf * count / (count + k1 * (1 - b + b * len(text) / average))
        scores.append(total)
    return scores


def test_bm25_equals_its_definition() -> None:
    index = Index(PASSAGES)
    for query in ("a list of numbers", "the class", "学校的图书馆", "strings imported"):
        expected = bm25(extract_terms(query), [extract_terms(t) for t in PASSAGES.values()])
        hits = index.search(query)
        assert {h["id"]: h["score"] for h in hits} == pytest.approx(
            {i: s for i, s in zip(PASSAGES, expected) if s > 0}, rel=1e-5
        )
        assert [h["score"] for h in hits] == sorted((h["score"] for h in hits), reverse=True)
        assert [h["rank"] for h in hits] == list(range(1, len(hits) + 1))
    assert index.search("学校的图书馆")[0]["id"] == "d4"
    assert [h["id"] for h in index.search("xyzzy strings plugh")] == ["d3"], (
        "passages without a common word are left out"
    )
    assert index.search("xyzzy") == []


def test_vector_search_is_exact_and_stages_are_fused(models: tuple[Predictor, Predictor]) -> None:
    embedder, reranker = models
    texts = list(PASSAGES.values())
    query = "a list of numbers"
    cosine = embedder.similarity(query, texts)
    alone = retrieve(query, PASSAGES, bm25=False, embedder=embedder)
    assert [h["score"] for h in alone] == near(sorted(cosine.tolist(), reverse=True), 1e-5)
    assert [h["id"] for h in alone] == [list(PASSAGES)[i] for i in np.argsort(-cosine)]
    both = retrieve(query, PASSAGES, embedder=embedder)
    first = [h["id"] for h in retrieve(query, PASSAGES)]
    assert fuse([[7, 8], [8, 9]]) == pytest.approx({7: 1 / 61, 8: 1 / 62 + 1 / 61, 9: 1 / 62})
    expected = fuse([[list(PASSAGES).index(i) for i in ids] for ids in (first, [h["id"] for h in alone])])
    assert {h["id"]: h["score"] for h in both} == pytest.approx({list(PASSAGES)[p]: s for p, s in expected.items()})
    assert both[0]["bm25_rank"] >= 1 and both[0]["vectors_rank"] >= 1
    ranked = retrieve(query, PASSAGES, embedder=embedder, reranker=reranker, top_k=3)
    scores = reranker(query, *texts)["scores"]
    assert [h["score"] for h in ranked] == near(sorted(scores, reverse=True)[:3], 1e-5)
    several = retrieve([query, "strings"], PASSAGES, embedder=embedder, top_k=2)
    assert [len(s) for s in several] == [2, 2] and several[0] == both[:2]


@pytest.mark.parametrize("is_task", [False, True])
def test_unnormalized_vectors_are_compared_by_cosine(store: TokenStore, is_task: bool) -> None:
    """For a model without a task, and for one whose directory disables normalization."""
    config = preset("bert-tiny", vocab_size=store.tokenizer.size, **SHAPE)
    model = Model(config, ()).init(1)
    with torch.no_grad():  # so that vectors differ in length
        for parameter in model.parameters():
            parameter.mul_(3 * torch.rand(parameter.shape, generator=torch.Generator().manual_seed(0)))
    task_state = {"length": 32, "pooling": "mean", "normalised": False, "lower": False, "prompt": "", "loss": "pairs"}
    task = Embed(Recipe(), store.tokenizer, task_state) if is_task else None
    embedder, texts, query = Predictor(model, store.tokenizer, "cpu", task), list(PASSAGES.values()), "a list"
    lengths = np.linalg.norm(embedder.embed(texts), axis=1)
    assert lengths.max() > 1.02 * lengths.min() > 2
    hits = retrieve(query, PASSAGES, bm25=False, embedder=embedder)
    cosine = embedder.similarity(query, texts)
    assert [h["score"] for h in hits] == near(sorted(cosine.tolist(), reverse=True), 1e-5)
    assert [h["id"] for h in hits] == [list(PASSAGES)[i] for i in np.argsort(-cosine)]


def test_search_is_evaluated() -> None:
    queries = {"1": "sorted numbers", "2": "imported modules", "3": "not judged"}
    qrels = {"1": {"d1": 1.0}, "2": {"d5": 1.0, "d3": 1.0}}
    metrics = evaluate_search(Index(PASSAGES), SearchFiles(PASSAGES, queries, qrels), None, Console(quiet=True))
    assert metrics["mrr"] == 1.0 and metrics["recall@1"] == 0.75 and metrics["recall@10"] == 0.75


def test_search_command_searches_and_evaluates(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in PASSAGES.items()))
    (tmp_path / "q.tsv").write_text("7\tsorted numbers\n9\timported modules\n")
    (tmp_path / "qrels.txt").write_text("1 0 d1 1\n2 0 d5 1\n")  # by position, as in Cranfield
    run = CliRunner().invoke(app, ["search", str(tmp_path / "p.jsonl"), "sorted numbers", "--top-k", "1", "--json"])
    assert run.exit_code == 0 and json.loads(run.stdout)[0]["id"] == "d1"
    shown = CliRunner().invoke(app, ["search", str(tmp_path / "p.jsonl"), "sorted numbers"])
    assert "d1  a list of numbers" in shown.stdout
    files = ["--queries", str(tmp_path / "q.tsv"), "--qrels", str(tmp_path / "qrels.txt")]
    run = CliRunner().invoke(app, ["search", str(tmp_path / "p.jsonl"), *files, "--json"])
    assert json.loads(run.stdout)["mrr"] == 1.0
    run_file = str(tmp_path / "new" / "run.txt")  # the directory is created
    run = CliRunner().invoke(app, ["search", str(tmp_path / "p.jsonl"), *files, "--save-run", run_file])
    assert run.exit_code == 0 and "mrr" in run.stdout and run.stdout.rstrip().endswith(run_file)
    ranking = read_run(run_file, findings := [])
    assert not findings and list(ranking) == ["1", "2"] and next(iter(ranking["1"])) == "d1"  # query IDs of the qrels
    run = CliRunner().invoke(app, ["search", str(tmp_path / "p.jsonl"), *files[:2], "--save-run", run_file])
    assert run.exit_code == 0 and list(read_run(run_file, [])) == ["7", "9"]
    wrong = CliRunner().invoke(app, ["search", str(tmp_path / "p.jsonl")])
    assert wrong.exit_code == 2 and "give either a query" in wrong.output and "QUERY, or --queries FILE" in wrong.output


def test_missing_inputs_and_packages_raise(
    monkeypatch: pytest.MonkeyPatch, models: tuple[Predictor, Predictor]
) -> None:
    with pytest.raises(UserError, match="nothing to search with"):
        Index(PASSAGES, bm25=False)
    with pytest.raises(UserError, match="no passages"):
        Index([])
    with pytest.raises(UserError, match="cannot re-rank passages"):
        Index(PASSAGES, reranker=models[0])
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match="search needs faiss-cpu") as error:
        Index(PASSAGES, bm25=False, embedder=models[0])
    assert "unmask[search]" in str(error.value.hint)


def test_search_reads_its_files_first_and_names_a_wrong_reranker(store: TokenStore, tmp_path: Path) -> None:
    hf.save(Model(preset("bert-tiny", vocab_size=store.tokenizer.size, **SHAPE)), tmp_path / "mlm", store.tokenizer)
    (tmp_path / "p.txt").write_text("a list of numbers\n")
    options = ["--reranker", str(tmp_path / "mlm"), "--batch-size", "2"]
    wrong = CliRunner().invoke(app, ["search", str(tmp_path / "p.txt"), "numbers", *options])
    assert wrong.exit_code == 2 and f"{tmp_path / 'mlm'} cannot re-rank" in wrong.output.replace("\n", " "), (
        wrong.output
    )
    missing = CliRunner().invoke(app, ["search", str(tmp_path / "none.txt"), "numbers", "--reranker", "nowhere"])
    assert missing.exit_code == 2 and "none.txt" in missing.output and "nowhere" not in missing.output


def test_retrieve_is_a_public_function() -> None:
    assert unmask.retrieve("numbers", ["a class", "a list of numbers"])[0]["id"] == "2"


def test_two_named_columns_are_not_read_as_id_and_text(tmp_path: Path) -> None:
    """For a review and its label, the reviews are searched, not the labels."""
    from unmask.labels.formats.trec import read_texts

    for head in ("review,sentiment", "评论,标签"):
        (tmp_path / "a.csv").write_text(f"{head}\na long and dull film,bad\na joy to watch,good\n", "utf-8")
        assert read_texts(str(tmp_path / "a.csv"), []) == {"1": "a long and dull film", "2": "a joy to watch"}
    (tmp_path / "b.csv").write_text("words,verdict\na long and dull film,bad\na joy to watch,good\n", "utf-8")
    with pytest.raises(UserError, match="no column for 'text'") as caught:
        read_texts(str(tmp_path / "b.csv"), [])
    assert caught.value.hint == "pass --column text=NAME"
    flags = [str(tmp_path / "b.csv"), "dull", "--column", "text=words"]
    assert "a long and dull film" in CliRunner().invoke(app, ["search", *flags]).output  # following the hint works
    assert (
        "no passage contains a word of the query"
        in CliRunner().invoke(app, ["search", *flags[:1], "sea", *flags[2:]]).output
    )
    (tmp_path / "c.tsv").write_text("7\ta long and dull film\n9\ta joy to watch\n", "utf-8")
    assert list(read_texts(str(tmp_path / "c.tsv"), [])) == ["7", "9"]
