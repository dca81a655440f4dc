# looprepro: every target works from a fresh clone; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SCALE ?= smoke
EXECUTOR ?= local
# For EXECUTOR=slurm: the cluster profile (slurm/*.yaml), and WAIT=1 to stay until everything is finished.
PROFILE ?= h100
WAIT ?=
# Where torch comes from, if not from the package index: https://download.pytorch.org/whl/cpu for a CPU-only build.
TORCH_INDEX_URL ?=
# One thread per process: tests run in parallel, and rounding depends on the number of threads.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup test test-slow test-slurm lint type bench tables figures readme reproduce-all clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.installed ## make .venv with the pinned dependencies and looprepro itself

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

test: setup ## run the test suite (under 10 minutes on two cores)
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow and not slurm"

test-slow: setup ## run the tests that take minutes
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "slow and not slurm"

test-slurm: setup ## start a private one-node SLURM, run the tests marked slurm, stop it (Debian packages, needs root to install)
	@command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null || { \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    slurmctld slurmd slurm-client munge >/dev/null; }
	$(BIN)/python -m pytest -p no:xdist -m "slurm and not slow" tests/slurm

lint: setup ## ruff and the import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

type: setup ## mypy
	$(BIN)/mypy
	$(BIN)/mypy docs/*.py

# A figure below its bound does not hide the others: everything is measured, and the exit code says 1.
bench: setup ## print the performance ratios (an idle machine, please)
	@status=0; \
	for script in depth_loop "charts --record benchmarks/results/charts.json" geometry orchestrator \
	  train_step matmul_fraction gpu_check stacking; do \
	  set -- $$script; name=$$1; shift; \
	  echo "== $$name"; \
	  $(BIN)/python benchmarks/$$name.py "$$@" || { echo "$$name: exit code $$?"; status=1; }; \
	done; \
	exit $$status

# results/SCALE from what runs/ has and from what was collected before: in a fresh clone from the committed parquet files alone.
# $(1): options of collect. A part that fails does not hide the others; `report` draws the figures too.
define REGENERATE
$(BIN)/looprepro collect --scale $(SCALE) $(1) || status=1; \
	if [ ! -e results/$(SCALE)/results.parquet ]; then exit 1; fi; \
	$(BIN)/looprepro claims --scale $(SCALE) >/dev/null || status=1; \
	$(BIN)/looprepro report --scale $(SCALE) || status=1
endef

# Missing numbers are named, and are no failure here: a study is published in parts. Exit code 1: something was not written.
tables: setup ## regenerate results/SCALE without running a cell: tables, claims.json, figures and their csv, report.html
	@status=0; $(call REGENERATE,--partial); exit $$status

figures: setup ## draw every figure of SCALE that there are data for
	$(BIN)/looprepro plot --scale $(SCALE)

readme: setup ## fill the generated blocks of README.md and docs/ from results/
	$(BIN)/python docs/fill.py

# A failed cell does not hide the numbers of the others: everything is collected and printed, and the exit code says 1.
reproduce-all: setup ## run every sweep at SCALE (smoke, mini, paper), then regenerate results/SCALE and print the tables
	@status=0; \
	$(BIN)/looprepro sweep --all --scale $(SCALE) --executor $(EXECUTOR) \
	  $(if $(filter slurm,$(EXECUTOR)),--profile $(PROFILE) $(if $(WAIT),--wait)) || status=$$?; \
	if [ $$status -ge 2 ]; then exit $$status; fi; \
	$(if $(filter slurm,$(EXECUTOR)),$(BIN)/looprepro status --scale $(SCALE);) \
	$(call REGENERATE,); \
	cat results/$(SCALE)/tables/*.txt || status=1; \
	exit $$status

clean: ## remove the virtual environment and caches; runs/ and results/ stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
