"""Tagging schemes: convert between entities and one tag per word. Pure functions over lists of tags.

| scheme | New York , Berlin Paris                        | note                                                |
|--------|------------------------------------------------|-----------------------------------------------------|
| BIO    | B-loc I-loc O B-loc B-loc                      | also called IOB2; an entity starts with B           |
| BIOES  | B-loc E-loc O S-loc S-loc                      | also marks the end, and entities of one word        |
| IO     | I-loc I-loc O I-loc I-loc                      | adjacent entities of one label are merged           |
| IOB1   | I-loc I-loc O I-loc B-loc                      | B only if IO would merge two; read, never written   |
| none   | PROPN PROPN PUNCT PROPN PROPN                  | no entities: part-of-speech tags                    |

BILOU and BMES are BIOES with other letters and are read as BIOES. `tags_to_entities` accepts invalid sequences, like conlleval and
the default mode of seqeval.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Entity = tuple[int, int, str]  # first word, last word + 1, label
OUTSIDE = "O"
NO_ENTITIES = "–"  # display of a text without entities
UNNAMED = "entity"  # label of the tags B and I without a label
# Letter in BIOES, BILOU or BMES → letter in BIOES.
LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}
SCHEME_LETTERS = {"BIO": "B I", "IOB1": "B I", "IO": "I", "BIOES": "B I E S"}  # letters of each scheme
_TAG = re.compile(r"([BIESLUMW])(?:-(.+))?", re.S)


def parse_tag(tag: str) -> tuple[str, str]:
    """Return (letter, label). The letter is "" if the tag does not belong to a scheme.

    >>> parse_tag("B-creative-work"), parse_tag("L-loc"), parse_tag("O"), parse_tag("NOUN")
    (('B', 'creative-work'), ('E', 'loc'), ('O', ''), ('', 'NOUN'))
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = _TAG.fullmatch(tag)
    return (LETTERS[match[1]], match[2] or UNNAMED) if match else ("", tag)


def detect_scheme(sequences: Iterable[Sequence[str]]) -> str:
    """Return the scheme of tag sequences: BIO, BIOES, IO, IOB1 or none.

    The majority decides: a few other tags are mistakes in a file, not another scheme.

    >>> detect_scheme([["I-loc", "I-loc", "O"], ["I-loc", "B-loc"]]), detect_scheme([["B-loc", "O"]]), detect_scheme([["DET", "NOUN"]])
    ('IOB1', 'BIO', 'none')
    >>> detect_scheme([["I-loc", "O"], ["B-loc", "O"], ["I-loc", "I-loc"]])
    'IOB1'
    """
    letters: Counter[str] = Counter()
    labeled = False  # whether a tag has a letter and a label
    first_letters: Counter[str] = (
        Counter()
    )  # first letters of entities, except those that directly follow an entity with the same label
    for tags in sequences:
        previous = (OUTSIDE, "")
        for tag in tags:
            parsed = parse_tag(tag)
            letters[parsed[0]] += 1
            labeled |= parsed[0] in LETTERS and "-" in tag
            if parsed[0] in ("B", "I") and (previous[0] not in ("B", "I") or previous[1] != parsed[1]):
                first_letters[parsed[0]] += 1
            previous = parsed
    entity_letters = {letter for letter in "BIES" if letters[letter]}
    if not entity_letters:
        return "BIO" if set(letters) == {OUTSIDE} else "none"
    other, tagged = letters[""], sum(letters[letter] for letter in "BIES")
    if other and not (labeled and letters[OUTSIDE] and other <= tagged):
        return "none"  # parts of speech
    if not labeled and (not letters[OUTSIDE] or entity_letters - {"B", "I"}):
        return "none"
    # In BIOES each entity ends with E or S; in BIO each starts with B.
    if 2 * (letters["E"] + letters["S"]) >= letters["B"] + letters["S"] + first_letters["I"]:
        return "BIOES"
    if not letters["B"]:
        return "IO"
    return "IOB1" if first_letters["I"] > first_letters["B"] else "BIO"


def continues_entity(previous: tuple[str, str], tag: tuple[str, str]) -> bool:
    """Return whether the word with the parsed tag `tag` belongs to the entity of the previous word."""
    return previous[0] in ("B", "I") and tag[0] in ("I", "E") and previous[1] == tag[1]


def tags_to_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of any tag sequence. A tag that cannot continue an entity starts a new one.

    >>> tags_to_entities(["I-loc", "I-loc", "I-per", "O", "B-per"])
    [(0, 2, 'loc'), (2, 3, 'per'), (4, 5, 'per')]
    """
    entities: list[Entity] = []
    previous = (OUTSIDE, "")
    for n, tag in enumerate(tags):
        parsed = parse_tag(tag)
        if continues_entity(previous, parsed):
            entities[-1] = (entities[-1][0], n + 1, parsed[1])
        elif parsed[0] in ("B", "I", "E", "S"):
            entities.append((n, n + 1, parsed[1]))
        previous = parsed
    return entities


def entities_to_tags(entities: Iterable[Entity], words: int, scheme: str) -> list[str]:
    """Return one tag per word, in the given scheme.

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
    """Return (word index, message) for every tag that is invalid at its position.

    >>> invalid_tags(["O", "I-loc", "B-loc", "I-per"], "BIO")
    [(1, 'I-loc after O'), (3, 'I-per after B-loc')]
    >>> invalid_tags(["B-loc", "O", "E-loc"], "BIOES")
    [(1, 'O after B-loc, which is not the end'), (2, 'E-loc after O')]
    >>> invalid_tags(["O", "B-loc", "B-loc", "S-loc"], "IOB1")
    [(1, 'B-loc after O'), (3, 'S-loc is not a tag of IOB1')]
    """
    if scheme not in SCHEME_LETTERS:
        return []
    letters, problems = SCHEME_LETTERS[scheme].split(), list[tuple[int, str]]()
    previous, previous_name = (OUTSIDE, ""), "the beginning"
    for n, tag in enumerate([*tags, OUTSIDE]):
        parsed = parse_tag(tag)
        name = tag if n < len(tags) else "the end"
        continues = continues_entity(previous, parsed)
        if scheme == "BIOES" and previous[0] in ("B", "I") and not continues:
            problems.append((min(n, len(tags) - 1), f"{name} after {previous_name}, which is not the end"))
        elif parsed[0] in ("B", "I", "E", "S") and parsed[0] not in letters:
            problems.append((n, f"{tag} is not a tag of {scheme}"))
        elif scheme == "IOB1":  # B- only separates two entities of one label
            if parsed[0] == "B" and not (previous[0] in ("B", "I") and previous[1] == parsed[1]):
                problems.append((n, f"{name} after {previous_name}"))
        elif scheme != "IO" and parsed[0] in ("I", "E") and not continues:
            problems.append((n, f"{name} after {previous_name}"))
        previous, previous_name = parsed, tag
    return problems


def tag_names(labels: Iterable[str], scheme: str) -> list[str]:
    """Return all tags of a scheme for these entity labels.

    >>> tag_names(["per", "loc"], "BIO")
    ['O', 'B-per', 'I-per', 'B-loc', 'I-loc']
    """
    return [OUTSIDE, *(f"{letter}-{label}" for label in labels for letter in SCHEME_LETTERS[scheme].split())]


def scheme_of(names: Sequence[str]) -> str:
    """Return the scheme of a model, given its label names.

    >>> scheme_of(["O", "B-PER", "I-PER"]), scheme_of(["O", "U-PER", "B-PER"]), scheme_of(["LABEL_0", "LABEL_1"])
    ('BIO', 'BIOES', 'none')
    """
    letters = {parse_tag(name)[0] for name in names}
    if "" in letters or letters <= {OUTSIDE} or not any("-" in name for name in names):
        return "none"
    return "BIOES" if letters & {"E", "S"} else "BIO" if "B" in letters else "IO"


def span_tuples(spans: Iterable[Mapping[str, Any]]) -> list[tuple[int, int, str]]:
    return [(span["start"], span["end"], span["label"]) for span in spans]


def format_spans(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """
    >>> format_spans("in New York", {(3, 11, "loc")})
    'New York (loc)'
    """
    return "; ".join(f"{text[a:b]} ({label})" for a, b, label in sorted(spans)) or NO_ENTITIES
