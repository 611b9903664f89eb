"""Augmentation with MLM rewrites: words change, labels and entities do not, and a resumed run uses the same
rewrites."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import tiny

from unmask import api
from unmask.console import Console
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.registry import TASKS
from unmask.runs import augment
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import execute, resume
from unmask.runs.part import make_recipe, prepare
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer
from unmask.train.distributed import World
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")
TEXT = "The class of the object is a list, and its items are sorted by the method in place 3 times."


def model_of(tokenizer: Tokenizer, name: str = "bert-tiny", heads: tuple[str, ...] = ("mlm",)) -> Model:
    shape = {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 64, "vocab_size": tokenizer.size}
    return Model(preset(name, **shape, **tokenizer.config_ids()), heads).init(0)


def test_words_change_and_labels_stay(store: TokenStore) -> None:
    model = model_of(store.tokenizer)
    records = [{"location": f"f:{n}", "text": TEXT, "pair": TEXT.upper(), "label": str(n)} for n in range(10)]
    rewritten = augment.rewrite(model, store.tokenizer, records, 2.5, 0)
    assert len(rewritten) == 25 and rewritten == augment.rewrite(model, store.tokenizer, records, 2.5, 0)
    assert rewritten != augment.rewrite(model, store.tokenizer, records, 2.5, 1)
    changed = []
    for record in rewritten:
        for old, new in ((TEXT, record["text"]), (TEXT.upper(), record["pair"])):
            words = [(a, b) for a, b in zip(old.split(), new.split(), strict=True) if a != b]
            assert words and all(a.isupper() == b.isupper() for a, b in words if len(a) > 1)
            assert "3" in new and new.endswith(".")  # only alphabetic words
            changed.append(len(words))
        assert record["location"].startswith(f"f:{record['label']},")
    assert np.mean(changed) == pytest.approx(0.15 * 18, abs=0.35)
    assert {r["label"] for r in rewritten} == {str(n) for n in range(10)}


def test_entities_stay_and_their_offsets_are_updated(store: TokenStore) -> None:
    text = "the 😀 city of New York has a list of old names in Paris today"
    spans = [{"start": text.index(n), "end": text.index(n) + len(n), "label": "loc"} for n in ("New York", "Paris")]
    words = [list(match.span()) for match in re.finditer(r"\S+", text)]
    tags = ["O"] * 4 + ["B-loc", "I-loc"] + ["O"] * 7 + ["B-loc", "O"]
    assert len(words) == len(tags)
    model = model_of(store.tokenizer)
    for record in ({"spans": spans}, {"spans": spans, "words": words, "tags": tags}):
        for new in augment.rewrite(model, store.tokenizer, [{"location": "f:1", "text": text, **record}], 10, 0):
            assert new["text"] != text
            assert [new["text"][s["start"] : s["end"]] for s in new["spans"]] == ["New York", "Paris"]
            if "words" in new:
                assert [new["text"][a:b] for a, b in new["words"]] == new["text"].split() and new["tags"] == tags
    nouns = {"location": "f:1", "text": "a list", "words": [[0, 1], [2, 6]], "tags": ["DET", "NOUN"]}
    with pytest.raises(UserError, match="every word has a tag"):
        augment.rewrite(model, store.tokenizer, [nouns], 1, 0)


def test_chinese_characters_are_replaced_by_chinese_characters() -> None:
    text = "猫在垫子上睡觉，狗在河边跑。"
    tokenizer = Tokenizer.train([text, "a cat"], TokenizerRecipe(min_frequency=1))
    for new in augment.rewrite(model_of(tokenizer), tokenizer, [{"location": "f:1", "text": text, "label": "x"}], 5, 0):
        assert new["text"] != text and len(new["text"]) == len(text)
        assert [c for c in new["text"] if c in "，。"] == ["，", "。"]


def test_word_without_replacement_is_kept() -> None:
    text = "the 猫 sat on the mat and the dog ran"
    tokenizer = Tokenizer.train([text] * 4, TokenizerRecipe(min_frequency=1))
    notes: list[str] = []
    rewritten = augment.rewrite(
        model_of(tokenizer), tokenizer, [{"location": "f:1", "text": text, "label": "x"}], 40, 0, notes.append
    )
    assert rewritten and all("猫" in new["text"] and new["text"] != text for new in rewritten)
    assert len(notes) == 1 and "the vocabulary has no replacement" in notes[0]
    with pytest.raises(UserError, match="no whole words to replace"):
        augment.rewrite(model_of(tokenizer), tokenizer, [{"location": "f:1", "text": "猫", "label": "x"}], 2, 0)


def test_byte_level_tokens_keep_their_spaces() -> None:
    text = "the cat sat on the mat and the dog ran"
    tokenizer = Tokenizer.train([text] * 4, TokenizerRecipe(type="bpe", template="roberta", min_frequency=1))
    for new in augment.rewrite(model_of(tokenizer), tokenizer, [{"location": "f:1", "text": text, "label": "x"}], 5, 0):
        assert len(new["text"].split()) == len(text.split()) and new["text"] != text


def test_long_texts_change_only_within_max_length(store: TokenStore) -> None:
    text = f"{TEXT} " * 60
    for new in augment.rewrite(
        model_of(store.tokenizer), store.tokenizer, [{"location": "f:1", "text": text, "label": "x"}], 3, 0
    ):
        assert new["text"][: len(text) // 2] != text[: len(text) // 2] and new["text"].endswith(f"{TEXT} " * 10)


def test_run_saves_its_augmented_records(store: TokenStore, tmp_path: Path) -> None:
    hf.save(model_of(store.tokenizer), tmp_path / "m", store.tokenizer)
    rows = [f"{'sorted list of numbers' if n % 2 else 'class with methods'} {n},{n % 2}" for n in range(30)]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    sizes = {}
    for name, ratio in (("plain", None), ("more", 1.0)):
        run = api.finetune(
            tmp_path / "m",
            train=tmp_path / "train.csv",
            epochs=1,
            batch_size=3,
            patience=0,
            augment_mlm=ratio,
            out=tmp_path / name,
        )
        sizes[name] = run.read_json("results.json")["step"]
    assert sizes == {"plain": 9, "more": 18}  # 27 training records without the dev set, then twice as many
    path = run.path / augment.FILE
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 27 and all(line["location"].endswith("rewritten") for line in lines)


def test_interrupted_run_resumes_with_its_augmented_records(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.save(model_of(store.tokenizer), tmp_path / "m", store.tokenizer)
    rows = [f"{'sorted list of numbers' if n % 2 else 'class with methods'} {n},{n % 2}" for n in range(30)]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    task = {"name": "classify", "train": [str(tmp_path / "train.csv")], "augment_mlm": 1.0}
    train = {"steps": 12, "batch_size": 3, "eval_steps": 4, "save_steps": 4}

    def recipe() -> Recipe:
        return make_recipe({"init_from": str(tmp_path / "m"), "task": task, "train": train})

    whole, cut = (Run(tmp_path / name) for name in ("whole", "cut"))
    execute(Finetune(), recipe(), Context.single_process(), whole.path)

    def stop(values: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.train(prepare(recipe()), cut.path, watch=stop)
    assert not (cut.path / "results.json").exists()
    expected = (cut.path / augment.FILE).read_bytes()
    assert expected == (whole.path / augment.FILE).read_bytes() and len(expected.splitlines()) == 27
    monkeypatch.setattr(augment, "rewrite", lambda *_, **__: pytest.fail("records must be augmented only once"))
    resume(cut, Context.single_process())
    assert (cut.path / augment.FILE).read_bytes() == expected
    name = "model.safetensors"
    assert (cut.model / name).read_bytes() == (whole.model / name).read_bytes()


def test_records_may_contain_any_line_separator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """str.splitlines also splits at U+2028 and U+0085, which JSON does not escape."""
    start, run = tiny.model_folder(tmp_path / "start"), Run.create(tmp_path / "run", "finetune", "classify")
    rewritten = [
        {"location": "a:1", "text": "a\u2028film\x85here\u2029\x1c", "label": "pos"},
        {"location": "a:2", "text": "b", "label": "neg"},
    ]
    monkeypatch.setattr(augment, "rewrite", lambda *_: rewritten)
    recipe = make_recipe({"init_from": str(start), "task": {"name": "classify", "augment_mlm": 1.0}})
    for _ in range(2):  # generated, then read back
        assert augment.rows(recipe, rewritten, run, World(0, 1), Console(quiet=True)) == rewritten


def test_invalid_augmentation_raises(store: TokenStore, tmp_path: Path) -> None:
    recipe = Recipe.build({"task": {"augment_mlm": 0.5}})
    assert recipe.task.augment_mlm == 0.5
    for text in (11, "words", -1):
        with pytest.raises(UserError, match="augment_mlm"):
            Recipe.build({"task": {"augment_mlm": text}})
    for task in (name for name in TASKS.names() if not TASKS[name].SPEC.training.augmentable_fields):
        with pytest.raises(UserError, match=task):
            augment.check(recipe, preset("bert-tiny"), task)
    with pytest.raises(UserError, match="cannot fill masks"):
        augment.check(recipe, preset("gpt2-mini"), "classify")
    hf.save(model_of(store.tokenizer, heads=("pooler",)), tmp_path / "m", store.tokenizer)
    (tmp_path / "train.csv").write_text("text,label\na list,x\na class,y\n")
    with pytest.raises(UserError, match="no MLM head"):
        api.finetune(tmp_path / "m", train=tmp_path / "train.csv", augment_mlm=0.5, out=tmp_path / "r")
    tokenizer = Tokenizer.train(["a cab"], TokenizerRecipe(type="char"))
    with pytest.raises(UserError, match="are not words"):
        augment.rewrite(model_of(tokenizer), tokenizer, [{"location": "f:1", "text": "a cab"}], 1, 0)
