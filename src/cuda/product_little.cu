/*
 * Products of little work, for which latency is all that counts: blocks are many and small, so that each has one or
 * two trips to memory, and weights are taken as they lie.
 *
 *               16 columns           A block goes through k in chunks, 128 of it (double: 64) at a time, of which the
 *               +------+             next one is on its way while one is multiplied.  Its 256 threads are four
 * groups, 16 rows | tile |             each with a quarter of the chunk and a tile of its own, 2 x 2 numbers a
 * thread;
 *               +------+             in the end the four are added up in order.
 */
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

/* Lines are as many elements longer as one read takes, so that those of neighbours fall into different banks. */
template <typename Acc> struct Chunks {
    alignas(16) Acc a[TILE][DEPTH<Acc> + Run<Acc>::COUNT], b[TILE][DEPTH<Acc> + Run<Acc>::COUNT];
    Acc part[PARTS][TILE][TILE + 1];
};

/* The piece that has a line, which then counts from the piece's first. */
__device__ inline const rl_little_piece &piece_of(const rl_little_matrix &matrix, int &line)
{
    const rl_little_piece *piece = matrix.piece;
#pragma unroll
    for (int i = 1; i < RL_LITTLE_PIECES; i++)
        if (piece == matrix.piece + i - 1 && line >= piece->lines) {
            line -= piece->lines;
            piece++;
        }
    return *piece;
}

__device__ inline int64_t offset_of(const rl_little_matrix &matrix, const rl_little_piece &piece, int line, int lane)
{
    const int sequence = line / matrix.length;
    return sequence * matrix.batch + (line - sequence * matrix.length) * piece.line + lane * piece.lane;
}

template <typename Acc> struct Block {
    static constexpr int EACH = TILE * DEPTH<Acc> / THREADS, QUARTER = DEPTH<Acc> / PARTS;

    const rl_little_product &p;
    Chunks<Acc> &chunks;
    int row0, column0, inner;
    Acc a[EACH], b[EACH]; /* the thread's numbers of the next chunk */
    Acc total[2][2];

    __device__ Block(const rl_little_product &p, int block, Chunks<Acc> &chunks)
        : p(p), chunks(chunks), row0(block / p.column_blocks * TILE), column0(block % p.column_blocks * TILE),
          inner((int)p.inner), total()
    {
    }

    /* Threads go along lanes; which of the tile's lines and which k the i-th number has. */
    __device__ static void place_of(int i, bool turned, int &line, int &k)
    {
        const int index = i * THREADS + (int)threadIdx.x;
        line = turned ? index % TILE : index / DEPTH<Acc>;
        k = turned ? index / TILE : index % DEPTH<Acc>;
    }

    __device__ void fetch_one(Acc (&to)[EACH], const rl_little_matrix &from, bool turned, int first, int count,
                              int k0) const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int line, k;
            place_of(i, turned, line, k);
            line += first;
            k += k0;
            int along = turned ? k : line, lane = turned ? line : k;
            to[i] = 0;
            if (line >= count || k >= inner) continue;
            const rl_little_piece &piece = piece_of(from, along);
            to[i] = load_any<Acc>(piece.data, piece.dtype, offset_of(from, piece, along, lane));
        }
    }

    __device__ void fetch(int k0)
    {
        fetch_one(a, p.a, p.a_turned, row0, (int)p.rows, k0);
        fetch_one(b, p.b, p.b_turned, column0, (int)p.columns, k0);
    }

    __device__ void put() const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int line, k;
            place_of(i, p.a_turned, line, k);
            chunks.a[line][k] = a[i];
            place_of(i, p.b_turned, line, k);
            chunks.b[line][k] = b[i];
        }
    }

    __device__ void multiply()
    {
        const int part = threadIdx.x / (SIDE * SIDE), down = threadIdx.x / SIDE % SIDE, across = threadIdx.x % SIDE;
        Acc sum[2][2] = {};
#pragma unroll
        for (int k = 0; k < QUARTER; k += Run<Acc>::COUNT) {
            Run<Acc> x[2], w[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                x[i] = *(const Run<Acc> *)&chunks.a[down + i * SIDE][part * QUARTER + k];
                w[i] = *(const Run<Acc> *)&chunks.b[across + i * SIDE][part * QUARTER + k];
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
            chunks.part[part][down + i / 2 * SIDE][across + i % 2 * SIDE] = total[i / 2][i % 2];
        __syncthreads(); /* all parts are there */
        const int line = threadIdx.x / TILE, lane = threadIdx.x % TILE, column = column0 + lane;
        int row = row0 + line;
        if (row >= p.rows || column >= p.columns) return;
        Acc sum = chunks.part[0][line][lane];
#pragma unroll
        for (int i = 1; i < PARTS; i++) sum += chunks.part[i][line][lane];
        const rl_little_piece &add = p.add.piece[0];
        if (add.data) sum += load_any<Acc>(add.data, add.dtype, offset_of(p.add, add, row, column));
        const rl_little_piece &out = piece_of(p.out, row);
        if (out.data) store_any(out.data, out.dtype, offset_of(p.out, out, row, column), sum);
    }

    __device__ void run()
    {
        fetch(0);
        for (int k = 0; k < inner; k += DEPTH<Acc>) {
            put();
            __syncthreads(); /* the chunk is complete */
            if (k + DEPTH<Acc> < inner) fetch(k + DEPTH<Acc>);
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

template <typename Acc> __device__ void move(const rl_little_move &move, int64_t first, int64_t stride)
{
    const rl_little_piece &from = move.from, &to = move.to;
    for (int64_t i = first; i < from.lines * move.lanes; i += stride) {
        const int64_t line = i / move.lanes, lane = i - line * move.lanes;
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
    __shared__ Chunks<Acc> chunks;
    let_later_start();
    await_earlier();
    int block = (int)blockIdx.x;
    for (int i = 0; i < little.products; i++) {
        if (block >= 0 && block < little.product[i].blocks) {
            Block<Acc>(little.product[i], block, chunks).run();
            return;
        }
        block -= little.product[i].blocks;
    }
    const int64_t stride = (int64_t)(gridDim.x - (blockIdx.x - block)) * THREADS;
    for (int i = 0; i < little.moves; i++) move<Acc>(little.move[i], (int64_t)block * THREADS + threadIdx.x, stride);
}

} // namespace

const void *rl_product_little_kernel(bool f64)
{
    return f64 ? kernel_address<little_kernel<double>>() : kernel_address<little_kernel<float>>();
}
