/*
 * Tiles in and out of tensors.  Three ways, by the strides:
 *   lane stride 1    a row is a vector in memory (the natural [B,L,D]);
 *   row stride ±1    a lane is a vector in memory ([B,D,L], or states [S,D,N]): LANES rows are transposed at a time;
 *   any other        element by element.
 * Every way moves values without arithmetic, so which one is taken never shows in the result.
 */
#include "convert.h"
#include "scan_turn.h"
#include "table.h"

RL_INLINE const char *at(const rl_matrix *m, int64_t row, int64_t lane)
{
    return (const char *)m->data + (row * m->row + lane * m->lane) * element_size(m->dtype);
}

RL_INLINE void load_rows(real *tile, int64_t pitch, const rl_matrix *from, rill_dtype dtype, int64_t row,
                         int64_t rows, int64_t lanes)
{
    if (from->lane == 1 && lanes == LANES)
        for (; row < rows; row++) *(vreal *)(tile + row * pitch) = load_elements(at(from, row, 0), dtype);
    else
        for (; row < rows; row++)
            *(vreal *)(tile + row * pitch) = gather_elements(at(from, row, 0), from->lane, lanes, dtype);
}

/* Whole groups of LANES rows; answers the first row that is left. */
RL_INLINE int64_t load_transposed(real *tile, int64_t pitch, const rl_matrix *from, rill_dtype dtype, int64_t rows,
                                  int64_t lanes)
{
    const int64_t back = from->row < 0 ? LANES - 1 : 0; /* the row that lies first in memory */
    int64_t row = 0;
    for (; row + LANES <= rows; row += LANES) {
        vreal v[LANES];
        if (lanes == LANES && element_size(dtype) == sizeof(real)) {
            load_turned(v, at(from, row + back, 0), from->lane * element_size(dtype));
        } else {
            for (int lane = 0; lane < LANES; lane++)
                v[lane] = lane < lanes ? load_elements(at(from, row + back, lane), dtype) : (vreal){0};
            turn_registers(v);
        }
        for (int i = 0; i < LANES; i++) *(vreal *)(tile + (row + (back ? back - i : i)) * pitch) = v[i];
    }
    return row;
}

RL_INLINE void load(real *tile, int64_t pitch, const rl_matrix *from, rill_dtype dtype, int64_t rows, int64_t lanes)
{
    bool transposed = (from->row == 1 || from->row == -1) && from->lane != 1;
    load_rows(tile, pitch, from, dtype, transposed ? load_transposed(tile, pitch, from, dtype, rows, lanes) : 0, rows,
              lanes);
}

RL_INLINE void store_rows(const rl_matrix *to, const real *tile, rill_dtype dtype, int64_t row, int64_t rows,
                          int64_t lanes)
{
    if (to->lane == 1 && lanes == LANES)
        for (; row < rows; row++) store_elements((char *)at(to, row, 0), *(const vreal *)(tile + row * LANES), dtype);
    else
        for (; row < rows; row++)
            scatter_elements((char *)at(to, row, 0), to->lane, lanes, *(const vreal *)(tile + row * LANES), dtype);
}

RL_INLINE int64_t store_transposed(const rl_matrix *to, const real *tile, rill_dtype dtype, int64_t rows,
                                   int64_t lanes)
{
    const int64_t back = to->row < 0 ? LANES - 1 : 0;
    int64_t row = 0;
    for (; row + LANES <= rows; row += LANES) {
        vreal v[LANES];
        for (int i = 0; i < LANES; i++) v[i] = *(const vreal *)(tile + (row + (back ? back - i : i)) * LANES);
        turn_registers(v);
        for (int lane = 0; lane < LANES; lane++)
            if (lane < lanes) store_elements((char *)at(to, row + back, lane), v[lane], dtype);
    }
    return row;
}

RL_INLINE void store(const rl_matrix *to, const real *tile, rill_dtype dtype, int64_t rows, int64_t lanes)
{
    bool transposed = (to->row == 1 || to->row == -1) && to->lane != 1;
    store_rows(to, tile, dtype, transposed ? store_transposed(to, tile, dtype, rows, lanes) : 0, rows, lanes);
}

/* Element by element: float32 beside double. */
static void load_floats(real *tile, int64_t pitch, const rl_matrix *from, int64_t rows, int64_t lanes)
{
    const float *data = from->data;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t lane = 0; lane < LANES; lane++)
            tile[row * pitch + lane] = lane < lanes ? (real)data[row * from->row + lane * from->lane] : 0;
}

static void store_floats(const rl_matrix *to, const real *tile, int64_t rows, int64_t lanes)
{
    float *data = to->data;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t lane = 0; lane < lanes; lane++)
            data[row * to->row + lane * to->lane] = (float)tile[row * LANES + lane];
}

/* Each type has its own copy of the loops: the conversion is chosen outside them. */
void RL_NAME(rl_load)(void *tile, int64_t pitch, const rl_matrix *from, int64_t rows, int64_t lanes)
{
    switch (from->dtype) {
    case RILL_BF16:
        load(tile, pitch, from, RILL_BF16, rows, lanes);
        break;
    case RILL_F16:
        load(tile, pitch, from, RILL_F16, rows, lanes);
        break;
    case RILL_F32:
        if (RL_REAL_BITS == 64)
            load_floats(tile, pitch, from, rows, lanes);
        else
            load(tile, pitch, from, RILL_F32, rows, lanes);
        break;
    default:
        load(tile, pitch, from, RILL_F64, rows, lanes);
    }
}

void RL_NAME(rl_store)(const rl_matrix *to, const void *tile, int64_t rows, int64_t lanes)
{
    switch (to->dtype) {
    case RILL_BF16:
        store(to, tile, RILL_BF16, rows, lanes);
        break;
    case RILL_F16:
        store(to, tile, RILL_F16, rows, lanes);
        break;
    case RILL_F32:
        if (RL_REAL_BITS == 64)
            store_floats(to, tile, rows, lanes);
        else
            store(to, tile, RILL_F32, rows, lanes);
        break;
    default:
        store(to, tile, RILL_F64, rows, lanes);
    }
}
