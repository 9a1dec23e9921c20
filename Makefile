# Every target sets itself up.  Presumed are make, and a Python 3.11 or newer with pip; the rest comes as wheels.

VENV   ?= .venv
BIN    := $(VENV)/bin
# Spark comes as sources only, which are Java archives and Python: nothing is compiled.
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --no-binary pyspark
PYTEST := $(BIN)/python -m pytest
# The versions that continuous integration tests with; `make test-newest` takes the newest of everything.
PINNED ?= --constraint tests/constraints.txt

ifneq ($(words $(VENV)),1)
$(error make cannot handle a space in a path: set VENV to a folder without one)
endif
# An environment whose interpreter is gone, or is of another version than PYTHON= asks for, is made again.
version = $(shell { $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2] * (sys.version_info >= (3, 11)))'; } 2>/dev/null)
MADE_WITH := $(call version,$(BIN)/python)
ifdef PYTHON
WANTED := $(call version,$(PYTHON))
ifeq ($(WANTED),)
$(error PYTHON=$(PYTHON) is no Python 3.11 or newer)
endif
else
WANTED := $(or $(MADE_WITH),any)
endif
ifneq ($(MADE_WITH),$(WANTED))
$(shell rm -f $(VENV)/.made $(VENV)/.core $(VENV)/.dev $(VENV)/.bench)
endif

.PHONY: help demo test test-slow test-postgres test-oldest with-oldest test-newest mutants bench lint clean

help:
	@echo 'make demo           the main job on an embedded SQLite file, in a few seconds'
	@echo 'make test           every test but the slow ones'
	@echo 'make test-slow      long races, crash loops and soaks'
	@echo 'make test-postgres  the tests on PostgreSQL, with PG=18 on that major version'
	@echo 'make test-oldest    the contract and its transactions with the oldest SQLAlchemy that is supported'
	@echo 'make test-newest    the tests with the newest release of every dependency'
	@echo 'make mutants        break the code in each recorded way, and see whether a test fails'
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

test-newest:
	$(MAKE) VENV=$(VENV)-newest PYTHON=$(PYTHON) PINNED= test

mutants: $(VENV)/.dev
	$(BIN)/python tests/mutants/mutation.py --rest

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis shop.db shop.db-wal shop.db-shm
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip's own words are many; the first sentence here says what to look at.
define install
	@echo 'Installing $(1) into $(VENV) …'
	@$(PIP) $(2) 2>$(VENV)/pip.log || { \
	    grep ERROR $(VENV)/pip.log | tail -n 1 >&2; \
	    echo 'pip could not install $(1): is the package index reachable? $(VENV)/pip.log has all that pip said.' >&2; \
	    exit 1; \
	}
endef

$(VENV)/.core: $(VENV)/.made pyproject.toml
	$(call install,eventkit,--editable .)
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml tests/constraints.txt
	$(call install,eventkit and what its tests need,--editable '.[dev]' $(PINNED))
	@touch $(VENV)/.core $@

$(VENV)/.bench: $(VENV)/.dev benchmarks/requirements.txt benchmarks/requirements-honker.txt
	$(call install,what eventkit is measured against,--requirement benchmarks/requirements.txt)
	@$(PIP) --requirement benchmarks/requirements-honker.txt 2>/dev/null || echo 'honker has no wheel for this system'
	@touch $@

# Where Python comes without ensurepip (Debian's, without python3-venv), its own pip installs one into the environment.
$(VENV)/.made:
	@for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python) ''; do \
	    [ -z "$$python" ] || $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	done; \
	if [ -z "$$python" ]; then \
	    echo 'eventkit needs Python 3.11 or newer: make PYTHON=/path/to/python3' >&2; exit 1; \
	fi; \
	echo "Creating $(VENV) with $$($$python --version) …"; \
	$$python -m venv --clear $(VENV) >/dev/null 2>&1 || { \
	    $$python -m venv --clear --without-pip $(VENV) && \
	    $$python -m pip --python $(BIN)/python install --quiet --only-binary :all: pip; \
	}
	@touch $@
