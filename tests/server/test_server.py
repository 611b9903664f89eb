"""Existing clients against the real command in a subprocess: huggingface_hub, openai, curl."""

import base64
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from near import gap, near
from server.serving import FACTS, ROWS, Server, base_model, server, task_model

import unmask
from unmask.inference.predictor import Predictor
from unmask.server.routes.pipelines import PIPELINES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    encoder = base_model(root / "mlm")
    decoder = base_model(root / "gpt", "gpt2-mini", ("lm",))
    base_model(root / "t5", "t5-mini", ("lm",), decoder_layers=2)
    for name in ROWS:
        task_model(root / name, decoder if name == "generate" else encoder, name)
    return root


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Server]:
    with server(*(str(folder / name) for name in ("mlm", "gpt", "t5", *ROWS))) as instance:
        yield instance


@pytest.fixture(scope="module")
def alone(folder: Path):
    """The same models without a server."""
    loaded: dict[str, Predictor] = {}
    return lambda name: loaded.setdefault(name, unmask.load(folder / name))


def client(running: Server, name: str, task: str = "") -> InferenceClient:
    return InferenceClient(model=f"{running.url}/models/{name}{f'/pipeline/{task}' if task else ''}")


def post(running: Server, path: str, body: Any) -> Any:
    answer = httpx.post(running.url + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


# -------------------------------------------------------------------------------------------------- huggingface_hub


@pytest.mark.parametrize("task", ["", "fill-mask"])
def test_hub_client_fills_masks(task: str, running: Server, alone) -> None:
    predicted = client(running, "mlm", task).fill_mask("Ann lives in [MASK] .", top_k=3)
    ours = alone("mlm").fill("Ann lives in [MASK] .", top_k=3).masks[0].candidates
    assert [(f.token, f.token_str, f.sequence) for f in predicted] == [(c.id, c.token, c.text) for c in ours]
    assert [f.score for f in predicted] == near([c.probability for c in ours], 1e-5)


def test_hub_client_restricts_fill_to_targets(running: Server) -> None:
    predicted = client(running, "mlm").fill_mask("Ann lives in [MASK] .", targets=["rome", "oslo"])
    assert {f.token_str.strip() for f in predicted} == {"rome", "oslo"}


@pytest.mark.parametrize("task", ["", "text-classification"])
def test_hub_client_classifies(task: str, running: Server, alone) -> None:
    predicted = client(running, "classify", task).text_classification(FACTS[0])
    ours = alone("classify").predict([FACTS[0]])[0]["scores"]
    assert {f.label: near(f.score, 1e-5) for f in predicted} == ours
    assert [f.score for f in predicted] == sorted((f.score for f in predicted), reverse=True)
    assert len(client(running, "classify").text_classification(FACTS[0], top_k=1)) == 1


@pytest.mark.parametrize("task", ["", "token-classification"])
def test_hub_client_tags(task: str, running: Server, alone) -> None:
    words = client(running, "tag", task).token_classification(FACTS[0], aggregation_strategy="none", ignore_labels=[])
    ours = alone("tag").predict([FACTS[0]])[0]
    assert [w.entity for w in words] == ours["tags"]
    assert [(w.start, w.end) for w in words] == [tuple(w) for w in ours["words"]]
    predicted = client(running, "tag", task).token_classification(FACTS[0])
    assert [(f.entity_group, f.start, f.end) for f in predicted] == [
        (e["label"], e["start"], e["end"]) for e in ours["entities"]
    ]


@pytest.mark.parametrize("task", ["", "question-answering"])
def test_hub_client_answers(task: str, running: Server, alone) -> None:
    predicted = client(running, "answer", task).question_answering("where ?", FACTS[0])
    ours = alone("answer").answer("where ?", FACTS[0])
    assert (predicted.answer, predicted.start, predicted.end) == (ours["answer"], ours["start"], ours["end"])
    top_two = client(running, "answer", task).question_answering("where ?", FACTS[0], top_k=2)
    assert isinstance(top_two, list) and len(top_two) == 2 and top_two[0].answer == predicted.answer


@pytest.mark.parametrize("task", ["", "feature-extraction"])
def test_hub_client_gets_embeddings(task: str, running: Server, alone) -> None:
    vectors = client(running, "embed", task).feature_extraction(FACTS[:2])
    assert gap(vectors, alone("embed").embed(FACTS[:2])) <= 1e-5
    short = client(running, "embed", task).feature_extraction(FACTS[0], normalize=True, dimensions=4)
    assert short.shape == (4,) and np.linalg.norm(short) == near(1, 1e-5)


@pytest.mark.parametrize("task", ["", "sentence-similarity"])
def test_hub_client_compares_sentences(task: str, running: Server, alone) -> None:
    scores = client(running, "embed", task).sentence_similarity(FACTS[0], other_sentences=FACTS[:3])
    assert scores == near(alone("embed").similarity(FACTS[0], FACTS[:3]).tolist(), 1e-5)
    assert scores[0] == near(1, 1e-5)


@pytest.mark.parametrize("task", ["", "text-generation"])
def test_hub_client_generates(task: str, running: Server, alone) -> None:
    hub = client(running, "gpt", task)
    new = alone("gpt").generate("Ann lives", max_new_tokens=5).generated_text
    assert hub.text_generation("Ann lives", max_new_tokens=5) == new
    assert hub.text_generation("Ann lives", max_new_tokens=5, return_full_text=True) == "Ann lives" + new
    sampled = [hub.text_generation("Ann", max_new_tokens=8, do_sample=True, seed=n, top_p=0.9) for n in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    assert hub.text_generation("Ann", max_new_tokens=8, seed=1, top_p=0.9) == sampled[0]  # top_p implies sampling


@pytest.mark.parametrize(("task", "method", "key"), [("summarization", "summarization", "summary_text"), ("translation", "translation", "translation_text")])  # fmt: skip
def test_hub_client_translates_and_summarizes(task: str, method: str, key: str, running: Server, alone) -> None:
    generated = getattr(client(running, "t5", task), method)("Ann lives", generate_parameters={"max_new_tokens": 4})
    assert generated[key] == alone("t5").generate("Ann lives", max_new_tokens=4).generated_text


def test_hub_client_shows_the_error_message(running: Server) -> None:
    with pytest.raises(HfHubHTTPError, match="no mask in the text"):
        client(running, "mlm").fill_mask("nothing is hidden")
    with pytest.raises(HfHubHTTPError, match="not for classify"):
        client(running, "tag", "text-classification").text_classification("a")


# ----------------------------------------------------------------------------------------------------------- openai


def test_openai_client(running: Server, alone) -> None:
    openai_client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
    assert "embed" in [model.id for model in openai_client.models.list()]
    ours = alone("embed").embed(FACTS[:3])
    response = openai_client.embeddings.create(model="embed", input=FACTS[:3])  # requests base64 and decodes it
    assert gap([row.embedding for row in response.data], ours) <= 1e-5
    assert [row.index for row in response.data] == [0, 1, 2]
    assert response.usage.prompt_tokens == sum(len(e) for e in alone("embed").tokenizer.encode_batch(FACTS[:3]))
    floats = openai_client.embeddings.create(model="embed", input=FACTS[0], encoding_format="float", dimensions=8)
    short = ours[0][:8] / np.linalg.norm(ours[0][:8])
    assert gap(floats.data[0].embedding, short) <= 1e-5
    with pytest.raises(openai.NotFoundError, match="no model 'other'") as caught:
        openai_client.embeddings.create(model="other", input="a")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.UnprocessableEntityError, match="token ids"):
        openai_client.embeddings.create(model="embed", input=[1, 2, 3])


def test_base64_is_little_endian_float32(running: Server) -> None:
    response = post(running, "/v1/embeddings", {"model": "embed", "input": "Ann", "encoding_format": "base64"})
    plain = post(running, "/v1/embeddings", {"model": "embed", "input": "Ann"})
    raw = base64.b64decode(response["data"][0]["embedding"])
    assert gap(np.frombuffer(raw, "<f4"), plain["data"][0]["embedding"]) <= 1e-5


# ------------------------------------------------------------------------- text-embeddings-inference, and our own routes


def test_text_embeddings_inference_format(running: Server, alone) -> None:
    assert gap(post(running, "/embed", {"inputs": FACTS[0]}), alone("embed").embed(FACTS[:1])) <= 1e-5
    ours = alone("rank").predict([("who", FACTS[:3])])[0]
    ranked = post(running, "/rerank", {"query": "who", "texts": FACTS[:3], "raw_scores": True, "return_text": True})
    assert [row["index"] for row in ranked] == ours["order"]
    assert [row["text"] for row in ranked] == [FACTS[n] for n in ours["order"]]
    assert [row["score"] for row in ranked] == near([ours["scores"][n] for n in ours["order"]], 1e-5)
    assert all(0 < row["score"] < 1 for row in post(running, "/rerank", {"query": "who", "texts": FACTS[:3]}))
    one = post(running, "/predict", {"inputs": FACTS[0], "model": "classify"})
    two = post(running, "/predict", {"inputs": [[FACTS[0]], [FACTS[1]]], "model": "classify"})
    assert [row["label"] for row in two[0]] == [row["label"] for row in one]
    assert [row["score"] for row in two[0]] == near([row["score"] for row in one], 1e-5)
    assert {row["label"] for row in post(running, "/predict", {"inputs": ["a", "b"], "model": "pairs"})} == {
        "yes",
        "no",
    }
    sentences = {"source_sentence": FACTS[0], "sentences": FACTS[:2]}
    assert post(running, "/similarity", {"inputs": sentences})[0] == near(1, 1e-5)
    assert httpx.get(f"{running.url}/info").json()["max_input_length"] == 64


def test_pairs_choices_and_ranking(running: Server, alone) -> None:
    pair = post(running, "/models/pairs", {"inputs": {"text": "a", "text_pair": "b"}})
    assert {row["label"] for row in pair[0]} == {"yes", "no"}
    chosen = post(running, "/models/choose", {"inputs": {"text": "Ann", "choices": ["so", "no"]}})
    assert chosen["scores"] == near(alone("choose").choose("Ann", ["so", "no"])["scores"], 1e-5)
    ranked = post(running, "/models/rank", {"inputs": {"query": "who", "texts": FACTS[:2]}})
    assert sorted(row["index"] for row in ranked) == [0, 1]


def test_list_of_inputs_returns_a_list(running: Server) -> None:
    masked = ["Ann [MASK] .", "[MASK] lives in [MASK] ."]
    response = post(running, "/models/mlm", {"inputs": masked})
    first = post(running, "/models/mlm", {"inputs": masked[0]})
    assert [row["sequence"] for row in response[0]] == [row["sequence"] for row in first]
    assert len(response[1]) == 2 and len(response[1][0]) == 5  # one list per mask
    assert len(post(running, "/models/tag", {"inputs": FACTS[:2]})) == 2


def test_long_text_raises_or_is_truncated(running: Server) -> None:
    long = {"inputs": "Ann lives " * 60, "model": "mlm"}
    answer = httpx.post(f"{running.url}/embed", json=long)
    assert answer.status_code == 422 and re.fullmatch(r"at most \d+ tokens", answer.json()["error"]["expected"])
    assert len(post(running, "/embed", long | {"truncate": True})[0]) == 32


def test_long_text_is_truncated_at_either_end(running: Server, alone) -> None:
    words = [f"{name} lives in {city}" for name in ("Ann", "Ben", "Cleo") for city in ("Rome", "Oslo", "Bonn")]
    long = " ".join(words * 4)
    right, left = (
        post(running, "/models/mlm/pipeline/feature-extraction", {"inputs": long, "truncate": True, **more})
        for more in ({}, {"truncation_direction": "left"})
    )
    assert right != left
    cut = alone("mlm").tokenizer.encode_batch([long])[0].offsets
    assert gap(right, alone("mlm").embed(long[: cut[61][1]])) <= 1e-5
    assert gap(left, alone("mlm").embed(long[cut[-62][0] :])) <= 1e-5


def test_unknown_pipeline_error_lists_the_available_ones(running: Server) -> None:
    answer = httpx.post(f"{running.url}/models/mlm/pipeline/fil-mask", json={"inputs": "a"})
    error = answer.json()["error"]
    assert answer.status_code == 404 and "did you mean fill-mask" in error["message"]
    assert "feature-extraction" in error["expected"] and "text-classification" not in error["expected"]


def test_head_request_returns_the_headers_of_get(running: Server) -> None:
    for path, status in (("/health", 200), ("/", 200), ("/nowhere", 404)):
        head, whole = httpx.head(running.url + path), httpx.get(running.url + path)
        assert head.status_code == whole.status_code == status and head.content == b""
        assert head.headers["content-type"] == whole.headers["content-type"]


def test_an_exported_model_is_served_without_torch(folder: Path, running: Server, tmp_path: Path) -> None:
    unmask.export(folder / "classify", format="onnx", out=tmp_path / "onnx")
    with server(f"exported={tmp_path / 'onnx'}", "--backend", "onnx") as instance:
        ours = {row["label"]: row["score"] for row in post(instance, "/models/exported", {"inputs": FACTS[0]})[0]}
        theirs = {row["label"]: row["score"] for row in post(running, "/models/classify", {"inputs": FACTS[0]})[0]}
        assert ours == near(theirs, 1e-4)
        assert "libtorch" not in Path(f"/proc/{instance.process.pid}/maps").read_text()


# ---------------------------------------------------------------------------------------------------- curl, and the rest


def test_printed_curl_commands_work(running: Server) -> None:
    lines = [line.strip() for line in running.said if line.strip().startswith("curl ")]
    assert len(lines) == 3 + len(ROWS)
    for line in lines:
        result = subprocess.run([*shlex.split(line), "-s", "-S", "--fail-with-body"], capture_output=True, text=True)
        assert result.returncode == 0 and json.loads(result.stdout) is not None, (line, result.stdout, result.stderr)


def test_models_and_health_routes(running: Server) -> None:
    models = httpx.get(f"{running.url}/models").json()
    assert list(models) == ["mlm", "gpt", "t5", *ROWS]
    assert models["mlm"]["pipelines"][0] == "fill-mask" and "embed" in models["mlm"]["methods"]
    assert models["classify"]["task"] == "classify"
    assert httpx.get(f"{running.url}/health").json() == {"status": "ok", "models": list(models)}


def test_api_reference_loads_no_external_resources(running: Server) -> None:
    spec = httpx.get(f"{running.url}/openapi.json").json()
    assert {f"/models/{{name}}/pipeline/{task}" for task in PIPELINES} < set(spec["paths"])
    page = httpx.get(f"{running.url}/docs")
    assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
    assert "http://" not in page.text and "https://" not in page.text
    for asset in ("/docs/docs.js", "/docs/docs.css"):
        assert asset in page.text and httpx.get(running.url + asset).status_code == 200


def test_every_response_has_security_headers(running: Server) -> None:
    for path in ("/health", "/nothing", "/models", "/docs"):
        headers = httpx.get(running.url + path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers


def test_metrics_route(running: Server) -> None:
    post(running, "/models/mlm", {"inputs": "Ann [MASK] ."})
    httpx.post(f"{running.url}/models/mlm", json={"inputs": "none"})
    text = httpx.get(f"{running.url}/metrics").text
    assert 'unmask_requests_total{method="POST",route="/models/{name}",status="200"}' in text
    assert 'unmask_errors_total{code="invalid"}' in text
    assert 'unmask_batch_tokens_bucket{le="16.0",method="fill",model="mlm"}' in text
    assert "unmask_queue_tokens 0.0" in text and "unmask_request_seconds_bucket" in text
