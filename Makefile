# Everything here sets up what it needs, from Python 3.10 or newer and make alone.
# Environments are in .venv/; `make clean` removes them.

PYTHON ?= python3
export PYTHON
# A TVM or TileLang on it would hide the one that is to be tested.
unexport PYTHONPATH

TVM := tvm-0.27
TVM_VERSIONS := tvm-0.25 tvm-0.26 tvm-0.27
PYTEST := -m pytest -q

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-unit test-oldest test-tilelang test-all $(addprefix test-,$(TVM_VERSIONS)) \
	check format bench bench-tilelang e2e e2e-tilelang wheel-test clean

help: ## Show this list
	@echo 'make PYTHON=python3.12 TARGET takes another Python than python3. Targets:'
	@sed -n 's/^\(# \)\{0,1\}\([a-z][a-z0-9., -]*\):.*## /\2\t/p' $(MAKEFILE_LIST) | expand -t 32

demo: ## Compile a transformer block and show what the compile did
	@tests/environments/set_up.sh $(TVM) .venv/$(TVM)
	@.venv/$(TVM)/bin/tilelang-otel demo

test: ## Run the tests, on the newest TVM
	@tests/environments/set_up.sh $(TVM) .venv/$(TVM)
	TILELANG_OTEL_TEST_ENV=tvm .venv/$(TVM)/bin/python $(PYTEST) \
		tests/unit tests/contract tests/integration

test-unit: ## Run the unit tests: no compiler, a few seconds
	@tests/environments/set_up.sh none .venv/none
	TILELANG_OTEL_TEST_ENV=none .venv/none/bin/python $(PYTEST) tests/unit

test-oldest: ## The same with the oldest OpenTelemetry that is supported
	@tests/environments/set_up.sh oldest .venv/oldest
	TILELANG_OTEL_TEST_ENV=none .venv/oldest/bin/python $(PYTEST) tests/unit

# test-tvm-0.25, -0.26, -0.27: ## Run what depends on the compiler, on that TVM
$(addprefix test-,$(TVM_VERSIONS)): test-%:
	@tests/environments/set_up.sh $* .venv/$*
	TILELANG_OTEL_TEST_ENV=tvm .venv/$*/bin/python $(PYTEST) tests/contract tests/integration

test-tilelang: ## Run the tests on TileLang (installs 6 GB once, outside the checkout)
	@tests/environments/set_up.sh tilelang .venv/tilelang
	TILELANG_OTEL_TEST_ENV=tilelang .venv/tilelang/bin/python $(PYTEST) \
		tests/unit tests/contract/test_tilelang_*.py tests/integration/test_tilelang_*.py

test-all: test test-tvm-0.25 test-tvm-0.26 ## Run the tests on every supported TVM

check: ## Lint, check the format, check types
	@tests/environments/set_up.sh $(TVM) .venv/$(TVM)
	@# pyright is a Node program, and would fetch a Node from elsewhere than the package index.
	@command -v node >/dev/null || .venv/$(TVM)/bin/python -m pip install --quiet \
		--constraint tests/environments/constraints.txt 'pyright[nodejs]'
	.venv/$(TVM)/bin/ruff check
	.venv/$(TVM)/bin/ruff format --check
	.venv/$(TVM)/bin/pyright --pythonpath .venv/$(TVM)/bin/python

format: ## Format, and mend what can be mended
	@tests/environments/set_up.sh $(TVM) .venv/$(TVM)
	.venv/$(TVM)/bin/ruff format
	.venv/$(TVM)/bin/ruff check --fix

e2e: ## Run against the real Jaeger, Collector and Prometheus (builds them once, with Go)
	@tests/environments/set_up.sh $(TVM) .venv/$(TVM)
	@.venv/$(TVM)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint tests/environments/constraints.txt kubernetes-validate==1.37.0
	@tests/e2e/build.sh
	TILELANG_OTEL_TEST_ENV=tvm .venv/$(TVM)/bin/python $(PYTEST) tests/e2e \
		--ignore tests/e2e/test_jaeger_tilelang.py

e2e-tilelang: ## The same for a TileLang kernel in Jaeger
	@tests/environments/set_up.sh tilelang .venv/tilelang
	@tests/e2e/build.sh
	TILELANG_OTEL_TEST_ENV=tilelang .venv/tilelang/bin/python $(PYTEST) \
		tests/e2e/test_jaeger_tilelang.py

bench: ## Measure what tracing costs (ARGS=--quick: in a minute)
	@tests/environments/set_up.sh $(TVM) .venv/$(TVM)
	.venv/$(TVM)/bin/python -m tests.benchmarks $(ARGS)

bench-tilelang: ## Measure what it costs the lowering of a TileLang kernel
	@tests/environments/set_up.sh tilelang .venv/tilelang
	.venv/tilelang/bin/python -m tests.benchmarks.tilelang $(ARGS)

wheel-test: ## Install the wheel into an environment of its own, and run the demo there
	@tests/environments/set_up.sh $(TVM) .venv/$(TVM)
	TILELANG_OTEL_TEST_ENV=tvm .venv/$(TVM)/bin/python $(PYTEST) tests/wheel

clean: ## Remove the environments and what was built
	rm -rf .venv dist build .pytest_cache .ruff_cache
	find tilelang_otel tests -name __pycache__ -type d -prune -exec rm -rf {} +
