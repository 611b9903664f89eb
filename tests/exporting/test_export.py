"""unmask export: the exported graph predicts as the model does, or nothing is written."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from exporting.exports import assert_same, combinations, new_folder, sentences
from near import gap, near
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.errors import UserError
from unmask.exporting.onnx_file import save
from unmask.model import hf, sentence
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.text.tokenizer import Tokenizer

TEXT = "a cab is sorted"
QUICK = [
    ("bert", ("mlm", "pooler", "nsp")),
    ("modernbert", ("pooler", "classify")),
    ("bert", ("pooler", "choose")),
    ("gpt2", ("lm",)),
    ("t5", ("lm",)),
]  # one graph of each kind; the full product is slow


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function (family, heads) → (model directory, its export, the result of export); each is created once."""
    base, created = tmp_path_factory.mktemp("exports"), {}

    def get(family: str, heads: tuple[str, ...]) -> tuple[Path, Path, dict[str, Any]]:
        if (family, heads) not in created:
            folder = new_folder(base / f"{family}-{'-'.join(heads)}", family, heads)
            created[family, heads] = (folder, Path(f"{folder}-onnx"), unmask.export(folder))
        return created[family, heads]

    return get


def name_of(pair: tuple[str, tuple[str, ...]]) -> str:
    return f"{pair[0]}-{'-'.join(pair[1]) or 'plain'}"


def assert_exports(folder: Path, export: Path, result: dict[str, Any]) -> None:
    assert result["folder"] == str(export) and result["validation"]["largest_difference"] <= 1e-4
    assert not list(export.rglob("*.safetensors")) and not list(export.parent.glob(".*"))
    about = json.loads((export / "export.json").read_text())
    assert about["validation"] == result["validation"] and all(
        (export / file).is_file() for file in about["graphs"].values()
    )
    assert "largest difference" in (export / "README.md").read_text("utf-8")


@pytest.mark.parametrize("pair", QUICK, ids=name_of)
def test_export_agrees_with_torch(folders: Any, pair: tuple[str, tuple[str, ...]]) -> None:
    assert_exports(*folders(*pair))


@pytest.mark.slow
@pytest.mark.parametrize("pair", [p for p in combinations() if p not in QUICK], ids=name_of)
def test_every_family_and_head_agrees_with_torch(tmp_path: Path, pair: tuple[str, tuple[str, ...]]) -> None:
    folder = new_folder(tmp_path / "model", *pair, layers=3)
    assert_exports(folder, tmp_path / "model-onnx", unmask.export(folder))


# --------------------------------------------------------------------------------------------------------- predictions


def test_onnx_fill_score_next_sentence_and_embed_match_torch(folders: Any) -> None:
    folder, export, _ = folders("bert", ("mlm", "pooler", "nsp"))
    ours, theirs = unmask.load(folder), unmask.load(export)
    assert (ours.engine.kind, theirs.engine.kind) == ("torch", "onnx") and theirs.heads == ["mlm", "nsp"]
    texts = ["a c[MASK]b", "the [MASK]ist is [MASK]orted", "[MASK]"]
    assert_same([f.as_dict() for f in ours.fill(texts, top_k=4)], [f.as_dict() for f in theirs.fill(texts, top_k=4)])
    assert_same([s.as_dict() for s in ours.score([TEXT, "a"])], [s.as_dict() for s in theirs.score([TEXT, "a"])])
    assert_same(ours.next_sentence(TEXT, "the list"), theirs.next_sentence(TEXT, "the list"))
    assert gap(ours.embed([TEXT, "a"]), theirs.embed([TEXT, "a"])) <= 1e-5
    assert_same(ours.embed(TEXT, pooling="token").tolist(), theirs.embed(TEXT, pooling="token").tolist())


def test_onnx_generation_matches_torch(folders: Any) -> None:
    for family in ("gpt2", "t5"):
        ours, theirs = (unmask.load(folder) for folder in folders(family, ("lm",))[:2])
        texts = [TEXT, "a", "the list"]
        for settings in ({}, {"num_beams": 3}, {"do_sample": True, "seed": 3}):
            new = [p.generate(texts, max_new_tokens=6, **settings) for p in (ours, theirs)]
            assert [c.as_dict() for c in new[0]] == [c.as_dict() for c in new[1]]
    gpt = [unmask.load(folder) for folder in folders("gpt2", ("lm",))[:2]]
    assert_same(*[p.score([TEXT, "a"])[0].as_dict() for p in gpt])


def test_onnx_task_predictions_match_torch(folders: Any) -> None:
    ours, theirs = (unmask.load(folder) for folder in folders("modernbert", ("pooler", "classify"))[:2])
    texts = [TEXT * n for n in range(1, 9)]
    assert_same(ours.predict(texts), theirs.predict(texts))
    ours, theirs = (unmask.load(folder) for folder in folders("bert", ("pooler", "choose"))[:2])
    assert_same(ours.choose(TEXT, ["a cab", "the list", "b"]), theirs.choose(TEXT, ["a cab", "the list", "b"]))


def test_operations_unsupported_by_onnx_raise(folders: Any) -> None:
    folder, export, _ = folders("bert", ("mlm", "pooler", "nsp"))
    model = unmask.load(export, backend="onnx")
    for ask in (lambda: model.embed(TEXT, layer=0), lambda: model.attention(TEXT), lambda: model.explain("a c[MASK]b")):
        with pytest.raises(UserError, match="torch"):
            ask()
    with pytest.raises(UserError, match="unmask export"):
        unmask.load(folder, backend="onnx")
    with pytest.raises(UserError, match="exported"):
        unmask.load(export, backend="torch")
    with pytest.raises(UserError, match="tokens"):
        model.fill("a" * 400 + "[MASK]")


def test_damaged_export_raises(folders: Any, tmp_path: Path) -> None:
    _, export, _ = folders("modernbert", ("pooler", "classify"))
    about = json.loads((export / "export.json").read_text())

    def load_copy(export_json: str, graph: bytes | None = None) -> None:
        copy = Path(shutil.copytree(export, tmp_path / "copy"))
        (copy / "export.json").write_text(export_json)
        if graph is not None:
            (copy / "onnx" / "model.onnx").write_bytes(graph)
        try:
            unmask.load(copy)
        finally:
            shutil.rmtree(copy)

    load_copy(json.dumps(about))
    for values in (
        {},
        about | {"version": 9},
        about | {"graphs": []},
        {k: v for k, v in about.items() if k != "heads"},
    ):
        with pytest.raises(UserError, match="incompatible version"):
            load_copy(json.dumps(values))
    for file in ("../onnx/model.onnx", "/etc/passwd", 3):
        with pytest.raises(UserError, match="invalid graph file"):
            load_copy(json.dumps(about | {"graphs": {"model": file}}))
    with pytest.raises(UserError, match="cannot read"):
        load_copy("{")
    for graph in (b"", b"nothing", (export / "onnx/model.onnx").read_bytes()[:5000]):
        with pytest.raises(UserError, match="cannot read"):
            load_copy(json.dumps(about), graph)


def test_commands_accept_an_export(folders: Any, tmp_path: Path) -> None:
    folder, export, _ = folders("modernbert", ("pooler", "classify"))
    file = sentences(tmp_path / "file.csv", folder)
    for arguments in (["predict", str(export), TEXT], ["evaluate", str(export), str(file)]):
        result = CliRunner().invoke(app, [*arguments, "--json"])
        assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["accuracy"] == 1.0
    mlm = str(folders("bert", ("mlm", "pooler", "nsp"))[1])
    info = CliRunner().invoke(app, ["info", mlm])
    assert info.exit_code == 0 and "inference only" in info.output
    for arguments in (["fill", mlm, "a c[MASK]b"], ["score", mlm, TEXT]):
        assert CliRunner().invoke(app, [*arguments, "--json"]).exit_code == 0


# --------------------------------------------------------------------------------------------------------------- the graph


def test_graph_contains_no_local_paths(folders: Any) -> None:
    _, export, _ = folders("bert", ("mlm", "pooler", "nsp"))
    for file in (export / "onnx").glob("*.onnx"):
        assert str(Path(hf.__file__).parents[2]).encode() not in file.read_bytes()
        assert b"site-packages" not in file.read_bytes()


def test_graph_inputs_and_outputs_have_standard_names(folders: Any) -> None:
    folder, export, _ = folders("bert", ("mlm", "pooler", "nsp"))
    session = onnxruntime.InferenceSession(export / "onnx" / "model.onnx")
    assert [i.name for i in session.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]
    assert [o.name for o in session.get_outputs()] == ["logits", "nsp_logits", "last_hidden_state"]
    ids = np.array([[2, 5, 6, 7], [2, 5, 3, 0]])
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    whole = session.run(["logits"], feeds)[0]
    model = hf.load(folder).model
    with torch.inference_mode():
        ours = model.logits("mlm", model(torch.from_numpy(ids), torch.from_numpy(mask).bool()))
    assert gap(whole[mask > 0], ours.numpy()[mask > 0]) <= 1e-4  # (B, T, V) without positions
    some = session.run(["logits"], feeds | {"positions": np.array([1, 6])})[0]
    assert gap(some[:, 0], [whole[0, 1], whole[1, 2]]) <= 1e-5  # (N, 1, V)


def test_export_of_version_0_1_still_runs(folders: Any, tmp_path: Path) -> None:
    """Version 0.1 named the input `at` instead of `positions`."""
    _, export, _ = folders("bert", ("mlm", "pooler", "nsp"))
    old = Path(shutil.copytree(export, tmp_path / "old"))
    proto = onnx.load(old / "onnx" / "model.onnx")
    for value in [*proto.graph.input, *proto.graph.initializer]:
        value.name = "at" if value.name == "positions" else value.name
    for node in proto.graph.node:
        node.input[:] = ["at" if name == "positions" else name for name in node.input]
    onnx.save(proto, old / "onnx" / "model.onnx")
    assert_same(*[unmask.load(each).fill("the [MASK]ist is [MASK]orted").as_dict() for each in (export, old)])


def test_transformers_loads_the_exported_config_and_tokenizer(folders: Any) -> None:
    from transformers import AutoConfig, AutoTokenizer

    _, export, _ = folders("bert", ("mlm", "pooler", "nsp"))
    assert AutoConfig.from_pretrained(export).model_type == "bert"
    tokenizer = AutoTokenizer.from_pretrained(export)
    assert tokenizer(TEXT)["input_ids"] == [
        tokenizer.cls_token_id,
        *unmask.load(export).tokenizer.encode(TEXT),
        tokenizer.sep_token_id,
    ]


def test_weights_of_a_large_model_are_stored_next_to_the_graph(folders: Any, tmp_path: Path) -> None:
    _, export, _ = folders("modernbert", ("pooler", "classify"))
    copy = Path(shutil.copytree(export, tmp_path / "copy"))
    file = copy / "onnx" / "model.onnx"
    save(onnx.load(file), file, max_bytes=0)
    assert (copy / "onnx" / "model.onnx_data").is_file() and file.stat().st_size < (
        export / "onnx/model.onnx"
    ).stat().st_size
    assert_same(unmask.load(export).predict([TEXT]), unmask.load(copy).predict([TEXT]))


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("family", ["elmo", "cbow"])
def test_families_without_onnx_support_raise(tmp_path: Path, family: str) -> None:
    tokenizer = Tokenizer.train(["a cab"], TokenizerRecipe(type="char"))
    model = Model(preset(f"{family}-mini", vocab_size=tokenizer.size), {"elmo": ["bilm"], "cbow": ["cbow"]}[family])
    hf.save(model.init(0), tmp_path, tokenizer)
    with pytest.raises(UserError, match=f"cannot export a {family} model"):
        unmask.export(tmp_path, out=tmp_path / "out")


def test_invalid_arguments_raise_before_exporting(folders: Any, tmp_path: Path) -> None:
    folder, export, _ = folders("modernbert", ("pooler", "classify"))
    with pytest.raises(UserError, match="already exists"):
        unmask.export(folder, out=export)
    with pytest.raises(UserError, match="expected: onnx"):
        unmask.export(folder, format="tflite", out=tmp_path / "a")
    with pytest.raises(UserError, match="OWNER/NAME"):
        unmask.export(folder, push="a/b/c", out=tmp_path / "a")
    with pytest.raises(UserError, match="exported"):
        unmask.export(export, out=tmp_path / "a")
    result = unmask.export(folder, out=tmp_path / "a", dry_run=True)
    assert result["inputs"] == {"model": ["input_ids", "attention_mask"]} and not (tmp_path / "a").exists()


def test_failed_upload_raises_and_suggests_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unmask.exporting.export import push

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(UserError, match=r"(?s)cannot upload me/model: .*hf upload me/model"):
        push(tmp_path, "me/model")


# ----------------------------------------------------------------------------------------------------- sentence embeddings


def test_exported_sentence_embeddings_keep_their_pooling(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "model", "bert", ("pooler",))
    sentence.write(folder, sentence.SentenceTransformerConfig(pooling="cls", length=64), 32)
    export = Path(unmask.export(folder)["folder"])
    assert (export / "modules.json").is_file() and (export / "1_Pooling" / "config.json").is_file()
    texts = ["a cab", TEXT, "b " * 100]  # the last text needs windows
    ours, theirs = unmask.load(folder), unmask.load(export)
    assert theirs.task is not None and theirs.task.name == "embed"
    assert gap(ours.embed(texts), theirs.embed(texts)) <= 1e-5
    assert ours.similarity("a cab", TEXT) == near(theirs.similarity("a cab", TEXT), 1e-5)
    file = export / "export.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in about.items() if key not in ("output", "grouped")}))
    older = unmask.load(export)  # an older export does not describe the task's output
    assert gap(ours.embed(texts), older.embed(texts)) <= 1e-5
