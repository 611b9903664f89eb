"""Blend of an encoder and a linear model on n-grams (`--blend linear`).

The two make different mistakes: n-grams need few labels, the encoder reads word order and context. The logits of each are divided by
its temperature and averaged. The share of each is chosen by the loss on the dev set; with few dev records both count the same,
because a choice among so few would be noise (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unmask.errors import UserError
from unmask.files import read_lines
from unmask.labels.record_sets import RecordSets
from unmask.labels.records import Record
from unmask.tasks.classify.linear import LinearModel, encode_targets, uncalibrated
from unmask.tasks.classify.self_training import SelfTraining, self_train
from unmask.tasks.classify.targets import Regression, SingleLabel
from unmask.tasks.classify.task import Classify
from unmask.tasks.metrics import MIN_CALIBRATION_RECORDS, fit_temperature, nll
from unmask.tasks.task import Backend, Outputs

MIN_DEV_RECORDS = 100  # to choose the share of the encoder by the loss
SOFT_LABELS = (
    "soft_labels.jsonl"  # texts that the encoder was not trained on, with soft labels, in the folder of --blend FOLDER
)
SHARES = np.linspace(0, 1, 11)  # of the encoder


class LinearBlend:
    def __init__(self, linear: LinearModel, encoder_weight: float, linear_weight: float, note: str = ""):
        self.linear, self.weights = linear, {"encoder": encoder_weight, "linear": linear_weight}
        self.note = note

    @classmethod
    def check_unlabeled(cls, task: Classify) -> None:
        if type(task.target_type) is not SingleLabel or task.task_state.get("pair"):
            raise UserError(
                "--unlabeled needs records with one text and one label",
                expected="no text pairs, no list of labels, no numbers to predict",
                hint="remove --unlabeled",
            )

    @classmethod
    def fit(cls, task: Classify, model: Backend, sets: RecordSets, unlabeled: Sequence[str] = ()) -> LinearBlend:
        state = uncalibrated(task.task_state)
        trained = self_train(state, sets.train, unlabeled) if unlabeled else SelfTraining(None, "")
        folder = task.recipe.task.blend
        if folder != "linear":
            trained = SelfTraining(LinearModel.load(Path(folder), len(task.labels)), f"linear model: {folder}")
        linear, records = trained.model or LinearModel.fit(state, sets.train), sets.dev or sets.train
        encoder_logits, linear_logits = task.compute_outputs(model, records).record_means(), linear.logits(records)
        share = _share_by_agreement(task, model, linear, Path(folder) / SOFT_LABELS)
        weights = fit_weights(task, encoder_logits, linear_logits, records, bool(sets.dev), share)
        return cls(linear, *weights, trained.note)

    @classmethod
    def load(cls, folder: Path, num_labels: int) -> LinearBlend:
        linear = LinearModel.load(folder, num_labels)
        return cls(linear, *linear.blend_weights)

    def save(self, folder: Path) -> None:
        self.linear.blend_weights = (self.weights["encoder"], self.weights["linear"])
        self.linear.save(folder)

    def attributions(self, texts: Sequence[str], label: int) -> tuple[float, list[tuple[int, int, int, float]]]:
        weight, bias = self.weights["linear"], float(self.linear.bias[label])
        spans = self.linear.attributions(texts, label)
        return weight * bias, [(number, start, end, weight * value) for number, start, end, value in spans]

    def apply(self, outputs: Outputs, component: str = "both") -> Outputs:
        if not outputs.examples or component == "encoder":
            return outputs
        first_rows = np.unique(outputs.record_index, return_index=True)[1]
        texts = [outputs.examples[row].texts for row in first_rows]
        linear_logits = self.linear.logits([dict(zip(("text", "pair"), each)) for each in texts])
        weights = self.weights if component == "both" else {"encoder": 0.0, "linear": 1.0}
        values = [
            weights["encoder"] * value + weights["linear"] * linear_logits[record]
            for value, record in zip(outputs.values, outputs.record_index)
        ]
        return replace(outputs, values=values, unblended=outputs)


def _share_by_agreement(task: Classify, model: Backend, linear: LinearModel, path: Path) -> float:
    """Return the share of an encoder that was trained on soft labels: large if it learned them as well as the linear model did.

    Both are compared with the soft labels of texts that the encoder was not trained on (`unmask learn` writes them). Without
    such texts the share is 0.5.
    """
    rows = list(read_lines(path)) if path.is_file() else []
    if not rows:
        return 0.5
    soft_labels = np.array([[row["scores"][label] for label in task.labels] for row in rows])
    y, chance = soft_labels.argmax(-1), float(soft_labels.mean(0).max())
    encoder_logits = task.compute_outputs(model, rows).record_means()
    skills = [
        max(0.0, float((logits.argmax(-1) == y).mean()) - chance) ** 4
        for logits in (encoder_logits, linear.logits(rows))
    ]
    return skills[0] / (sum(skills) or 1.0)


def fit_weights(
    task: Classify,
    encoder: np.ndarray,
    linear: np.ndarray,
    records: Sequence[Record],
    are_dev: bool,
    default_share: float = 0.5,
) -> tuple[float, float]:
    """Return the weights of encoder and linear model, given their logits (N, labels) of the records."""
    is_number = isinstance(task.target_type, Regression)
    known = [n for n, r in enumerate(records) if is_number or set(task.target_type.labels_of(r)) <= set(task.labels)]
    y_true = encode_targets(task.target_type, [records[n] for n in known])
    encoder, linear = encoder[known], linear[known]
    if is_number:
        losses = [np.square(share * encoder + (1 - share) * linear - y_true[:, None]).mean() for share in SHARES]
        scales = (1.0, 1.0)
    else:
        scales = _scale(encoder, y_true, are_dev), _scale(linear, y_true, are_dev)
        mixed = [share * encoder / scales[0] + (1 - share) * linear / scales[1] for share in SHARES]
        losses = [nll(logits, y_true, 1.0) for logits in mixed]
    share = float(SHARES[int(np.argmin(losses))]) if are_dev and len(known) >= MIN_DEV_RECORDS else default_share
    return share / scales[0], (1 - share) / scales[1]


def _scale(logits: np.ndarray, y_true: np.ndarray, are_dev: bool) -> float:
    """Return the temperature of the logits, or with few records or those of training their standard deviation."""
    if are_dev and len(y_true) >= MIN_CALIBRATION_RECORDS and (temperature := fit_temperature(logits, y_true)) != 1.0:
        return temperature
    return float((logits - logits.mean(-1, keepdims=True) if y_true.ndim == 1 else logits).std()) or 1.0
