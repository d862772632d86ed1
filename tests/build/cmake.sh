#!/bin/sh
# cmake.sh SOURCE BUILD LIBRARY CC...: a CMake project outside the tree finds rill, shared and static.
. "$(dirname "$0")/install.inc.sh"
build=$2 library=$3
shift 3
command -v cmake >/dev/null || exit 77
install_tree "$build"
mkdir "$work/project"
write_consumer "$work/project/consumer.c"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(rill 0.1 REQUIRED)
if(TARGET rill::static AND WANT_STATIC)
  add_executable(with_static consumer.c)
  target_link_libraries(with_static PRIVATE rill::static)
endif()
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE rill::rill)
END
want=OFF
[ "$library" = shared ] || want=ON
CC=$1 cmake -S "$work/project" -B "$work/out" -DCMAKE_PREFIX_PATH="$root" -DWANT_STATIC=$want >"$work/log" 2>&1 ||
    { cat "$work/log"; die "find_package(rill) failed"; }
cmake --build "$work/out" >"$work/log" 2>&1 || { cat "$work/log"; die "the project does not build"; }
LD_LIBRARY_PATH=$libdir "$work/out/consumer" || die "rill::rill: exit status $?"
if [ $want = ON ]; then
    "$work/out/with_static" || die "rill::static: exit status $?"
fi
if cmake -S "$work/project" -B "$work/other" -DCMAKE_PREFIX_PATH=/nowhere >/dev/null 2>&1; then
    [ -e /usr/local/"$LIBDIR"/cmake/rill ] || die "rill was found where it is not"
fi
