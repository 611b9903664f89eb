"""The same texts with no labels but words, with few labels and with many: the comparison of `unmask quickstart`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.labels.records import Record
from unmask.tasks.classify.linear import LinearModel, encode_targets
from unmask.tasks.classify.self_training import Gate, fit
from unmask.tasks.classify.targets import SingleLabel
from unmask.tasks.classify.views import Views
from unmask.tasks.classify.words import count_words, label_by_words


def compare(
    words: Mapping[str, Sequence[str]],
    train: Sequence[Record],
    dev: Sequence[Record],
    unlabeled: Sequence[str],
    test: Sequence[Record],
    hidden: np.ndarray,
    sizes: Sequence[int],
    folder: Path,
) -> list[dict[str, Any]]:
    """Train on the first n labels for each of the `sizes`, and with 0 labels on the words. Return a row for each: accuracies on `test`.

    Every model is a linear model on `train`, with self-training unless cross-validation rejects it. The one with the most labels is saved in `folder`. The usual model
    also has the labels of `dev`, which weight the blend of the saved model later.
    """
    state: dict[str, Any] = {"labels": list(words)}
    target_type, class_weight = SingleLabel(state), np.ones(len(words))
    views, y = Views(train, unlabeled, hidden), encode_targets(target_type, train)
    rows = []
    for size in sizes:
        records = [*train, *dev][:size]
        from_words = None
        if not size:
            found = label_by_words(words, [unlabeled[n] for n in views.used.tolist()])
            from_words = views.predict_from_words(found, len(words))[views.num_labeled :]
        if Gate(target_type, views, train[:size], y[:size], class_weight).rejects:
            model = LinearModel.fit(state, list(train[:size]))
        else:
            weights, bias, _ = fit(views, y[:size], np.arange(len(y[:size])), class_weight, from_words)
            model = LinearModel(views.features, weights, bias)
        usual = LinearModel.fit(state, records).logits(test) if size else count_words(words, [r["text"] for r in test])
        accuracies = [target_type.score(target_type.decode(z), test)["accuracy"] for z in (usual, model.logits(test))]
        rows.append({"labels": size, "usual": accuracies[0], "ours": accuracies[1]})
    folder.mkdir(exist_ok=True)
    model.save(folder)
    return rows
