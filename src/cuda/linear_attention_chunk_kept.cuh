/*
 * The walk by chunks that gives no answer but leaves states for the gradients: that before every second chunk, in the
 * order of the recurrence, rounded to bfloat16.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_KEPT_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_KEPT_CUH

#include "linear_attention_chunk_walk.cuh"

namespace attention_chunks
{

template <int KEYS, Purpose PURPOSE> struct Kept : Walk<KEYS, PURPOSE> {
    typedef attention_chunks::Walk<KEYS, PURPOSE> Walk;
    typedef typename Walk::Layout Layout;
    typedef typename Walk::StepSplit StepSplit;
    using Walk::add_inputs;
    using Walk::args;
    using Walk::await;
    using Walk::block_row;
    using Walk::course;
    using Walk::decay_state;
    using Walk::decays;
    using Walk::group;
    using Walk::grow;
    using Walk::head;
    using Walk::is_welcome;
    using Walk::meet;
    using Walk::pass;
    using Walk::release;
    using Walk::S;
    using Walk::sequence;
    using Walk::shared;
    using Walk::stage;
    using Walk::thread;
    using Walk::weigh_values;

    using Walk::Walk;

    /*
     * The states alone, of which that before every second chunk is left for the gradients, rounded to bfloat16: as
     * two tiles' lines side by side [keys of this walk], by all of the block's values.
     */
    __device__ __forceinline__ bool is_left(int chunk) const
    {
        return args.backward ? chunk == 0 || (course.chunks - 1 - chunk) % 2 == 1 : chunk % 2 == 0;
    }
    /* As rows of the group's values, in panels of 64 keys, just as they lie in shared memory. */
    __device__ __forceinline__ void leave_state(int chunk) const
    {
        const int own = args.backward ? course.chunks - 1 - chunk : chunk;
        const int64_t pairs = (args.length + 2 * STEPS - 1) / (2 * STEPS);
        const int64_t place = ((int64_t)head * args.sequences + sequence) * pairs + own / 2;
        char *const from = shared + Layout::STATE + group * TILE, *const to = (char *)args.states + group * TILE;
        if (thread == 0) stores_wait<0>();
        meet(); /* what was left before is out */
#pragma unroll
        for (int turn = 0; turn < KEYS / TURN; turn++) {
            uint32_t words[4];
#pragma unroll
            for (int k = 0; k < 4; k++) words[k] = pack_bfloats(S[turn * 8 + 2 * k], S[turn * 8 + 2 * k + 1]);
            char *const tile = from + turn / 4 * (Layout::GROUPS * TILE);
            matrices_store<4, false>(block_row(tile, turn % 4 * 2, false), words);
        }
        shared_publish();
        meet(); /* the image is there */
        if (thread == 0) {
#pragma unroll
            for (int panel = 0; panel < Layout::PANELS; panel++) {
                const int at = panel * Layout::GROUPS * TILE;
                bytes_store(to + place * Layout::STATES + at, from + at, TILE);
            }
            stores_commit();
        }
        __syncwarp();
    }
    /* From the chunk `begin` on states are left; false where a chunk does not let products be used. */
    __device__ __forceinline__ bool keep_up(int begin, int end)
    {
        StepSplit next;
        int chunk = this->first;
        if (chunk == end) return true;
        await(chunk);
        weigh_values(next, stage(chunk) + Layout::V, decays(chunk));
#pragma unroll 1
        for (; chunk < end; chunk++) {
            const Decays &d = decays(chunk);
            StepSplit steps = next;
            if (!is_welcome(chunk)) break;
            if (chunk >= begin && is_left(chunk)) leave_state(chunk);
            decay_state(d);
            steps.stay();
            add_inputs(steps, stage(chunk) + Layout::K);
            grow(d);
            if (chunk + 1 < end) {
                await(chunk + 1);
                weigh_values(next, stage(chunk + 1) + Layout::V, decays(chunk + 1));
            }
            products_wait<0>();
            steps.stay();
            hold(S);
            release(chunk);
        }
        const bool fits = chunk == end;
#pragma unroll 1
        for (; chunk < end; chunk++) {
            if (chunk >= begin && is_left(chunk)) leave_state(chunk);
            pass(chunk);
        }
        if (thread == 0) stores_finish();
        __syncwarp();
        return fits;
    }
};

} // namespace attention_chunks

#endif
