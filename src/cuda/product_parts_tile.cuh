/* A group's tile of sums: what becomes of it once its products are added up.  Included by product_parts.cuh's users.
 */
#ifndef RL_CUDA_PRODUCT_PARTS_TILE_CUH
#define RL_CUDA_PRODUCT_PARTS_TILE_CUH

#include "product_parts.cuh"

namespace product_parts
{

template <typename Way> struct Tile {
    using T = typename Way::T;
    static constexpr int COLUMNS = Way::COLUMNS;
    static constexpr int LINE_FLOATS = 32; /* of a line of the L2 cache */

    const rl_product_args &p;
    int64_t row0, column0;
    int lane, warp; /* of the group */
    float total[COLUMNS / 2];
    float most[Way::SCALES ? 2 : 1]; /* of a tile's scales down */

    __device__ explicit Tile(const rl_product_args &p) : p(p)
    {
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32 % 4;
    }

    __device__ int64_t row_of(int half) const
    {
        return row0 + 16 * warp + lane / 4 + 8 * half;
    }

    __device__ void clear()
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) total[i] = 0;
        for (float &one : most) one = 0;
    }

    __device__ int64_t column_of(int i) const
    {
        return column0 + i / 8 * 16 + lane % 4 * 4 + i / 4 % 2 * 2 + i % 2;
    }

    __device__ void store_one(int64_t row, int64_t column, float value) const
    {
        if (p.add.data) value += ((const float *)p.add.data)[offset_of(p, p.add, row) + column * p.add.lane];
        store_any(p.out.data, p.out.dtype, offset_of(p, p.out, row) + column * p.out.lane, value);
    }

    /* Brings what will be added to the tile into the L2 cache. */
    __device__ void look_ahead() const
    {
        const int64_t column = column0 + lane % 4 * LINE_FLOATS;
        if (!p.add.wide || lane % 4 * LINE_FLOATS >= COLUMNS || column >= p.columns) return;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = row_of(half);
            if (row < p.rows) fetch_ahead((const float *)p.add.data + offset_of(p, p.add, row) + column);
        }
    }

    __device__ Quad<float> four_of(int i) const
    {
        return {{total[i], total[i + 1], total[i + 4], total[i + 5]}};
    }

    /* Four neighbours of a row. */
    __device__ void store_four(int64_t at, const Quad<float> &four) const
    {
        if (p.out.dtype == RILL_F32) {
            *(Quad<float> *)((float *)p.out.data + at) = four;
            return;
        }
        Quad<bf16> quad;
        const bool brain = p.out.dtype == RILL_BF16;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float low = four.get(2 * j), high = four.get(2 * j + 1);
            quad.word[j] = brain ? pack_bfloats(low, high) : pack_halves(low, high);
        }
        *(Quad<bf16> *)((bf16 *)p.out.data + at) = quad;
    }

    /* Whether sums can be stored in fours, but for columns that do not exist. */
    __device__ bool is_fine() const
    {
        return p.out.wide && p.out.dtype != RILL_F64 && (p.add.wide || !p.add.data) && p.columns % 4 == 0;
    }

    /* What is to be added to a half of the thread's rows, unless it has been, is on its way all at a time. */
    template <bool ADDS> __device__ void store_fours(int64_t row, int half) const
    {
        constexpr int FOURS = COLUMNS / 16;
        const int64_t first = column_of(2 * half), to = offset_of(p, p.out, row) + first;
        const int left = (int)min(p.columns - first, (int64_t)COLUMNS);
        Quad<float> four[FOURS] = {};
        if (ADDS && p.add.data) {
            const float *more = (const float *)p.add.data + offset_of(p, p.add, row) + first;
#pragma unroll
            for (int j = 0; j < FOURS; j++)
                if (j * 16 < left) four[j] = *(const Quad<float> *)(more + j * 16);
        }
#pragma unroll
        for (int j = 0; j < FOURS; j++) {
            const Quad<float> sum = four_of(8 * j + 2 * half);
#pragma unroll
            for (int k = 0; k < 4; k++) four[j].set(k, four[j].get(k) + sum.get(k));
            if (j * 16 < left) store_four(to + j * 16, four[j]);
        }
    }

    __device__ void store_each(int64_t row, int half) const
    {
#pragma unroll 1
        for (int which = 2 * half; which < COLUMNS / 2; which += which % 2 ? 3 : 1) {
            const int64_t column = column_of(which);
            if (column >= p.columns) continue;
            float value = 0;
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) value = i == which ? total[i] : value;
            store_one(row, column, value);
        }
    }

    /* A sum by multiply-adds, which the lanes of the warp share. */
    __device__ float sum_plainly(int64_t row, int64_t column) const
    {
        const T *const from = (const T *)p.a.data + offset_of(p, p.a, row);
        const rl_product_weight &weight = weight_of(p, column);
        float sum = 0;
#pragma unroll 4
        for (int64_t k = lane; k < p.inner; k += 32)
            sum = fmaf(widen(from[k * p.a.lane]),
                       load_any<float>(weight.data, weight.dtype, column * weight.row + k * weight.lane), sum);
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
        return sum;
    }

    /* What products gave that is not finite is summed again, one number after the other. */
    __device__ void repair()
    {
        repair_from<0>();
        if constexpr (COLUMNS / 2 > 64) repair_from<64>();
    }
    template <int FIRST> __device__ void repair_from()
    {
        constexpr int END = COLUMNS / 2 < FIRST + 64 ? COLUMNS / 2 : FIRST + 64;
        uint64_t wrong = 0;
#pragma unroll
        for (int i = FIRST; i < END; i++) wrong |= (uint64_t)!is_finite(total[i]) << (i - FIRST);
#pragma unroll 1
        for (uint32_t lanes; (lanes = __ballot_sync(~0u, wrong != 0)) != 0; wrong &= wrong - 1) {
#pragma unroll 1
            for (; lanes; lanes &= lanes - 1) {
                const int whose = __ffs((int)lanes) - 1,
                          i = FIRST + __shfl_sync(~0u, __ffsll((long long)wrong) - 1, whose);
                const int64_t row = row0 + 16 * warp + whose / 4 + 8 * (i / 2 % 2);
                const int64_t column = column0 + i / 8 * 16 + whose % 4 * 4 + i / 4 % 2 * 2 + i % 2;
                if (row >= p.rows || column >= p.columns) continue;
                const float sum = sum_plainly(row, column);
#pragma unroll
                for (int j = FIRST; j < END; j++)
                    if (lane == whose && j == i) total[j] = sum;
            }
        }
    }

    /*
     * Back from the columns' scales.  What lies far below the product of its row's and its column's largest may have
     * lost more bits than the loop: it is marked as not finite.
     */
    __device__ void scale_down()
    {
        const float *const scale = Split<Way>::scales() + COLUMNS + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) {
            const float down = scale[i / 4 * 8 + i % 2],
                        least = most[i / 2 % 2] * (1 << 9); /* 2^-20 of the largest */
            total[i] = fabsf(total[i]) < least && down > 0 ? __int_as_float(0x7fffffff) : total[i] * down;
        }
    }

    __device__ void make_right()
    {
        if constexpr (Way::SCALES) scale_down();
        repair();
    }

    __device__ void store() const
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = row_of(half);
            if (row >= p.rows) continue;
            if (is_fine())
                store_fours<true>(row, half);
            else
                store_each(row, half);
        }
    }
};

} // namespace product_parts

#endif
