"""Extractive question answering: encoding, labels, loss and logits as in transformers, windows, offsets in the raw
text, no-answer, and an end-to-end run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from near import gap, near
from transformers import AutoModelForQuestionAnswering
from typer.testing import CliRunner

from unmask import api
from unmask.batch import collate
from unmask.cli import app
from unmask.errors import UserError
from unmask.inference.predictor import Predictor, load
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.tasks import folder as task_folder
from unmask.tasks.answer.task import Answer
from unmask.tasks.objective import objective_of
from unmask.tasks.task import FitContext, Outputs
from unmask.text.tokenizer import Tokenizer

NAMES, PLACES = ["Ann", "Bob", "Eve", "Tom"], ["Paris", "Rome", "Oslo", "Bern"]
TEXTS = [f"{n} went to {p} and came back. Nobody else was there." for n in NAMES for p in PLACES] * 3
TEXTS += [
    "Where did go? Who went to? 诺曼底在哪个国家？ 你好，世界。 ＡＢＣ １２３ 😀 cafe\u0301 naïve ❤️ 法国 10世纪"
] * 3
SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "dropout": 0.0, "attention_dropout": 0.0}


def tokenizer_of(kind: str = "wordpiece", **more: Any) -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerRecipe(**{"type": kind, "min_frequency": 1, **more}))


def task_of(tokenizer: Tokenizer, length: int = 64, none: bool = True, **settings: Any) -> Answer:
    recipe = Recipe.build({"task": {"answer": settings}})
    task_state = {"length": length, "none": none, "threshold": 0.0 if none else None, "chinese": False}
    return Answer(recipe, tokenizer, task_state)


def record(question: str, context: str, text: str = "", **more: Any) -> dict[str, Any]:
    answers = [{"text": text, "start": context.index(text)}] if text else []
    return {
        "location": "made:1",
        "question": question,
        "context": context,
        "answers": answers,
        "impossible": not text,
    } | more


def perfect(task: Answer, r: dict[str, Any], logit: float = 9.0) -> list[dict[str, Any]]:
    """Decode the output of a model that predicts exactly the labels."""
    rows = task.encode(r)
    values = []
    for row in rows:
        logits = np.zeros((len(row), 2), np.float32)
        logits[row.labels["start.targets"][0], 0] = logits[row.labels["end.targets"][0], 1] = logit
        values.append(logits)
    return task.decode(Outputs(values, rows, np.zeros(len(rows), int)))


# ---------------------------------------------------------------------------------------------------------------- rows


def test_rows_windows_and_labels() -> None:
    tokenizer = tokenizer_of()
    task = task_of(tokenizer, 32, doc_stride=4)
    context = "Nobody else was there. " * 8 + "Ann went to Paris and came back."
    r = record("Where did Ann go?", context, "Paris and")
    rows, ids, question = task.encode(r), tokenizer.encode(context), tokenizer.encode(r["question"])
    size = 32 - 3 - len(question)
    assert len(rows) > 2 and task.windowing.tally.overflowing.total() == 1
    for n, row in enumerate(rows):
        assert row.input_ids[: len(question) + 2].tolist() == [tokenizer.cls, *question, tokenizer.sep]
        assert row.input_ids[len(question) + 2 : -1].tolist() == ids[n * (size - 4) : n * (size - 4) + size]
        assert row.input_ids[-1] == tokenizer.sep and row.token_type_ids is not None
        assert row.token_type_ids.tolist() == [0] * (len(question) + 2) + [1] * (len(row) - len(question) - 2)
        start, end = int(row.labels["start.targets"][0]), int(row.labels["end.targets"][0])
        whole = tokenizer.encode("Paris and")
        inside = any(row.input_ids[i : i + len(whole)].tolist() == whole for i in range(len(row)))
        assert row.input_ids[start : end + 1].tolist() == (whole if inside else [tokenizer.cls])
    assert {int(row.labels["start.targets"][0]) > 0 for row in rows} == {True, False}
    assert perfect(task, r)[0]["answer"] == "Paris and"
    none = task.encode(record("Where?", context))
    assert all(int(row.labels["start.targets"][0]) == int(row.labels["end.targets"][0]) == 0 for row in none)


def test_windows_match_the_tokenizers_library() -> None:
    tokenizer = tokenizer_of()
    context, question = "Ann went to Paris and came back. " * 9, "Where did Ann go?"
    rows = task_of(tokenizer, 40, doc_stride=8).encode(record(question, context))
    tokenizer.backend.enable_truncation(40, stride=8, strategy="only_second")
    theirs = tokenizer.backend.encode(question, context)
    assert [row.input_ids.tolist() for row in rows] == [e.ids for e in (theirs, *theirs.overflowing)]


def test_long_questions_are_truncated_with_a_note_and_contexts_follow_overflow() -> None:
    task = task_of(tokenizer_of(), 32)
    rows = task.encode(record("Where did Ann go? " * 10, "Ann went to Paris.", "Paris"))
    assert all(len(row) <= 32 for row in rows) and "1 questions" in task.windowing.tally.note_lines()[0]
    assert perfect(task, record("Where did Ann go? " * 10, "Ann went to Paris.", "Paris"))[0]["answer"] == "Paris"
    long = record("Where?", "Ann went to Paris. " * 20)
    assert len(task.with_overflow("truncate").encode(long)) == 1
    with pytest.raises(UserError, match="tokens, a row has room"):
        task.with_overflow("error").encode(long)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char", "byte"])
@pytest.mark.parametrize("cased", [True, False])
def test_offsets_refer_to_the_raw_text(kind: str, cased: bool) -> None:
    tokenizer = tokenizer_of(kind, lowercase=not cased)
    task = task_of(tokenizer, 96, max_answer_length=40, doc_stride=16)
    for context, answers in {
        "诺曼底在哪个国家？法国，10世纪。😀诺曼底": ["法国", "10世纪", "😀", "诺曼底"],
        "He likes  cafe\u0301 and nai\u0308ve, ＡＢＣ１２３ \t ❤\ufe0f end": [
            "cafe\u0301",
            "nai\u0308ve",
            "ＡＢＣ",
            "❤\ufe0f",
        ],
        "你好，世界。" * 30 + "😀 Ann\u3000went": ["😀", "Ann"],
        "Ann went to Paris\r\nand Café Rome.": ["Paris", "Café", "Café Rome", "and"],
    }.items():
        for text in answers:
            r = record("Where?", context, text)
            (answer,) = perfect(task, r)
            start, end = answer["start"], answer["end"]
            assert context[start:end] == answer["answer"] and answer["answer"].strip() == answer["answer"]
            # a tokenizer whose tokens cross a span boundary gives the smallest enclosing span
            if answer["answer"] != text:
                assert start <= context.index(text) and end >= context.index(text) + len(text)
                assert kind in ("wordpiece", "bpe", "unigram")
            elif kind in ("char", "byte"):
                assert answer["answer"] == text


# --------------------------------------------------------------------------------------------------------- predictions


def outputs_of(task: Answer, context: str, logits: list[np.ndarray]) -> Outputs:
    rows = task.encode(record("Who?", context), labeled=False)
    assert len(rows) == len(logits)
    full = []
    for row, context_logits in zip(rows, logits):
        values = np.full((len(row), 2), -5.0, np.float32)
        values[0] = context_logits[0]
        first = row.metadata.first_position
        values[first : first + len(context_logits) - 1] = context_logits[1:]
        full.append(values)
    return Outputs(full, rows, np.zeros(len(rows), int))


def test_no_answer_uses_the_threshold_and_the_smallest_null_score() -> None:
    task = task_of(tokenizer_of("char"), 64, max_answer_length=2)
    logits = np.full((5, 2), -3.0)
    logits[0], logits[1, 0], logits[2, 1] = (1.0, 2.0), 2.0, 0.5  # null 3, "ab" 2.5
    (answer,) = task.decode(outputs_of(task, "abcd", [logits]))
    assert (answer["answer"], answer["start"], answer["end"]) == ("", None, None)
    assert answer["score"] == pytest.approx(-0.5) and answer["candidates"][0]["answer"] == "ab"
    assert 0.5 < answer["probability"] < 1 and len(answer["candidates"]) == 3
    task.task_state["threshold"] = 0.5
    assert task.decode(outputs_of(task, "abcd", [logits]))[0]["answer"] == "ab"
    task.task_state["threshold"] = None  # never
    (answer,) = task.decode(outputs_of(task, "abcd", [logits]))
    exp_scores = np.exp([logits[1 + s, 0] + logits[1 + e, 1] for s in range(4) for e in range(s, min(4, s + 2))])
    assert answer["answer"] == "ab" and answer["probability"] == pytest.approx(exp_scores.max() / exp_scores.sum())
    short = task_of(tokenizer_of("char"), 12, max_answer_length=2, doc_stride=1)
    rows = short.encode(record("Who?", "abcdefgh"), labeled=False)
    values = [np.zeros((len(row), 2), np.float32) for row in rows]
    for n, v in enumerate(values):
        v[0] = n - 1.0
    (answer,) = short.decode(Outputs(values, rows, np.zeros(len(rows), int)))
    assert answer["score"] == pytest.approx(0 - (-2.0))


def test_a_context_without_tokens_has_no_answer() -> None:
    task = task_of(tokenizer_of(), 32)
    (row,) = task.encode(record("Who?", "\x00\x01"), labeled=False)
    (answer,) = task.decode(Outputs([np.zeros((len(row), 2), np.float32)], [row], np.zeros(1, int)))
    assert answer["answer"] == "" and answer["start"] is None and answer["candidates"] == []
    json.dumps(answer, allow_nan=False)


def test_threshold_is_tuned_on_answerable_and_unanswerable_questions() -> None:
    task = task_of(tokenizer_of("char"), 64)
    records, rows, values = [], [], []
    for n in range(20):
        r = record("Who?", "abcd", "b" if n % 2 else "")
        (row,) = task.encode(r)
        logits = np.zeros((len(row), 2), np.float32)
        first = row.metadata.first_position + 1
        logits[first] = 5 if n % 2 else 4.5  # all predict "b", the answerable ones with slightly higher scores
        logits[0] = 6
        records.append(r)
        rows.append(row)
        values.append(logits)
    outputs = Outputs(values, rows, np.arange(20))
    before = task.score(task.decode(outputs), records)
    task.task_state |= task.calibrate(outputs, records)
    after = task.score(task.decode(outputs), records)
    assert before["f1"] == 0.5 and after["f1"] == after["best_f1"] == 1.0
    assert task.task_state["threshold"] == after["best_f1_thresh"] == pytest.approx(2.0)
    assert after["NoAns_exact"] == after["HasAns_exact"] == 1.0
    task.task_state["threshold"] = 0.25
    task.task_state |= task.calibrate(
        outputs, [records[1]] * 20
    )  # a dev set with one kind only cannot tune the threshold
    assert task.task_state["threshold"] == 0.25


def test_task_state_is_fitted_on_the_records() -> None:
    config = preset("bert-tiny", vocab_size=50)
    answerable, unanswerable = record("Wo?", "in Rom", "Rom"), record("Wo?", "in Rom")
    assert Answer.fit_state(FitContext(Recipe(), config, tokenizer_of()), [answerable]).task_state["threshold"] is None
    assert Answer.fit_state(FitContext(Recipe(), config, tokenizer_of()), [answerable, unanswerable]).task_state["none"]
    forced = Recipe.build({}, ["task.answer.allow_no_answer=no"])
    assert not Answer.fit_state(FitContext(forced, config, tokenizer_of()), [answerable, unanswerable]).task_state[
        "none"
    ]
    task_state = Answer.fit_state(
        FitContext(Recipe(), config, tokenizer_of()), [record("在哪里？", "法国", "法国")]
    ).task_state
    assert task_state["chinese"] and Answer(Recipe(), tokenizer_of(), task_state).spec.metric() == "zh_f1"


# ---------------------------------------------------------------------------------------- comparison with transformers


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini", "roberta-mini"])
def test_loss_and_logits_match_transformers(name: str, tmp_path: Path) -> None:
    template = {"template": "roberta"} if name.startswith("roberta") else {}
    tokenizer = tokenizer_of("bpe" if template else "wordpiece", **template)
    config = preset(name, vocab_size=tokenizer.size, **SHAPE, **tokenizer.config_ids())
    model = Model(config, ("answer",)).init(0)
    task = task_of(tokenizer, 40, doc_stride=8)
    hf.save(model, tmp_path, tokenizer)
    theirs, loading_info = AutoModelForQuestionAnswering.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    contexts = [
        (f"{n} went to {p} and came back. Nobody else was there. " * k, p)
        for n, p, k in zip(NAMES, PLACES, (1, 3, 2, 1))
    ]
    records = [record("Where did Ann go?", context, text) for context, text in contexts] + [
        record("Who?", contexts[0][0])
    ]
    rows = [row for r in records for row in task.encode(r)]
    if template:  # transformers assigns different positions to padding, so compare rows without padding
        rows = [row for row in rows if len(row) == 40]
    batch = collate(rows, tokenizer.pad)
    mask = torch.ones_like(batch.input_ids, dtype=torch.bool) if batch.attention_mask is None else batch.attention_mask
    assert rows and bool(mask.all()) == bool(template)
    objective = objective_of(task)
    counts, terms = objective.target_counts(batch), objective.loss(model, batch)
    loss = sum(objective.weights[k] * float(total.detach()) / counts[k] for k, (total, _) in terms.items())
    theirs.eval()

    def reference_outputs(batch: Any, mask: torch.Tensor) -> Any:
        inputs = {"input_ids": batch.input_ids, "attention_mask": mask.long()}
        if config.segments > 1 and batch.token_type_ids is not None:
            inputs["token_type_ids"] = batch.token_type_ids
        return theirs(
            **inputs, start_positions=batch.labels["start.targets"], end_positions=batch.labels["end.targets"]
        )

    with torch.no_grad():
        out, ours = reference_outputs(batch, mask), task.forward(model.eval(), batch)
        alone = [collate([row], tokenizer.pad) for row in rows]  # their softmax includes padding
        expected = np.mean([float(reference_outputs(row, torch.ones_like(row.input_ids)).loss) for row in alone])
    assert loss == near(expected, 1e-5)
    assert gap(ours[..., 0][mask], out.start_logits[mask]) < 1e-4
    assert gap(ours[..., 1][mask], out.end_logits[mask]) < 1e-4


# ---------------------------------------------------------------------------------------------------------- end to end


def model_folder(folder: Path, tokenizer: Tokenizer) -> Path:
    model = Model(preset("bert-tiny", vocab_size=tokenizer.size, **SHAPE | {"max_positions": 64}), ("mlm",)).init(0)
    hf.save(model, folder, tokenizer)
    return folder


def squad_file(path: Path) -> Path:
    paragraphs = []
    for n, p in zip(NAMES, PLACES):
        context = f"{n} went to {p} and came back."
        qas: list[dict[str, Any]] = [
            {"id": f"{n}1", "question": "Where?", "answers": [{"text": p, "answer_start": context.index(p)}]},
            {"id": f"{n}2", "question": "Who went?", "answers": [{"text": n, "answer_start": 0}]},
            {"id": f"{n}3", "question": "naïve cafe\u0301 😀", "answers": [], "is_impossible": True},
        ]
        paragraphs.append({"context": context, "qas": qas})
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}, indent=1))
    return path


def test_saved_model_answers_the_same_in_python_cli_and_transformers(tmp_path: Path) -> None:
    start = model_folder(tmp_path / "start", tokenizer_of())
    train = squad_file(tmp_path / "train.json")
    sets = ["train.layerwise_lr_decay=1.0", "task.patience=0"]
    run = api.finetune(start, train=train, steps=100, lr=5e-3, batch_size=12, out=tmp_path / "run", overrides=sets)
    scores = api.evaluate(run.model, train)
    assert scores["task"] == "answer" and scores["metric"] == "f1"
    assert scores["f1"] > 0.95 and scores["NoAns_exact"] == 1.0 and scores["total"] == 12
    p = load(run.model)
    question, context = "Where?", "Ann went to Paris and came back."
    answer = p.answer(question, context)
    assert (answer["answer"], answer["start"], answer["end"]) == ("Paris", 12, 17) and answer == p(question, context)
    again = load(run.model)
    for (name, a), b in zip(p.model.state_dict().items(), again.model.state_dict().values()):
        assert torch.equal(a, b), name
    assert again.answer(question, context) == answer and p.answer("naïve cafe\u0301 😀", context)["answer"] == ""
    # the command line
    result = CliRunner().invoke(app, ["predict", str(run.model), question, context, "--json"])
    assert result.exit_code == 0, result.output
    (printed,) = json.loads(result.output)
    assert {k: printed[k] for k in answer} == json.loads(json.dumps(answer))
    result = CliRunner().invoke(app, ["predict", str(run.model), question, context])
    assert "Where?  →  Paris" in result.output and "characters 12–17" in result.output
    result = CliRunner().invoke(app, ["evaluate", str(run.model), str(train), "--json"])
    assert json.loads(result.output)["best_f1"] == scores["best_f1"]
    # transformers
    theirs, loading_info = AutoModelForQuestionAnswering.from_pretrained(run.model, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    assert p.task is not None
    (row,) = p.task.encode(record(question, context), labeled=False)
    batch = collate([row], p.tokenizer.pad)
    with torch.no_grad():
        out = theirs.eval()(input_ids=batch.input_ids, token_type_ids=batch.token_type_ids)
    s, e = int(out.start_logits.argmax()), int(out.end_logits.argmax())
    offsets = row.metadata.offsets
    assert context[offsets[s - row.metadata.first_position][0] : offsets[e - row.metadata.first_position][1]] == "Paris"
    null = out.start_logits[0, 0] + out.end_logits[0, 0]
    assert answer["score"] == near(float(out.start_logits[0, s] + out.end_logits[0, e] - null), 1e-4)


def test_max_answer_length_follows_the_training_file(tmp_path: Path) -> None:
    """Most answers in Chinese characters have more than the 30 tokens that suffice for English."""
    start = model_folder(tmp_path / "start", tokenizer_of("char"))
    long = "你好世界" * 10
    lines = [
        {"id": str(n), "question": "Where?", "context": f"{p}法国{long}", "answer": p if n % 3 else long}
        for n, p in enumerate(PLACES * 6)
    ]
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = api.finetune(start, train=train, steps=1, out=tmp_path / "run")
    assert not [f for f in run.read_json("findings.json") if f["kind"] == "answer length"]
    task = load(run.model).task
    assert isinstance(task, Answer) and 40 <= task.max_answer_length <= 64
    (answer,) = perfect(task, record("Where?", f"Oslo法国{long}", long))
    assert answer["answer"] == long

    command = ["finetune", str(start), "--train", str(train), "--steps=1", "--out", str(tmp_path / "short")]
    result = CliRunner().invoke(app, [*command, "--set", "task.answer.max_answer_length=7"])
    output = " ".join(result.output.split())
    assert (
        result.exit_code == 0 and "8 of 24 answers are longer than task.answer.max_answer_length (7 tokens)" in output
    )
    assert "--set task.answer.max_answer_length=42" in output
    task = load(tmp_path / "short").task
    assert isinstance(task, Answer) and task.max_answer_length == 7
    findings = api.doctor(train, model=start, overrides=["task.answer.max_answer_length=7"])["findings"]
    assert [f["kind"] for f in findings if f["kind"] == "answer length"]


def test_max_answer_length_defaults_to_30_tokens() -> None:
    assert task_of(tokenizer_of()).max_answer_length == 30


def test_other_tasks_and_missing_inputs_raise(tmp_path: Path) -> None:
    tokenizer = tokenizer_of()
    p = Predictor(Model(preset("bert-tiny", vocab_size=tokenizer.size, **SHAPE), ("answer",)).init(0), tokenizer)
    with pytest.raises(UserError, match="not fine-tuned"):
        p.answer("a", "b")
    p.task = task_of(tokenizer)
    for parts in (("who?",), ("who?", " "), ("a", "b", "c")):
        with pytest.raises(UserError):
            p(*parts)
    with pytest.raises(UserError, match="fine-tuned for the task answer"):
        p.choose("a", ["b", "c"])


def test_transformers_folder_loads_as_answer_task(tmp_path: Path) -> None:
    tokenizer = tokenizer_of()
    model = Model(preset("bert-tiny", vocab_size=tokenizer.size, **SHAPE), ("answer",)).init(0)
    hf.save(model, tmp_path, tokenizer)
    assert not (tmp_path / task_folder.FILE).exists()
    task = load(tmp_path).task
    assert isinstance(task, Answer) and task.task_state["threshold"] == 0.0
