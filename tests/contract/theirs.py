"""Predictions of a fine-tuned model directory in transformers and sentence-transformers, to compare with ours."""

from pathlib import Path
from typing import Any

import torch
from near import gap, near

from unmask.batch import collate
from unmask.inference.predictor import Predictor
from unmask.labels.records import Record


def collate_records(p: Predictor, records: list[Record]) -> Any:
    task = p.require_task()
    return collate([e for r in records for e in task.encode(r, labeled=False)], p.tokenizer.pad)


def reference_inputs(batch: Any) -> dict[str, torch.Tensor]:
    mask = torch.ones_like(batch.input_ids) if batch.attention_mask is None else batch.attention_mask.long()
    return {"input_ids": batch.input_ids, "attention_mask": mask, "token_type_ids": batch.token_type_ids}


def load_reference(name: str, folder: Path) -> Any:
    import transformers

    model, loading_info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["unexpected_keys"]
    return model.eval()


@torch.no_grad()
def as_sequence_classifier(p: Predictor, records: list[Record], folder: Path) -> None:
    model = load_reference("AutoModelForSequenceClassification", folder)
    probabilities = model(**reference_inputs(collate_records(p, records))).logits.softmax(-1)
    for answer, row in zip(p.predict(records), probabilities):
        ours = [answer["scores"][model.config.id2label[i]] for i in range(len(row))]
        assert ours == near(row.tolist(), 1e-5)


@torch.no_grad()
def as_token_classifier(p: Predictor, records: list[Record], folder: Path) -> None:
    model, task = load_reference("AutoModelForTokenClassification", folder), p.require_task()
    batch, outputs = collate_records(p, records), task.compute_outputs(p.model, records)
    logits = model(**reference_inputs(batch)).logits.numpy()
    for ours, theirs in zip(outputs.values, logits):
        assert gap(ours, theirs[: len(ours)]) <= 1e-4
    assert set(model.config.id2label.values()) == set(task.task_state["labels"])


@torch.no_grad()
def as_question_answerer(p: Predictor, records: list[Record], folder: Path) -> None:
    model, task = load_reference("AutoModelForQuestionAnswering", folder), p.require_task()
    batch, outputs = collate_records(p, records), task.compute_outputs(p.model, records)
    reference = model(**reference_inputs(batch))
    theirs = torch.stack([reference.start_logits, reference.end_logits], -1).numpy()
    for ours, row in zip(outputs.values, theirs):
        assert gap(ours, row[: len(ours)]) <= 1e-4


@torch.no_grad()
def as_multiple_choice(p: Predictor, records: list[Record], folder: Path) -> None:
    model, task = load_reference("AutoModelForMultipleChoice", folder), p.require_task()
    for record, answer in zip(records, p.predict(records)):
        rows = task.encode(record, labeled=False)
        inputs = {name: value[None] for name, value in reference_inputs(collate(rows, p.tokenizer.pad)).items()}
        probabilities = model(**inputs).logits.softmax(-1)[0].tolist()
        assert answer["scores"] == near(probabilities, 1e-5)


@torch.no_grad()
def as_seq2seq(p: Predictor, records: list[Record], folder: Path) -> None:
    from transformers import AutoTokenizer

    model, tokenizer = load_reference("AutoModelForSeq2SeqLM", folder), AutoTokenizer.from_pretrained(folder)
    for record, answer in zip(records, p.predict(records)):
        inputs = tokenizer(record["text"], return_tensors="pt")
        out = model.generate(inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=16, do_sample=False)
        assert str(tokenizer.decode(out[0], skip_special_tokens=True)).strip() == answer["output"].strip()


def as_sentence_transformer(p: Predictor, records: list[Record], folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu").encode([r["text"] for r in records])
    ours = [answer["vector"] for answer in p.predict([{"text": r["text"]} for r in records])]
    assert gap(ours, theirs) <= 1e-5


def as_cross_encoder(p: Predictor, records: list[Record], folder: Path) -> None:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu")
    for record, answer in zip(records, p.predict(records)):
        theirs = model.predict([(record["query"], passage) for passage in record["passages"]])
        assert gap(answer["scores"], theirs) <= 1e-5
