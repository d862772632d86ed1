/* The warpgroup of a head's block that has the state. */
#ifndef RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_KEEPERS_CUH
#define RL_CUDA_LINEAR_ATTENTION_FLOATS_HEADS_KEEPERS_CUH

#include "linear_attention_floats_heads.cuh"

namespace attention_heads
{

/* The warpgroup that has the state. */
template <int WHAT> struct Keepers : Head<WHAT> {
    typedef Head<WHAT> Base;
    using Base::args;
    using Base::chunks;
    using Base::lane;
    using Base::shared;
    using Base::signals;
    using Base::stage;
    using Base::thread;
    using Base::walk;
    typedef typename Base::Room Room;
    static constexpr bool IS_TURNED = WHAT == RL_HEADS_DQ || WHAT == RL_HEADS_DK; /* rows are values */
    float S[LANES / 2];
    bool special, all;

    __device__ Keepers(const rl_heads_args &all, char *shared, int walk, int lane, int thread)
        : Base(all, shared, walk, lane, thread), special(false), all(false)
    {
    }
    __device__ __forceinline__ int row(int i) const
    {
        return thread / 32 * STRIP + group_of_lane() + i / 2 % 2 * 8;
    }
    __device__ __forceinline__ int column(int i) const
    {
        return i / 4 * 8 + 2 * pair_of_lane() + i % 2;
    }
    __device__ __forceinline__ int key(int i) const
    {
        return IS_TURNED ? lane + column(i) : row(i);
    }
    __device__ __forceinline__ int value(int i) const
    {
        return IS_TURNED ? row(i) : lane + column(i);
    }
    __device__ __forceinline__ void start()
    {
        const rl_attention_state &from = Base::LATER ? args.dS_final : args.in.S_init;
#pragma unroll
        for (int i = 0; i < LANES / 2; i++) {
            S[i] = state_number<WIDE>(from, args.in, walk, key(i), value(i));
            if (WHAT == RL_HEADS_Y && args.S && value(i) < WIDE)
                args.S[((int64_t)walk * WIDE + key(i)) * WIDE + value(i)] = S[i];
            special = special || !is_finite(S[i]);
            clean(S[i]);
        }
    }
    __device__ __forceinline__ void end()
    {
        const rl_attention_state &to = Base::LATER ? args.dS_init : args.S_final;
#pragma unroll
        for (int i = 0; i < LANES / 2; i++) all = all || !is_finite(S[i]);
        if constexpr (!IS_TURNED) /* another walk gives it out */
#pragma unroll
            for (int i = 0; i < LANES / 2; i++) store_state_number(to, args.in, walk, key(i), value(i), S[i]);
    }
    /* c with steps along its lines, in two parts. */
    __device__ __forceinline__ void turn_over(int turn)
    {
        const int own = thread % 32, begin = thread / 32 * 2; /* of the warp's two eights */
        char *const from = stage(turn) + Room::C + begin * (8 * LINE) + own % 4 * 4;
        float number[4][4], finite[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                number[i][e] = *(const float *)(piece_at(from, 2 * e + i % 2, own / 4) + i / 2 * (8 * LINE));
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) finite[e] = fmaf(number[i][e], 0.0f, finite[e]);
        if (finite[0] + finite[1] + finite[2] + finite[3] != 0) {
            special = true;
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) clean(number[i][e]);
        }
        char *const to = shared + Room::C_BIG + begin / 4 * TURNED;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            char *const at = piece_at(to, own, (begin + i / 2) % 4 * 2 + i % 2);
            const float(&n)[4] = number[i];
            *(float4 *)at = float4{n[0], n[1], n[2], n[3]};
            *(float4 *)(at + (Room::C_SMALL - Room::C_BIG)) =
                float4{small_part(n[0]), small_part(n[1]), small_part(n[2]), small_part(n[3])};
        }
    }
    /* Bᵀ, weighed, from b as it was loaded. */
    __device__ __forceinline__ void load_weighed(Operand<> &a, int turn) const
    {
        const int lane_of_b = thread / 32 % 2 * STRIP + group_of_lane(), step = 2 * pair_of_lane();
        char *const from = stage(turn) + Room::B + thread / 64 * PANEL + lane_of_b % 4 * 4;
        const char *const at[4] = {piece_at(from, step, lane_of_b / 4), piece_at(from, step, lane_of_b / 4 + 2),
                                   piece_at(from, step + 1, lane_of_b / 4),
                                   piece_at(from, step + 1, lane_of_b / 4 + 2)};
        const float *const weight = this->record(turn).weight + step;
#pragma unroll
        for (int n = 0; n < EIGHTS; n++) {
            const float2 worth = *(const float2 *)(weight + n * 8);
            float number[4];
#pragma unroll
            for (int i = 0; i < 4; i++) number[i] = *(const float *)(at[i] + n * (8 * LINE));
            a.set(n, number[0] * worth.x, number[1] * worth.x, number[2] * worth.y, number[3] * worth.y);
        }
    }
    /* For the answerers, and published. */
    __device__ __forceinline__ void show(int turn) const
    {
        const int own = row(0) % 32;
        char *const to = shared + Room::S_BIG + thread / 64 * TURNED + own % 4 * 4;
        char *const places[4] = {piece_at(to, column(0), own / 4), piece_at(to, column(1), own / 4),
                                 piece_at(to, column(0), own / 4 + 2), piece_at(to, column(1), own / 4 + 2)};
#pragma unroll
        for (int i = 0; i < LANES / 2; i++) {
            char *const at = places[i % 4] + i / 4 * (8 * LINE);
            *(float *)at = S[i];
            *(float *)(at + (Room::S_SMALL - Room::S_BIG)) = small_part(S[i]);
        }
        shared_publish();
        this->arrive(signals().state[turn % 2]);
    }
    /* Gates that fade are for moderate numbers only. */
    __device__ __forceinline__ bool is_heavy(int turn) const
    {
        const char *const from = stage(turn);
        bool heavy = this->record(turn).heavy;
        for (int i = thread; i < 3 * PANEL / 4; i += GROUP)
            heavy = heavy || (is_finite(((const float *)(from + Room::B))[i]) &&
                              is_large(((const float *)(from + Room::B))[i], MODERATE_INPUT));
        for (int i = 0; i < LANES / 2; i++) heavy = heavy || is_large(S[i], MODERATE_STATE);
        return heavy;
    }
    __device__ __forceinline__ void judge(int turn)
    {
        const Record &r = this->record(turn);
        special = special || r.special;
        if (!r.steady || (r.fades && is_heavy(turn))) all = true;
    }
    /* Of the other walk, for its gates' gradients. */
    __device__ __forceinline__ float4 *kept(int turn) const
    {
        return (float4 *)args.kept + this->place(turn) * (LANES * WIDE / 4) + thread;
    }
    __device__ __forceinline__ void keep(int turn) const
    {
#pragma unroll
        for (int i = 0; i < LANES / 2; i += 4) kept(turn)[i / 4 * GROUP] = float4{S[i], S[i + 1], S[i + 2], S[i + 3]};
    }
    __device__ __forceinline__ void cross(int turn) const
    {
        float total = 0;
#pragma unroll
        for (int i = 0; i < LANES / 2; i += 4) {
            const float4 own = kept(turn)[i / 4 * GROUP];
            total = fmaf(own.x, S[i], fmaf(own.y, S[i + 1], fmaf(own.z, S[i + 2], fmaf(own.w, S[i + 3], total))));
        }
#pragma unroll
        for (int away = 16; away > 0; away /= 2) total += __shfl_xor_sync(ALL, total, away);
        this->await_sums(turn);
        if (thread % 32 == 0) this->sums(turn).cross[thread / 32] = total;
        if (thread == 0) this->sums(turn).carry = this->record(turn).first;
        this->arrive(signals().summed);
    }
    __device__ __forceinline__ void run()
    {
        start();
        show(0);
#pragma unroll 1
        for (int turn = 0; turn < chunks; turn++) {
            const uint32_t phase = (uint32_t)turn & 1;
            float sum[LANES / 2];
            this->await_stage(turn);
            if (turn > 0) barrier_wait(&signals().answered, phase ^ 1);
            turn_over(turn);
            this->await_second(signals().split, turn); /* all of b is finite */
            shared_publish();
            this->arrive(signals().turned[turn % 2]);
            {
                Operand<> a;
                load_weighed(a, turn);
                this->await_second(signals().turned, turn);
                multiply<LANES>(sum, a, shared + Room::C_BIG, shared + Room::C_SMALL);
                judge(turn);
                if (WHAT == RL_HEADS_DQ && this->wants_gates()) keep(turn);
                if (WHAT == RL_HEADS_DK && this->wants_gates()) cross(turn);
                products_wait<0>();
                a.stay();
                hold(sum);
            }
            const float first = this->record(turn).first, second = this->record(turn).second;
            this->arrive(signals().empty[turn % Room::TURNS]);
#pragma unroll
            for (int i = 0; i < LANES / 2; i++) S[i] = passed(first, second, S[i], sum[i]);
            if (turn + 1 == chunks) break;
            barrier_wait(&signals().read, phase);
            show(turn + 1);
        }
        end();
    }
};

} // namespace attention_heads

#endif
