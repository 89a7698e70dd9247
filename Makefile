# Every target works in a fresh clone: what it needs is installed into .venv first, in the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
SELECTED := -m "not long"

.PHONY: help demo test test-long lint docs bench bench-quick studies release lock clean

help:
	@echo "make demo    identify the KUKA KR90 twice, from its measured modes and from its FRFs, and write results/report.html"
	@echo "make test    the short tests; test-long: every test"
	@echo "make lint    style, types, and which package imports which"
	@echo "make docs    the documentation site in docs/_build/html, notebooks run"
	@echo "make bench   speed beside NumPy, SciPy, CMA-ES, Pinocchio and MJX, ten minutes; bench-quick: a few minutes"
	@echo "make studies a third of the experiments, hours"
	@echo "make release wheel and source distribution in dist/, checked, and tried in empty environments"
	@echo "make clean   remove what make has made"

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "jaxmb needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	  "Name another one: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	$(BIN)/python -m compileall -q jaxmb  # pip leaves it to the first run, and with PYTHONDONTWRITEBYTECODE to each
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

$(VENV)/installed-report: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[report]'
	@touch $@

demo: $(VENV)/installed-report
	$(BIN)/jaxmb identify kr90-measured-modes --out results/kr90-measured-modes
	$(BIN)/jaxmb identify kr90-modelled --out results/kr90-modelled
	$(BIN)/jaxmb report results/kr90-modelled results/kr90-measured-modes --out results/report.html

test: $(VENV)/installed-test
	$(BIN)/python -m pytest $(SELECTED) --numprocesses $(WORKERS) --durations 10

test-long: SELECTED :=
test-long: test

lint: $(VENV)/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/basedpyright --pythonpath $(BIN)/python --level error

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

# Warnings are errors, a link to a page or section that does not exist among them.
docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build -W --keep-going -n -q -b html -c docs . docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(VENV)/installed-test
	$(BIN)/python experiments/speed/run.py

bench-quick: $(VENV)/installed-test
	$(BIN)/python experiments/speed/run.py --quick

# Experiments that take minutes each, some with fewer draws than the pages quote.
studies: $(VENV)/installed-test
	$(BIN)/python experiments/recovery/run.py --seeds 5
	$(BIN)/python experiments/maps/run.py
	$(BIN)/python experiments/maps/modal.py
	$(BIN)/python experiments/several-tests/run.py cost
	$(BIN)/python experiments/coverage/run.py --draws 20
	$(BIN)/python experiments/mistakes/run.py
	$(BIN)/python experiments/uncertainty/run.py --draws 30
	$(BIN)/python experiments/sensors/run.py
	$(BIN)/python experiments/motor-side/run.py
	$(BIN)/python experiments/torque/trajectories.py --random 20
	$(BIN)/python experiments/hammer-tests/run.py
	$(BIN)/python experiments/kr90-flexible-links/run.py
	$(BIN)/python experiments/surgiscope/run.py
	$(BIN)/python experiments/torque/run.py --seeds 40
	$(BIN)/python experiments/torque/payload.py --draws 100

# Distributions, checked, and tried in empty environments of three versions of Python; needs these and a network.
release: $(VENV)/installed-test
	$(BIN)/python experiments/release/run.py

# The versions that make installs, from the newest ones that the declared bounds allow.
lock: pyproject.toml
	rm -rf $(VENV)-lock && $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet '.[test,docs]'
	$(VENV)-lock/bin/python -m pip freeze --exclude jaxmb > constraints.txt
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) .cache results docs/_build docs/api docs/gallery .pytest_cache .ruff_cache .hypothesis .import_linter_cache
