"""Compare the pre-training speed of BERT-mini with transformers' Trainer in one run, as a ratio.

    make bench        # or: python bench/pretrain_speed.py [--vocab 8192 30522] [--rounds 3] [--steps 12]

Both train the same shape (4 × 256) with AdamW in fp32 on rows of 128 random tokens, 32 per step, 15% masked, dropout 0.1. The two alternate,
because the machine's speed drifts. Each ratio compares adjacent runs, and the median over the rounds is printed. The Trainer uses its own data
collator and no gradient accumulation.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time

import numpy as np
import torch

from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.objective import build
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.runs.estimate import RandomRows
from unmask.seeds import generator
from unmask.text.tokenizer import Tokenizer
from unmask.train.distributed import World
from unmask.train.loader import Loader
from unmask.train.schedule import plan
from unmask.train.trainer import Trainer

ROWS, LENGTH = 32, 128


def ours(vocabulary: int, steps: int, tokenizer: Tokenizer, optimizer: str) -> float:
    """Return tokens per second."""
    recipe = Recipe.build(
        {"objective": "mlm", "train": {"steps": steps + 2, "batch_size": ROWS, "optimizer": optimizer}}
    )
    objective = build(recipe, tokenizer)
    model = Model(preset("bert-mini", vocab_size=vocabulary), objective.heads).init(0)
    p = plan(recipe, {LENGTH: 10**6})
    trainer = Trainer(model, objective, recipe.train, p, 0, World(0, 1))
    loader = Loader(RandomRows("stream", 10**6, tokenizer), objective, 0)
    start_time = 0.0
    for done in trainer.run(loader):
        if done.step == 1:  # two warm-up steps
            start_time = time.perf_counter()
    return ROWS * LENGTH * steps / (time.perf_counter() - start_time)


def theirs(vocabulary: int, steps: int, tokenizer: Tokenizer) -> float:
    import transformers
    from transformers import BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    transformers.logging.set_verbosity_error()
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    names = ("pad", "unk", "cls", "sep", "mask")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend, **{f"{n}_token": tokenizer.token(getattr(tokenizer, n)) for n in names}
    )
    ordinary = np.flatnonzero(~tokenizer.special)
    rows = [{"input_ids": generator("bench", i).choice(ordinary, LENGTH).tolist()} for i in range(ROWS * (steps + 2))]
    clock: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            clock.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, per_device_train_batch_size=ROWS, max_steps=steps + 2, report_to=[], save_strategy="no",
            logging_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=1e-3,
        )  # fmt: skip
        transformers.Trainer(
            BertForMaskedLM(config), arguments, DataCollatorForLanguageModeling(fast), rows, callbacks=[Clock()]
        ).train()
    return ROWS * LENGTH * steps / (clock[-1] - clock[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, nargs="*", default=[8192, 30522])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tokenizer = Tokenizer.train(["a"], TokenizerRecipe(type="byte"))
    results = []
    for vocabulary in options.vocab:
        rounds = []
        for _ in range(options.rounds):
            rounds.append(
                (ours(vocabulary, options.steps, tokenizer, "adamw"), theirs(vocabulary, options.steps, tokenizer))
            )
        results.append(
            {
                "vocabulary": vocabulary,
                "unmask": round(statistics.median(a for a, _ in rounds)),
                "transformers": round(statistics.median(b for _, b in rounds)),
                "ratio": round(statistics.median(a / b for a, b in rounds), 2),
                "ratios": [round(a / b, 2) for a, b in rounds],
                "threads": torch.get_num_threads(),
            }
        )
    if options.json:
        sys.stdout.write(json.dumps(results, indent=1) + "\n")
        return
    print("BERT-mini, 32 × 128, AdamW, fp32: tokens per second (median) and ratios of adjacent runs")
    for r in results:
        print(
            f"  vocabulary {r['vocabulary']:>6,}: unmask {r['unmask']:>6,}  transformers {r['transformers']:>6,}  "
            f"ratio {r['ratio']:.2f} ({', '.join(map(str, r['ratios']))})"
        )


if __name__ == "__main__":
    main()
