"""The Engine interface between a Predictor and its backend: numpy in, numpy out, any number of rows in their order."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from inference.tiny_models import train
from near import gap

from unmask.batch import TOKENS_PER_FORWARD, Example, collate
from unmask.errors import UserError
from unmask.inference.engine import Engine
from unmask.inference.predictor import Predictor, load
from unmask.inference.progress import map_in_chunks, progress_callback
from unmask.inference.torch_engine import LOGIT_ROWS_PER_CHUNK, TorchEngine
from unmask.model.config import preset
from unmask.model.layers import MLP
from unmask.model.model import Model

TOKENIZER = train()
SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "max_positions": 64, "initializer_range": 0.5}


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    config = preset("bert-tiny", vocab_size=TOKENIZER.size, labels=("a", "b", "c"), **SHAPE)
    return TorchEngine(Model(config, ["mlm", "nsp", "tag"]).init(0), "cpu")


def rows(count: int, seed: int = 0, targets: int = 3) -> list[Example]:
    rng = np.random.default_rng(seed)
    out = []
    for length in rng.integers(8, 60, count):
        ids = rng.integers(5, TOKENIZER.size, length)
        positions = np.sort(rng.choice(length, targets, replace=False))
        out.append(Example(ids, labels={"mlm.positions": positions, "mlm.targets": ids[positions]}))
    return out


def logprobs(engine: TorchEngine, row: Example) -> torch.Tensor:
    """Reference: log-probabilities (T, V) of one row."""
    with torch.no_grad():
        return engine.model.logits("mlm", engine.model(torch.from_numpy(row.input_ids)[None])[0]).log_softmax(-1)


def test_every_method_returns_results_per_row(engine: TorchEngine) -> None:
    some = rows(200)
    assert sum(map(len, some)) > TOKENS_PER_FORWARD  # several forward passes
    allowed = np.random.default_rng(1).random(TOKENIZER.size) < 0.5
    top, likely = engine.top_k("mlm", some, 4, allowed), engine.token_logprobs("mlm", some)
    hidden, nsp, tag = engine.hidden(some, 1), engine.logits("nsp", some), engine.logits("tag", some)
    with torch.no_grad():
        for i in (0, 7, 50, 199):
            row = some[i]
            reference, positions = logprobs(engine, row), row.labels["mlm.positions"]
            values, ids = reference[positions].masked_fill(~torch.from_numpy(allowed), -torch.inf).topk(4)
            np.testing.assert_array_equal(top[i][0], ids)
            assert gap(top[i][1], values) <= 5e-5
            assert gap(likely[i], reference[positions, row.input_ids[positions]]) <= 5e-5
            states: list[torch.Tensor] = []
            engine.model.encoder(torch.from_numpy(row.input_ids)[None], states=states)
            assert gap(hidden[i], states[1][0]) <= 1e-5
            assert gap(nsp[i], engine.model.logits("nsp", states[-1])[0]) <= 1e-5
            assert tag[i].shape == (len(row), len(engine.config.labels))
    assert engine.top_k("mlm", [], 3) == [] and engine.hidden([]) == []


def test_repeated_positions_and_chunked_logits(engine: TorchEngine) -> None:
    some = rows(100, targets=7)
    assert LOGIT_ROWS_PER_CHUNK < 100 * 7
    for row in some:
        row.labels["mlm.positions"] = np.repeat(row.labels["mlm.positions"], 3)
        row.labels["mlm.targets"] = np.arange(5, 26)
    for row, logprob in zip(some, engine.token_logprobs("mlm", some), strict=True):
        reference = logprobs(engine, row)
        assert gap(logprob, reference[row.labels["mlm.positions"], row.labels["mlm.targets"]]) <= 5e-5
    wide = rows(100, targets=7)
    narrow = [engine.top_k("mlm", [row], 2)[0][0] for row in wide]
    for ids, expected in zip((ids for ids, _ in engine.top_k("mlm", wide, 2)), narrow, strict=True):
        np.testing.assert_array_equal(ids, expected)


@pytest.mark.parametrize(
    "name", ["bert-tiny", "modernbert-mini", "albert-mini", "t5-mini", "gpt2-mini", "electra-mini"]
)
def test_padding_is_skipped_and_does_not_change_hidden_states(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"local_window": 8} if name == "modernbert-mini" else {}
    engine = TorchEngine(Model(preset(name, vocab_size=TOKENIZER.size, **more), []).init(0), "cpu")
    lengths, widths = [60, 9, 31, 17], []
    some = [Example(np.random.default_rng(n).integers(5, TOKENIZER.size, n)) for n in lengths]
    real = MLP.forward
    monkeypatch.setattr(MLP, "forward", lambda self, x: widths.append(x.shape[:-1].numel()) or real(self, x))
    hidden = engine.hidden(some)
    assert set(widths) == {sum(lengths)}
    batch = collate(some, 0)
    positions = torch.tensor([60 * 1 + 3, 60 * 3])  # a token of the second row and the first token of the last row
    with torch.no_grad():
        chosen = engine.model.encode(batch, positions)
        engine.model.encoder.unpad = False
        plain = engine.model.encode(batch)
    assert widths[-1] == 4 * 60
    for row, states, length in zip(hidden, plain, lengths):
        assert gap(row, states[:length]) <= 2e-5
    assert gap(chosen, plain.flatten(0, 1)[positions]) <= 2e-5


class DelegatingEngine:
    """An engine without torch, such as an exported graph: it delegates to the real one."""

    kind = "onnx"

    def __init__(self, real: TorchEngine):
        self.real, self.config = real, real.config

    def __getattr__(self, name: str) -> Any:
        if name in (
            "heads",
            "generation",
            "forward_lock",
            "batch_size",
            "forward_rows",
            "top_k",
            "token_logprobs",
            "hidden",
            "logits",
            "start_generation",
        ):
            return getattr(self.real, name)
        raise AttributeError(name)


def test_predictor_uses_only_the_engine_interface(engine: TorchEngine) -> None:
    other = DelegatingEngine(engine)
    assert isinstance(other, Engine)
    there, here = Predictor(other, TOKENIZER), Predictor(engine, TOKENIZER)
    text = "the [MASK] of the [MASK]"
    settings: dict[str, Any] = {"num_beams": 3, "max_subwords": 2}
    assert there.fill(text, **settings) == here.fill(text, **settings)
    assert there.score("the lakes", "within-word") == here.score("the lakes", "within-word")
    assert there.next_sentence("the", "lakes") == here.next_sentence("the", "lakes")
    np.testing.assert_array_equal(there.embed("the", "token", 1), here.embed("the", "token", 1))
    for ask in (there.attention, there.explain):
        with pytest.raises(UserError, match="backend onnx") as caught:
            ask("the [MASK]")
        assert 'backend="torch"' in caught.value.hint
    assert set(here.methods()) - set(there.methods()) == {"attention", "explain"}


def test_importing_the_predictor_does_not_import_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import unmask.inference.predictor, unmask.cli.show.introspection, unmask.inference.vector_files"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "heads", "expected"),
    [
        (
            "bert-tiny",
            ["mlm", "nsp"],
            "attention embed explain fill minimal_pairs next_sentence score similarity word_vectors",
        ),
        ("bert-tiny", [], "attention embed explain similarity word_vectors"),
        ("gpt2-mini", ["lm"], "attention embed explain generate minimal_pairs score similarity word_vectors"),
        ("t5-mini", ["lm"], "attention embed explain generate similarity word_vectors"),
        ("elmo-mini", ["bilm"], "embed explain similarity word_vectors"),
    ],
)
def test_methods_lists_what_the_model_supports(name: str, heads: list[str], expected: str) -> None:
    shape = SHAPE if name != "elmo-mini" else {}
    predictor = Predictor(Model(preset(name, vocab_size=TOKENIZER.size, **shape), heads).init(0), TOKENIZER, "cpu")
    assert predictor.methods() == expected.split()


def test_unknown_backend_raises(tmp_path: Any) -> None:
    with pytest.raises(UserError, match="backend 'tf'"):
        load(tmp_path, backend="tf")


def test_progress_is_reported_in_order_and_only_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress: list[tuple[float, float]] = []
    lengths = [30_000, 10, 60_000, 20]
    mapped = map_in_chunks(
        list("abcd"), lengths, lambda some: some, lambda done, total, message: progress.append((done, total))
    )
    assert mapped == list("abcd")
    assert (
        progress[-1] == (4, 4)
        and [done for done, _ in progress] == sorted(done for done, _ in progress)
        and len(progress) > 1
    )
    with progress_callback(None) as update:
        update(1, 2, "")
    assert capsys.readouterr() == ("", "")
