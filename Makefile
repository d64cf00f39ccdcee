# Two commands matter: `make run` and `make test`. `make help` lists the rest.

DATA ?= outlast-data
LISTEN ?= 127.0.0.1:8787

.PHONY: help run build check test bench bench-postgres costs torture simulate pictures

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/'

run: ## build and serve with the embedded store and the demo model (LISTEN=127.0.0.1:8787 DATA=outlast-data)
	./scripts/app
	./scripts/need bwrap bubblewrap || true # without it everything but tools works, and the server says so
	cargo build --release --locked -p outlast
	./target/release/outlast serve --listen $(LISTEN) --data $(DATA)

build: ## build everything
	./scripts/app
	cargo build --workspace --all-targets --locked

check: ## what every commit must pass, without the slow tests
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings

test: ## everything: format, lints, all tests
	./scripts/test

bench: ## measure against a bare relay and against Node with resumable-stream
	./scripts/bench

bench-postgres: ## measure the server on PostgreSQL, and PostgreSQL alone, against the targets
	./scripts/bench-postgres

costs: ## measure tools: sandboxes, checkpoints, rounds, and questions that wait for a person
	./scripts/costs

torture: ## kill the server hundreds of times and check that nothing was lost
	./scripts/torture

simulate: ## run three instances on a simulated store that fails, with 50,000 seeds
	./scripts/simulate

pictures: ## take the README's screenshots again, from the real program
	./scripts/app
	cargo build --locked -p outlast
	cd ui && npm run --silent screenshots -- --readme ../docs/pictures
