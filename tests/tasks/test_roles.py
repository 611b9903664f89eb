"""Semantic role labeling: scored as in CoNLL-2005, trained with a marked predicate, which is given by word or
offset, in Python and over HTTP."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from unmask import api
from unmask.cli import app
from unmask.errors import UserError
from unmask.labels.formats.roles import arguments
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.runs import augment
from unmask.server.app import make_app
from unmask.server.routes.pipelines import sample_body
from unmask.tasks.tag.task import Tag, entities
from unmask.text.tokenizer import Tokenizer

NAMES = ("Ann", "Bob", "Cid", "Dan")


# ----------------------------------------------------------------------------------------------------------- scoring


@pytest.mark.parametrize(
    ("gold", "predicted", "num_correct", "num_predicted", "num_expected"),
    [
        # exact words and role; V is not counted, right or wrong
        ("A0 0 1, V 1 2, A1 2 5", "A0 0 1, V 1 2, A1 2 5", 2, 2, 2),
        ("A0 0 1, V 1 2, A1 2 5", "A0 0 1, V 3 4, A1 2 4", 1, 2, 2),
        ("A0 0 1, A1 2 5", "A1 0 1, A1 2 5", 1, 2, 2),
        # a continuation is part of its argument: all parts must be right
        ("A1 0 2, V 2 3, C-A1 4 6", "A1 0 2, V 2 3, C-A1 4 6", 1, 1, 1),
        ("A1 0 2, V 2 3, C-A1 4 6", "A1 0 2, V 2 3", 0, 1, 1),
        ("A1 0 2, V 2 3", "A1 0 2, V 2 3, C-A1 4 6", 0, 1, 1),
        ("A1 0 2, C-A1 4 6, C-A1 7 8", "A1 0 2, C-A1 4 6, C-A1 7 8", 1, 1, 1),
        # one without a start becomes the start of the argument
        ("A1 4 6", "C-A1 4 6", 1, 1, 1),
        # it continues the last argument of its role
        ("A1 0 1, A1 2 3, C-A1 4 5", "A1 0 1, C-A1 4 5, A1 2 3", 2, 2, 2),
        # a reference is a separate role; the particle of the verb belongs to V
        ("A0 0 1, R-A0 1 2, V 2 3", "A0 0 1, A0 1 2, V 2 3", 1, 2, 2),
        ("A0 0 1, V 1 2, C-V 3 4", "A0 0 1, V 1 2", 1, 1, 1),
    ],
)
def test_arguments_are_scored_as_in_conll_2005(
    gold: str, predicted: str, num_correct: int, num_predicted: int, num_expected: int
) -> None:
    sets = [
        arguments([(int(a), int(b), role) for role, a, b in map(str.split, x.split(","))]) for x in (gold, predicted)
    ]
    a, b = set(sets[0]), set(sets[1])
    assert (len(a & b), len(b), len(a)) == (num_correct, num_predicted, num_expected)
    values = entities.scores([sets[0]], [sets[1]])
    assert values["precision"] == pytest.approx(num_correct / num_predicted) and values["recall"] == pytest.approx(
        num_correct / num_expected
    )


# ---------------------------------------------------------------------------------------------------------- training


def record(a: str, b: str, c: str, first: bool) -> dict[str, Any]:
    """Who told whom: the same verb occurs twice, so only its offset distinguishes them."""
    roles = ["B-A0", "B-V", "B-A2", "O", "O", "O"] if first else ["O", "O", "B-A0", "B-V", "B-A2", "O"]
    return {"words": [a, "told", b, "told", c, "."], "predicate": 1 if first else 3, "tags": roles}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roles")
    tokenizer = Tokenizer.train([f"{' '.join(NAMES)} told ."] * 8, TokenizerRecipe(type="wordpiece"))
    shape = {"hidden": 32, "layers": 2, "intermediate": 64, "vocab_size": tokenizer.size, "dropout": 0.0}
    hf.save(Model(preset("bert-tiny", **shape), ("mlm",)).init(0), folder / "start", tokenizer)
    rows = [record(*names, first) for names in itertools.permutations(NAMES, 3) for first in (True, False)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = [str(folder / "train.jsonl")]
    api.finetune(str(folder / "start"), train=train, out=folder / "run", steps=150, batch_size=16, lr=5e-3, seed=0)
    return folder / "run"


def labeled_arguments(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(e["text"], e["label"]) for e in answer["entities"]]


TEXT = "Ann told Bob told Cid."
FIRST, SECOND = [("Ann", "A0"), ("Bob", "A2")], [("Bob", "A0"), ("Cid", "A2")]


def test_prediction_depends_on_the_predicate_offset(run: Path) -> None:
    model = api.load(run / "model")
    assert labeled_arguments(model.tag(TEXT, predicate="told#1")) == FIRST
    assert labeled_arguments(model.tag(TEXT, predicate="told#2")) == SECOND
    assert [labeled_arguments(a) for a in model.tag([TEXT, TEXT], predicate=[13, 17])] == [SECOND, SECOND]
    assert labeled_arguments(model.tag(TEXT, predicate={"start": 4, "end": 8})) == FIRST
    assert [
        labeled_arguments(a) for a in api.predict(model, [(TEXT, "told#1"), {"text": TEXT, "predicate": "told#2"}])
    ] == [
        FIRST,
        SECOND,
    ]
    scores = api.evaluate(run / "model", run.parent / "train.jsonl")
    assert scores["f1"] == scores["raw_text_f1"] == 1.0
    assert {line["label"] for line in scores["details"]["per_label"]} == {"A0", "A2"}  # no V


def test_predict_requires_a_predicate(run: Path) -> None:
    def call(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["predict", str(run / "model"), *arguments])

    assert "Ann told Bob told Cid. [told#2]  →  Bob = A0" in call(TEXT, "--predicate", "told#2").output
    (answer,) = json.loads(call(TEXT, "--predicate", "told#1", "--json").stdout)
    assert labeled_arguments(answer) == FIRST and answer["predicate"] == "told#1"
    for arguments_, messages in (
        ((TEXT, "--predicate", "told"), ("occurs 2 times", "told#1, told#2")),
        ((TEXT, "--predicate", "tell"), ("'tell' is not in the text", "Ann, told, Bob, Cid")),
        ((TEXT,), ("no predicate", "--predicate WORD")),
    ):
        result = call(*arguments_)
        assert result.exit_code and all(text in result.output for text in messages), result.output


def test_server_accepts_a_predicate(run: Path) -> None:
    client = TestClient(make_app({"roles": api.load(run / "model")}, allowed_hosts=None))
    where = "/models/roles/pipeline/token-classification"
    body = {"inputs": TEXT, "parameters": {"predicate": "told#2"}}
    assert [(e["word"], e["entity_group"]) for e in client.post(where, json=body).json()] == SECOND
    assert client.post("/models/roles", content=sample_body(api.load(run / "model"))).status_code == 200
    refused = client.post(where, json={"inputs": TEXT, "parameters": {"predicate": "told"}})
    assert refused.status_code == 422 and refused.json()["error"]["expected"] == "told#1, told#2"


def test_unexpected_predicate_and_mixed_files_raise(run: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(run / "model")
    plain = Tag(Recipe(), tokenizer, {"labels": ["O", "B-x", "I-x"], "scheme": "BIO", "length": 32})
    with pytest.raises(UserError, match="trained without predicates"):
        plain.encode({"text": TEXT, "predicate": "told#1"}, labeled=False)
    mixed = (run.parent / "train.jsonl").read_text() + '{"words": ["Ann"], "tags": ["B-A0"], "predicate": null}\n'
    (tmp_path / "mixed.jsonl").write_text(mixed)
    with pytest.raises(UserError, match=r"mixed.jsonl:\d+: no predicate"):
        api.finetune(str(run.parent / "start"), train=[str(tmp_path / "mixed.jsonl")], out=tmp_path / "run", steps=1)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char", "byte"])
def test_predicate_is_marked_in_every_window(kind: str) -> None:
    settings = {"type": kind} if kind in ("wordpiece", "char", "byte") else {"type": kind, "lowercase": False}
    tokenizer = Tokenizer.train([f"{' '.join(NAMES)} told ."] * 8, TokenizerRecipe(**settings))
    task_state = {"labels": ["O", "B-A0", "I-A0"], "scheme": "BIO", "predicate": True, "boundaries": {}}
    task = Tag(Recipe(), tokenizer, task_state | {"length": 64})
    (row,) = task.encode({"text": TEXT, "predicate": "told#2"}, labeled=False)
    text, words, word_ids, at = row.metadata
    marks = [n for n, id in enumerate(row.input_ids.tolist()) if id == tokenizer.sep]
    first_tokens = dict(zip(word_ids.tolist(), at.tolist()))
    assert [text[a:b] for a, b in words] == ["Ann", "told", "Bob", "told", "Cid", "."]
    assert marks[0] == first_tokens[3] - 1 and marks[0] < first_tokens[3] < marks[1] == first_tokens[4] - 1
    for word, position in first_tokens.items():  # read at its own first token, also after the markers
        (alone,) = tokenizer.encode_batch([(" " if word in (1, 2, 3, 4) else "") + text[slice(*words[word])]])
        assert row.input_ids[position] in alone.ids
    long = Tag(Recipe(), tokenizer, task_state | {"length": 24})
    rows = long.encode({"text": " ".join([TEXT] * 9), "predicate": [4, 8]}, labeled=False)
    second = tokenizer.encode("told")[:4]
    assert len(rows) > 3 and max(map(len, rows)) <= 24
    assert sorted(w for r in rows for w in r.metadata[2].tolist()) == list(range(54))
    for r in rows:
        ids = r.input_ids.tolist()
        assert any(ids[n : n + len(second)] == second for n in range(len(ids) - len(second) - 1, 0, -1))


def test_augmented_text_keeps_its_predicate() -> None:
    record = {
        "location": "f:1",
        "text": "so Ann told Bob",
        "predicate": [7, 11],
        "spans": [{"start": 3, "end": 6, "label": "A0"}],
    }
    assert augment.replaceable_words(record, "text") == [(0, 2), (12, 15)]
    changed = augment.replace_words(record, {"text": [(0, 2, "then")]})
    assert changed["text"][slice(*changed["predicate"])] == "told"
