"""Classification with one label, several labels or a number: encoding, decoding, scores, windows of long texts, and
loading in transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from near import near
from runs.tiny import train
from transformers import AutoModelForSequenceClassification

from unmask.batch import StepConfig, collate
from unmask.errors import UserError
from unmask.inference.predictor import load
from unmask.labels.record_sets import RecordSets
from unmask.labels.records import Finding, Source, open_source
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TaskRecipe, TokenizerRecipe
from unmask.runs.finetune import run_banner
from unmask.runs.part import Part, make_recipe, prepare
from unmask.tasks import terms
from unmask.tasks.classify import cells as labels
from unmask.tasks.classify import targets
from unmask.tasks.classify.task import Classify
from unmask.tasks.objective import objective_of
from unmask.tasks.task import Outputs
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")

RECIPE = Recipe.build({"train": {"epochs": 12, "batch_size": 8, "max_length": 32, "optimizer": "adamw", "lr": 3e-3}})
RECORDS = [
    {
        "location": f"made:{i}",
        "text": f"{'sorted list of numbers' if i % 2 else 'class with methods'} {i}",
        "label": "list" if i % 2 else "class",
    }
    for i in range(40)
]


def task_of(store: TokenStore, length: int = 32, **settings: Any) -> Classify:
    recipe = RECIPE.model_copy(update={"task": RECIPE.task.model_copy(update={"overflow": "truncate", **settings})})
    return Classify(recipe, store.tokenizer, {"labels": ["list", "class"], "length": length})


def test_windows_cover_the_text_and_are_averaged(store: TokenStore) -> None:
    task = task_of(store, 16, overflow="window")
    text = "the list of numbers is sorted in place by a method of the class and then it is returned " * 3
    rows = task.encode({"text": text}, labeled=False)
    ids = store.tokenizer.encode(text)
    assert len(rows) == -(-len(ids) // 14) and task.windowing.tally.overflowing.total() == 1
    assert all(
        len(r) == 16 and r.input_ids[0] == store.tokenizer.cls and r.input_ids[-1] == store.tokenizer.sep for r in rows
    )
    assert rows[0].input_ids[1:-1].tolist() == ids[:14] and rows[-1].input_ids[1:-1].tolist() == ids[-14:]
    assert len(task_of(store, 16).encode({"text": text}, labeled=False)) == 1
    logits = np.array([[2.0, 0.0], [0.0, 5.0], [1.0, 0.0]])
    answers = task.decode(Outputs(list(logits), rows, np.array([0, 0, 1])))
    assert [a["label"] for a in answers] == ["class", "list"]
    assert answers[1]["probability"] == pytest.approx(1 / (1 + np.exp(-1)))


def test_token_masks_are_resampled_and_never_special_tokens(store: TokenStore) -> None:
    task = task_of(store, 64, token_mask_rate=0.25)
    (row,) = task.encode(
        {"text": "the list of numbers is sorted in place by a method of the class " * 4}, labeled=False
    )
    outs = [objective_of(task).corrupt(row, np.random.default_rng(n), StepConfig(0, 64)) for n in range(200)]
    fraction = np.mean([(o.input_ids == store.tokenizer.mask).sum() / (len(row) - 2) for o in outs])
    assert fraction == pytest.approx(0.25, abs=0.02)
    assert all(o.input_ids[0] == store.tokenizer.cls and o.input_ids[-1] == store.tokenizer.sep for o in outs)
    assert len({o.input_ids.tobytes() for o in outs}) == 200
    assert (
        objective_of(task_of(store)).corrupt(row, np.random.default_rng(0), StepConfig(0, 64)).input_ids.tolist()
        == row.input_ids.tolist()
    )


def test_pairs_have_segments(store: TokenStore) -> None:
    (row,) = task_of(store).encode({"text": "a list", "pair": "of numbers", "label": "list"})
    first = int(np.flatnonzero(row.input_ids == store.tokenizer.sep)[0])
    assert row.token_type_ids is not None
    assert (row.token_type_ids[: first + 1] == 0).all() and (row.token_type_ids[first + 1 :] == 1).all()
    assert row.labels["classify.targets"].tolist() == [0]


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini"])
def test_trained_model_is_saved_and_loads_in_transformers(name: str, store: TokenStore, tmp_path: Path) -> None:
    shape = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "labels": ("list", "class"), "dropout": 0.0}
    pooling = {"pooling": "mean"} if name.startswith("modern") else {}
    model = Model(preset(name, vocab_size=store.tokenizer.size, **shape, **pooling), ("classify",)).init(0)
    task = task_of(store)
    before = task.score(task.predict(model, RECORDS), RECORDS)["accuracy"]
    run = train(Part(task.recipe, task, model, RecordSets(RECORDS, [], []), []), tmp_path / "run")
    answers = task.predict(model, RECORDS)
    assert before < 0.8 and task.score(answers, RECORDS)["accuracy"] > 0.95
    theirs, loading_info = AutoModelForSequenceClassification.from_pretrained(run.model, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    assert theirs.config.id2label == {0: "list", 1: "class"}
    batch = collate([e for r in RECORDS[:6] for e in task.encode(r)], store.tokenizer.pad)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    with torch.no_grad():
        logits = theirs.eval()(**inputs).logits.softmax(-1)
    assert [a["scores"]["list"] for a in answers[:6]] == near(logits[:, 0].tolist(), 1e-5)


# -------------------------------------------------------------------------------------------------------- targets

SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64}
TOPICS = {"a": "sorted list of numbers", "b": "class with methods", "c": "open a file"}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(
        [f"{text} {n}" for text in TOPICS.values() for n in range(60)], TokenizerRecipe(vocab_size=120)
    )


@pytest.fixture(scope="module")
def start(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model to fine-tune."""
    folder = tmp_path_factory.mktemp("start")
    shape = {**SHAPE, "max_positions": 32, "pooling": "mean"}
    hf.save(Model(preset("modernbert-mini", vocab_size=tokenizer.size, **shape), ("mlm",)).init(1), folder, tokenizer)
    return folder


def rows_of(target: str, first: int = 0, end: int = 48) -> list[dict[str, Any]]:
    rows = []
    for n in range(first, end):
        chosen = [name for k, name in enumerate(TOPICS) if n >> k & 1]
        text = " ".join(TOPICS[name] for name in chosen) or "nothing of the kind"
        label: Any = chosen
        if target == "single_label":
            name = "abc"[n % 3]
            text, label = TOPICS[name], name
        elif target == "regression":
            label = 1000 + 250.5 * len(chosen) + n / 1000
        rows.append({"text": f"{text} {n}", "label": label})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize(("target", "problem", "min_score"), [
    ("single_label", "single_label_classification", 0.99),
    ("multi_label", "multi_label_classification", 0.97),
    ("regression", "regression", 0.97),
])  # fmt: skip
def test_each_problem_type_trains_reloads_bit_exactly_and_loads_in_transformers(
    target: str, problem: str, min_score: float, start: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "train.jsonl", rows_of(target))
    dev = write(tmp_path / "dev.jsonl", rows_of(target, 48, 72))
    values = {"init_from": str(start), "task": {"train": [str(file)], "dev": [str(dev)]}}
    recipe = make_recipe(values, ["train.lr=0.005", "train.epochs=20", "train.num_evals=4", "task.patience=0"])
    run = train(job := prepare(recipe), tmp_path / "run")
    results = run.results()
    assert job.recipe.task.classify.problem_type == target
    records, metric = job.sets.train, results["metric"]
    assert job.task.score(job.task.predict(job.model, records), records)[metric] > min_score
    assert metric == job.task.spec.metric() and results["dev"][metric] > 0.5, results
    direct, reloaded = job.task.predict(job.model, records), load(run.model).predict(records)
    assert direct == reloaded  # bit-exact
    raw = json.loads((run.model / "config.json").read_text())
    assert raw["problem_type"] == problem
    theirs, loading_info = AutoModelForSequenceClassification.from_pretrained(run.model, output_loading_info=True)
    assert (
        not loading_info["missing_keys"]
        and not loading_info["unexpected_keys"]
        and theirs.config.problem_type == problem
    )
    batch = collate([e for r in records[:8] for e in job.task.encode(r, labeled=False)], job.task.tokenizer.pad)
    with torch.no_grad():
        mask = torch.ones_like(batch.input_ids) if batch.attention_mask is None else batch.attention_mask.long()
        logits = theirs.eval()(input_ids=batch.input_ids, attention_mask=mask).logits.double().numpy()
    ours = np.stack(job.task.compute_outputs(job.model, records[:8]).values)
    assert logits == near(ours, 1e-4)
    if target == "regression":  # the logit is the prediction, in the units of the file
        assert logits[:, 0] == pytest.approx([a["value"] for a in direct[:8]], rel=1e-5)
        assert abs(direct[7]["value"] - records[7]["label"]) < 250
    else:
        t = job.task.task_state["temperature"]
        p = (
            torch.from_numpy(logits / t).softmax(-1)
            if target == "single_label"
            else torch.from_numpy(logits / t).sigmoid()
        )
        assert [list(a["scores"].values()) for a in direct[:8]] == [near(x, 1e-5) for x in p.tolist()]
    (run.model / "unmask.json").unlink()  # the problem_type of a folder from elsewhere gives the target
    task = load(run.model).task
    assert isinstance(task, Classify) and type(task.target_type) is targets.TARGETS[target]
    assert task.settings.classify.problem_type == target  # its problem type also applies to other files


@pytest.mark.parametrize("target", ["single_label", "multi_label", "regression"])
def test_windows_of_a_long_text_are_pooled(target: str, store: TokenStore) -> None:
    task_state = {"target": target, "labels": ["x"] if target == "regression" else ["x", "y"], "length": 16}
    recipe = Recipe.build({"task": {"overflow": "window"}})
    task = Classify(recipe, store.tokenizer, task_state)
    shape = {**SHAPE, "dropout": 0.0, "vocab_size": store.tokenizer.size}
    model = Model(preset("bert-tiny", **shape, **task.bound.config_overrides), ("classify",)).init(3)
    records = [{"text": "short"}, {"text": "the list of numbers is sorted in place by a method of the class " * 3}]
    outputs = task.compute_outputs(model, records)
    assert np.bincount(outputs.record_index).tolist()[0] == 1 and np.bincount(outputs.record_index)[1] > 2
    mean = np.stack(outputs.values)[outputs.record_index == 1].astype(np.float64).mean(0)
    answer = task.decode(outputs)[1]
    if target == "regression":
        assert answer["value"] == pytest.approx(mean[0])
    else:
        p = np.exp(mean) / np.exp(mean).sum() if target == "single_label" else 1 / (1 + np.exp(-mean))
        assert list(answer["scores"].values()) == pytest.approx(p.tolist())


def test_losses_match_torch_and_rare_labels_have_larger_weights() -> None:
    logits = torch.tensor([[1.0, -2.0], [0.5, 0.1]])
    one = targets.SingleLabel({"labels": ["x", "y"], "weights": [0.5, 2.0]})
    each = -logits.log_softmax(-1)[[0, 1], [1, 0]]
    assert float(
        terms.CrossEntropy(logits=logits, targets=torch.tensor([1, 0]), class_weights=one.weights).loss()
    ) == pytest.approx(float(each[0] * 2 + each[1] * 0.5))
    assert one.metric == "macro_f1" and targets.SingleLabel({"labels": ["x", "y"]}).metric == "accuracy"
    multi_label = targets.MultiLabel({"labels": ["x", "y"]})
    multi_targets = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    p = logits.sigmoid()
    bce = -(multi_targets * p.log() + (1 - multi_targets) * (1 - p).log()).sum()  # over labels and rows
    assert float(terms.BinaryCrossEntropy(logits=logits, targets=multi_targets).loss()) == pytest.approx(float(bce))
    assert (
        multi_label.encode_target({"label": []}).tolist() == [[0.0, 0.0]]
        and multi_label.stratify_key({"label": []}) == ""
    )
    number = targets.Regression({"labels": ["value"], "mean": 10.0, "sd": 2.0})
    number_targets = torch.from_numpy(np.concatenate([number.encode_target({"label": x}) for x in (12.0, 10.0)]))
    assert float(
        terms.SquaredError(logits=torch.tensor([[0.0], [3.0]]), targets=number_targets).loss()
    ) == pytest.approx(1.0 + 9.0)
    assert number.decode(np.array([[1.5]])) == [{"value": 13.0}]


def test_thresholds_and_temperature_are_fitted_on_the_dev_set() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((300, 2)) < [0.1, 0.5]
    logits = np.where(truth, 1.0, -1.0) * 2 + rng.normal(size=(300, 2)) - np.array([3.0, 0.0])
    records = [{"location": "", "text": "", "label": [n for n, y in zip("xy", row) if y]} for row in truth]
    target_type = targets.MultiLabel({"labels": ["x", "y"]})
    before = target_type.score(target_type.decode(logits), records)
    target_type.task_state |= target_type.calibrate(logits, records)
    after = target_type.score(target_type.decode(logits), records)
    assert target_type.thresholds[0] < 0.35 and abs(target_type.thresholds[1] - 0.5) < 0.2
    assert after["macro_f1"] > before["macro_f1"] + 0.1
    one = targets.SingleLabel({"labels": ["x", "y"]})
    labeled = [{"location": "", "text": "", "label": "xy"[int(row[1])]} for row in truth]
    sharp = np.stack([np.zeros(300), logits[:, 1] * 8], -1)  # overconfident
    plain = [a["label"] for a in one.decode(sharp)]
    one.task_state |= one.calibrate(sharp, labeled)
    assert one.temperature > 1.5 and [a["label"] for a in one.decode(sharp)] == plain
    calibration = one.details(one.decode(sharp), labeled)["calibration"]
    assert calibration["ece"] < calibration["before"]["ece"] and calibration["nll"] < calibration["before"]["nll"]


def test_details_contain_the_errors() -> None:
    target_type = targets.SingleLabel({"labels": ["x", "y"]})
    records = [{"location": f"f:{n}", "text": f"t{n}", "pair": "p", "label": "xyz"[n % 3]} for n in range(6)]
    details = target_type.details(target_type.decode(np.array([[2.0, 0.0]] * 3 + [[0.0, 3.0]] * 3)), records)
    assert details["confusion"] == {"labels": ["x", "y", "z"], "matrix": [[1, 1, 0], [1, 1, 0], [1, 1, 0]]}
    assert details["errors"][0]["location"] == "f:3" and details["errors"][0] | {"score": 0} == {
        "location": "f:3", "text": "t3 | p", "expected": "x", "predicted": "y", "score": 0,
    }  # fmt: skip
    assert [e["location"] for e in details["examples"]] == ["f:0", "f:4"] and len(details["errors"]) == 4
    assert [row["support"] for row in details["per_label"]] == [2, 2, 2] and [c["label"] for c in details["pr"]] == [
        "y"
    ]
    assert target_type.score(target_type.decode(np.zeros((6, 2))), records)["accuracy"] == pytest.approx(
        1 / 3
    )  # z is never right
    assert target_type.score([], []) == {} and target_type.details([], [])["errors"] == []
    json.dumps(details)


# ---------------------------------------------------------------------------------------------------------- files


def read(path: Path, settings: TaskRecipe) -> tuple[list[Any], list[Finding], str]:
    findings: list[Finding] = []
    source: Source = open_source(str(path), findings)
    resolved = Classify.SPEC.data_format.resolve_auto([source], settings)
    return (
        [r["label"] for r in Classify.SPEC.data_format.read(source, resolved, findings)],
        findings,
        resolved.classify.problem_type,
    )


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_labels_in_one_cell(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    cells = ["a", separator.join("ab"), f"b{separator} c", "c", "", "a"]
    path.write_text("text\tlabels\n" + "".join(f"t{n}\t{cell}\n" for n, cell in enumerate(cells)), "utf-8")
    parsed, findings, target = read(path, TaskRecipe())
    assert target == "multi_label" and parsed == [["a"], ["a", "b"], ["b", "c"], ["c"], [], ["a"]] and not findings


def test_ambiguous_cells_are_single_labels_unless_configured(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\nt\trock|pop\nu\tjazz|blues\nv\tNew York, NY\n", "utf-8")
    assert read(path, TaskRecipe())[0] == ["rock|pop", "jazz|blues", "New York, NY"]
    multi_label = TaskRecipe.model_validate({"classify": {"problem_type": "multi_label"}})
    assert read(path, multi_label)[0] == [["rock", "pop"], ["jazz", "blues"], ["New York, NY"]]
    cells = [f"{n},5" for n in range(30)]  # numbers with decimal commas
    assert labels.resolve_auto(cells, "auto", "auto")[0] == "single_label"
    assert (
        labels.resolve_auto([str(n) for n in range(50)], "auto", "auto")[0] == "single_label"
    )  # integers may be classes
    assert (
        labels.resolve_auto([n / 2 for n in range(5)], "auto", "auto")[0] == "single_label"
    )  # so may a few distinct numbers


def test_label_errors_are_reported_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a", "label": 1.5}\n{"text": "b", "label": "much"}\n{"text": "c"}\n', "utf-8")
    _, findings, _ = read(path, TaskRecipe.model_validate({"classify": {"problem_type": "regression"}}))
    assert [(f.location.rpartition(":")[2], f.message) for f in findings] == [
        ("2", "the label 'much' is not a number"),
        ("3", "no label"),
    ]
    path.write_text(
        '{"text": "a", "label": ["x"]}\n{"text": "b", "label": [null]}\n{"text": "c", "label": []}\n', "utf-8"
    )
    parsed, findings, target = read(path, TaskRecipe())
    assert target == "multi_label" and parsed[2] == [] and [f.location.rpartition(":")[2] for f in findings] == ["2"]
    _, findings, _ = read(path, TaskRecipe.model_validate({"classify": {"problem_type": "single_label"}}))
    assert [f.location.rpartition(":")[2] for f in findings] == ["1", "2", "3"]
    with pytest.raises(UserError, match=r"f:2: the label is not one of the given labels"):
        targets.SingleLabel.fit_state(
            [{"location": "f:1", "label": "x"}, {"location": "f:2", "label": "z"}], ["x", "y"], "auto"
        )


def test_run_reports_the_columns_and_problem_type_it_inferred(start: Path, tmp_path: Path) -> None:
    rows = [{"review": f"{TOPICS['a']} {n}", "stars": "good" if n % 12 else "bad"} for n in range(96)]
    file = write(tmp_path / "train.jsonl", rows)
    task = {"name": "classify", "train": [str(file)], "columns": {"label": "stars"}}
    recipe = make_recipe({"init_from": str(start), "task": task})
    banner = run_banner(job := prepare(recipe), Run(tmp_path))
    assert banner.startswith(
        "classify: text ← review, label ← stars; 2 labels: good 79, bad 7; rare labels have more weight; the best model is selected by macro f1"
    )
    assert job.task.spec.metric() == "macro_f1"


# --------------------------------------------------------------------------------------------------------- freeze


@pytest.mark.parametrize("name", ["bert-tiny", "elmo-mini", "cbow-mini"])
def test_frozen_encoder_is_bit_identical(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    shape: dict[str, Any] = {"hidden": 32, "vocab_size": tokenizer.size}
    if name != "cbow-mini":
        shape |= {"intermediate": 64, "layers": 2, "dropout": 0.3}
    if name == "bert-tiny":
        shape |= {"heads": 2}
    heads = ("pooler",) if name == "bert-tiny" else ()
    hf.save(Model(preset(name, **shape), heads).init(1), tmp_path / "start", tokenizer)
    file = write(tmp_path / "train.jsonl", rows_of("single_label", end=24))
    values = {"init_from": str(tmp_path / "start"), "task": {"train": [str(file)], "freeze": "encoder"}}
    job = prepare(make_recipe(values, ["train.epochs=2"]))
    before = {key: value.clone() for key, value in job.model.state_dict().items()}
    mixed = [key for key in before if ".mix." in key]
    train(job, tmp_path / "run")
    after = job.model.state_dict()
    for key, value in before.items():
        if key.startswith("encoder.") and key not in mixed:
            assert torch.equal(value, after[key]), key
    assert any(not torch.equal(before[key], after[key]) for key in before if key.startswith("heads.classify"))
    assert name != "elmo-mini" or all(not torch.equal(before[key], after[key]) for key in mixed)
    (row,) = job.task.encode(job.sets.train[0])
    batch = collate([row], tokenizer.pad)
    job.model.train()  # as in a training step: the features have no dropout and no graph
    first, second = job.model.encode(batch), job.model.encode(batch)
    assert torch.equal(first, second) and first.requires_grad == bool(mixed)
