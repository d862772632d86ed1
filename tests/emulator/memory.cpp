/*
 * The runtime's memory.  What is allocated is filled with NaN, ends at a page that nobody may touch, and has its few
 * bytes before that page looked at when it is freed.
 */
#include <cuda_runtime_api.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "runtime.h"

namespace emulator
{

namespace
{

enum { PAGE = 4096, ALIGNMENT = 256, FILL = 0xff, CANARY = 0xa5 };
const size_t MOST_BYTES = (size_t)139 << 30;

struct Room {
    char *pages;
    size_t mapped, bytes;
};

std::mutex mutex;

std::map<void *, Room> &rooms()
{
    static std::map<void *, Room> *all = new std::map<void *, Room>();
    return *all;
}

size_t rounded(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Of what is larger than most hosts could hold, a middle that nobody touches takes no room; it reads as 0. */
void fill(char *memory, size_t bytes)
{
    const size_t ends = (size_t)256 << 20;
    if (bytes <= 2 * ends) {
        memset(memory, FILL, bytes);
    } else {
        memset(memory, FILL, ends);
        memset(memory + bytes - ends, FILL, ends);
    }
}

void check_end(const char *memory, const Room &room)
{
    for (const char *at = memory + room.bytes; at < room.pages + room.mapped - PAGE; at++)
        if (*at != (char)CANARY)
            fail("%zu bytes at %p were written beyond their end, at byte %zu", room.bytes, (const void *)memory,
                 (size_t)(at - memory));
}

} // namespace

cudaError_t allocate(void **memory, size_t bytes)
{
    if (bytes > MOST_BYTES) return cudaErrorMemoryAllocation;
    Room room = {NULL, rounded(bytes, PAGE) + PAGE, bytes};
    void *pages = mmap(NULL, room.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return cudaErrorMemoryAllocation;
    room.pages = (char *)pages;
    char *const end = room.pages + room.mapped - PAGE, *const begin = end - rounded(bytes, ALIGNMENT);
    mprotect(end, PAGE, PROT_NONE);
    fill(begin, bytes);
    memset(begin + bytes, CANARY, (size_t)(end - begin) - bytes);
    *memory = begin;
    std::lock_guard<std::mutex> lock(mutex);
    rooms()[begin] = room;
    return cudaSuccess;
}

cudaError_t release(void *memory)
{
    if (!memory) return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    auto found = rooms().find(memory);
    if (found == rooms().end()) return cudaErrorInvalidValue;
    check_end((const char *)memory, found->second);
    munmap(found->second.pages, found->second.mapped);
    rooms().erase(found);
    return cudaSuccess;
}

} // namespace emulator
