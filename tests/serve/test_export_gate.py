"""The gate of unmask export: a graph that is not the model, or 8 bits that change its answers, are refused, and leave nothing."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from serve.exports import classifier, new_folder, new_model, sentences
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.errors import UserError
from unmask.serve import export_graph

TEXT = "a cab is sorted"


def test_a_graph_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, write = new_folder(tmp_path / "model", "distilbert", ("tag",)), export_graph.write_graph

    def broken(graph: export_graph.Graph, file: Path) -> None:
        write(graph, file)
        proto = onnx.load(file)
        bias = next(t for t in proto.graph.initializer if t.name.endswith("tag.out.bias"))
        bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(0.001), bias.name))
        onnx.save(proto, file)

    monkeypatch.setattr(export_graph, "write_graph", broken)
    with pytest.raises(UserError, match=r"the head tag differs by 0\.001"):
        unmask.export(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]  # nothing is left


def test_a_graph_that_was_traced_on_short_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On rows shorter than a local window it hides nothing, and would go on so with longer ones."""
    folder = new_folder(tmp_path / "model", "modernbert", ("tag",))
    monkeypatch.setattr(export_graph, "_sample_length", lambda config: 7)
    with pytest.raises(UserError, match="not the model"):
        unmask.export(folder)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that 8 bits ruin: one activation is a thousand times as large as the others."""
    return classifier(tmp_path_factory.mktemp("spoilt") / "model", spoilt=True)


def test_eight_bits_that_change_the_metric_are_refused(spoilt: Path, tmp_path: Path) -> None:
    file = sentences(tmp_path / "file.csv", spoilt)
    with pytest.raises(UserError, match=r"accuracy on 60 records falls from 1\.0000 to 0\.\d+, by [\d.]+ points"):
        unmask.export(spoilt, int8=True, data=file, out=tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))


def test_eight_bits_that_change_the_answers_are_refused(spoilt: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["export", str(spoilt), "--int8", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2 and "8-bit weights change the task classify" in result.output
    assert not (tmp_path / "out").exists()


def test_eight_bits_make_a_small_graph_that_answers(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "model")
    file = sentences(tmp_path / "file.csv", folder)
    result = CliRunner().invoke(app, ["export", str(folder), "--int8", "--data", str(file), "--json"])
    said = json.loads(result.stdout)
    assert said["graphs"] == {"model": "onnx/model_quantized.onnx"} and said["precision"] == "int8"
    compared = said["compared"]
    assert compared["metric"] == "accuracy" and compared["torch"] == 1.0 and compared["onnx"] >= 0.995
    kinds = {node.op_type for node in onnx.load(tmp_path / "model-onnx-int8/onnx/model_quantized.onnx").graph.node}
    assert "MatMulInteger" in kinds
    ours, theirs = unmask.load(folder).predict([TEXT])[0], unmask.load(said["folder"]).predict([TEXT])[0]
    assert ours["scores"] != theirs["scores"] and ours["probability"] == pytest.approx(theirs["probability"], abs=0.05)


def test_a_model_without_a_task_is_measured_on_plain_text(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "model", "roberta", ("mlm",))
    (tmp_path / "text.txt").write_text("the list is sorted\n" * 20)
    said = unmask.export(folder, data=tmp_path / "text.txt")
    assert said["compared"]["metric"] == "accuracy" and said["compared"]["torch"] == said["compared"]["onnx"]


def test_probe_rows_reach_beyond_a_window() -> None:
    from unmask.serve.export_gate import probe_rows

    config = new_model("modernbert", ("mlm",)).config
    assert max(len(row) for rows in probe_rows(config) for row in rows) > 2 * config.local_window
