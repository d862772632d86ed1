#!/bin/sh
# Checks the cuda backend on a machine with a GPU, and times it.  Every section, or those named:
#
#     build      with CUDA, in build-gpu
#     tests      every test, on the host's backends and on the GPU; the case files on every backend
#     sanitize   compute-sanitizer's memcheck, racecheck and initcheck on the small fixed set of conformance cases
#     bench      rill bench on the GPU; its JSON goes to $OUT (build-gpu where that is not set)
#
# Installs nothing.  The last lines are a table of what passed; ends with 0 only when all did.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

[ $# -gt 0 ] && [ "$1" != all ] || set -- build tests sanitize bench
directory=build-gpu
out=${OUT:-$directory}
table= failed=0

# step NAME COMMAND...: runs it, and adds a line with its result and seconds to the table.
step()
{
    name=$1
    shift
    say "$name"
    start=$(date +%s) status=0
    "$@" || status=$?
    result=passed
    [ $status -eq 0 ] || { result="FAILED ($status)" failed=$((failed + 1)); }
    table="$table$(printf '%-34s %-14s %4d s' "$name" "$result" $(($(date +%s) - start)))
"
}

build()
{
    prefer_openmp_blas
    touch src/cuda/*.cu bench/*.cu # Meson 1.0 knows nothing of the headers that they include
    configure $directory -Dcuda=enabled && ninja -C $directory --quiet
}

# Each tool must see kernels run: a test that skips, for want of a GPU, is no success here.
sanitize()
{
    timeout 60 compute-sanitizer --tool "$1" --error-exitcode 9 \
        $directory/tests/conformance/test_conformance --quick --only cuda-device
}

for section in "$@"; do
    case $section in
    build)
        step "build" build
        ;;
    tests)
        step "tests" meson test -C $directory --no-rebuild --print-errorlogs
        step "case files" $directory/tools/rill check tests/data/*.safetensors
        ;;
    sanitize)
        for tool in memcheck racecheck initcheck; do
            step "sanitizer: $tool" sanitize $tool
        done
        ;;
    bench)
        step "bench" $directory/tools/rill bench --backend cuda --json "$out/bench-cuda.json"
        ;;
    *)
        echo "usage: $0 [all | build | tests | sanitize | bench]..." >&2
        exit 2
        ;;
    esac
done

say "Summary"
printf '%s' "$table"
exit $((failed > 0))
