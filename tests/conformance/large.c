#define _GNU_SOURCE
#include "large.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "strided.h"

enum { WINDOW = 1 << 22 };

static const venue *where;
static rill_context *context;

void large_on(const venue *here, rill_context *on)
{
    where = here;
    context = on;
}

size_t large_memory(void)
{
    char line[256];
    unsigned long long kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) break;
    if (file) fclose(file);
    return (size_t)kilobytes * 1024;
}

static void *map_windows(size_t bytes)
{
    int file = memfd_create("window", 0);
    assert_true(file >= 0 && ftruncate(file, WINDOW) == 0);
    char *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    for (size_t at = 0; at < bytes; at += WINDOW) {
        size_t size = bytes - at < WINDOW ? bytes - at : WINDOW;
        void *window = mmap(memory + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
        assert_true(window != MAP_FAILED);
    }
    close(file);
    return memory;
}

static void *map_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    madvise(memory, bytes, MADV_HUGEPAGE); /* fewer faults; where it is refused, more */
    return memory;
}

large large_make(rill_dtype dtype, int64_t span, bool sparse)
{
    large made = {.bytes = (size_t)span * rill_dtype_size(dtype), .real = true};
    made.view = rill_tensor_1d(NULL, dtype, span);
    if (where->device_tensors) {
        assert_int_equal(rill_alloc(context, made.bytes, &made.view.data), RILL_OK);
        made.view.device = RILL_CUDA;
        return made;
    }
    made.real = sparse || made.bytes / 2 * 3 + ((size_t)512 << 20) < large_memory();
    made.view.data = made.real ? map_memory(made.bytes) : map_windows(made.bytes);
    return made;
}

void large_free(large *made)
{
    if (made->view.device == RILL_CUDA)
        assert_int_equal(rill_free(context, made->view.data), RILL_OK);
    else
        munmap(made->view.data, made->bytes);
}

rill_tensor large_shaped(const large *made, int64_t n0, int64_t n1, int64_t n2)
{
    rill_tensor view = rill_tensor_3d(made->view.data, made->view.dtype, n0, n1, n2);
    view.device = made->view.device;
    return view;
}

void large_put(const rill_tensor *to, const rill_tensor *from)
{
    rill_status status = rill_copy(context, to, from);
    if (status != RILL_OK) fail_msg("copy: %s", rill_last_error(context));
}

large large_constant(rill_dtype dtype, double value, int64_t n0, int64_t n1, int64_t n2)
{
    large made = large_make(dtype, 1, true);
    rill_tensor host = view_alloc(dtype, 1, (int64_t[]){1});
    view_store(&host, (int64_t[]){0}, value);
    large_put(&made.view, &host);
    free(host.data);
    made.view =
        rill_tensor_view(made.view.device, made.view.data, dtype, 3, (int64_t[]){n0, n1, n2}, (int64_t[]){0, 0, 0});
    return made;
}
