"""Reports of run directories written by the real writers, at every stage of a run."""

import base64
import io
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from safetensors.numpy import save_file

from unmask import report
from unmask.recipe import DataRecipe, Recipe, TokenizerRecipe
from unmask.report.curves import plot_pretraining
from unmask.report.view import jsonable
from unmask.text.corpus import Corpus
from unmask.text.prepare import prepare
from unmask.text.tokenizer import Tokenizer
from unmask.train.log import Log
from unmask.train.run import Run
from unmask.train.schedule import learning_rate, plan

STEPS = 40
ENTROPY = 6.4321
EVIL = '<script>alert(1)</script>"&`'
META = {
    "train": {"tokens": 5120, "documents": 19_600, "sentences": 777, "words": 4000, "unk_tokens": 128},
    "heldout": {"tokens": 512, "documents": 41, "sentences": 80, "words": 400, "unk_tokens": 0},
    "unigram_entropy": ENTROPY,
    "corpus": {
        "description": f"reviews.txt {EVIL}",
        "report": {"files": 1, "repaired_bytes": 14, "problems": [f"reviews.txt:7: byte {EVIL}"]},
    },
    "duplicates": {
        "documents": 20_096,
        "exact": 96,
        "near": {"documents": 5000, "near": 50, "share": 0.01, "heldout": 41, "leaked": 3},
    },
}


def make(path: Path, steps: int = STEPS, terms: tuple[str, ...] = ("mlm",), meta: dict | None = META, **data) -> Run:
    """Create a run that has completed `steps` of its 40 steps, with an evaluation every 10."""
    run = Run.create(path, "pretrain", "test")
    values = {
        "objective": "+".join(terms),
        "data": data or {"corpus": ["sample:sotu"]},
        "mlm": {"mask_rate": "0.3:0.15"},
    }
    recipe = Recipe.build({**values, "train": {"steps": STEPS, "batch_size": 2, "max_length": "32:0.5,64:0.5"}})
    recipe.write(run.path / "recipe.yaml")
    p = plan(recipe, {})
    run.write_json("plan.json", p.as_dict())
    run.write_json(
        "environment.json", {"cpu": "Test CPU 3000", "threads": 2, "cuda": None, "versions": {"torch": "2.13"}}
    )
    if meta is not None:
        run.write_json("data.json", meta)
    log = Log(run.log)
    for step in range(steps + 1):
        mlm = 5 + 4 * math.exp(-step / 10)
        losses = {t: mlm if t == "mlm" else 0.69 for t in terms}
        values = {"loss": sum(losses.values()), **losses}
        if step:
            step_config = p.step_config(step - 1)
            factor = learning_rate(step - 1, p.steps, recipe.train)
            values |= {
                "grad_norm": 1.5,
                "lr_factor": factor,
                "mask_rate": step_config.mask_rate,
                "length": step_config.length,
            }
            tokens = 2 * step_config.length
            log.write("train", step=step, **values, tokens=tokens, tokens_per_second=100.0 + step, elapsed=1.0 * step)
        if step % 10 == 0:
            accuracy = {f"{t}_accuracy": 0.01 * step for t in terms}
            log.write(
                "eval",
                step=step,
                elapsed=1.0 * step,
                **losses,
                **accuracy,
                loss=sum(losses.values()),
                perplexity=math.exp(mlm),
            )
    if steps == STEPS:
        log.write("end", step=steps, elapsed=240.0)
        run.model.mkdir()
        config = {"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "num_hidden_layers": 4}
        (run.model / "config.json").write_text(json.dumps(config | {"hidden_size": 8, "vocab_size": 100}))
        save_file({"a": np.zeros((100, 8), np.float32), "b": np.zeros(8, np.float32)}, run.model / "model.safetensors")
    log.close()
    return run


class Page(HTMLParser):
    """Collect tags and visible text of a page; fail on unbalanced tags."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in ("meta", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page(run: Run) -> Page:
    return Page(report.write(run).read_text("utf-8"))


def curves(run: Run) -> Path:
    report.write(run)
    return run.path / "curves.png"


def card_of(run: Run) -> str:
    report.write(run)
    return (run.model / "README.md").read_text("utf-8")


def ink(png: bytes) -> float:
    """Fraction of pixels that differ from the page's background color."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    return float((pixels != pixels[0, 0]).any(-1).mean())


# ------------------------------------------------------------------------------------------------ summary


def test_summary_of_a_finished_run(tmp_path):
    s = report.summary(make(tmp_path / "run"))
    assert s["state"] == "finished"
    assert s["steps"] == {"done": 40, "total": 40}
    assert s["tokens"] == 20 * 2 * 32 + 20 * 2 * 64
    assert s["seconds"] == 240.0
    assert s["tokens_per_second"] == 120.5  # the median of 101 … 140
    assert s["evaluation"]["first"]["loss"] == 9.0
    assert s["evaluation"]["best"] == s["evaluation"]["last"]
    assert s["evaluation"]["last"]["step"] == 40
    assert s["model"]["parameters"] == 808
    assert s["data"]["unk_share"] == 128 / 5120
    assert s["resume_command"] is None
    assert any("[UNK]" in w["text"] for w in s["warnings"])  # 2.5 %
    json.dumps(s, allow_nan=False)


def test_interrupted_run_shows_the_resume_command(tmp_path):
    run = make(tmp_path / "a run", steps=25)
    s = report.summary(run)
    assert (s["state"], s["steps"]["done"]) == ("interrupted", 25)
    assert s["resume_command"] == f"unmask pretrain --resume '{run.path}'"
    assert ("resume with", s["resume_command"]) in report.facts(s)
    assert s["evaluation"]["last"]["step"] == 20


def test_locked_run_is_reported_as_running(tmp_path):
    run = make(tmp_path / "run", steps=25)
    with run.lock():
        assert report.summary(run)["state"] == "running"
    assert report.summary(run)["state"] == "interrupted"
    with run.lock():  # reading the state did not keep the lock
        pass


def test_failed_run_shows_its_error_and_no_resume_command(tmp_path):
    run = make(tmp_path / "run", steps=5)
    log = Log(run.log)
    log.write("error", step=5, text="loss nan, gradient norm 3 at step 6")
    log.close()
    s = report.summary(run)
    assert (s["state"], s["resume_command"]) == ("failed", None)
    assert "loss nan, gradient norm 3 at step 6" in page(run).text


def test_best_is_the_lowest_loss_not_the_last(tmp_path):
    run = make(tmp_path / "run", steps=30)
    log = Log(run.log)
    log.write("eval", step=31, elapsed=31.0, loss=7.5, mlm=7.5, perplexity=1808.0)
    log.write("eval", step=32, elapsed=32.0, loss=float("nan"), mlm=float("nan"), perplexity=float("nan"))
    log.close()
    s = report.summary(run)
    assert (s["evaluation"]["best"]["step"], s["evaluation"]["last"]["step"]) == (30, 31)
    assert "(step 30)" in dict(report.facts(s))["best validation"]


def test_token_count_is_correct_if_only_every_tenth_step_is_logged(tmp_path):
    run = make(tmp_path / "run", steps=20)
    lines = [e for e in run.events() if e["event"] != "train" or e["step"] % 10 == 0]
    run.log.write_text("".join(json.dumps(e) + "\n" for e in lines))
    assert report.summary(run)["tokens"] == 20 * 2 * 32


def test_jsonable():
    assert jsonable({"a": [float("nan"), float("-inf"), 1.5, True, None, "x"]}) == {
        "a": [None, None, 1.5, True, None, "x"]
    }


def test_report_does_not_import_torch(tmp_path):
    run = make(tmp_path / "run")
    program = (
        "import sys; from unmask import report; from unmask.train.run import Run; run = Run(sys.argv[1]);"
        "report.summary(run); report.write(run);"
        "assert 'torch' not in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(run.path)], check=True)


def test_importing_the_package_loads_no_heavy_dependencies():
    program = "import sys, unmask.report; print([m for m in ('numpy', 'matplotlib', 'jinja2', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------- incomplete and damaged runs


def test_summary_before_the_first_step(tmp_path):
    run = Run.create(tmp_path / "run", "pretrain", "test")
    Recipe.build({}).write(run.path / "recipe.yaml")
    s = report.summary(run)
    assert (s["state"], s["steps"]["done"], s["tokens"], s["evaluation"]["last"]) == ("interrupted", 0, 0, None)
    assert Image.open(curves(run)).size[0] > 1000
    assert "No validation was done: the run has no validation text." in page(run).text
    run.model.mkdir()
    assert "No validation was done: the run has no validation text." in card_of(run)


def test_truncated_last_log_line_is_ignored(tmp_path):
    run = make(tmp_path / "run", steps=25)
    whole = run.log.read_bytes()
    for cut in (1, 2, 60):
        run.log.write_bytes(whole[:-cut])
        s = report.summary(run)
        assert s["steps"]["done"] == (25 if cut == 1 else 24)  # without its line break, a line is still complete
    assert s["state"] == "interrupted"
    report.write(run)


def test_nan_values_are_handled(tmp_path):
    run = make(tmp_path / "run", steps=10, meta=META | {"unigram_entropy": float("nan")})
    log = Log(run.log)
    nan = float("nan")
    log.write(
        "train", step=11, loss=nan, mlm=nan, grad_norm=float("inf"), tokens=64, tokens_per_second=nan, elapsed=nan
    )
    log.write("eval", step=11, elapsed=nan, loss=nan, mlm=nan, mlm_accuracy=nan, perplexity=float("inf"))
    log.close()
    json.dumps(report.summary(run), allow_nan=False)
    report.write(run)
    assert not re.search(r"\b(nan|inf)\b", page(run).text, re.I)


def test_damaged_files_are_reported_without_raising(tmp_path):
    run = make(tmp_path / "run")
    (run.path / "plan.json").write_text('{"length_phases": [')
    (run.path / "fills.json").write_text("[")
    (run.model / "model.safetensors").write_bytes(b"\xff" * 40)
    (run.path / "data.json").unlink()
    s = report.summary(run)
    assert "plan.json" in s["warnings"][0]["text"]
    assert s["steps"]["total"] == 40  # the recipe contains it too
    assert "parameters" not in s["model"]
    page(run)


# ------------------------------------------------------------------------------------------------ curves


def test_curves_are_drawn(tmp_path):
    run = make(tmp_path / "run", terms=("mlm", "nsp"))
    full = ink(curves(run).read_bytes())
    buffer = io.BytesIO()
    plot_pretraining([], None, None).savefig(buffer, format="png", dpi=120)
    assert full > 1.3 * ink(buffer.getvalue()) > 0  # more than empty axes with their titles
    assert [p.name for p in run.path.glob("*.partial")] == []


def test_curves_show_losses_entropy_and_schedules(tmp_path):
    run = make(tmp_path / "run", terms=("mlm", "nsp"))
    axes = {ax.get_title(loc="left"): ax for ax in plot_pretraining(run.events(), ENTROPY, STEPS).axes}
    loss = axes["Masked-token loss"]
    eval_line = next(line for line in loss.lines if "validation" in line.get_label())
    assert list(eval_line.get_xdata()) == [0, 10, 20, 30, 40]
    assert eval_line.get_ydata()[0] == 9.0  # the MLM term alone, not 9.69
    assert any(set(line.get_ydata()) == {ENTROPY} for line in loss.lines)
    assert any("6.43" in text.get_text() for text in loss.texts)
    assert loss.get_ylim()[0] < min(eval_line.get_ydata())
    assert loss.get_ylim()[1] > 9
    assert [t.get_text() for t in axes["Validation accuracy"].get_legend().get_texts()] == ["MLM", "NSP"]
    assert [t.get_text() for t in axes["Schedules"].texts] == ["32 tokens per row", "64"]
    assert len(axes["Gradient norm"].lines) == len(axes["Speed"].lines) == 2
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in axes.values())


def test_curves_of_long_runs_are_downsampled():
    events = [{"event": "train", "step": i, "loss": 1.0, "mlm": 1.0} for i in range(30_000)]
    axes = plot_pretraining(events, None, None).axes[0]
    assert all(len(line.get_xdata()) <= 2001 and line.get_xdata()[-1] == 29_999 for line in axes.lines)


# ------------------------------------------------------------------------------------------------ report


def test_report_contains_the_metrics(tmp_path):
    run = make(tmp_path / "run", terms=("mlm", "nsp"))
    fills = [{"text": "the [MASK] of 州", "fills": [{"token": "state", "probability": 0.375}]}]
    run.write_json("fills.json", fills)
    parsed = page(run)
    for text in (
        "finished",
        "40 of 40",
        "3,840 (0.75 epochs)",  # tokens
        "5.763",  # held-out loss at the end: 5 + 4 e⁻⁴ + 0.69
        "5.073",  # its MLM part
        "40.0%",
        "6.43",
        "19,600",
        "96 of 20,096 documents, dropped",
        "3 of 41 validation documents are near duplicates of a training document",
        "14 bytes that are invalid in the file's encoding",
        "the [MASK] of 州",
        "37.5%",
        "Test CPU 3000",
        "rate: 0.3:0.15",
        "unmask fill",
        "ModernBertForMaskedLM.from_pretrained",
    ):
        assert text in parsed.text, text
    assert "NSP accuracy" in parsed.text
    html = (run.path / "report.html").read_text("utf-8")
    assert "prefers-color-scheme: dark" in html
    assert "width: 37.5%" in html
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", html)  # nothing is fetched from the network
    for image in re.findall(r"svg\+xml;base64,([\w+/=]+)", html):
        assert b"<svg" in base64.b64decode(image)
    assert html.count("svg+xml;base64,") == 2


def test_user_text_is_escaped(tmp_path):
    run = make(tmp_path / "<b>run</b>" / EVIL.replace("/", ""), corpus=[EVIL])
    run.write_json("fills.json", [{"text": EVIL + "[MASK]", "fills": [{"token": EVIL, "probability": 0.5}]}])
    run.write_json("environment.json", {"cpu": EVIL, "threads": 2})
    log = Log(run.log)
    log.write("warning", step=3, text=EVIL)
    log.close()
    parsed = page(run)
    assert "script" not in parsed.tags
    assert parsed.tags.count("b") == 1  # the template's own
    assert parsed.text.count("alert(1)") >= 8  # shown as text wherever it occurs


def test_report_of_a_real_store(tmp_path):
    """The report reads the keys that the store writes to meta.json."""
    text = tmp_path / "films.txt"
    text.write_text("\n\n".join(f"the film number {i} was good. it was long." for i in range(200)) + "\n\n\x00bad")
    corpus = Corpus([str(text)], DataRecipe(document_boundary="paragraph", eval_fraction=0.1))
    tokenizer = Tokenizer.train((d.text for d in corpus), TokenizerRecipe(vocab_size=80))
    store = prepare(
        corpus, tokenizer, DataRecipe(document_boundary="paragraph", eval_fraction=0.1, workers=1), tmp_path / "store"
    )
    run = make(tmp_path / "run", meta=store.meta, corpus=[str(text)])
    s = report.summary(run)
    assert s["data"]["train"]["tokens"] == len(store.train.tokens)
    assert s["data"]["unigram_entropy"] == store.meta["unigram_entropy"] > 0
    lines = dict(report.facts(s))
    assert f"{len(store.heldout.documents) - 1} documents" in lines["validation text"]
    assert lines["duplicates"]
    assert "control characters removed" in page(run).text
    card = card_of(run)
    assert "`films.txt`" in card
    assert str(tmp_path) not in card


# ------------------------------------------------------------------------------------------------ card


def front_matter(card: str) -> dict:
    _, header, body = card.split("---\n", 2)
    assert body.lstrip().startswith("# ")
    return yaml.safe_load(header)


def test_card(tmp_path):
    run = make(tmp_path / "run", corpus=["/home/someone/secret/books/", "sample:sotu"], language="zh")
    card = card_of(run)
    assert front_matter(card) == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "language": "zh",
        "tags": ["unmask", "modernbert"],
    }
    for text in (
        "`books`, `sample:sotu`",
        "5,120 tokens, 19,600 documents",
        "Steps: 40 of 40",
        "Time: 4.0 minutes",
        "Test CPU 3000, 2 threads",
        "loss 5.073",
        "perplexity 159.7",
        "MLM accuracy 40.0%",
        "1.36 below the unigram entropy of the text (6.432)",
        "train.optimizer: `muon`",
        "mlm.mask_rate: `0.3:0.15`",
        "unmask fill .",
        "from transformers import AutoTokenizer, ModernBertForMaskedLM",
        "Bias was not evaluated.",
    ):
        assert text in card, text
    assert "someone" not in card
    assert str(tmp_path) not in card


def test_card_omits_an_unknown_language(tmp_path):
    run = make(tmp_path / "run")
    assert "language" not in front_matter(card_of(run))


def test_card_of_a_continued_model(tmp_path):
    run = make(tmp_path / "run")
    recipe = run.recipe()
    recipe.init_from = "/home/someone/models/first"
    recipe.write(run.path / "recipe.yaml")
    card = card_of(run)
    assert "Started from: `first`" in card
    assert "someone" not in card
    assert "modernbert-mini" not in card  # the recipe's preset, which was not used


@pytest.mark.parametrize(("preset", "heads"), [("bert-tiny", ("mlm", "pooler", "nsp")), ("modernbert-mini", ("mlm",))])
def test_code_in_the_card_runs(tmp_path, monkeypatch, capsys, preset, heads):
    """The code under "Use" in the card loads the model directory with its transformers class."""
    from unmask.model import config as shapes
    from unmask.model import hf
    from unmask.model.model import Model

    tokenizer = Tokenizer.train(["the weather is very good today."] * 5, TokenizerRecipe(vocab_size=40))
    run = make(tmp_path / "run")
    ids = {"vocab_size": tokenizer.size, "pad_id": tokenizer.pad, "cls_id": tokenizer.cls, "sep_id": tokenizer.sep}
    model = Model(shapes.preset(preset, layers=1, hidden=16, heads=2, intermediate=16, **ids), heads)
    model.init(0)
    architecture = hf.save(model, run.model, tokenizer)
    card = card_of(run)
    program = re.search(r"```python\n(.*?)```", card, re.S)[1]
    assert architecture in program
    monkeypatch.chdir(run.model)
    exec(program, {})
    assert len(eval(capsys.readouterr().out.strip().splitlines()[-1])) == 5
    assert report.summary(run)["model"]["parameters"] == sum(p.numel() for p in model.parameters())
