#!/bin/sh
# needed.sh LIBRARY host|cuda: the shared library asks for no library but those that it may.
allowed=' libc libm libgomp libopenblas ld-linux-x86-64 ld-linux-aarch64 '
[ "$2" = cuda ] && allowed="$allowed libstdc++ libdl librt libpthread libgcc_s "
soname=$(readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
failed=0
case $soname in
librill.so.*) ;;
*) echo "soname is '$soname', expected librill.so.VERSION"; failed=1 ;;
esac
for library in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $allowed in
    *" ${library%%.so*} "*) echo "$library" ;;
    *) echo "the library needs $library"; failed=1 ;;
    esac
done
# A wrong flag somewhere makes the whole process flush denormals; the constructor that does it has this name.
nm -a "$1" | grep -q set_fast_math && { echo "the library changes the denormal mode when loaded"; failed=1; }
exit $failed
