/*
 * A walk of linear attention through chunks of 64 steps, by products of matrices on the tensor cores.
 *
 *     block  = one warpgroup: 64 values of one head, all keys, some chunks one after the other
 *     thread = the 2 x KEYS / 4 numbers of Sᵀ [values, keys] that products give it (machine/wgmma.cuh)
 *
 * With S the state that enters, D the products of the gates between two steps, b and e those from the chunk's begin
 * and to its end, w the factor of k and f that of y:
 *
 *     Yᵀ = Sᵀ Qᵀ · b_t + Vᵀ Pᵀ      Pᵀ = K Qᵀ · D_tj w_j       y = f Yᵀ
 *     Sᵀ = Sᵀ · b_last + (Vᵀ · e_j w_j) K
 *
 * Q and K are operands as they lie in shared memory.  Sᵀ and Vᵀ are operands from registers, where S stays; only Pᵀ
 * goes through shared memory, since every warp makes rows of it and needs all.  What is rounded on the way (S, P and
 * Vᵀ e w) is two bfloat16 numbers, whose products are added: 16 bits of each, beside the 8 of the inputs.
 *
 * Where products may not be used (linear_attention_chunk_decays.cuh), or what they give is not finite, the chunk is
 * run step by step in the loop's own order, from the state that entered it.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_WALK_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_WALK_CUH

#include "linear_attention_chunk_products.cuh"

namespace attention_chunks
{

template <int KEYS, Purpose PURPOSE> struct Walk : Products<KEYS, PURPOSE> {
    typedef attention_chunks::Products<KEYS, PURPOSE> Products;
    typedef typename Products::Layout Layout;
    typedef typename Products::KeySplit KeySplit;
    typedef typename Products::StepSplit StepSplit;
    using Products::args;
    using Products::await;
    using Products::await_partner;
    using Products::block_row;
    using Products::course;
    using Products::cross_states;
    using Products::decay_state;
    using Products::decays;
    using Products::fades;
    using Products::first_value;
    using Products::forget_places;
    using Products::GATES;
    using Products::head;
    using Products::is_moderate;
    using Products::is_steady;
    using Products::keep_half;
    using Products::load_values;
    using Products::look_at_state;
    using Products::mark_head;
    using Products::mix;
    using Products::multiply_inputs;
    using Products::multiply_mix;
    using Products::multiply_pairs;
    using Products::multiply_state;
    using Products::multiply_steps;
    using Products::pair;
    using Products::prepare;
    using Products::refill;
    using Products::S;
    using Products::shared;
    using Products::split_state;
    using Products::stage;
    using Products::sum_with_partner;
    using Products::SUMS;
    using Products::sums_at;
    using Products::take_state;
    using Products::thread;
    using Products::value_row;
    using Products::weigh_steps;
    using Products::weigh_values;

    using Products::Products;

    /* Results */

    __device__ __forceinline__ void store_number(int64_t at, float number) const
    {
        if (args.y.dtype == RILL_BF16)
            ((bf16 *)args.y.data)[at] = narrow<bf16>(number);
        else
            ((float *)args.y.data)[at] = number;
    }
    __device__ __forceinline__ void store_plain(const float (&Y)[32], const Decays &d, int chunk) const
    {
        const int64_t step = course.step(chunk);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int row = i / 4 * 8 + pair() * 2 + i % 2, n = course.turned(row);
            const int64_t value = first_value + value_row(i / 2 % 2);
            if (course.has(step + n) && value < args.values)
                store_number(course.at(args.y, head, step + n) + value * args.y.lane, Y[i] * d.factor[row]);
        }
    }
    /* By way of shared memory, where P was, into rows as they lie; 16 bytes a thread. */
    __device__ __forceinline__ void store_staged(const float (&Y)[32], const Decays &d, int chunk) const
    {
        const int64_t step = course.step(chunk);
#pragma unroll
        for (int column = 0; column < BLOCKS; column += 2) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = column + k / 2, at = block * 4 + k % 2 * 2;
                const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
                words[k] = pack_bfloats(Y[at] * factor.x, Y[at + 1] * factor.y);
            }
            matrices_store<4, true>(block_row(column, true), words);
        }
        barrier_meet<READY, THREADS>(); /* the rows are there */
        const int piece = thread % 8;
        const bool exists = first_value + piece * 8 < args.values;
#pragma unroll
        for (int row = thread / 8; row < STEPS; row += THREADS / 8) {
            const int n = course.turned(row);
            if (exists && course.has(step + n))
                *(uint4 *)((bf16 *)args.y.data + course.at(args.y, head, step + n) + first_value + piece * 8) =
                    *(const uint4 *)piece_of(mix(), row, piece);
        }
    }

    /*
     * Of what products gave, while those of the state are at work; 0 if all is finite, or else nothing is stored.
     */
    __device__ __forceinline__ float store(const float (&Y)[32], const Decays &d, int chunk, bool wants_y) const
    {
        float finite = 0;
#pragma unroll
        for (int i = 0; i < 32; i++) look_at(finite, Y[i]);
        if (PURPOSE == READ_GRADIENTS && args.wants_whole) sum_with_partner(Y, sums_at(chunk, WHOLE), d, false);
        const bool loops = barrier_meet_any<READY, THREADS>(finite != 0); /* and P is no longer needed */
        if (loops) {
            mark_head();
            return 1;
        }
        if (wants_y && args.stages_y)
            store_staged(Y, d, chunk);
        else if (wants_y)
            store_plain(Y, d, chunk);
        return 0;
    }

    /*
     * In the loop's own order, each product and sum rounded by itself; a row's keys are added up by four threads. The
     * state goes through memory: this is to take no registers from the products.
     */
    __device__ __forceinline__ void run_steps(int chunk, bool wants_y)
    {
        const Decays &d = decays(chunk);
        const char *q = stage(chunk), *k = q + Layout::K, *v = q + Layout::V;
        float own[KEYS / 2];
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) own[i] = S[i];
#pragma unroll 1
        for (int n = 0; n < STEPS; n++) {
            if (!course.has(course.step(chunk) + n)) continue;
            const int row = course.turned(n);
            float total[2] = {0, 0};
#pragma unroll 1
            for (int i = 0; i < KEYS / 2; i++) {
                const int key = i / 4 * 8 + pair() * 2 + i % 2, upper = i / 2 % 2;
                const float value = number_of(v, row, value_row(upper)), weight = d.weight[row];
                const float left =
                    args.weighs_values ? number_of(k, row, key) : rounded_product(weight, number_of(k, row, key));
                const float input =
                    rounded_product(left, args.weighs_values ? rounded_product(weight, value) : value);
                const float now = d.reset[row] ? input : rounded_sum(rounded_product(d.gate[row], own[i]), input);
                own[i] = now;
                if (SUMS || key >= args.keys) continue;
                const float read = rounded_product(now, number_of(q, row, key));
                total[0] = upper ? total[0] : rounded_sum(total[0], read);
                total[1] = upper ? rounded_sum(total[1], read) : total[1];
            }
            if (wants_y) store_step(total, d.factor[row], course.step(chunk) + n);
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) S[i] = own[i];
        barrier_meet<READY, THREADS>(); /* inputs and decays are no longer needed */
    }
    __device__ __forceinline__ void store_step(float (&total)[2], float factor, int64_t step) const
    {
#pragma unroll
        for (int upper = 0; upper < 2; upper++) {
            total[upper] += __shfl_xor_sync(ALL, total[upper], 1);
            total[upper] += __shfl_xor_sync(ALL, total[upper], 2);
            const int64_t value = first_value + value_row(upper);
            if (pair() == 0 && value < args.values)
                store_number(course.at(args.y, head, step) + value * args.y.lane, total[upper] * factor);
        }
    }

    /* Chunks */

    /* Waits for the inputs and makes the decays; whether products may be used. */
    __device__ __forceinline__ bool is_welcome(int chunk) const
    {
        Decays &d = decays(chunk);
        await(chunk);
        if (thread < STEPS) finish_decays(d, course);
        const bool asks = is_steady(d) && fades(d), moderate = !asks || is_moderate(d, chunk);
        return !barrier_meet_any<READY, THREADS>(!is_steady(d) || !moderate); /* and decays are there */
    }
    __device__ __forceinline__ void run_products(int chunk, bool wants_y)
    {
        const Decays &d = decays(chunk);
        char *const q = stage(chunk), *const k = q + Layout::K, *const v = q + Layout::V;
        float Y[32], U[KEYS / 2], finite;
        uint32_t V[TURNS][4];
        if (PURPOSE == READ_GRADIENTS) cross_states(d, chunk);
        {
            float P[32], M[32];
            Pairs pairs;
            KeySplit low, high; /* of the keys */
            multiply_steps(P, q, k);
            if (PURPOSE == READ_GRADIENTS) { /* not beside those of the state: registers would not do */
                await_partner(chunk);
                multiply_pairs(M, v);
                products_wait<0>();
                hold(P);
                hold(M);
                pairs.clear();
                weigh_steps(P, d, M, pairs);
                pairs.sums.store(sums_at(chunk, PAIRS), thread);
            }
            split_state(low, 0);
            if (PURPOSE == READ_STATES) keep_half(low, chunk, 0);
            hold(Y);
            multiply_state(Y, low, q, 0);
            if (PURPOSE != READ_GRADIENTS) {
                products_wait<1>();
                hold(P);
                weigh_steps(P, d, M, pairs);
            }
            shared_publish();
            split_state(high, 1);
            if (PURPOSE == READ_STATES) keep_half(high, chunk, 1);
            multiply_state(Y, high, q, 1);
            load_values(V, v, 0);
            products_wait<0>();
            low.stay();
            high.stay();
            hold(Y);
        }
        decay_state(Y, d);
        if (PURPOSE == READ_STATES) await_partner(chunk);
        if (GATES) sum_with_partner(Y, sums_at(chunk, INNER), d, true);
        barrier_meet<READY, THREADS>(); /* all of P is there */
        forget_places();
        hold(V);
        hold(Y);
        multiply_mix(Y, V);
        {
            StepSplit early, late; /* of the steps */
            weigh_values(early, v, d, 0);
            hold(U);
            multiply_inputs(U, early, k, 0);
            products_wait<1>();
            hold(V);
            hold(Y);
            finite = store(Y, d, chunk, wants_y);
            weigh_values(late, v, d, 1);
            multiply_inputs(U, late, k, 1);
            prepare(chunk + 1);
            products_wait<0>();
            early.stay();
            late.stay();
        }
        hold(U);
        const float carry = (float)(d.carry[0] * d.carry[1]);
        look_at_state(finite, U, carry);
        if (barrier_meet_any<READY, THREADS>(finite != 0)) { /* NaN, too; else inputs are no longer needed */
            mark_head();
            run_steps(chunk, wants_y);
        } else {
            take_state(U, carry);
        }
    }
    __device__ __forceinline__ void run(int chunk, bool wants_y)
    {
        forget_places();
        if (is_welcome(chunk)) {
            run_products(chunk, wants_y);
        } else {
            if (GATES) await_partner(chunk);
            mark_head();
            prepare(chunk + 1);
            run_steps(chunk, wants_y);
        }
        refill(chunk);
    }

    /* The sum alone: what the chunk adds to the state that enters; false where products may not be used. */
    __device__ __forceinline__ bool add(int chunk)
    {
        const Decays &d = decays(chunk);
        char *const k = stage(chunk) + Layout::K, *const v = stage(chunk) + Layout::V;
        float U[KEYS / 2], finite = 0;
        StepSplit early, late;
        forget_places();
        if (!is_welcome(chunk)) return false;
        weigh_values(early, v, d, 0);
        hold(U);
        multiply_inputs(U, early, k, 0);
        weigh_values(late, v, d, 1);
        multiply_inputs(U, late, k, 1);
        prepare(chunk + 1);
        products_wait<0>();
        early.stay();
        late.stay();
        hold(U);
        const float carry = (float)(d.carry[0] * d.carry[1]);
        look_at_state(finite, U, carry);
        if (barrier_meet_any<READY, THREADS>(finite != 0)) return false; /* inputs are no longer needed */
        take_state(U, carry);
        refill(chunk);
        return true;
    }
};

} // namespace attention_chunks

#endif
