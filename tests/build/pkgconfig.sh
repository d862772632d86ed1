#!/bin/sh
# pkgconfig.sh SOURCE BUILD LIBRARY CC...: the installed command starts; a program outside the tree, and the examples,
# built by plain cc with pkg-config.
. "$(dirname "$0")/install.inc.sh"
source=$1 build=$2 library=$3
shift 3
command -v pkg-config >/dev/null || exit 77
install_tree "$build"
if [ "$PREFIX" != /usr ]; then # there the system's own search finds the library, once it is in place
    said=$(env -u LD_LIBRARY_PATH "$root/$BINDIR/rill" --version) || die "the installed command does not start"
    echo "$said"
fi
write_consumer "$work/consumer.c"
export PKG_CONFIG_PATH="$libdir/pkgconfig"
version=$(pkg-config --modversion rill) || die "pkg-config does not find rill"
[ "${said:-rill $version}" = "rill $version" ] || die "the installed command says '$said', expected 'rill $version'"

# Installed under DESTDIR: only rill's own prefix moves, not the folders that a static library's needs name.
flags()
{
    pkg-config --define-variable=prefix="$root" "$@" rill
}

if [ "$library" != static ]; then
    "$@" -Wall -Werror "$work/consumer.c" -o "$work/shared" $(flags --cflags --libs) || die "shared: does not build"
    found=$(LD_LIBRARY_PATH=$libdir "$work/shared") || die "shared: exit status $?"
    [ "$found" = "rill $version" ] || die "shared: printed '$found', expected 'rill $version'"
    for example in "$source"/examples/*.c; do
        name=$(basename "$example" .c)
        "$@" -Wall -Werror "$example" -o "$work/$name" $(flags --cflags --libs) -lm || die "$name: does not build"
        LD_LIBRARY_PATH=$libdir sh "$source/examples/check.sh" "$source/examples" "$name" "$work/$name" ||
            die "$name: fails"
    done
fi
if [ "$library" != shared ]; then
    rm -f "$libdir"/librill.so*
    "$@" -Wall -Werror "$work/consumer.c" -o "$work/static" $(flags --cflags --libs --static) ||
        die "static: does not build"
    found=$("$work/static") || die "static: exit status $?"
    [ "$found" = "rill $version" ] || die "static: printed '$found', expected 'rill $version'"
fi
echo "$found"
