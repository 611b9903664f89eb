"""What a person sees of a fine-tuned model's answers: one line per record, by what the answer holds."""

import json
from collections.abc import Sequence
from typing import Any

from unmask.console import visible, write
from unmask.inference.inputs import short

ASKED = ("text", "pair", "question", "query", "sentence")  # keys of a record that are shown before its answer


def line(answer: dict[str, Any]) -> str:
    """
    >>> line({"text": "what a film", "label": "pos", "probability": 0.93})
    'what a film  →  pos 93%'
    >>> line({"text": "so", "labels": ["a"], "scores": {"a": 0.7, "b": 0.1}}), line({"text": "so", "value": 2.5})
    ('so  →  a 70%', 'so  →  2.5')
    >>> line({"question": "who?", "answer": "Ann", "start": 7, "end": 10, "probability": 0.93})
    'who?  →  Ann 93% (characters 7–10)'
    >>> line({"text": "in Rome", "entities": [{"text": "Rome", "label": "loc", "score": 0.9, "start": 3, "end": 7}]})
    'in Rome  →  Rome = loc 90%'
    >>> line({"query": "who?", "passages": ["Ann", "Bo"], "scores": [0.1, 2.0], "order": [1, 0]})
    'who?  →  2.000 Bo; 0.100 Ann'
    """
    asked = " | ".join(short(str(answer[key]).replace("\n", " ")) for key in ASKED if key in answer)
    if "predicate" in answer:
        word = answer["predicate"]
        asked += f" [{word if isinstance(word, str) else answer['text'][slice(*word)]}]"
    return f"{asked}  →  {said(answer)}"


def said(answer: dict[str, Any]) -> str:
    if "label" in answer and "probability" in answer:
        return f"{answer['label']} {answer['probability']:.0%}"
    if "labels" in answer and "scores" in answer:
        return ", ".join(f"{name} {answer['scores'][name]:.0%}" for name in answer["labels"]) or "none"
    if isinstance(answer.get("value"), float):
        return f"{answer['value']:.6g}"
    if "answer" in answer and "probability" in answer:  # of a passage, with its place; or of several choices
        place = f" (characters {answer['start']}–{answer['end']})" if answer.get("start") is not None else ""
        return f"{answer['answer'] or 'no answer'} {answer['probability']:.0%}{place}"
    if isinstance(answer.get("output"), str):  # written text
        cut = f"  (the last {answer['cut']:,} tokens were not read)" if answer.get("cut") else ""
        return answer["output"] + ("" if answer.get("ended", True) else " …") + cut
    if "entities" in answer:
        return ", ".join(f"{e['text']} = {e['label']} {e['score']:.0%}" for e in answer["entities"]) or "no entity"
    if "tags" in answer and "words" in answer:
        words = [str(answer.get("text", ""))[start:end] for start, end in answer["words"]]
        return " ".join(f"{word}/{tag}" for word, tag in zip(words, answer["tags"]))
    if "vector" in answer:
        return " ".join(f"{x:.3f}" for x in answer["vector"][:6]) + f" … ({len(answer['vector'])} numbers)"
    if "similarity" in answer:
        return f"{answer['positive']}: {answer['similarity']:.3f}"
    if "order" in answer and "passages" in answer:
        return "; ".join(f"{answer['scores'][i]:.3f} {short(answer['passages'][i])}" for i in answer["order"])
    rest = {key: value for key, value in answer.items() if key not in (*ASKED, "at", "id")}
    return json.dumps(rest, ensure_ascii=False, default=str)


def print_answers(answers: Sequence[dict[str, Any]]) -> None:
    write(*(visible(line(answer), keep="\t") for answer in answers))  # a label with a line break is still one line
