/*
 * The walk of the selective scan's gradients (selective_scan_back.cuh) for the usual tensors, cut by roles.  A block
 * has three teams of 128 threads, each at a task of its own, and four warps that prepare tiles for them: so that
 * teams do nothing but walk and finish what they walked, and each scheduler has warps of both kinds.
 *
 * The fast order alone is taken here.  A task that turns out to hold something else is walked to its end all the
 * same, and then again, all of it, by selective_scan_back_walk.cu, which leaves the same bits where nothing is wild.
 */
#include <machine/kernel.cuh>

#include <machine/barriers.cuh>
#include <machine/bulk.cuh>
#include <machine/held.cuh>
#include <machine/wgmma.cuh>

#include "s6_back_kernels.h"
#include "selective_scan_back.cuh"

using namespace selective_scan_back;

namespace
{

constexpr int TEAMS = RL_S6_BACK_BLOCKS, TEAM = RL_S6_BACK_TEAM, COLUMNS = RL_S6_BACK_CHANNELS;
constexpr int PART = 4, PARTS = TILE / PART; /* steps whose states registers hold */
static_assert(TEAM / 32 == TEAMS + 1, "a helping warp for each team, and one more");
constexpr int PART_NUMBERS = OWN * TEAM * STATES,
              WARP_NUMBERS = 32 * STATES; /* of a part: of all, of half a warp's */
/* Jobs of a team are described five ahead of the one that is finished; those three behind are nobody's any more. */
constexpr int JOBS = 8, AHEAD = 5;
constexpr int WALKER_REGISTERS = 144, HELPER_REGISTERS = 80;
constexpr float FADED = -1e4f; /* the rate of a state that does not exist */

#include "selective_scan_back_roles.cuh"

#include "selective_scan_back_roles_finish.cuh"

#include "selective_scan_back_roles_part.cuh"

#include "selective_scan_back_roles_walk.cuh"

#include "selective_scan_back_roles_jobs.cuh"

#include "selective_scan_back_roles_help.cuh"

#include "selective_scan_back_roles_clerk.cuh"

static_assert(TEAMS * sizeof(Room) <= 227 * 1024, "more than a block may have");

/* Before anyone takes a role: barriers, and each team's first jobs. */
__device__ inline void begin(const rl_s6_back_args &args, Room *rooms, int team)
{
    if (team == TEAMS || __shfl_sync(~0u, threadIdx.x / 32, 0) % (TEAM / 32) != 0) return;
    Room &room = rooms[team];
    if (threadIdx.x % TEAM == 0)
        for (int k = 0; k < 2; k++) {
            barrier_init(&room.full[k], 2);
            barrier_init(&room.done[k], TEAM / 32);
            room.wild[k] = 0;
        }
    Jobs jobs(args, room);
    jobs.start((int64_t)team * gridDim.x + blockIdx.x);
    for (int k = 0; k < AHEAD - 2; k++) jobs.describe(room.job[k]);
}

template <int form> __device__ void help(const rl_s6_back_args &args, Room *rooms)
{
    const int helper = __shfl_sync(~0u, threadIdx.x / 32 % (TEAM / 32), 0);
    if (helper < TEAMS)
        Helper<form>(args, rooms[helper]).run();
    else
        Clerk<form>(args).run(rooms);
}

template <int form>
__global__ void __launch_bounds__((TEAMS + 1) * TEAM, 1) roles_kernel(const __grid_constant__ rl_s6_back_args args)
{
    if constexpr (HAS_PRODUCTS) { /* else never launched: the device cannot share out registers */
        Room *const rooms = reinterpret_cast<Room *>(dynamic_shared);
        const int team = __shfl_sync(~0u, threadIdx.x / TEAM, 0); /* a warp's, as the compiler then knows */
        await_earlier();
        let_later_start();
        begin(args, rooms, team);
        __syncthreads(); /* barriers and the first jobs are there */
        if (team < TEAMS) {
            registers_raise<WALKER_REGISTERS>();
            Walker(args, rooms[team]).template run<form>();
        } else {
            registers_lower<HELPER_REGISTERS>();
            help<form>(args, rooms);
        }
    }
}

} // namespace

const void *rl_s6_back_roles_kernel(rl_s6_back_form form)
{
    return form == RL_S6_BACK_NEAT_F32    ? kernel_address<roles_kernel<RL_S6_BACK_NEAT_F32>>()
           : form == RL_S6_BACK_NEAT_BF16 ? kernel_address<roles_kernel<RL_S6_BACK_NEAT_BF16>>()
                                          : kernel_address<roles_kernel<RL_S6_BACK_NEAT_MIXED>>();
}

size_t rl_s6_back_roles_shared(void)
{
#ifdef RL_GPU_90A
    return TEAMS * sizeof(Room);
#else
    return 0;
#endif
}
