"""Terminal output of export."""

from typing import Any


def export_lines(result: dict[str, Any]) -> list[str]:
    """
    >>> export_lines({"folder": "a-onnx", "format": "onnx", "precision": "fp32", "graphs": {"model": "onnx/model.onnx"}, "parameters": 5})[0]
    'would write a-onnx: onnx/model.onnx (fp32, 5 parameters)'
    """
    if result["format"] == "static":
        return _static_lines(result)
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


def _static_lines(result: dict[str, Any]) -> list[str]:
    shape = f"{result['vocab_size']:,} tokens × {result['dim']}, {result['bytes'] / 1e6:.1f} MB"
    data, v = result["data"], result.get("validation")
    train = data["texts"] - data["held_out"]
    sampled = (
        f"{data['texts']:,} of {data['found']:,} texts" if data["texts"] < data["found"] else f"{data['texts']:,} texts"
    )
    used = f"{sampled}: {train:,} to train the copy, {data['held_out']:,} held out"
    if v is None:
        return [f"would write {result['folder']}: a static copy ({shape})", used]
    is_number = result["output"] == "number"
    closeness = (
        f"R² {v['agreement']:.3f} against the model"
        if is_number
        else f"same prediction as the model: {v['agreement']:.1%}"
    )
    out = [f"{result['folder']}: a static copy ({shape})", used, f"{closeness}, on {v['texts']:,} held-out texts"]
    if "metric" in v:
        out.append(
            f"{v['metric']} on {v['records']:,} held-out labeled texts: model {v['model']:.4f}, copy {v['copy']:.4f} "
            f"({v['points_lost']:.2f} points lost)"
        )
    speed = result["texts_per_second"]
    out.append(f"texts per second, measured here: model {speed['model']:,.0f}, copy {speed['copy']:,.0f}")
    if "pushed" in result:
        out.append(f"uploaded to {result['pushed']}")
    return [*out, f'load it: unmask.load("{result["folder"]}")']
