"""Terminal output of export."""

from typing import Any


def lines(found: dict[str, Any]) -> list[str]:
    """
    >>> lines({"folder": "a-onnx", "precision": "fp32", "graphs": {"model": "onnx/model.onnx"}, "parameters": 5})[0]
    'would write a-onnx: onnx/model.onnx (fp32, 5 parameters)'
    """
    files = ", ".join(found["graphs"].values())
    validation = found.get("validation")
    if validation is None:
        out = [f"would write {found['folder']}: {files} ({found['precision']}, {found['parameters']:,} parameters)"]
        for name in found.get("inputs", {}):
            out.append(f"{name}: {', '.join(found['inputs'][name])} → {', '.join(found['outputs'][name])}")
        return out + [f"skipped: {name}" for name in found.get("skipped", ())]
    out = [f"{found['folder']}: {files} ({found['precision']}, {found['bytes'] / 1e6:.1f} MB)"]
    out.append(f"largest difference from the PyTorch model: {validation['largest_difference']:.1e}")
    if "drift" in validation:
        out.append(
            f"int8 weights change {validation['output']} by {validation['drift']:.4f} (limit {validation['limit']:g})"
        )
    if "metric" in validation:
        out.append(
            f"{validation['metric']} on {validation['records']:,} records: torch {validation['torch']:.4f}, onnx {validation['onnx']:.4f}"
        )
    out += [f"skipped: {name}" for name in found.get("skipped", ())]
    if "pushed" in found:
        out.append(f"uploaded to {found['pushed']}")
    return [*out, f'load it: unmask.load("{found["folder"]}", backend="onnx")']
