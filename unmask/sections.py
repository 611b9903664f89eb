"""Sections of a recipe: data, tokenizer, training, and the settings of each objective. `task_recipe.py` has those of tasks."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from unmask.registry import OPTIMIZERS
from unmask.settings import (
    BelowOne,
    Count,
    CountOrZero,
    Fraction,
    NotNegative,
    Positive,
    PositiveFraction,
    Section,
    setting,
)

# Commands that have a flag for a setting.
TOKENIZER = ("tokenizer train", "prepare", "pretrain")
TEXT = ("prepare", "pretrain")
TRAINING = ("pretrain", "finetune", "tune")


class DataRecipe(Section):
    """The raw text and how it is split into documents."""

    panel = "Data"

    corpus: list[str] = setting([], "Paths, folders, globs, '-' (standard input) or sample:NAME.")
    document_boundary: Literal["auto", "file", "paragraph", "line", "record"] = setting(
        "auto",
        "Unit that counts as one document; paragraphs are separated by empty lines.",
        TOKENIZER,
        shown="detected",
    )
    text_column: str = setting("text", "Text column of csv, tsv, jsonl and parquet files.", TOKENIZER)
    encoding: str = setting("auto", "Encoding of text files.", TOKENIZER, shown="UTF-8, else detected")
    language: Literal["auto", "en", "zh"] = setting(
        "auto", "Rules for sentence and word boundaries.", TEXT, shown="detected"
    )
    eval_fraction: BelowOne = setting(0.02, "Fraction of documents held out for validation.", TEXT)
    deduplicate: Literal["exact", "off"] = setting("exact", "exact: drop repeated documents.")
    minhash_sample: CountOrZero = setting(20_000, "Documents checked for near-duplicates with MinHash. 0: off.")
    workers: CountOrZero = setting(0, "Tokenization processes.", TEXT, shown="one per core")
    replay: list[str] = setting(
        [],
        "PATH:0.2 takes 20% of each batch from another corpus, to reduce forgetting. Repeatable.",
        ("pretrain",),
        metavar="PATH:FRACTION",
    )


VOCABULARY = 8192  # default size: good for megabytes of text and models of millions of parameters


class TokenizerRecipe(Section):
    """A tokenizer to train (`type`, …) or to load (`path`)."""

    panel = "Tokenizer"

    path: str = setting("", "Use this tokenizer instead of training one.", TEXT, keyword="tokenizer", metavar="FOLDER")
    type: Literal["auto", "wordpiece", "bpe", "unigram", "char", "byte"] = setting(
        "auto", "Tokenizer algorithm.", TOKENIZER, keyword="tokenizer_type", shown="depends on the architecture"
    )
    template: Literal["auto", "bert", "albert", "roberta", "t5", "gpt2"] = setting(
        "auto", "Names and layout of special tokens. auto: depends on the architecture."
    )
    vocab_size: CountOrZero = setting(
        0, "Vocabulary size.", TOKENIZER, shown=f"{VOCABULARY}, smaller for small corpora"
    )
    lowercase: bool | Literal["auto"] = setting(
        "auto",
        "Lowercase the text. auto: depends on the architecture.",
        TOKENIZER,
        flag="--cased",
        switch=(False, "Keep case and accents."),
    )
    strip_accents: Literal["auto", "yes", "no"] = setting(
        "auto", "Strip accents.", TOKENIZER, shown="yes if lowercased, as in BERT"
    )
    special_tokens: list[str] = setting(
        [], "Additional special token. Repeatable.", TOKENIZER, flag="--special-token", metavar="TOKEN"
    )
    sample_mb: Positive = setting(100, "Train the tokenizer on at most this many megabytes of text.")
    min_frequency: CountOrZero = setting(2, "Minimum frequency of a vocabulary entry.")
    num_added_tokens: CountOrZero = setting(
        0,
        "With --from: add this many new words of the corpus to the vocabulary.",
        ("pretrain",),
        keyword="extend_vocab",
    )

    def resolve_auto(self, defaults: dict[str, Any] | None = None) -> "TokenizerRecipe":
        """Replace `auto` by the defaults of a model family, and by BERT's where it has none.

        >>> TokenizerRecipe(lowercase=False).resolve_auto({"type": "unigram"}).type
        'unigram'
        """
        choices = {"type": "wordpiece", "template": "bert", "lowercase": True} | (defaults or {})
        return self.model_copy(update={name: value for name, value in choices.items() if getattr(self, name) == "auto"})


# ------------------------------------------------------------------------------------------------ objectives


class MLMRecipe(Section):
    """Masked language modeling, BERT 1810.04805 §3.1: which tokens are masked, and how."""

    panel = "Masking"

    mask_rate: str | float = setting(
        0.15, "Fraction of tokens to mask, or a schedule START:END.", ("pretrain", "show-batch")
    )
    mask: Fraction = setting(0.8, "Fraction of the selected tokens replaced by [MASK].")
    random: Fraction = setting(0.1, "Fraction of the selected tokens replaced by a random token.")
    keep: Fraction = setting(0.1, "Fraction of the selected tokens left unchanged.")
    sampling: Literal["exact", "bernoulli"] = setting(
        "exact",
        "exact: mask_rate × length tokens per sequence (stochastically rounded). bernoulli: each token independently.",
    )
    masking: Literal["dynamic", "static"] = setting(
        "dynamic", "dynamic: new masks every epoch. static: masks repeat every `num_static_masks` epochs."
    )
    num_static_masks: Count = setting(1, "Number of mask sets for static masking.")
    mask_unit: Literal["token", "word", "span", "ngram", "phrase"] = setting(
        "token", "Unit that is masked as a whole.", ("pretrain", "show-batch")
    )
    phrases: str = setting("", "For mask_unit phrase: file with one phrase per line (first column of a tsv).")

    @model_validator(mode="after")
    def _sums_to_one(self) -> "MLMRecipe":
        if abs(self.mask + self.random + self.keep - 1) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, got {self.mask + self.random + self.keep:g}")
        return self

    @field_validator("mask_rate")
    @classmethod
    def _check_rate(cls, value: str | float) -> str | float:
        try:
            ends = [float(x) for x in str(value).split(":")]
        except ValueError:
            ends = []
        if len(ends) not in (1, 2) or not all(0 < x < 1 for x in ends):
            raise ValueError("must be a fraction between 0 and 1, or START:END")
        return value


class HybridRecipe(Section):
    """GPT-BERT 2410.24159: masked and causal sequences in one batch."""

    clm_fraction: Fraction = setting(0.5, "Fraction of causal sequences; the others are masked.")


class RTDRecipe(Section):
    """Replaced-token detection, ELECTRA 2003.10555."""

    discriminator_weight: Positive = setting(50.0, "Weight of the discriminator's loss relative to the generator's.")
    mask: Fraction = setting(
        1.0, "Fraction of the selected tokens that are masked. 1 as in the paper; the authors' code uses 0.85."
    )


class SpanRecipe(Section):
    """Span corruption, T5 1910.10683 §3.1.4. The fraction of corrupted tokens is mlm.mask_rate."""

    mean_span_length: Annotated[float, Field(ge=1, allow_inf_nan=False)] = setting(3.0, "Mean span length in tokens.")


NOISE = ("infill", "permute", "delete", "rotate")


class DenoiseRecipe(Section):
    """Denoising, BART 1910.13461 §2.2."""

    noise: str = setting("infill+permute", "Noise functions joined by +: infill, permute, delete, rotate.")
    mask_rate: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = setting(
        0.3, "Fraction of tokens removed by infill or delete."
    )
    mean_span_length: Positive = setting(3.0, "Mean span length in words (Poisson; a span of length 0 inserts a mask).")

    @field_validator("noise")
    @classmethod
    def _check_noise(cls, value: str) -> str:
        names = value.split("+")
        if not set(names) <= set(NOISE) or len(set(names)) < len(names):
            raise ValueError(f"must be one or more of {', '.join(NOISE)}, joined by +")
        if {"infill", "delete"} <= set(names):
            raise ValueError(
                "must not contain both infill and delete: both remove tokens, and mask_rate applies to one of them"
            )
        return value


class DistillRecipe(Section):
    """DistilBERT 1910.01108; default weights as in its code."""

    teacher: str = setting(
        "", "Model folder or Hub model ID; any architecture with an MLM head and the same tokenizer."
    )
    temperature: Positive = setting(2.0, "Softmax temperature of teacher and student.")
    kl_weight: NotNegative = setting(5.0, "Weight of the KL divergence from the teacher's distribution.")
    cosine_weight: NotNegative = setting(
        1.0, "Weight of the cosine loss between hidden states; needs a student as wide as the teacher."
    )
    mlm_weight: NotNegative = setting(2.0, "Weight of the MLM loss.")
    student_init: Literal["teacher_layers", "random"] = setting(
        "teacher_layers", "teacher_layers: initialize a new student from evenly spaced layers of the teacher."
    )


class BiLMRecipe(Section):
    """Bidirectional language model, ELMo 1802.05365 §3.1."""

    target_fraction: PositiveFraction = setting(1.0, "Fraction of tokens in the loss, resampled every epoch.")


class CBOWRecipe(Section):
    """Continuous bag of words, word2vec 1301.3781 §3.1."""

    window: Count = setting(5, "Maximum context words on each side; sampled per token from 1 to this.")
    target_fraction: PositiveFraction = setting(1.0, "Fraction of tokens in the loss, resampled every epoch.")


# ------------------------------------------------------------------------------------------------ training

BUDGETS = ("minutes", "tokens", "steps", "epochs")


class TrainRecipe(Section):
    """Optimization, evaluation, checkpoints and hardware. Set one budget of four."""

    panel = "Optimization"

    minutes: Positive | None = setting(
        None,
        "Train for about this many minutes (converted to steps by a short benchmark). learn: minutes of all steps, 8 by default.",
        ("pretrain", "finetune", "learn"),
        panel="Budget (choose one)",
    )
    tokens: Positive | None = setting(None, "Train on this many tokens.", ("pretrain",), panel="Budget (choose one)")
    steps: Count | None = setting(
        None,
        "Train for this many steps.",
        TRAINING,
        panel="Budget (choose one)",
        shown="pretrain 1000 if no budget is given",
    )
    epochs: Positive | None = setting(
        None,
        "Train for this many epochs.",
        TRAINING,
        panel="Budget (choose one)",
        shown="finetune 3, or 5 after little pre-training, if no budget is given",
    )
    batch_size: Count = setting(
        32, "Examples per optimizer step.", TRAINING, shown="pretrain 32; finetune 16, or 8 below 2,000 records"
    )
    small_data_batch_size: CountOrZero = setting(
        0, "Batch size below 2,000 training records, unless batch_size is given. 0: batch_size."
    )
    micro_batch_size: CountOrZero = setting(
        0, "Examples per forward pass; a value below batch_size accumulates gradients. 0: batch_size."
    )
    max_length: str | int = setting(
        128, "Sequence length in tokens, or a schedule such as 128:0.9,512:0.1.", ("pretrain",)
    )
    document_attention: Literal["full", "same_document"] = setting(
        "full", "same_document: tokens attend only to tokens of their own document."
    )
    embedding_init: Literal["corpus_statistics", "random"] = setting(
        "corpus_statistics", "How to initialize the token embeddings of a new model."
    )
    optimizer: Annotated[str, AfterValidator(OPTIMIZERS.valid)] = setting(
        "muon", "muon (for matrices; AdamW for the rest) or adamw."
    )
    lr: NotNegative = setting(
        0.0,
        "Learning rate; with Muon, that of the parameters that AdamW updates.",
        TRAINING,
        shown="pretrain 5e-3 with muon, else 1e-3; finetune by hidden size, or 1e-3 after little pre-training",
    )
    muon_lr: Positive = setting(0.02, "Learning rate of Muon.")
    layerwise_lr_decay: Fraction = setting(
        1.0,
        "Factor by which the learning rate decreases from each layer to the one below it. 0: by the initial model.",
        shown="finetune 0.9, or 0.5 after little pre-training",
    )
    weight_decay: NotNegative = setting(0.01, "Decoupled weight decay.")
    betas: tuple[BelowOne, BelowOne] = setting((0.9, 0.98), "Betas of AdamW.")
    eps: Positive = setting(1e-8, "Epsilon of AdamW.")
    max_grad_norm: NotNegative = setting(1.0, "Gradient clipping. 0: off.")
    schedule: Literal["linear", "cosine", "wsd", "constant"] = setting(
        "linear", "Learning rate schedule. wsd: warmup, stable, decay over the last `wsd_decay_fraction`."
    )
    warmup: NotNegative = setting(0.06, "Warmup: a fraction of the steps, or a number of steps if at least 1.")
    wsd_decay_fraction: PositiveFraction = setting(0.2, "Fraction of the steps in which wsd decays.")
    num_evals: Count = setting(10, "Evaluations per run.")
    eval_steps: CountOrZero = setting(0, "Evaluate every N steps instead. 0: use num_evals.")
    max_eval_examples: Count | None = setting(
        512, "Maximum validation examples per evaluation. null: all; in fine-tuning, the task's own limit."
    )
    save_steps: Count = setting(200, "Steps between checkpoints.")
    save_minutes: Positive = setting(10.0, "Maximum minutes between checkpoints.")
    save_total_limit: Count = setting(1, "Latest checkpoints to keep, in addition to the best.")
    logging_steps: Count = setting(1, "Write to log.jsonl every N steps.")
    track: Literal["none", "tensorboard"] = setting(
        "none", "tensorboard: also write event files to the run's tensorboard/ folder."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = setting(
        "auto", "Device.", (*TRAINING, "learn"), panel="Hardware", shown="best available"
    )
    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto",
        "Compute precision. auto: bf16 on GPUs that support it; on CPUs, runs of about two minutes or more try both and use bf16 if it is faster.",
        (*TRAINING, "learn"),
        panel="Hardware",
    )
    gradient_checkpointing: bool = setting(
        False, "Recompute activations in the backward pass: less memory, about 33% more compute."
    )
    compile: Literal["auto", "on", "off"] = setting(
        "off", "torch.compile in pre-training. auto: only in runs long enough to benefit."
    )
    prefetch: CountOrZero = setting(4, "Batches prepared in advance.")
    threads: CountOrZero = setting(0, "CPU threads of torch. 0: torch's default.")

    @model_validator(mode="after")
    def _one_budget(self) -> "TrainRecipe":
        budgets = [n for n in BUDGETS if getattr(self, n) is not None]
        if len(budgets) > 1:
            raise ValueError(f"set one of {', '.join(BUDGETS)}, got {' and '.join(budgets)}")
        return self
