# The verbs of lhkit, the same at home and in CI. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.11 python3; do $$p -c '' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q --no-deps
PACKAGES := $(VENV)/.packages-installed
STAMP := $(VENV)/.lhkit-installed
FINETUNE := $(VENV)/.finetune-installed
PLATFORM := $(shell uname -sm)
LOCKS := requirements/lock.txt requirements/lock-gemma.txt
TORCH_INDEX := https://download.pytorch.org/whl/cpu
ARGS ?=

# Write .pyc files even if the shell sets PYTHONDONTWRITEBYTECODE: tests start many processes.
export PYTHONDONTWRITEBYTECODE :=

# `make try` uses its own small environment, .venv-light.
LIGHT := .venv-light
LIGHT_STAMP := $(LIGHT)/.lhkit-installed

.PHONY: help docs try venv eval chat serve test nightly versions lint style types collect browser node finetune format bench bench-model lock clean data-check

help:  ## list the verbs
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12
	@echo 'ARGS="…" goes to try, eval, chat, serve and lab.'

# Concurrency 1: with so few samples, prefix-cache misses cost more than parallelism saves.
try: $(LIGHT_STAMP)  ## a first scored table within minutes, without vLLM (0.4 GB of downloads, once)
	@$(LIGHT)/bin/python -m lhkit eval --runtime llama.cpp --limit 8 --name try --exit-zero $(ARGS)

venv: $(STAMP)  ## install everything, pinned, into .venv (once)
	@:

# --exit-zero: a violation is a result here, not an error of make. CI calls `lhkit eval` for its exit codes.
eval: venv  ## score the default model on the scenarios
	@$(BIN)/python -m lhkit eval --exit-zero $(ARGS)

chat: venv  ## talk to the default model in the terminal
	@$(BIN)/python -m lhkit chat $(ARGS)

serve: venv  ## keep the default model served, for eval and chat to find
	@$(BIN)/python -m lhkit serve $(ARGS)

lab: venv finetune  ## the notebooks in JupyterLab, with the default model served
	@$(BIN)/python notebooks/lab.py $(ARGS)

# More workers than cores, because many tests wait for processes. loadscope: one worker runs all model-server tests.
test:  ## all checks: lint, then every test
	@$(MAKE) --no-print-directory --jobs=2 finetune browser
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types style collect
	@$(BIN)/python -m pytest --numprocesses=3 --dist=loadscope --no-loadscope-reorder \
	  --hypothesis-profile=thorough -m 'not nightly'

nightly: venv browser node finetune  ## the slow checks: other Pythons, extras, servers from npm, a training, all data, the site, eight times the cases of a property, 20,000 a fuzz target
	@$(BIN)/python -m pytest -m nightly
	@$(BIN)/python -m pytest -m 'hypothesis and not nightly' --hypothesis-profile=night --ignore=tests/fuzz
	@$(BIN)/python -m pytest -m '' --hypothesis-profile=fuzz tests/fuzz
	@requirements/versions.sh

versions: venv  ## the tests without servers and browsers on each Python found here, and with the lowest versions of dependencies
	@requirements/versions.sh $(ARGS)

data-check: venv  ## check the scenarios of datasets/ac: lint, references, coverage
	@$(BIN)/python evals/check_dataset.py $(ARGS)
	@$(BIN)/python evals/ac_coverage.py --check

lint: style types  ## ruff, mypy, import contracts, declared dependencies

style: venv
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports
	@$(BIN)/deptry lhkit 2>&1

types: venv
	@$(BIN)/mypy

# Compiles the tests, beside mypy, which uses one core: else each worker would compile all of them at the same time.
collect: venv
	@found=$$($(BIN)/python -m pytest --collect-only -qq --numprocesses=0 -m '') || { echo "$$found"; exit 1; }

docs: venv  ## build the documentation site into site/
	@$(BIN)/python docs/build.py

format: venv  ## fix and format with ruff
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: venv  ## measure the overhead of lhkit, compared with bare libraries
	@for each in harness_cost growth large_run dispatch_latency start_up margins stopping wording results; do \
	  $(BIN)/python evals/benchmarks/$$each.py; done

bench-model: venv  ## measure throughput of the embedded Gemma, compared with vLLM's benchmark (half an hour)
	@for each in throughput main_job results; do $(BIN)/python evals/benchmarks/$$each.py; done

lock: venv finetune  ## pin the packages of .venv in requirements/
	@$(BIN)/python requirements/renew.py

clean:  ## remove caches of tools (not .venv, not the weights)
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	@find lhkit tests requirements -name __pycache__ -prune -exec rm -rf {} +

# Chromium and a Korean font, for the tests that open a real browser.
browser:
	@$(call apt_install,chromium-headless-shell chromium chromium-browser google-chrome,chromium-headless-shell fonts-nanum,tests open a real browser)

# Node and npm, for the MCP servers from npm that `make nightly` starts.
node:
	@$(call apt_install,npm,nodejs npm,tests start MCP servers from npm)

# TRL, for the notebook that trains.
finetune: venv $(FINETUNE)
	@:

# uv removes packages that are no longer pinned. pip installs torch, because it reads the index settings of this machine.
$(PACKAGES): $(LOCKS)
	$(call make_venv,$(VENV))
ifeq ($(PLATFORM),Linux x86_64)
	@echo 'venv: torch for CPUs, then lhkit, its tools and vLLM (0.7 GB, 2.7 GB on disk)'
	@grep '^torch==' requirements/lock-gemma.txt >$(VENV)/torch.txt
	@$(PIP) -r $(VENV)/torch.txt || { \
	  echo "venv: your index has no $$(cat $(VENV)/torch.txt), trying PyTorch's own"; \
	  $(PIP) -r $(VENV)/torch.txt --extra-index-url $(TORCH_INDEX); }
	@$(UV) pip sync --python $(BIN)/python $(LOCKS)
else
	@echo 'venv: no vLLM and no embedded Gemma on $(PLATFORM), use --base-url'
endif
	@touch $(PACKAGES)

$(STAMP): $(PACKAGES) pyproject.toml
	@echo 'venv: lhkit itself'
ifeq ($(PLATFORM),Linux x86_64)
	@$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
else
	@$(UV) pip install -q --python $(BIN)/python -e '.[local,notebook,eval,ray,mcp]' --group dev
endif
	@touch $(STAMP)

$(FINETUNE): requirements/lock-finetune.txt $(PACKAGES)
ifeq ($(PLATFORM),Linux x86_64)
	@echo 'finetune: TRL and its data sets (0.06 GB, 0.2 GB on disk)'
	@$(UV) pip install --python $(BIN)/python --no-deps -r requirements/lock-finetune.txt
endif
	@touch $(FINETUNE)

$(LIGHT_STAMP): requirements/lock-light.txt pyproject.toml
	$(call make_venv,$(LIGHT))
	@$(LIGHT)/bin/uv pip sync --python $(LIGHT)/bin/python requirements/lock-light.txt
	@$(LIGHT)/bin/uv pip install -q --python $(LIGHT)/bin/python --no-deps -e .
	@touch $(LIGHT_STAMP)

# A virtual environment with uv: $(call make_venv,FOLDER).
define make_venv
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'lhkit needs Python 3.11 or newer, and found: $(or $(PYTHON),none). Install one, or give' \
	       'make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@echo 'making $(1) with $(PYTHON)'
	@'$(PYTHON)' -m venv $(1)
	@$(1)/bin/python -m pip --disable-pip-version-check install -q "$$(grep '^uv==' requirements/lock.txt)"
endef

# Install Debian packages unless a command is there: $(call apt_install,COMMANDS,PACKAGES,REASON).
define apt_install
for name in $(1); do ! command -v $$name >/dev/null || exit 0; done; \
if ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ]; then \
  echo '$(3): install $(2) first, for example with sudo apt-get install $(2)' >&2; exit 1; \
fi; \
echo '$@: installing $(2)'; \
apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(2) >/dev/null
endef
