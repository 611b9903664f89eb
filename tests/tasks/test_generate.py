"""Text generation: every architecture that can generate memorizes a few pairs and generates the same text in
transformers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

from unmask import api
from unmask.batch import collate
from unmask.cli import app
from unmask.errors import UserError
from unmask.inference.predictor import load
from unmask.labels.detect_task import pick_task
from unmask.labels.records import Finding, open_source
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TaskRecipe, TokenizerRecipe
from unmask.tasks import on_model
from unmask.tasks.generate.task import Generate
from unmask.tasks.objective import objective_of
from unmask.tasks.task import FitContext
from unmask.text.tokenizer import Tokenizer
from unmask.train.fit import TrainingInterrupted
from unmask.train.trainer import Trainer

PAIRS = [
    ("the cat sat on the mat", "a cat on a mat"),
    ("the dog ran to the river", "a dog at the river"),
    ("it rained all the week", "bad weather"),
    ("the king of the hill is old", "an old king"),
    ("the train came at noon", "a train at noon"),
    ("she read the book to the end", "a book read"),
    ("they sold the house", "a house sold"),
    ("the sea was calm and blue", "a calm sea"),
]
MODELS = {  # preset → kind and template of its tokenizer
    "t5-mini": ("unigram", "t5"),
    "bart-mini": ("bpe", "roberta"),
    "gpt2-mini": ("bpe", "gpt2"),
    "bert-tiny": ("wordpiece", "bert"),
    "modernbert-mini": ("wordpiece", "bert"),
}


def tokenizer_of(name: str) -> Tokenizer:
    kind, template = MODELS[name]
    lower = kind == "wordpiece"
    settings = TokenizerRecipe(type=kind, template=template, lowercase=lower, min_frequency=1)  # type: ignore[arg-type]
    return Tokenizer.train([f"{text}. summarize: {target}" for text, target in PAIRS] * 2, settings)


def start(folder: Path, name: str, heads: tuple[str, ...] = (), **more: Any) -> Path:
    """A tiny untrained model."""
    tokenizer, full = tokenizer_of(name), preset(name)
    shape = {"layers": 2, "hidden": 32, "heads": 4, "vocab_size": tokenizer.size, **tokenizer.config_ids()}
    shape |= {"dropout": 0.0, "attention_dropout": 0.0} | more
    shape |= {"decoder_layers": 2} if full.decoder_layers else {}
    shape |= {"head_size": 8} if full.head_size else {}
    shape |= {"intermediate": 64} if full.intermediate else {}
    model = Model(preset(name, **shape), heads or (("lm",) if full.decoder_layers or full.causal else ("mlm",))).init(0)
    hf.save(model, folder, tokenizer)
    return folder


def pairs_file(path: Path, rows: Any = PAIRS) -> Path:
    path.write_text("".join(json.dumps({"text": t, "summary": s}) + "\n" for t, s in rows))
    return path


def task_of(folder: Path, **settings: Any) -> Generate:
    config, recipe = hf.config_of(folder), Recipe.build({"task": settings})
    tokenizer = Tokenizer.load(folder)
    task = Generate(recipe, tokenizer, Generate.fit_state(FitContext(recipe, config, tokenizer), []).task_state)
    task.bind(config)
    return task


@pytest.fixture(scope="module", params=list(MODELS))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The run directory of a model that memorized the pairs."""
    folder = tmp_path_factory.mktemp(request.param.replace(".", "-"))
    model, file = start(folder / "start", request.param), pairs_file(folder / "pairs.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.report.write", lambda *_: None)  # plots take seconds and are tested elsewhere
        run = api.finetune(
            model, task="generate", train=file, steps=100, batch_size=8, lr=1e-2, out=folder / "run",
            overrides=["train.layerwise_lr_decay=1", "task.generate.source_prefix='summarize: '", "task.generate.max_new_tokens=20"],
        )  # fmt: skip
    return request.param, run.path


def test_model_memorizes_pairs_and_reloads(trained: tuple[str, Path]) -> None:
    _name, run = trained
    scores = api.evaluate(run, run.parent / "pairs.jsonl")
    assert scores["rougeL"] == 1.0 and scores["bleu"] > 0.9 and len(scores["details"]["errors"]) == 8
    predictor = load(run)
    texts, expected = zip(*PAIRS)
    answers = predictor.predict([{"text": text} for text in texts])
    assert [a["output"] for a in answers] == list(expected) and all(a["finish_reason"] == "eos" for a in answers)
    assert [c.generated_text for c in predictor.generate(list(texts))] == list(expected)
    assert len(predictor.generate(texts[0], max_new_tokens=2).tokens) == 2
    assert api.predict(run, list(texts))[3]["output"] == expected[3]
    again = hf.load(run / "model").model
    assert all(torch.equal(a, b) for a, b in zip(predictor.model.state_dict().values(), again.state_dict().values()))
    out = CliRunner().invoke(app, ["predict", str(run), texts[1]])
    assert out.exit_code == 0 and out.output.strip().endswith(expected[1])


def test_transformers_generates_the_same(trained: tuple[str, Path]) -> None:
    name, run = trained
    if preset(name).decoder_layers == 0 and not preset(name).causal:
        pytest.skip("transformers has no encoder with a prefix mask")
    folder = run / "model"
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, kind).from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    for text, target in PAIRS:
        ids = tokens(f"summarize: {text}")["input_ids"]
        ids = torch.tensor([ids + [tokens.eos_token_id] * bool(preset(name).causal)])
        for settings in ({}, {"num_beams": 3}):
            new = theirs.generate(
                ids, attention_mask=torch.ones_like(ids), pad_token_id=tokens.pad_token_id, **settings
            )
            new = new[0, ids.shape[1] :] if preset(name).causal else new[0]
            generated = tokens.decode(new, skip_special_tokens=True).strip()
            assert generated == load(run).generate(text, **settings).generated_text
            assert settings or generated == target


def test_special_tokens_are_removed_from_predictions(tmp_path: Path, no_report: None) -> None:
    """A pre-trained T5 still generates <extra_id_0> after a short fine-tuning. transformers removes it, and so does
    unmask."""
    rows = [(text, f"<extra_id_0> {target} <extra_id_1>") for text, target in PAIRS]
    run = api.finetune(
        start(tmp_path / "start", "t5-mini"), task="generate", train=pairs_file(tmp_path / "pairs.jsonl", rows), steps=60,
        batch_size=8, lr=1e-2, out=tmp_path / "run", overrides=["train.layerwise_lr_decay=1", "task.generate.max_new_tokens=20"],
    )  # fmt: skip
    model, sentinels = load(run.path), 0
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(run.model).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(run.model)
    for text, _ in PAIRS:
        ids = torch.tensor([tokens(text)["input_ids"]])
        new = theirs.generate(ids, attention_mask=torch.ones_like(ids))[0]
        sentinels += "<extra_id_" in tokens.decode(new)
        generated = tokens.decode(new, skip_special_tokens=True).strip()
        assert model(text)["output"] == model.generate(text).generated_text == generated
    assert sentinels > 0


@pytest.mark.parametrize("name", MODELS)
def test_loss_covers_only_the_target(name: str, tmp_path: Path) -> None:
    """Cross-entropy over every target token and the end token, equal to that of transformers where available."""
    task = task_of(start(tmp_path / "m", name))
    model = hf.load(tmp_path / "m", task.heads, task.bound.config_overrides).model.eval()
    rows = [task.encode({"text": t, "target": s})[0] for t, s in PAIRS[:4]]
    batch = collate(rows, task.tokenizer.pad)
    target_ids = [task.target_ids(s) for _, s in PAIRS[:4]]
    assert all(ids[-1] == task.tokenizer.sep for ids in target_ids)
    assert batch.labels["generate.targets"].tolist() == [i for ids in target_ids for i in ids]
    assert objective_of(task).target_counts(batch) == {"generate": sum(map(len, target_ids))}
    with torch.no_grad():
        total, count = objective_of(task).loss(model, batch)["generate"]
    if not (task.decoder or task.causal):
        # Generation is causal: changing a later target token does not change earlier logits.
        other = rows[0]
        other.input_ids[-1] = (other.input_ids[-1] + 1) % 50 + 5
        changed = model.encode(collate([other], task.tokenizer.pad))
        first = len(task.prompt({"text": PAIRS[0][0]})[0])
        same = model.encode(collate([task.encode({"text": PAIRS[0][0], "target": PAIRS[0][1]})[0]], 0))
        assert torch.equal(changed[0, : first + 1], same[0, : first + 1]) and not torch.equal(changed, same)
        return
    kind = json.loads((tmp_path / "m" / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / "m").eval()
    sums = 0.0
    for (text, _), ids in zip(PAIRS[:4], target_ids):
        prompt = task.prompt({"text": text})[0]
        row, labels = (prompt, ids) if task.decoder else (prompt + ids, [-100] * len(prompt) + ids)
        with torch.no_grad():
            sums += float(theirs(torch.tensor([row]), labels=torch.tensor([labels])).loss) * len(ids)
    assert float(total) == pytest.approx(sums, rel=1e-4) and count == sum(map(len, target_ids))


def test_files_and_columns(tmp_path: Path) -> None:
    findings: list[Finding] = []
    (tmp_path / "a.jsonl").write_text(
        '{"source": ["One.", "Two."], "target": ["the first one", "a second one"], "paper_id": "x"}\n'
        '{"source": ["Three."], "target": ["a third line"]}\n{"source": [], "target": ["x y z w"]}\n{"source": ["y"], "target": []}\n'
    )
    source = open_source(str(tmp_path / "a.jsonl"), findings)
    records = Generate.SPEC.data_format.read(source, TaskRecipe(), findings)
    assert records[0]["text"] == "One. Two." and records[0]["target"] == "the first one"
    assert records[0]["references"] == ["the first one", "a second one"] and "references" not in records[1]
    assert [f.location for f in findings] == [f"{tmp_path}/a.jsonl:3", f"{tmp_path}/a.jsonl:4"]
    (tmp_path / "b.csv").write_text("article,highlights\n" + "".join(f"text {i},some words {i}\n" for i in range(5)))
    other = open_source(str(tmp_path / "b.csv"), findings)
    assert (
        Generate.SPEC.data_format.matches(source)
        and Generate.SPEC.data_format.matches(other)
        and pick_task(TaskRecipe(), [other]).name == "generate"
    )
    assert Generate.SPEC.data_format.read(other, TaskRecipe(), findings)[1] == {
        "location": other.location(3),
        "text": "text 1",
        "target": "some words 1",
    }
    assert Generate.SPEC.data_format.read(other, TaskRecipe(columns={"text": "highlights"}), findings, labeled=False)[
        0
    ]["text"]
    (tmp_path / "c.csv").write_text("text,target\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(9)))
    assert not Generate.SPEC.data_format.matches(open_source(str(tmp_path / "c.csv"), findings))


@pytest.mark.parametrize("name", ["t5-mini", "gpt2-mini", "bert-tiny"])
def test_long_texts_are_truncated_and_counted_or_raise(name: str, tmp_path: Path) -> None:
    start(tmp_path / "m", name)
    task = task_of(tmp_path / "m", max_length=32, generate={"max_new_tokens": 12})
    record = {"location": "f:1", "text": "the cat sat on the mat " * 20, "target": "a cat on a mat " * 20}
    (row,) = task.encode(record)
    assert (
        task.windowing.tally.overflowing.total() == 1 and len(row) <= 32 and len(row.labels["generate.targets"]) == 12
    )
    assert row.labels["generate.targets"][-1] != task.tokenizer.sep  # a truncated target has no end token
    prompt_length = len(task.prompt(record)[0])
    max_positions = hf.config_of(tmp_path / "m").max_positions
    assert prompt_length == (32 if task.decoder else 20) and task.windowing.overflow_action() == "cut at their end"
    assert (
        f"--max-length {max_positions} reads more" in task.windowing.tally.note_lines()[0]
        and "max_new_tokens=… allows more" in task.windowing.tally.note_lines()[1]
    )
    wide = task_of(tmp_path / "m", max_length=max_positions, generate={"max_new_tokens": 12})
    wide.encode(record | {"text": record["text"] * 20})
    assert (
        wide.windowing.tally.overflowing.total() == 1 and len(wide.windowing.tally.note_lines()) == 1
    )  # max_length is already at its maximum
    model = hf.load(tmp_path / "m", task.heads, task.bound.config_overrides).model
    (answer,) = task.predict(model, [record])
    assert answer["num_truncated_tokens"] == len(task.tokenizer.encode(record["text"])) - len(
        task.tokenizer.encode(record["text"])[: prompt_length - (2 if name == "bert-tiny" else 1)]
    )
    with pytest.raises(UserError, match="f:1"):
        task_of(tmp_path / "m", max_length=32, overflow="error", generate={"max_new_tokens": 12}).encode(record)


def test_models_that_cannot_generate_raise(tmp_path: Path) -> None:
    for name in ("elmo-mini", "cbow-mini"):
        with pytest.raises(UserError, match="does not fit") as error:
            Generate.check(Recipe(), preset(name))
        assert "t5" in str(error.value.expected) and "elmo" not in str(error.value.expected)
    MODELS["electra-mini"] = MODELS["bert-tiny"]
    try:
        for heads in (("rtd",), ("mlm",)):
            folder = start(tmp_path / heads[0], "electra-mini", heads)
            recipe = Recipe.build({"init_from": str(folder)})
            if heads == ("mlm",):
                Generate.check(recipe, hf.config_of(folder))
                continue
            with pytest.raises(UserError, match="discriminator"):
                Generate.check(recipe, hf.config_of(folder))
    finally:
        del MODELS["electra-mini"]
    for wrong in ({"generate": {"max_new_tokens": 600}}, {"freeze": "encoder"}):
        with pytest.raises(UserError):
            Generate.check(Recipe.build({"task": wrong}), preset("gpt2-mini"))


def test_max_dev_records_limits_generation_during_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = start(tmp_path / "m", "t5-mini")
    train, dev = (
        pairs_file(tmp_path / "train.jsonl"),
        pairs_file(tmp_path / "dev.jsonl", [(f"{t} now", s) for t, s in PAIRS]),
    )
    seen: list[int] = []
    predict = Generate.predict
    monkeypatch.setattr("unmask.report.write", lambda *_: None)
    spec = replace(Generate.SPEC, training=replace(Generate.SPEC.training, max_dev_records=3))
    monkeypatch.setattr(Generate, "SPEC", spec)
    monkeypatch.setattr(Generate, "predict", lambda self, m, r, u=None: seen.append(len(r)) or predict(self, m, r, u))
    settings = ["task.generate.max_new_tokens=4", "train.num_evals=2"]
    run = api.finetune(folder, task="generate", train=train, dev=dev, steps=2, out=tmp_path / "a", overrides=settings)
    assert seen and set(seen) == {3} and run.read_json("results.json")["dev"]["records"] == 8
    seen.clear()
    api.finetune(
        folder,
        task="generate",
        train=train,
        dev=dev,
        steps=2,
        out=tmp_path / "b",
        overrides=[*settings, "train.max_eval_examples=5"],
    )
    assert set(seen) == {5}


def test_resume_is_bit_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.report.write", lambda *_: None)
    folder, train = start(tmp_path / "m", "bart-mini", dropout=0.1), pairs_file(tmp_path / "train.jsonl")
    step = Trainer.step

    def stop(self: Trainer, number: int, batches: Any) -> Any:
        if number == 4:
            raise TrainingInterrupted("enough", hint="go on")
        return step(self, number, batches)

    def run(name: str) -> Any:
        sets = ["train.save_steps=3", "task.generate.max_new_tokens=8"]
        return api.finetune(
            folder, task="generate", train=train, steps=6, batch_size=4, lr=1e-3, out=tmp_path / name, overrides=sets
        )

    whole = run("whole")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stop)
        with pytest.raises(TrainingInterrupted):
            run("cut")
    again = api.resume(tmp_path / "cut")
    for name in ("model.safetensors", "generation_config.json", "unmask.json"):
        assert (again.model / name).read_bytes() == (whole.model / name).read_bytes()


def test_generation_config_of_the_folder_is_kept_with_a_note(tmp_path: Path) -> None:
    folder = start(tmp_path / "m", "bart-mini")
    file = folder / "generation_config.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"no_repeat_ngram_size": 3, "max_length": 9, "num_beams": 4})
    )
    task = task_of(folder, generate={"num_beams": 2, "max_new_tokens": 7})
    model = hf.load(folder).model
    (note,) = on_model.configure_generation(task, model)
    assert "no_repeat_ngram_size 3" in note
    assert model.generation["max_new_tokens"] == 7 and model.generation["num_beams"] == 2
    assert "max_length" not in model.generation and model.generation["forced_eos_token_id"] == task.tokenizer.sep


def test_chinese_is_generated_without_spaces(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["猫在垫子上睡觉。GPT 好"], TokenizerRecipe(min_frequency=1))
    task = Generate(Recipe(), tokenizer, {"length": 32, "language": "zh"})
    task.bind(preset("bert-tiny"))
    assert task.decode_text(tokenizer.encode("猫在垫子上。")) == "猫在垫子上。"
    assert task.score([{"output": "猫在"}], [{"target": "猫在垫子"}])["rouge1"] == pytest.approx(2 / 3)
    assert np.isfinite(list(task.score([{"output": ""}], [{"target": "猫"}]).values())).all()
