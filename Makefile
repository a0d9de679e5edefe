# Each target installs the packages that it uses into .venv. A machine needs only
# python3 >= 3.11 and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# Lets Python cache bytecode, so that test files and xlflax are compiled once
# instead of once per process.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help quickstart test test-slow test-oldest lint format docs dist hooks \
  goldens benchmarks compile-targets campaign audit sbom clean

help:
	@echo 'make quickstart   Train and evaluate a small model on embedded text'
	@echo 'make test         Run the tests'
	@echo 'make test-slow    Run the tests, including the slow ones'
	@echo 'make test-oldest  Run the tests with the oldest packages that setup.py allows'
	@echo 'make lint         Run ruff (rules and format) and mypy'
	@echo 'make format       Format the code and apply the automatic fixes of ruff'
	@echo 'make hooks        Install the pre-commit hooks, which run ruff and mypy'
	@echo 'make docs         Build the site into build/site'
	@echo 'make dist         Build the wheel and the sdist into dist'
	@echo 'make goldens      Regenerate the golden files of the tests'
	@echo 'make benchmarks   Run the speed and memory comparisons'
	@echo 'make compile-targets   Compile the training steps for GPUs and TPUs that are'
	@echo '                  not available and check their bounds (5 GB of packages,'
	@echo '                  hours)'
	@echo 'make campaign     Run fault-injection tests (kills, signals, full disks,'
	@echo '                  corrupted files, invalid input) for MINUTES'
	@echo 'make audit        Report known vulnerabilities of the locked packages'
	@echo 'make sbom         Write a CycloneDX list of the locked packages to build/sbom'
	@echo 'make clean        Remove .venv and caches'

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("xlflax requires Python 3.11 or newer. Found Python " + sys.version.split()[0] + "." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: setup.py | $(BIN)/python
	$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.dev: setup.py | $(BIN)/python
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@

quickstart: $(VENV)/.base
	$(BIN)/xlflax demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart 2

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest --slow --timeout=3600 -n $(WORKERS) --dist loadfile \
	  --max-worker-restart 2

OLDEST := build/oldest
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet uv
	VIRTUAL_ENV=$(OLDEST) $(OLDEST)/bin/uv pip install --quiet \
	  --resolution=lowest-direct --editable '.[test]'
	$(OLDEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile \
	  --max-worker-restart 2

goldens: $(VENV)/.dev
	$(BIN)/python -m pytest tests/models \
	  tests/suites/recipes_test.py tests/launch/kubernetes_test.py \
	  tests/launch/slurm_script_test.py tests/launch/tpu_test.py \
	  --regenerate_goldens

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy xlflax tasks

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: $(VENV)/.dev
	$(BIN)/pre-commit install

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo 'The site is in build/site/index.html'

dist: $(VENV)/.dev
	$(BIN)/python -m build --outdir dist

benchmarks: $(VENV)/.dev
	$(BIN)/python -m benchmarks.run_all

$(VENV)/.targets: $(VENV)/.dev
	$(PIP) install --quiet --editable '.[plan-gpu,plan-tpu]'
	@touch $@

compile-targets: $(VENV)/.targets
	$(BIN)/python -m benchmarks.compile_targets build/targets --check

MINUTES ?= 30
campaign: $(VENV)/.dev
	$(BIN)/python -m tests.campaigns.run --minutes $(MINUTES)

# The audit tools have their own environment with locked versions. It does not
# require .venv.
AUDIT := build/audit
LOCKS := cpu gpu tpu

$(AUDIT)/.installed: requirements/audit.lock
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip --disable-pip-version-check install --quiet \
	  --require-hashes --requirement $<
	@touch $@

audit: $(AUDIT)/.installed
	set -e; for kind in $(LOCKS); do $(AUDIT)/bin/pip-audit --strict \
	  --require-hashes --disable-pip --requirement requirements/$$kind.lock; done

sbom: $(LOCKS:%=build/sbom/xlflax-%.cdx.json)

build/sbom/xlflax-%.cdx.json: requirements/%.lock $(AUDIT)/.installed
	@mkdir -p $(@D)
	$(AUDIT)/bin/cyclonedx-py requirements $< --output-format JSON \
	  --output-reproducible --output-file $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
