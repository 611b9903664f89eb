"""Sections of a recipe: the text, the tokenizer, and what one objective or one task alone reads. `recipe.py` has the others."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from unmask.settings import (
    BelowOne,
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Section,
    Share,
    ShareAboveZero,
    setting,
)

# Verbs that have a flag for a setting.
TOKENIZER = ("tokenizer train", "prepare", "pretrain")
TEXT = ("prepare", "pretrain")


class DataRecipe(Section):
    """Which text, and how it is cut into documents."""

    panel = "Data"

    corpus: list[str] = setting([], "Paths, folders, globs, '-' (standard input) or sample:NAME.")
    documents: Literal["auto", "file", "block", "line", "record"] = setting(
        "auto", "One document per file, block (blank lines), line or record. Default: detected.", TOKENIZER
    )
    column: str = setting("text", "Column with the text (csv, tsv, jsonl, parquet).", TOKENIZER)
    encoding: str = setting("auto", "Of text files. Default: UTF-8, else detected.", TOKENIZER)
    language: Literal["auto", "en", "zh"] = setting(
        "auto", "en or zh: rules for sentences and words. Default: detected.", TEXT
    )
    heldout: BelowOne = setting(0.02, "Share of documents kept for evaluation.", TEXT)
    deduplicate: Literal["exact", "off"] = setting("exact", "exact = a document that occurs twice is read once.")
    near_duplicate_sample: CountOrZero = setting(20_000, "Documents looked at by MinHash; 0 turns it off.")
    workers: CountOrZero = setting(0, "Processes that tokenize. Default: one per core.", TEXT)
    mix: list[str] = setting(
        [], "PATH:0.2 = a fifth of the rows from another text, against forgetting; repeatable.", ("pretrain",)
    )


VOCABULARY = 8192  # entries, when no number is asked for: good for megabytes of text and models of millions of weights


class TokenizerRecipe(Section):
    """A tokenizer to train (`kind`, …) or to take over (`path`)."""

    panel = "Tokenizer"

    path: str = setting("", "Folder of a tokenizer to use instead of training one.", TEXT, keyword="tokenizer")
    kind: Literal["auto", "wordpiece", "bpe", "unigram", "char", "byte"] = setting(
        "auto", "wordpiece, bpe, unigram, char or byte. Default: the family's own.", TOKENIZER
    )
    template: Literal["auto", "bert", "albert", "roberta", "t5", "gpt2"] = setting(
        "auto", "What special tokens are called; auto = as in the family's own tokenizer."
    )
    vocab_size: CountOrZero = setting(
        0, f"Entries of the vocabulary. Default: {VOCABULARY}, or what the text supports.", TOKENIZER
    )
    lowercase: bool | Literal["auto"] = setting(
        "auto", "false = keep upper case.", TOKENIZER, flag="--cased", switch=(False, "Keep upper case and accents.")
    )
    strip_accents: Literal["auto", "yes", "no"] = setting(
        "auto", "yes or no. Default: as lowercase, which is BERT's rule.", TOKENIZER
    )
    special_tokens: list[str] = setting(
        [], "A special token of your own; repeat for several.", TOKENIZER, flag="--special"
    )
    sample_mb: Positive = setting(100, "Text that training looks at, at most.")
    min_frequency: CountOrZero = setting(2, "Occurrences that an entry needs; 0 = as 1.")
    extend: CountOrZero = setting(
        0, "With --from: words of the corpus to add to the model's tokenizer.", ("pretrain",), keyword="extend_vocab"
    )

    def settled(self, own: dict[str, Any] | None = None) -> "TokenizerRecipe":
        """`auto` replaced by a family's own choices, and by BERT's where it has none.

        >>> TokenizerRecipe(lowercase=False).settled({"kind": "unigram"}).kind
        'unigram'
        """
        choices = {"kind": "wordpiece", "template": "bert", "lowercase": True} | (own or {})
        return self.model_copy(update={name: value for name, value in choices.items() if getattr(self, name) == "auto"})


# ------------------------------------------------------------------------------------------------ objectives


class MLMRecipe(Section):
    """BERT 1810.04805 §3.1. How many tokens are chosen, what becomes of them, and how they are drawn."""

    panel = "Masking"

    rate: str | float = setting(
        0.15, "Share of tokens chosen, or START:END.", ("pretrain", "show-batch"), keyword="mask_rate"
    )
    mask: Share = setting(0.8, "Of the chosen: become [MASK] …")
    random: Share = setting(0.1, "… a random token, never a special one …")
    keep: Share = setting(0.1, "… or stay.")
    count: Literal["exact", "drawn"] = setting(
        "exact", "exact = rate × row (rounded up or down by lot); drawn = a coin per token."
    )
    masking: Literal["dynamic", "static"] = setting("dynamic", "static = the same masks every `copies` epochs.")
    copies: Count = setting(1, "Sets of masks that `masking: static` draws.")
    unit: Literal["token", "word", "span", "ngram", "named"] = setting(
        "token",
        "token, word, span, ngram or named. Default: token.",
        ("pretrain", "show-batch"),
        keyword="mask_unit",
    )
    phrases: str = setting("", "unit named: a file of phrases, one per line (of a tsv, the first column).")

    @model_validator(mode="after")
    def _sums_to_one(self) -> "MLMRecipe":
        if abs(self.mask + self.random + self.keep - 1) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, got {self.mask + self.random + self.keep:g}")
        return self

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: str | float) -> str | float:
        try:
            ends = [float(x) for x in str(value).split(":")]
        except ValueError:
            ends = []
        if len(ends) not in (1, 2) or not all(0 < x < 1 for x in ends):
            raise ValueError("a share between 0 and 1, or START:END")
        return value


class HybridRecipe(Section):
    """GPT-BERT 2410.24159: rows to fill in and rows to continue, in one batch."""

    clm: Share = setting(0.5, "Share of rows that are continued; the others are masked.")


class RTDRecipe(Section):
    """ELECTRA 2003.10555."""

    weight: Positive = setting(50.0, "Of the discriminator's loss beside the generator's.")
    mask: Share = setting(
        1.0, "Of the chosen tokens, as in the paper; the authors' code masks 0.85 and keeps the others."
    )


class SpanRecipe(Section):
    """T5 1910.10683 §3.1.4. The share of tokens is mlm.rate."""

    mean: Annotated[float, Field(ge=1, allow_inf_nan=False)] = setting(3.0, "Tokens of a span, on average.")


NOISE = ("infill", "permute", "delete", "rotate")


class DenoiseRecipe(Section):
    """BART 1910.13461 §2.2."""

    noise: str = setting("infill+permute", "Any of infill, permute, delete, rotate.")
    rate: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = setting(
        0.3, "Share of tokens that infill or delete removes."
    )
    mean: Positive = setting(3.0, "Words of a span, on average (Poisson: a span of none is a mask put between words).")

    @field_validator("noise")
    @classmethod
    def _noise(cls, value: str) -> str:
        names = value.split("+")
        if not set(names) <= set(NOISE) or len(set(names)) < len(names):
            raise ValueError(f"one or more of {', '.join(NOISE)}, joined by +")
        if {"infill", "delete"} <= set(names):
            raise ValueError("infill or delete: both remove tokens, and the rate is of one of them")
        return value


class DistillRecipe(Section):
    """DistilBERT 1910.01108; the weights are of its code."""

    teacher: str = setting("", "Folder or hub name: any family with an MLM head and the same tokenizer.")
    temperature: Positive = setting(2.0, "Divides the logits of both models before they are compared.")
    soft: NotNegative = setting(5.0, "Weight of the teacher's distribution …")
    cosine: NotNegative = setting(1.0, "… of the angle between hidden states; needs a student as wide as the teacher …")
    mlm: NotNegative = setting(2.0, "… and of the masked tokens themselves.")
    init: Literal["layers", "none"] = setting(
        "layers", "layers = a new student gets evenly spaced layers of the teacher."
    )


class BiLMRecipe(Section):
    """ELMo 1802.05365 §3.1."""

    share: ShareAboveZero = setting(1.0, "Of the tokens that the loss reads, others each epoch.")


class CBOWRecipe(Section):
    """word2vec 1301.3781 §3.1."""

    window: Count = setting(5, "Words on each side, at most: each token draws its own, from 1 to this.")
    share: ShareAboveZero = setting(1.0, "Of the tokens that the loss reads, others each epoch.")


# ------------------------------------------------------------------------------------------------ tasks


class ClassifyRecipe(Section):
    """BERT 1810.04805 §4.1: one text or a pair → a label, several labels, or a number."""

    target: Literal["auto", "one", "several", "number"] = setting("auto", "auto = as the label column looks.")
    balance: Literal["auto", "on", "off"] = setting(
        "auto", "on = rare labels weigh more; auto = when they are very rare."
    )
    separator: str = setting(
        "auto", 'Between several labels in one cell: "|"; none = a cell is one label; auto = as it looks.'
    )


class TagRecipe(Section):
    """BERT 1810.04805 §5.3: a label per word, or entities as spans."""

    scheme: Literal["auto", "BIO", "BIOES", "IO", "none"] = setting(
        "auto", "How tags mark entities; none = parts of speech."
    )
    faults: Literal["repair", "refuse"] = setting(
        "repair", "What to do with a tag that cannot follow the one before it."
    )


class AnswerRecipe(Section):
    """BERT 1810.04805 §4.2 and §4.3: the span of a passage that answers a question."""

    longest: CountOrZero = setting(
        0, "Tokens of an answer, at most; 0 = enough for every training answer, and at least 30."
    )
    stride: Count = setting(128, "Tokens by which windows of a long passage overlap.")
    none: Literal["auto", "yes", "no"] = setting(
        "auto", "Whether a question may have no answer; auto = as the file says."
    )


class GenerateRecipe(Section):
    """A text → a new one: T5 1910.10683, BART 1910.13461, GPT-2, or an encoder with a prefix mask (UniLM 1905.03197)."""

    prefix: str = setting("", 'Put before every text: "summarize: ".')
    longest: Count = setting(64, "Tokens of an answer.")
    beams: Count = setting(1, "Beams of the search; 1 = the likeliest token each time.")


class EmbedRecipe(Section):
    """Sentence vectors: Sentence-BERT 1908.10084, SimCSE 2104.08821, Matryoshka 2205.13147."""

    temperature: Positive = setting(0.05, "Of the softmax over a batch's other texts.")
    directions: Literal["one", "both"] = setting("one", "both = a positive has to find its text too.")
    sizes: list[Count] = setting([], "Beside the whole vector, its first so many numbers are trained to stand alone.")
    pooling: Literal["auto", "mean", "cls"] = setting("auto", "auto = as the model's folder says, else mean.")


class RankRecipe(Section):
    """Cross-encoder (1901.04085): query and passage in one row → how well it answers."""

    loss: Literal["list", "point"] = setting(
        "list", "list = relevant above the drawn ones; point = the relevance itself."
    )
    negatives: Count = setting(7, "Passages beside a relevant one, drawn anew each epoch.")
    pool: Count = setting(
        20, "Passages to put in order, where a file says only which are relevant: filled with drawn ones."
    )
