"""Pre-training from start to end: text in, a model out that loads in transformers and can be trained further."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from near import gap
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, BertForPreTraining

import unmask
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset, presets
from unmask.model.model import Model
from unmask.text.store import TokenStore

CHINESE = (
    "这家餐厅的菜很好吃，服务也很周到。我们下次还会再来。价格比想象的便宜！\n"
    "手机的屏幕很清晰，但是电池不太耐用。客服说可以换货，三天以后收到了新的。\n"
    "书的内容很丰富，适合初学者阅读。纸张质量一般，不过印刷清楚。推荐给大家。\n"
)


def test_bert_loads_in_its_transformers_class(text_file: Path, tmp_path: Path) -> None:
    run = unmask.pretrain(
        text_file, preset="bert-tiny", vocab_size=1000, steps=6, batch_size=8, max_length=32, out=tmp_path / "run"
    )
    config = json.loads((run.model / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    theirs, loading_info = BertForPreTraining.from_pretrained(run.model, output_loading_info=True)
    assert not loading_info["missing_keys"]
    assert not loading_info["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    inputs = tokenizer("The list is sorted.", "It has [MASK] items.", return_tensors="pt")
    ours = hf.load(run.model).model
    with torch.no_grad():
        answer = theirs.eval()(**inputs)
        hidden = ours(inputs["input_ids"], inputs["attention_mask"].bool(), inputs["token_type_ids"])
        assert gap(ours.logits("mlm", hidden.flatten(0, 1)), answer.prediction_logits[0]) <= 1e-5
        assert gap(ours.logits("nsp", hidden), answer.seq_relationship_logits) <= 1e-5
    card = (run.model / "README.md").read_text()
    assert "6" in card and "topics.txt" in card
    names = {p.name for p in run.path.iterdir()}
    assert {"recipe.yaml", "environment.json", "data.json", "log.jsonl", "curves.png", "report.html", "model"} <= names
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["versions"]["torch"] and environment["threads"] and environment["cpu"]
    assert len(json.loads((run.path / "data.json").read_text())["parts"]["corpus"]) == 32


def test_transformers_checkpoint_is_trained_further(store: TokenStore, text_file: Path, tmp_path: Path) -> None:
    """Continue from an existing checkpoint on domain text; the loss starts at the level of that model."""
    theirs = BertForMaskedLM(
        BertConfig(
            vocab_size=store.tokenizer.size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=64,
        )
    )  # fmt: skip
    theirs.save_pretrained(tmp_path / "theirs")
    store.tokenizer.save(tmp_path / "theirs")
    common = {"init_from": str(tmp_path / "theirs"), "objective": "mlm", "batch_size": 8, "max_length": 32}
    run = unmask.pretrain(text_file, steps=8, out=tmp_path / "run", **common)
    after, loading_info = AutoModelForMaskedLM.from_pretrained(run.model, output_loading_info=True)
    assert type(after) is BertForMaskedLM
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    moved = (after.bert.embeddings.word_embeddings.weight - theirs.bert.embeddings.word_embeddings.weight).abs().max()
    assert 0 < moved < 0.5, "training continued from those weights"
    again = unmask.pretrain(text_file, steps=2, out=tmp_path / "again", **{**common, "init_from": str(run.path)})
    assert (again.model / "model.safetensors").exists()


def test_new_head_on_an_existing_model_is_reported(
    store: TokenStore, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    from unmask.console import Console

    first = unmask.pretrain(
        store.path, preset="bert-tiny", objective="mlm", steps=2, batch_size=4, max_length=32, out=tmp_path / "a"
    )
    unmask.pretrain(
        store.path,
        init_from=str(first.model),
        objective="mlm+nsp",
        steps=2,
        batch_size=4,
        max_length=32,
        out=tmp_path / "b",
        console=Console(),
    )
    stderr = capsys.readouterr().err
    assert "no nsp head: a new one is initialized randomly" in stderr
    assert "sentence pairs of 32 tokens" in stderr


def test_auto_objective_follows_the_heads_of_the_model(store: TokenStore, tmp_path: Path) -> None:
    first = unmask.pretrain(
        store.path, preset="bert-tiny", objective="mlm", steps=1, batch_size=4, max_length=32, out=tmp_path / "a"
    )
    second = unmask.pretrain(
        store.path, init_from=str(first.path), steps=1, batch_size=4, max_length=32, out=tmp_path / "b"
    )
    assert json.loads((second.model / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    assert (
        unmask.dry_run(store.path, init_from=str(first.path), steps=1, max_length=32)["architecture"]
        == "BertForMaskedLM"
    )


def test_resume_writes_a_missing_report(store: TokenStore, tmp_path: Path) -> None:
    """Killed between the last checkpoint and the report: resume trains nothing, writes the rest, and the run is finished."""
    run = unmask.pretrain(store.path, preset="bert-tiny", steps=2, batch_size=4, max_length=32, out=tmp_path / "run")
    weights = (run.model / "model.safetensors").read_bytes()
    lines = run.log.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["event"] == "end"
    run.log.write_text("".join(lines[:-1]))
    for name in ("report.html", "results.json"):
        (run.path / name).unlink()
    unmask.resume(run.path)
    assert (run.path / "report.html").exists() and run.results()["step"] == 2
    assert (run.model / "model.safetensors").read_bytes() == weights
    whole = run.log.read_text()
    assert json.loads(whole.splitlines()[-1])["event"] == "end"
    unmask.resume(run.path)
    assert run.log.read_text() == whole, "a finished run was changed"


def test_resume_after_a_kill_during_the_report(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log contains `end`, but curves, report and card are missing: the run does not count as finished."""

    def kill(run: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("unmask.report.write", kill)
        with pytest.raises(KeyboardInterrupt):
            unmask.pretrain(store.path, preset="bert-tiny", steps=2, batch_size=4, max_length=32, out=tmp_path / "run")
    run = unmask.resume(tmp_path / "run")
    for name in ("curves.png", "report.html", "model/README.md", "fills.json"):
        assert (run.path / name).exists(), name
    assert [e["event"] for e in run.events()].count("end") == 1
    assert run.is_finished() and run.results()["step"] == 2


def test_weights_are_read_once_and_not_for_the_config(
    store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unmask.recipe import Recipe
    from unmask.runs import setup as setups

    config = preset("bert-tiny", vocab_size=store.tokenizer.size, hidden=32, heads=2, intermediate=64)
    hf.save(Model(config, ["mlm"]).init(0), tmp_path / "model", store.tokenizer)
    times, read = [], hf.read_weights
    monkeypatch.setattr(hf, "read_weights", lambda folder: times.append(folder) or read(folder))
    recipe = Recipe.build({"init_from": str(tmp_path / "model"), "objective": "mlm+nsp", "train": {"max_length": 32}})
    setups.check(recipe)
    assert not times
    setup = setups.set_up(recipe, store, recipe.init_from)
    assert len(times) == 1 and list(setup.model.heads) == ["mlm", "pooler", "nsp"]


@pytest.mark.parametrize("name", [p for p in presets() if p.endswith("-mini")])
def test_dry_run_of_every_family(name: str, text_file: Path) -> None:
    """Shared layers, decoders and generators: parameters and memory are reported, and a step is timed."""
    small = ({"layers": 2} if preset(name).layers > 2 else {}) | (
        {"decoder_layers": 1} if preset(name).decoder_layers else {}
    )
    plan = unmask.dry_run(text_file, preset=name, steps=5, batch_size=2, max_length=16, recipe={"model": small})
    memory = plan["memory_bytes"]
    assert memory["weights"] == 4 * plan["parameters"] > 0 and memory["activations"] > 0
    assert plan["steps"] == 5 and plan["minutes"] > 0


def test_mlm_is_evaluated_with_one_heldout_document(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.txt").write_text(" ".join(f"Sentence {i} of text {n} is here." for i in range(60)))
    run = unmask.pretrain(
        [tmp_path / f"{n}.txt" for n in range(3)], preset="bert-tiny", tokenizer_type="char", document_boundary="file", steps=2, batch_size=4,
        max_length=32, out=tmp_path / "run",
    )  # fmt: skip
    last = [e for e in run.events() if e["event"] == "eval"][-1]
    assert last["mlm"] > 0 and "nsp" not in last


def test_run_that_fails_before_training_leaves_no_directory(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"the king of island {n} wrote a letter\n" for n in range(300)))
    settings: dict = {"preset": "bert-tiny", "steps": 2, "max_length": 32, "out": tmp_path / "run"}
    with pytest.raises(UserError, match="next-sentence pairs need"):
        unmask.pretrain(lines, objective="mlm+nsp", **settings)
    assert not (tmp_path / "run").exists()
    assert unmask.pretrain(lines, objective="mlm", **settings).path == tmp_path / "run"


def test_python_accepts_the_names_of_the_flags(text_file: Path, tmp_path: Path) -> None:
    store = unmask.prepare(text_file, tmp_path / "store", vocab_size=1000, document_boundary="paragraph")
    assert store.tokenizer.size == 1000
    assert len(unmask.show_batch(store.path, mask_rate=0.3, rows=2).as_dict()["rows"]) == 2
    with pytest.raises(unmask.UserError, match="did you mean preset"):
        unmask.pretrain(text_file, prest="bert-tiny")
    with pytest.raises(unmask.UserError, match="corpus: 5"):
        unmask.pretrain(5)  # type: ignore[arg-type]


def test_chinese_pretraining(tmp_path: Path) -> None:
    """One token per character, word boundaries of the segmenter in the store, sentence pairs, and a filled mask."""
    path = tmp_path / "评论.txt"
    lines = CHINESE.splitlines()
    path.write_text("\n".join(f"{lines[i % 3]}第{i}条评论。" for i in range(120)), "utf-8")
    run = unmask.pretrain(
        path, preset="bert-tiny", objective="mlm+nsp", steps=4, batch_size=4, max_length=32, out=tmp_path / "run"
    )
    opened = TokenStore.open(json.loads((run.path / "data.json").read_text())["store"])
    words = np.flatnonzero(opened.train.flags & 1)
    assert 0.4 < len(words) / len(opened.train.tokens) < 0.9, "multi-character words have word boundaries"
    filling = unmask.load(run.model).fill("这家餐厅的菜很[MASK]吃。", top_k=3)
    assert len(filling.as_dict()["masks"][0]["candidates"]) == 3


def test_static_masks_repeat_and_dynamic_ones_do_not(store: TokenStore) -> None:
    from unmask.batch import StepConfig
    from unmask.objectives.objective import build
    from unmask.recipe import Recipe
    from unmask.text.rows import RowDataset
    from unmask.train.loader import Loader

    def masks(masking: str, copies: int) -> list[set[bytes]]:
        """Return the set of corrupted rows per epoch."""
        recipe = Recipe.build({"objective": "mlm", "mlm": {"masking": masking, "num_static_masks": copies}})
        objective = build(recipe, store.tokenizer)
        loader = Loader(RowDataset(store.train, store.tokenizer, 0), objective, 0)
        step_config, n = StepConfig(0, 64, 0.15), loader.rows.count(64)
        return [{loader.example(e * n + i, step_config).input_ids.tobytes() for i in range(n)} for e in range(4)]

    dynamic, static, two = masks("dynamic", 1), masks("static", 1), masks("static", 2)
    assert static[0] == static[1] == static[2]
    assert two[0] == two[2] != two[1] == two[3]
    assert not dynamic[0] & dynamic[1]


def test_command_line_and_python_give_the_same_model(text_file: Path, tmp_path: Path) -> None:
    arguments = [
        "--preset=bert-tiny",
        "--vocab-size=1000",
        "--steps=3",
        "--batch-size=8",
        "--max-length=32",
        "--set=train.threads=1",
    ]
    command = [
        sys.executable,
        "-m",
        "unmask",
        "pretrain",
        str(text_file),
        *arguments,
        "--out",
        str(tmp_path / "cli"),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["state"] == "finished"
    run = unmask.pretrain(
        text_file, preset="bert-tiny", vocab_size=1000, steps=3, batch_size=8, max_length=32, out=tmp_path / "python"
    )
    ours, theirs = ((r / "model.safetensors").read_bytes() for r in (run.model, tmp_path / "cli" / "model"))
    assert ours == theirs
