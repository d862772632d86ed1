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
    alignas(16) Acc factor[2][TILE][DEPTH<Acc> + Run<Acc>::COUNT]; /* of a, of b */
    Acc part[PARTS][TILE][TILE + 1];
};

/* A line of a matrix, from which one goes on to later ones. */
struct Cursor {
    const rl_little_matrix &matrix;
    const rl_little_piece *piece;
    int64_t base; /* of the sequence that has it */
    int line;     /* in the piece, or in the sequence */

    __device__ Cursor(const rl_little_matrix &matrix, int first)
        : matrix(matrix), piece(matrix.piece), base(first / matrix.length * matrix.batch), line(first % matrix.length)
    {
        advance(0);
    }

    __device__ void advance(int lines)
    {
        line += lines;
        if (matrix.length < INT32_MAX) {
            for (; line >= matrix.length; line -= matrix.length) base += matrix.batch;
        } else {
            for (; line >= piece->lines && piece < matrix.piece + RL_LITTLE_PIECES - 1; piece++) line -= piece->lines;
        }
    }

    __device__ int64_t at(int lane) const
    {
        return base + line * piece->line + lane * piece->lane;
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

    /* Threads go along lanes, which are k, or where the matrix is turned the tile's lines. */
    __device__ void fetch(int which, int k0) const
    {
        const rl_little_matrix &from = which ? p.b : p.a;
        const bool turned = which ? p.b_turned : p.a_turned;
        const int first = which ? column0 : row0, count = (int)(which ? p.columns : p.rows) - first;
        const int step = THREADS / (turned ? TILE : DEPTH<Acc>);
        int line = threadIdx.x / DEPTH<Acc>, k = threadIdx.x % DEPTH<Acc>;
        if (turned) {
            line = threadIdx.x % TILE;
            k = threadIdx.x / TILE;
        }
        Cursor cursor(from, turned ? k0 + k : first + line);
#pragma unroll 1
        for (; line < TILE && k < DEPTH<Acc>; (turned ? k : line) += step, cursor.advance(step)) {
            Acc &to = chunk.factor[which][line][k];
            const bool there = line < count && k0 + k < inner;
            const int64_t at = there ? cursor.at(turned ? first + line : k0 + k) : 0;
            if (there && is_plain(cursor.piece->dtype))
                copy_async(&to, (const Acc *)cursor.piece->data + at, true);
            else
                to = there ? load_any<Acc>(cursor.piece->data, cursor.piece->dtype, at) : Acc(0);
        }
    }

    __device__ void multiply()
    {
        const int part = threadIdx.x / (SIDE * SIDE), down = threadIdx.x / SIDE % SIDE, across = threadIdx.x % SIDE;
        Acc sum[2][2] = {};
#pragma unroll 2
        for (int k = 0; k < QUARTER; k += Run<Acc>::COUNT) {
            Run<Acc> x[2], w[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                x[i] = *(const Run<Acc> *)&chunk.factor[0][down + i * SIDE][part * QUARTER + k];
                w[i] = *(const Run<Acc> *)&chunk.factor[1][across + i * SIDE][part * QUARTER + k];
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
        if (p.add.piece[0].data)
            sum += load_any<Acc>(p.add.piece[0].data, p.add.piece[0].dtype, Cursor(p.add, row).at(column));
        const Cursor out(p.out, row);
        if (out.piece->data) store_any(out.piece->data, out.piece->dtype, out.at(column), sum);
    }

    __device__ void run()
    {
#pragma unroll 1
        for (int k = 0; k < inner; k += DEPTH<Acc>) {
#pragma unroll 1
            for (int which = 0; which < 2; which++) fetch(which, k);
            close_copies();
            wait_copies<0>();
            __syncthreads(); /* the chunk is complete */
            multiply();
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
        double value = load_any<double>(from.data, from.dtype, line * from.line + lane * from.lane);
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
    await_earlier();
    int block = (int)blockIdx.x;
#pragma unroll 1
    for (int i = 0; i < little.products; i++) {
        if (block >= 0 && block < little.product[i].blocks) {
            Block<Acc>(little.product[i], block, chunk).run();
            return;
        }
        block -= little.product[i].blocks;
    }
    const int stride = (int)(gridDim.x - (blockIdx.x - block)) * THREADS;
#pragma unroll 1
    for (int i = 0; i < little.moves; i++) move<Acc>(little.move[i], block * THREADS + (int)threadIdx.x, stride);
}

} // namespace

const void *rl_product_little_kernel(bool f64)
{
    return f64 ? kernel_address<little_kernel<double>>() : kernel_address<little_kernel<float>>();
}
