# demo, test, check and bench set up what they need in .venv, and are quick when it is already there.
PYTHON ?= python3
BIN := .venv/bin
export PROMPTPOOL_DATA
READY := .venv/.ready

.PHONY: demo test portable-test portable-check browser browser-test page-picture ray-test real-test kill-test compile-test fuzz-test wheel-test check bench \
  bench-scale bench-serve format clean

demo: $(READY)
	$(BIN)/promptpool demo

# Files are spread over the cores, each in processes of one thread. Modules are compiled once, whatever the shell says.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q --numprocesses auto --dist loadfile
test: $(READY)
	OMP_NUM_THREADS=1 $(PYTEST)

# What compares numbers, as it runs on other machines: with several threads, and with the instructions of older processors.
NUMBERS := tests/learners tests/training tests/backbones tests/data/test_views.py tests/data/test_glyphs.py tests/test_losses.py \
  tests/test_memory.py tests/test_metrics.py tests/test_optim.py tests/test_prompts.py
SETTINGS := PROMPTPOOL_TEST_THREADS=1 PROMPTPOOL_TEST_THREADS=2 PROMPTPOOL_TEST_THREADS=3 \
  ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE DNNL_MAX_CPU_ISA=SSE41
portable-test: $(READY)
	for setting in $(SETTINGS); do echo "$$setting"; env "$$setting" $(PYTEST) $(NUMBERS) || exit 1; done

# Two of those settings for the cheapest third of those tests.
CHEAP := tests/learners/test_golden.py tests/learners/test_l2p.py tests/learners/test_ranpac.py tests/learners/test_atomics.py \
  tests/backbones/test_features.py tests/backbones/test_vit.py tests/data/test_views.py tests/test_losses.py tests/test_memory.py \
  tests/test_optim.py tests/test_prompts.py
portable-check: $(READY)
	for setting in PROMPTPOOL_TEST_THREADS=2 ATEN_CPU_CAPABILITY=default; do \
	  echo "$$setting"; env "$$setting" $(PYTEST) $(CHEAP) || exit 1; done

# Playwright drives the pages; it takes the system's Chromium, and downloads none.
browser: $(READY)
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get && apt-get update && apt-get install --yes --no-install-recommends chromium; } || \
	  { echo "this needs Chromium, which only root on a system with apt-get can install this way"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'playwright>=1.50'

browser-test: browser
	PROMPTPOOL_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -q -m browser

# docs/serve.png, drawn again.
page-picture: browser
	folder=$$(mktemp -d) && PROMPTPOOL_REQUIRE_BROWSER=1 PROMPTPOOL_SCREENSHOTS=$$folder \
	  $(BIN)/python -m pytest -q -m browser tests/serve/test_page_browser.py -k readme && \
	  cp $$folder/serve.png docs/serve.png && rm -r $$folder

ray-test: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[ray,serve]'
	$(BIN)/python -m pytest -q -m ray

real-test: $(READY)
	@[ -d "$$PROMPTPOOL_REAL_DATA" ] || { echo "real-test reads published files: set PROMPTPOOL_REAL_DATA to their folder"; exit 1; }
	$(BIN)/python -m pytest -q -m real

# Processes killed at every file operation and at random moments while they teach a classifier, and a server killed
# fifty times while it learns: every version is whole, nothing that was accepted is lost or learned twice.
kill-test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow tests/classifier
	PROMPTPOOL_KILLS=50 $(BIN)/python -m pytest -q -s tests/serve/test_process.py -k killed

# Blocks that torch really compiles; the other tests of compilation only count what it would.
compile-test: $(READY)
	$(BIN)/python -m pytest -q -m compiles

# Requests made up from the server's own description, some eight hundred: none may be a mistake of the server.
fuzz-test: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'schemathesis>=4'
	PROMPTPOOL_REQUIRE_FUZZ=1 $(BIN)/python -m pytest -q -s -m fuzz

# The package as it is installed, away from its source.
wheel-test: $(READY)
	.ci/wheel-test $(BIN)/python

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/step.py --out docs/results/speed.csv --plot docs/speed.png $(ARGS)

# Whether a step stays as cheap with a large pool, many classes, many tasks and a million images; some ten minutes, or
# less of it with ARGS='--minutes 4'.
bench-scale: $(READY)
	$(BIN)/python benchmarks/scale.py --out docs/results/scale.csv --plot docs/scale.png $(ARGS)

bench-serve: $(READY)
	$(BIN)/python benchmarks/serve.py $(ARGS)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "promptpool needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@echo "Setting up .venv with pinned versions; the first time this takes a few minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
