#!/bin/bash
# Measures what the manual shows, in the environment of `make venv`, on an otherwise idle machine, from the root:
# benchmarks/measure.sh COMMAND, see README.md. Results are printed, and kept in benchmarks/results.
set -e
results=benchmarks/results
file=$results/$1.jsonl  # of all but "results" and "dispatch", which have several
both="--variants ordinary,shared-target --strategies Auto --least 9"

# With PyTorch, whose DTensor is measured where it is installed, 12 ranks need more than 24 GiB of memory.
without_pytorch() {
    ! python -c "import torch" 2>/dev/null || { echo "pip uninstall torch, and rm -f .venv/.interop, first" >&2; exit 2; }
}

# Keeps the results of strategies, without those of stock DaCe and of the plain copy.
only_strategies() {
    sed -i '/"kind": "strategy"/!d' "$@"
}

einsum() {
    OMP_NUM_THREADS=1 mpiexec -n 4 python benchmarks/einsum/run_einsum.py "$@" --repetitions 15 --json $results/einsums.jsonl
}

results() {
    without_pytorch
    rm -f $results/{redistribution,comparisons,einsums,gallery,overheads}.jsonl
    # of a method that is measured twice in a case, the last result counts
    mpiexec -n 12 python benchmarks/bench.py $both --limit 1.2 --json $results/redistribution.jsonl
    mpiexec -n 4 python benchmarks/bench.py "runs-*" $both --limit 2.5 --json $results/redistribution.jsonl
    einsum mm2 mm3 ttmc --by-hand stock
    OMP_NUM_THREADS=1 mpiexec -n 2 python benchmarks/einsum/gallery_speedups.py --json $results/gallery.jsonl
    python benchmarks/overheads.py --json $results/overheads.jsonl
    make interop
    mpiexec -n 4 python benchmarks/bench.py owners-transposed-3840 "quarters-to-rows-*" fft-transpose-1536 \
        slab-to-pencil-4-240 $both --limit 8 --json $results/redistribution.jsonl
    mpiexec -n 4 python benchmarks/compare.py --json $results/comparisons.jsonl
    python benchmarks/compare.py boxes --json $results/comparisons.jsonl
}

# The cases of "results" against MPI alone: rename the file to redistribution-NAME.jsonl, which manual.py reads.
processor() {
    rm -f "$file"
    mpiexec -n 12 python benchmarks/bench.py --peers mpi $both --limit 1.2 --json "$file"
}

# COSTA where DACE_REDIST_COSTA_LIBRARY names it, PETSc where petsc4py is installed, and ScaLAPACK; see README.md.
peers() {
    rm -f "$file"
    mpiexec -n 12 python benchmarks/bench.py "rows-to-*" "grid-*" "owners-*" "quarters-*" "cyclic-*" "blocks-*" "tiles-*" \
        "prime-*" "slab-to-pencil-*" $both --limit 2 --json $file
}

# CTF, where DACE_REDIST_CTF_LIBRARY names it; see README.md.
ctf() {
    local ranks
    rm -f "$file"
    for ranks in 2 4; do
        OMP_NUM_THREADS=1 mpiexec -n $ranks python benchmarks/einsum/run_einsum.py mm2 mttkrp3_0 ttmc ladder \
            --against einsum,ctf --repetitions 11 --json $file
    done
}

# With one OpenBLAS for all: DACE_REDIST_BLAS=openblas; COSMA where DACE_REDIST_COSMA_LIBRARY names it; see README.md.
products() {
    rm -f "$file"
    OMP_NUM_THREADS=1 mpiexec -n 2 python benchmarks/compare.py products cp-als --json $file
    PYTHONPATH=benchmarks python -m comparisons.products --json $file
}

# The strategy that each redistribution of Deinsum's kernels took, and why.
tuned() {
    rm -f "$file"
    OMP_NUM_THREADS=1 mpiexec -n 4 python benchmarks/einsum/run_einsum.py deinsum --strategies Auto,Datatype,Tuned --check \
        --repetitions 15 --json $file
}

auto() {
    local single="--variants ordinary --peers none --strategies Auto,Datatype,Pack,Pipelined,RMA --least 9 --limit 1.5
        --json $file"
    rm -f "$file"
    mpiexec -n 2 python benchmarks/bench.py --ranks 2 "nas-*" "wrf-*" "milc-*" "specfem3d-*" $single
    mpiexec -n 4 python benchmarks/bench.py --ranks 4 "runs-*" {cyclic-other,owners-transposed}-960 fft-transpose-768 \
        slab-to-pencil-4-96 tiles-random 2mm-ik-4 3mm-km-4 $single
    mpiexec -n 12 python benchmarks/bench.py --ranks 12 {cyclic-same,grid-transposed,rows-to-columns}-960 \
        "pencil-to-pencil-*96" slab-to-{pencil,slab}-96 seed-k8 short-last few-to-all one-to-all all-to-one dealt-tiles \
        "prime-[bcm]*" $single
    only_strategies "$file"
}

cores() {
    without_pytorch
    rm -f "$file"
    mpiexec -n 12 python benchmarks/bench.py nas-mg-y-D wrf-x-2x2 specfem3d-cm runs-{4B,64B,4KiB,1MiB} \
        {owners-transposed,cyclic-other,rows-to-columns,grid-transposed}-960 fft-transpose-768 slab-to-pencil-4-96 \
        tiles-random 2mm-ik-4 3mm-km-4 pencil-to-pencil-{96,240} slab-to-{pencil,slab}-96 seed-k{8,12} one-to-all all-to-one \
        dealt-tiles prime-matrix rows-to-columns-3840 --variants ordinary \
        --strategies Auto,Datatype,Pack,Pipelined,RMA --least 9 --limit 0.9 --json $file
    sed -i '/"method": "\(stock DaCe\|plain copy\|ScaLAPACK\|Alltoallw, nested types\)"/d' $file
}

gpu() {
    rm -f "$file"
    python benchmarks/copies.py --gpu --nbytes 134217728 --runs 8 --runs 32 --runs 64 --runs 512 --runs 4096 --json $file
    mpiexec -n 4 python benchmarks/bench.py runs-4KiB tiles-random slab-to-pencil-4-96 --variants ordinary,gpu --peers none \
        --strategies Auto,Pack,Pipelined --limit 3 --json $file
    mpiexec -n 1 python benchmarks/einsum/run_einsum.py mm3 mttkrp3_0 mttkrp5_2 ttmc --preset M --device gpu --against cupy \
        --check --repetitions 9 --json $file
}

nodes() {
    local ranks
    without_pytorch
    rm -f "$file"
    for ranks in 12 32; do
        python benchmarks/cluster/cluster.py --nodes 4 --ranks $ranks --rate 1gbit -- python benchmarks/bench.py \
            --ranks $ranks messages --variants ordinary --strategies Hierarchical --batch 10 --json $file
    done
    # with 1gbit, the emulated links take half of both cores, and not even MPI_Sendrecv reaches that rate
    python benchmarks/cluster/cluster.py --nodes 4 --ranks 12 --rate 500mbit -- python benchmarks/bench.py --ranks 12 \
        --rate 500mbit seed-k8 seed-k12 "rows-*" "slab-to-slab-*" "pencil-to-pencil-*" one-to-all --variants ordinary \
        --strategies Auto --limit 12 --json $file
}

copying() {
    local ranks
    rm -f "$file"
    for ranks in 4 8; do
        mpiexec -n $ranks python benchmarks/compare.py axes convert reduce --json $file
        mpiexec -n $ranks python benchmarks/compare.py scalapack --shape 2000 --shape 4000 --shape 8000 --json $file
    done
}

dispatch() {
    local site how="--peers none --variants ordinary --strategies Auto --least 9 --limit 0.3"
    site=$(mktemp -d)
    DACE_REDIST_WHEEL_MPIS=$(command -v mpicxx) pip install -q --no-deps --no-build-isolation --target "$site" .
    rm -f $results/dispatch-*.jsonl
    # equal plans differ by up to a third from process to process: the median of a case's processes counts
    for _ in 1 2 3; do
        mpiexec -n 12 python benchmarks/bench.py $how --json $results/dispatch-native.jsonl
        PYTHONPATH=$site mpiexec -n 12 python benchmarks/bench.py $how --json $results/dispatch-packaged.jsonl
    done
    only_strategies $results/dispatch-*.jsonl
    rm -r "$site"
}

# The stand-in cannot map other arrays, and is given up when it fails: only this variant in a process.
mapped() {
    local folder
    folder=$(mktemp -d)
    g++ -O2 -fPIC -shared -o "$folder/xpmem.so" tests/cpp/stand_in_xpmem.cpp
    rm -f "$file"
    DACE_REDIST_XPMEM=$folder/xpmem.so mpiexec -n 12 python benchmarks/bench.py seed-k16 seed-k24 --peers none \
        --variants mapped --strategies Auto --least 9 --limit 8 --json $file
    rm -r "$folder"
}

case $1 in
    results | processor | peers | ctf | products | tuned | auto | cores | gpu | nodes | copying | dispatch | mapped) "$1" ;;
    *)
        echo "usage: benchmarks/measure.sh results | processor | peers | ctf | products | tuned | auto | cores | gpu | nodes | copying |" \
            "dispatch | mapped" >&2
        exit 2
        ;;
esac
