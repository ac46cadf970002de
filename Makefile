# `make demo` and `make test` do all their own set-up on a fresh Debian 12 machine.
BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: help setup build demo test model format sanitize parity bench-data shapes clean

help:
	@echo "make demo      set up, build, train the solar-cell job on 4 CPU ranks and follow it"
	@echo "make test      set up, build, run all tests"
	@echo "make build     set up and build into $(BUILD)/bin"
	@echo "make sanitize  build and run the tests free of LibTorch under ASan and UBSan"
	@echo "make parity    make timm's and transformers' reference outputs anew and check ours against them (4.7 GB)"
	@echo "make bench-data compare the loader with torchvision and bare decoding on one core (4.7 GB)"
	@echo "make model     search the recovery protocol's model with larger bounds (minutes, some GB)"
	@echo "make shapes    32 ranks as TP 4 x DP 8, and ViT-L/16@224 as TP 4 x DP 2 against TP 1 (20 GiB, minutes)"
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

sanitize: setup
	cmake -S . -B build-asan -G Ninja -DTUNDISH_SANITIZE=ON $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
	cmake --build build-asan -j $(JOBS)
	cd build-asan && ctest --output-on-failure -L no_torch

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
