/*
 * Products of little work, for which latency is all that counts: blocks are many and small, so that each has one or
 * two trips to memory, and weights are taken as they lie.  Code is brief, since it too comes from memory.
 *
 *               16 columns           A block goes through k in chunks, 128 of it (double: 64) at a time.  Its 256
 *               +------+             threads are four groups, each with a quarter of the chunk and a tile of its own,
 *       16 rows | tile |             2 x 2 numbers a thread; in the end the four are added up in order.
 *               +------+
 */
#include <machine/copies.cuh>
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "elements.cuh"
#include "numbers.cuh"
#include "product_little.h"

namespace
{

constexpr int TILE = RL_LITTLE_TILE, THREADS = RL_LITTLE_THREADS, PARTS = 4, SIDE = TILE / 2;

template <typename Acc> constexpr int DEPTH = sizeof(Acc) == 4 ? 128 : 64;

template <typename Acc> struct alignas(16) Run { /* along k */
    static constexpr int COUNT = 16 / sizeof(Acc);
    Acc value[COUNT];
};

/* Lines are as much longer as one read takes, so that those of neighbours fall into different banks. */
template <typename Acc> struct Chunk {
    alignas(16) Acc factor[2][2][TILE][DEPTH<Acc> + Run<Acc>::COUNT]; /* this and the next; of a, of b */
    Acc part[PARTS][TILE][TILE + 1];
};

__device__ inline int size_of(int dtype)
{
    return dtype == RILL_F64 ? 8 : dtype == RILL_F32 ? 4 : 2;
}

/* An element of a matrix, from which one goes on along its lane to later lines. */
struct Cursor {
    const rl_little_matrix &matrix;
    const rl_little_piece *piece;
    const unsigned char *at;
    int64_t sequence, line_bytes; /* sequence: where it begins, in elements */
    int line, end, lane;          /* in the piece, or in the sequence */

    __device__ Cursor(const rl_little_matrix &matrix, int first, int lane)
        : matrix(matrix), piece(matrix.piece), sequence(first / matrix.length * matrix.batch),
          line(first % matrix.length), lane(lane)
    {
        locate();
    }

    __device__ void locate()
    {
        if (matrix.length < INT32_MAX) {
            for (end = matrix.length; line >= end; line -= end) sequence += matrix.batch;
        } else {
            for (end = piece->lines; line >= end && piece < matrix.piece + RL_LITTLE_PIECES - 1; end = piece->lines) {
                line -= end;
                piece++;
            }
        }
        const int size = size_of(piece->dtype);
        at = (const unsigned char *)piece->data + (sequence + line * piece->line + lane * piece->lane) * size;
        line_bytes = piece->line * size;
    }

    __device__ void advance(int lines)
    {
        line += lines;
        at += lines * line_bytes;
        if (line >= end) locate();
    }

    template <typename Acc> __device__ Acc load() const
    {
        return load_any<Acc>(at, piece->dtype, 0);
    }
};

template <typename Acc> struct Block {
    static constexpr int QUARTER = DEPTH<Acc> / PARTS;

    const rl_little_product &p;
    Chunk<Acc> &chunk;
    int row0, column0, inner;
    Acc total[2][2];

    __device__ Block(const rl_little_product &p, int block, Chunk<Acc> &chunk)
        : p(p), chunk(chunk), row0(block / p.column_blocks * TILE), column0(block % p.column_blocks * TILE),
          inner((int)p.inner), total()
    {
    }

    __device__ static bool is_plain(int dtype)
    {
        return dtype == (sizeof(Acc) == 4 ? RILL_F32 : RILL_F64);
    }

    /* A thread's lines of a lane that is a sum of parts: all loads are on their way together. */
    __device__ static void add_up(const rl_little_parts &parts, const Acc *at, int there, int step, Acc *to, int next)
    {
        constexpr int EACH = TILE * DEPTH<Acc> / THREADS;
        Acc sum[EACH] = {};
#pragma unroll 4
        for (int part = 0; part < parts.count; part++, at += parts.stride)
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (i * step < there) sum[i] += at[i * step * parts.line];
#pragma unroll
        for (int i = 0; i < EACH; i++) to[i * next] = sum[i];
    }

    /* Threads go along lanes, which are k, or where the matrix is turned the tile's lines; a thread along lines. */
    __device__ void fetch(int buffer, int which, int k0) const
    {
        auto &factor = chunk.factor[buffer][which];
        const bool turned = which ? p.b_turned : p.a_turned;
        const int tile0 = which ? column0 : row0, tiled = (int)(which ? p.columns : p.rows) - tile0,
                  deep = inner - k0;
        const int lanes = turned ? TILE : DEPTH<Acc>, lines = turned ? DEPTH<Acc> : TILE, step = THREADS / lanes;
        const int lane = threadIdx.x % lanes, first = threadIdx.x / lanes;
        const int there = lane < (turned ? tiled : deep) ? min(lines, turned ? deep : tiled) : 0;
        Acc *to = turned ? &factor[lane][first] : &factor[first][lane];
        const int next = step * (turned ? 1 : DEPTH<Acc> + Run<Acc>::COUNT);
        const rl_little_matrix &matrix = which ? p.b : p.a;
        const int line0 = (turned ? k0 : tile0) + first, lane0 = (turned ? tile0 : k0) + lane;
        int line = first;
        if (line < there && matrix.parts.data && lane0 >= matrix.parts.first) {
            const Acc *at =
                (const Acc *)matrix.parts.data + line0 * (int64_t)matrix.parts.line + lane0 - matrix.parts.first;
            add_up(matrix.parts, at, there - line, step, to, next);
            return;
        }
        if (line < there) {
            Cursor cursor(matrix, line0, lane0);
            if (is_plain(cursor.piece->dtype) && cursor.line + there - line <= cursor.end) {
                const unsigned char *at = cursor.at; /* all in one piece: copies follow each other at once */
                const int64_t bytes = step * cursor.line_bytes;
#pragma unroll 8
                for (; line < there; line += step, to += next, at += bytes) copy_async(to, (const Acc *)at, true);
            }
#pragma unroll 1
            for (; line < there; line += step, to += next, cursor.advance(step)) {
                if (is_plain(cursor.piece->dtype))
                    copy_async(to, (const Acc *)cursor.at, true);
                else
                    *to = cursor.load<Acc>();
            }
        }
#pragma unroll 1
        for (; line < lines; line += step, to += next) *to = 0;
    }

    __device__ void multiply(int buffer)
    {
        const int part = threadIdx.x / (SIDE * SIDE), down = threadIdx.x / SIDE % SIDE, across = threadIdx.x % SIDE;
        Acc sum[2][2] = {};
#pragma unroll 2
        for (int k = 0; k < QUARTER; k += Run<Acc>::COUNT) {
            Run<Acc> x[2], w[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                x[i] = *(const Run<Acc> *)&chunk.factor[buffer][0][down + i * SIDE][part * QUARTER + k];
                w[i] = *(const Run<Acc> *)&chunk.factor[buffer][1][across + i * SIDE][part * QUARTER + k];
            }
#pragma unroll
            for (int j = 0; j < Run<Acc>::COUNT; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sum[i / 2][i % 2] = fma(x[i / 2].value[j], w[i % 2].value[j], sum[i / 2][i % 2]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) total[i / 2][i % 2] += sum[i / 2][i % 2];
    }

    __device__ void store() const
    {
        const int part = threadIdx.x / (SIDE * SIDE), down = threadIdx.x / SIDE % SIDE, across = threadIdx.x % SIDE;
#pragma unroll
        for (int i = 0; i < 4; i++)
            chunk.part[part][down + i / 2 * SIDE][across + i % 2 * SIDE] = total[i / 2][i % 2];
        __syncthreads(); /* all parts are there */
        const int line = threadIdx.x / TILE, lane = threadIdx.x % TILE, row = row0 + line, column = column0 + lane;
        if (row >= p.rows || column >= p.columns) return;
        Acc sum = chunk.part[0][line][lane];
#pragma unroll
        for (int i = 1; i < PARTS; i++) sum += chunk.part[i][line][lane];
        if (p.add.piece[0].data) sum += Cursor(p.add, row, column).load<Acc>();
        const Cursor out(p.out, row, column);
        if (out.piece->data) store_any((void *)out.at, out.piece->dtype, 0, sum);
    }

    /* `eager`, where inner is not 0: b is fetched before the wait for the kernel ahead. */
    __device__ void run(bool eager)
    {
        int buffer = 0;
#pragma unroll 1
        for (int k = -DEPTH<Acc>; k < inner; k += DEPTH<Acc>, buffer ^= 1) {
            const int later = k + DEPTH<Acc>;
#pragma unroll 1
            for (int which = 2; which-- > 0 && later < inner;) {
                if (eager && which == 0) await_earlier();
                fetch(buffer ^ 1, which, later);
            }
            close_copies();
            if (k < 0) continue;
            wait_copies<1>();
            __syncthreads(); /* the chunk is complete */
            multiply(buffer);
            __syncthreads(); /* nobody reads it any more */
        }
        store();
    }
};

__device__ inline bool is_infinite(double value)
{
    return fabs(value) == __longlong_as_double(0x7ff0000000000000);
}

template <typename Acc> __device__ void move(const rl_little_move &move, int first, int stride)
{
    const rl_little_piece &from = move.from, &to = move.to;
#pragma unroll 1
    for (int i = first; i < from.lines * (int)move.lanes; i += stride) {
        const int line = i / (int)move.lanes, lane = i - line * (int)move.lanes;
        int64_t at = line * from.line + lane * from.lane;
        double value = load_any<double>(from.data, from.dtype, at);
#pragma unroll 4
        for (int k = 0; k < move.more; k++) value += load_any<double>(from.data, from.dtype, at += move.part);
        if (move.decay) value = -exp(value);
        if (move.factor) {
            const double factor = (double)((const Acc *)move.factor)[i];
            value = is_infinite(factor) ? 0 : value * factor;
        }
        store_any(to.data, to.dtype, line * to.line + lane * to.lane, value);
    }
}

template <typename Acc>
__global__ void __launch_bounds__(THREADS) little_kernel(const __grid_constant__ rl_little little)
{
    __shared__ Chunk<Acc> chunk;
    let_later_start();
    if (!little.eager) await_earlier();
    int block = (int)blockIdx.x;
#pragma unroll 1
    for (int i = 0; i < little.products; i++) {
        if (block >= 0 && block < little.product[i].blocks) {
            Block<Acc>(little.product[i], block, chunk).run(little.eager);
            return;
        }
        block -= little.product[i].blocks;
    }
    const int stride = (int)(gridDim.x - (blockIdx.x - block)) * THREADS;
    if (little.eager) await_earlier();
#pragma unroll 1
    for (int i = 0; i < little.moves; i++) move<Acc>(little.move[i], block * THREADS + (int)threadIdx.x, stride);
}

} // namespace

const void *rl_product_little_kernel(bool f64)
{
    return f64 ? kernel_address<little_kernel<double>>() : kernel_address<little_kernel<float>>();
}
