# minipd, for systems with make. Without it: see "Without make" in README.md.
#   make lab PYTHON=python3.12        another interpreter
#   make lab PIP_ARGS="..."           more arguments for pip (an index of CPU wheels, a proxy, ...)

PYTHON ?= python3
PIP_ARGS ?=
FOLDER ?= my-course
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
comma := ,
# Modules are compiled when first imported: compiling all of them now takes a minute of CPU time.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt $(PIP_ARGS)

# $(1): what must be importable for an earlier install to be good enough when pip cannot work now.
define or_go_on
{ $(BIN)/python -c "import $(1)" 2>/dev/null \
  && echo "pip could not work (see above; no network?); going on with what is installed." \
  || { echo "minipd is not installed: see what pip says above, then try again."; exit 1; }; }
endef

# The browser test looks here for axe-core (`npm install --no-save axe-core`); without it, it skips.
export MINIPD_AXE ?= $(abspath $(wildcard node_modules/axe-core/axe.min.js))

# Tests share the machine: one thread each, so that parallel workers do not fight over cores.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help lab demo bench test quick check lint course install install-dev clean

help: ## show these targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' \
	  | awk -F '|' '{ printf "  make %-12s %s\n", $$1, $$2 }'

lab: $(RUN) ## install once, then open lesson 00 in JupyterLab (FOLDER=my-course)
	@$(BIN)/python -m minipd lab --folder "$(FOLDER)" $(ARGS)

demo: $(RUN) ## the main result: one document freezes every answer, two pools end that
	@$(BIN)/python -m minipd demo $(ARGS)

bench: $(RUN) ## measure against transformers on this machine (ARGS="--pin 0 --threads 1")
	@$(BIN)/python -m minipd bench --vs transformers $(ARGS)

test: $(DEV) ## everything that needs no GPU: in parallel first, pinned and timed tests last
	$(PYTEST) -n $(WORKERS) --dist loadgroup -m "not gpu and not serial"
	$(PYTEST) -m "serial and not gpu"

quick: $(DEV)
	$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m "not gpu and not serial and not slow and not browser"

lint: $(DEV) ## style, spelling, types, sizes, and notebooks up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/pyright
	$(BIN)/python scripts/count_lines.py
	$(BIN)/python -m course.build --check

check: lint quick ## what to run before a commit: lint and the quick tests, under 3 minutes

course: $(RUN) ## rebuild the notebooks from course/lessons
	$(BIN)/python -m course.build

install: $(RUN) ## only make .venv and install minipd into it

install-dev: $(DEV) ## the same with the tools for development

# A stamp is made by a successful install; offline, what an earlier one left is good enough.
$(RUN): pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	@echo "Installing minipd into $(VENV) (once; a few minutes) ..."
	@$(INSTALL) -e . || $(call or_go_on,minipd.cli$(comma) torch$(comma) transformers$(comma) jupyterlab)
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	@echo "Installing minipd and its development tools into $(VENV) ..."
	@$(INSTALL) -e ".[dev]" || $(call or_go_on,minipd.cli$(comma) torch$(comma) pytest$(comma) pyright$(comma) jupyterlab)
	@touch $@ $(RUN)

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "minipd needs Python 3.10 or newer; name one with PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

clean: ## remove .venv, caches and build outputs (never your course folder or your model cache)
	rm -rf $(VENV) build dist out node_modules .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
