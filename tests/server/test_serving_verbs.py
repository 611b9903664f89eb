"""Models that `unmask serve` and `unmask studio` load."""

from pathlib import Path

from exporting.exports import new_folder

import unmask
from unmask.cli.serving import load_models


def test_exported_and_trained_models_are_served_together(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "trained", "bert", ("mlm",))
    export = unmask.export(folder, out=tmp_path / "graph")["folder"]
    models = load_models([str(folder), f"small={export}"])
    assert {name: model.engine.kind for name, model in models.items()} == {"trained": "torch", "small": "onnx"}
