# make demo   set up the run-time set and run the main job on the embedded sample: no key, no network
# make test   set up everything tests need and run the whole suite
# make lint   ruff, mypy, the floors
# make lab    JupyterLab in this workspace, tour first
# make peer   set up Vibe-Trading in an environment of its own, and compare our backtests with its
# make lock   resolve the dependencies anew into the two lock files

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
KIT    := $(BIN)/kit

# What leaves this machine is decided here: nothing. Keys are scrubbed, the mode is offline.
OFFLINE := env -u OPENAI_API_KEY -u DEEPSEEK_API_KEY -u ANTHROPIC_API_KEY -u GEMINI_API_KEY \
  -u KIT_WORKSPACE KIT_MODE=offline LITELLM_LOCAL_MODEL_COST_MAP=True PYTHONUTF8=1

DEMO_SCREEN := ma250-pullback@0.3.1 --date 2020-02-27
DEMO_SLOT   := --market cn --now 2024-09-18T10:03+08:00

.PHONY: demo test lint lab lock peer format clean setup setup-dev
.DELETE_ON_ERROR:

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("kit needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# A set-up is redone when a lock or the package description changes, never otherwise.
$(VENV)/.run-time: requirements.lock pyproject.toml | $(BIN)/python
	@echo "setting up the run-time set (once) ..."
	@start=$$(date +%s); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . && \
	echo "set-up took $$(( $$(date +%s) - start )) s"
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(VENV)/.run-time
	@echo "setting up the development set (once) ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-dev.lock
	@touch $@

setup: $(VENV)/.run-time
setup-dev: $(VENV)/.dev

demo: setup
	@start=$$(date +%s); \
	$(OFFLINE) $(KIT) backtest ma250-pullback@0.3.1 && \
	$(OFFLINE) $(KIT) screen $(DEMO_SCREEN) --again && \
	$(OFFLINE) $(KIT) slot run $(DEMO_SLOT) --again && \
	echo && echo "files to open:" && \
	ls -t runs/backtests/*/*/report.html | head -n 1 | sed 's/^/  /' && \
	$(OFFLINE) $(KIT) runs --files --latest && \
	echo "demo took $$(( $$(date +%s) - start )) s"

test: setup-dev
	$(OFFLINE) $(BIN)/python -m pytest -n auto --dist loadgroup
	$(OFFLINE) $(BIN)/python -m pytest -p no:randomly -n auto --dist loadfile --nbval-lax \
	  --nbval-kernel-name=python3 --nbval-cell-timeout=120 notebooks

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only .

lab: setup-dev
	$(BIN)/jupyter lab --notebook-dir=. notebooks/research/00-tour.ipynb

# The peer wants other versions of the libraries we use, so it lives apart, and is optional.
PEER := vibe-trading-ai==0.1.18
$(VENV)-peer/.ready: Makefile
	$(PYTHON) -m venv $(VENV)-peer
	$(VENV)-peer/bin/python -m pip install --quiet --disable-pip-version-check "$(PEER)"
	@touch $@

peer: setup-dev $(VENV)-peer/.ready
	KIT_PEER_PYTHON="$(CURDIR)/$(VENV)-peer/bin/python" $(OFFLINE) $(BIN)/python -m pytest -m peer tests/peer

# Hashes for every platform and Python we support; no index URL in either file.
UV_COMPILE = $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-header --no-annotate
lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet uv
	printf 'hatchling\neditables\n' > $(VENV)-lock/build.in
	$(UV_COMPILE) pyproject.toml $(VENV)-lock/build.in --extra lab --extra dev --extra postgres --extra scale -o requirements-dev.lock
	$(UV_COMPILE) pyproject.toml $(VENV)-lock/build.in -c requirements-dev.lock -o requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VENV)-lock $(VENV)-peer runs
