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
        return IS_TURNED ? lane + column(i) : lane_at(row(i));
    }
    __device__ __forceinline__ int value(int i) const
    {
        return IS_TURNED ? lane_at(row(i)) : lane + column(i);
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
    /* Bᵀ. */
    __device__ __forceinline__ void load_turned(Operand<> &a, int turn) const
    {
        const int own = thread % 32;
        char *const at = piece_at(this->parts_of_b(turn), own / 16 * 8 + own % 8, thread / 32 * 2 + own / 8 % 2);
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int n = 0; n < WIDE / TURN; n++)
                matrices_load<4, true>(a.part[part][n], at + part * PART + n * (TURN * LINE));
        a.stay();
    }
    /* For the answerers, and published. */
    __device__ __forceinline__ void show(int turn) const
    {
        const int own = thread % 32, first = thread / 32 * STRIP + own % 8;
        this->await(signals().read, turn - Room::STATES);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            char *const at = short_piece_at(this->state(turn), first + half * 8, own / 8);
            uint32_t part[PARTS][LANES / 8];
#pragma unroll
            for (int n = 0; n < LANES / 8; n++)
                cut(S[n * 4 + half * 2], S[n * 4 + half * 2 + 1], part[0][n], part[1][n], part[2][n]);
#pragma unroll
            for (int i = 0; i < PARTS; i++) matrices_store<4, false>(at + i * SHORT_PART, part[i]);
        }
        shared_publish();
        this->arrive(signals().state[turn % 2]);
    }
    /* Gates that fade are for moderate numbers only; the others of the block know of theirs. */
    __device__ __forceinline__ void judge(int turn)
    {
        const Record &r = this->record(turn);
        special = special || r.special;
        all = all || !r.steady;
        if (!r.fades) return;
        all = all || r.heavy;
        for (int i = 0; i < LANES / 2; i++) all = all || is_large(S[i], MODERATE_STATE);
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
        this->await(signals().taken, turn - 2);
        if (thread % 32 == 0) this->sums(turn).cross[thread / 32] = total;
        if (thread == 0) this->sums(turn).carry = this->record(turn).first;
        this->arrive(signals().summed[turn % 2]);
    }
    __device__ __forceinline__ void run()
    {
        start();
        show(0);
#pragma unroll 1
        for (int turn = 0; turn < chunks; turn++) {
            float sum[LANES / 2];
            this->await(signals().split_b, turn);
            {
                Operand<> a;
                load_turned(a, turn);
                this->arrive(signals().used_b[turn % 2]);
                this->await(signals().split_c, turn);
                multiply<LANES, ACROSS>(sum, a,
                                        this->record(turn).mild ? this->parts_of_c(turn) : this->weighed(turn));
                if (WHAT == RL_HEADS_DQ && this->wants_gates()) keep(turn);
                if (WHAT == RL_HEADS_DK && this->wants_gates()) cross(turn);
                products_wait<0>();
                a.stay();
                hold(sum);
            }
            judge(turn);
            const bool mild = this->record(turn).mild;
            const float first = this->record(turn).first, second = this->record(turn).second;
            this->arrive(signals().used_c[turn % 2]);
#pragma unroll
            for (int i = 0; i < LANES / 2; i++) {
                const float own = mild ? S[i] + sum[i] : S[i];
                S[i] = passed(first, second, own, mild ? 0 : sum[i]);
            }
            if (turn + 1 < chunks) show(turn + 1);
        }
        end();
    }
};

} // namespace attention_heads

#endif
