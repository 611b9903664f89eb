"""Distillation (DistilBERT 1910.01108 §3): a student is trained on a teacher's predictions at the masks.

| row                       | teacher and student see       | the losses read, at "cat"                                   |
|---------------------------|-------------------------------|-------------------------------------------------------------|
| [CLS] the cat sat . [SEP] | [CLS] the [MASK] sat . [SEP]  | `distill_soft`: the teacher's distribution; `distill_cosine`: the angle between the two hidden states; `mlm`: "cat" |

By default, distributions are compared at temperature 2 (KL × temperature²), and the weights are 5 : 1 : 2. All three losses read the
masked positions only, and the teacher's logits are computed only there. (DistilBERT's code compares at every token by default.) The
teacher is any model with an MLM head and the same tokenizer; it is neither trained nor saved.
"""

from pathlib import Path

import torch
import torch.nn.functional as F

from unmask.batch import Batch
from unmask.errors import UserError, quote
from unmask.hub import resolve
from unmask.model import hf
from unmask.model.config import ModelConfig
from unmask.model.model import Model
from unmask.model.weights import PATTERNS, model_files
from unmask.objectives.mlm import MLM
from unmask.objectives.objective import Terms, cross_entropy_terms
from unmask.recipe import Recipe
from unmask.text.tokenizer import Tokenizer


class Distill(MLM):
    name = "distill"
    terms: tuple[str, ...] = ("mlm", "distill_soft", "distill_cosine")

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        require_teacher(recipe)
        self.distill = recipe.distill
        weights = {
            "mlm": self.distill.mlm_weight,
            "distill_soft": self.distill.kl_weight,
            "distill_cosine": self.distill.cosine_weight,
        }
        self.weights = {name: weight for name, weight in weights.items() if weight}
        self.terms = tuple(self.weights)
        self.teacher = load_teacher(self.distill.teacher, tokenizer)

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        require_teacher(recipe)
        teacher = hf.config_of(recipe.distill.teacher)
        max_length = max(int(part.split(":")[0]) for part in str(recipe.train.max_length).split(","))
        if max_length > teacher.max_positions:
            raise UserError(
                f"--max-length is {max_length}, but the teacher {recipe.distill.teacher} has {teacher.max_positions} positions",
                hint=f"--max-length {teacher.max_positions}",
            )
        check_hidden_size(teacher, config, recipe.distill.cosine_weight)
        if not (recipe.distill.kl_weight or recipe.distill.cosine_weight):
            raise UserError(
                "distill.kl_weight and distill.cosine_weight are both 0, so the teacher is not used",
                hint="--objective mlm",
            )

    @classmethod
    def external_files(cls, recipe: Recipe) -> dict[str, list[Path]]:
        return super().external_files(recipe) | {
            "distill.teacher": model_files(resolve(recipe.distill.teacher, PATTERNS))
        }

    def init_model(self, model: Model) -> list[str]:
        if self.distill.student_init == "random":
            return []
        copied, total = init_from_teacher(model, self.teacher)
        return [f"initialized {copied} of {total} parameters of the student from the teacher"]

    def terms_from_hidden(self, model: Model, hidden: torch.Tensor, batch: Batch, accuracy: bool = False) -> Terms:
        positions, targets, size = batch.labels["mlm.positions"], batch.labels["mlm.targets"], self.tokenizer.size
        logits = model.logits("mlm", hidden)
        with torch.no_grad():
            teacher = self.teacher.to(batch.input_ids.device)
            teacher_hidden = teacher.encode(batch, positions)
            teacher_logits = teacher.logits("mlm", teacher_hidden)[:, :size].float() if self.distill.kl_weight else None
        out: Terms = cross_entropy_terms({"mlm": (logits, targets)}, accuracy) if self.distill.mlm_weight else {}
        if teacher_logits is not None:
            temperature = self.distill.temperature
            student_logp = (logits[:, :size].float() / temperature).log_softmax(-1)
            teacher_logp = (teacher_logits / temperature).log_softmax(-1)
            kl = F.kl_div(student_logp, teacher_logp, reduction="sum", log_target=True)
            out["distill_soft"] = (temperature**2 * kl, len(targets))
        if self.distill.cosine_weight:
            cosine = F.cosine_similarity(hidden.float(), teacher_hidden.float())
            out["distill_cosine"] = ((1 - cosine).sum(), len(targets))
        return out

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(self.terms, len(batch.labels["mlm.targets"]))


def check_hidden_size(teacher: ModelConfig, student: ModelConfig, cosine_weight: float) -> None:
    if cosine_weight and teacher.hidden != student.hidden:
        raise UserError(
            f"distill.cosine_weight needs equal hidden sizes, but the teacher has {teacher.hidden} and the student {student.hidden}",
            hint=f"--set distill.cosine_weight=0, or --set model.hidden={teacher.hidden}",
        )


def require_teacher(recipe: Recipe) -> None:
    if not recipe.distill.teacher:
        raise UserError(
            "objective distill needs a teacher",
            expected="the folder or the hub model ID of a masked language model",
            hint="--set distill.teacher=FOLDER",
        )


def load_teacher(path: str, tokenizer: Tokenizer) -> Model:
    loaded = hf.load(path, heads=("mlm",))
    if loaded.missing:
        raise UserError(f"the teacher {path} has no MLM head", expected="a folder of a masked language model")
    if Tokenizer.load(path).fingerprint() != tokenizer.fingerprint():
        raise UserError(
            f"the text was tokenized with another tokenizer than that of the teacher {path}",
            hint=f"--tokenizer {quote(Path(path))}",
        )
    return loaded.model.eval().requires_grad_(False)


@torch.no_grad()
def init_from_teacher(student: Model, teacher: Model) -> tuple[int, int]:
    """Copy the teacher's parameters of the same name and shape. Return the number of copied and of all parameters.

    Layer i of S gets the teacher's layer i × T // S: every second one if T = 12 and S = 6.
    """
    parameters, teacher_parameters, copied = dict(student.named_parameters()), dict(teacher.named_parameters()), 0
    for name, value in parameters.items():
        parts = name.split(".")
        if name.startswith("encoder.layers."):
            parts[2] = str(int(parts[2]) * teacher.config.layers // student.config.layers)
        source = teacher_parameters.get(".".join(parts))
        if source is not None and source.shape == value.shape:
            value.copy_(source)
            copied += 1
    return copied, len(parameters)
