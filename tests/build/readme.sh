#!/bin/sh
# readme.sh SOURCE BUILD LIBRARY CC...: the README's C program compiles as it stands and prints what it says.
. "$(dirname "$0")/install.inc.sh"
source=$1 build=$2 library=$3
shift 3
install_tree "$build"
awk '/^```c$/ { inside = 1; next } /^```/ { if (inside) exit } inside' "$source/README.md" >"$work/readme.c"
grep -q 'int main' "$work/readme.c" || die "README.md has no C program between \`\`\`c and \`\`\`"
if [ "$library" = static ]; then
    command -v pkg-config >/dev/null || exit 77
    needs=$(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --libs-only-l --libs-only-other --static rill)
    "$@" -Wall -Wextra -Werror -I"$root/include" "$work/readme.c" -o "$work/readme" -L"$libdir" $needs ||
        die "README.md's program does not compile"
else
    "$@" -Wall -Wextra -Werror -I"$root/include" "$work/readme.c" -o "$work/readme" -L"$libdir" -lrill ||
        die "README.md's program does not compile"
fi
found=$(LD_LIBRARY_PATH=$libdir "$work/readme") || die "README.md's program: exit status $?"
# It says what it prints in a comment on the line that prints.
said=$(sed -n 's|.*printf.*/\* *\(.*[^ ]\) *\*/.*|\1|p' "$work/readme.c" | head -n 1)
[ -z "$said" ] || [ "$found" = "$said" ] || die "README.md's program printed '$found', it says '$said'"
echo "$found"
