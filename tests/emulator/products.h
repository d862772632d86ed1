/* Products of tiles: of a warp, done at once, and of a group of warps, done when they are waited for. */
#ifndef EMULATOR_PRODUCTS_H
#define EMULATOR_PRODUCTS_H

#include "block.h"

namespace emulator
{

uint64_t describe_tile(const void *tile, uint32_t leading, uint32_t stride, unsigned swizzle);

/* The product's sums are the thread's own; until the wait they hold NaN. */
void multiply_later(float *sum, const Request &request);
void close_products();
void wait_for_products(int open);

/* As mma.sync, ldmatrix and stmatrix have them. */
void multiply_in_warp(Format format, float *sum, const uint32_t *a, const uint32_t *b);
void load_matrices(uint32_t *value, const void *row, int count, bool turned);
void store_matrices(void *row, const uint32_t *value, int count, bool turned);

} // namespace emulator

#endif
