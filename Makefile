# Two words do everything: `make demo` and `make test`. Python 3.11+ and make are all they need. What takes more than a
# line is in tools/.

PYTHON  ?= python3
BROKER  ?= standin
MINUTES ?= 30
WHAT    ?= --help
BIN     := .venv/bin
export PYTHON

.PHONY: help env demo check test proofs static quick format fuzz bench bench-short bench-limits bench-fleets \
        bench-compliance proto references site helm manifests locks clean

help: ## List what can be made
	@grep -E '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

env: ## Make the environment in .venv (all versions pinned by hash)
	@tools/environment

demo: env ## The whole job end to end in a minute or two (BROKER=real: a real Pulsar; HOLD=1: the console stays open)
	$(BIN)/python -m demo --broker $(BROKER) $(if $(HOLD),--hold)

check: env ## Format, lint, types, imports, unit and conversation tests (2.5 minutes)
	@tools/tests static quick

test: ## All tests but the slow ones, with real brokers, and what make check does (eleven minutes on two cores)
	@tools/tests usual

proofs: ## Everything that CI checks: the slow tests, too, and what is compiled, interpreted (twenty minutes)
	@tools/tests all

static: env ## Format, lint, types and imports
	@tools/tests static

quick: env ## Unit and conversation tests
	@tools/tests quick

format: env ## Format and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: env ## Look for MINUTES (30) for examples that fail; the tests themselves try the same ones each time
	@tools/tests fuzz $(MINUTES)

bench: env ## Run a benchmark, WHAT="limits --only shares"; without WHAT: list them
	$(BIN)/python -m bench $(WHAT)

bench-short: ## The data path beside the bare forwarder: fails if Sluice has become slower (two minutes)
	@$(MAKE) --no-print-directory bench WHAT="data-path --short"

bench-limits: ## A real broker's limits beside Sluice's, into docs/benchmarks.md (Java 17+, Maven)
	@$(MAKE) --no-print-directory bench WHAT="limits --write docs/benchmarks.md"

bench-fleets: ## What happens to fleets before a real cluster, into docs/benchmarks.md (Java 17+, Maven)
	@$(MAKE) --no-print-directory bench WHAT="fleets --write docs/benchmarks.md"

bench-compliance: ## The Spark job beside Spark's own reading, into docs/benchmarks.md (an hour)
	@$(MAKE) --no-print-directory bench WHAT="compliance --write docs/benchmarks.md"

proto: env ## Make protocol/pulsar_pb2.py and fleet/fleet_pb2.py from their .proto
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. protocol/pulsar.proto fleet/fleet.proto

references: env ## Make the pages of docs/ that are generated from the code
	@tools/references

site: env ## Make the site of docs/ in build/site
	@tools/site

helm: env ## Get Helm and the schemas of Kubernetes into .venv (Go; ten minutes)
	@tools/helm

manifests: env ## Make deploy/kubernetes from the chart (after make helm)
	$(BIN)/python -m tools.chart manifests

locks: env ## Resolve the pinned versions in requirements/ (names, versions and hashes; no addresses)
	@tools/locks

clean: ## Remove the environment and all that was made
	find . -name '*.so' -not -path './.venv/*' -delete
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo/out demo/report.html
