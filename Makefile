# `make check` is what CI runs. Every line says --workspace: a bare cargo command here would build the binary alone.

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
VENV := $(abspath $(or $(ROPEWAY_VENV),$(TARGET_DIR)/venv))
export ROPEWAY_TEST_PYTHON := $(VENV)/bin/python
# What the comparison runs Ropeway against, and the program that runs it.
export LAB_PEERS := $(abspath $(or $(LAB_PEERS),$(TARGET_DIR)/lab-peers))
export LAB_PROGRAM := $(abspath $(TARGET_DIR)/debug/ropeway-lab)
# A lock file that would move fails in CI and is brought up to date elsewhere.
LOCKED := $(if $(CI),--locked)
# Where no lab can run (no root, no TUN device), its tests are skipped, but not in CI.
export ROPEWAY_LAB_REQUIRED ?= $(if $(CI),1,0)

.NOTPARALLEL:
.PHONY: check fmt clippy packages deps peers test sim fuzz doc tidy
.DEFAULT_GOAL := check

check: fmt clippy test fuzz doc tidy

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy $(LOCKED) --workspace --all-targets --all-features -- -D warnings

# What the tests need besides Rust: real backends, foreign clients and a Python of their own.
deps: packages $(VENV)/ready

packages:
	@tests/install-packages.sh

$(VENV)/ready: tests/requirements.txt | packages
	python3 -m venv $(VENV)
	$(ROPEWAY_TEST_PYTHON) -m pip install --quiet --requirement tests/requirements.txt
	touch $@

peers: packages
	@lab/peers/install $(LAB_PEERS)

test: deps peers
	cargo test $(LOCKED) --workspace --all-features --exclude ropeway-tidy
	$(ROPEWAY_TEST_PYTHON) -m pytest -p no:cacheprovider tests/protocol
	$(LAB_PEERS)/python/bin/python -m pytest -p no:cacheprovider lab/peers/tests

# Every scenario simulated more often than the tests do, and what came of each.
sim:
	SIM_SEEDS=1000 cargo test $(LOCKED) --release --package ropeway-core --features sim --test scenarios simulation -- --nocapture

# Each target for so many seconds; another seed each time, which is printed.
FUZZ_SECONDS := 10
fuzz:
	cargo run $(LOCKED) --package ropeway-fuzz-bodies -- --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc $(LOCKED) --workspace --all-features --no-deps

tidy:
	cargo test $(LOCKED) --package ropeway-tidy
