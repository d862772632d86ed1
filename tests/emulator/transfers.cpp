#include "transfers.h"

#include "cluster.h"

#include <string.h>

namespace emulator
{

static void check_alignment(const char *what, const void *at, size_t alignment)
{
    if ((uintptr_t)at % alignment != 0) fail("%s: %p is not a multiple of %zu", what, at, alignment);
}

static void perform(const Copy &copy)
{
    memcpy(copy.to, copy.from, (size_t)copy.given);
    memset((char *)copy.to + copy.given, 0, (size_t)(copy.size - copy.given));
}

void copy_later(void *to, const void *from, int given, int size, size_t alignment)
{
    check_alignment("cp.async", to, alignment);
    check_alignment("cp.async", from, alignment);
    if (given < 0 || given > size) fail("cp.async: %d of %d bytes", given, size);
    const Copy copy = {to, from, given, size, self->copy_groups};
    if (is_early())
        perform(copy);
    else
        self->copies.push_back(copy);
}

void wait_for_copies(int open)
{
    std::vector<Copy> &copies = self->copies;
    size_t done = 0;
    for (; done < copies.size() && copies[done].group < self->copy_groups - open; done++) perform(copies[done]);
    copies.erase(copies.begin(), copies.begin() + (long)done);
}

/* A barrier's word, which kernels only name by its address. */
namespace
{
struct Word {
    uint32_t phase : 1, mark : 7, expected : 12, pending : 12;
    int32_t bytes;
};
static_assert(sizeof(Word) == sizeof(uint64_t), "what a kernel has room for");
enum { MARK = 0x2a };

Word &word_of(uint64_t *barrier)
{
    check_alignment("mbarrier", barrier, 8);
    Word &word = *(Word *)barrier;
    if (word.mark != MARK) fail("mbarrier at %p: not initialised, or overwritten", (void *)barrier);
    return word;
}

void complete(Word &word)
{
    if (word.pending > 0 || word.bytes != 0) return;
    word.phase ^= 1;
    word.pending = word.expected;
    progress();
}
} // namespace

void barrier_init(uint64_t *barrier, int arrivals)
{
    if (arrivals < 1 || arrivals > MOST_THREADS) fail("mbarrier.init: %d arrivals", arrivals);
    *(Word *)barrier = {0, MARK, (uint32_t)arrivals, (uint32_t)arrivals, 0};
}

void barrier_arrive(uint64_t *barrier, uint32_t bytes)
{
    Word &word = word_of(barrier);
    if (word.pending == 0) fail("mbarrier at %p: more arrivals than it was made for", (void *)barrier);
    word.bytes += (int32_t)bytes;
    word.pending--;
    progress();
    complete(word);
}

void count_bytes(uint64_t *barrier, uint32_t bytes)
{
    Word &word = word_of(barrier);
    word.bytes -= (int32_t)bytes;
    complete(word);
}

static void finish(const Transfer &load)
{
    load.copy();
    count_bytes(load.barrier, load.bytes);
}

/* What the barrier waits for arrives now. */
static void finish_loads(uint64_t *barrier)
{
    std::vector<Transfer> &loads = self->block->loads;
    for (size_t k = 0; k < loads.size();) {
        if (loads[k].barrier == barrier) {
            finish(loads[k]);
            loads.erase(loads.begin() + (long)k);
        } else {
            k++;
        }
    }
}

void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    if (parity > 1) fail("mbarrier: parity %u", parity);
    while (word_of(barrier).phase == parity) {
        finish_loads(barrier);
        take_arrivals();
        if (word_of(barrier).phase == parity) poll("an mbarrier");
    }
    progress();
}

static void load_later(uint64_t *barrier, uint32_t bytes, std::function<void()> copy)
{
    const Transfer load = {copy, 0, barrier, bytes};
    word_of(barrier);
    progress();
    if (is_early())
        finish(load);
    else
        self->block->loads.push_back(load);
}

void load_tile(void *to, const CUtensorMap &map, const int *place, int rank, uint64_t *barrier)
{
    const uint32_t bytes = tile_bytes(map, rank);
    std::vector<int> at(place, place + rank);
    check_alignment("cp.async.bulk.tensor", to, 128);
    check_alignment("a tensor map", &map, 64);
    load_later(barrier, bytes, [=] { move_tile(map, at.data(), (char *)to, true); });
}

void load_bytes(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    for (const void *at : {(const void *)to, from, (const void *)(uintptr_t)bytes})
        check_alignment("cp.async.bulk", at, 16);
    load_later(barrier, bytes, [=] { memcpy(to, from, bytes); });
}

static void store_later(std::function<void()> copy)
{
    if (is_early())
        copy();
    else
        self->stores.push_back({copy, self->store_groups, NULL, 0});
}

void store_tile(const CUtensorMap &map, const int *place, int rank, const void *from)
{
    std::vector<int> at(place, place + rank);
    tile_bytes(map, rank);
    check_alignment("cp.async.bulk.tensor", from, 128);
    check_alignment("a tensor map", &map, 64);
    for (int axis : at)
        if (axis < 0) fail("cp.async.bulk.tensor: a store to a tile that begins at %d", axis);
    store_later([=] { move_tile(map, at.data(), (char *)from, false); });
}

void store_bytes(void *to, const void *from, uint32_t bytes)
{
    for (const void *at : {(const void *)to, from, (const void *)(uintptr_t)bytes})
        check_alignment("cp.async.bulk", at, 16);
    store_later([=] { memcpy(to, from, bytes); });
}

void wait_for_stores(int open)
{
    std::vector<Transfer> &stores = self->stores;
    size_t done = 0;
    for (; done < stores.size() && stores[done].group < self->store_groups - open; done++) stores[done].copy();
    stores.erase(stores.begin(), stores.begin() + (long)done);
}

} // namespace emulator
