"""Data of `unmask learn`: labeled records, unlabeled texts, test records, and records that check the words of --words.

Nothing is trained on a text that it is tested on: of equal texts, those of test records are used first, then labeled ones.
The data are copied to the run folder, so that a resumed run does not depend on the original files.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command
from unmask.files import read_lines, write_json, write_lines
from unmask.labels.fields import RecordSpec, labels_of
from unmask.labels.record_sets import raise_errors, read_sets
from unmask.labels.records import Record
from unmask.metrics import format_count
from unmask.recipe import Recipe, TaskRecipe
from unmask.registry import TASKS
from unmask.text.corpus import Corpus

MAX_BYTES = 200 << 20  # of unlabeled text; of a larger corpus, a random sample of documents is used
DATA_FILE = "data.json"  # written last
USED_TRAIN = ("minutes", "device", "precision", "threads")  # settings of training that this command uses
SETS = ("labeled", "check", "test")


@dataclass
class LearnData:
    spec: RecordSpec
    labeled: list[Record] = field(default_factory=list)
    check: list[Record] = field(default_factory=list)
    test: list[Record] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # unlabeled
    settings: TaskRecipe | None = None  # with columns and kinds of labels detected
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, recipe: Recipe) -> "LearnData":
        """Read the files of a recipe. Rows without a label count as unlabeled texts."""
        settings = recipe.task
        first = next((name for name in ("train", "dev", "test") if getattr(settings, name)), "")
        if not first:  # words only
            data = cls(TASKS[default_task()].SPEC)
        else:  # the reader needs a training file
            spec, sets = read_sets(settings.model_copy(update={first: [], "train": getattr(settings, first)}))
            if first != "train":
                setattr(sets, first, sets.train)
            train = sets.train if first == "train" else []
            can_lack_label = {r["location"] for r in train} if TASKS[spec.name].SPEC.learner else set()
            without_label = {f.location for f in sets.findings if f.kind == "no label" and f.location in can_lack_label}
            raise_errors([f for f in sets.findings if f.kind != "no label" or f.location not in without_label])
            data = cls(spec, [], sets.dev, sets.test, settings=sets.settings)
            data.texts = [text_of(spec, r) for r in train if r["location"] in without_label]
            data.labeled = [r for r in train if r["location"] not in without_label]
            if data.texts:
                data.notes.append(f"{len(data.texts):,} rows have no label and are used as unlabeled text")
            data._drop_tested()
        if settings.train and not data.labeled and not settings.words:
            raise UserError("no row has a label", hint="label some rows: " + command("unmask label", settings.train[0]))
        data._read_texts(recipe)
        return data

    def _drop_tested(self) -> None:
        """Leave out labeled records whose inputs are also those of a test record, for tasks that are trained on the copied records."""
        if not TASKS[self.spec.name].SPEC.learner:
            return
        tested = {_key(text_of(self.spec, record)) for record in self.test}
        for name in ("labeled", "check"):
            records = getattr(self, name)
            kept = [record for record in records if _key(text_of(self.spec, record)) not in tested]
            if len(kept) < len(records):
                count = format_count(len(records) - len(kept), f"{name} record")
                self.notes.append(f"{count} also in the test file: left out")
                setattr(self, name, kept)

    def _read_texts(self, recipe: Recipe) -> None:
        """Add the unlabeled texts, without those that are labeled, tested on, or repeated."""
        seen = {_key(text_of(self.spec, record)) for name in SETS for record in getattr(self, name)}
        candidates = list(self.texts)
        if recipe.task.unlabeled:
            corpus = Corpus(recipe.task.unlabeled, recipe.data)
            candidates += _sample((document.text for document in corpus), corpus.bytes())
            if corpus.bytes() > MAX_BYTES:
                share = MAX_BYTES / corpus.bytes()
                self.notes.append(f"the text has {corpus.bytes() / 1e9:.1f} GB: {share:.1%} of its documents are used")
        unique = {_key(text): text for text in reversed(candidates)}  # the first of equal texts
        self.texts = [text for key, text in reversed(unique.items()) if key and key not in seen]
        if dropped := len(candidates) - len(self.texts):
            self.notes.append(f"{dropped:,} unlabeled texts are repeated, or also labeled or test records: left out")

    def counts(self) -> dict[str, int]:
        return {"labeled": len(self.labeled), "unlabeled": len(self.texts)} | {
            name: len(getattr(self, name)) for name in ("check", "test") if getattr(self, name)
        }

    def write(self, folder: Path) -> None:
        for name in SETS:
            write_lines(folder / f"{name}.jsonl", getattr(self, name))
        write_lines(folder / "unlabeled.jsonl", ({"text": text} for text in self.texts))
        labeled_texts = [text_of(self.spec, record) for record in self.labeled]
        write_lines(folder / "labeled_texts.jsonl", ({"text": text} for text in labeled_texts))
        settings = self.settings.model_dump(mode="json") if self.settings else None
        write_json(folder / DATA_FILE, {"task": self.spec.name, "settings": settings, "counts": self.counts()})

    @classmethod
    def load(cls, folder: Path, saved: dict[str, Any]) -> "LearnData":
        sets = {name: list(read_lines(folder / f"{name}.jsonl")) for name in SETS}
        texts = [row["text"] for row in read_lines(folder / "unlabeled.jsonl")]
        settings = TaskRecipe.model_validate(saved["settings"]) if saved["settings"] else None
        return cls(TASKS[saved["task"]].SPEC, **sets, texts=texts, settings=settings)


def _key(text: str) -> str:
    """Return a text with single spaces, to compare it with others: a csv cell and a line of a text file may differ in blanks."""
    return " ".join(text.split())


def default_task() -> str:
    """Return the task that can be learned from words alone."""
    return next(name for name in TASKS.builtin() if TASKS[name].SPEC.learner)


def text_of(spec: RecordSpec, record: Record) -> str:
    """Return the input texts of a record, one per line."""
    return "\n".join(_strings(record.get(f.key) for f in spec.inputs if f.holds in ("text", "texts")))


def _strings(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Sequence):  # the words of a sentence, or several texts
            yield " ".join(map(str, value))


def _sample(texts: Iterable[str], size: int) -> Iterator[str]:
    """Yield texts; if they have more than MAX_BYTES, a share of them chosen by their hash."""
    share = MAX_BYTES / max(size, 1)
    for text in texts:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        if share >= 1 or int.from_bytes(digest, "big") < share * 2**64:
            yield text


def check_words(words: Mapping[str, Sequence[str]], data: LearnData) -> None:
    """Raise UserError if --words and the labeled records have different labels."""
    known = {name: {x for r in getattr(data, name) for x in labels_of(data.spec, r)} for name in SETS}
    for name, found in known.items():
        if missing := sorted(found - words.keys()):
            raise UserError(
                f"--words has no words for the label {missing[0]!r} of the {name} records",
                expected=f"words for every label; given: {', '.join(words)}",
            )
    if unknown := sorted(words.keys() - known["labeled"] if known["labeled"] else ()):
        raise UserError(
            f"--words gives words for {unknown[0]!r}, but no record has this label",
            expected=f"one of {', '.join(sorted(known['labeled']))}",
        )


def check_settings(recipe: Recipe) -> None:
    """Raise UserError for a setting that this command does not use: it chooses the settings of training itself."""
    given, usual = recipe.model_dump(), Recipe.build(Recipe.load_builtin("finetune")).model_dump()
    for name in USED_TRAIN:
        given["train"][name] = usual["train"][name]
    for section in ("seed", "init_from", "data", "task"):
        given[section] = usual[section]
    for section, values in given.items():
        names = [n for n in values if values[n] != usual[section].get(n)] if isinstance(values, dict) else [""]
        if names and values != usual[section]:
            setting = f"{section}.{names[0]}".rstrip(".")
            raise UserError(
                f"unmask learn chooses {setting} itself",
                expected="--set with data.… or task.…, or " + ", ".join(f"train.{name}" for name in USED_TRAIN),
                hint="for other settings: unmask pretrain and unmask finetune, then unmask learn --from",
            )


def check_inputs(recipe: Recipe) -> None:
    """Raise UserError if there is nothing to learn from."""
    task = recipe.task
    if not task.train and not task.words:
        raise UserError(
            "no labels to learn from",
            expected='a labeled file, or words for every label: --words "positive: great excellent" --words "negative: bad awful"',
            hint="unmask learn reviews.csv --text more/",
        )
    if task.words and not task.unlabeled and not task.train:
        raise UserError("--words needs unlabeled text", hint="add --text FILE_OR_FOLDER")
    if task.dev and not task.words:
        raise UserError(
            "--check checks the words of --words; labels are checked by cross-validation",
            hint="give the file as a labeled file, or as --test",
        )
