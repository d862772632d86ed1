#!/bin/sh
# Prints the version that include/rill/version.h holds, for the build.
set -eu
header=$(dirname "$0")/../include/rill/version.h
sed -n 's/^#define RILL_VERSION_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\)$/\2/p' "$header" | paste -s -d .
