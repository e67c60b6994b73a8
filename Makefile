# On a fresh machine: `make demo`, `make test`. Each sets up .venv by itself.
.PHONY: setup demo test quick e2e check oracle clean

PYTHON ?= python3
BIN := .venv/bin
# Modules are compiled when they are first imported: most never are. That is kept in .venv.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install -q --no-compile -c constraints.txt
DEMO := runs/demo
# Tests of a file share what they compile: each file goes to one of two processes, dear ones first.
TWO := -n 2 --dist loadfile --no-loadscope-reorder

setup: .venv/dev

.venv/dev: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer, please"'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[dev]'
	touch $@

.venv/bench: .venv/dev
	$(PIP) -e '.[dev,bench]'
	touch $@

# Train on spelled-out numbers, score unseen ones, translate five.
demo: setup
	$(BIN)/python train.py --config=configs/spelled_numbers.py --workdir=$(DEMO)
	$(BIN)/python eval.py --workdir=$(DEMO)
	@echo
	@for number in zwölf siebenundachtzig dreihunderteinundzwanzig neunzehntausendacht \
	  'vier Millionen fünfhunderttausendsechs'; do echo "$$number"; done > $(DEMO)/five.de
	@$(BIN)/transformer-jax translate --workdir=$(DEMO) < $(DEMO)/five.de | paste -d '\n' $(DEMO)/five.de - \
	  | sed 'n; s/^/    -> /'
	@echo
	@echo "Translate one of your own:"
	@echo "    echo 'achtundvierzigtausendzwölf' | $(BIN)/transformer-jax translate --workdir=$(DEMO)"

test: setup
	$(BIN)/python -m pytest $(TWO)

# Without the tests that compile large programs: about a minute, for a look between two changes.
quick: setup
	$(BIN)/python -m pytest -m "not slow and not oracle and not e2e" $(TWO)

# Whole programs killed, out of disk, on other devices, as several processes: takes long.
e2e: setup
	$(BIN)/python -m pytest -m e2e

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Live comparisons with torch and transformers.
oracle: .venv/bench
	$(BIN)/python -m pytest -m oracle tests/oracle

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
