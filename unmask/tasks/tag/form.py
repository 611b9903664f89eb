"""Files of words and tags, or of texts and spans, → records of `tag`, with every mistake found."""

from pathlib import Path
from typing import Any

from unmask.errors import UserError, command
from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field
from unmask.labels.formats import conll, entity_tables, roles, schemes
from unmask.labels.records import Finding, Record, Source
from unmask.recipe import TaskRecipe
from unmask.text.segmentation import split_words


class TagForm(DataFormat):
    fields = (
        Field("text", entity_tables.ROLES["text"]),
        Field("word", entity_tables.ROLES["word"], "texts", "other"),
        Field("tag", entity_tables.ROLES["tag"], "tags", "target", key="tags"),
        Field("spans", entity_tables.ROLES["spans"], "spans", "target"),
        Field("predicate", entity_tables.ROLES["predicate"], "place", required=False),
    )
    blocks = True

    def matches(self, source: Source) -> bool:
        if source.file_format == "table":
            return entity_tables.has_entities(source) or conll.is_headerless_conll(source)
        return bool(roles.detect_format(source)) or conll.is_conll(source)

    def read(
        self, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True
    ) -> list[Record]:
        if "tag" not in settings.columns and roles.detect_format(source):
            records = roles.read_roles(source, settings.columns, findings)
        elif source.file_format == "text":
            if not labelled and not conll.is_conll(source) and not settings.columns:  # a text on each line
                return [{"location": source.location(n), "text": text} for n, text in source.lines if text.strip()]
            records = conll.read_conll(source, settings.columns, findings, labelled)
        elif conll.is_headerless_conll(source):
            raise UserError(
                f"{source.path}: words and tags from the first line on, where a table has the names of its columns",
                hint=command("mv", Path(source.path), Path(source.path).with_suffix(".conll")),
            )
        else:
            records = entity_tables.read_table(source, settings.columns, settings.labels, findings, labelled)
        return checked(records, source.path, settings, findings)


def checked(records: list[Record], path: str, settings: TaskRecipe, findings: list[Finding]) -> list[Record]:
    """Tags that cannot stand where they do are repaired, or said to be errors; entities get their places in the text."""
    wanted, refuse = settings.tag.scheme, settings.tag.invalid_tags == "error"
    tagged = [r["tags"] for r in records if "tags" in r]
    scheme = schemes.detect_scheme(tagged) if wanted != "none" else "none"
    if scheme == "none" and wanted not in ("auto", "none"):
        scheme = wanted
    if scheme == "IOB1":
        what = "the tags are IOB1 (B- only between two entities of one label): read as BIO"
        findings.append(Finding(records[0]["location"], what, error=False, kind="scheme"))
    named = any("-" in tag and schemes.parse_tag(tag)[0] for tags in tagged for tag in tags)
    for record in records:
        lines = record.pop("lines", None)

        def at(n: int, lines: Any = lines, record: Record = record) -> str:
            return f"{path}:{lines[n]}" if lines else record["location"]

        if "tags" in record and scheme != "none":
            tags = record["tags"]
            for n, tag in enumerate(tags):
                if not schemes.parse_tag(tag)[0]:
                    hint = "O, or B- or I- and a label; parts of speech: --set task.tag.scheme=none"
                    findings.append(Finding(at(n), f"the tag {tag!r} is not of the scheme {scheme}", hint, kind="tag"))
                elif named and tag != schemes.OUTSIDE and "-" not in tag:
                    what = f"the tag {tag!r} has no label, as others have"
                    findings.append(Finding(at(n), what, f"{tag}-LABEL, or O", kind="tag"))
            for n, what in schemes.invalid_tags(tags, scheme):
                right = "I- begins an entity in IOB1" if scheme == "IOB1" else "B- begins an entity"
                hint = right if refuse else "read as the beginning of an entity"
                findings.append(Finding(at(n), f"{what} ({scheme})", hint, error=refuse, kind="order of tags"))
            found = schemes.tags_to_entities(tags)
            record["tags"] = schemes.entities_to_tags(found, len(tags), "BIO" if scheme == "IOB1" else scheme)
            words = record["words"]
            record["spans"] = [{"start": words[a][0], "end": words[b - 1][1], "label": label} for a, b, label in found]
        elif "spans" in record and "words" not in record:
            edges = {at for word in split_words(record["text"]) for at in word}
            for span in record["spans"]:
                if not {span["start"], span["end"]} <= edges:
                    what = "the span {start}–{end} ({label}) cuts a word".format(**span)
                    hint = "the word is cut there for training; answers are whole words"
                    findings.append(Finding(record["location"], what, hint, error=False, kind="cut word"))
    return records
