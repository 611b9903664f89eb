"""Contract of all tasks: a batch has the loss and the gradient of its micro-batches, so neither padding nor other rows have an influence."""

from collections.abc import Iterator

import pytest
import torch
from contract.test_tasks import CASES, Bench

from unmask.batch import Example, collate
from unmask.labels.records import Record
from unmask.runs.part import prepare
from unmask.tasks.objective import objective_of
from unmask.tasks.spec import TaskSpec

IN_BATCH_NEGATIVES = {"embed"}  # the negatives of a text are the other rows of its forward pass (tasks/embed/task.py)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("micro"))


def longer(spec: TaskSpec, record: Record, by: int) -> Record:
    """Return the record with `by` more words at the end of its first text, so that sequence lengths differ."""
    key = next(field.key for field in spec.inputs if field.holds == "text")
    text, out = record[key], record | {key: record[key] + " in" * by}
    if "words" in record:
        starts = [len(text) + 3 * n + 1 for n in range(by)]
        out |= {"words": [*record["words"], *([s, s + 2] for s in starts)], "tags": [*record["tags"], *["O"] * by]}
    return out


def parts(examples: list[Example], size: int) -> Iterator[list[Example]]:
    return (examples[n : n + size] for n in range(0, len(examples), size))


@pytest.mark.parametrize("task", [name for name in CASES if name not in IN_BATCH_NEGATIVES])
@pytest.mark.parametrize("size", [1, 4])
def test_gradient_equals_the_sum_over_micro_batches(task: str, size: int, bench: Bench) -> None:
    job = prepare(bench.recipe(task))
    objective, model, pad = (
        objective_of(job.task),
        job.model.eval(),
        job.task.tokenizer.pad,
    )  # eval mode: dropout is sampled per forward pass
    examples = [
        e for n, record in enumerate(job.sets.train) for e in job.task.encode(longer(job.task.spec, record, 2 * n))
    ]
    assert len(examples) > size and len({len(e) for e in examples}) > 1  # some sequences are padded
    results = []
    for groups in ([examples], list(parts(examples, size))):
        batches = [collate(group, pad) for group in groups]
        totals, counts = dict.fromkeys(objective.terms, 0.0), dict.fromkeys(objective.terms, 0)
        model.zero_grad()
        for batch in batches:
            terms = objective.loss(model, batch)
            assert {name: count for name, (_, count) in terms.items()} == objective.target_counts(batch)
            torch.stack([total for total, _ in terms.values()]).sum().backward()
            for name, (total, count) in terms.items():
                totals[name] += float(total.detach())
                counts[name] += count
        results.append((totals, counts, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}))
    (whole, one, gradient), (split, several, summed) = results
    assert one == several and split == pytest.approx(whole, rel=1e-5)
    assert set(gradient) == set(summed)
    for name, value in gradient.items():
        torch.testing.assert_close(summed[name], value, rtol=1e-4, atol=1e-5, msg=name)
