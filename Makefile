# `make demo` and `make test` do all their own set-up on a fresh Debian 12 machine.
BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: help setup build demo test format tidy sanitize clean

help:
	@echo "make demo      set up, build, train the solar-cell job on 4 CPU ranks and follow it"
	@echo "make test      set up, build, run all tests"
	@echo "make build     set up and build into $(BUILD)/bin"
	@echo "make sanitize  build and run the tests free of LibTorch under ASan and UBSan"
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

sanitize: setup
	cmake -S . -B build-asan -G Ninja -DTUNDISH_SANITIZE=ON $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
	cmake --build build-asan -j $(JOBS)
	cd build-asan && ctest --output-on-failure -L no_torch

format:
	git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	rm -rf build build-*
