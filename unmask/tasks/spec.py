"""TaskSpec: a frozen description of a task for the rest of the program.

Code outside `tasks/` never tests for a task's name: model cards, reports, the server, the studio, exports and baselines read the
spec. (`model/families/` does the same for model families.) The class attribute `SPEC` describes the task; `task.spec` is the same
value bound to one model (`bound`): its labels, the fields it was trained on, its pooling or generation settings.

A third-party task defines its own `SPEC`; see CONTRIBUTING.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from unmask.json_checks import Rule
from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field
from unmask.model.sentence import SentenceTransformerConfig
from unmask.settings import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How other programs use a model of the task: the hub, transformers, sentence-transformers, HTTP clients."""

    pipeline: str = ""  # the hub's pipeline tag; "" = the hub has none
    served_pipeline: str = ""  # the pipeline whose requests the server accepts at /models/NAME; "" = `pipeline`
    library: str = "transformers"
    auto_class: str = ""  # class of that library; "" = the class in config.json
    inputs: str = ""  # code that makes the inputs of that class; "" = apply the tokenizer to the input fields
    result: str = "logits"  # what the class returns, or the call that returns it

    def __post_init__(self) -> None:
        object.__setattr__(self, "served_pipeline", self.served_pipeline or self.pipeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a model is trained for the task, and which training options the task supports."""

    loss_weights: Mapping[str, float] = field(default_factory=dict)  # term → weight, 1 unless given
    equal_record_weights: bool = False  # each record has the same weight, however many windows it is split into
    in_batch_negatives: bool = False  # the loss compares the records of a batch with each other
    max_dev_records: int = 2000  # dev records predicted during training, unless train.max_eval_examples is set
    pooling: Literal["head", "task", "none"] = "head"  # which part computes the vector of a row, if any
    token_masking: bool = False  # whether `task.token_mask_rate` masks tokens during training
    sampling_setting: str = ""  # task setting: how many of an example's grouped rows are sampled in each epoch
    aux_mlm: bool = False  # rows are text, so tokens can be masked: supports --aux-mlm
    distillable: bool = True  # supports --teacher
    augmentable_fields: tuple[str, ...] = ()  # fields whose words may be replaced: --augment-mlm
    why_not_augmentable: str = "its spec does not list any augmentable fields"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The part of a spec that belongs to one model."""

    inputs: tuple[Field, ...]  # the input fields this model was trained on
    num_inputs: tuple[int, int | None]  # minimum and maximum number of input texts (None = no maximum)
    input_description: str  # the input texts in words, with an example
    labels: tuple[str, ...] = ()
    scale: tuple[float, float] = (0.0, 1.0)  # output "number": mean and standard deviation of the training targets
    text_pairs: bool = False  # a row holds two texts
    config_overrides: Mapping[str, Any] = field(default_factory=dict)  # config fields of the model that the task sets
    pooling: str = ""  # output "vector": mean or cls
    normalize: bool = True  # output "vector": scale to length 1
    generation: Mapping[str, Any] = field(default_factory=dict)  # output "text": generation_config.json
    source_prefix: str = ""  # output "text": prepended to every text
    sentence: SentenceTransformerConfig | None = None  # output "vector": the files of sentence-transformers
    training_note: str = ""  # one line about the loss, printed before training


Output = Literal["choice", "binary", "number", "span", "vector", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    name: str
    about: str  # one line: what goes in and what comes out
    data_format: DataFormat  # reads its files; defines the fields of their records
    heads: tuple[str, ...]
    terms: tuple[str, ...]  # names of the loss terms
    output: Output  # meaning of the head's values: one class of several, yes or no per label, a number, …
    output_per: Literal["row", "token"] = "row"  # whether the head computes a value per row or per token
    grouped: bool = False  # the rows of a record are compared with each other
    metrics: tuple[str, ...] = (
        "accuracy",
    )  # the first one whose `metric_fields` the records have selects the best model
    metric_fields: Mapping[str, str] = field(default_factory=dict)  # metric → field that records need for it
    required_state: Mapping[str, Rule] = field(default_factory=dict)  # required keys of the task state → valid values
    optional_state: Mapping[str, Rule] = field(default_factory=dict)  # optional keys of the task state → valid values
    group_by: str = ""  # records equal in this field stay on one side of the dev split; "" = in all inputs
    ranked_field: str = ""  # records with this field are ranked among all of them, so they are predicted together
    truncation_note: str = ""  # how texts longer than a row are truncated, for a task that cannot use windows
    view: str = "json"  # how a prediction is shown: labels, tags, span, choices, ranking, text, vector; json = a table
    settings: type[Section] | None = None  # `task.<name>` of a recipe, for a third-party task
    baseline: str = ""  # "module:function", imported when needed
    blend: str = ""  # "module:class" (tasks/blend.py): supports --blend
    learner: str = ""  # "module:class" (tasks/learner.py): `unmask learn` uses unlabeled texts and words
    extend_predictions: str = (
        ""  # "module:function": (task, model, predictions, records) → predictions for the final score
    )
    config_json: Mapping[str, Any] = field(default_factory=dict)  # keys in config.json that other programs read
    hints: Mapping[str, str] = field(default_factory=dict)  # kind of finding → how to fix it
    usage: Usage = Usage()
    training: Training = Training()
    bound: Bound | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.data_format.fields

    @property
    def inputs(self) -> tuple[Field, ...]:
        """The input fields: those that the model was trained on if the spec is bound, else all of them."""
        return self.bound.inputs if self.bound else tuple(f for f in self.fields if f.use == "input")

    @property
    def labels(self) -> tuple[str, ...]:
        return self.bound.labels if self.bound else ()

    @property
    def num_inputs(self) -> tuple[int, int | None]:
        """Minimum and maximum number of input texts (None = no maximum)."""
        return self.bound.num_inputs if self.bound else self.bind().num_inputs

    @property
    def input_description(self) -> str:
        """The input texts in words, with an example."""
        return self.bound.input_description if self.bound else self.bind().input_description

    @property
    def scale(self) -> tuple[float, float]:
        return self.bound.scale if self.bound else (0.0, 1.0)

    def bind(self, **values: Any) -> "TaskSpec":
        """Return the spec of one model. `inputs`, `num_inputs` and `input_description` default to those of the fields."""
        inputs = values.setdefault("inputs", self.inputs)
        required = sum(f.required for f in inputs)
        values.setdefault("num_inputs", (required, None if any(f.holds == "texts" for f in inputs) else len(inputs)))
        values.setdefault("input_description", " ".join(f.caption for f in inputs))
        return replace(self, bound=Bound(**values))

    def metric(self, records: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the metric that selects the best model on these records; higher is better."""
        available = {"", *(records[0] if records else self.metric_fields.values())}
        return next((name for name in self.metrics if self.metric_fields.get(name, "") in available), self.metrics[-1])

    def captions(self) -> list[str]:
        """Return placeholders of the inputs in order: ["QUESTION", "CONTEXT"], ["TEXT", "CHOICE", "CHOICE"]."""
        return [f.caption for f in self.inputs if f.required for _ in range(1 + (f.holds == "texts"))]
