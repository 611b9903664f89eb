"""unmask export --format static: a small copy of a classifier, trained on its outputs, that runs in numpy."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exporting.exports import assert_same, new_folder
from near import gap
from runs import tiny
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import unmask
from unmask.batch import Example
from unmask.cli import app
from unmask.errors import UserError
from unmask.exporting import distill
from unmask.exporting.distill import Student
from unmask.exporting.static import read_data
from unmask.inference.static_engine import StaticEngine, StaticWeights

NUM_TEXTS = 240


def record(kind: str, n: int) -> dict[str, Any]:
    text, label = tiny.sentence(n)
    text = f"{text} {tiny.WORDS[n % 11]} {tiny.WORDS[n % 12]}"  # so that texts differ
    if kind == "labels":
        return {"text": text, "label": {"anna": ["a"], "bob": ["b"], "carla": ["a", "b"]}[text.split()[0]]}
    if kind == "number":
        return {"text": text, "label": 100.0 + (10 if label == "pos" else 0) + n % 3}
    if kind == "pair":
        return {"text": text, "pair": tiny.sentence(n // 2)[0], "label": label}
    return {"text": text, "label": label}


def write(file: Path, records: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    return file


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Fewer bigrams and steps, so that the tests are fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distill, "BUCKETS", 2**10)
        patch.setattr(distill, "MAX_EVALS", 6)
        patch.setattr("unmask.report.write", lambda run: None)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function kind → (model folder, file of texts, folder of the copy, result of export); each is made once."""
    base, created = tmp_path_factory.mktemp("static"), {}

    def get(kind: str) -> tuple[Path, Path, Path, dict[str, Any]]:
        if kind not in created:
            data = write(base / f"{kind}.jsonl", [record(kind, n) for n in range(NUM_TEXTS)])
            settings = {"blend": "linear"} if kind == "blend" else {}
            run = unmask.finetune(
                tiny.model_folder(base / "start"), train=[data], epochs=6, batch_size=8, lr=3e-3, out=base / f"run-{kind}",
                overrides=["train.threads=1", *(["task.classify.problem_type=regression"] if kind == "number" else [])],
                **settings,
            )  # fmt: skip
            copy = base / f"copy-{kind}"
            created[kind] = run.model, data, copy, unmask.export(run.model, format="static", data=data, out=copy)
        return created[kind]

    return get


@pytest.mark.parametrize("kind", ["label", "labels", "number", "pair", "blend"])
def test_copy_predicts_as_the_model(kind: str, made: Any) -> None:
    model, data, copy, result = made(kind)
    validation = result["validation"]
    assert validation["largest_difference"] <= 1e-4 and validation["agreement"] >= 0.8
    assert validation["records"] == validation["texts"] == result["data"]["held_out"]
    names = ["README.md", "config.json", "export.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert {file.name for file in copy.iterdir()} == {*names, "unmask.json", "vocab.txt"}
    assert json.loads((copy / "export.json").read_text())["validation"] == validation
    texts = [
        {key: each[key] for key in ("text", "pair") if key in each} for each in map(record, [kind] * 40, range(40))
    ]
    static, reference = (unmask.load(folder) for folder in (copy, model))
    assert static.engine.kind == "static"
    ours, theirs = static.predict(texts), reference.predict(texts)
    if kind == "number":
        assert np.abs([a["value"] - b["value"] for a, b in zip(ours, theirs)]).mean() < 2
    else:
        key = "labels" if kind == "labels" else "label"
        assert np.mean([a[key] == b[key] for a, b in zip(ours, theirs)]) > 0.8
    metric = validation["metric"]
    assert unmask.evaluate(copy, data)[metric] > unmask.evaluate(model, data)[metric] - 0.1
    described = unmask.info(copy)
    assert described["family"] == "static" and described["export"]["task"] == "classify"


def test_numbers_keep_their_scale(made: Any) -> None:
    static = unmask.load(made("number")[2])
    values = [static.predict([record("number", n)["text"]])[0]["value"] for n in range(12)]
    assert min(values) > 95 and max(values) < 120 and max(values) - min(values) > 5


def test_copy_follows_the_blend_not_the_encoder_alone(made: Any, tmp_path: Path) -> None:
    """The linear part of this model predicts the opposite of its encoder and has all of the weight."""
    model, data, *_ = made("blend")
    inverted = tmp_path / "model"
    subprocess.run(["cp", "-r", str(model), str(inverted)], check=True)
    file = inverted / "linear.safetensors"
    from safetensors import safe_open

    with safe_open(file, "numpy") as tensors:
        metadata = tensors.metadata()
    values = load_file(file)
    values |= {"weights": -values["weights"], "bias": -values["bias"], "blend_weights": np.array([0.0, 1.0])}
    save_file(values, file, metadata)
    result = unmask.export(inverted, format="static", data=data, out=tmp_path / "copy")
    assert result["validation"]["agreement"] > 0.9 and result["validation"]["model"] < 0.1
    assert unmask.evaluate(tmp_path / "copy", data)["accuracy"] < 0.1


@pytest.mark.parametrize("pairs", [False, True])
def test_numpy_computes_the_outputs_of_the_trained_copy(pairs: bool) -> None:
    rng = np.random.default_rng(0)
    student = Student(rng.normal(size=(50, 8)).astype(np.float32), 3, pairs, prior_tokens=3.5)
    student.mean, student.sd = 5.0, 2.0
    if student.bigrams is not None:
        torch.nn.init.normal_(student.bigrams.weight)
    special = np.arange(50) < 5
    manifest = {"heads": ["classify"], "labels": ["a", "b", "c"], "pairs": pairs, "separator": [3], "prior_tokens": 3.5}
    engine = StaticEngine(student.weights(special), manifest)
    rows = []
    for first, second in [(7, 4), (0, 3), (1, 1), (2, 0), (0, 0), (300, 20)]:
        ids = [2, *rng.integers(0, 50, first), 3, *rng.integers(0, 50, second), 3]
        rows.append(Example(np.array(ids), np.array([0] * (first + 2) + [1] * (second + 1))))
    with torch.inference_mode():
        expected = student([engine.text_tokens(row) for row in rows])
    assert gap(np.stack(engine.forward_rows(len, rows, 0)), expected) < 1e-5
    assert gap(engine.forward_rows(len, rows[:1], 0)[0], expected[0]) < 1e-5  # independent of the batch


def test_pairs_without_segments_are_split_at_the_separator() -> None:
    zeros = np.zeros((0, 1), np.float32)
    weights = StaticWeights(
        np.ones((9, 2), np.float32), np.ones((8, 1), np.float32), zeros[:1, 0], zeros, np.arange(9) < 4
    )
    engine = StaticEngine(
        weights, {"heads": ["classify"], "labels": ["a"], "pairs": True, "separator": [2, 2], "prior_tokens": 1}
    )
    row = Example(np.array([0, 5, 6, 2, 2, 7, 8, 2]), np.zeros(8, np.int64))
    assert [ids.tolist() for ids in engine.text_tokens(row)] == [[5, 6], [7, 8]]


def test_copy_runs_without_torch_and_onnxruntime(made: Any) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['onnxruntime'] = None  # from here on, importing them fails\n"
        "import json, unmask; print(json.dumps(unmask.load(sys.argv[1]).predict(sys.argv[2:])))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'torch' and sys.modules[name]]"
    )
    copy, texts = made("label")[2], [record("label", n)["text"] for n in range(3)]
    done = subprocess.run([sys.executable, "-c", code, str(copy), *texts], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_same(json.loads(done.stdout), unmask.load(copy).predict(texts))


def test_long_texts_are_read_whole(made: Any) -> None:
    """The model reads windows of 64 tokens; the copy reads the mean of the whole text."""
    static = unmask.load(made("label")[2])
    good, bad = (f"anna saw a {word} film ." for word in ("good", "bad"))
    assert static(good * 200)["label"] == "pos" and static(good * 20 + bad * 200)["label"] == "neg"


def test_contributions_of_tokens_add_up_to_the_output(made: Any) -> None:
    static = unmask.load(made("label")[2])
    assert "explain" in static.methods()
    text = record("label", 1)["text"]
    explanation = static.explain(text, target="pos")
    total = sum(token.score for token in explanation.tokens)
    assert gap(total, explanation.value - explanation.baseline) < 1e-5 and explanation.delta == pytest.approx(
        0, abs=1e-5
    )
    assert max(explanation.tokens, key=lambda token: token.score).start in range(
        text.index("fine"), text.index("fine") + 4
    )
    with pytest.raises(UserError, match="text pairs"):
        unmask.load(made("pair")[2]).explain("a", "b")


def test_unsupported_methods_name_the_model_to_use(made: Any) -> None:
    static = unmask.load(made("label")[2])
    with pytest.raises(UserError, match="cannot fill a mask"):
        static.fill("a [MASK]")
    with pytest.raises(UserError, match="attention is not available with backend static"):
        static.attention("a")
    with pytest.raises(UserError, match="runs on the CPU"):
        unmask.load(made("label")[2], device="cuda")
    with pytest.raises(UserError, match="is a static copy, not an ONNX export"):
        unmask.load(made("label")[2], backend="onnx")
    with pytest.raises(UserError, match="model2vec") as error:
        unmask.load(made("label")[2], backend="torch")
    assert "exported from" in str(error.value.hint)


def test_nothing_is_written_if_the_saved_copy_differs(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = StaticWeights.save

    def damage(weights: StaticWeights, folder: Path) -> None:
        weights.bias[0] += 0.01
        save(weights, folder)

    monkeypatch.setattr(StaticWeights, "save", damage)
    model, data, *_ = made("label")
    with pytest.raises(UserError, match=r"differs from the trained one by 0\.01"):
        unmask.export(model, format="static", data=data, out=tmp_path / "copy")
    assert not list(tmp_path.iterdir())


def test_same_texts_give_the_same_copy(made: Any, tmp_path: Path) -> None:
    model, data, copy, _ = made("label")
    unmask.export(model, format="static", data=data, out=tmp_path / "copy")
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (copy, tmp_path / "copy"))
    assert all(gap(ours[name], theirs[name]) < 1e-5 for name in theirs)


# ----------------------------------------------------------------------------------------------------------------- texts


def test_labeled_texts_are_held_out_and_duplicates_dropped(made: Any, tmp_path: Path) -> None:
    task = unmask.load(made("label")[0]).task
    labeled = write(tmp_path / "labeled.jsonl", [record("label", n) for n in range(10)])
    unlabeled = write(tmp_path / "texts.jsonl", [{"text": record("label", n)["text"]} for n in range(200)])
    plain = tmp_path / "plain.txt"
    plain.write_text("a fine film\na dull film\n")
    data = read_data(task, [str(unlabeled), str(labeled), str(plain)], {}, unmask.console.Console(quiet=True))
    assert {"label" in each for each in data.held_out[:10]} == {True} and not any(
        "label" in each for each in data.train
    )
    assert data.counts["texts"] == data.counts["found"] == len({each["text"] for each in (*data.train, *data.held_out)})
    assert data.counts["held_out"] == data.counts["texts"] // 10


def test_unlabeled_texts_report_agreement_only(made: Any, tmp_path: Path) -> None:
    texts = write(tmp_path / "texts.jsonl", [{"text": record("label", n)["text"]} for n in range(100)])
    result = unmask.export(made("label")[0], format="static", data=texts, out=tmp_path / "copy")
    assert "agreement" in result["validation"] and "metric" not in result["validation"]
    assert "same prediction as the model" in (tmp_path / "copy" / "README.md").read_text()


def test_file_with_missing_labels_is_read_without_them(made: Any, tmp_path: Path) -> None:
    rows = [record("label", n) | ({"label": None} if n == 5 else {}) for n in range(60)]
    result = CliRunner().invoke(
        app, ["export", str(made("label")[0]), "--format", "static", "--data", str(write(tmp_path / "a.jsonl", rows)), "--dry-run"]
    )  # fmt: skip
    assert result.exit_code == 0 and "is read without its labels" in result.output


# ----------------------------------------------------------------------------------------------------------- command line


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_command_reports_the_copy(made: Any, tmp_path: Path) -> None:
    model, data, copy, _ = made("label")
    planned = run(model, "--format", "static", "--data", data, "--dry-run", "-o", tmp_path / "copy")
    assert planned.exit_code == 0 and "would write" in planned.output and not (tmp_path / "copy").exists()
    done = run(model, "--format", "static", "--data", data, "-o", tmp_path / "copy", "--json")
    result = json.loads(done.stdout)
    assert result["texts_per_second"]["copy"] > 0 and result["bytes"] > 1000
    again = run(model, "--format", "static", "--data", data, "-o", tmp_path / "copy")
    assert again.exit_code == 2 and "already exists" in again.output
    predicted = CliRunner().invoke(app, ["predict", str(copy), "anna saw a fine film ."])
    assert predicted.exit_code == 0 and "pos" in predicted.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs texts"),
        (("--data", "DATA", "--int8"), "--int8 is not available"),
        (("--data", "few.txt"), "2 different texts"),
        (("--data", "missing.jsonl"), "missing.jsonl"),
        (("--data", "wrong.jsonl"), "none of the labels is known"),
    ],
)
def test_errors(arguments: tuple[str, ...], message: str, made: Any, tmp_path: Path, monkeypatch: Any) -> None:
    model, data, *_ = made("label")
    monkeypatch.chdir(tmp_path)
    Path("few.txt").write_text("a fine film\na dull film\n")
    write(Path("wrong.jsonl"), [record("label", n) | {"label": f"l{n % 2}"} for n in range(60)])
    before = sorted(tmp_path.iterdir())
    done = run(
        model, "--format", "static", *(str(data) if each == "DATA" else each for each in arguments), "-o", "copy"
    )
    assert done.exit_code == 2 and message in " ".join(done.output.split())
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("heads", "message"),
    [(("tag",), "in their context"), (("pooler", "choose"), "compares"), (("mlm",), "fine-tuned for a task")],
)
def test_other_tasks_are_refused_with_the_reason(heads: tuple[str, ...], message: str, tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "model", "bert", heads)
    with pytest.raises(UserError, match=message):
        unmask.export(folder, format="static", data=write(tmp_path / "a.jsonl", [{"text": "a"}]))
    assert not (tmp_path / "model-static").exists()


def test_damaged_folders_raise_an_error(made: Any, tmp_path: Path) -> None:
    copy = made("label")[2]

    def broken(name: str, change: Any) -> str:
        folder = tmp_path / name
        subprocess.run(["cp", "-r", str(copy), str(folder)], check=True)
        change(folder)
        with pytest.raises(UserError) as error:
            unmask.load(folder)
        return error.value.message

    def edit(folder: Path, **values: Any) -> None:
        (folder / "export.json").write_text(json.dumps(json.loads((folder / "export.json").read_text()) | values))

    weights = "model.safetensors"
    assert "cannot read" in broken("cut", lambda f: (f / weights).write_bytes((f / weights).read_bytes()[:100]))
    assert "cannot read" in broken("gone", lambda f: (f / weights).unlink())
    assert "incompatible version" in broken("version", lambda f: edit(f, version=9))
    assert "the format is" in broken("format", lambda f: edit(f, format="other"))
    assert "shapes" in broken("labels", lambda f: edit(f, labels=["a"]))
    assert "pairs" in broken("pairs", lambda f: edit(f, pairs="yes"))
