"""Validation in unmask export: a graph that differs from the model, or int8 weights that change its predictions, raise and leave no files."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from exporting.exports import classifier, new_folder, new_model, spoil
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.errors import UserError
from unmask.exporting import graph


def test_graph_with_different_weights_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, write = new_folder(tmp_path / "model", "distilbert", ("tag",)), graph.write_graph

    def broken(graph: graph.Graph, file: Path) -> None:
        write(graph, file)
        proto = onnx.load(file)
        bias = next(t for t in proto.graph.initializer if t.name.endswith("tag.out.bias"))
        bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(0.001), bias.name))
        onnx.save(proto, file)

    monkeypatch.setattr(graph, "write_graph", broken)
    with pytest.raises(UserError, match=r"the head tag differs from PyTorch by 0\.001"):
        unmask.export(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]  # no partial export


def test_graph_traced_on_short_sequences_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing on sequences shorter than the local window would drop the window mask."""
    folder = new_folder(tmp_path / "model", "modernbert", ("tag",))
    monkeypatch.setattr(graph, "_sample_length", lambda config: 7)
    with pytest.raises(UserError, match="differs from PyTorch"):
        unmask.export(folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A classifier and a test file with 60 records."""
    return classifier(tmp_path_factory.mktemp("trained"))


def test_int8_export_keeps_the_metric(trained: tuple[Path, Path], tmp_path: Path) -> None:
    folder, file = trained
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["export", str(folder), "--int8", "--data", str(file), "-o", str(out), "--json"])
    summary = json.loads(result.stdout)
    assert summary["graphs"] == {"model": "onnx/model_quantized.onnx"} and summary["precision"] == "int8"
    validation = summary["validation"]
    assert (
        validation["metric"] == "accuracy"
        and validation["onnx"] > validation["torch"] - 0.005
        and validation["torch"] > 0.9
    )
    assert "MatMulInteger" in {node.op_type for node in onnx.load(out / "onnx/model_quantized.onnx").graph.node}
    text = "anna saw a lovely film number 3 ."
    ours, theirs = unmask.load(folder).predict([text])[0], unmask.load(out).predict([text])[0]
    assert ours["scores"] != theirs["scores"] and ours["probability"] == pytest.approx(theirs["probability"], abs=0.05)


def test_int8_export_that_changes_predictions_raises(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """Compared by the metric if there is a labeled file, else by predictions for sample sentences."""
    folder, file = spoil(trained[0], tmp_path / "spoilt"), trained[1]
    with pytest.raises(UserError, match=r"accuracy on 60 records decreases from [\d.]+ to 0\.\d+, by [\d.]+ points"):
        unmask.export(folder, int8=True, data=file)
    result = CliRunner().invoke(app, ["export", str(folder), "--int8"])
    assert result.exit_code == 2 and "int8 weights change the task classify" in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["spoilt"]


@pytest.mark.parametrize("family", ["gpt2", pytest.param("t5", marks=pytest.mark.slow)])
def test_int8_export_does_not_quantize_a_tied_embedding(tmp_path: Path, family: str) -> None:
    """The output projection is tied to the embedding: its transposed copy is quantized, the embedding is not."""
    result = unmask.export(new_folder(tmp_path / "model", family, ("lm",)), int8=True)
    assert result["validation"]["drift"] < 0.02 and result["validation"]["kind"] == "choice"


def test_model_without_a_task_is_validated_on_plain_text(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "model", "roberta", ("mlm",))
    (tmp_path / "text.txt").write_text("the list is sorted\n" * 20)
    result = unmask.export(folder, data=tmp_path / "text.txt")
    assert (
        result["validation"]["metric"] == "accuracy" and result["validation"]["torch"] == result["validation"]["onnx"]
    )


def test_random_rows_are_longer_than_the_local_window() -> None:
    from unmask.exporting.checks import random_rows

    config = new_model("modernbert", ("mlm",)).config
    assert max(len(row) for rows in random_rows(config) for row in rows) > 2 * config.local_window
