/*
 * The walk of the selective scan's gradients (selective_scan_back.cuh) for the usual tensors, cut by roles.  A block
 * has three teams of 128 threads, each at a task of its own, and 128 helpers that prepare tiles and finish them for
 * one team after the other: so that teams do nothing but walk, and a scheduler always has warps of both kinds.
 *
 * The fast order alone is taken here.  A task that turns out to hold something else is walked to its end all the same,
 * and then again, all of it, by selective_scan_back_walk.cu, which leaves the same bits where nothing is wild.
 */
#include <machine/kernel.cuh>

#include <machine/barriers.cuh>
#include <machine/bulk.cuh>
#include <machine/wgmma.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

constexpr int TEAMS = RL_S6_BACK_BLOCKS, TEAM = RL_S6_BACK_TEAM, COLUMNS = RL_S6_BACK_CHANNELS;
constexpr int PART = 4, PARTS = TILE / PART; /* steps whose states registers hold */
constexpr int PART_NUMBERS = OWN * TEAM * STATES, WARP_NUMBERS = 32 * STATES; /* of a part: of all, of half a warp's */
constexpr int JOBS = 4;                      /* of a team: two in stages, one before and one after them */
constexpr int WALKER_REGISTERS = 136, HELPER_REGISTERS = 96;

#include "selective_scan_back_roles.cuh"

#include "selective_scan_back_roles_walk.cuh"

#include "selective_scan_back_roles_help.cuh"

#include "selective_scan_back_roles_jobs.cuh"

static_assert(TEAMS * sizeof(Room) <= 227 * 1024, "more than a block may have");

/* Two jobs of a team are begun before the first is finished.  Answers whether there was one to finish, or may be. */
template <int form> __device__ bool serve(const rl_s6_back_args &args, Room &room, int team, int i)
{
    const Helper<form> helper(args, room);
    const Job &done = room.job[i & (JOBS - 1)], &next = room.job[(i + 2) & (JOBS - 1)];
    const int parity = i & 1;
    const bool finishes = i >= 0;
    if (finishes && done.steps == 0) {
        helper.meet();
        return false;
    }
    typename Helper<form>::Coming coming;
    typename Helper<form>::Leaving leaving;
    helper.fetch_steps(next, coming);
    if (finishes) {
        helper.fetch_again(done, leaving);
        barrier_wait(&room.done[parity], i / 2 & 1);
        helper.finish(done, parity, leaving);
    }
    helper.meet(); /* the stage has been left, the task's sums are complete, and other teams' later jobs are known */
    if (finishes && done.ends_task) helper.finish_task(done);
    helper.prepare(next, parity, coming);
    if (helper.thread / 32 == team) {
        Job &later = room.job[(i + 3) & (JOBS - 1)];
        Jobs(args, room).describe(later);
        if (later.steps > 0 && later.begins) helper.load_vectors(later);
    }
    barrier_arrive(&room.full[parity]);
    return true;
}

template <int form> __device__ void help(const rl_s6_back_args &args, Room *rooms)
{
    unsigned over = 0; /* a bit for each team */
    for (int i = -2; over != (1u << TEAMS) - 1; i++) {
#pragma unroll 1
        for (int team = 0; team < TEAMS; team++) {
            if (over >> team & 1)
                Helper<form>::meet(); /* so that all teams' later jobs are known in a round */
            else if (!serve<form>(args, rooms[team], team, i))
                over |= 1u << team;
        }
    }
}

template <int form>
__global__ void __launch_bounds__((TEAMS + 1) * TEAM, 1) roles_kernel(const __grid_constant__ rl_s6_back_args args)
{
    Room *const rooms = reinterpret_cast<Room *>(dynamic_shared);
    const int team = __shfl_sync(~0u, threadIdx.x / TEAM, 0); /* a warp's, as the compiler then knows */
    await_earlier();
    let_later_start();
    if (team < TEAMS && threadIdx.x % TEAM < 32) {
        Room &room = rooms[team];
        if (threadIdx.x % TEAM == 0)
            for (int k = 0; k < 2; k++) {
                barrier_init(&room.full[k], TEAM);
                barrier_init(&room.done[k], TEAM / 32);
                room.wild[k] = 0;
            }
        const int64_t task = (int64_t)team * gridDim.x + blockIdx.x;
        Jobs jobs(args, room);
        jobs.start(task);
        jobs.describe(room.job[0]);
        if (room.job[0].steps > 0) Helper<form>(args, room).load_vectors(room.job[0]);
    }
    __syncthreads(); /* barriers and the first jobs are there */
    if (team < TEAMS) {
        registers_raise<WALKER_REGISTERS>();
        Walker(args, rooms[team], team).template run<form>();
    } else {
        registers_lower<HELPER_REGISTERS>();
        help<form>(args, rooms);
    }
}

} // namespace

const void *rl_s6_back_roles_kernel(rl_s6_back_form form)
{
    return form == RL_S6_BACK_NEAT_F32 ? kernel_address<roles_kernel<RL_S6_BACK_NEAT_F32>>()
                                       : kernel_address<roles_kernel<RL_S6_BACK_NEAT_BF16>>();
}

size_t rl_s6_back_roles_shared(void)
{
#ifdef RL_GPU_90A
    return TEAMS * sizeof(Room);
#else
    return 0;
#endif
}
