"""Trains the other libraries' classifiers for bench/few_labels.py, with the interpreter of .venv-peers. It does not import unmask.

Reads one job per line from standard input and writes one answer per line to standard output, both JSON:

| line   | keys                                                                                                              |
|--------|-------------------------------------------------------------------------------------------------------------------|
| job    | method, train and test (records), seed; start (a model folder), random_weights, vectors, static, max_cpu_seconds  |
| answer | predictions (one label per test record), cpu_seconds (of the fit, all threads), notes; or error                   |

`vectors` and `static` name a file of sentence vectors and a folder of a distilled model, which are computed once and kept.
Every method has the defaults of its library. Texts are cut to 256 tokens, as MiniLM's own settings do. A method that reads only one
text gets both texts of a pair, separated by a space.
"""

import hashlib
import importlib.metadata
import json
import os
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}

MAX_LENGTH = 256
PROBE_STEPS = 5  # to estimate the CPU time of a step
VERSIONS = {
    "tfidf_sklearn": ["scikit-learn"],
    "st_lr": ["sentence-transformers", "transformers"],
    "model2vec": ["model2vec"],
    "setfit": ["setfit", "sentence-transformers", "transformers"],
    "trainer": ["transformers"],
}


def joined(records):
    return [f"{r['text']} {r['pair']}" if "pair" in r else r["text"] for r in records]


def labels_of(records):
    return [r["label"] for r in records]


# ------------------------------------------------------------------------------------------------ linear models


def tfidf_sklearn(job):
    """The pipeline of scikit-learn's tutorials, with its defaults."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    start = time.process_time()
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
    model.fit(joined(job["train"]), labels_of(job["train"]))
    return time.process_time() - start, model.predict(joined(job["test"])), {}


def st_lr(job):
    """Vectors of sentence-transformers and logistic regression. The features of a pair are u, v, |u - v| and u * v."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    vectors = Vectors(job["start"], Path(job["vectors"]))

    def features(records):
        u = vectors.of([r["text"] for r in records])
        if "pair" not in records[0]:
            return u
        v = vectors.of([r["pair"] for r in records])
        return np.hstack([u, v, abs(u - v), u * v])

    train, test = features(job["train"]), features(job["test"])
    vectors.save()
    start = time.process_time()
    model = LogisticRegression(max_iter=1000).fit(train, labels_of(job["train"]))
    texts = len(job["train"]) * (2 if "pair" in job["train"][0] else 1)
    return time.process_time() - start + texts * vectors.seconds_per_text, model.predict(test), {}


class Vectors:
    """Vectors of texts, computed once and kept in a file, with the CPU seconds that they took."""

    def __init__(self, folder, path):
        import numpy as np

        self.folder, self.path, self.rows, self.seconds = folder, path, {}, 0.0
        if self.path.exists():
            with np.load(self.path) as file:
                self.rows = dict(zip(file["keys"].tolist(), file["vectors"]))
                self.seconds = float(file["seconds"])

    @property
    def seconds_per_text(self):
        return self.seconds / max(1, len(self.rows))

    def of(self, texts):
        import numpy as np

        keys = [hashlib.sha1(text.encode()).hexdigest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts) if key not in self.rows}
        if missing:
            model, start = sentence_transformer(self.folder), time.process_time()
            self.rows |= dict(zip(missing, model.encode(list(missing.values()), show_progress_bar=False)))
            self.seconds += time.process_time() - start
        return np.stack([self.rows[key] for key in keys])

    def save(self):
        import numpy as np

        partial = self.path.with_name(f"{self.path.stem}.{os.getpid()}.npz")
        np.savez(partial, keys=list(self.rows), vectors=np.stack(list(self.rows.values())), seconds=self.seconds)
        partial.replace(self.path)


@cache
def sentence_transformer(folder):
    return new_sentence_transformer(folder)


def new_sentence_transformer(folder):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    model.max_seq_length = MAX_LENGTH
    return model


# ------------------------------------------------------------------------------------------------ neural models


def model2vec(job):
    """Static vectors distilled from the start weights, then trained with a head."""
    from model2vec import StaticModel
    from model2vec.distill import distill
    from model2vec.train import StaticModelForClassification

    folder = Path(job["static"])
    if not folder.exists():
        distill(job["start"]).save_pretrained(folder)
    start = time.process_time()
    model = StaticModelForClassification.from_static_model(model=StaticModel.from_pretrained(folder))
    model.fit(joined(job["train"]), labels_of(job["train"]), random_seed=job["seed"], device="cpu")
    return time.process_time() - start, model.predict(joined(job["test"])), {}


def setfit(job):
    """SetFit with its defaults. With max_cpu_seconds, contrastive training has the number of steps that take about this long."""
    limit, notes = job.get("max_cpu_seconds"), {}
    if limit:
        notes["max_steps"] = max(1, round(limit / seconds_per_step(job)))
    seconds, model = train_setfit(job, notes.get("max_steps", -1))
    return seconds, model.predict(joined(job["test"]), show_progress_bar=False), notes


def seconds_per_step(job):
    (short, _), (long, _) = (train_setfit(job, steps) for steps in (1, 1 + PROBE_STEPS))
    return max(0.01, (long - short) / PROBE_STEPS)


def train_setfit(job, max_steps):
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments
    from sklearn.linear_model import LogisticRegression
    from transformers import set_seed

    set_seed(job["seed"])
    start = time.process_time()
    names = sorted(set(labels_of(job["train"])))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=max_steps, seed=job["seed"], report_to="none", save_strategy="no", show_progress_bar=False
        )  # fmt: skip
        rows = Dataset.from_dict({"text": joined(job["train"]), "label": labels_of(job["train"])})
        body = new_sentence_transformer(job["start"])
        model = SetFitModel(model_body=body, model_head=LogisticRegression(), labels=names)
        Trainer(model=model, args=arguments, train_dataset=rows).train()
    return time.process_time() - start, model


def trainer(job):
    """transformers' Trainer: 3 epochs, learning rate 5e-5, batches of 16."""
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(job["seed"])
    names, tokenizer = sorted(set(labels_of(job["train"]))), AutoTokenizer.from_pretrained(job["start"])

    def rows(records):
        pairs = [r["pair"] for r in records] if "pair" in records[0] else None
        encoded = tokenizer([r["text"] for r in records], pairs, truncation=True, max_length=MAX_LENGTH)
        return [{name: values[n] for name, values in encoded.items()} for n in range(len(records))]

    start = time.process_time()
    model = AutoModelForSequenceClassification.from_pretrained(job["start"], num_labels=len(names))
    train = [{**row, "label": names.index(r["label"])} for row, r in zip(rows(job["train"]), job["train"])]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, num_train_epochs=3, learning_rate=5e-5, per_device_train_batch_size=16, seed=job["seed"],
            per_device_eval_batch_size=32, report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        peer = Trainer(model, arguments, train_dataset=train, data_collator=DataCollatorWithPadding(tokenizer))
        peer.train()
        seconds = time.process_time() - start
        order = sorted(range(len(job["test"])), key=lambda n: len(job["test"][n]["text"]))  # less padding
        with torch.inference_mode():
            logits = peer.predict(rows([job["test"][n] for n in order])).predictions
    predictions = dict(zip(order, logits.argmax(-1).tolist()))
    return seconds, [names[predictions[n]] for n in range(len(order))], {}


# ------------------------------------------------------------------------------------------------ jobs

METHODS = {method.__name__: method for method in (tfidf_sklearn, st_lr, model2vec, setfit, trainer)}


def write_random_model(folder, seed, copy):
    """Write to `copy` a model with the config and the tokenizer of `folder` and random weights."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer, set_seed

    set_seed(seed)
    AutoModel.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(copy)
    AutoTokenizer.from_pretrained(folder).save_pretrained(copy)


def run(job):
    with tempfile.TemporaryDirectory() as folder:
        if job.get("random_weights"):
            write_random_model(job["start"], job["seed"], folder)
            job["start"] = folder
        seconds, predictions, notes = METHODS[job["method"]](job)
    versions = {name: importlib.metadata.version(name) for name in VERSIONS[job["method"]]}
    return {
        "predictions": [str(p) for p in predictions],
        "cpu_seconds": seconds,
        "notes": {**notes, "versions": versions},
    }


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to standard error
    for line in sys.stdin:
        try:
            answer = run(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
