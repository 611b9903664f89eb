"""Read files of words and tags, or of texts and spans, and check them."""

from collections.abc import Sequence
from pathlib import Path

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

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        if "tag" not in settings.columns and roles.detect_format(source):
            records = roles.read_roles(source, settings.columns, findings)
        elif source.file_format == "text":
            if not labeled and not conll.is_conll(source) and not settings.columns:  # plain text, one per line
                return [{"location": source.location(n), "text": text} for n, text in source.lines if text.strip()]
            records = conll.read_conll(source, settings.columns, findings, labeled)
        elif conll.is_headerless_conll(source):
            raise UserError(
                f"{source.path}: words and tags from the first line on, but a table needs a header with column names",
                hint=command("mv", Path(source.path), Path(source.path).with_suffix(".conll")),
            )
        else:
            records = entity_tables.read_table(source, settings.columns, settings.labels, findings, labeled)
        return check_tags(records, source.path, settings, findings)


def check_tags(records: list[Record], path: str, settings: TaskRecipe, findings: list[Finding]) -> list[Record]:
    """Repair or report invalid tag sequences, and add the spans of entities to records of words and tags."""
    tag_sequences = [r["tags"] for r in records if "tags" in r]
    scheme = schemes.detect_scheme(tag_sequences) if settings.tag.scheme != "none" else "none"
    if scheme == "none" and settings.tag.scheme != "auto":
        scheme = settings.tag.scheme
    if scheme == "IOB1":
        message = "the tags are IOB1 (B- only between two entities of one label); they are converted to BIO"
        findings.append(Finding(records[0]["location"], message, error=False, kind="scheme"))
    has_labels = any("-" in tag and schemes.parse_tag(tag)[0] for tags in tag_sequences for tag in tags)
    for record in records:
        lines = record.pop("lines", None)
        if "tags" in record and scheme != "none":
            tags, words = record["tags"], record["words"]
            locations = [f"{path}:{line}" for line in lines] if lines else [record["location"]] * len(tags)
            findings += _tag_findings(tags, locations, scheme, has_labels, settings.tag.invalid_tags == "error")
            entities = schemes.tags_to_entities(tags)
            record["tags"] = schemes.entities_to_tags(entities, len(tags), "BIO" if scheme == "IOB1" else scheme)
            record["spans"] = [
                {"start": words[a][0], "end": words[b - 1][1], "label": label} for a, b, label in entities
            ]
        elif "spans" in record and "words" not in record:
            borders = {border for word in split_words(record["text"]) for border in word}
            for span in record["spans"]:
                if not {span["start"], span["end"]} <= borders:
                    message = "the span {start}–{end} ({label}) starts or ends inside a word".format(**span)
                    hint = "for training, the word is split there; predictions consist of entire words"
                    findings.append(Finding(record["location"], message, hint, error=False, kind="cut word"))
    return records


def _tag_findings(
    tags: Sequence[str], locations: Sequence[str], scheme: str, has_labels: bool, invalid_is_error: bool
) -> list[Finding]:
    """Report tags that are not of the scheme, and tags that cannot follow the tag before them."""
    findings = []
    for tag, location in zip(tags, locations):
        if not schemes.parse_tag(tag)[0]:
            hint = "write O, or B- or I- and a label; for parts of speech: --set task.tag.scheme=none"
            findings.append(
                Finding(location, f"the tag {tag!r} does not belong to the scheme {scheme}", hint, kind="tag")
            )
        elif has_labels and tag != schemes.OUTSIDE and "-" not in tag:
            message = f"the tag {tag!r} has no label, but other tags have one"
            findings.append(Finding(location, message, f"write {tag}-LABEL, or O", kind="tag"))
    hint = "read as the start of an entity"
    if invalid_is_error:
        hint = "I- begins an entity in IOB1" if scheme == "IOB1" else "B- begins an entity"
    for n, message in schemes.invalid_tags(tags, scheme):
        finding = Finding(locations[n], f"{message} ({scheme})", hint, error=invalid_is_error, kind="order of tags")
        findings.append(finding)
    return findings
