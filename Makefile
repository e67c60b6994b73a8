# On a fresh machine: `make demo` or `make test`. Each sets up .venv.
.PHONY: setup demo test quick thorough e2e check oracle site versions clean

PYTHON ?= python3
BIN := .venv/bin
# Modules are byte-compiled on first import, as most are never imported; .venv keeps the result.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install -q --no-compile -c constraints.txt
# Tests in a file share compiled programs: each file runs in one of two processes, slow files first.
# One that hangs for a quarter of an hour is named, and ends the run.
TWO := -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 \
  -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

setup: .venv/dev

.venv/dev: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is required"'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[dev]'
	touch $@

.venv/bench: .venv/dev
	$(PIP) -e '.[dev,bench]'
	touch $@

.venv/site: .venv/dev
	$(PIP) -e '.[dev,site]'
	touch $@

# Train on spelled-out numbers, score unseen ones, translate five.
demo: setup
	$(BIN)/transformer-jax demo

test: setup
	$(BIN)/python -m pytest $(TWO)

# Without the tests that compile large programs: about a minute, for checks between changes.
quick: setup
	$(BIN)/python -m pytest -m "not slow and not oracle and not e2e and not thorough" $(TWO)

# The rest of the laws for every entry of the tables, and runs of several processes: in CI.
thorough: setup
	$(BIN)/python -m pytest -m thorough $(TWO)

# Whole programs: killed, out of disk space, on other devices, as several processes. Slow.
e2e: setup
	$(BIN)/python -m pytest -m e2e

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Live comparisons with torch and transformers.
oracle: .venv/bench
	$(BIN)/python -m pytest -m oracle tests/oracle $(TWO)

# docs/, notebooks with their outputs, experiments and a reference, as pages in build/site.
site: .venv/site
	$(BIN)/python docs/site/pages.py build
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --config-file=build/mkdocs.yml

# The lowest and the newest JAX allowed, on several Pythons: environments of their own, and an hour.
versions:
	.ci/versions

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
