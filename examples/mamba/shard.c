#include "shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail.h"

static void map_file(shard *file)
{
    struct stat about;
    const int descriptor = open(file->path, O_RDONLY | O_NONBLOCK); /* a pipe must not hang before it is refused */
    if (descriptor < 0) fail("%s: %s", file->path, strerror(errno));
    if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) fail("%s: not a file", file->path);
    if (about.st_size < 8)
        fail("%s: %lld bytes, too short for a safetensors file", file->path, (long long)about.st_size);
    file->size = (size_t)about.st_size;
    void *bytes = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (bytes == MAP_FAILED) fail("%s: %s", file->path, strerror(errno));
    file->bytes = bytes;
}

static void read_header(shard *file)
{
    uint64_t length = 0;
    for (int k = 8; k-- > 0;) length = length << 8 | file->bytes[k];
    if (length > file->size - 8)
        fail("%s: its header has %llu bytes, and the file %zu", file->path, (unsigned long long)length, file->size);
    json_error_t error;
    file->header = json_loadb((const char *)file->bytes + 8, length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(file->header))
        fail("%s: header: %s", file->path, file->header ? "not an object" : error.text);
    file->data = file->bytes + 8 + length;
    file->data_size = file->size - 8 - length;
}

/* The bytes of a tensor. */
typedef struct extent {
    uint64_t begin, end;
    const char *name;
} extent;

static extent extent_of(const shard *file, const char *name, const json_t *about)
{
    const json_t *offsets = json_object_get(about, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        fail("%s: %s: data_offsets are not two integers", file->path, name);
    const json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > file->data_size)
        fail("%s: %s: its bytes, %lld to %lld, are not within the file's %zu", file->path, name, (long long)begin,
             (long long)end, file->data_size);
    return (extent){(uint64_t)begin, (uint64_t)end, name};
}

static int by_place(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

/* Neither overlap nor holes, and nothing behind: else the file is not the one that its header tells of. */
static void check_extents(const shard *file)
{
    extent *all = take(json_object_size(file->header), sizeof *all);
    size_t count = 0;
    const char *name;
    json_t *about;
    json_object_foreach(file->header, name, about)
    {
        if (strcmp(name, "__metadata__") != 0) all[count++] = extent_of(file, name, about);
    }
    qsort(all, count, sizeof *all, by_place);
    uint64_t at = 0;
    for (size_t k = 0; k < count; at = all[k++].end)
        if (all[k].begin != at)
            fail("%s: %s: begins at byte %llu, expected %llu (%s)", file->path, all[k].name,
                 (unsigned long long)all[k].begin, (unsigned long long)at,
                 all[k].begin < at ? "it overlaps another" : "after a hole");
    if (at != file->data_size)
        fail("%s: the tensors end at byte %llu of %zu", file->path, (unsigned long long)at, file->data_size);
    free(all);
}

shard *shard_open(const char *path)
{
    shard *file = take(1, sizeof *file);
    file->path = strcpy(take(strlen(path) + 1, 1), path);
    map_file(file);
    read_header(file);
    check_extents(file);
    return file;
}

void shard_close(shard *file)
{
    json_decref(file->header);
    munmap((void *)file->bytes, file->size);
    free(file->path);
    free(file);
}
