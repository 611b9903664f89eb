"""What a person sees of a fine-tuned model's answers: one line per record, by what the answer holds."""

import json
from collections.abc import Sequence
from typing import Any

from unmask.serve.texts import short

ASKED = ("text", "pair", "question", "query", "sentence")  # keys of a record that are shown before its answer


def line(answer: dict[str, Any]) -> str:
    """
    >>> line({"text": "what a film", "label": "pos", "probability": 0.93})
    'what a film  →  pos 93%'
    """
    asked = " | ".join(short(str(answer[key]).replace("\n", " ")) for key in ASKED if key in answer)
    return f"{asked}  →  {said(answer)}"


def said(answer: dict[str, Any]) -> str:
    if "label" in answer and "probability" in answer:
        return f"{answer['label']} {answer['probability']:.0%}"
    rest = {key: value for key, value in answer.items() if key not in (*ASKED, "at", "id")}
    return json.dumps(rest, ensure_ascii=False, default=str)


def print_answers(answers: Sequence[dict[str, Any]]) -> None:
    for answer in answers:
        print(line(answer))
