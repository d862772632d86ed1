/* Copies that go on beside the threads, and the barriers in shared memory that they complete on. */
#ifndef EMULATOR_TRANSFERS_H
#define EMULATOR_TRANSFERS_H

#include <cuda.h>

#include "block.h"

namespace emulator
{

/* cp.async: `given` of `size` bytes, the rest zeros; addresses are multiples of `alignment`. */
void copy_later(void *to, const void *from, int given, int size, size_t alignment);
/* Until at most `open` closed groups of the thread, and what is in none, are on their way. */
void wait_for_copies(int open);

void barrier_init(uint64_t *barrier, int arrivals);
/* Announces bytes, and arrives. */
void barrier_arrive(uint64_t *barrier, uint32_t bytes);
void barrier_wait(uint64_t *barrier, uint32_t parity);

/* Tiles of tensors of `rank` axes; `place` counts elements, the innermost axis first. */
void load_tile(void *to, const CUtensorMap &map, const int *place, int rank, uint64_t *barrier);
void store_tile(const CUtensorMap &map, const int *place, int rank, const void *from);
/* Plain bytes. */
void load_bytes(void *to, const void *from, uint32_t bytes, uint64_t *barrier);
void store_bytes(void *to, const void *from, uint32_t bytes);
void wait_for_stores(int open);

/* tensor_map.cpp: moves a tile at once; returns its bytes in shared memory. */
uint32_t tile_bytes(const CUtensorMap &map, int rank);
void move_tile(const CUtensorMap &map, const int *place, char *shared, bool load);

} // namespace emulator

#endif
