"""How tags mark entities, word by word, and back: pure functions over lists of tags.

| scheme | New York , Berlin Paris                        | said of it                                          |
|--------|------------------------------------------------|-----------------------------------------------------|
| BIO    | B-loc I-loc O B-loc B-loc                      | also called IOB2; an entity begins with B           |
| BIOES  | B-loc E-loc O S-loc S-loc                      | its end, and one of a single word, are marked too   |
| IO     | I-loc I-loc O I-loc I-loc                      | two entities side by side become one                |
| IOB1   | I-loc I-loc O I-loc B-loc                      | B only where IO would join two; read, never written |
| none   | PROPN PROPN PUNCT PROPN PROPN                  | a tag per word and no entities: parts of speech     |

BILOU and BMES are BIOES by other letters, and are read as it. `read` takes any sequence, valid or not, as conlleval and seqeval's
default do.
"""

import re
from collections.abc import Iterable, Sequence

Entity = tuple[int, int, str]  # first word, the word after the last, label
OUTSIDE = "O"
UNNAMED = "entity"  # the label of tags that are a bare B or I
LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}  # others' letters → ours
_TAG = re.compile(r"([BIESLUMW])(?:-(.+))?", re.S)


def parse(tag: str) -> tuple[str, str]:
    """Letter and label; the letter is empty when the tag is of no scheme.

    >>> parse("B-creative-work"), parse("L-loc"), parse("O"), parse("NOUN")
    (('B', 'creative-work'), ('E', 'loc'), ('O', ''), ('', 'NOUN'))
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = _TAG.fullmatch(tag)
    return (LETTERS[match[1]], match[2] or UNNAMED) if match else ("", tag)


def detect(sequences: Iterable[Sequence[str]]) -> str:
    """The scheme that sequences of tags are written in: BIO, BIOES, IO, IOB1 or none.

    >>> detect([["I-loc", "I-loc", "O"], ["I-loc", "B-loc"]]), detect([["B-loc", "O"]]), detect([["DET", "NOUN"]])
    ('IOB1', 'BIO', 'none')
    """
    letters: set[str] = set()
    named = False  # whether a tag has letter and label
    begins = {"B": False, "I": False}  # whether an entity that does not touch one of its kind begins with the letter
    for tags in sequences:
        before = (OUTSIDE, "")
        for tag in tags:
            here = parse(tag)
            letters.add(here[0])
            named |= here[0] in LETTERS and "-" in tag
            if here[0] in begins and (before[0] not in begins or before[1] != here[1]):
                begins[here[0]] = True
            before = here
    marks = letters & set("BIES")
    # A few strange tags among entities are mistakes; a file without "O" and without B-… is of parts of speech.
    if not marks:
        return "BIO" if letters == {OUTSIDE} else "none"
    if "" in letters and not (named and OUTSIDE in letters):
        return "none"
    if not named and (OUTSIDE not in letters or marks - {"B", "I"}):
        return "none"
    if letters & {"E", "S"}:
        return "BIOES"
    if "B" not in letters:
        return "IO"
    return "IOB1" if begins["I"] and not begins["B"] else "BIO"


def goes_on(before: tuple[str, str], here: tuple[str, str]) -> bool:
    """Whether the word of tag `here` belongs to the entity of the word before it."""
    return before[0] in ("B", "I") and here[0] in ("I", "E") and before[1] == here[1]


def read(tags: Sequence[str]) -> list[Entity]:
    """Entities of any sequence: what cannot go on begins a new one.

    >>> read(["I-loc", "I-loc", "I-per", "O", "B-per"])
    [(0, 2, 'loc'), (2, 3, 'per'), (4, 5, 'per')]
    """
    found: list[Entity] = []
    before = (OUTSIDE, "")
    for n, tag in enumerate(tags):
        here = parse(tag)
        if goes_on(before, here):
            found[-1] = (found[-1][0], n + 1, here[1])
        elif here[0] in ("B", "I", "E", "S"):
            found.append((n, n + 1, here[1]))
        before = here
    return found


def write(entities: Iterable[Entity], words: int, scheme: str) -> list[str]:
    """Tags of a scheme.

    >>> write([(0, 2, "loc"), (3, 4, "loc")], 4, "BIOES")
    ['B-loc', 'E-loc', 'O', 'S-loc']
    """
    tags = [OUTSIDE] * words
    for first, end, label in entities:
        letters = ["I"] * (end - first)
        if scheme != "IO":
            letters[0] = "B"
        if scheme == "BIOES":
            letters[-1] = "E" if end - first > 1 else "S"
        tags[first:end] = [f"{letter}-{label}" for letter in letters]
    return tags


def faults(tags: Sequence[str], scheme: str) -> list[tuple[int, str]]:
    """(word, what is wrong) for every tag that cannot stand where it does.

    >>> faults(["O", "I-loc", "B-loc", "I-per"], "BIO")
    [(1, 'I-loc after O'), (3, 'I-per after B-loc')]
    >>> faults(["B-loc", "O", "E-loc"], "BIOES")
    [(1, 'O after B-loc, which is not the end'), (2, 'E-loc after O')]
    """
    if scheme not in ("BIO", "BIOES"):
        return []
    found = []
    before, written = (OUTSIDE, ""), "the beginning"
    for n, tag in enumerate([*tags, OUTSIDE]):
        here = parse(tag)
        name = tag if n < len(tags) else "the end"
        on = goes_on(before, here)
        if scheme == "BIOES" and before[0] in ("B", "I") and not on:
            found.append((min(n, len(tags) - 1), f"{name} after {written}, which is not the end"))
        elif here[0] in ("I", "E") and not on:
            found.append((n, f"{name} after {written}"))
        before, written = here, tag
    return found


def tag_names(labels: Iterable[str], scheme: str) -> list[str]:
    """Every tag that a model of these entities has to know.

    >>> tag_names(["per", "loc"], "BIO")
    ['O', 'B-per', 'I-per', 'B-loc', 'I-loc']
    """
    letters = {"BIO": "BI", "BIOES": "BIES", "IO": "I"}[scheme]
    return [OUTSIDE, *(f"{letter}-{label}" for label in labels for letter in letters)]


def scheme_of(names: Sequence[str]) -> str:
    """The scheme of a model whose labels have these names.

    >>> scheme_of(["O", "B-PER", "I-PER"]), scheme_of(["O", "U-PER", "B-PER"]), scheme_of(["LABEL_0", "LABEL_1"])
    ('BIO', 'BIOES', 'none')
    """
    letters = {parse(name)[0] for name in names}
    if "" in letters or letters <= {OUTSIDE} or not any("-" in name for name in names):
        return "none"
    return "BIOES" if letters & {"E", "S"} else "BIO" if "B" in letters else "IO"
