/*
 * Products of few rows, as decoding has them: a block of the other kernels would hold few of its rows, and walk alone
 * through all of `inner`.  Here the threads of a column share it: each takes every so many of `inner`, for all rows,
 * and what they have is added up in a fixed order, which `inner` alone decides.
 */
#include <machine/early.cuh>
#include <machine/kernel.cuh>

#include "product_A.cuh"

namespace
{

constexpr int THREADS = RL_FEW_THREADS, WARPS = THREADS / 32, TOGETHER = 4; /* rows that a thread adds up at a time */

__device__ inline int64_t row_at(const rl_product_args &p, const rl_product_rows &rows, int64_t row)
{
    const int64_t batch = row / p.length;
    return batch * rows.batch + (row - batch * p.length) * rows.step;
}

template <typename Acc> __device__ inline Acc sum_of_warp(Acc sum)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

/* `each` warps a column. */
template <typename T, typename Acc, int each> struct Column {
    const rl_product_args &p;
    const int64_t column;
    const int thread;
    const rl_product_weight *weight;
    int64_t first; /* element of it */
    bool is_plain; /* it is of the accumulated type */

    __device__ explicit Column(const rl_product_args &p)
        : p(p), column((int64_t)blockIdx.x * (WARPS / each) + threadIdx.x / (32 * each)),
          thread((int)threadIdx.x % (32 * each)), weight(p.weights)
    {
        int64_t own = min(column, p.columns - 1);
        for (; own >= weight->columns; weight++) own -= weight->columns;
        first = own * weight->row;
        is_plain = weight->dtype == (sizeof(Acc) == 4 ? RILL_F32 : RILL_F64);
    }

    __device__ void add_up(int64_t row, Acc (&sum)[TOGETHER]) const
    {
        const T *a[TOGETHER];
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) a[r] = (const T *)p.a.data + row_at(p, p.a, min(row + r, p.rows - 1));
#pragma unroll 4
        for (int64_t k = thread; k < p.inner; k += 32 * each) {
            const int64_t at = first + k * weight->lane;
            const Acc factor =
                is_plain ? ((const Acc *)weight->data)[at] : load_any<Acc>(weight->data, weight->dtype, at);
#pragma unroll
            for (int r = 0; r < TOGETHER; r++) sum[r] = fma(widen(a[r][k * p.a.lane]), factor, sum[r]);
        }
    }

    __device__ void store(int64_t row, Acc sum) const
    {
        if (row >= p.rows || column >= p.columns) return;
        if (p.add.data) sum += ((const Acc *)p.add.data)[row_at(p, p.add, row) + column * p.add.lane];
        store_any(p.out.data, p.out.dtype, row_at(p, p.out, row) + column * p.out.lane, sum);
    }
};

template <typename T, typename Acc, int each>
__global__ void __launch_bounds__(THREADS) few_kernel(const __grid_constant__ rl_product_args p)
{
    __shared__ Acc parts[TOGETHER][WARPS];
    let_later_start();
    await_earlier();
    const Column<T, Acc, each> column(p);
    if (p.A) make_A(p, 0);
    for (int64_t row = 0; row < p.rows; row += TOGETHER) {
        Acc sum[TOGETHER] = {};
        column.add_up(row, sum);
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) {
            sum[r] = sum_of_warp(sum[r]);
            if (each == 1 && column.thread == r) column.store(row + r, sum[r]);
            if (each > 1 && threadIdx.x % 32 == 0) parts[r][threadIdx.x / 32] = sum[r];
        }
        if constexpr (each > 1) {
            __syncthreads();
            if (column.thread < TOGETHER) {
                const Acc *own = &parts[column.thread][threadIdx.x / (32 * each) * each];
                Acc total = own[0];
#pragma unroll
                for (int k = 1; k < each; k++) total += own[k];
                column.store(row + column.thread, total);
            }
            __syncthreads(); /* the parts have been read */
        }
    }
}

template <int each> const void *pick(int32_t dtype)
{
    switch (dtype) {
    case RILL_F64:
        return kernel_address<few_kernel<double, double, each>>();
    case RILL_F32:
        return kernel_address<few_kernel<float, float, each>>();
    case RILL_BF16:
        return kernel_address<few_kernel<bf16, float, each>>();
    default:
        return kernel_address<few_kernel<f16, float, each>>();
    }
}

} // namespace

/* All warps of a block for a column where that shortens its walk by much. */
const void *rl_product_few_kernel(int32_t dtype, int64_t inner, int64_t *columns)
{
    const bool is_long = inner > 128;
    *columns = is_long ? 1 : WARPS;
    return is_long ? pick<WARPS>(dtype) : pick<1>(dtype);
}
