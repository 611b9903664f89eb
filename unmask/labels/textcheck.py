"""Checks of texts in labeled files: encoding errors, an index column used as text, length."""

import re
from collections.abc import Sequence
from typing import Any

from unmask.labels.fields import RecordSpec, inputs_of, rows_of
from unmask.labels.records import Finding, Record
from unmask.text.tokenizer import Tokenizer

LONG_SAMPLE = 2_000  # texts whose tokens are counted
# UTF-8 read as Windows-1252: "é" is "Ã©", a curly quote "â€™"; decoded wrongly twice, it is "Ã\x83Â©".
MOJIBAKE = re.compile(r"[ÃÂ][\x80-\xbf‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€[œ\x9d™˜“”\x93\x94¦]|ï¿½|ï»¿")


def check_texts(records: Sequence[Record], spec: RecordSpec) -> list[Finding]:
    """Find texts that were decoded with a wrong encoding, and text columns that contain only numbers."""
    findings: list[Finding] = []
    numbers = 0
    for record in records:
        texts = inputs_of(spec, record)
        for text in texts:
            if not text.isascii():
                if match := MOJIBAKE.search(text):
                    excerpt = text[max(0, match.start() - 12) : match.end() + 12]
                    message = f"text decoded with a wrong encoding: {excerpt!r}"
                    hint = "export the file again as UTF-8 (ftfy can repair such text)"
                    findings.append(Finding(record["location"], message, hint, error=False, kind="encoding"))
                elif "\ufffd" in text:
                    message = "the text contains U+FFFD, which replaces lost characters"
                    hint = "export the file again as UTF-8"
                    findings.append(Finding(record["location"], message, hint, error=False, kind="encoding"))
        numbers += all(parse_float(text) is not None for text in texts) and bool(texts)
    if records and len(records) > 1 and numbers == len(records):
        message = "every text is a number: this is probably an index or id column"
        hint = "choose another column: --column text=NAME"
        findings.append(Finding(records[0]["location"], message, hint, error=False, kind="text column"))
    return findings


def check_lengths(
    records: Sequence[Record], spec: RecordSpec, tokenizer: Tokenizer, length: int, action: str
) -> list[Finding]:
    """Report the fraction of records with more tokens than a sequence can have, and how they are handled."""
    sample = subsample_evenly(records, LONG_SAMPLE)
    if not sample:
        return []
    rows = [rows_of(spec, record) for record in sample]
    flat = [text for record_rows in rows for texts in record_rows for text in texts]
    counts = iter([len(encoding.ids) for encoding in tokenizer.encode_batch(flat)])
    sizes = [max((sum(next(counts) for _ in texts) for texts in record_rows), default=0) for record_rows in rows]
    pair = any(len(texts) > 1 for texts in rows[0])
    max_tokens = length - len(tokenizer.build_inputs_with_special_tokens([], [] if pair else None)[0])
    too_long = [n for n, size in enumerate(sizes) if size > max_tokens]
    if not too_long:
        return []
    of_sample = "" if len(sample) == len(records) else f" (of {len(sample):,} sampled)"
    message = f"{len(too_long) / len(sample):.1%} of the records{of_sample} have more than {max_tokens:,} tokens (the longest {max(sizes):,}): {action}"
    hint = "change this with --max-length and --overflow"
    return [Finding(sample[too_long[0]]["location"], message, hint, error=False, kind="length")]


def parse_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None


def subsample_evenly(items: Sequence[Any], limit: int) -> Sequence[Any]:
    """
    >>> subsample_evenly("abcdef", 3), subsample_evenly("ab", 3)
    (['a', 'c', 'e'], 'ab')
    """
    return items if len(items) <= limit else [items[n * len(items) // limit] for n in range(limit)]
