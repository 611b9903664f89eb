"""Multiple choice: file formats and their errors, grouped rows, loss and logits as in transformers, and an end-to-
end run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from near import gap, near
from transformers import AutoModelForMultipleChoice
from typer.testing import CliRunner

from unmask import api
from unmask.batch import collate
from unmask.cli import app
from unmask.errors import UserError
from unmask.inference.predictor import load
from unmask.labels.records import Finding, open_source
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.tasks import inputs
from unmask.tasks.choose.task import Choose
from unmask.tasks.objective import objective_of
from unmask.tasks.task import Outputs
from unmask.text.tokenizer import Tokenizer

SHAPE = {
    "hidden": 32,
    "heads": 2,
    "layers": 2,
    "intermediate": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "max_positions": 64,
}
COLORS = {"grass": "green", "snow": "white", "coal": "black", "blood": "red"}
TEXTS = [f"The colour of {a} is {b}. grass snow coal blood green white black red" for a, b in COLORS.items()] * 4


def tokenizer_of(**more: Any) -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerRecipe(min_frequency=1, **more))


def task_of(tokenizer: Tokenizer, length: int = 32, **settings: Any) -> Choose:
    return Choose(Recipe.build({"task": settings}), tokenizer, {"length": length})


def read(path: Path, text: str, labeled: bool = True) -> tuple[list[dict[str, Any]], list[Finding]]:
    path.write_text(text, "utf-8")
    findings: list[Finding] = []
    source = open_source(str(path), findings)
    return Choose.SPEC.data_format.read(source, Recipe().task, findings, labeled), findings


# --------------------------------------------------------------------------------------------------------------- files

WANTED = {"text": "2 + 2", "choices": ["three", "four", "five"], "label": 1}
ROW: dict[str, Any] = {"question": "2 + 2", "choices": ["three", "four", "five"], "label": 1}
CELL = '"[""three"", ""four"", ""five""]"'
FORMS = {
    "list.jsonl": json.dumps(ROW),
    "letter.jsonl": json.dumps(ROW | {"label": "B"}),
    "text.jsonl": json.dumps(ROW | {"label": "four"}),
    "number.jsonl": json.dumps(ROW | {"label": "1"}),
    "arc.jsonl": json.dumps(
        {"question": "2 + 2", "choices": {"text": ROW["choices"], "label": ["1", "2", "3"]}, "answerKey": "2"}
    ),
    "objects.jsonl": json.dumps(
        {"prompt": "2 + 2", "options": [{"text": t, "label": k} for t, k in zip(ROW["choices"], "XYZ")], "answer": "Y"}
    ),
    "swag.csv": "startphrase,ending0,ending1,ending2,label\n2 + 2,three,four,five,1\n",
    "fewer.csv": "text,choice0,choice1,choice2,choice3,label\n2 + 2,three,four,five,,1\n",
    "letters.csv": "question,A,B,C,answer\n2 + 2,three,four,five,B\n",
    "named.csv": "context,answerA,answerB,answerC,label\n2 + 2,three,four,five,b\n",
    "cell.csv": f"text,choices,label\n2 + 2,{CELL},1\n",
    "python.csv": "text,choices,label\n2 + 2,\"['three', 'four', 'five']\",1\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_all_formats_give_the_same_record(name: str, tmp_path: Path) -> None:
    records, findings = read(tmp_path / name, FORMS[name])
    assert not findings and [{k: v for k, v in r.items() if k != "location"} for r in records] == [WANTED]
    assert Choose.SPEC.data_format.matches(open_source(str(tmp_path / name), []))


def test_context_is_a_separate_field_and_labels_may_be_one_based(tmp_path: Path) -> None:
    (record,), findings = read(tmp_path / "a.jsonl", json.dumps(ROW | {"context": "Sums."}))
    assert not findings and record["context"] == "Sums." and record["text"] == "2 + 2"
    rows = "\n".join(json.dumps(ROW | {"label": n}) for n in (1, 2, 3, 2, 1))
    records, (finding,) = read(tmp_path / "b.jsonl", rows)
    assert not finding.error and "count from 1" in finding.message and [r["label"] for r in records] == [0, 1, 2, 1, 0]
    (record,), findings = read(
        tmp_path / "c.jsonl", json.dumps({k: ROW[k] for k in ("question", "choices")}), labeled=False
    )
    assert not findings and "label" not in record


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"label": 3}, "the label '3' is not one of the 3 choices"),
        ({"label": -1}, "the label '-1' is not one of"),
        ({"label": "E"}, "the label 'E' is not one of"),
        ({"label": "six"}, "the label 'six' is not one of"),
        ({"label": None}, "no label"),
        ({"choices": ["four"], "label": 0}, "1 choices"),
        ({"choices": [], "label": 0}, "0 choices"),
        ({"choices": ["four", "four"]}, "the choices 0 and 1 are the same: 'four'"),
        ({"choices": ["three", " "]}, "an empty choice 1"),
        ({"choices": ["three", None]}, "no choice 1"),
        ({"choices": ["2", "1", "0"], "label": "2"}, "is the text of choice 0 and the number of choice 2"),
        ({"question": ""}, "no text"),
    ],
)
def test_errors_are_reported_with_their_line(bad: dict[str, Any], message: str, tmp_path: Path) -> None:
    lines = [ROW | {"label": 0}, ROW | bad, ROW]
    records, findings = read(tmp_path / "f.jsonl", "\n".join(json.dumps(x) for x in lines))
    assert any(message in f.message and f.location.endswith("f.jsonl:2") and f.error for f in findings), findings
    assert all(f.location.endswith(":2") for f in findings) and len(records) == 3


def test_letters_are_suggested_only_if_there_are_enough(tmp_path: Path) -> None:
    for count, hint in (
        (3, "use 0 to 2, A to C, or the text of a choice"),
        (30, "use 0 to 29, or the text of a choice"),
    ):
        row = ROW | {"choices": [f"number {n}" for n in range(count)], "label": 99}
        _, (finding,) = read(tmp_path / f"{count}.jsonl", json.dumps(row))
        assert finding.hint == hint


def test_other_tables_are_not_recognized(tmp_path: Path) -> None:
    for name, text in {
        "a.csv": "text,label\nx,1\n",
        "b.jsonl": '{"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": [0]}}',
        "c.csv": "query,passage,label\nq,p,1\n",
    }.items():
        (tmp_path / name).write_text(text)
        assert not Choose.SPEC.data_format.matches(open_source(str(tmp_path / name), []))


# ---------------------------------------------------------------------------------------------------------------- rows


def records_of(*counts: int) -> list[dict[str, Any]]:
    names, out = list(COLORS), []
    for n, count in enumerate(counts):
        choices = [list(COLORS.values())[(n + k) % 4] + " " * (k > 3) for k in range(count)]
        out.append({"location": f"m:{n}", "text": f"The colour of {names[n % 4]} is", "choices": choices, "label": 0})
    return out


def test_encoding_and_truncation() -> None:
    tokenizer = tokenizer_of()
    task = task_of(tokenizer)
    (record,) = records_of(3)
    (example,) = task.encode(record)
    rows = task.encode(record, labeled=False)
    assert len(rows) == 3 and len(example.grouped_rows) == 2 and example.labels["choose.targets"].tolist() == [0]
    for row, choice in zip(rows, record["choices"]):
        assert row.token_type_ids is not None
        assert (row.input_ids.tolist(), row.token_type_ids.tolist()) == tokenizer.build_inputs_with_special_tokens(
            tokenizer.encode(record["text"]), tokenizer.encode(choice)
        )
    (row, _, _) = task.encode(record | {"context": "grass"}, labeled=False)
    assert (
        row.input_ids.tolist()
        == tokenizer.build_inputs_with_special_tokens(
            tokenizer.encode("grass"), tokenizer.encode(f"{record['text']} green")
        )[0]
    )
    assert task.windowing.tally.overflowing.total() == 0
    rows = task.encode(record | {"context": "grass snow " * 40}, labeled=False)
    assert task.windowing.tally.overflowing.total() == 1 and all(len(row) == 32 for row in rows)
    tail = tokenizer.encode(f"{record['text']} green")
    assert (
        rows[0].input_ids[-len(tail) - 1 : -1].tolist() == tail
    )  # the longer part was truncated: question and choice are complete
    with pytest.raises(UserError, match="86 tokens, a row has room for 29"):
        task_of(tokenizer, overflow="error").encode(record | {"context": "grass snow " * 40})


def test_decoding_and_scores() -> None:
    task = task_of(tokenizer_of())
    records = records_of(2, 4, 3)
    rows = [task.encode(r, labeled=False) for r in records]
    flat = [row for group in rows for row in group]
    values = [np.float32(v) for v in (0, 1, 5, 2, 3, 1, 0.5, 0.5, 0.5)]
    answers = task.decode(Outputs(values, flat, np.repeat(np.arange(3), [2, 4, 3])))  # type: ignore[arg-type]
    assert [a["choice"] for a in answers] == [1, 0, 0] and answers[1]["answer"] == records[1]["choices"][0]
    assert [len(a["scores"]) for a in answers] == [2, 4, 3] and all(abs(sum(a["scores"]) - 1) < 1e-12 for a in answers)
    scores = task.score(answers, records)
    assert scores == pytest.approx({"accuracy": 2 / 3, "mean_rank": (2 + 1 + 2) / 3})
    details = task.details(answers, records)
    assert [e["location"] for e in details["errors"]] == ["m:0"] and len(details["examples"]) == 2
    assert task.score([], []) == {"accuracy": 0.0, "mean_rank": 0.0}


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini", "roberta-mini"])
def test_loss_and_logits_match_transformers(name: str, tmp_path: Path) -> None:
    template = {"template": "roberta", "type": "bpe"} if name.startswith("roberta") else {}
    tokenizer = tokenizer_of(**template)
    config = preset(name, vocab_size=tokenizer.size, **SHAPE, **tokenizer.config_ids())
    model = Model(config, ("choose",)).init(0).eval()
    hf.save(model, tmp_path, tokenizer)
    theirs, loading_info = AutoModelForMultipleChoice.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    task = task_of(tokenizer)
    records = records_of(3, 3, 3)
    records[1]["label"] = 2
    batch = collate([e for r in records for e in task.encode(r)], tokenizer.pad)
    mask = torch.ones_like(batch.input_ids) if batch.attention_mask is None else batch.attention_mask.long()
    inputs = {"input_ids": batch.input_ids.view(3, 3, -1), "attention_mask": mask.view(3, 3, -1)}
    if config.segments > 1:
        assert batch.token_type_ids is not None
        inputs["token_type_ids"] = batch.token_type_ids.view(3, 3, -1)
    with torch.no_grad():
        out = theirs.eval()(**inputs, labels=batch.labels["choose.targets"])
        (total, count) = objective_of(task).loss(model, batch)["choose"]
        logits = task.loss_terms(model, batch)["choose"].logits
    assert count == objective_of(task).target_counts(batch)["choose"] == 3
    assert float(total) / count == near(float(out.loss), 1e-5)
    assert gap(logits, out.logits) < 1e-5


def test_each_record_has_its_own_softmax_for_any_number_of_choices() -> None:
    tokenizer = tokenizer_of()
    model = Model(preset("bert-tiny", vocab_size=tokenizer.size, **SHAPE), ("choose",)).init(0).eval()
    task, records = task_of(tokenizer), records_of(2, 4, 3)

    def loss(examples: list[dict[str, Any]]) -> torch.Tensor:
        return objective_of(task).loss(model, collate([e for r in examples for e in task.encode(r)], tokenizer.pad))[
            "choose"
        ][0]

    together = loss(records)
    assert float(together.detach()) == near(sum(float(loss([r]).detach()) for r in records), 1e-4)
    together.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


# ---------------------------------------------------------------------------------------------------------- end to end


def test_saved_model_chooses_the_same_in_python_cli_and_transformers(tmp_path: Path) -> None:
    tokenizer = tokenizer_of()
    hf.save(
        Model(preset("bert-tiny", vocab_size=tokenizer.size, **SHAPE), ("mlm",)).init(0), tmp_path / "start", tokenizer
    )
    lines = []
    for n, (thing, color) in enumerate(COLORS.items()):
        others = [other for other in COLORS if other != thing][
            : 1 + n % 3
        ]  # a color can be the color of a thing, a thing cannot
        for at in range(len(others) + 1):
            choices = [*others[:at], color, *others[at:]]
            lines.append({"question": f"The colour of {thing} is", "choices": choices, "label": at})
    train = tmp_path / "train.jsonl"
    train.write_text("\n".join(json.dumps(line) for line in lines))
    sets = ["train.layerwise_lr_decay=1.0"]
    run = api.finetune(
        tmp_path / "start", train=train, steps=30, lr=5e-3, batch_size=12, out=tmp_path / "run", overrides=sets
    )
    scores = api.evaluate(run.model, train)
    assert scores["task"] == "choose" and scores["accuracy"] == 1.0 and scores["mean_rank"] == 1.0
    p, again = load(run.model), load(run.model)
    answer = p.choose("The colour of snow is", ["coal", "white", "blood"])
    assert answer["answer"] == "white" and answer["choice"] == 1 and len(answer["scores"]) == 3
    assert (
        again.choose("The colour of snow is", ["coal", "white", "blood"])
        == answer
        == p("The colour of snow is", "coal", "white", "blood")
    )
    for (name, a), b in zip(p.model.state_dict().items(), again.model.state_dict().values()):
        assert torch.equal(a, b), name
    result = CliRunner().invoke(
        app, ["predict", str(run.model), "The colour of snow is", "coal", "white", "blood", "--json"]
    )
    assert result.exit_code == 0, result.output
    (printed,) = json.loads(result.output)
    assert {k: printed[k] for k in answer} == answer
    result = CliRunner().invoke(app, ["predict", str(run.model), "The colour of snow is", "coal", "white", "blood"])
    assert "The colour of snow is  →  white" in result.output
    theirs = AutoModelForMultipleChoice.from_pretrained(run.model).eval()
    assert p.task is not None
    batch = collate(
        p.task.encode(
            inputs.make_record(p.task.spec, "The colour of snow is", "coal", "white", "blood"), labeled=False
        ),
        p.tokenizer.pad,
    )
    with torch.no_grad():
        probabilities = theirs(
            input_ids=batch.input_ids[None], token_type_ids=batch.token_type_ids[None]
        ).logits.softmax(-1)  # type: ignore[index]
    assert probabilities[0].tolist() == near(answer["scores"], 1e-5)
    with pytest.raises(UserError, match="1 choices"):
        p.choose("a", ["b"])
