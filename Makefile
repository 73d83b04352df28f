PYTHON ?= python3
TORCH  ?= pinned# pinned: the registry's build | cpu, cu130, auto: uv's PyTorch back ends | none: you bring it
ARGS   ?=# more arguments for pytest or the bench

HUSH := $(shell test -t 2 || echo -q)# on a terminal one sees how far it is

V    := .venv
BIN  := $(V)/bin
UV   := $(BIN)/uv
PIN  := $(UV) pip install $(HUSH) --python $(BIN)/python --require-hashes
LOCK := $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade
TEST := $(BIN)/python -m pytest

# both trust whom the system trusts, where a company's proxy has its certificate: uv when told, pip by itself from 24.2 on
export UV_SYSTEM_CERTS ?= true
STORE := import pip, ssl; paths = ssl.get_default_verify_paths(); \
  print("" if tuple(map(int, pip.__version__.split(".")[:2])) >= (24, 2) else paths.cafile or paths.capath or "")

# tests against verifiers, whose pins aren't ours, run where `make verifiers` was called, or where this names another Python
export VERIFIERS_PYTHON ?= $(wildcard $(CURDIR)/$(V)/verifiers/bin/python)

unexport PYTHONDONTWRITEBYTECODE # without it every command takes twice as long to start

.PHONY: install verifiers lock demo test slow chaos containers lint format bench wheel

install: $(V)/.ok  ## a virtual environment in .venv with everything that is pinned

$(V)/.ok: pyproject.toml $(wildcard requirements/*.txt)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rolloutlog needs Python 3.11 or newer, for example: make install PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(V) || { echo "this Python has no venv module: install it (Debian: python3-venv)" >&2; exit 2; }
	PIP_CERT="$${PIP_CERT:-$$($(BIN)/python -c '$(STORE)')}" $(BIN)/pip install -q --require-hashes -r requirements/uv.txt
	$(PIN) --compile-bytecode -r requirements/dev.txt
ifeq ($(TORCH),pinned)
	$(PIN) -r requirements/torch.txt
else ifneq ($(TORCH),none)
	$(UV) pip install -q --python $(BIN)/python --torch-backend $(TORCH) "$$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements/torch.txt)"
endif
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q rolloutlog producers consumers buffer trainer
	@touch $@

verifiers: $(V)/verifiers/.ok  ## an environment of verifiers beside ours, 360 MB, for the tests of its adapter

$(V)/verifiers/.ok: $(V)/.ok requirements/verifiers.txt
	$(UV) venv -q --clear --python $(BIN)/python $(V)/verifiers
	$(UV) pip install $(HUSH) --python $(V)/verifiers/bin/python --require-hashes -r requirements/verifiers.txt
	@touch $@

lock: install  ## requirements/*.txt anew from pyproject.toml, at the newest versions that fit
	echo uv | $(LOCK) -o requirements/uv.txt -
	$(LOCK) -o requirements/dev.txt --group dev $(foreach e,broker s3 import openai parquet plot testing,--extra $(e)) pyproject.toml
	echo torch | $(LOCK) -o requirements/torch.txt -c requirements/dev.txt -
	$(LOCK) -o requirements/services.txt -c requirements/dev.txt --extra import --extra s3 pyproject.toml
	echo verifiers==0.4.0 | $(LOCK) -o requirements/verifiers.txt -
	echo hatchling | $(LOCK) -o requirements/build.txt -c requirements/dev.txt -

demo: install  ## a small policy learns two tasks from nothing, over a live loop on an embedded broker
	$(BIN)/rolloutlog demo $(ARGS)

test: install  ## what runs anywhere in under ten minutes: on up to four cores, with a broker each
	$(TEST) -n auto --maxprocesses 4 --dist loadfile -m "not chaos and not slow and not containers and not timed" $(ARGS)
	$(TEST) -m timed $(ARGS) || test $$? -eq 5 # 5: ARGS chose none of these

slow chaos containers: install
	$(TEST) -m $@ $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m rolloutlog.cli.reference --check

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python -m bench $(ARGS)

wheel: install  ## build it, and try it in an empty folder and environment
	.ci/wheel
