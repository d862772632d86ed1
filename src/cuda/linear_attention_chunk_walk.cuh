/*
 * A walk of linear attention through chunks of 64 steps, by products of matrices on the tensor cores.
 *
 *     block  = a mixer, and a warpgroup for each 64 values of one head: all keys, some chunks one after the other
 *     thread = the 2 x KEYS / 4 numbers of Sᵀ [values, keys] that products give it (machine/wgmma.cuh)
 *
 * With S the state that enters, D the products of the gates between two steps, b and e those from the chunk's begin
 * and to its end, w the factor of k and f that of y:
 *
 *     Yᵀ = Sᵀ Qᵀ · b_t + Vᵀ Pᵀ      Pᵀ = K Qᵀ · D_tj w_j       y = f Yᵀ
 *     Sᵀ = Sᵀ · b_last + (Vᵀ · e_j w_j) K
 *
 * Q and K are operands as they lie in shared memory.  Sᵀ and Vᵀ are operands from registers, where S stays; Pᵀ is the
 * mixer's (linear_attention_chunk_mixer.cuh), which is a chunk ahead.  P is rounded to bfloat16 on the way; S to two
 * such numbers, whose products are added, but to one where gates' gradients are wanted; Vᵀ e w to one, but to two
 * where the state is given out.  With dv the walk of dk answers once more (linear_attention_chunk_other.cuh).
 * Where products may not be used, for the gates' sake (linear_attention_chunk_decays.cuh) or because numbers are so
 * large, or not finite, that a sum could overflow, the chunk is run step by step in the loop's own order.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_WALK_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_WALK_CUH

#include "linear_attention_chunk_other.cuh"
#include "linear_attention_chunk_products.cuh"

namespace attention_chunks
{

template <int KEYS, Purpose PURPOSE> struct Walk : Products<KEYS, PURPOSE> {
    typedef attention_chunks::Products<KEYS, PURPOSE> Products;
    typedef typename Products::Layout Layout;
    typedef typename Products::KeySplit KeySplit;
    typedef typename Products::StepSplit StepSplit;
    static constexpr bool HERE = Products::BOTH && Layout::SECONDS == 0; /* the group makes the other answer, too */
    static constexpr bool SHARES = Layout::SECONDS > 0;
    using Products::add_inputs;
    using Products::add_up_rows;
    using Products::args;
    using Products::arrive;
    using Products::block_row;
    using Products::BOTH;
    using Products::bound;
    using Products::course;
    using Products::cross_states;
    using Products::decay_answers;
    using Products::decay_state;
    using Products::decays;
    using Products::first_value;
    using Products::forget_places;
    using Products::GATES;
    using Products::group;
    using Products::head;
    using Products::is_small;
    using Products::keep_half;
    using Products::LEAVES;
    using Products::load_values;
    using Products::mark_head;
    using Products::meet;
    using Products::multiply_mix;
    using Products::multiply_state;
    using Products::pair;
    using Products::PAIRED;
    using Products::phase;
    using Products::recall_kept;
    using Products::S;
    using Products::share_half;
    using Products::shared;
    using Products::signals;
    using Products::split_state;
    using Products::stage;
    using Products::sum_with_partner;
    using Products::SUMS;
    using Products::thread;
    using Products::value_row;
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
    /* Into rows of shared memory; a warp's columns are those of its values. */
    __device__ __forceinline__ void put_rows(char *rows, const float (&Y)[32], const Decays &d) const
    {
#pragma unroll
        for (int column = 0; column < BLOCKS; column += 2) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = column + k / 2, at = block * 4 + k % 2 * 2;
                const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
                words[k] = pack_bfloats(Y[at] * factor.x, Y[at + 1] * factor.y);
            }
            matrices_store<4, true>(block_row(rows, column, true), words);
        }
    }
    /* By way of shared memory, where the group's V was, into rows as they lie; 16 bytes a thread. */
    __device__ __forceinline__ void store_staged(const float (&Y)[32], const Decays &d, int chunk) const
    {
        char *const rows = stage(chunk) + Layout::V + group * TILE;
        put_rows(rows, Y, d);
        store_rows(rows, args.y, first_value, args.values, chunk);
        if (Layout::OVER_V) meet(); /* all have read them before the place is given to the next V */
    }
    /* The engine takes no tile that begins before the tensor. */
    __device__ __forceinline__ bool can_copy(int chunk) const
    {
        return Layout::COPIES && args.copies_y && course.time(chunk) >= 0;
    }
    /* By the copy engine. */
    __device__ __forceinline__ void store_copied(const float (&Y)[32], const Decays &d, int chunk) const
    {
        const int turn = Layout::OWN_ROWS == 2 ? chunk & 1 : 0;
        char *const rows = Layout::OVER_V ? stage(chunk) + Layout::V + group * TILE
                                          : shared + Layout::Y_ROW + (turn * Layout::GROUPS + group) * TILE;
        if (Layout::OWN_ROWS == 1) {
            finish_stores();
            meet(); /* the rows of the chunk before were read */
        }
        put_rows(rows, Y, d);
        shared_publish();
        if (Layout::OWN_ROWS == 2) finish_stores();
        meet(); /* these rows are there, and of two those of the chunk before were read */
        if (thread == 0) {
            tile_store(args.to, HeadTileAt{first_value, (int)course.time(chunk), head, (int)course.row}, rows);
            stores_commit();
        }
        __syncwarp(); /* the engine is told by registers that a warp's threads share */
    }
    __device__ __forceinline__ void finish_stores() const
    {
        if (!Layout::COPIES) return;
        if (thread == 0) stores_wait<0>();
        __syncwarp();
    }
    /* The place of the chunk before may be filled anew. */
    __device__ __forceinline__ void give_place(int chunk) const
    {
        if (!Layout::OVER_V || chunk == this->first) return;
        if (thread == 0) {
            stores_wait<0>();
            barrier_arrive(&signals().stored[this->turn(chunk - 1)]);
        }
        __syncwarp();
    }
    __device__ __forceinline__ void store_rows(const char *rows, const rl_attention_view &to, int64_t lane,
                                               int64_t lanes, int chunk) const
    {
        const int64_t step = course.step(chunk);
        const int piece = thread % 8;
        const bool exists = lane + piece * 8 < lanes;
        shared_publish(); /* before the copy engine writes there again */
        meet();           /* the rows are there */
#pragma unroll
        for (int row = thread / 8; row < STEPS; row += THREADS / 8) {
            const int n = course.turned(row);
            if (exists && course.has(step + n))
                *(uint4 *)((bf16 *)to.data + course.at(to, head, step + n) + lane + piece * 8) =
                    *(const uint4 *)piece_of((char *)rows, row, piece);
        }
    }

    /*
     * In the loop's own order, each product and sum rounded by itself; a row's keys are added up by four threads. The
     * state goes through memory: this is to take no registers from the products.
     */
    __device__ __forceinline__ void run_steps(int chunk, bool wants_y)
    {
        const Decays &d = decays(chunk);
        const char *q = stage(chunk), *k = q + Layout::K, *v = q + Layout::V + group * TILE;
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
        bound = INFINITY;
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

    __device__ __forceinline__ void grow(const Decays &d)
    {
        bound = fmaf(bound, fabsf(d.carry), d.input) * 1.001f; /* sums are rounded */
    }
    __device__ __forceinline__ void start_state(StepSplit &steps, char *v, const Decays &d)
    {
        weigh_values(steps, v, d);
        decay_state(d);
    }
    /* Those of the state run while Y gets its decays, those of P and V behind them. */
    __device__ __forceinline__ void run_products(int chunk, bool wants_y)
    {
        const Decays &d = decays(chunk);
        char *const q = stage(chunk), *const k = q + Layout::K, *const v = q + Layout::V;
        float Y[32];
        Other<KEYS, PURPOSE> other(*this, 0);
        uint32_t V[TURNS][4];
        StepSplit steps;
        {
            KeySplit low, high; /* of the keys */
            split_state(low, 0);
            split_state(high, 1);
            if (PURPOSE == READ_STATES) keep_half(low, chunk, 0);
            if (PURPOSE == READ_STATES) keep_half(high, chunk, 1);
            if (BOTH) share_state(low, high);
            if (!LEAVES) start_state(steps, v, d); /* S is not touched once products run: the compiler would wait */
            hold(Y);
            multiply_state(Y, low, q, 0);
            multiply_state(Y, high, q, 1);
            if (!LEAVES) add_inputs(steps, k);
            give_place(chunk);
            products_wait<LEAVES ? 0 : 1>();
            low.stay();
            high.stay();
        }
        hold(Y);
        if (LEAVES) { /* registers would not do before */
            start_state(steps, v, d);
            add_inputs(steps, k);
        }
        decay_answers(Y, d);
        if (GATES) sum_with_partner(Y, chunk, d, true);
        if (HERE) other.multiply_state(chunk); /* behind the sums, for registers' sake */
        load_values(V, v);
        hold(Y);
        multiply_mix(Y, V, chunk);
        grow(d);
        if (HERE) {
            products_wait<1>();
            other.decay(d);
            other.multiply_pairs(chunk);
        }
        products_wait<HERE ? 1 : 0>();
        steps.stay();
        hold(V);
        hold(S);
        hold(Y);
        const bool wants_whole = PAIRED && args.wants_whole;
        if (wants_whole) {
            add_up_rows(chunk, group, INNER);
            meet(); /* they were read */
            sum_with_partner(Y, chunk, d, false);
        }
        if (wants_y && can_copy(chunk))
            store_copied(Y, d, chunk);
        else if (wants_y && args.stages_y)
            store_staged(Y, d, chunk);
        else if (wants_y)
            store_plain(Y, d, chunk);
        if (HERE) {
            products_wait<0>();
            meet(); /* all have read the state, whose place the rows take */
            if (wants_y) other.store(d, chunk);
        }
        if (GATES) add_up_rows(chunk, group, wants_whole ? WHOLE : INNER);
    }
    __device__ __forceinline__ void share_state(const KeySplit &low, const KeySplit &high) const
    {
        share_half(low, 0);
        share_half(high, 1);
        shared_publish();
        if (SHARES)
            arrive(&signals().shared);
        else
            meet(); /* the state is there */
    }
    /* Once the other warpgroup has read what was shared before. */
    __device__ __forceinline__ void tell(int chunk, bool fits) const
    {
        if (chunk > this->first) barrier_wait(&signals().taken, (chunk - 1 - this->first) & 1);
        if (thread == 0) signals().fits[group] = fits;
        if (!fits) arrive(&signals().shared);
    }
    __device__ __forceinline__ bool is_welcome(int chunk)
    {
        return __all_sync(ALL, is_small(decays(chunk).most_state)); /* they agree, and so the compiler knows it */
    }
    __device__ __forceinline__ void await(int chunk)
    {
        forget_places();
        barrier_wait(&signals().ready[this->turn(chunk)], phase(chunk));
    }
    __device__ __forceinline__ void release(int chunk) const
    {
        arrive(&signals().used[this->turn(chunk)]);
    }
    __device__ __forceinline__ void run(int chunk, bool wants_y)
    {
        uint32_t kept[KEYS / 4];
        forget_places();
        if (PAIRED) recall_kept(kept, chunk); /* ahead of the wait: it takes as long */
        await(chunk);
        if (PAIRED) cross_states(kept, decays(chunk), chunk);
        const bool fits = is_welcome(chunk);
        if (SHARES) tell(chunk, fits);
        if (fits) {
            run_products(chunk, wants_y);
        } else {
            mark_head();
            give_place(chunk);
            finish_stores();
            meet(); /* rows of its turn were read: it has none for the next chunk to wait for */
            run_steps(chunk, wants_y);
        }
        release(chunk);
    }
    /* Where the group has no values. */
    __device__ __forceinline__ void pass(int chunk)
    {
        await(chunk);
        give_place(chunk);
        release(chunk);
    }

    /*
     * The sum alone: what chunks add to the state that enters, each weighed while the products of the one before run.
     * Returns the first chunk that is not in it: the end, or one where products may not be used, by then awaited.
     */
    template <class Fate> __device__ __forceinline__ int sum_up(Fate &fate, int end)
    {
        StepSplit next;
        int chunk = this->first;
        if (chunk == end) return end;
        await(chunk);
        weigh_values(next, stage(chunk) + Layout::V, decays(chunk));
#pragma unroll 1
        for (; chunk < end; chunk++) {
            const int then = chunk + 1 < end ? chunk + 1 : chunk;
            const Decays &d = decays(chunk);
            StepSplit steps = next;
            if (!is_welcome(chunk)) break;
            grow(d);
            fate.take(d);
            await(then); /* no branch may lie beside products: their registers would be given away */
            decay_state(d);
            steps.stay();
            add_inputs(steps, stage(chunk) + Layout::K);
            weigh_values(next, stage(then) + Layout::V, decays(then));
            products_wait<0>();
            steps.stay();
            hold(S);
            release(chunk);
        }
        return chunk;
    }
};

} // namespace attention_chunks

#endif
