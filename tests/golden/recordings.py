"""Tiny runs of every objective, task and fine-tuning mode, and the values recorded for each: losses, scores, files, predictions.

`test_recordings.py` compares them with the files in `recordings/`; `compare_commits.py` compares two commits bit for bit.
Only `unmask.api` and `python -m unmask` are used, and all calls are in the section "calls", so that modules may be moved. The training text
is generated here, so that it depends on no version of Python or a package. To accept an intended change, run
`python tests/golden/recordings.py [NAME …]`, which rewrites the files, and give the reason in the commit message.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import re
import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib.figure
import torch

from unmask import api

FOLDER = Path(__file__).with_name("recordings")
STEPS, RATE = 18, 1e-2
TOLERANCE = 2e-4  # relative, as in test_curve.py
MIN_TOLERANCE = 2e-5  # absolute, for numbers near 0
TIMES = {"seconds", "elapsed"}  # never recorded
NOT_TERMS = {
    "event",
    "step",
    "elapsed",
    "tokens_per_second",
    "grad_norm",
    "mask_rate",
    "length",
}  # keys of a logged step that are not loss terms

SHAPE = ["model.layers=2", "model.hidden=32", "model.heads=2", "model.intermediate=64"]
NARROW = ["model.layers=2", "model.hidden=32"]  # for families without attention heads
DECODER = [*SHAPE, "model.decoder_layers=2"]
# random embeddings: a factorization of counts differs between CPUs if factors are equally strong
ALWAYS = ["train.threads=1", "train.logging_steps=1"]
TEXT = [
    *ALWAYS,
    "train.embedding_init=random",
    "train.num_evals=2",
    "train.max_eval_examples=8",
    "data.workers=1",
    "data.eval_fraction=0.1",
]
TASK = [*ALWAYS, "train.num_evals=2"]

# ---------------------------------------------------------------------------------------------------------------- data

NAMES = ("anna", "bob", "carla", "dora", "emil", "fred")
TOWNS = ("rome", "paris", "oslo", "bonn", "riga", "bern")
GOOD, BAD = ("good", "fine", "lovely", "great"), ("bad", "awful", "dull", "poor")


def sentence(n: int) -> str:
    """Return a sentence with a person, a town and an opinion, which determines the label."""
    words = GOOD if n % 2 else BAD
    return f"{NAMES[n % 6]} saw a {words[n // 2 % 4]} film in {TOWNS[n // 3 % 6]} ."


def label(n: int) -> str:
    return "pos" if n % 2 else "neg"


def corpus() -> str:
    """Return documents about people in towns."""
    draw = random.Random(7)
    documents = []
    for _ in range(60):
        name, town = draw.choice(NAMES), draw.choice(TOWNS)
        lines = [f"{name} lives in {town} .", *(sentence(draw.randrange(500)) for _ in range(5))]
        lines += [f"where does {name} live ? in {town} , near the river number {draw.randrange(9)} ."]
        documents.append(" ".join(lines))
    return "\n\n".join(documents) + "\n"


def rotate(items: list[Any], by: int) -> list[Any]:
    by %= len(items)
    return items[by:] + items[:by]


def rows(count: int, first: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return {file name without suffix: its records}."""
    records: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in ("one", "several", "number", "pair", "choose", "generate", "embed", "scored", "rank", "answer")
    }
    for n in range(first, first + count):
        text, name, town = sentence(n), NAMES[n % 6], TOWNS[n // 3 % 6]
        address = f"{town} , near the river number {n // 7 % 9} ."  # few records are duplicates
        fact, question = f"{name} lives in {address}", f"where does {name} live ?"
        records["one"].append({"text": text, "label": label(n)})
        records["several"].append({"text": text, "label": "|".join([label(n), town][: 1 + n % 2])})
        records["number"].append({"text": text, "label": (n % 2) * 2.5 + n // 2 % 4 * 0.25 + 0.125})
        records["pair"].append(
            {"text": fact, "second": f"{name} is in {TOWNS[(n // 3 + n % 2) % 6]} .", "label": "no" if n % 2 else "yes"}
        )
        records["choose"].append(
            {"text": f"{name} lives in", "choices": rotate([town, "the river", "number"], n), "label": -n % 3}
        )
        records["generate"].append({"text": f"{question} {address}", "target": f"in {town}"})
        records["embed"].append({"text": question, "positive": fact})
        records["scored"].append({"sentence1": fact, "sentence2": sentence(n + n % 2), "score": n % 5 / 4})
        records["rank"].append(
            {
                "query": question,
                "passages": rotate([fact, "near the river .", text], n),
                "relevance": rotate([1, 0, 0], n),
            }
        )
        answers = [{"text": town, "start": fact.index(town)}] if n % 4 else []
        records["answer"].append({"id": f"q{n}", "question": question, "context": fact, "answers": answers})
    return records


def write_data() -> None:
    """Write every file that the runs read into the current directory."""
    Path("corpus.txt").write_text(corpus(), "utf-8")
    Path("other.txt").write_text("\n\n".join(sentence(n) + " the sea is near ." for n in range(60)) + "\n", "utf-8")
    for part, count, first in (("train", 24, 0), ("dev", 8, 100), ("test", 8, 200)):
        for name, records in rows(count, first).items():
            text = "".join(json.dumps(record) + "\n" for record in records)
            Path(f"{name}.{part}.jsonl").write_text(text, "utf-8")
        blocks = []
        for n in range(first, first + count):
            words = sentence(n).split()
            blocks.append("".join(f"{word} {TAGS.get(word, 'O')}\n" for word in words))
        Path(f"tag.{part}.conll").write_text("\n".join(blocks), "utf-8")


TAGS = dict.fromkeys(NAMES, "B-PER") | dict.fromkeys(TOWNS, "B-LOC")

# --------------------------------------------------------------------------------------------------------------- cases

PRETRAIN: dict[str, dict[str, Any]] = {
    "bert": {"preset": "bert-tiny", "objective": "mlm", "overrides": SHAPE},
    "nsp": {"preset": "bert-tiny", "objective": "mlm+nsp", "overrides": SHAPE},
    "sop": {"preset": "albert-mini", "objective": "mlm+sop", "overrides": [*SHAPE, "model.embedding=16"]},
    "rtd": {"preset": "electra-mini", "overrides": [*SHAPE, "model.embedding=16", "model.generator=0.5"]},
    "span": {"preset": "t5-mini", "overrides": [*DECODER, "train.optimizer=adamw"]},
    "denoise": {"preset": "bart-mini", "overrides": DECODER},
    "clm": {"preset": "gpt2-mini", "overrides": [*SHAPE, "train.schedule=wsd"]},
    "gpt": {"preset": "gpt-mini", "overrides": [*NARROW, "model.heads=2"]},
    "hybrid": {"preset": "modernbert-mini", "objective": "hybrid", "overrides": [*SHAPE, "train.document_attention=same_document"]},
    "distill": {"preset": "distilbert-mini", "objective": "distill", "overrides": [*SHAPE, "model.layers=1", "distill.teacher=bert", "tokenizer.path=bert/model"]},
    "bilm": {"preset": "elmo-mini", "overrides": [*NARROW, "model.intermediate=32"]},
    "cbow": {"preset": "cbow-mini", "overrides": ["model.hidden=32"]},
    "prefix": {"preset": "bert-tiny", "objective": "prefix", "overrides": SHAPE},
    "words": {"preset": "roberta-mini", "overrides": [*SHAPE, "mlm.mask_unit=word", "mlm.masking=static", "train.schedule=cosine", "train.max_length='16:0.5,32:0.5'"]},
    "xlm": {"preset": "xlm-roberta-mini", "overrides": [*SHAPE, "mlm.mask_unit=span", "mlm.sampling=bernoulli", "train.micro_batch_size=3"]},
    "more": {"init_from": "bert", "replay": ["other.txt:0.25"], "extend_vocab": 3, "overrides": ["train.save_total_limit=2"]},
    "counted": {"preset": "bert-tiny", "overrides": [*SHAPE, "train.embedding_init=corpus_statistics"]},
}  # fmt: skip
VOCABULARY = {"t5-mini": 170, "albert-mini": 70, "xlm-roberta-mini": 70} | dict.fromkeys(
    ("roberta-mini", "bart-mini", "gpt2-mini", "gpt-mini"), 300
)
ONE = {"model": "bert", "file": "one"}
FINETUNE: dict[str, dict[str, Any]] = {
    "classify": {**ONE, "task": "classify"},
    "several": {"model": "bert", "lr": 3e-2, "file": "several", "overrides": ["task.classify.problem_type=multi_label", "train.micro_batch_size=3"]},
    "number": {"model": "hybrid", "file": "number", "overrides": ["task.classify.problem_type=regression"]},
    "pair": {"model": "words", "file": "pair", "overrides": ["train.layerwise_lr_decay=0.8"]},
    "tag": {"model": "bert", "file": "tag", "patience": 1},
    "answer": {"model": "bert", "file": "answer"},
    "choose": {"model": "rtd", "file": "choose"},
    "prefixed": {"model": "prefix", "file": "generate", "task": "generate", "overrides": ["task.generate.max_new_tokens=6"]},
    "t5": {"model": "span", "lr": 1e-3, "file": "generate", "task": "generate", "overrides": ["task.generate.max_new_tokens=6", "task.generate.num_beams=2", "task.generate.source_prefix='say: '"]},
    "gpt2": {"model": "clm", "file": "generate", "task": "generate", "overrides": ["task.generate.max_new_tokens=6"]},
    "embed": {"model": "bert", "file": "embed", "task": "embed", "overrides": ["task.embed.matryoshka_dims=[16]", "task.embed.symmetric_loss=true"]},
    "scored": {"model": "nsp", "file": "scored", "task": "embed", "pooling": "cls"},
    "rank": {"model": "bert", "file": "rank"},
    "point": {"model": "bert", "file": "rank", "overrides": ["task.rank.loss=pointwise"]},
    "seeds": {**ONE, "num_seeds": 2, "test": None},
    "baseline": {**ONE, "baseline": True, "freeze": "encoder"},
    "aux": {**ONE, "aux_mlm": 0.1, "dev": None},
    "teacher": {**ONE, "teacher": "classify", "seed": 5},
    "augment": {**ONE, "augment_mlm": 0.5, "overrides": ["task.token_mask_rate=0.1"]},
}  # fmt: skip
TASKS = {  # multi-task training
    "people": {"name": "tag", "train": ["tag.train.conll"], "dev": ["tag.dev.conll"]},
    "opinion": {"name": "classify", "train": ["one.train.jsonl"], "dev": ["one.dev.jsonl"], "test": ["one.test.jsonl"]},
}
QUESTION = "where does bob live ?"
INPUTS: dict[str, list[Any]] = {  # file → inputs for predictions
    "one": [sentence(n) for n in (301, 302, 304)],
    "several": [sentence(n) for n in (301, 302)],
    "number": [sentence(n) for n in (301, 302)],
    "pair": [("bob lives in oslo .", "bob is in oslo .")],
    "tag": [sentence(n) for n in (301, 302)],
    "answer": [(QUESTION, "bob lives in oslo ."), (QUESTION, "the film is near .")],
    "choose": [("bob lives in", "oslo", "the river")],
    "generate": [f"{QUESTION} oslo , near the river number 4 ."],
    "embed": [QUESTION],
    "scored": [QUESTION],
    "rank": [(QUESTION, "bob lives in oslo .", "near the river .")],
}
EXPORTED = {"onnx classify": "classify", "onnx answer": "answer"}
OTHERS = ("tasks", "tune", *EXPORTED)
CASES = (*PRETRAIN, *FINETUNE, *OTHERS)
ONLY_HERE = {"counted"}  # differs between CPUs: only compared on one machine

# --------------------------------------------------------------------------------------------------------------- calls


def run_pretraining(name: str, overrides: list[str], **keywords: Any) -> None:
    if "init_from" not in keywords and not any(text.startswith("tokenizer.path") for text in overrides):
        keywords["vocab_size"] = VOCABULARY.get(keywords["preset"], 80)
    api.pretrain(
        "corpus.txt",
        out=name,
        steps=STEPS,
        batch_size=8,
        max_length=32,
        seed=11,
        overrides=[*TEXT, *overrides],
        **keywords,
    )
    forget_pretraining(Path(name))


def forget_pretraining(run: Path) -> None:
    """Remove the number of tokens from the model: the recordings are older than the defaults of fine-tuning that read it."""
    for file in run.glob("model/**/config.json"):
        config = json.loads(file.read_text("utf-8"))
        config.pop("unmask_pretrained_tokens", None)
        file.write_text(json.dumps(config, indent=2, sort_keys=True), "utf-8")


def run_finetuning(name: str, model: str, file: str, overrides: list[str] | None = None, **keywords: Any) -> None:
    ending = "conll" if file == "tag" else "jsonl"
    files = {part: f"{file}.{part}.{ending}" for part in ("train", "dev", "test")} | keywords
    settings = {"steps": STEPS, "batch_size": 8, "lr": RATE, "seed": 3} | files
    api.finetune(
        model, out=name, overrides=[*TASK, *(overrides or [])], **{k: v for k, v in settings.items() if v is not None}
    )


def run_tasks(name: str) -> None:
    """Train from a recipe file through the command line."""
    train = {"steps": STEPS, "batch_size": 8, "lr": RATE, "num_evals": 2, "threads": 1}
    recipe = {"seed": 3, "init_from": "bert/model", "task": {"dev_fraction": 0.2}, "tasks": TASKS, "train": train}
    Path("tasks.yaml").write_text(json.dumps(recipe), "utf-8")  # JSON is valid YAML
    command("finetune", "--recipe", "tasks.yaml", "--out", name, "--quiet", "--json")


def run_search(name: str) -> None:
    files = {"train": "one.train.jsonl", "dev": "one.dev.jsonl", "test": "one.test.jsonl"}
    settings = {"steps": 6, "batch_size": 8, "lr": RATE, "seed": 3, "overrides": TASK}
    api.tune("bert", trials=3, params=["lr", "batch_size"], out=name, **files, **settings)


def run_export(name: str, model: str) -> None:
    api.export(model, out=name)


def predictions(model: str, inputs: list[Any]) -> Any:
    return api.predict(model, inputs)


def fill_mask(model: str) -> Any:
    return json.loads(command("fill", model, "bob lives in [MASK] .", "--json"))


def command(*words: str) -> str:
    """Run `python -m unmask WORDS` in this process and return its standard output."""
    out = io.StringIO()
    with mock.patch.object(sys, "argv", ["unmask", *words]), contextlib.redirect_stdout(out):
        try:
            runpy.run_module("unmask", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"unmask {' '.join(words)} ended with {end.code}") from None
    return out.getvalue()


# ---------------------------------------------------------------------------------------------------------------- runs


@contextlib.contextmanager
def working_directory(folder: Path) -> Iterator[None]:
    """Change to the directory, write the data files and keep the cache inside. Figures are not drawn, since they take longer than the runs."""
    before = Path.cwd(), torch.get_num_threads()
    torch.set_num_threads(1)
    os.chdir(folder)
    try:
        with (
            mock.patch.dict(os.environ, UNMASK_CACHE=str(folder / "cache")),
            mock.patch.object(matplotlib.figure.Figure, "savefig"),
        ):
            if not Path("corpus.txt").exists():
                write_data()
            yield
    finally:
        os.chdir(before[0])
        torch.set_num_threads(before[1])


def train_run(name: str) -> None:
    """Train the run of that name and the runs it depends on, unless they exist."""
    if Path(name).exists():
        return
    if name in PRETRAIN:
        if name in ("distill", "more"):
            train_run("bert")
        run_pretraining(name, **PRETRAIN[name])
    elif name in FINETUNE:
        train_run(FINETUNE[name]["model"])
        if "teacher" in FINETUNE[name]:
            train_run(FINETUNE[name]["teacher"])
        run_finetuning(name, **FINETUNE[name])
    elif name in EXPORTED:
        train_run(EXPORTED[name])
        run_export(name, EXPORTED[name])
    else:
        train_run("bert")
        run_tasks(name) if name == "tasks" else run_search(name)


def record(name: str) -> dict[str, Any]:
    """Return the values of a run that are compared; train it if necessary."""
    train_run(name)
    folder = Path(name)
    newer_files = {
        "run.json",
        *(["results.json"] if name in PRETRAIN else []),
    }  # files that were introduced after the recordings
    recorded: dict[str, Any] = {"files": [path for path in file_names(folder) if Path(path).name not in newer_files]}
    if name in EXPORTED:
        about = read("export.json", folder)
        recorded["export"] = {key: value for key, value in about.items() if key not in ("by", "validation")}
        recorded["config"] = read("config.json", folder)
        recorded["predictions"] = predictions(name, INPUTS[FINETUNE[EXPORTED[name]]["file"]])
        return to_json(recorded)
    recorded |= read_log(folder)
    for file in ("plan.json", "results.json", "findings.json"):
        if (folder / file).exists() and not (name in PRETRAIN and file == "results.json"):
            recorded[file.removesuffix(".json")] = read(file, folder)
    for model in sorted({file.parent for file in folder.glob("model/**/config.json")}):
        for file in ("config.json", "unmask.json"):
            if (model / file).exists():
                recorded[f"{model}/{file}"] = read(file, model)
    if name in PRETRAIN:
        if name not in ("span", "denoise", "clm", "gpt", "bilm", "cbow"):
            recorded["predictions"] = fill_mask(name) if read("fills.json", folder) else []
    elif name == "tasks":
        recorded["predictions"] = [predictions(f"{name}/model/{task}", INPUTS["one"]) for task in TASKS]
    else:
        recorded["predictions"] = predictions(name, INPUTS[FINETUNE.get(name, ONE)["file"]])
    if name == "rank":  # the loss ignores a constant offset of the scores, which depends on rounding
        for answer in recorded["predictions"]:
            answer["scores"] = [score - answer["scores"][0] for score in answer["scores"]]
    return to_json(recorded)


def read_log(folder: Path) -> dict[str, Any]:
    """Return losses, loss terms and evaluation metrics from the log. The `end` event of fine-tuning is newer than the recordings, so it is left out."""
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    event_types = (
        ("eval",) if any((folder / file).exists() for file in ("task_state.json", "learnt.json")) else ("eval", "end")
    )
    steps = [event for event in events if event["event"] == "train"]
    terms = sorted({key for event in steps for key in event} - NOT_TERMS)
    return {
        "losses": {term: [event.get(term) for event in steps] for term in terms},
        "evaluations": [event for event in events if event["event"] in event_types],
    }


def read(name: str, folder: Path) -> Any:
    return json.loads((folder / name).read_text("utf-8"))


def file_names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def to_json(value: Any) -> Any:
    """Convert to JSON types, without times."""
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items() if key not in TIMES}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return to_json(value.tolist()) if hasattr(value, "tolist") else str(value)


def checksums(name: str) -> dict[str, str]:
    """Return checksums of the files that must be bit-identical on one machine. ONNX graphs are left out: they contain source file paths."""
    names = [
        file
        for file in file_names(Path(name))
        if file.endswith((".safetensors", "tokenizer.json", ".predictions.jsonl"))
    ]
    return {file: hashlib.sha256(content(Path(name) / file)).hexdigest() for file in names}


def content(file: Path) -> bytes:
    """Return the bytes of a file; for weights, with a sorted header, because safetensors writes its entries in any order."""
    data = file.read_bytes()
    if file.suffix != ".safetensors":
        return data
    end = 8 + int.from_bytes(data[:8], "little")
    return json.dumps(json.loads(data[8:end]), sort_keys=True).encode() + data[end:]


# ---------------------------------------------------------------------------------------------------------- comparison


def differences(
    actual: Any, expected: Any, tolerance: float = TOLERANCE, min_tolerance: float = MIN_TOLERANCE, path: str = ""
) -> Iterator[str]:
    """Yield the differences of two values: any difference of strings and keys, and numbers that differ by more than the tolerance.

    >>> list(differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.1]}))
    ['a.1: 2.0 instead of 2.1']
    """
    if isinstance(actual, dict) and isinstance(expected, dict):
        if list(actual) != list(expected):
            yield f"{path or 'keys'}: {list(actual)} instead of {list(expected)}"
        for key in (key for key in expected if key in actual):
            yield from differences(actual[key], expected[key], tolerance, min_tolerance, f"{path}.{key}".lstrip("."))
    elif isinstance(actual, list) and isinstance(expected, list):
        if len(actual) != len(expected):
            yield f"{path}: {len(actual)} items instead of {len(expected)}"
        for n, (a, b) in enumerate(zip(actual, expected)):
            yield from differences(a, b, tolerance, min_tolerance, f"{path}.{n}".lstrip("."))
    elif type(actual) is float and type(expected) is float:
        if not (actual == expected or abs(actual - expected) <= max(min_tolerance, tolerance * abs(expected))):
            yield f"{path}: {actual!r} instead of {expected!r}"
    elif type(actual) is not type(expected) or actual != expected:
        yield f"{path}: {actual!r} instead of {expected!r}"


# ---------------------------------------------------------------------------------------------------------------- files


def file_of(name: str) -> Path:
    return FOLDER / f"{name.replace(' ', '-')}.json"


def text_of(value: Any) -> str:
    """Return JSON with innermost lists on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m[0].split()), text) + "\n"


def record_all(names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, working_directory(Path(folder)):
        for name in names:
            yield name, record(name) | {"checksums": checksums(name)}


def main(arguments: list[str]) -> None:
    """[NAME …]: rewrite the files of these cases, or of all. --to FILE: write everything with checksums into one file."""
    if arguments[:1] == ["--to"]:
        cases = dict(record_all(CASES))
        Path(arguments[1]).write_text(json.dumps({"package": str(Path(api.__file__).parent), "cases": cases}), "utf-8")
        return
    for name, value in record_all(tuple(arguments) or tuple(name for name in CASES if name not in ONLY_HERE)):
        file_of(name).write_text(text_of({key: part for key, part in value.items() if key != "checksums"}), "utf-8")
        sys.stdout.write(f"{file_of(name)} written\n")


if __name__ == "__main__":
    main(sys.argv[1:])
