#!/bin/sh
# symbols.sh LIBRARY LIST: the shared library exports exactly the names of the list.
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort -u >"$work/found" || exit 1
LC_ALL=C sort -u "$2" >"$work/expected"
if ! diff -u "$work/expected" "$work/found"; then
    echo "exported symbols differ from $2 (- expected, + found)"
    exit 1
fi
echo "$(grep -c . "$work/found") symbols"
