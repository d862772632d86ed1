#!/bin/sh
# Checks the documents against a build: every C block compiles (those with a main also link and run), and every link
# within the tree leads to a file and, where it names one, to a heading.
# Usage: sh scripts/check-docs.sh BUILD-DIRECTORY
set -eu
cd "$(dirname "$0")/.."
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
documents=$(find . -path './build*' -prune -o -name '*.md' -print | sort)
problems=0

complain()
{
    echo "$*"
    problems=$((problems + 1))
}

# What fragments (blocks without a main) may take for granted.
cat >"$work/fragment.h" <<'END'
#include <rill/cuda.h>
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>
extern rill_context *ctx;
extern rill_cuda_stream stream;
extern int64_t batch, length, channels, states, rank, query_heads, heads, keys, values;
extern float *x, *delta, *A, *B, *C, *z, *y, *h, *a, *b, *dh, *da, *db;
extern float *q, *k, *v, *gate, *beta, *S, *dy, *dq, *dk, *dv;
extern float *W_delta, *W_delta_down, *W_B, *W_C, *A_log, *b_delta, *D;
extern float *dx, *ddelta, *dA, *dB, *dC, *dW_delta, *dA_log;
extern rill_selective_scan_args scan;
END

# Writes each C block of a document to block-LINE.c, on the line where it stands there.
extract()
{
    awk -v work="$work" '
        /^```c$/ { inside = 1; name = work "/block-" FNR ".c"; printf "#line %d\n", FNR + 1 >name; next }
        /^```/ { inside = 0 }
        inside { print >name }' "$1"
}

for document in $documents; do
    rm -f "$work"/block-*.c
    extract "$document"
    for block in "$work"/block-*.c; do
        [ -f "$block" ] || continue
        where="$document:$(basename "$block" .c | sed 's/block-//')"
        if grep -q '\bmain(' "$block"; then
            if ! cc -std=c11 -Wall -Wextra -Werror -Iinclude "$block" -o "$work/program" -L"$build/src" -lrill \
                -Wl,-rpath,"$(realpath "$build")/src"; then
                complain "$where: does not build"
            elif ! "$work/program" >"$work/output"; then
                complain "$where: fails when run"
            fi
        else
            { echo 'void fragment(void);'; echo 'void fragment(void) {'; cat "$block"; echo '}'; } >"$work/fragment.c"
            cc -std=c11 -Wall -Wextra -Werror -Wno-unused -fsyntax-only -Iinclude -include "$work/fragment.h" \
                "$work/fragment.c" || complain "$where: does not compile"
        fi
    done
done

# A heading as the anchor that links use.
anchors()
{
    sed -n 's/^##* //p' "$1" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

for document in $documents; do
    folder=$(dirname "$document")
    for link in $(grep -o '](\([^) ]*\))' "$document" | sed 's/^](//; s/)$//'); do
        case $link in http://* | https://* | mailto:*) continue ;; esac
        path=${link%%#*}
        target=$folder/$path
        [ -n "$path" ] || target=$document
        if [ ! -e "$target" ]; then
            complain "$document: $link leads nowhere"
        elif [ "$path" != "$link" ] && ! anchors "$target" | grep -qxF "${link#*#}"; then
            complain "$document: $link names no heading"
        fi
    done
done

[ $problems -eq 0 ] && echo "$(echo "$documents" | wc -l) documents are in order"
