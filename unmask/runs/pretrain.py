"""The kind of run that pre-trains: text → tokenizer → store → model."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from unmask.errors import UserError
from unmask.hub import without_revision
from unmask.model.config import with_tokenizer
from unmask.recipe import Recipe
from unmask.runs import setup as setups
from unmask.runs.budget import Workload, timing_recipe
from unmask.runs.context import Context
from unmask.runs.corpus_setup import prepare, prepare_replay
from unmask.runs.estimate import estimate, memory, vocabulary_rows
from unmask.runs.lifecycle import Job, ResumeState, TrainingKind
from unmask.runs.setup import TrainingSetup, set_up
from unmask.text.extend import describe
from unmask.text.store import TokenStore
from unmask.train import checkpoint, probe
from unmask.train.diagnostics import LossMonitor, corpus_warnings, plateau_advice
from unmask.train.embedding_init import init_embeddings_from_corpus
from unmask.train.eval_sets import evaluate_all
from unmask.train.fit import Evaluation, State
from unmask.train.run import Run
from unmask.train.schedule import Plan
from unmask.train.schedule import plan as make_plan
from unmask.train.trainer import Trainer

MIN_STEPS_TO_COMPILE = 2000  # steps that earn back the half minute which torch.compile takes


@dataclass
class PretrainJob(Job):
    setup: TrainingSetup = field(kw_only=True)

    def headline(self, run: Run) -> str:
        count = sum(p.numel() for p in self.setup.model.parameters())
        what = self.recipe.init_from or self.recipe.preset
        return f"{what}: {count:,} parameters, objective {self.recipe.objective}, {self.recipe.train.optimizer} → {run.path}"


class Pretrain(TrainingKind[PretrainJob]):
    name = folder = "pretrain"

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        recipe = with_tokenizer(recipe)
        setups.check(recipe)
        return recipe

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> PretrainJob:
        own, *others = ctx.on_main(lambda: self._stores(recipe, ctx, resume_state))
        store, mixed = TokenStore.open(own), setups.open_replay(recipe, others)
        weights = resume_state.weights if resume_state else None
        made = set_up(recipe, store, weights or recipe.init_from or None, mixed)
        name = Path(without_revision(recipe.init_from)).name if recipe.init_from else recipe.preset
        known: dict[str, Any] = {}
        if not resume_state and ctx.is_main:
            known = setups.data_json(store, mixed) | {"files": setups.checksums(made.recipe)}
        return PretrainJob(made.recipe, name, {"data.json": known}, setup=made)

    def _stores(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None) -> list[str]:
        if resume_state:
            return setups.locate_stores(resume_state.run, recipe, ctx.console)
        pairs = setups.pair_lengths(recipe)
        made = prepare(recipe, ctx.console, lengths=pairs)
        return [str(made.path), *prepare_replay(recipe, made.tokenizer, pairs, ctx.console)]

    def work(self, job: PretrainJob, ctx: Context, run: Run | None = None) -> Workload:
        setup, recipe = job.setup, job.recipe

        def trainer(plan: Plan) -> Trainer:
            return Trainer(setup.model, setup.objective, recipe.train, plan, recipe.seed, ctx.world)

        def evaluation(trainer: Trainer) -> Evaluation | None:
            tracks = [track for track in setup.heldout(trainer.plan) if track.batches]
            return Evaluation(lambda: evaluate_all(trainer, tracks)) if tracks else None

        def evaluation_seconds(trainer: Trainer) -> float:
            tracks, begun = setup.heldout(trainer.plan), time.perf_counter()
            trainer.evaluate(tracks[0].batches[:1], tracks[0].objective)
            return (time.perf_counter() - begun) * sum(len(track.batches) for track in tracks)

        def ready(plan: Plan, fresh: bool) -> Iterator[str]:
            yield from _compile(setup, plan)
            if fresh and not recipe.init_from:
                yield from _init_weights(setup, ctx)

        def health(plan: Plan) -> LossMonitor:
            advice = plateau_advice(recipe.train, setup.model.config, new=not recipe.init_from)
            return LossMonitor(setup.store.meta["unigram_entropy"], plan.steps, advice)

        return Workload(
            setup.model, setup.loader, recipe.train.max_length, setup.rows(), trainer, evaluation, evaluation_seconds,
            setup.save, ready=ready, notes=lambda plan: [_describe_plan(setup, plan), *setup.notes],
            warnings=corpus_warnings(setup.store.meta), health=health,
        )  # fmt: skip

    def finish(self, job: PretrainJob, run: Run, state: State, ctx: Context) -> dict[str, Any]:
        from unmask.inference.predictor import load  # after training: nothing of it is needed before

        checkpoint.write_folder(run.model, job.setup.save)
        predictor = load(run.model)
        fills = predictor.example_fills(job.setup.store, count=6) if "mlm" in predictor.heads else []
        run.write_json("fills.json", fills)
        reached = {"step": state.step, "evaluation": state.evaluation, "seconds": round(state.elapsed, 1)}
        return {"objective": job.recipe.objective, **reached, "model": str(run.model)}

    def estimate(self, recipe: Recipe, ctx: Context) -> dict[str, Any]:
        expected = estimate(recipe)
        recipe, text, ten = expected.recipe, expected.text, timing_recipe(expected.recipe)
        first = make_plan(ten, expected.rows())
        speed = probe.measure_step_time(ten, expected.config, expected.objective, expected.loader, first)
        model = probe.meta_model(expected.config, expected.objective)
        plan = make_plan(recipe, expected.rows(), speed.seconds)
        rows = recipe.train.micro_batch_size or recipe.train.batch_size
        batch = expected.loader.batch(0, rows, first.final_phase())
        return {
            "recipe": recipe.model_dump(mode="json"),
            "architecture": expected.config.architecture(list(model.heads)),
            "parameters": sum(x.numel() for x in model.parameters()),
            "memory_bytes": memory(model, recipe, vocabulary_rows(expected.objective, model, batch)),
            "extension": text.extension and text.extension | {"text": describe(text.extension)},
            "text_tokens": text.tokens,
            "text_tokens_from": text.source,
            "steps": plan.steps,
            "tokens": plan.tokens,
            "epochs": plan.tokens / max(1, text.tokens),
            "seconds_per_step": speed.seconds,
            "measured": {"basis": speed.basis, "rows": speed.rows, "layers": speed.layers},
            "minutes": sum(s.steps * speed.seconds[s.length] for s in plan.length_phases) / 60,
        }


def _describe_plan(setup: TrainingSetup, plan: Plan) -> str:
    times = plan.tokens / max(1, setup.store.meta["train"]["tokens"])
    return f"{plan.steps:,} steps of {plan.batch} rows = {plan.tokens:,} tokens ({times:.2f} × the text)"


def _init_weights(setup: TrainingSetup, ctx: Context) -> Iterator[str]:
    """Of a new model: those that the objective sets, else token vectors counted from the text."""
    said, recipe = setup.objective.init_model(setup.model), setup.recipe
    yield from said
    if not said and recipe.train.embedding_init == "corpus_statistics" and setup.model.config.encoder == "transformer":
        begun = time.perf_counter()
        if ctx.is_main:
            init_embeddings_from_corpus(setup.model, setup.store, recipe.seed)
        yield f"first token vectors counted from the text in {time.perf_counter() - begun:.0f} s"


def _compile(setup: TrainingSetup, plan: Plan) -> Iterator[str]:
    """torch.compile needs a C++ compiler on a CPU, and about half a minute: only for runs that earn it back."""
    mode = setup.recipe.train.compile
    able = torch.cuda.is_available() or shutil.which("c++") or shutil.which("g++")
    if not able and mode == "on":
        raise UserError(
            "train.compile=on, but no C++ compiler was found", hint="apt-get install g++, or train.compile=off"
        )
    if able and (mode == "on" or (mode == "auto" and plan.steps >= MIN_STEPS_TO_COMPILE)):
        yield "compiling the encoder (once, about half a minute) …"
        setup.model.encoder.compile()
