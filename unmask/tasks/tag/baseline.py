"""Most frequent tag: of each word the tag it has most often in the training records; of others "O"."""

from collections import Counter, defaultdict

from unmask.labels.formats import schemes
from unmask.labels.records import Record
from unmask.tasks.tag.task import Tag
from unmask.tasks.task import Prediction, Records
from unmask.text.segmentation import split_words


def baseline(task: Tag, train: Records, dev: Records, judged: Records) -> dict[str, dict[str, float]]:
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for record in train:
        at = record.get("words") or split_words(record["text"], _borders(record))
        for (start, end), name in zip(at, task.true_tags(record, at)):
            seen[record["text"][start:end]][name] += 1
    everything = sum(seen.values(), Counter[str]())
    usual = everything.most_common(1)[0][0] if task.scheme == "none" else schemes.OUTSIDE
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    predictions = []
    for record in judged:
        text, at = record["text"], record.get("words") or split_words(record["text"])
        tags = [best.get(text[start:end], usual) for start, end in at]
        prediction: Prediction = {"tags": tags, "words": at}
        if task.scheme != "none":
            found = schemes.tags_to_entities(tags)
            prediction["tags"] = schemes.entities_to_tags(found, len(at), task.scheme)
            prediction["entities"] = [{"start": at[a][0], "end": at[b - 1][1], "label": label} for a, b, label in found]
        predictions.append(prediction)
    return {"most frequent tag": task.score(predictions, judged)}


def _borders(record: Record) -> list[int]:
    return [at for span in record.get("spans", ()) for at in (span["start"], span["end"])]
