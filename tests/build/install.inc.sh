# Sourced: installs the build tree into a fresh folder.  Sets work (removed at exit), dest, root (dest + prefix).
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
dest=$work/dest root=$work/dest$PREFIX libdir=$work/dest$PREFIX/$LIBDIR

die()
{
    echo "$*"
    exit 1
}

install_tree()
{
    DESTDIR=$dest "$MESON" install -C "$1" --no-rebuild --quiet >"$work/install.log" 2>&1 || {
        cat "$work/install.log"
        die "meson install failed"
    }
}

# One decode step, so that the recurrence, a state and the message for a bad call are all linked.
write_consumer()
{
    cat >"$1" <<'END'
#include <rill/cuda.h>
#include <rill/rill.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    float one = 1, A = -0.69314718f, h = 1, y = 0;
    rill_tensor x = rill_tensor_3d(&one, RILL_F32, 1, 1, 1), b = rill_tensor_4d(&one, RILL_F32, 1, 1, 1, 1);
    rill_tensor state = rill_tensor_3d(&h, RILL_F32, 1, 1, 1);
    rill_selective_scan_args scan = {.x = x, .delta = x, .A = rill_tensor_2d(&A, RILL_F32, 1, 1), .B = b, .C = b,
                                     .h_init = state, .h_final = state, .y = rill_tensor_3d(&y, RILL_F32, 1, 1, 1)};
    rill_options options = {.backend = RILL_BACKEND_CPU};
    rill_context *context;
    if (rill_context_create(&options, &context) != RILL_OK) return 1;
    if (rill_selective_scan(context, &scan) != RILL_OK) return 2;
    if (y < 1.4999f || y > 1.5001f || h != y) return 3;
    scan.y.rank = 2;
    if (rill_selective_scan(context, &scan) != RILL_INVALID_SHAPE) return 4;
    if (strncmp(rill_last_error(context), "y: rank is 2", 12) != 0) return 5;
    rill_context_destroy(context);
    printf("rill %d.%d.%d\n", RILL_VERSION_MAJOR, RILL_VERSION_MINOR, RILL_VERSION_PATCH);
    return 0;
}
END
}
