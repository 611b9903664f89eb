"""Terminal output of export."""

from typing import Any


def export_lines(result: dict[str, Any]) -> list[str]:
    """
    >>> export_lines({"folder": "a-onnx", "precision": "fp32", "graphs": {"model": "onnx/model.onnx"}, "parameters": 5})[0]
    'would write a-onnx: onnx/model.onnx (fp32, 5 parameters)'
    """
    files = ", ".join(result["graphs"].values())
    validation = result.get("validation")
    if validation is None:
        out = [f"would write {result['folder']}: {files} ({result['precision']}, {result['parameters']:,} parameters)"]
        for name in result.get("inputs", {}):
            out.append(f"{name}: {', '.join(result['inputs'][name])} → {', '.join(result['outputs'][name])}")
        return out + [f"skipped: {name}" for name in result.get("skipped", ())]
    out = [f"{result['folder']}: {files} ({result['precision']}, {result['bytes'] / 1e6:.1f} MB)"]
    out.append(f"largest difference from the PyTorch model: {validation['largest_difference']:.1e}")
    if "drift" in validation:
        out.append(
            f"int8 weights change {validation['output']} by {validation['drift']:.4f} (limit {validation['limit']:g})"
        )
    if "metric" in validation:
        out.append(
            f"{validation['metric']} on {validation['records']:,} records: torch {validation['torch']:.4f}, onnx {validation['onnx']:.4f}"
        )
    out += [f"skipped: {name}" for name in result.get("skipped", ())]
    if "pushed" in result:
        out.append(f"uploaded to {result['pushed']}")
    return [*out, f'load it: unmask.load("{result["folder"]}", backend="onnx")']
