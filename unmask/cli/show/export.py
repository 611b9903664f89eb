"""An export in the terminal."""

from typing import Any


def lines(found: dict[str, Any]) -> list[str]:
    """
    >>> lines({"folder": "a-onnx", "precision": "fp32", "graphs": {"model": "onnx/model.onnx"}, "parameters": 5})[0]
    'would write a-onnx: onnx/model.onnx (fp32, 5 parameters)'
    """
    files = ", ".join(found["graphs"].values())
    compared = found.get("compared")
    if compared is None:
        out = [f"would write {found['folder']}: {files} ({found['precision']}, {found['parameters']:,} parameters)"]
        for name in found.get("inputs", {}):
            out.append(f"{name}: {', '.join(found['inputs'][name])} → {', '.join(found['outputs'][name])}")
        return out + [f"left out: {what}" for what in found.get("left_out", ())]
    out = [f"{found['folder']}: {files} ({found['precision']}, {found['bytes'] / 1e6:.1f} MB)"]
    out.append(f"largest difference from the model in fp32: {compared['largest_difference']:.1e}")
    if "drift" in compared:
        out.append(f"8 bits move {compared['output']} by {compared['drift']:.4f} (at most {compared['limit']:g})")
    if "metric" in compared:
        out.append(
            f"{compared['metric']} on {compared['records']:,}: torch {compared['torch']:.4f}, onnx {compared['onnx']:.4f}"
        )
    out += [f"left out: {what}" for what in found.get("left_out", ())]
    if "pushed" in found:
        out.append(f"uploaded to {found['pushed']}")
    return [*out, f'use it: unmask.load("{found["folder"]}", backend="onnx")']
