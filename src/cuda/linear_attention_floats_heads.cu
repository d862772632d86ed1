/* Linear attention forward in float32 of many heads (linear_attention_floats_heads.cuh). */
#include "linear_attention_floats_heads_block.cuh"

namespace attention_heads
{

constexpr double LEAST_MILD = 0x1p-40;

/* Of a walk in one direction: the product of the gates that lie between a step and where the state enters. */
template <bool LATER> __device__ __forceinline__ double decay_of_step(const Decays &d, int i)
{
    double product = d.gate[i];
#pragma unroll
    for (int away = 1; away < 32; away *= 2) {
        const double more = LATER ? __shfl_down_sync(ALL, product, away) : __shfl_up_sync(ALL, product, away);
        if (LATER ? i % 32 + away < 32 : i % 32 >= away) product *= more;
    }
    if (!LATER) return i < 32 ? product : product * d.carry[0];
    const double behind = __shfl_down_sync(ALL, product, 1);
    return (i % 32 < 31 ? behind : 1) * (i < 32 ? d.carry[1] : 1);
}

/* A step's part of a record, once all decays are there. */
template <bool LATER> __device__ __forceinline__ void make_record(Record &to, const Decays &d, float scale, int i)
{
    const int block = i / BLOCK, own = i % BLOCK;
    to.between[block][own] = LATER         ? (block < own ? d.between[block][own] * scale : 0)
                             : own < block ? d.between[own][block]
                                           : 0;
    to.across[i] = LATER ? d.until[i] : d.worth[i];
    float row[BLOCK];
#pragma unroll
    for (int column = 0; column < BLOCK; column++)
        row[column] = LATER ? d.within[block][own][column] * scale
                            : d.within[block][column][own] * d.beta[block * BLOCK + column];
    float4 *const rows = (float4 *)to.own[block][own];
    rows[0] = float4{row[0], row[1], row[2], row[3]};
    rows[1] = float4{row[4], row[5], row[6], row[7]};
    to.side[i] = LATER ? d.after[i] : d.until[i];
    to.decay[i] = LATER ? d.to_end[i] : d.from_begin[i];
    to.out[i] = LATER ? d.beta[i] : scale;
    to.weight[i] = LATER ? d.from_begin[i] * scale : d.to_end[i] * d.beta[i];
    const double decay = decay_of_step<LATER>(d, i);
    const bool mild = !__syncthreads_or(!(fabs(decay) >= LEAST_MILD));
    if (mild) {
        to.decay[i] = (float)decay;
        to.weight[i] = (float)((LATER ? scale : d.beta[i]) / decay);
    }
    if (i > 0) return;
    to.mild = mild;
    const double carry = d.product();
    to.first = (float)carry;
    to.second = (float)(carry - to.first);
    to.steady = d.is_steady(), to.fades = d.fades(), to.special = d.is_special();
    to.heavy = d.heavy[0] || d.heavy[1];
}

__device__ __forceinline__ void store_record(void *records, int64_t place, const Record &r, int i)
{
    float4 *const to = (float4 *)((char *)records + place * RECORD_BYTES);
    for (int at = i; at < (int)sizeof(Record) / 16; at += STEPS) to[at] = ((const float4 *)&r)[at];
}

__global__ void __launch_bounds__(STEPS) records_kernel(const __grid_constant__ rl_heads_args whole)
{
    if constexpr (HAS_PRODUCTS) {
        const rl_floats_args &args = whole.all;
        const int i = (int)threadIdx.x;
        let_later_start();
        await_earlier();
        const Task task(args, (int)(blockIdx.x / (unsigned)args.chunks), (int)(blockIdx.x % (unsigned)args.chunks),
                        STEPS);
        Decays &d = *(Decays *)dynamic_shared;
        Record &r = *(Record *)(dynamic_shared + (sizeof(Decays) + 15) / 16 * 16);
        start_decays(d, args.in, task.span(), task.head(), task.first(), i);
        __syncthreads(); /* the blocks' products are there */
        finish_decays(d, i);
        __syncthreads(); /* all decays are there */
        make_record<false>(r, d, (float)args.in.scale, i);
        __syncthreads(); /* all of the record is there */
        store_record(args.records, blockIdx.x, r, i);
        if (!args.dy.data) return;
        __syncthreads(); /* it was read */
        make_record<true>(r, d, (float)args.in.scale, i);
        __syncthreads(); /* all of the record is there */
        store_record(args.records, (int64_t)gridDim.x + blockIdx.x, r, i);
    }
}

} // namespace attention_heads

const void *rl_heads_records_kernel(void)
{
    return kernel_address<attention_heads::records_kernel>();
}

size_t rl_heads_record(void)
{
    return attention_heads::RECORD_BYTES;
}

const void *rl_heads_kernel(void)
{
    return kernel_address<attention_heads::heads_kernel<RL_HEADS_Y>>();
}

size_t rl_heads_records_shared(void)
{
    return (sizeof(attention_floats::Decays) + 15) / 16 * 16 + sizeof(attention_heads::Record);
}

size_t rl_heads_shared(void)
{
    return attention_heads::Room<RL_HEADS_Y>::BYTES;
}
