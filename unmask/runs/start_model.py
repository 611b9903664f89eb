"""Defaults of fine-tuning that depend on the initial model.

| initial model | epochs | lr | layerwise_lr_decay | pooling | token_mask_rate |
|---|---|---|---|---|---|
| pre-trained for long, such as a public model | 3 | 5e-5 · 768 / hidden size | 0.9 | the model's | 0 |
| pre-trained by `unmask pretrain` on few tokens | 5 | 1e-3 | 0.5 | mean | 0.2 |

A model after a few minutes of pre-training has little to forget: it needs a high learning rate, lower in the lower layers, whose token
embeddings are its best part. Its [CLS] vector has never been trained. docs/results.md has the comparison on seven data sets.
"""

from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.recipe import BUDGETS, Recipe, TaskRecipe, TrainRecipe
from unmask.tasks.spec import TaskSpec

MIN_TOKENS_PER_WEIGHT = 20  # weights of the layers, without embeddings; fewer tokens are little pre-training
SCRATCH_LR_FACTOR = 5  # times the default learning rate, for a model without pre-training, which has nothing to forget
LITTLE_LR, LITTLE_DECAY, LITTLE_MASK_RATE = 1e-3, 0.5, 0.2
LITTLE_EPOCHS = 5
LONG_DECAY, LONG_EPOCHS = 0.9, 3


def has_little_pretraining(config: ModelConfig) -> bool:
    """Whether the model was trained on few tokens. A public model does not say on how many, so it counts as well trained.

    >>> small = ModelConfig(layers=2, hidden=256, heads=4)
    >>> from dataclasses import replace
    >>> [has_little_pretraining(replace(small, pretrained_tokens=n)) for n in (0, 2_000_000, 2_000_000_000)]
    [False, True, False]
    """
    weights = 12 * config.layers * config.hidden**2
    return 0 < config.pretrained_tokens < MIN_TOKENS_PER_WEIGHT * weights


def default_learning_rate(hidden: int, frozen: bool) -> float:
    """Return a learning rate for a model of hidden size `hidden`: 5e-5 for BERT-base, more for smaller models.

    >>> f"{default_learning_rate(768, False):.0e} {default_learning_rate(384, False):.0e} {default_learning_rate(768, True):.0e}"
    '5e-05 1e-04 1e-03'
    """
    return 1e-3 if frozen else 5e-5 * 768 / hidden


def scratch_learning_rate(recipe: Recipe, hidden: int) -> float:
    """Return the learning rate of the same model without pre-training: the given one, or a higher default."""
    return recipe.task.baseline_lr or recipe.train.lr or SCRATCH_LR_FACTOR * default_learning_rate(hidden, frozen=False)


def resolve_train(train: TrainRecipe, config: ModelConfig, frozen: bool) -> TrainRecipe:
    """Return the settings with learning rate and layer-wise decay chosen, if they are 0, and with a number of epochs, if no budget is given."""
    little = has_little_pretraining(config) and not frozen
    lr = train.lr or (LITTLE_LR if little else default_learning_rate(config.hidden, frozen))
    decay = train.layerwise_lr_decay or (LITTLE_DECAY if little else LONG_DECAY)
    changes: dict[str, float] = {"lr": lr, "layerwise_lr_decay": decay}
    if all(getattr(train, budget) is None for budget in BUDGETS):
        changes["epochs"] = LITTLE_EPOCHS if little else LONG_EPOCHS
    return train.model_copy(update=changes)


def resolve_task(task: TaskRecipe, config: ModelConfig, spec: TaskSpec) -> TaskRecipe:
    """Return the settings with pooling and mask rate chosen, if they are auto and the model had little pre-training."""
    little = has_little_pretraining(config)
    changes: dict[str, object] = {}
    reads_rows = spec.training.pooling == "head"  # other tasks read tokens, and were not compared
    if task.token_mask_rate is None and little and reads_rows and spec.training.token_masking:
        changes["token_mask_rate"] = LITTLE_MASK_RATE
    can_pool = reads_rows and "pooling" in FAMILIES[config.family].fields
    if task.pooling == "auto" and little and can_pool:
        changes["pooling"] = "mean"
    return task.model_copy(update=changes)
