"""Tagging: words and tokens are aligned by raw-text offsets, long texts use windows, and trained models load in
transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from near import gap
from runs.tiny import train
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2
from transformers import AutoModelForTokenClassification
from typer.testing import CliRunner

from unmask import api
from unmask.batch import Example, collate
from unmask.cli import app
from unmask.errors import UserError
from unmask.labels.formats import schemes
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.runs.part import make_recipe, prepare
from unmask.tasks.align import align
from unmask.tasks.tag.task import Tag
from unmask.tasks.task import FitContext, Outputs
from unmask.text.segmentation import split_words
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import word_windows

CONLL = """Alice B-per
lives O
in O
New B-loc
York I-loc
. O

Bob B-per
left O
Paris B-loc
for O
New B-loc
York I-loc
. O

Nobody O
left O
. O
"""
TEXTS = [
    "Alice lives in New York . Bob left Paris for New York . Nobody left . 北京 很大 naïve café résumé ok ①２ｆ 😀 !"
] * 8
LABELS = {"labels": ["O", "B-per", "I-per", "B-loc", "I-loc"], "scheme": "BIO"}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    kinds = {"wordpiece": {}, "bpe": {"lowercase": False}, "unigram": {"lowercase": False}, "char": {}, "byte": {}}
    return {kind: Tokenizer.train(TEXTS, TokenizerRecipe(type=kind, **more)) for kind, more in kinds.items()}


@pytest.fixture
def folder(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> Path:
    return make(tokenizers["wordpiece"], tmp_path / "model", "bert-tiny")


def make(tokenizer: Tokenizer, folder: Path, name: str, heads: tuple[str, ...] = ("mlm",), **more: Any) -> Path:
    shape = {"hidden": 32, "layers": 2, "intermediate": 64, "vocab_size": tokenizer.size} | more
    hf.save(Model(preset(name, **shape), heads).init(0), folder, tokenizer)
    return folder


def task_of(tokenizer: Tokenizer, length: int = 64, task_state: Any = LABELS, **settings: Any) -> Tag:
    return Tag(Recipe.build({"task": settings}), tokenizer, task_state | {"length": length})


def outputs(task: Tag, records: list[Any], predicted_tags: list[list[str]]) -> Outputs:
    """Model outputs that predict these tags, word by word."""
    rows: list[Example] = []
    values, numbers = [], []
    for n, (record, tags) in enumerate(zip(records, predicted_tags)):
        for row in task.encode(record, labeled=False):
            _, _, own, at = row.metadata
            logits = np.zeros((len(row), len(task.labels)))
            logits[at, [task.labels.index(tags[w]) for w in own]] = 3.0
            rows, values, numbers = [*rows, row], [*values, logits], [*numbers, n]
    return Outputs(values, rows, np.array(numbers))


# ------------------------------------------------------------------------------------------------- words, tokens

ODD = [
    "I saw 👨‍👩‍👧 in Paris🇫🇷 !",
    "２０２４ ｆｕｌｌ Ｗｉｄｔｈ ①",
    "cafe\u0301 re\u0301sume\u0301 naïve",
    "北京很大, NBA！",
    "a\u200bb \u200d \ufe0f c\u00adde",
    "don't cannot U.S.",
    "  leading  and\ttrailing\n\n",
    "\u3000全角\u3000空白\u00a0x",
    "Ⅷ ﬁne ½ ＃ｔａｇ",
]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char", "byte"])
def test_every_word_is_aligned_to_its_tokens(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[kind]
    for text in ODD:
        words = split_words(text)
        assert "".join(text[a:b] for a, b in words) == "".join(text.split())
        ids, first = align(tokenizer, text, words)
        aligned = first[first >= 0]
        assert (np.diff(aligned) > 0).all() and (aligned < len(ids)).all()
        (encoding,) = tokenizer.encode_batch([text])
        for w, (a, b) in enumerate(words):  # a word without a token is one that the tokenizer drops
            (alone,) = tokenizer.encode_batch([text[a:b]])
            assert first[w] >= 0 or all(tokenizer.token(i) == "▁" for i in alone.ids), (text, text[a:b])
        if not any(len({n for n, (a, b) in enumerate(words) if a < e and s < b}) > 1 for s, e in encoding.offsets):
            assert ids == encoding.ids  # the plain tokenization of the text


def test_alignment_with_decomposed_accents_and_an_uncased_model(tokenizers: dict[str, Tokenizer]) -> None:
    text = "Re\u0301sume\u0301 , New York"
    words = split_words(text)
    assert [text[a:b] for a, b in words] == ["Re\u0301sume\u0301", ",", "New", "York"]
    task = task_of(tokenizers["wordpiece"])
    tags = ["B-per", "O", "B-loc", "I-loc"]
    (answer,) = task.decode(outputs(task, [{"text": text}], [tags]))
    assert [e["text"] for e in answer["entities"]] == ["Re\u0301sume\u0301", "New York"]
    assert all(text[e["start"] : e["end"]] == e["text"] for e in answer["entities"])


def test_token_across_two_words_is_retokenized(tokenizers: dict[str, Tokenizer]) -> None:
    for kind in ("wordpiece", "bpe", "unigram"):
        t = tokenizers[kind]
        text = "Alice lives"
        ids, first = align(t, text, [[0, 2], [2, 5], [6, 11]])  # Al + ice
        assert (first >= 0).all() and len(set(first.tolist())) == 3
        whole = t.encode(text)
        assert ids[first[2] :] == whole[len(whole) - (len(ids) - first[2]) :]  # the following tokens are unchanged
    ids, first = align(tokenizers["byte"], "北京", [[0, 1], [1, 2]])
    assert first.tolist() == [0, 3] and len(ids) == 6


def test_words_without_tokens_are_tagged_outside(tokenizers: dict[str, Tokenizer]) -> None:
    task = task_of(tokenizers["wordpiece"])
    record = {"text": "New \u200b\u200d York", "words": [[0, 3], [4, 6], [7, 11]]}
    (answer,) = task.decode(outputs(task, [record], [["B-loc", "I-loc", "I-loc"]]))
    assert answer["tags"] == ["B-loc", "O", "B-loc"] and answer["words"] == record["words"]
    (answer,) = task.decode(outputs(task, [{"text": ""}], [[]]))
    assert answer["entities"] == answer["tags"] == answer["words"] == []


# ------------------------------------------------------------------------------------------------------- windows


def test_each_word_is_predicted_once_in_the_window_with_most_context() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        count, room = int(rng.integers(1, 200)), int(rng.integers(2, 40))
        first = np.flatnonzero(rng.random(count) < 0.6)
        cuts, deciding = word_windows(count, first, room)
        assert all(0 < b - a <= room for a, b in cuts)
        assert set().union(*(range(a, b) for a, b in cuts)) == set(range(count))  # all words are covered
        for f, k in zip(first, deciding):

            def inside(cut: tuple[int, int], f: int = f, count: int = count) -> float:
                a, b = cut
                return min(np.inf if a == 0 else f - a, np.inf if b == count else b - 1 - f) if a <= f < b else -1

            assert inside(cuts[k]) == max(map(inside, cuts)) >= 0


def test_long_text_is_covered_by_windows(tokenizers: dict[str, Tokenizer]) -> None:
    task = task_of(tokenizers["wordpiece"], 12)
    words = ("Alice lives in New York . " * 9).split()
    text = " ".join(words)
    tags = ["B-per", "O", "O", "B-loc", "I-loc", "O"] * 9
    rows = task.encode({"text": text}, labeled=False)
    assert len(rows) > 5 and max(map(len, rows)) <= 12 and task.windowing.tally.overflowing.total() == 1
    assert sorted(w for row in rows for w in row.metadata[2].tolist()) == list(range(len(words)))
    for row in rows:  # each word is predicted at its own first token
        _, _, own, at = row.metadata
        assert row.input_ids[at].tolist() == [task.tokenizer.encode(words[w])[0] for w in own]
    (answer,) = task.decode(outputs(task, [{"text": text}], [tags]))
    assert answer["tags"] == tags and len(answer["entities"]) == 18
    spans = [{"start": e["start"], "end": e["end"], "label": e["label"]} for e in answer["entities"]]
    labeled = task.encode({"text": text, "spans": spans})
    assert sum(len(row.labels["tag.targets"]) for row in labeled) == len(words)
    cut = task_of(tokenizers["wordpiece"], 12, overflow="truncate")
    assert len(cut.encode({"text": text}, labeled=False)) == 1
    with pytest.raises(UserError, match="has room for 10"):
        task_of(tokenizers["wordpiece"], 12, overflow="error").encode({"text": text}, labeled=False)


def test_span_boundary_inside_a_word_splits_it_for_training(tokenizers: dict[str, Tokenizer]) -> None:
    task = task_of(tokenizers["wordpiece"])
    record = {"text": "in NewYork", "spans": [{"start": 3, "end": 6, "label": "loc"}]}
    (row,) = task.encode(record)
    assert row.metadata[1] == [[0, 2], [3, 6], [6, 10]] and row.labels["tag.targets"].tolist() == [0, 3, 0]
    (row,) = task.encode(record, labeled=False)
    assert row.metadata[1] == [[0, 2], [3, 10]]


# --------------------------------------------------------------------------------------------------------- predictions


def test_predictions_are_valid_and_scores_match_seqeval_in_both_modes(tokenizers: dict[str, Tokenizer]) -> None:
    task, rng = task_of(tokenizers["wordpiece"]), np.random.default_rng(1)
    text = "Alice lives in New York ."
    words = split_words(text)
    raw = [[task.labels[int(n)] for n in rng.integers(0, 5, len(words))] for _ in range(60)]
    truth = [schemes.entities_to_tags(schemes.tags_to_entities(tags), len(words), "BIO") for tags in raw[::-1]]
    answers = task.decode(outputs(task, [{"text": text}] * 60, raw))
    records = [
        {
            "text": text,
            "spans": [
                {"start": words[a][0], "end": words[b - 1][1], "label": k} for a, b, k in schemes.tags_to_entities(t)
            ],
        }
        for t in truth
    ]
    assert not any(schemes.invalid_tags(a["tags"], "BIO") for a in answers)
    predicted = [a["tags"] for a in answers]
    ours = task.score(answers, records)["f1"]
    assert ours == pytest.approx(f1_score(truth, raw))  # seqeval decodes the raw predictions in the same way
    assert ours == pytest.approx(f1_score(truth, predicted, mode="strict", scheme=IOB2))
    assert 0 < answers[0]["entities"][0]["score"] <= 1


def test_other_schemes_and_a_transformers_folder(tokenizers: dict[str, Tokenizer]) -> None:
    config = preset("bert-tiny", vocab_size=50, labels=("B-PER", "O", "U-PER", "L-PER", "I-PER"))
    task_state = Tag.state_from_folder(Path(), config, {"tag"})
    assert (
        task_state and task_state["scheme"] == "BIOES" and Tag.state_from_folder(Path(), config, {"classify"}) is None
    )
    task = task_of(tokenizers["wordpiece"], task_state=task_state)
    (answer,) = task.decode(outputs(task, [{"text": "Alice left Bob"}], [["U-PER", "O", "U-PER"]]))
    assert [e["text"] for e in answer["entities"]] == ["Alice", "Bob"]
    assert (Tag.state_from_folder(Path(), preset("bert-tiny", vocab_size=50, labels=("NOUN", "VERB")), {"tag"}) or {})[
        "scheme"
    ] == "none"
    record = {"text": "Alice left", "spans": [{"start": 0, "end": 5, "label": "per"}]}
    for scheme, tag in {"BIO": "B-per", "BIOES": "S-per", "IO": "I-per"}.items():
        recipe = Recipe.build({"task": {"tag": {"scheme": scheme}}})
        task_state = Tag.fit_state(FitContext(recipe, config, tokenizers["wordpiece"]), [record]).task_state
        assert task_state["scheme"] == scheme and task_of(tokenizers["wordpiece"], task_state=task_state).true_tags(
            record, [[0, 5], [6, 10]]
        ) == [tag, "O"]
    recipe = Recipe.build({"task": {"labels": ["O", "B-loc", "I-loc"]}})
    with pytest.raises(UserError, match=r"B-per.* occur in the training files, but not in task.labels"):
        Tag.fit_state(FitContext(recipe, config, tokenizers["wordpiece"]), [record])


def run(model: Path, text: str, out: Path, name: str = "train.conll", **more: Any) -> Any:
    file = out.parent / name
    file.write_text(text, "utf-8")
    settings = {"steps": 40, "batch_size": 4, "lr": 5e-3, "seed": 0} | more
    return api.finetune(str(model), train=[str(file)], out=out, **settings)


def test_trained_model_is_saved_and_loads_in_transformers(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text(CONLL)
    values = {"init_from": str(folder), "task": {"train": [str(tmp_path / "train.conll")]}}
    job = prepare(make_recipe(values, ["train.steps=40", "train.batch_size=4", "train.lr=5e-3"]))
    done = train(job, tmp_path / "run")
    predictor = api.load(done.model)
    states = job.model.state_dict(), predictor.model.state_dict()
    assert states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][name], states[1][name]) for name in states[0]
    )
    assert predictor.task is not None and predictor.task.name == "tag"
    answer = predictor.tag("Bob lives in New York.")
    assert [(e["text"], e["label"], e["start"]) for e in answer["entities"]] == [
        ("Bob", "per", 0),
        ("New York", "loc", 13),
    ]
    assert api.evaluate(done.model, [str(tmp_path / "train.conll")])["f1"] == 1.0
    task = predictor.task
    theirs, loading_info = AutoModelForTokenClassification.from_pretrained(done.model, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    assert [theirs.config.id2label[n] for n in range(5)] == task.task_state["labels"]
    texts = ["Bob lives in New York.", "Nobody left."]
    batch = collate([e for t in texts for e in task.encode({"text": t}, labeled=False)], task.tokenizer.pad)
    with torch.no_grad():
        logits = theirs.eval()(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, token_type_ids=batch.token_type_ids
        ).logits
        ours = task.forward(predictor.model, batch)
    attended = (
        torch.ones_like(batch.input_ids, dtype=torch.bool) if batch.attention_mask is None else batch.attention_mask
    )
    assert gap(ours[attended], logits[attended]) <= 1e-5
    result = CliRunner().invoke(app, ["predict", str(done.model), texts[0]])
    assert "Bob = per" in result.output and "New York = loc" in result.output
    result = CliRunner().invoke(app, ["predict", str(done.model), texts[0], "--json"])
    assert json.loads(result.stdout)[0]["entities"] == answer["entities"]


def test_label_that_occurs_only_in_the_test_file_raises(folder: Path, tmp_path: Path) -> None:
    files = {"train": CONLL, "test": "At O\nAcme B-org\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.conll").write_text(text)
    paths = {name: [str(tmp_path / f"{name}.conll")] for name in files}
    with pytest.raises(UserError, match=r"test.conll:1: the label 'org' of test"):
        prepare(make_recipe({"init_from": str(folder), "task": paths}))
    names = ["O", "B-loc", "I-loc", "B-per", "I-per", "B-org", "I-org"]  # labels given by the user are known
    assert (
        prepare(make_recipe({"init_from": str(folder), "task": paths | {"labels": names}})).task.task_state["labels"]
        == names
    )


def test_single_entity_label_is_enough(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"text": "in Rome", "spans": [[3, 7, "loc"]]}\n{"text": "Oslo", "spans": [[0, 4, "loc"]]}\n'
    )
    job = prepare(make_recipe({"init_from": str(folder), "task": {"train": [str(tmp_path / "a.jsonl")]}}))
    assert job.task.name == "tag" and job.task.task_state["labels"] == ["O", "B-loc", "I-loc"]


def test_parts_of_speech(folder: Path, tmp_path: Path) -> None:
    tagged = CONLL.replace("B-per", "NOUN").replace("B-loc", "NOUN").replace("I-loc", "NOUN").replace(". O", ". PUNCT")
    done = run(folder, tagged.replace(" O", " OTHER"), tmp_path / "run")
    results = api.evaluate(done.model, [str(tmp_path / "train.conll")])
    assert results["metric"] == "token_accuracy" and results["token_accuracy"] == 1.0 and "f1" not in results
    assert results["details"]["confusion"]["labels"] == ["NOUN", "OTHER", "PUNCT"]
    assert {line["label"] for line in results["details"]["per_label"]} == {"NOUN", "OTHER", "PUNCT"}
    assert "entities" not in api.load(done.model).tag("Bob left .")
    result = CliRunner().invoke(app, ["predict", str(done.model), "Bob left ."])
    assert "Bob/NOUN left/OTHER ./PUNCT" in result.output


@pytest.mark.parametrize(("name", "head"), [("elmo-mini", "bilm"), ("cbow-mini", "cbow")])
def test_models_without_attention_tag_with_a_frozen_encoder(
    name: str, head: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    model = make(tokenizers["wordpiece"], tmp_path / "model", name, (head,), layers=2 if head == "bilm" else 1)
    done = run(model, CONLL, tmp_path / "run", freeze="encoder", lr=5e-2)
    before, after = hf.load(model).model, api.load(done.model).model
    assert torch.equal(before.embedding, after.embedding)
    assert api.evaluate(done.model, [str(tmp_path / "train.conll")])["token_accuracy"] > 0.7


def test_details_contain_the_errors(tokenizers: dict[str, Tokenizer]) -> None:
    task = task_of(tokenizers["wordpiece"])
    text = "Alice left New York"
    record = {"location": "a:1", "text": text, "spans": [{"start": 0, "end": 5, "label": "per"}]}
    right, wrong = ["B-per", "O", "O", "O"], ["O", "O", "B-loc", "I-loc"]
    answers = task.decode(outputs(task, [record, record | {"location": "a:2"}], [right, wrong]))
    details = task.details(answers, [record, record | {"location": "a:2"}])
    assert [(e["location"], e["expected"], e["predicted"]) for e in details["errors"]] == [
        ("a:2", "Alice (per)", "New York (loc)")
    ]
    assert [(e["location"], e["predicted"]) for e in details["examples"]] == [("a:1", "Alice (per)")]
    assert [line["label"] for line in details["per_label"]] == ["loc", "per"]
    assert sum(map(sum, details["confusion"]["matrix"])) == 8
    json.dumps(details)
