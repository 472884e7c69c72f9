# Two words do everything: `make demo` and `make test`. Python 3.11+ and make are all they need.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
BUILT  := $(VENV)/.built
# Whoever builds a wheel here, in vain perhaps, removes the machine code that was there: then it is built anew.
ifneq ($(shell grep -s compiled $(BUILT)),)
ifeq ($(wildcard *__mypyc*.so),)
$(shell rm -f $(BUILT))
endif
endif
# What mypyc compiles, as pyproject.toml lists it: an edited source must not be shadowed by its old machine code.
HOT    := $(shell sed -n 's|^ *"/\(.*\.py\)",$$|\1|p' pyproject.toml)
MACHINE_CODE := $(addsuffix *.so,$(sort $(dir $(HOT)))) ./*__mypyc*.so
BROKER ?= standin
PIP    := --quiet --disable-pip-version-check
# Tests start hundreds of processes: each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env check demo bench bench-short bench-limits bench-fleets bench-compliance test lint format \
        types imports quick unit beside fuzz locks proto references clean

help: ## List what can be made
	@grep -E '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

env: $(BUILT) ## Make the environment in .venv (all versions pinned by hash)

# pip would compile one file after the other; some of them cannot be. It unpacks one package after the other, too: two of
# it share the lock, as Spark takes as long as all others. That has all that is needed.
INSTALL := $(BIN)/python -m pip install $(PIP) --no-compile --no-deps --require-hashes
$(STAMP): requirements/all.lock requirements/java.lock pyproject.toml
	@echo "making the environment in $(VENV) (once; a few minutes, Spark is large)"
	$(PYTHON) -m venv $(VENV)
	@awk '/^[a-z]/ {is_spark = /^(pyspark|py4j)==/} is_spark' requirements/all.lock > $(VENV)/spark.lock
	@awk '/^[a-z]/ {is_spark = /^(pyspark|py4j)==/} !is_spark' requirements/all.lock > $(VENV)/others.lock
	$(INSTALL) -r $(VENV)/spark.lock & spark=$$!; $(INSTALL) -r $(VENV)/others.lock && wait $$spark
	@$(BIN)/python -m compliance.java --installed || $(BIN)/python -m pip install $(PIP) --require-hashes -r requirements/java.lock
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

$(BUILT): $(STAMP) $(HOT) hatch_build.py
	@rm -f $(MACHINE_CODE)
	@echo "building Sluice, its hot modules compiled if there is a C compiler (a minute)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install $(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/sluice version > $@
	@cat $@

demo: env ## The whole job end to end in a minute or two (BROKER=real for a real Pulsar)
	$(BIN)/python -m demo --broker $(BROKER)

check: env format-check lint types imports quick ## Format, lint, types, imports, unit and conversation tests (three minutes)

test: $(STAMP) ## Everything that CI checks (a quarter of an hour)
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	tar -cf - --exclude=./.venv --exclude=./.git --exclude=./build --exclude='*.so' . | tar -xf - -C "$$copy" && \
	$(MAKE) --no-print-directory -j2 COPY="$$copy" $(BUILT) beside
	$(BIN)/pytest $(THREE)

.PHONY: format-check
# While Sluice is built, pyproject.toml is elsewhere: whoever reads it waits.
format-check format lint types imports quick unit: | $(BUILT)
format-check:
	$(BIN)/ruff format --check .

bench: env ## The data path beside HAProxy, the official proxy and a bare forwarder, into docs/benchmarks.md (three quarters of an hour)
	$(BIN)/python -m bench data-path --real --write docs/benchmarks.md

bench-short: env ## The same beside the bare forwarder alone: fails if Sluice has become slower (two minutes)
	$(BIN)/python -m bench data-path --short

bench-limits: env ## A real broker's own limits beside Sluice's, into docs/benchmarks.md (a quarter of an hour; Java 17+, Maven)
	$(BIN)/python -m bench limits --write docs/benchmarks.md

bench-fleets: env ## What happens to fleets before a real cluster, into docs/benchmarks.md (half an hour; Java 17+, Maven)
	$(BIN)/python -m bench fleets --write docs/benchmarks.md

bench-compliance: env ## The Spark job beside Spark's own reading of the same files, into docs/benchmarks.md (an hour)
	$(BIN)/python -m bench compliance --write docs/benchmarks.md

lint:
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

# Who shares a broker or a Spark session stays in one process (tests/conftest.py). Of three, one waits for real brokers
# for a third of its time, and the two others give way to it: two processes would leave a fifth of two cores idle.
GROUPED := --dist loadgroup --no-loadscope-reorder
TWO     := -n 2 $(GROUPED)
THREE   := -n 3 $(GROUPED)
QUICK  := not whole and not real and not spark and not slow and not prometheus and not jdk

quick:
	$(BIN)/pytest -q $(TWO) -m "$(QUICK)"

# What mypyc compiles is run as Python, too, by the properties, the machines and the conversations of it. Not these: their
# minutes of traffic go over the same sums again and again.
COMPILED   := tests/protocol tests/limiter tests/proxy/session tests/proxy/test_*budget.py tests/proxy/test_admission_control.py \
              tests/proxy/brokers
SIMULATIONS := $(addprefix --ignore=tests/limiter/,test_backfilling.py test_fairness.py test_idle_consumers.py \
               test_scheduler_machine.py)

INTERPRETED := -q $(TWO) -p tests.interpreted -m "$(QUICK)" $(SIMULATIONS) $(COMPILED)

MINUTES ?= 30
# Known: a log of two nested steps of the clock (1 in 1000 of these) is said to contradict itself.
FUZZED  := -m hypothesis --hypothesis-profile=fuzz --ignore=tests/compliance/judging/test_steps.py

fuzz: env ## Look for MINUTES (30) for examples that fail; the tests themselves try the same ones each time
	@until=$$(($$(date +%s) + 60 * $(MINUTES))); while [ $$(date +%s) -lt $$until ]; do \
	$(BIN)/pytest -q $(TWO) $(FUZZED) || exit 1; done

unit:
	@echo "what is compiled, interpreted; then everything"
	$(BIN)/pytest $(INTERPRETED)
	$(BIN)/pytest $(THREE)

# In $(COPY), as the build takes pyproject.toml away: what needs no machine code goes on while that is made, which leaves
# a processor idle.
IN_COPY = cd "$(COPY)" && $(CURDIR)/$(BIN)/

beside:
	$(IN_COPY)ruff format --check .
	$(IN_COPY)ruff check .
	$(IN_COPY)mypy --cache-dir "$(CURDIR)/.mypy_cache"
	$(IN_COPY)lint-imports
	@echo "what is compiled, interpreted"
	$(IN_COPY)pytest $(INTERPRETED)

format: env ## Format and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: env ## Make protocol/pulsar_pb2.py and fleet/fleet_pb2.py anew from their .proto
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. protocol/pulsar.proto fleet/fleet.proto

LOCK := $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

locks: env ## Resolve the pinned versions anew (names, versions and hashes; no addresses)
	$(LOCK) --extra report --extra load --extra build --extra dev --output-file requirements/all.lock pyproject.toml
	$(LOCK) --output-file requirements/proxy.lock pyproject.toml
	$(LOCK) --only-build-deps --all-build-deps --output-file requirements/build.lock pyproject.toml

references: env ## Make the pages of docs/ that are generated from the code anew
	$(BIN)/python -m proxy.config.reference > docs/configuration.md
	$(BIN)/python -m proxy.config.reference --yaml > docs/sluice.yaml
	$(BIN)/python -m accesslog.reference > docs/access-log.md
	$(BIN)/python -m proxy.admin.metrics_reference > docs/metrics.md
	$(BIN)/python -m sluice.reference > docs/commands.md

clean: ## Remove the environment and all that was made
	rm -rf $(VENV) $(MACHINE_CODE) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo/out demo/report.html
