# Each target first makes the environment it needs (see .ci/setup.sh).
# PYTHON=python3.12 picks the interpreter, CHROMIUM=... the browser, PORT=8080 the
# port of `make serve`; ARGS="..." is passed on to `python -m generate`.

PORT ?= 8000
ARGS ?=

SITE := .venv/bin/python
TEST := .venv-test/bin/python
RECORD := .venv-record/bin/python
# A process a core; each may take a GiB of memory, and has a browser of its own.
PARALLEL := -n auto --maxprocesses 8 --dist worksteal
WITH_BROWSER = CHROMIUM="$$(sh .ci/setup.sh browser)"

# The theme's notice of its own end of life, at every build.
export NO_MKDOCS_2_WARNING := 1

.NOTPARALLEL:
.PHONY: help serve test record check report render picture audit build clean \
	site-environment test-environment both-environments record-environment

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' Makefile

serve: site-environment ## Render and serve the site on localhost
	$(SITE) -m generate render
	@echo "The site will be at http://127.0.0.1:$(PORT)/ (Ctrl-C stops it)."
	SITE_URL=http://127.0.0.1:$(PORT)/ \
		$(SITE) -m mkdocs serve --dev-addr 127.0.0.1:$(PORT)

# Triton's interpreter and its compiler cannot share a process: two pytest runs.
test: both-environments ## Test everything that needs no GPU
	$(SITE) -c "from importlib.util import find_spec as f; \
		assert not any(map(f, ('torch', 'kaleido', 'playwright')))"
	$(SITE) -m generate check
	$(SITE) -m generate render --check
	$(SITE) -m mkdocs build --strict
	$(TEST) -m ruff check .
	$(TEST) -m ruff check --select E501 --config "line-length = 80" \
		kernels/forward.py kernels/dx.py kernels/dw.py kernels/reduce.py \
		$(addprefix kernels/fast/,tiles.py grouped.py pitched.py descriptor.py persistent.py \
		split.py stream_k.py zero.py shares.py pad.py)
	TRITON_INTERPRET=1 $(TEST) -m pytest $(PARALLEL) -m interpreter tests/kernels
	$(WITH_BROWSER) env -u TRITON_INTERPRET \
		$(TEST) -m pytest $(PARALLEL) -m "not interpreter and not gpu"

record: record-environment ## Record this machine's GPU into data/
	$(RECORD) -m generate record $(ARGS)

check: site-environment ## Validate every recording in data/
	$(SITE) -m generate check $(ARGS)

report: site-environment ## Compare with the vendor library, from data/
	$(SITE) -m generate report $(ARGS)

render: test-environment ## Render the pages and the charts' still pictures
	$(WITH_BROWSER) $(TEST) -m generate render $(ARGS)

picture: test-environment ## Take the picture of the README anew
	$(WITH_BROWSER) TAKE_PICTURE=1 $(TEST) -m pytest tests/site -k picture

audit: test-environment ## Measure the built site against its targets
	$(WITH_BROWSER) $(TEST) -m tests.site.audit $(ARGS)

build: site-environment ## Render and build the site into site/
	$(SITE) -m generate render
	$(SITE) -m mkdocs build --strict

clean: ## Remove the environments, the built site and caches
	rm -rf .venv .venv-test .venv-record .audit site .pytest_cache .ruff_cache \
		.hypothesis test-results

site-environment:
	@sh .ci/setup.sh site

test-environment:
	@sh .ci/setup.sh test

both-environments:
	@sh .ci/setup.sh both

record-environment:
	@sh .ci/setup.sh record
