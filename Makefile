# One entry for developers: `make help`. Needs Python 3.11, a C++20 compiler and make; pip brings the rest.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# What a parent's Python was told must not reach the environment of this checkout.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV CONDA_PREFIX TORCH_DEVICE_BACKEND_AUTOLOAD
unexport TORCHPORT_BACKEND VNPU_LIBRARIES PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
LIB := src/torchport/vnpu/lib
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# A CPU build of torch where the default index has another: an index to look in as well, or the file of a wheel.
TORCH_INDEX ?=
TORCH_WHEEL ?=
# The version is pinned in one place, pyproject.toml.
TORCH := $(or $(TORCH_WHEEL),$(shell sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml))
PIP := $(BIN)/python -m pip --disable-pip-version-check
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
# Folders too, so that a removed source is noticed.
SOURCES := CMakeLists.txt $(addprefix src/torchport/knowledge/,devices.toml faults.toml cann.toml) $(shell find csrc -not -name '*.pyc' -not -name __pycache__)
# These use the C API alone: no torch, which is not instrumented and would drown a report. A file may have others beside
# them, which `-m device` leaves out.
DEVICE_TESTS = $(shell grep -l 'mark[.]device' tests/vnpu/test_*.py tests/vnpu/distributed/test_*.py)
DEMO_TEST := tests/vnpu/port/test_ported_digits.py::test_fp32_holds_step_by_step
PYTEST := $(BIN)/python -m pytest -q
# $(call kept,name): the slowest tests are printed, and the time of each is kept for tests/durations.py.
kept = --durations 40 --junitxml build/durations/$(1).xml
PROCESS_TESTS = $(shell grep -l 'mark[.]processes' tests/unit/test_*.py)
# $(call marked,expression): the tests that fulfil it and are of no campaign.
marked = -m "$(shell $(BIN)/python tests/tiers.py "$(1)")"
, := ,
# Crashes are the sanitizer's to report. Without that plugin its options are unknown, which --strict-config refuses.
SANITIZED_PYTEST = $(BIN)/python -m pytest -p no:faulthandler -o addopts=-ra
CXX_FILES = $(shell find csrc tests -name '*.cpp' -o -name '*.h')
# One process more than cores: a quarter of the time a test waits for its program, which waits for a clock or another.
# A test that ends its process ends the run, as without -n; pytest-xdist 3.8 loses what failed before when it restarts one.
WORKERS = -n $$(($(JOBS) + 1)) --maxprocesses 8 --max-worker-restart 0
say = @printf '\n== %s\n' "$(1)"

.PHONY: help setup build demo test quick-python quick-npu check install-check mistakes models ports exports distributed kills recorded profiles exits libraries mindspore conformance upstream mutation verdict accuracy predictions blind corpus fuzz lint types format docs show asan tsan micro micro-address micro-thread bench clean distclean
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.packages build ## .venv with everything, and the virtual NPU (the second run does nothing)

build: $(LIB)/.built ## build the virtual NPU into src/torchport/vnpu/lib

# The verdict comes as soon as the libraries that a port needs are compiled, and the rest behind it.
demo: $(VENV)/.packages ## port examples/digits/train.py: convert, run on CPU and NPU, compare
	@$(MAKE) $(if $(wildcard $(LIB)/.built),build,$(LIB)/.port)
	$(BIN)/torchport port examples/digits/train.py -- --epochs 3
	@$(MAKE) build

# NAMES= and CHANGED= run what they choose and nothing else; tests/choose.py says how.
ifneq ($(NAMES)$(CHANGED),)
test: setup
	$(BIN)/python tests/choose.py $(if $(CHANGED),--changed) $(NAMES) | xargs -d '\n' -r $(BIN)/python -m pytest
else
test: setup ## lint, types and the quick tests (NAMES="index port" or CHANGED=1 for some)
	@$(MAKE) --jobs 2 --output-sync=line quick-python quick-npu
endif

# Two lanes of about the same length, with one thread each.
quick-python quick-npu: export OMP_NUM_THREADS ?= 1
quick-python: setup lint types
	$(call say,tests/unit$(,) the demo)
	$(PYTEST) tests/unit $(call marked,not processes) $(call kept,unit)
	$(PYTEST) $(DEMO_TEST) $(call kept,demo)

quick-npu: setup
	$(call say,tests/vnpu/ops$(,) the device)
	$(PYTEST) tests/vnpu/ops $(call kept,ops)
	$(PYTEST) -m device $(DEVICE_TESTS) $(call kept,device)

check: test ## everything that CI runs: `make test`, then recordings, ports, ranks, models, profilers, exports
	$(call say,the other tests of tests/unit)
	$(BIN)/python -m pytest $(WORKERS) $(PROCESS_TESTS) $(call marked,processes) $(call kept,processes)
	$(call say,the other tests of tests/vnpu)
	$(BIN)/python -m pytest $(WORKERS) tests/vnpu --ignore tests/vnpu/ops --deselect $(DEMO_TEST) $(call marked,not device) $(call kept,others)

install-check: setup ## `pip install` of this checkout into an environment of its own, compiled as users do it (minutes)
	$(BIN)/python -m pytest tests/vnpu/test_installation.py -m install -o faulthandler_timeout=0

mistakes: setup ## diagnose 40 failing scripts (8 minutes)
	$(BIN)/python -m pytest $(WORKERS) tests/vnpu/diagnose -m ""

models: setup ## compare whole models, CPU and NPU (too long for `make test`)
	$(BIN)/python -m pytest tests/vnpu/models -m models

# Each of these is near a test of `make test`, which would take too long with them.
MORE_PORTS := tests/vnpu/port $(addprefix tests/vnpu/test_,$(addsuffix .py,example_apex guide_imagenet run_examples \
	launcher launch_forms reference_decisions reference_compile unseen_failures without_autoload \
	injection))

ports: setup ## port more scripts, broken ports, examples and launchers (30 minutes)
	$(BIN)/python -m pytest $(WORKERS) $(MORE_PORTS) -m ports

predictions: setup ## check predictions of memory and step time, also of models held out (15 minutes)
	$(BIN)/python -m pytest tests/vnpu/predict -m predictions --timeout=900 -o faulthandler_timeout=0
	$(BIN)/python tools/calibrate_time.py --check
	$(BIN)/python tests/prediction/evaluate.py

exports: setup build/libraries/.installed ## whole models, ours and of libraries, to ONNX in opset 11 and the newest, and graphs that freeze values (20 minutes)
	$(BIN)/python -m pytest tests/vnpu/export -m exports -o faulthandler_timeout=0

distributed: setup ## run jobs of 4 ranks, and every fault in every collective (too long for `make test`)
	$(BIN)/python -m pytest tests/vnpu/distributed -m distributed

kills: setup ## kill `torchport port` at 30 random moments and start it again (10 minutes)
	TORCHPORT_KILLS=30 $(BIN)/python -m pytest tests/vnpu/port/test_driver.py -k kills -o faulthandler_timeout=0

recorded: setup ## kill recorded runs 200 times, damage recordings, compare with plain runs (20 minutes)
	TORCHPORT_KILLS=200 $(BIN)/python -m pytest tests/vnpu/test_record_kills.py tests/vnpu/test_record_operators.py \
		tests/vnpu/test_record_calls.py tests/unit/test_hostile_recordings.py tests/unit/test_record_readers.py \
		-m "" --timeout=1800 -o faulthandler_timeout=0

# Of others, with what they need; in an environment of their own, for they want other versions than ours.
# pysqlite3: advisor's queries need SQLite 3.44, which the Python of many systems has not.
PROFILE_TOOLS := msprof-analyze==26.2.0 HolisticTraceAnalysis==0.5.0 torch-tb-profiler-ascend==0.4.0.11 pysqlite3-binary
NEWER_SQLITE := import sys; import pysqlite3; sys.modules["sqlite3"] = pysqlite3
RUNS ?= 20
profiles: setup ## profile whole programs RUNS times, and open the profiles with Huawei's, Meta's and TensorBoard's tools (an hour)
	test -x build/profile_tools/bin/msprof-analyze || { $(PYTHON) -m venv build/profile_tools && \
		build/profile_tools/bin/pip install --disable-pip-version-check -q $(PROFILE_TOOLS) && \
		echo '$(NEWER_SQLITE)' > \
		"$$(build/profile_tools/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/newer_sqlite.pth"; }
	$(BIN)/python tests/profiles/run.py --runs $(RUNS) --tools build/profile_tools/bin/python
	$(BIN)/python -m pytest tests/vnpu/profiler -m ""

exits: setup ## exit status of training processes, 30 runs of each kind (10 minutes)
	TORCHPORT_EXITS=30 $(BIN)/python -m pytest tests/vnpu/test_exits.py -m "" -o faulthandler_timeout=0

corpus: $(VENV)/.packages ## convert the source of real packages (downloads them once); UPDATE=1 stores the counts
	$(BIN)/python -m pytest tests/corpus --timeout=1800 -o faulthandler_timeout=0 $(if $(UPDATE),--update-counts)

fuzz: $(VENV)/.packages ## convert 20,000 generated programs (half an hour); CASES= for another number
	$(PIP) install --quiet $(INDEX) 'hypothesmith>=0.3.3'
	TORCHPORT_FUZZ_CASES=$(or $(CASES),20000) $(BIN)/python -m pytest tests/fuzz --timeout=20000 -o faulthandler_timeout=0

conformance: setup ## PyTorch's operator database against status.json (5 minutes; NAMES="add relu" for some)
	$(BIN)/python tests/conformance/run.py $(NAMES)

# One file at a time unless JOBS= says otherwise: each has two processes, and tests with several ranks more.
upstream: setup build/upstream/packages/.installed ## torch_npu's, op-plugin's and MindSpore's own tests (3 hours; RESUME=1, SUITE=mint, NAMES="test_add.py", UPSTREAM=folder)
	$(BIN)/python tests/upstream/run.py $(if $(filter command%,$(origin JOBS)),--jobs $(JOBS)) $(if $(RESUME),--resume) \
	  $(if $(SUITE),--suite $(SUITE)) $(if $(UPSTREAM),--upstream "$(UPSTREAM)") $(NAMES)

build/upstream/packages/.installed: tests/upstream/requirements.txt
	$(PIP) install --quiet $(INDEX) --no-deps --upgrade --target $(@D) -r $<
	touch $@

mutation: setup ## mutation tests of the kernels (30 minutes; AGAIN=1 after adding a test)
	$(BIN)/python tests/mutation/run.py --jobs $(JOBS) $(if $(AGAIN),--again)

verdict: setup ## port 45 scripts, healthy and with 4 to 12 injected faults each, and healthy on a device with other sums (three hours)
	$(BIN)/python tests/verdict/run.py --jobs $(JOBS)
	$(BIN)/python tests/verdict/run.py --jobs $(JOBS) --reordered

accuracy: setup build/libraries/.installed ## find injected faults, ours and others', with `compare`, accuse none of 10 healthy pairs and 23 programs of others, name published errors of training, and print the cost (three quarters of an hour; SIDES="cpu isa npu")
	$(BIN)/python tests/accuracy/run.py $(SIDES)
	$(BIN)/python tests/accuracy/injected.py
	$(BIN)/python tests/accuracy/healthy.py
	$(BIN)/python tests/accuracy/foreign.py
	$(BIN)/python tests/accuracy/published.py
	$(BIN)/python -m pytest tests/unit/test_recording_sizes.py -m accuracy -o faulthandler_timeout=0

blind: setup ## analyze and convert 219 small cases of everyday code (CASES="amp devices" for some; RUNS=1 runs them)
	$(BIN)/python tests/blind/run.py $(if $(CASES),--cases $(CASES)) $(if $(RUNS),--runs)

libraries: setup build/libraries/.installed ## scripts with accelerate, diffusers, lightning, timm, transformers, ultralytics; recipes of lightning, OpenCLIP and torchtitan on 1 and 2 ranks
	$(BIN)/python -m pytest -o timeout=600 tests/libraries

build/libraries/.installed: tests/libraries/requirements.txt
	$(PIP) install --quiet $(INDEX) --no-deps --upgrade --target $(@D) -r $<
	touch $@

mindspore: build build/mindspore/.installed ## MindSpore on the virtual NPU, in an environment of its own (3.6 GB, made once)
	build/mindspore/bin/python -m pytest -n 2 --dist loadfile \
		$(if $(NAMES),$(addprefix tests/mindspore/,$(NAMES)),tests/mindspore) -o timeout=600

# torch before the others, of the build that .venv has. The checkout is on its path; nothing of it is compiled there.
build/mindspore/.installed: tests/mindspore/requirements.txt | $(VENV)/.packages
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet $(INDEX) --no-deps $(TORCH)
	$(@D)/bin/python -m pip install --quiet $(INDEX) $(TORCH) -r $<
	echo '$(CURDIR)/src' > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torchport_checkout.pth"
	touch $@

lint: $(VENV)/.packages ## style, import rules
	$(call say,lint)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	$(BIN)/lint-imports
	$(BIN)/python tools/check_prose.py
	$(BIN)/python tools/check_clocks.py

types: $(VENV)/.packages ## mypy --strict
	$(call say,types)
	$(BIN)/mypy

format: $(VENV)/.packages ## rewrite Python and C++ in the project's style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

docs: setup ## write the generated pages of docs/
	$(BIN)/python tools/reference_pages.py
	$(BIN)/python tools/terminal_picture.py docs/demo.svg torchport port examples/digits/train.py -- --epochs 3

show: ## what the macro makes of an operator's line (OP=aclnnAdd), after `make build`
	@$(BIN)/python tools/show_operator.py $(OP)

asan tsan: export TORCHPORT_THREADS_SECONDS ?= 60
asan: export TORCHPORT_RANDOM_SECONDS ?= 60

asan: build/address/.built ## operator and device tests under AddressSanitizer and UBSanitizer
	tools/sanitized address $(SANITIZED_PYTEST) tests/vnpu/ops $(DEVICE_TESTS)

micro: micro-address micro-thread ## the sanitizers' small set, which CI runs: device tests under both (-j2: at the same time)

micro-address: build/address-device/.built
	tools/sanitized address-device $(SANITIZED_PYTEST) -m device $(DEVICE_TESTS)

micro-thread: build/thread/.built
	tools/sanitized thread $(SANITIZED_PYTEST) -m device $(DEVICE_TESTS)

tsan: build/thread/.built ## device tests under ThreadSanitizer
	tools/sanitized thread $(SANITIZED_PYTEST) -m device $(DEVICE_TESTS)

bench: setup ## all benchmarks; each prints ratios measured in one run
	for file in benchmarks/*.py; do $(BIN)/python $$file; done

clean: ## remove what was built
	rm -rf build $(LIB)

distclean: clean ## remove .venv and caches too
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(call say,$(VENV) with $(PYTHON))
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"torchport needs Python 3.11, this is {v.major}.{v.minor}: make setup PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 2; }

# torch alone first: a wrong build is refused before its gigabytes of CUDA libraries are downloaded.
$(VENV)/.packages: pyproject.toml tools/backend/torchport_build.py | $(BIN)/python
	$(call say,torch (CPU build))
	$(PIP) install --no-deps $(INDEX) $(TORCH)
	@cd src && ../$(BIN)/python -m torchport.vnpu.wheels || { ../$(PIP) uninstall -qy torch; exit 2; }
	$(call say,torch_npu and the development tools)
	$(PIP) install $(INDEX) "$$(sed -n 's/.*"\(scikit-build-core[^"]*\)".*/\1/p' pyproject.toml | head -1)" $(TORCH)
	$(PIP) install $(INDEX) --no-build-isolation --editable '.[npu,examples,dev]'
	$(BIN)/python -c "import sys; from torchport.cuda_builds import main; sys.exit(main())"
	touch $@

# Of the install components, Unspecified is every file but those marked `later` in CMakeLists.txt.
$(LIB)/.port: $(VENV)/.packages $(SOURCES)
	$(call say,the virtual NPU as far as a port needs it: build/ with $(JOBS) jobs)
	@mkdir -p $(@D) && touch $@.begun
	$(call compile,build/release,,--target port_libraries,--component Unspecified)
	mv $@.begun $@

# The stamp is as old as the beginning: what is edited during a build is built by the next.
$(LIB)/.built: $(VENV)/.packages $(SOURCES)
	$(call say,the virtual NPU: build/ with $(JOBS) jobs)
	@mkdir -p $(@D) && touch $@.begun
	$(call compile,build/release)
	mv $@.begun $@

# build/thread, build/address, build/address-device: a sanitizer, and -device for the build without operators.
build/%/.built: $(VENV)/.packages $(SOURCES)
	$(call say,the virtual NPU with -fsanitize=$*)
	@mkdir -p $(@D) && touch $@.begun
	$(call compile,build/$*,-DTORCHPORT_SANITIZE=$(firstword $(subst -, ,$*)) -DTORCHPORT_LIB_DIR="$(CURDIR)/build/$*/lib" \
	  -DTORCHPORT_OPERATORS=$(if $(filter address,$*),ON,OFF))
	mv $@.begun $@

# $(call compile,folder,options): configure, build, install. Ninja does what has changed.
define compile
	$(BIN)/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
	  -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -DCMAKE_INSTALL_MESSAGE=NEVER $(2)
	$(BIN)/cmake --build $(1) --parallel $(JOBS) $(3)
	$(BIN)/python csrc/unity.py $(1)
	$(BIN)/cmake --install $(1) $(4)
endef
