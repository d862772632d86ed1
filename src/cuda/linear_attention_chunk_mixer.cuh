/*
 * The mixer of a walk by chunks: a warpgroup of its own that has the inputs brought, with the products of the gates,
 * makes Pᵀ = K Qᵀ · D w and says whether products may be used, a chunk ahead of those that hold the states.
 */
#ifndef RL_CUDA_LINEAR_ATTENTION_CHUNK_MIXER_CUH
#define RL_CUDA_LINEAR_ATTENTION_CHUNK_MIXER_CUH

#include "linear_attention_chunk_ground.cuh"

namespace attention_chunks
{

template <int KEYS, Purpose PURPOSE> struct Mixer : Ground<KEYS, PURPOSE> {
    typedef attention_chunks::Ground<KEYS, PURPOSE> Ground;
    typedef typename Ground::Layout Layout;
    static constexpr int SCANNED = Layout::PARTNER; /* of a stage */
    static constexpr int PARTS = Layout::SECONDS  ? 4
                                 : Layout::PAIRED ? 2
                                                  : 1,
                         WIDTH = STEPS / PARTS; /* of P's columns: registers */
    using Ground::args;
    using Ground::arrive;
    using Ground::block_row;
    using Ground::BOTH;
    using Ground::course;
    using Ground::decays;
    using Ground::end;
    using Ground::first;
    using Ground::first_value;
    using Ground::forget_places;
    using Ground::GATES;
    using Ground::head;
    using Ground::meet;
    using Ground::mix;
    using Ground::pair;
    using Ground::PAIRED;
    using Ground::partner;
    using Ground::phase;
    using Ground::row;
    using Ground::sequence;
    using Ground::signals;
    using Ground::stage;
    using Ground::SUMS;
    using Ground::thread;
    using Ground::value_row;
    using Ground::warp;
    const int q_head, k_head, v_head, partner_head;

    __device__ Mixer(const rl_chunks_args &args, int sequence, int head, int first_value, char *shared)
        : Ground(args, sequence, head, Layout::WARPGROUPS - 1, first_value, shared), q_head(head / (int)args.q_share),
          k_head(head / (int)args.k_share), v_head(head / (int)args.v_share),
          partner_head(GATES ? head / (int)args.partner_share : 0)
    {
    }

    /* By one thread. */
    __device__ __forceinline__ void fill(int chunk) const
    {
        if (chunk >= end) return;
        char *to = stage(chunk);
        uint64_t *full = &signals().full[(chunk - first) % Layout::STAGES];
        const int time = (int)course.time(chunk), row = (int)course.row;
        barrier_expect(full, Layout::DECAYS + sizeof(Decays));
        bytes_load(to + Layout::DECAYS, (const Decays *)args.gates + place_of(args, course, sequence, head, chunk),
                   sizeof(Decays), full);
#pragma unroll
        for (int panel = 0; panel < Layout::PANELS; panel++) {
            tile_load(to + Layout::K + panel * TILE, args.k, HeadTileAt{panel * WIDE, time, k_head, row}, full);
            if (!SUMS) tile_load(to + panel * TILE, args.q, HeadTileAt{panel * WIDE, time, q_head, row}, full);
        }
#pragma unroll
        for (int group = 0; group < Layout::GROUPS; group++) {
            const int lane = first_value + group * VALUES;
            tile_load(to + Layout::V + group * TILE, args.v, HeadTileAt{lane, time, v_head, row}, full);
            if (GATES)
                tile_load(to + Layout::PARTNER + group * TILE, args.partner,
                          HeadTileAt{lane, time, partner_head, row}, full);
        }
    }
    /* Into the second-level cache, the states that those who hold others will want of the chunk. */
    __device__ __forceinline__ void bring_kept_near(int chunk) const
    {
        if (!PAIRED) return;
        const int64_t size = KEYS * VALUES * sizeof(bf16), line = (int64_t)head * args.slabs + first_value / VALUES;
#pragma unroll
        for (int group = 0; group < Layout::GROUPS; group++)
            if (first_value + group * VALUES < args.values)
                bytes_prefetch((const char *)args.states + this->place_of_line(line + group, chunk) * size,
                               (uint32_t)size);
    }
    /* Rows of a packed tile that are another sequence's. */
    __device__ __forceinline__ void clear_rows(int chunk) const
    {
        const int64_t step = course.step(chunk);
        if (!args.offsets || (course.has(step) && course.has(step + STEPS - 1))) return;
        for (int at = thread; at < Layout::DECAYS / PIECE; at += THREADS)
            if (!course.has(step + course.turned(at / (ROW / PIECE) % STEPS)))
                ((uint4 *)stage(chunk))[at] = uint4{0, 0, 0, 0};
        shared_publish();
        meet(); /* the rows are clear */
    }
    /* A sum of squares is no less than each of them. */
    __device__ __forceinline__ void scan(Decays &to, int chunk) const
    {
        const uint4 *from = (const uint4 *)stage(chunk) + thread;
        uint32_t sums[4] = {0, 0, 0, 0};
#pragma unroll 4
        for (int at = 0; at < SCANNED / PIECE; at += THREADS) {
            const uint4 words = from[at];
            sums[0] = add_squares(sums[0], words.x);
            sums[1] = add_squares(sums[1], words.y);
            sums[2] = add_squares(sums[2], words.z);
            sums[3] = add_squares(sums[3], words.w);
        }
        float most = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) most += low_of(sums[i]) + high_of(sums[i]);
        to.square[warp()] = largest_over_warp(most) * 1.01f; /* squares are rounded */
    }
    /* M[rows, columns] of a part of the columns, over all lanes. */
    template <int COUNT>
    __device__ __forceinline__ void multiply(float (&M)[WIDTH / 2], const char *rows, const char *columns,
                                             int part) const
    {
        hold(M);
        products_fence();
#pragma unroll
        for (int turn = 0; turn < COUNT; turn++)
            product_of_tiles<BF16, WIDTH, false, false>(M, keys_at(rows, turn),
                                                        keys_at(columns + part * (WIDTH * ROW), turn), turn > 0);
        products_commit();
    }
    __device__ __forceinline__ void multiply_steps(float (&P)[WIDTH / 2], float (&M)[WIDTH / 2], int chunk,
                                                   int part) const
    {
        const char *const q = stage(chunk), *const k = q + Layout::K, *const v = q + Layout::V;
        if (!SUMS) multiply<KEYS / TURN>(P, k, q, part);
        if (PAIRED) multiply<Layout::GROUPS * VALUES / TURN>(M, v, partner(chunk), part);
    }
    __device__ __forceinline__ void await_steps(float (&P)[WIDTH / 2], float (&M)[WIDTH / 2]) const
    {
        products_wait<0>();
        hold(P);
        if (PAIRED) hold(M);
    }
    /* P with its decays, to shared memory, and where dv is wanted the products of the partner behind it. */
    __device__ __forceinline__ void weigh_steps(const float (&P)[WIDTH / 2], const float (&M)[WIDTH / 2],
                                                Pairs &pairs, const Decays &d, int chunk, int part) const
    {
        const float2 *until = (const float2 *)d.until + pair();
        const int begin = part * (WIDTH / BLOCK);
        float after[2];
#pragma unroll
        for (int upper = 0; upper < 2; upper++) after[upper] = d.after[value_row(upper)];
#pragma unroll
        for (int column = 0; column < WIDTH / BLOCK; column += 2) {
            uint32_t words[4], others[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int block = begin + column + k / 2, upper = k % 2, own = warp() * 2 + upper;
                float2 decay = until[block * 4];
                const float between = after[upper] * d.between[own][block];
                decay.x *= between;
                decay.y *= between;
                if (block == own) decay = *(const float2 *)&d.within[own][row()][pair() * 2];
                const int at = (column + k / 2) * 4 + upper * 2;
                const float first = P[at] * decay.x, second = P[at + 1] * decay.y;
                words[k] = pack_bfloats(first, second);
                if (BOTH) others[k] = pack_bfloats(M[at] * decay.x, M[at + 1] * decay.y);
                if (!PAIRED) continue;
                const float2 factor = ((const float2 *)d.factor)[block * 4 + pair()];
                pairs.take(first * M[at] * factor.x, second * M[at + 1] * factor.y, block, upper, value_row(upper),
                           pair());
            }
            char *const to = block_row(mix(chunk), begin + column, false);
            matrices_store<4, false>(to, words);
            if (BOTH) matrices_store<4, false>(to + TILE, others);
        }
    }
    __device__ __forceinline__ void run_chunk(int chunk)
    {
        Decays &d = decays(chunk);
        float P[WIDTH / 2], M[WIDTH / 2];
        if (chunk >= first + Layout::TURNS) {
            const int used = chunk - Layout::TURNS;
            barrier_wait(&signals().used[this->turn(used)], phase(used));
            if (thread == 0 && !Layout::OVER_V && !SUMS) fill(used + Layout::STAGES);
            if (thread == 0) bring_kept_near(chunk);
            __syncwarp(); /* the engine is told by registers that a warp's threads share */
        }
        barrier_wait(&signals().full[(chunk - first) % Layout::STAGES],
                     (uint32_t)((chunk - first) / Layout::STAGES) & 1);
        clear_rows(chunk);
        scan(d, chunk);
        multiply_steps(P, M, chunk, 0);
        if (!SUMS) await_steps(P, M);
        meet(); /* the sums of squares are there */
        if (thread == 0) judge(d);
        if (!SUMS) {
            Pairs pairs;
            if (PAIRED) pairs.clear();
            weigh_steps(P, M, pairs, d, chunk, 0);
#pragma unroll
            for (int part = 1; part < PARTS; part++) {
                multiply_steps(P, M, chunk, part);
                await_steps(P, M);
                weigh_steps(P, M, pairs, d, chunk, part);
            }
            if (PAIRED) {
                meet(); /* all have done with the table of steps */
                pairs.sums.store(this->row_sums(chunk, 0) + warp() * STEPS, thread);
                this->add_up_rows(chunk, 0, PAIRS);
                meet(); /* the sums were read: others take their place */
            }
            shared_publish();
        }
        arrive(&signals().ready[this->turn(chunk)]);
        if (SUMS && thread == 0 && chunk >= first + Layout::TURNS) /* others wait for what has come, not for that */
            fill(chunk - Layout::TURNS + Layout::STAGES);
        if (Layout::OVER_V && thread == 0 && chunk >= first + Layout::TURNS) {
            const int used = chunk - Layout::TURNS;
            barrier_wait(&signals().stored[this->turn(used)], phase(used));
            fill(used + Layout::STAGES);
        }
        __syncwarp();
    }
    __device__ __forceinline__ void run(int begin, int stop)
    {
        first = begin;
        end = stop;
        if (thread == 0)
            for (int ahead = 0; ahead < Layout::STAGES; ahead++) fill(begin + ahead);
        __syncwarp();
#pragma unroll 1
        for (int chunk = begin; chunk < stop; chunk++) {
            forget_places();
            run_chunk(chunk);
        }
    }
};

} // namespace attention_chunks

#endif
