# `make demo` and `make test` do all their own set-up on a fresh Debian 12 machine.
BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: help setup build demo test model format sanitize simulate parity bench-data shapes chaos bench-recovery clean

help:
	@echo "make demo      set up, build, train the solar-cell job on 4 CPU ranks and follow it"
	@echo "make test      set up, build, run all tests"
	@echo "make build     set up and build into $(BUILD)/bin"
	@echo "make chaos     kill ranks some hundreds of times at random and compare every bit with calm runs"
	@echo "make bench-recovery  what a killed rank costs, beside torchrun where .venv-parity is there"
	@echo "make sanitize  build and run the tests free of LibTorch under ASan and UBSan"
	@echo "make tsan      build and run the concurrent tests free of gRPC under ThreadSanitizer"
	@echo "make bench-control      load on a coordinator: submissions, 100 kills, streams, agents, restart"
	@echo "make chaos-coordinator  50 kills of the coordinator under one job, ten minutes on busy cores"
	@echo "make fuzz-rpc           ten minutes of malformed and extreme messages to every RPC"
	@echo "make parity    make timm's and transformers' reference outputs anew and check ours against them (4.7 GB)"
	@echo "make bench-data compare the loader with torchvision and bare decoding on one core (4.7 GB)"
	@echo "make model     search the recovery protocol's model with larger bounds (minutes, some GB)"
	@echo "make shapes    32 ranks as TP 4 x DP 8, and ViT-L/16@224 as TP 4 x DP 2 against TP 1 (20 GiB, minutes)"
	@echo "make simulate  a million random events through the scheduler, every invariant checked at each"
	@echo "make format    clang-format over the tree"

setup:
	@deploy/dev/setup.sh

$(BUILD)/build.ninja: | setup
	cmake -S . -B $(BUILD) -G Ninja $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

build: setup $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS)

demo: build
	deploy/dev/demo.sh $(BUILD)

test: build
	cd $(BUILD) && ctest --output-on-failure --timeout 600

model: setup
	tests/model/check.sh large

chaos: build
	TUNDISH_CHAOS_KILLS=240 $(BUILD)/tests/chaos_test
	TUNDISH_BUILD=$(abspath $(BUILD)) .venv/bin/python -m pytest -q -p no:cacheprovider -rA tests/e2e/test_failure_kinds.py

bench-recovery: build
	TUNDISH_BUILD=$(BUILD) .venv/bin/python bench/recovery/recovery_bench.py \
	  $(if $(wildcard .venv-parity/bin/python),--peer .venv-parity/bin/python)

sanitize: setup
	cmake -S . -B build-asan -G Ninja -DTUNDISH_SANITIZE=ON $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
	cmake --build build-asan -j $(JOBS)
	cd build-asan && ctest --output-on-failure -L no_torch

.PHONY: tsan bench-control chaos-coordinator fuzz-rpc
# gRPC's own library is not built for ThreadSanitizer: only what does without it.
TSAN_TESTS = store_test store_upkeep_test committer_test core_life_test core_stream_test core_upkeep_test core_membership_test
tsan: setup
	cmake -S . -B build-tsan -G Ninja -DTUNDISH_TSAN=ON $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
	cmake --build build-tsan -j $(JOBS) --target $(TSAN_TESTS)
	for test in $(TSAN_TESTS); do build-tsan/tests/$$test || exit 1; done

CONTROL = $(BUILD)/bin/control_bench --scratch $(BUILD)
bench-control: build
	$(CONTROL) submit
	$(CONTROL) kills --kills 100
	$(CONTROL) streams
	$(CONTROL) agents
	$(CONTROL) restart

chaos-coordinator: build
	TUNDISH_BUILD=$(abspath $(BUILD)) TUNDISH_KILLS=50 TUNDISH_SATURATE_SECONDS=600 \
	.venv/bin/python -m pytest -q -p no:cacheprovider -rA tests/e2e/test_control_plane.py -k "non_event or busy_machine"

fuzz-rpc: build
	$(CONTROL) --seed $$(date +%s) fuzz --seconds 600

simulate: build
	TUNDISH_SIMULATED_EVENTS=1000000 $(BUILD)/tests/scheduler_test --gtest_filter='SimulationTest.*'

.venv-parity/.installed: deploy/dev/requirements-parity.txt
	/usr/bin/python3 -m venv .venv-parity
	.venv-parity/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

parity: build .venv-parity/.installed
	.venv-parity/bin/python tests/parity/make_fixtures.py
	.venv-parity/bin/python tests/parity/make_formula_fixtures.py
	rm -rf $(BUILD)/parity
	TUNDISH_PARITY_OUTPUT=$(BUILD)/parity $(BUILD)/tests/parity_test
	.venv-parity/bin/python tests/parity/check_exports.py $(BUILD)/parity

bench-data: build .venv-parity/.installed
	cmake --build $(BUILD) -j $(JOBS) --target data_bench
	.venv-parity/bin/python bench/data/run.py $(BUILD)/bin/data_bench \
	  $$(.venv/bin/python -c 'import elpv_dataset, os; print(os.path.dirname(elpv_dataset.__file__))')/data/images

shapes: build
	TUNDISH_SHAPES=full TUNDISH_BUILD=$(abspath $(BUILD)) PYTHONDONTWRITEBYTECODE=1 \
	  .venv/bin/python -m pytest -q -s -p no:cacheprovider tests/e2e/test_shapes.py

format:
	git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	rm -rf build build-*
