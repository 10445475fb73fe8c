# `make run` and `make test` are all a newcomer needs; `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
PORT ?= 8000
DATA_DIR ?= ./data
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SERVERS := .venv-servers
BENCH := .venv-bench
NPM := tests/npm
BENCH_NPM := benchmarks/npm
PYTEST := $(BIN)/pytest
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --upgrade

# The tests start hundreds of processes of ours; where this is set each compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install run test types tests test-systems faults bench bench-curves bench-peers packages-test packages-test-systems format dashboards screenshots client lock clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: $(VENV)/.installed ## what Coalmine needs into .venv, and nothing started

run: $(VENV)/.installed ## the service and the demo retriever on 127.0.0.1:$(PORT) and the port after it; ANSWERS=1 with answers and a judge
	@$(BIN)/coalmine serve --port $(PORT) --with-demo --data-dir $(DATA_DIR) --canaries canaries$(if $(ANSWERS),/with-answers)

test: $(VENV)/.dev-installed packages-test $(NPM)/node_modules/.installed ## format, lint, types, layers and the tests that need only PostgreSQL (a wheel) and Chromium
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory --jobs=2 types tests

# Side by side: mypy takes half a minute of one core, and most tests wait now and then.
types:
	$(BIN)/mypy

# Four on two cores: a third of their time they wait, for PostgreSQL, a browser or a program they started.
tests:
	$(PYTEST) --numprocesses 4 --dist worksteal -m 'not systems'

# By file: what the tests of one share, such as a server or a walk over the boards, is started once.
# Three on two cores, for the same reason; `tests/conftest.py` begins the longest files first.
test-systems: $(VENV)/.dev-installed $(SERVERS)/.installed packages-test-systems $(NPM)/node_modules/.installed ## the tests that walk through other programs (retrievers, Prometheus, Alertmanager, image, docs) and through faults
	$(PYTEST) --numprocesses 3 --dist loadfile -m systems

faults: $(VENV)/.dev-installed ## try faults on real processes, as often as docs/reliability.md says (hours), and print its table
	$(BIN)/python -m tests.faults $(FAULTS)

bench: $(VENV)/.dev-installed ## one table of speed, size and memory beside their goals and peers, ten minutes; BENCH_PARTS="scoring storage" for some
	@$(BIN)/python -m benchmarks.bench $(if $(BENCH_PARTS),--only $(BENCH_PARTS))

bench-curves: $(VENV)/.dev-installed ## how figures grow with 100 to 100,000 canaries, 1 to 10,000 checks and a day to a year of history
	@$(BIN)/python -m benchmarks.curves

bench-peers: $(BENCH)/.installed ## the programs of others that the table compares with (Debian, PyPI, npm: 500 MB)
	@./.ci/system-packages gcc wrk prometheus-blackbox-exporter npm
	@if command -v npm >/dev/null; then cd $(BENCH_NPM) && npm install --ignore-scripts --omit=optional --omit=peer \
		--no-package-lock --no-audit --no-fund --silent; else echo "No npm here: promptfoo is left out."; fi

format: $(VENV)/.dev-installed ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

dashboards: $(VENV)/.dev-installed ## write the Grafana dashboards anew from deploy/grafana
	$(BIN)/python -m deploy.grafana.generate

screenshots: $(VENV)/.dev-installed ## take the pictures of the README anew, in a real Chromium over real retrievers
	$(BIN)/python -m tests.screenshots

client: $(VENV)/.dev-installed $(SERVERS)/.installed ## write the typed client of the REST API anew, in clients/python
	$(BIN)/python -m tests.support.api_service >$(VENV)/openapi.json
	$(SERVERS)/bin/python clients/python/generate.py $(VENV)/openapi.json
	$(BIN)/ruff format -q clients/python

lock: $(VENV)/.dev-installed ## compile the lock files anew (universal, hashed, without index addresses)
	$(COMPILE) pyproject.toml -o requirements.lock
	$(COMPILE) -c requirements.lock pyproject.toml --extra mcp --extra apprise --extra otel --group dev -o requirements-dev.lock
	for extra in mcp apprise otel; do $(COMPILE) -c requirements-dev.lock pyproject.toml --extra $$extra -o requirements-$$extra.lock || exit 1; done
	$(COMPILE) --group servers -o requirements-servers.lock
	$(COMPILE) --group bench -o requirements-bench.lock

clean: ## remove the environments and caches, never the data
	rm -rf $(VENV) $(SERVERS) $(BENCH) $(NPM)/node_modules $(BENCH_NPM)/node_modules .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Coalmine needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }

# Locks are complete. Without --no-deps an older pip looks for `pydantic[email]` anew although pydantic is pinned, and a
# release of that day ends the installation. The project itself goes in last, without build isolation, so that nothing unhashed is ever downloaded.
$(VENV)/.installed: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing what Coalmine needs into $(VENV) ..."
	@$(PIP) install --no-deps --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# uv, pinned and hashed as the rest, installs two hundred packages in a tenth of pip's time. It reads no settings of pip:
# where only these lead to an index, pip goes on.
define install_quickly
	@test -x $(BIN)/uv || { awk '/^uv==/ { found = 1 } found { print } found && !/\\$$/ { exit }' requirements-dev.lock >$(VENV)/uv.lock \
		&& $(PIP) install --no-deps --require-hashes -r $(VENV)/uv.lock; }
	@$(BIN)/uv pip install --quiet --python $(1)/bin/python --no-deps --require-hashes -r $(2) \
		|| { echo "uv could not install $(2); pip tries, which takes some minutes ..."; \
			$(1)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes -r $(2); }
endef

# It holds everything of requirements.lock too, at the same versions.
$(VENV)/.dev-installed: requirements-dev.lock requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing what Coalmine and its tests need into $(VENV) ..."
	$(call install_quickly,$(VENV),requirements-dev.lock)
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $(VENV)/.installed $@

# Programs of others for the tests; in an environment of their own, because they are heavy and ours must not see them.
$(SERVERS)/.installed: requirements-servers.lock | $(VENV)/bin/python
	@echo "Installing the servers of the tests into $(SERVERS) (1 GB) ..."
	@rm -rf $(SERVERS) && $(BIN)/python -m venv $(SERVERS)
	$(call install_quickly,$(SERVERS),requirements-servers.lock)
	@touch $@

$(BENCH)/.installed: requirements-bench.lock | $(VENV)/bin/python
	@rm -rf $(BENCH) && $(BIN)/python -m venv $(BENCH)
	$(call install_quickly,$(BENCH),requirements-bench.lock)
	@touch $@

# After the Debian packages: where node was missing they bring it.
$(NPM)/node_modules/.installed: $(NPM)/package-lock.json | packages-test
	@echo "Installing what the tests need of the npm registry into $(NPM)/node_modules ..."
	@if command -v npm >/dev/null; then cd $(NPM) && npm ci --ignore-scripts --no-audit --no-fund --silent && touch node_modules/.installed; \
		else echo "No npm here: the tests that need its packages will skip."; fi

packages-test:
	@./.ci/system-packages git chromium-headless-shell node npm

packages-test-systems: packages-test
	@./.ci/system-packages promtool prometheus-alertmanager nginx
