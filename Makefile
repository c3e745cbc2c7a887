# The two commands of a newcomer: `make quickstart` and `make test`. Each does its own set-up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
QUICKSTART ?= quickstart
LOWEST := .venv-lowest
LOCK := requirements.lock.txt
TORCH ?=

.PHONY: quickstart test test-all test-lowest lock check format docs docs-architectures figures notebooks clean

quickstart: $(VENV)/.core
	$(BIN)/electrify quickstart --out $(QUICKSTART)

test: check
	$(BIN)/pytest -n 2 -m "not slow"

# Resumes by file: what passed with the same source tree is not run again (.cache/test-all).
test-all: check
	$(BIN)/python -m tests.every_file -n 2 --dist loadfile --no-loadscope-reorder

# The fast tests with the lowest version of every range in pyproject.toml. uv resolves them, because
# pip tries hundreds of versions of botocore; pip installs torch, because it finds local builds. To
# use another torch than the lowest: make test-lowest TORCH=2.13.0
test-lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) -m tests.lowest $(TORCH) > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install -qq --constraint $(LOWEST)/lowest.txt torch numpy uv
	VIRTUAL_ENV=$(LOWEST) $(LOWEST)/bin/uv pip install --quiet --constraint $(LOWEST)/lowest.txt --editable ".[all]"
	$(LOWEST)/bin/pytest -n 2 -m "not slow"

# Versions and hashes of all extras, for every supported Python and system, as PyPI has them.
lock: $(VENV)/.dev
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
		--constraint constraints.txt --generate-hashes --no-annotate --quiet \
		--custom-compile-command "make lock" --output-file $(LOCK)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-architectures: $(VENV)/.dev
	$(BIN)/python -m docs.architectures

$(VENV)/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "electrify needs Python 3.11 or newer; give one with: make PYTHON=python3.12"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable ".[data,report]"
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install -qq --constraint constraints.txt --editable ".[data,finetune,report,sentences,onnx,cluster,s3,docs,dev]"
	touch $@

figures: $(VENV)/.dev
	$(BIN)/python -m docs.figures

notebooks: $(VENV)/.dev
	$(BIN)/python -m notebooks.execute

clean:
	rm -rf $(VENV) $(LOWEST) $(QUICKSTART) site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
