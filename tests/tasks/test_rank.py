"""Re-ranking: file formats, the listwise loss against a plain loop, and the model directory against sentence-
transformers' CrossEncoder."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from near import near
from runs.tiny import WORDS
from sentence_transformers import CrossEncoder
from typer.testing import CliRunner

import unmask
from unmask.batch import StepConfig, collate
from unmask.cli import app
from unmask.errors import UserError
from unmask.labels.detect_task import pick_task
from unmask.labels.formats.trec import is_qrels, read_qrels, read_texts
from unmask.labels.records import Finding, open_source
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TaskRecipe
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import execute, resume
from unmask.runs.part import make_recipe
from unmask.tasks.objective import objective_of
from unmask.tasks.rank import form as judged
from unmask.tasks.rank.task import Rank
from unmask.text.store import TokenStore
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")

SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "max_positions": 64, "dropout": 0.0}
ROWS = [
    {"query": f"what is a {a}", "passage": f"{'it is' if a == b else 'here has'} the {b}", "relevance": int(a == b)}
    for a in WORDS
    for b in WORDS
]


@pytest.fixture(scope="module")
def base(store: TokenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "base"
    hf.save(
        Model(preset("bert-tiny", vocab_size=store.tokenizer.size, **SHAPE), ("mlm",)).init(0), path, store.tokenizer
    )
    return path


def task_of(store: TokenStore, **settings: Any) -> Rank:
    task = Rank(Recipe.build({"task": {"rank": settings}}), store.tokenizer, {"length": 32, "most": 2.0})
    task.bind(preset("bert-tiny", vocab_size=store.tokenizer.size, **SHAPE))
    return task


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def read(path: str, **task: Any) -> tuple[list[dict[str, Any]], list[str]]:
    findings: list[Finding] = []
    records = Rank.SPEC.data_format.read(open_source(path, findings), TaskRecipe(**task), findings)
    return records, [str(f).replace(f"{Path(path).parent}/", "").split(";")[0] for f in findings]


# ----------------------------------------------------------------------------------------------------------- files


def test_a_table_is_grouped_by_query(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("query,passage,relevance\nq1,a,1\nq2,b,0\nq1,c,0\nq2,d,x\nq3,,1\n", "utf-8")
    records, findings = read(str(tmp_path / "t.csv"))
    assert records[0] == {
        "location": f"{tmp_path}/t.csv:2",
        "query": "q1",
        "passages": ["a", "c"],
        "relevance": [1.0, 0.0],
    }
    assert findings[:2] == ["t.csv:5: relevance 'x' is not a number", "t.csv:6: no passage"]
    assert [f.split(":")[1] for f in findings[2:]] == ["3", "6"]  # queries without a useful comparison
    (tmp_path / "i.csv").write_text("query_id,query,passage,docid,label\n7,q1,a,d1,1\n7,other,c,d2,0\n", "utf-8")
    records, findings = read(str(tmp_path / "i.csv"))
    assert records[0]["ids"] == ["d1", "d2"] and "i.csv:3: the query with the id '7' differs" in findings[0]
    assert Rank.SPEC.data_format.matches(open_source(str(tmp_path / "t.csv"), []))


def test_lists_and_complete_records(tmp_path: Path) -> None:
    rows = [{"query": f"q{n}", "positives": [f"p{n}"], "negatives": [f"n{n}"] if n else []} for n in range(4)]
    path = lines(tmp_path / "l.jsonl", rows)
    records, findings = read(path, rank={"candidate_pool_size": 5})
    assert records[1]["passages"] == ["p1", "n1"] and records[1]["relevance"] == [1.0, 0.0]
    assert len(records[0]["passages"]) == 5 and records[0]["relevance"] == [1.0, 0, 0, 0, 0]
    assert len(set(records[0]["passages"])) == 5 and "random ones were added" in findings[0]
    assert records == read(path, rank={"candidate_pool_size": 5})[0]  # sampled once, and the same each time
    records, findings = read(lines(tmp_path / "w.jsonl", [{"query": "q", "passages": ["a", "b"], "relevance": [1]}]))
    assert findings[0] == "w.jsonl:1: 2 passages, but 1 relevances"
    assert pick_task(TaskRecipe(), [open_source(path, [])]).name == "rank"


def test_trec_qrels(tmp_path: Path) -> None:
    (tmp_path / "qrels.txt").write_text("1 0 a 2\n1 0 b 0\n2 0 c 1\n2 0 gone 1\n", "utf-8")
    passages = lines(tmp_path / "p.jsonl", [{"_id": i, "text": f"text {i}"} for i in "abcdefgh"])
    (tmp_path / "q.tsv").write_text("10\tfirst\n20\tsecond\n", "utf-8")
    columns = {"queries": str(tmp_path / "q.tsv"), "passages": passages}
    records, findings = read(str(tmp_path / "qrels.txt"), columns=columns, rank={"candidate_pool_size": 4})
    assert [r["query"] for r in records] == ["first", "second"]  # matched by position: 1 and 2, not 10 and 20
    assert "counted from 1" in findings[0] and findings[1] == "qrels.txt:4: no passage has the id 'gone'"
    assert records[0]["ids"][:2] == ["a", "b"] and records[0]["relevance"] == [2.0, 0.0, 0.0, 0.0]
    (tmp_path / "run.txt").write_text("1 Q0 h 1 3.0 x\n1 Q0 a 2 2.0 x\n2 Q0 g 1 1.0 x\n", "utf-8")
    records, _ = read(str(tmp_path / "qrels.txt"), columns=columns | {"candidates": str(tmp_path / "run.txt")})
    assert [r["ids"] for r in records] == [["a", "b", "h"], ["c", "g"]]
    (tmp_path / "twice.txt").write_text("1 0 a 2\n1 0 a 0\n2 0 a 1\n", "utf-8")
    records, findings = read(str(tmp_path / "twice.txt"), columns=columns, rank={"candidate_pool_size": 1})
    assert [(r["ids"], r["relevance"]) for r in records] == [(["a"], [2.0]), (["a"], [1.0])]
    assert sum("judged twice" in f for f in findings) == 1
    with pytest.raises(UserError, match="queries are in another file"):
        read(str(tmp_path / "qrels.txt"))
    assert pick_task(TaskRecipe(), [open_source(str(tmp_path / "qrels.txt"), [])]).name == "rank"


def test_qrels_with_an_invalid_line_are_still_recognized(tmp_path: Path) -> None:
    file = tmp_path / "qrels.txt"
    file.write_text("1 0 a 1\n1 0 b 0\n2 0 a\n2 0 b 1\n3 0 a 1\n")
    findings: list[Finding] = []
    source = open_source(str(file), findings)
    assert is_qrels(source) and len(read_qrels(source, findings)) == 4
    assert [f.location for f in findings] == [f"{file}:3"]
    file.write_text("a film of 1\nso it was\nno\n")
    assert not is_qrels(open_source(str(file), []))


def test_single_line_file_needs_no_header(tmp_path: Path) -> None:
    findings: list[Finding] = []
    for name, text in (("q.tsv", "7\twhat is a wing"), ("q.csv", "7,what is a wing")):
        (tmp_path / name).write_text(text + "\n")
        assert read_texts(str(tmp_path / name), findings) == {"7": "what is a wing"} and not findings
    (tmp_path / "head.tsv").write_text("id\ttext\n")
    assert not read_texts(str(tmp_path / "head.tsv"), findings) and findings[0].kind == "empty"


def test_sampling_passages_does_not_scan_all_of_them() -> None:
    """200 queries over 100,000 passages: 20 for each, without duplicates, uniform over the collection."""
    passages = {str(n): f"text {n}" for n in range(100_000)}
    records = [{"location": "f:1", "query": f"q{n}", "passages": ["text 5"], "relevance": [1.0], "ids": ["5"]} for n in range(200)]  # fmt: skip
    start_time = time.perf_counter()
    judged._add_random_passages(records, passages, 20, [])
    assert time.perf_counter() - start_time < 1.0
    assert all(len(set(r["ids"])) == len(r["passages"]) == 20 and r["relevance"][1:] == [0.0] * 19 for r in records)
    assert len({tuple(r["ids"]) for r in records}) == 200
    tenths = np.bincount([int(i) // 10_000 for r in records for i in r["ids"][1:]], minlength=10)
    assert tenths.min() > 300 and tenths.max() < 460  # 380 each


# ------------------------------------------------------------------------------------------------------------- loss


def test_listwise_loss_is_a_softmax_over_one_relevant_and_less_relevant_passages(store: TokenStore) -> None:
    model = Model(preset("bert-tiny", vocab_size=store.tokenizer.size, labels=("relevance",), **SHAPE), ("classify",))
    model.init(0).eval()
    task = task_of(store)
    records = [
        {
            "query": "what is a list",
            "passages": ["a list", "numbers in order", "a class", "x"],
            "relevance": [2, 1, 0, -1],
        },
        {"query": "a class", "passages": ["methods", "strings"], "relevance": [0, 1]},
        {"query": "nothing", "passages": ["methods", "strings"], "relevance": [0, 0]},
    ]
    examples = [e for r in records for e in task.encode(r)]
    assert [1 + len(e.grouped_rows) for e in examples] == [
        4,
        3,
        2,
    ]  # grade 2 above three, grade 1 above two; the last query: none
    batch = collate(examples, store.tokenizer.pad)
    total, count = objective_of(task).loss(model, batch)["rank"]
    expected = 0.0
    for e in examples:
        scores = task.forward(model, collate([e], store.tokenizer.pad))
        expected += float(F.cross_entropy(scores[None].detach(), torch.tensor([0])))
    assert count == objective_of(task).target_counts(batch)["rank"] == 3 and float(total.detach()) == pytest.approx(
        expected, rel=1e-5
    )
    point = task_of(store, loss="pointwise")
    batch = collate([e for r in records for e in point.encode(r)], store.tokenizer.pad)
    total, count = objective_of(point).loss(model, batch)["rank"]
    grades = torch.tensor([1.0, 0.5, 0, 0, 0, 0.5, 0, 0])
    scores = point.forward(model, batch)
    assert count == 8
    assert float(total.detach()) == pytest.approx(
        float(F.binary_cross_entropy_with_logits(scores, grades, reduction="sum").detach())
    )


def test_negatives_are_resampled(store: TokenStore) -> None:
    task = task_of(store, num_negatives=2)
    (example,) = task.encode({"query": "q", "passages": list("abcdefgh"), "relevance": [1] + [0] * 7})
    sampled = [
        objective_of(task).corrupt(example, np.random.default_rng(n), StepConfig(0, 32)).grouped_rows for n in range(40)
    ]
    assert all(len(more) == 2 for more in sampled)
    assert len({tuple(row.input_ids.tobytes() for row in more) for more in sampled}) > 10
    assert len({row.input_ids.tobytes() for more in sampled for row in more}) == 7


# --------------------------------------------------------------------------------------------------- file to folder


def test_trained_model_reloads_and_loads_as_cross_encoder(base: Path, tmp_path: Path) -> None:
    train = lines(tmp_path / "train.jsonl", ROWS)
    run = unmask.finetune(
        base, train=train, epochs=25, batch_size=4, lr=3e-3, out=tmp_path / "run", overrides=["task.dev_fraction=0.01"]
    )
    scores = unmask.evaluate(run.path, train)
    assert scores["metric"] == "ndcg@10" and scores["ndcg@10"] > 0.8 and scores["mrr"] > 0.7
    model = unmask.load(run.path)
    passages = [row["passage"] for row in ROWS[:8]]
    answer = model("what is a tuple", *passages)
    theirs = CrossEncoder(str(run.model), device="cpu")
    assert answer["scores"] == near(theirs.predict([("what is a tuple", p) for p in passages]).tolist(), 1e-5)
    assert [answer["scores"][n] for n in answer["order"]] == sorted(answer["scores"], reverse=True)
    assert unmask.load(run.model)("what is a tuple", *passages) == answer
    result = CliRunner().invoke(app, ["predict", str(run.path), "what is a tuple", *passages, "--json"])
    assert json.loads(result.stdout)[0]["scores"] == near(answer["scores"], 1e-5)
    (run.model / "unmask.json").unlink()  # as a folder from elsewhere
    foreign = unmask.load(run.model)
    assert foreign.task is not None and foreign.task.name == "rank"
    assert foreign("what is a tuple", *passages)["scores"] == near(answer["scores"], 1e-5)


def test_resumed_run_equals_an_uninterrupted_one(base: Path, tmp_path: Path) -> None:
    train = lines(tmp_path / "train.jsonl", ROWS)

    def recipe() -> Recipe:
        values = {
            "init_from": str(base),
            "task": {"name": "rank", "train": [train], "dev": [], "rank": {"num_negatives": 3}},
        }
        return make_recipe(values | {"train": {"steps": 4, "batch_size": 4, "save_steps": 2, "save_total_limit": 5}})

    whole, cut = (Run(tmp_path / name) for name in ("whole", "cut"))
    execute(Finetune(), recipe(), Context.single_process(), whole.path)
    execute(Finetune(), recipe(), Context.single_process(), cut.path)
    (cut.path / "results.json").unlink()  # as if killed after the first checkpoint
    for folder in cut.checkpoints.glob("*"):
        if not folder.name.endswith("2"):
            shutil.rmtree(folder)
    assert [p.name for p in cut.checkpoints.iterdir()] == ["step-00000002"]
    shutil.rmtree(cut.model)
    resume(cut, Context.single_process())
    assert (cut.model / "model.safetensors").read_bytes() == (whole.model / "model.safetensors").read_bytes()


def test_query_without_passages_raises(store: TokenStore) -> None:
    with pytest.raises(UserError, match="no passages"):
        task_of(store).encode({"query": "q", "passages": []}, labeled=False)
