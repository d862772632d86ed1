#!/bin/sh
# Runs every test: installs what is missing, builds all that this machine can build, runs the tests, the CPU tests
# again under AddressSanitizer and UBSan, the API tests under valgrind, and the documents' code and links.
# The last line reads `N passed, N failed`; ends with 0 only when none failed.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

passed=0 failed=0 skipped=0
finish()
{
    echo
    [ $skipped -eq 0 ] || echo "$skipped skipped: what they need (a GPU, most often) is not on this machine"
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
}

# step NAME COMMAND...: one more thing that passes or fails.  The command runs in a shell of its own, with -e.
step()
{
    name=$1
    shift
    say "$name"
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        return 1
    fi
}

count()
{
    grep -c "\"result\": \"\($2\)\"" "$1" || true
}

# suite NAME DIRECTORY ARGUMENT...: runs the directory's tests and adds up their results.
suite()
{
    name=$1 directory=$2
    shift 2
    say "$name"
    rm -f "$directory"/meson-logs/suite*.json
    meson test -C "$directory" --logbase suite --print-errorlogs --no-rebuild "$@" || true
    log=$(echo "$directory"/meson-logs/suite*.json) # a test setup adds its name
    if [ ! -s "$log" ]; then
        failed=$((failed + 1))
        echo "FAILED: $name ran no test"
        return 0
    fi
    good=$(count "$log" 'OK\|EXPECTEDFAIL') skips=$(count "$log" SKIP) all=$(grep -c '"result": ' "$log")
    passed=$((passed + good)) skipped=$((skipped + skips)) failed=$((failed + all - good - skips))
}

build()
{
    directory=$1
    shift
    configure "$directory" "$@" && ninja -C "$directory" --quiet
}

need build-essential meson ninja-build pkg-config cmake valgrind \
    libopenblas-openmp-dev libcmocka-dev libjansson-dev || { failed=1; finish; exit 1; }
prefer_openmp_blas

if step "Build" build build-test --buildtype=debugoptimized; then
    suite "Tests" build-test
    # Memory of the API tests, on the host alone: the GPU's driver is not valgrind's business.
    CUDA_VISIBLE_DEVICES= suite "API tests under valgrind" build-test --setup valgrind --suite api
    step "Code and links of the documents" sh scripts/check-docs.sh build-test || true
fi

# The sanitizers' checks make the kernels large: at -O1 with line numbers alone they compile in a third of the time.
if step "Build with sanitizers" build build-sanitize -Dcuda=disabled -Doptimization=1 \
    -Ddebug=false -Dc_args=-g1 -Ddefault_library=static -Db_sanitize=address,undefined -Db_lundef=false; then
    # An allocation beyond reason must be answered as malloc does; whatever UBSan finds ends the test.
    ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        suite "CPU tests with sanitizers" build-sanitize --timeout-multiplier 5
fi

# Formatting differs between versions of clang-format; the tree is written to that of Debian 12.
if command -v clang-format >/dev/null && clang-format --version | grep -q 'version 14\.'; then
    step "Formatting" sh -c "git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' | xargs clang-format --dry-run --Werror" || true
fi

finish
