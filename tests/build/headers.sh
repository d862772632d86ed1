#!/bin/sh
# headers.sh INCLUDE CXX CC...: each public header compiles alone, as C11 and as C++17.  CXX may be empty.
include=$1 cxx=$2
shift 2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 count=0
for header in "$include"/rill/*.h; do
    name=rill/${header##*/}
    count=$((count + 1))
    printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$name" "$name" >"$work/alone.c"
    cp "$work/alone.c" "$work/alone.cc"
    "$@" -std=c11 -Wall -Wextra -pedantic -Werror -I"$include" -fsyntax-only "$work/alone.c" ||
        { echo "$name does not compile alone as C11"; failed=1; }
    [ -z "$cxx" ] ||
        "$cxx" -std=c++17 -Wall -Wextra -pedantic -Werror -I"$include" -fsyntax-only "$work/alone.cc" ||
        { echo "$name does not compile alone as C++17"; failed=1; }
done
[ "$count" -gt 0 ] || { echo "no header in $include/rill"; failed=1; }
grep -n 'include.*cuda_runtime' "$include"/rill/*.h && { echo "a public header includes CUDA's"; failed=1; }
echo "$count headers"
exit $failed
