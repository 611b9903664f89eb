"""Ranking metrics against trec_eval, and readers of retrieval collections."""

from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from unmask.labels.formats.trec import is_qrels, queries_by_position, read_qrels, read_run, read_texts
from unmask.labels.records import Finding, open_source
from unmask.tasks.ranking import evaluate_run, mean_metrics, rank_order, ranking_metrics

NAMES = {
    "ndcg_cut_10": "ndcg@10", "recip_rank": "mrr", "map": "map",
    "recall_1": "recall@1", "recall_5": "recall@5", "recall_10": "recall@10", "recall_100": "recall@100",
}  # fmt: skip


def case(rng: np.random.Generator) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """Random run and qrels: ties, queries without relevant passages, unjudged or missing passages, grades below 0."""
    documents = [f"d{n}" for n in range(int(rng.integers(1, 40)))]
    levels = int(rng.choice([1, 2, 5, 1000]))  # few levels give many ties
    run, qrels = {}, {}
    for query in ("q1", "q2"):
        retrieved = rng.permutation(documents)[: int(rng.integers(1, len(documents) + 1))]
        judged = rng.permutation([*documents, "never found"])[: int(rng.integers(1, len(documents) + 2))]
        grades = [[0], [0, 1], [-1, 0, 1, 2, 3]][int(rng.integers(3))]
        run[query] = {str(d): float(rng.integers(levels)) / 8 for d in retrieved}
        qrels[query] = {str(d): int(rng.choice(grades)) for d in judged}
    return run, qrels


def test_metrics_match_trec_eval() -> None:
    rng = np.random.default_rng(0)
    for n in range(300):
        run, qrels = case(rng)
        theirs = pytrec_eval.RelevanceEvaluator(
            qrels, {"ndcg_cut.10", "recip_rank", "map", "recall.1,5,10,100"}
        ).evaluate(run)
        ours = evaluate_run(run, qrels)
        for query, values in theirs.items():
            metrics = {name: ours[query][our_name] for name, our_name in NAMES.items()}
            assert metrics == pytest.approx({name: values[name] for name in NAMES}, abs=1e-12), (n, query)


def test_missing_or_irrelevant_passages_score_zero() -> None:
    ours = evaluate_run({}, {"q": {"d": 1}})
    assert set(ours["q"].values()) == {0.0}
    assert set(ranking_metrics([0, 0], [0, 0]).values()) == {0.0}
    assert mean_metrics([]) == {}
    assert rank_order([1.0, 1.0, 1.0]).tolist() == [2, 1, 0]  # ties do not prefer the first passage of a file


def test_collections_are_read(tmp_path: Path) -> None:
    findings: list[Finding] = []

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    xml = "<doc>\n<docno>1</docno>\n<title>on wings</title>\n<text>on wings\nand &lt;flow&gt;</text>\n</doc>\n<doc>\n<docno>7</docno>\n<title>heat</title><text>of slabs</text></doc>\n"
    assert read_texts(write("d.xml", xml), findings) == {"1": "on wings and <flow>", "7": "heat of slabs"}
    top = "<?xml version='1.0'?>\n<xml>\n<top>\n<num> 4</num>\n<title>\nwhat is\nheat\n</title>\n</top>\n</xml>"
    assert read_texts(write("q.xml", top), findings) == {"4": "what is heat"}
    assert read_texts(write("p.jsonl", '{"_id": "a", "title": "T", "text": "x"}\n'), findings) == {"a": "T x"}
    assert read_texts(write("p.tsv", "10\tfirst text\n11\tsecond text\n"), findings) == {
        "10": "first text",
        "11": "second text",
    }
    assert read_texts(write("p.txt", "one\ntwo\n"), findings) == {"1": "one", "2": "two"}
    source = open_source(write("qrels.txt", "1 0 a 1\n1 0 b 0\n2 0 a 2\n"), findings)
    assert is_qrels(source) and [j[1:] for j in read_qrels(source, findings)] == [
        ("1", "a", 1.0), ("1", "b", 0.0), ("2", "a", 2.0)
    ]  # fmt: skip
    beir = open_source(write("qrels.tsv", "query-id\tcorpus-id\tscore\n1\ta\t1\n"), findings)
    assert is_qrels(beir) and read_qrels(beir, findings)[0][1:] == ("1", "a", 1.0)
    assert read_run(write("run.txt", "1 Q0 a 1 2.5 me\n"), findings) == {"1": {"a": 2.5}}
    assert is_qrels(open_source(write("one.txt", "1 Q0 a 1\n"), findings))
    for prose in ("he was then 7\nshe is now 12\n", "chapter 1 has 10\n", "page 1 of 10\npage 2 of 10\npage 3 of 10\n"):
        assert not is_qrels(open_source(write("prose.txt", prose), findings)), prose
    assert findings == []
    bad = open_source(write("bad.txt", "1 0 a 1\n1 0 b\n2 0 a x\n"), findings)
    read_qrels(bad, findings)
    read_texts(write("twice.jsonl", '{"id": 1, "text": "a"}\n{"id": 1, "text": ""}\n'), findings)
    assert [str(f).split(":", 1)[1].split(";")[0] for f in findings] == [
        "2: 3 fields instead of 4: 1 0 b", "3: relevance 'x' is not a number",
        "2: no text", "2: the id '1' occurs twice",
    ]  # fmt: skip
    assert queries_by_position(["9"], {"1": "a"}) is None
