# `make run` and `make test` need only Python >= 3.11, pip and make: they build .venv by themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.installed-bench
DOCS_INSTALLED := $(VENV)/.installed-docs
SB3_INSTALLED := $(VENV)/.installed-sb3
RIVALS := .venv-bench
RIVALS_INSTALLED := $(RIVALS)/.installed
SOURCES := src tests bench examples docs/hooks.py
WHEEL := .venv-wheel
TESTS := -m pytest -n auto --dist loadgroup --no-loadscope-reorder

.PHONY: install run test test-fast test-long test-wheel test-sb3 lint types bench docs clean

install: $(INSTALLED)

# The stamp is newer than what it was built from, so a second `make run` installs nothing.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "mnm needs Python 3.11 or newer; $(PYTHON) is older. Set one with: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

$(SB3_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[sb3]'
	@touch $@

# Other libraries, in an environment of their own: they want other versions, and one of them the wrong hydra.
$(RIVALS_INSTALLED): bench/rivals.txt constraints.txt
	test -x $(RIVALS)/bin/python || $(PYTHON) -m venv $(RIVALS)
	$(RIVALS)/bin/python -m pip install --quiet -c constraints.txt -r bench/rivals.txt
	$(RIVALS)/bin/python -m pip install --quiet -c constraints.txt --no-deps mbrl d3rlpy
	@touch $@

run: $(INSTALLED)
	$(BIN)/mnm reproduce
	$(BIN)/mnm train mnm_approx --env Pendulum-v1 --steps 1500 --evaluate-every 250 --runs results/runs --overwrite
	$(BIN)/mnm render results/runs/Pendulum-v1-mnm_approx-seed0 --out results/runs/Pendulum-v1-mnm_approx-seed0/video.gif
	$(BIN)/mnm report --results results --runs results/runs --out results/report.html

# What one test compiles, another reads, and the processes that tests start: the cache is kept from one time to the next.
test test-fast test-long: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/.jax_cache
test test-fast test-long: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0
# A test's programs run for a moment: they are compiled with fewer optimisations, in two thirds of the time.
test test-fast test-long: export XLA_FLAGS ?= --xla_backend_optimization_level=1

test: $(INSTALLED)
	$(BIN)/python $(TESTS) -m "not long"

# Without what takes half a second or more (compiles, trains, draws, starts a process), and with fewer random examples.
test-fast: $(INSTALLED)
	$(BIN)/python $(TESTS) -m "not slow and not long" --hypothesis-profile fast

# Endurance alone: 1,000 kills, 10,000 random command lines, 10,000 mutated files of each kind; ten times the random
# examples of every property.
test-long: $(INSTALLED)
	$(BIN)/python $(TESTS) -m "long or hypothesis" --hypothesis-profile long

# The wheel as pip alone installs it, without constraints.txt: newer versions must not change the tasks' physics.
test-wheel:
	rm -rf $(WHEEL)
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEEL)/dist .
	$(WHEEL)/bin/python -m pip install --quiet "$$(echo $(WHEEL)/dist/*.whl)[mujoco]" beartype hypothesis "pytest<9.2" pytest-xdist
	$(WHEEL)/bin/python -m pytest tests/envs/test_dclaw.py

# Stable-Baselines3's agent in a learned model, and its tools on ours: skipped elsewhere, as it brings PyTorch.
test-sb3: $(SB3_INSTALLED)
	$(BIN)/python -m pytest tests/test_api.py tests/test_docs.py tests/test_learned_model.py -k "stable_baselines3 or model.md"

lint: $(INSTALLED)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(INSTALLED)
	$(BIN)/mypy

bench: $(BENCH_INSTALLED) $(RIVALS_INSTALLED)
	$(BIN)/python bench/tabular.py
	$(BIN)/python bench/environments.py
	$(BIN)/python bench/deep.py
	$(BIN)/python bench/threads.py
	$(BIN)/python bench/start.py

# A link that leads nowhere stops the build, as every warning does.
docs: $(DOCS_INSTALLED)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .jax_cache $(VENV) $(RIVALS) $(WHEEL) site build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
