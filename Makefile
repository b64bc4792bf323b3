# make lab    sets everything up and opens JupyterLab on chapter 00
# make test   sets everything up and runs every check
# Each target installs what it needs into .venv, once. `make help` lists all of them.

VENV ?= .venv
PYTHON ?= python3
# Test processes. Each computes with one thread.
JOBS ?= 2
# More options for JupyterLab, for example LAB_ARGS="--no-browser --port 8899".
LAB_ARGS ?=

BIN := $(VENV)/bin
NODE_MODULES := tests/widgets/node_modules
unexport PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help lab test notebooks docs screenshots bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | \
	  awk -F '|' '{ printf "%-18s%s\n", $$1, $$2 }'

lab: $(VENV)/.lab ## JupyterLab on chapter 00, with the shipped notebooks trusted
	@$(BIN)/tinyvllm-lab lab $(LAB_ARGS)

test: $(VENV)/.test $(NODE_MODULES)/.installed ## lint, types, all tests, every notebook, the wheel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

notebooks: $(VENV)/.test ## run every notebook again and write its outputs into it
	$(BIN)/python -m tinyvllm_lab.course.notebooks write

docs: $(VENV)/.test ## the chapters as web pages, in docs-html/
	$(BIN)/python -m tinyvllm_lab.course.notebooks html docs-html

screenshots: $(VENV)/.test ## pictures of every panel, in assets/screenshots
	$(BIN)/pytest -q tests/browser/screenshots.py

bench: $(VENV)/.test ## every measurement in tests/bench
	@set -e; for bench in tests/bench/bench_*.py; do \
	  echo "== $$bench"; $(BIN)/python "$$bench"; done

gpu-check: $(VENV)/.test ## on an NVIDIA card: are the kernels right, and how fast are they
	$(BIN)/python tests/gpu/gpu_check.py

clean: ## remove what was built (not .venv)
	rm -rf build dist docs-html $(NODE_MODULES) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find tinyvllm_lab tests notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) \
	  -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tinyvllm-lab needs \
	Python 3.11 or newer. Name one: make lab PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# Stamps: the second time, nothing is installed unless these two files changed.
$(VENV)/.lab: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[lab]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[lab,scale,test]'
	@touch $@ $(VENV)/.lab

# The type checker for the panels' JavaScript. Without npm its test is named as not run.
$(NODE_MODULES)/.installed: tests/widgets/package-lock.json
	-@if command -v npm >/dev/null; then npm ci --silent --prefix tests/widgets && touch $@; fi
