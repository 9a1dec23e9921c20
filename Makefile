# Every target sets itself up.  Presumed are make, and a Python 3.11 or newer with pip; the rest comes as wheels.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Spark comes as sources only, which are Java archives and Python: nothing is compiled.
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --no-binary pyspark
PYTEST := $(BIN)/python -m pytest

.PHONY: help demo test test-slow test-postgres test-oldest with-oldest bench lint clean

help:
	@echo 'make demo           the main job on an embedded SQLite file, in a few seconds'
	@echo 'make test           every test but the slow ones'
	@echo 'make test-slow      long races, crash loops and soaks'
	@echo 'make test-postgres  the tests on PostgreSQL, with PG=18 on that major version'
	@echo 'make test-oldest    the contract and its transactions with the oldest SQLAlchemy that is supported'
	@echo 'make bench          side by side with bare SQLite, bare Postgres and other queues'
	@echo 'make lint           ruff, mypy and pyright'
	@echo 'make clean          remove the environment and everything built'

demo: $(VENV)/.core
	@$(BIN)/python -m eventkit.demo

test: $(VENV)/.dev
	$(PYTEST) -n 3 -m "not slow"

test-slow: $(VENV)/.dev
	$(PYTEST) -n 2 -m slow

test-postgres: $(VENV)/.dev
	EVENTKIT_TEST_POSTGRES_VERSION=$(PG) $(PYTEST) -n 2 -m "not slow" tests/test_postgres*.py

# In an environment of its own, beside the one with the newest of everything.  SQLAlchemy's own suite, which the
# dialect is run through, is left to the newest.
test-oldest:
	$(MAKE) VENV=$(VENV)-oldest PYTHON=$(PYTHON) with-oldest

with-oldest: $(VENV)/.dev
	@$(PIP) "$$(sed -n 's/^    "\(sqlalchemy\)>=\(.*\)",$$/\1==\2/p' pyproject.toml)"
	$(PYTEST) -n 2 -m "not slow" tests/test_sqlite.py tests/test_pysqlite.py tests/test_postgres.py tests/test_*transactions.py \
	    tests/dialect --ignore tests/dialect/test_dialect_suite.py

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright

clean:
	rm -rf $(VENV) $(VENV)-oldest build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis shop.db shop.db-wal shop.db-shm
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.core: $(VENV)/.made pyproject.toml
	@echo 'Installing eventkit into $(VENV) …'
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@echo 'Installing eventkit and what its tests need into $(VENV) …'
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.core $@

$(VENV)/.bench: $(VENV)/.dev benchmarks/requirements.txt benchmarks/requirements-honker.txt
	@echo 'Installing what eventkit is measured against into $(VENV) …'
	@$(PIP) --requirement benchmarks/requirements.txt
	@$(PIP) --requirement benchmarks/requirements-honker.txt 2>/dev/null || echo 'honker has no wheel for this system'
	@touch $@

# An environment that works is kept.  Where Python comes without ensurepip (Debian's, without python3-venv), its
# own pip installs one into the environment.
$(VENV)/.made:
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    for python in $(PYTHON) python3.14 python3.13 python3.12 python3.11 python ''; do \
	        $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	    done; \
	    if [ -z "$$python" ]; then \
	        echo 'eventkit needs Python 3.11 or newer: make PYTHON=/path/to/python3' >&2; exit 1; \
	    fi; \
	    echo "Creating $(VENV) with $$($$python --version) …"; \
	    $$python -m venv --clear $(VENV) >/dev/null 2>&1 || { \
	        $$python -m venv --clear --without-pip $(VENV) && \
	        $$python -m pip --python $(BIN)/python install --quiet --only-binary :all: pip; \
	    }; \
	fi
	@touch $@
