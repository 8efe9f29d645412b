# `make demo` and `make test` set everything up by themselves, in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo demo-c2 demo-c2-ccp demo-search test test-slow lint docs bench clean attack
.DELETE_ON_ERROR:

# A demo that was interrupted goes on where it stopped.
resume = $(if $(wildcard $(1)/config.toml),--resume)

# Both networks train at once, on a thread each: two threads make a network of this size little faster than one.
demo: .venv/ready
	$(MAKE) --no-print-directory --jobs=2 demo-c2 demo-c2-ccp
	$(BIN)/ccp report runs/demo/c2 runs/demo/c2-ccp --out runs/demo/report.html

demo-c2: export OMP_NUM_THREADS = 1
demo-c2:
	mkdir -p runs/demo
	$(BIN)/ccp train glyphs c2 --out runs/demo/c2 $(call resume,runs/demo/c2) > runs/demo/c2.log 2>&1 || (cat runs/demo/c2.log; exit 1)

demo-c2-ccp: export OMP_NUM_THREADS = 1
demo-c2-ccp:
	$(BIN)/ccp train glyphs c2-ccp --out runs/demo/c2-ccp $(call resume,runs/demo/c2-ccp)

# The network of `make demo`, searching the glyphs it never saw. CHECK=1 starts it, asks once and stops.
demo-search: .venv/ready
	test -f runs/demo/c2-ccp/result.json || $(BIN)/ccp train glyphs c2-ccp --out runs/demo/c2-ccp $(call resume,runs/demo/c2-ccp)
	$(BIN)/python tools/demo_search.py runs/demo/c2-ccp $(if $(CHECK),--check)

# One process per core; the tests of a file stay together, as they share what is slow to make.
test: .venv/ready
	$(BIN)/pytest -n auto --dist loadfile -m "not slow"

# What kills or compares many processes, in about as long again; before a release, and after changes to what it is about.
test-slow: .venv/ready
	$(BIN)/pytest -n auto --dist loadfile -m slow

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The site, into site/index.html. A broken link or a page that nothing leads to fails.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Thousands of bad inputs, a thousand kills, full disks, signals, clocks: a table of how they ended.
attack: .venv/ready
	$(BIN)/python tools/attack.py

# Measures everything side by side and writes docs/performance.md, in about three quarters of an hour: leave the machine alone.
bench: .venv/ready
	$(BIN)/python benchmarks/run_all.py

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	touch .venv/ready

clean:
	rm -rf .venv runs artefacts build site
