/* Products of small tiles by a warp, and its loads and stores of matrices.  Layouts: see src/cuda/machine/mma.cuh. */
#include "formats.h"

namespace emulator
{

namespace
{

enum { WARP = 32, ROWS = 16, COLUMNS = 8, MOST_K = 16 };

struct Part {
    Format format;
    float *sum;
    const uint32_t *a, *b;
};

struct Rows {
    uint32_t *value; /* of a load */
    const uint32_t *given;
    char *row;
    int count;
    bool turned;
};

void check_warp(void **items, const char *what)
{
    for (int lane = 0; lane < WARP; lane++)
        if (!items[lane]) fail("%s: lane %d is over", what, lane);
}

void gather(Part *const *parts, float (&a)[ROWS][MOST_K], float (&b)[MOST_K][COLUMNS])
{
    const bool wide = parts[0]->format == TENSOR_FLOAT;
    const int each = wide ? 1 : 2;
    for (int lane = 0; lane < WARP; lane++) {
        const Part &part = *parts[lane];
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < each; e++)
                a[lane / 4 + 8 * (i % 2)][each * (lane % 4) + 4 * each * (i / 2) + e] =
                    element_of(part.format, part.a[i], e);
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < each; e++)
                b[each * (lane % 4) + 4 * each * i + e][lane / 4] = element_of(part.format, part.b[i], e);
    }
}

void multiply_all(void **items)
{
    Part *const *parts = (Part *const *)items;
    float a[ROWS][MOST_K] = {}, b[MOST_K][COLUMNS] = {};
    check_warp(items, "mma.sync");
    gather(parts, a, b);
    for (int lane = 0; lane < WARP; lane++) {
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            double sum = parts[lane]->sum[i];
            for (int k = 0; k < MOST_K; k++) sum += (double)a[row][k] * b[k][column];
            parts[lane]->sum[i] = (float)sum;
        }
    }
}

/* Where the e-th element of what a lane holds of a matrix lies. */
char *place_of(Rows *const *rows, int matrix, int lane, int e)
{
    const Rows &own = *rows[lane];
    const int row = own.turned ? 2 * (lane % 4) + e : lane / 4, column = own.turned ? lane / 4 : 2 * (lane % 4) + e;
    char *const at = rows[8 * matrix + row]->row;
    if ((uintptr_t)at % 16 != 0) fail("ldmatrix or stmatrix: row %p is not aligned", (void *)at);
    return at + 2 * column;
}

void move_all(void **items)
{
    Rows *const *rows = (Rows *const *)items;
    check_warp(items, "ldmatrix or stmatrix");
    for (int lane = 0; lane < WARP; lane++) {
        for (int k = 0; k < 2 * rows[lane]->count; k++) {
            char *const place = place_of(rows, k / 2, lane, k % 2);
            if (rows[lane]->value)
                memcpy((char *)&rows[lane]->value[k / 2] + 2 * (k % 2), place, 2);
            else
                memcpy(place, (const char *)&rows[lane]->given[k / 2] + 2 * (k % 2), 2);
        }
    }
}

} // namespace

void multiply_in_warp(Format format, float *sum, const uint32_t *a, const uint32_t *b)
{
    Part part = {format, sum, a, b};
    meet_lanes("mma.sync", WARP, ~0u, &part, multiply_all);
}

void load_matrices(uint32_t *value, const void *row, int count, bool turned)
{
    Rows rows = {value, NULL, (char *)row, count, turned};
    meet_lanes("ldmatrix", WARP, ~0u, &rows, move_all);
}

void store_matrices(void *row, const uint32_t *value, int count, bool turned)
{
    Rows rows = {NULL, value, (char *)row, count, turned};
    meet_lanes("stmatrix", WARP, ~0u, &rows, move_all);
}

} // namespace emulator
