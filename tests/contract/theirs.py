"""Predictions of a fine-tuned model directory in transformers and sentence-transformers, to compare with ours."""

from pathlib import Path
from typing import Any

import torch
from near import gap, near

from unmask.batch import collate
from unmask.inference.predictor import Predictor
from unmask.labels.records import Record


def rows_of(p: Predictor, records: list[Record]) -> Any:
    task = p.require_task()
    return collate([e for r in records for e in task.encode(r, labeled=False)], p.tokenizer.pad)


def inputs_of(batch: Any) -> dict[str, torch.Tensor]:
    mask = torch.ones_like(batch.input_ids) if batch.attention_mask is None else batch.attention_mask.long()
    return {"input_ids": batch.input_ids, "attention_mask": mask, "token_type_ids": batch.token_type_ids}


def opened(name: str, folder: Path) -> Any:
    import transformers

    model, found = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    return model.eval()


@torch.no_grad()
def as_sequence_classifier(p: Predictor, records: list[Record], folder: Path) -> None:
    model = opened("AutoModelForSequenceClassification", folder)
    shares = model(**inputs_of(rows_of(p, records))).logits.softmax(-1)
    for answer, row in zip(p.predict(records), shares):
        ours = [answer["scores"][model.config.id2label[i]] for i in range(len(row))]
        assert ours == near(row.tolist(), 1e-5)


@torch.no_grad()
def as_token_classifier(p: Predictor, records: list[Record], folder: Path) -> None:
    model, task = opened("AutoModelForTokenClassification", folder), p.require_task()
    batch, outputs = rows_of(p, records), task.compute_outputs(p.model, records)
    logits = model(**inputs_of(batch)).logits.numpy()
    for ours, theirs in zip(outputs.values, logits):
        assert gap(ours, theirs[: len(ours)]) <= 1e-4
    assert set(model.config.id2label.values()) == set(task.task_state["labels"])


@torch.no_grad()
def as_question_answerer(p: Predictor, records: list[Record], folder: Path) -> None:
    model, task = opened("AutoModelForQuestionAnswering", folder), p.require_task()
    batch, outputs = rows_of(p, records), task.compute_outputs(p.model, records)
    found = model(**inputs_of(batch))
    theirs = torch.stack([found.start_logits, found.end_logits], -1).numpy()
    for ours, row in zip(outputs.values, theirs):
        assert gap(ours, row[: len(ours)]) <= 1e-4


@torch.no_grad()
def as_multiple_choice(p: Predictor, records: list[Record], folder: Path) -> None:
    model, task = opened("AutoModelForMultipleChoice", folder), p.require_task()
    for record, answer in zip(records, p.predict(records)):
        rows = task.encode(record, labeled=False)
        inputs = {name: value[None] for name, value in inputs_of(collate(rows, p.tokenizer.pad)).items()}
        shares = model(**inputs).logits.softmax(-1)[0].tolist()
        assert answer["scores"] == near(shares, 1e-5)


@torch.no_grad()
def as_seq2seq(p: Predictor, records: list[Record], folder: Path) -> None:
    from transformers import AutoTokenizer

    model, tokenizer = opened("AutoModelForSeq2SeqLM", folder), AutoTokenizer.from_pretrained(folder)
    for record, answer in zip(records, p.predict(records)):
        given = tokenizer(record["text"], return_tensors="pt")
        out = model.generate(given.input_ids, attention_mask=given.attention_mask, max_new_tokens=16, do_sample=False)
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
