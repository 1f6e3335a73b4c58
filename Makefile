# Set-up, tests and tools. On a fresh machine `make test` needs only Python, a C++20 compiler and
# make: everything else comes from PyPI into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One worker per processor. PYTEST_ARGS="-n 0" runs all tests in one process.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadgroup $(PYTEST_ARGS)

BUILD := build/dev
# The build uses the tools of the environment, so that repeated builds are incremental.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
BUILD_TOOLS := pip scikit-build-core nanobind cmake ninja typing_extensions
CONFIG := --no-build-isolation -Cbuild-dir=$(BUILD) -Ccmake.define.ARCGRAD_WERROR=ON \
  -Ccmake.define.ARCGRAD_TESTS=ON -Ccmake.define.CMAKE_EXPORT_COMPILE_COMMANDS=ON

# Folders are listed too: their modification time changes when a file is added or removed.
CORE := $(shell find csrc bindings cmake tests/cpp 2>/dev/null) CMakeLists.txt pyproject.toml
PACKAGE := $(shell find python -name __pycache__ -prune -o -name _core.pyi -o -type f -print)
CPP_FILES = $(shell find csrc bindings examples tests -name '*.h' -o -name '*.cpp')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install test test-long test-torch test-ray test-compiler test-sdist lint format tidy \
  example wheel wheels test-wheels demo figure1 bench docs faults fuzz sanitize sanitize-address \
  sanitize-thread constraints clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' Makefile

# Set-up

$(VENV)/.tools: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else \
	  "arcgrad needs Python 3.10 or newer, but $(PYTHON) is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --upgrade $(BUILD_TOOLS)
	@touch $@

$(VENV)/.installed: $(VENV)/.tools $(CORE)
	$(PIP_INSTALL) $(CONFIG) -e '.[dev]'
	@touch $@

install: $(VENV)/.installed ## Set up .venv with arcgrad (editable) and the development tools

# Checks

test: lint example wheel ## Set up, check everything, run the tests
	$(BIN)/ctest --test-dir $(BUILD) --output-on-failure
	$(PYTEST)

test-long: install ## The tests with many more random graphs
	HYPOTHESIS_PROFILE=nightly $(PYTEST) -o faulthandler_timeout=7200

fuzz: install ## Damage 100,000 files: every reader must refuse them with one clear error
	$(BIN)/python tests/support/fuzzing.py $(FUZZ_ARGS)

test-torch: wheel ## The torch tests with the oldest and the newest torch, and NumPy 1.26 and 2
	$(BIN)/python scripts/test_torch.py build/wheel/*.whl build/torch -n logical \
	  --maxprocesses 4 --dist loadgroup $(PYTEST_ARGS)

# Ray is too large for .venv, so it has an environment that takes every other package from .venv.
RAY := build/ray
test-ray: install ## A corpus on a local Ray cluster of two nodes, one of which is killed
	$(BIN)/python -m venv --without-pip $(RAY)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > $$($(RAY)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tools.pth
	$(BIN)/python -m pip --python $(RAY) install --quiet --disable-pip-version-check \
	  -c constraints.txt ray
	$(RAY)/bin/python -m pytest $(PYTEST_ARGS) tests/ray

# The library, the bindings, the C++ tests and a user's program with another compiler.
COMPILER = build/compiler/$(notdir $(CXX))
test-compiler: $(VENV)/.tools ## Build everything with CXX, run the C++ tests and the example
	CXX=$(CXX) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
	  $(subst $(BUILD),$(COMPILER),$(CONFIG)) -w $(COMPILER)/wheel .
	$(BIN)/python scripts/check_wheel.py $(COMPILER)/wheel/*.whl
	$(BIN)/ctest --test-dir $(COMPILER) --output-on-failure
	$(call run_example,$(COMPILER),$(COMPILER)/example,-DCMAKE_CXX_COMPILER=$(CXX))

# The package is unpacked outside of the checkout, so that nothing of the checkout is used.
test-sdist: install ## Build the source distribution; test and document the package from it alone
	rm -rf build/sdist
	$(BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("build/sdist")'
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	  tar -xzf build/sdist/*.tar.gz -C "$$folder" --strip-components 1 && \
	  $(MAKE) -C "$$folder" PYTHON=$(CURDIR)/$(BIN)/python test docs

faults: install ## Seed faults into the core one by one: the tests must find each (a clean tree)
	$(BIN)/python scripts/seed_faults.py

lint: install ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	$(BIN)/typos
	$(BIN)/mypy

format: install ## Format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

tidy: install ## Run clang-tidy
	$(PIP_INSTALL) clang-tidy
	$(BIN)/clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p $(BUILD) \
	  $(filter csrc/%.cpp,$(CPP_FILES))

# $(call run_example,build folder of the library,folder for the example)
define run_example
	$(BIN)/cmake --install $(1) --component cpp --prefix $(2)/prefix > $(1)/prefix.log
	$(BIN)/cmake -S examples/cpp -B $(2) -G Ninja --log-level=WARNING \
	  -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DCMAKE_PREFIX_PATH=$(CURDIR)/$(2)/prefix $(3)
	$(BIN)/cmake --build $(2)
	$(2)/figure1
endef

example: install ## Build and run the C++ example against the installed CMake package
	$(call run_example,$(BUILD),build/example)

build/wheel/.built: $(VENV)/.installed $(PACKAGE) scripts/check_wheel.py
	rm -rf build/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check $(CONFIG) --no-deps \
	  -w build/wheel .
	$(BIN)/python scripts/check_wheel.py build/wheel/*.whl
	@touch $@

wheel: build/wheel/.built ## Build a wheel and check what is in it

# Built by other compilers than the development build, so they are tested again.
wheels: ## Build the sdist and manylinux wheels for x86-64 and 64-bit ARM into build/wheels
	$(PYTHON) scripts/build_wheels.py build/wheels

test-wheels: ## Install each wheel of build/wheels into an empty environment and test it
	$(PYTHON) scripts/test_wheels.py build/wheels $(if $(ARM_ROOT),--arm-root $(ARM_ROOT))

# A separate environment that takes every package but arcgrad from .venv. Its interpreter is a real
# binary, because a sanitizer cannot be preloaded into a wrapper script. The locks of the sanitizers
# do not survive a fork while another thread allocates, so the test of that case is deselected.
sanitize-address: SANITIZE := address,undefined
sanitize-address: RUNTIME := libasan.so
sanitize-thread: SANITIZE := thread
sanitize-thread: RUNTIME := libtsan.so
sanitize-address sanitize-thread: DIR = build/$@
sanitize-address sanitize-thread: install
	$(BIN)/python -m venv --without-pip $(DIR)/venv
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > $$($(DIR)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tools.pth
	$(BIN)/python -m pip --python $(DIR)/venv install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --force-reinstall -Cbuild-dir=$(DIR)/cmake -Ccmake.build-type=Debug \
	  -Ccmake.define.CMAKE_CXX_FLAGS_DEBUG='-O1 -g' -Ccmake.define.ARCGRAD_SANITIZE=$(SANITIZE) .
	LD_PRELOAD="$$($(CXX) -print-file-name=$(RUNTIME)) $$($(CXX) -print-file-name=libstdc++.so.6)" \
	  ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:suppressions=$(CURDIR)/scripts/tsan.supp \
	  OPENBLAS_NUM_THREADS=1 \
	  $(DIR)/venv/bin/python -m pytest -p no:cacheprovider --capture=sys $(PYTEST_ARGS) \
	  --deselect tests/core/test_batch.py::test_a_forked_child_works_even_while_the_parent_does

sanitize: sanitize-address sanitize-thread ## Run the tests under ASan+UBSan (sanitize-address), then TSan (-thread)

# Programs and pages

demo: install ## Train a recogniser of handwriting for 3 minutes, show what it does, write report.html
	rm -rf build/demo
	$(BIN)/arcgrad train demo --out build/demo/run --max-seconds 170
	$(BIN)/arcgrad test build/demo/run --show 8 --images --pictures build/demo
	$(BIN)/arcgrad report build/demo/run --out build/demo/report.html

figure1: install ## Run the paper's Figure 1 and draw its graphs into build/figure1
	$(BIN)/python examples/figure1.py build/figure1

bench: install ## Run the benchmarks
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

$(VENV)/.docs: $(VENV)/.installed
	$(PIP_INSTALL) $(CONFIG) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs ## Build the documentation into build/docs
	$(BIN)/python -m sphinx -W --keep-going -q docs build/docs

# torch pins its GPU packages itself.
constraints: install ## Pin the newest versions of all dependencies in constraints.txt
	$(PIP_INSTALL) uv
	{ echo "# Pins the development environment; written by 'make constraints'."; \
	  printf 'torch==2.13.0\nclang-tidy\npip\nuv\n' | $(BIN)/uv pip compile --quiet --universal \
	    --python-version 3.10 --all-extras --no-header --no-annotate --upgrade pyproject.toml - \
	    | grep -v -E '^(cuda|nvidia|triton)'; } > build/constraints.txt
	cp build/constraints.txt constraints.txt

clean: ## Remove what the build and the tools wrote
	rm -rf build docs/generated python/arcgrad/_core.pyi $(VENV)/.installed $(VENV)/.docs
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	rm -rf $(VENV)
