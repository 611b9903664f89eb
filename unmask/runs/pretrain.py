"""Pre-training runs: corpus → tokenizer → token store → model."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from unmask.errors import UserError
from unmask.hub import without_revision
from unmask.model.config import change, with_tokenizer
from unmask.recipe import Recipe, TrainRecipe
from unmask.runs import setup as pretrain_setup
from unmask.runs.budget import Workload, timing_recipe
from unmask.runs.context import Context
from unmask.runs.corpus_setup import prepare, prepare_replay
from unmask.runs.estimate import estimate, memory, vocabulary_rows
from unmask.runs.lifecycle import Job, ResumeState, TrainingKind
from unmask.runs.setup import TrainingSetup, set_up
from unmask.text.extend import describe
from unmask.text.store import TokenStore
from unmask.train import checkpoint, precision, probe
from unmask.train.diagnostics import LossMonitor, corpus_warnings, plateau_advice
from unmask.train.embedding_init import init_embeddings_from_corpus
from unmask.train.eval_sets import evaluate_all
from unmask.train.fit import Evaluation, State
from unmask.train.run import Run
from unmask.train.schedule import Plan
from unmask.train.schedule import plan as make_plan
from unmask.train.trainer import Trainer

MIN_STEPS_TO_COMPILE = 2000  # in shorter runs, torch.compile (about 30 s) does not pay off


@dataclass
class PretrainJob(Job):
    setup: TrainingSetup = field(kw_only=True)

    def headline(self, run: Run) -> str:
        count = sum(p.numel() for p in self.setup.model.parameters())
        name = self.recipe.init_from or self.recipe.preset
        return f"{name}: {count:,} parameters, objective {self.recipe.objective}, {self.recipe.train.optimizer} → {run.path}"


class Pretrain(TrainingKind[PretrainJob]):
    name = folder = "pretrain"

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        recipe = with_tokenizer(recipe)
        pretrain_setup.check(recipe)
        return recipe

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> PretrainJob:
        folder, *replay_folders = ctx.on_main(lambda: self._stores(recipe, ctx, resume_state))
        store, replay = TokenStore.open(folder), pretrain_setup.open_replay(recipe, replay_folders)
        weights = resume_state.weights if resume_state else None
        setup = set_up(recipe, store, weights or recipe.init_from or None, replay)
        name = Path(without_revision(recipe.init_from)).name if recipe.init_from else recipe.preset
        data: dict[str, Any] = {}
        if not resume_state and ctx.is_main:
            data = pretrain_setup.data_json(store, replay) | {"files": pretrain_setup.checksums(setup.recipe)}
        return PretrainJob(setup.recipe, name, {"data.json": data}, setup=setup)

    def _stores(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None) -> list[str]:
        if resume_state:
            return pretrain_setup.locate_stores(resume_state.run, recipe, ctx.console)
        lengths = pretrain_setup.pair_lengths(recipe)
        store = prepare(recipe, ctx.console, lengths=lengths)
        return [str(store.path), *prepare_replay(recipe, store.tokenizer, lengths, ctx.console)]

    def work(self, job: PretrainJob, ctx: Context, run: Run | None = None) -> Workload:
        setup, recipe = job.setup, job.recipe

        def build_trainer(plan: Plan, train: TrainRecipe) -> Trainer:
            return Trainer(setup.model, setup.objective, train, plan, recipe.seed, ctx.world)

        def build_evaluation(trainer: Trainer) -> Evaluation | None:
            eval_sets = [eval_set for eval_set in setup.eval_sets(trainer.plan) if eval_set.batches]
            return Evaluation(lambda: evaluate_all(trainer, eval_sets)) if eval_sets else None

        def time_evaluation(trainer: Trainer) -> float:
            """Evaluate one batch and extrapolate to all of them."""
            eval_sets, start_time = setup.eval_sets(trainer.plan), time.perf_counter()
            trainer.evaluate(eval_sets[0].batches[:1], eval_sets[0].objective)
            return (time.perf_counter() - start_time) * sum(len(eval_set.batches) for eval_set in eval_sets)

        def before_training(plan: Plan, is_new_run: bool) -> Iterator[str]:
            yield from _compile(setup, plan)
            if is_new_run and not recipe.init_from:
                yield from _init_weights(setup, ctx)

        def build_monitor(plan: Plan) -> LossMonitor:
            advice = plateau_advice(recipe.train, setup.model.config, is_new_model=not recipe.init_from)
            return LossMonitor(setup.store.meta["unigram_entropy"], plan.steps, advice)

        return Workload(
            setup.model, setup.loader, recipe.train.max_length, setup.rows(), build_trainer, build_evaluation, time_evaluation,
            setup.save, before_training=before_training, notes=lambda plan: [_describe_plan(setup, plan), *setup.notes],
            warnings=corpus_warnings(setup.store.meta), monitor=build_monitor,
        )  # fmt: skip

    def finish(self, job: PretrainJob, run: Run, state: State, ctx: Context) -> dict[str, Any]:
        from unmask.inference.predictor import load

        model = job.setup.model
        if (tokens := model.config.pretrained_tokens) or not job.recipe.init_from:
            model.config = change(model.config, pretrained_tokens=tokens + state.tokens)
        checkpoint.write_folder(run.model, job.setup.save)
        predictor = load(run.model)
        fills = predictor.example_fills(job.setup.store, count=6) if "mlm" in predictor.heads else []
        run.write_json("fills.json", fills)
        return {
            "objective": job.recipe.objective,
            "step": state.step,
            "evaluation": state.evaluation,
            "seconds": round(state.elapsed, 1),
            "model": str(run.model),
        }

    def estimate(self, recipe: Recipe, ctx: Context) -> dict[str, Any]:
        simulated = estimate(recipe)
        recipe, text, short_recipe = simulated.recipe, simulated.text, timing_recipe(simulated.recipe)
        short_plan = make_plan(short_recipe, simulated.rows())
        step_time = probe.measure_step_time(
            short_recipe, simulated.config, simulated.objective, simulated.loader, short_plan
        )
        model = probe.meta_model(simulated.config, simulated.objective)
        plan = make_plan(recipe, simulated.rows(), step_time.seconds)
        rows = recipe.train.micro_batch_size or recipe.train.batch_size
        batch = simulated.loader.batch(0, rows, short_plan.final_step_config())
        return {
            "recipe": recipe.model_dump(mode="json"),
            "architecture": simulated.config.architecture(list(model.heads)),
            "parameters": sum(x.numel() for x in model.parameters()),
            "memory_bytes": memory(model, recipe, vocabulary_rows(simulated.objective, model, batch)),
            "extension": text.extension | {"text": describe(text.extension)} if text.extension else None,
            "text_tokens": text.tokens,
            "text_tokens_from": text.source,
            "steps": plan.steps,
            "tokens": plan.tokens,
            "epochs": plan.tokens / max(1, text.tokens),
            "precision": precision.describe_plan(recipe, model, simulated.loader, plan),
            "seconds_per_step": step_time.seconds,
            "measured": {"basis": step_time.basis, "rows": step_time.rows, "layers": step_time.layers},
            "minutes": sum(s.steps * step_time.seconds[s.length] for s in plan.length_phases) / 60,
        }


def _describe_plan(setup: TrainingSetup, plan: Plan) -> str:
    epochs = plan.tokens / max(1, setup.store.meta["train"]["tokens"])
    return f"{plan.steps:,} steps of {plan.batch} rows = {plan.tokens:,} tokens ({epochs:.2f} epochs)"


def _init_weights(setup: TrainingSetup, ctx: Context) -> Iterator[str]:
    """Initialize a new model and yield messages. The embeddings come from corpus statistics, unless the objective sets the weights."""
    messages, recipe = setup.objective.init_model(setup.model), setup.recipe
    yield from messages
    from_corpus = recipe.train.embedding_init == "corpus_statistics" and setup.model.config.encoder == "transformer"
    if not messages and from_corpus:
        start_time = time.perf_counter()
        if ctx.is_main:
            init_embeddings_from_corpus(setup.model, setup.store, recipe.seed)
        yield f"initialized token embeddings from corpus statistics ({time.perf_counter() - start_time:.0f} s)"


def _compile(setup: TrainingSetup, plan: Plan) -> Iterator[str]:
    """Compile the encoder if the run is long enough. On a CPU, torch.compile needs a C++ compiler. Yield messages."""
    mode = setup.recipe.train.compile
    can_compile = torch.cuda.is_available() or shutil.which("c++") or shutil.which("g++")
    if not can_compile and mode == "on":
        raise UserError(
            "train.compile=on needs a C++ compiler, and none was found",
            hint="install one (apt-get install g++), or use --set train.compile=off",
        )
    if can_compile and (mode == "on" or (mode == "auto" and plan.steps >= MIN_STEPS_TO_COMPILE)):
        yield "compiling the encoder (once, about 30 seconds) …"
        setup.model.encoder.compile()
