# Three commands do everything: `make train`, `make test` and `make test-all`. ARGS goes to ludus or to pytest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --constraint constraints.txt
INPUTS := pyproject.toml constraints.txt
WORKERS ?= 2
# A ROM nobody may ship, and an extra of 500 MB that is too slow without an accelerator.
UNSHIPPED := --skip Retro-SuperMarioBros --skip brax
# Drawn without a graphics card: minutes each. The third of them is trained.
DRAWN := --skip reacher_easy:ppo_pixels --skip walker_walk:ppo_pixels
# 200 million parameters: a test trains it in a smaller size.
GIANT := --skip ALE-Pong-v5:dreamer
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install train test test-all test-slow mutate lint format bench docs clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: $(VENV)/.core ## .venv with the package and what it needs

train: install ## train PPO on CartPole-v1 until it is solved
	$(BIN)/ludus train CartPole-v1:ppo -q $(ARGS)

test: lint ## lint, layer rules, types, then the tests
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

test-all: $(VENV)/.all lint ## the same with every suite installed, then every config for a moment
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)
	$(BIN)/ludus smoke env --jobs $(WORKERS) --strict $(UNSHIPPED) $(DRAWN)
	$(BIN)/ludus smoke train --jobs $(WORKERS) --strict --timesteps 256 $(UNSHIPPED) $(DRAWN) $(GIANT)

test-slow: $(VENV)/.dev ## the tests that learn something
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m slow $(ARGS)

mutate: $(VENV)/.dev ## break the code one line at a time: each change must make a test fail
	$(BIN)/python tests/mutations/run.py --jobs $(WORKERS) $(ARGS)

lint: $(VENV)/.dev ## ruff, import-linter, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

format: $(VENV)/.dev ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## speed against Stable-Baselines3 and a CleanRL-shaped loop
	$(PIP) --editable '.[bench]'
	$(BIN)/python benchmarks/ppo_cartpole.py $(ARGS)

docs: $(VENV)/.dev ## the documentation as a site in site/
	$(BIN)/python tools/docs_site.py site
	@echo "python3 -m http.server --directory site shows it"

clean: ## remove .venv and caches; runs stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: $(PYTHON): Ludus needs Python 3.11 or newer; make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(INPUTS) | $(BIN)/python
	@echo "installing ludus into $(VENV) (about a minute, once)"
	@$(PIP) --editable .
	@touch $@

# The dev install holds the core one, so `make train` after `make test` installs nothing.
$(VENV)/.dev: $(INPUTS) | $(BIN)/python
	@echo "installing ludus and its test tools into $(VENV) (about two minutes, once)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.core

# memory-gym pins an old Gymnasium and works with ours: it comes without its dependencies. The dev install is part of this one.
$(VENV)/.all: $(INPUTS) | $(BIN)/python
	@echo "installing ludus, every suite and the test tools into $(VENV) (about four minutes, once)"
	@$(PIP) --editable '.[all,dev,ray]'
	@$(PIP) --no-deps memory-gym
	@touch $@ $(VENV)/.dev $(VENV)/.core
