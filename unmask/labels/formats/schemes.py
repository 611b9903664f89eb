"""How tags mark entities, word by word, and back: pure functions over lists of tags.

| scheme | New York , Berlin Paris                        | said of it                                          |
|--------|------------------------------------------------|-----------------------------------------------------|
| BIO    | B-loc I-loc O B-loc B-loc                      | also called IOB2; an entity begins with B           |
| BIOES  | B-loc E-loc O S-loc S-loc                      | its end, and one of a single word, are marked too   |
| IO     | I-loc I-loc O I-loc I-loc                      | two entities side by side become one                |
| IOB1   | I-loc I-loc O I-loc B-loc                      | B only where IO would join two; read, never written |
| none   | PROPN PROPN PUNCT PROPN PROPN                  | a tag per word and no entities: parts of speech     |

BILOU and BMES are BIOES by other letters, and are read as it. `tags_to_entities` takes any sequence, valid or not, as conlleval and seqeval's
default do.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Entity = tuple[int, int, str]  # first word, the word after the last, label
OUTSIDE = "O"
NO_ENTITIES = "–"  # how a text without entities is shown
UNNAMED = "entity"  # the label of tags that are a bare B or I
LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}  # others' letters → ours
SCHEME_LETTERS = {"BIO": "B I", "IOB1": "B I", "IO": "I", "BIOES": "B I E S"}  # letters that a scheme has
_TAG = re.compile(r"([BIESLUMW])(?:-(.+))?", re.S)


def parse_tag(tag: str) -> tuple[str, str]:
    """Letter and label; the letter is empty when the tag is of no scheme.

    >>> parse_tag("B-creative-work"), parse_tag("L-loc"), parse_tag("O"), parse_tag("NOUN")
    (('B', 'creative-work'), ('E', 'loc'), ('O', ''), ('', 'NOUN'))
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = _TAG.fullmatch(tag)
    return (LETTERS[match[1]], match[2] or UNNAMED) if match else ("", tag)


def detect_scheme(sequences: Iterable[Sequence[str]]) -> str:
    """The scheme that sequences of tags are written in: BIO, BIOES, IO, IOB1 or none. The majority decides: a few stray tags
    are mistakes in a file, not another scheme.

    >>> detect_scheme([["I-loc", "I-loc", "O"], ["I-loc", "B-loc"]]), detect_scheme([["B-loc", "O"]]), detect_scheme([["DET", "NOUN"]])
    ('IOB1', 'BIO', 'none')
    >>> detect_scheme([["I-loc", "O"], ["B-loc", "O"], ["I-loc", "I-loc"]])
    'IOB1'
    """
    letters: Counter[str] = Counter()
    named = False  # whether a tag has letter and label
    begins: Counter[str] = Counter()  # letters of the first word of entities that do not touch one of the same label
    for tags in sequences:
        before = (OUTSIDE, "")
        for tag in tags:
            here = parse_tag(tag)
            letters[here[0]] += 1
            named |= here[0] in LETTERS and "-" in tag
            if here[0] in ("B", "I") and (before[0] not in ("B", "I") or before[1] != here[1]):
                begins[here[0]] += 1
            before = here
    marks = {letter for letter in "BIES" if letters[letter]}
    if not marks:
        return "BIO" if set(letters) == {OUTSIDE} else "none"
    other, tagged = letters[""], sum(letters[letter] for letter in "BIES")
    if other and not (named and letters[OUTSIDE] and other <= tagged):
        return "none"  # parts of speech
    if not named and (not letters[OUTSIDE] or marks - {"B", "I"}):
        return "none"
    # In BIOES each entity ends with E or S; in BIO each begins with B.
    if 2 * (letters["E"] + letters["S"]) >= letters["B"] + letters["S"] + begins["I"]:
        return "BIOES"
    if not letters["B"]:
        return "IO"
    return "IOB1" if begins["I"] > begins["B"] else "BIO"


def continues_entity(before: tuple[str, str], here: tuple[str, str]) -> bool:
    """Whether the word of tag `here` belongs to the entity of the word before it."""
    return before[0] in ("B", "I") and here[0] in ("I", "E") and before[1] == here[1]


def tags_to_entities(tags: Sequence[str]) -> list[Entity]:
    """Entities of any sequence: what cannot go on begins a new one.

    >>> tags_to_entities(["I-loc", "I-loc", "I-per", "O", "B-per"])
    [(0, 2, 'loc'), (2, 3, 'per'), (4, 5, 'per')]
    """
    found: list[Entity] = []
    before = (OUTSIDE, "")
    for n, tag in enumerate(tags):
        here = parse_tag(tag)
        if continues_entity(before, here):
            found[-1] = (found[-1][0], n + 1, here[1])
        elif here[0] in ("B", "I", "E", "S"):
            found.append((n, n + 1, here[1]))
        before = here
    return found


def entities_to_tags(entities: Iterable[Entity], words: int, scheme: str) -> list[str]:
    """Tags of a scheme.

    >>> entities_to_tags([(0, 2, "loc"), (3, 4, "loc")], 4, "BIOES")
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


def invalid_tags(tags: Sequence[str], scheme: str) -> list[tuple[int, str]]:
    """(word, what is wrong) for every tag that cannot stand where it does.

    >>> invalid_tags(["O", "I-loc", "B-loc", "I-per"], "BIO")
    [(1, 'I-loc after O'), (3, 'I-per after B-loc')]
    >>> invalid_tags(["B-loc", "O", "E-loc"], "BIOES")
    [(1, 'O after B-loc, which is not the end'), (2, 'E-loc after O')]
    >>> invalid_tags(["O", "B-loc", "B-loc", "S-loc"], "IOB1")
    [(1, 'B-loc after O'), (3, 'S-loc is not a tag of IOB1')]
    """
    if scheme not in SCHEME_LETTERS:
        return []
    known, found = SCHEME_LETTERS[scheme].split(), list[tuple[int, str]]()
    before, written = (OUTSIDE, ""), "the beginning"
    for n, tag in enumerate([*tags, OUTSIDE]):
        here = parse_tag(tag)
        name = tag if n < len(tags) else "the end"
        on = continues_entity(before, here)
        if scheme == "BIOES" and before[0] in ("B", "I") and not on:
            found.append((min(n, len(tags) - 1), f"{name} after {written}, which is not the end"))
        elif here[0] in ("B", "I", "E", "S") and here[0] not in known:
            found.append((n, f"{tag} is not a tag of {scheme}"))
        elif scheme == "IOB1":  # B- stands only between two entities of one label
            if here[0] == "B" and not (before[0] in ("B", "I") and before[1] == here[1]):
                found.append((n, f"{name} after {written}"))
        elif scheme != "IO" and here[0] in ("I", "E") and not on:
            found.append((n, f"{name} after {written}"))
        before, written = here, tag
    return found


def tag_names(labels: Iterable[str], scheme: str) -> list[str]:
    """Every tag that a model of these entities has to know.

    >>> tag_names(["per", "loc"], "BIO")
    ['O', 'B-per', 'I-per', 'B-loc', 'I-loc']
    """
    return [OUTSIDE, *(f"{letter}-{label}" for label in labels for letter in SCHEME_LETTERS[scheme].split())]


def scheme_of(names: Sequence[str]) -> str:
    """The scheme of a model whose labels have these names.

    >>> scheme_of(["O", "B-PER", "I-PER"]), scheme_of(["O", "U-PER", "B-PER"]), scheme_of(["LABEL_0", "LABEL_1"])
    ('BIO', 'BIOES', 'none')
    """
    letters = {parse_tag(name)[0] for name in names}
    if "" in letters or letters <= {OUTSIDE} or not any("-" in name for name in names):
        return "none"
    return "BIOES" if letters & {"E", "S"} else "BIO" if "B" in letters else "IO"


def span_tuples(listed: Iterable[Mapping[str, Any]]) -> list[tuple[int, int, str]]:
    return [(e["start"], e["end"], e["label"]) for e in listed]


def format_spans(text: str, found: Iterable[tuple[int, int, str]]) -> str:
    """
    >>> format_spans("in New York", {(3, 11, "loc")})
    'New York (loc)'
    """
    return "; ".join(f"{text[a:b]} ({label})" for a, b, label in sorted(found)) or NO_ENTITIES
