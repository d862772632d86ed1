#!/bin/sh
# pkgconfig.sh SOURCE BUILD LIBRARY CC...: a program outside the tree, built by plain cc with pkg-config.
. "$(dirname "$0")/install.inc.sh"
build=$2 library=$3
shift 3
command -v pkg-config >/dev/null || exit 77
install_tree "$build"
write_consumer "$work/consumer.c"
export PKG_CONFIG_PATH="$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$dest"
version=$(pkg-config --modversion rill) || die "pkg-config does not find rill"

# The needs of a static library name system folders by their own path, which the sysroot must not prefix.
flags()
{
    pkg-config "$@" rill | tr ' ' '\n' | sed "s|^\(-[LI]\)$dest\(.*\)|\1\2|" | while read -r flag; do
        case $flag in
        -[LI]"$PREFIX"*) printf '%s%s%s ' "$(printf %.2s "$flag")" "$dest" "${flag#-[LI]}" ;;
        *) printf '%s ' "$flag" ;;
        esac
    done
}

if [ "$library" != static ]; then
    "$@" -Wall -Werror "$work/consumer.c" -o "$work/shared" $(flags --cflags --libs) || die "shared: does not build"
    found=$(LD_LIBRARY_PATH=$libdir "$work/shared") || die "shared: exit status $?"
    [ "$found" = "rill $version" ] || die "shared: printed '$found', expected 'rill $version'"
fi
if [ "$library" != shared ]; then
    rm -f "$libdir"/librill.so*
    "$@" -Wall -Werror "$work/consumer.c" -o "$work/static" $(flags --cflags --libs --static) ||
        die "static: does not build"
    found=$("$work/static") || die "static: exit status $?"
    [ "$found" = "rill $version" ] || die "static: printed '$found', expected 'rill $version'"
fi
echo "$found"
