"""Baseline of `tag`: the most frequent tag of each word in the training records; "O" for unknown words."""

from collections import Counter, defaultdict

from unmask.labels.formats import schemes
from unmask.tasks.tag.boundaries import span_borders
from unmask.tasks.tag.task import Tag
from unmask.tasks.task import Prediction, Records
from unmask.text.segmentation import split_words


def baseline(task: Tag, train: Records, dev: Records, eval_records: Records) -> dict[str, dict[str, float]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)  # word → its tags
    for record in train:
        words = record.get("words") or split_words(record["text"], span_borders(record))
        for (start, end), tag in zip(words, task.true_tags(record, words)):
            counts[record["text"][start:end]][tag] += 1
    default_tag = schemes.OUTSIDE
    if task.scheme == "none":
        default_tag = sum(counts.values(), Counter[str]()).most_common(1)[0][0]
    tag_of = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    predictions = []
    for record in eval_records:
        text, words = record["text"], record.get("words") or split_words(record["text"])
        tags = [tag_of.get(text[start:end], default_tag) for start, end in words]
        prediction: Prediction = {"tags": tags, "words": words}
        if task.scheme != "none":
            entities = schemes.tags_to_entities(tags)
            prediction["tags"] = schemes.entities_to_tags(entities, len(words), task.scheme)
            prediction["entities"] = [
                {"start": words[a][0], "end": words[b - 1][1], "label": label} for a, b, label in entities
            ]
        predictions.append(prediction)
    return {"most frequent tag": task.score(predictions, eval_records)}
