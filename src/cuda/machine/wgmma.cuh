/*
 * Products of tiles by a group of four warps (wgmma), which run beside the threads:
 *
 *     sum[64, N] (+)= A[64, K] B[K, N]      K = 16 of bf16 or f16, or 8 of tf32; sums in float
 *
 * Thread t of the group, lane l = t % 32, holds sum[i] of row 16 (t / 32) + l / 4 + 8 (i / 2 % 2) and column
 * 8 (i / 4) + 2 (l % 4) + i % 2.  A in registers: a[i] holds row 16 (t / 32) + l / 4 + 8 (i % 2) and columns
 * 2 (l % 4) + 8 (i / 2) and the next one, lower half first; of tf32 column l % 4 + 4 (i / 2).
 *
 * A tile in shared memory is made of lines of 16, 32, 64 or 128 bytes, as swizzles none, 32, 64 and 128 have them; 8
 * such lines one behind the other are an atom.  Lines run along K, or where transposed (not tf32) along rows of A and
 * columns of B, and then the 8 lines of an atom are 8 of K.
 *
 *                  along K, none      along K, swizzled    transposed, none     transposed, swizzled
 *     `leading`    next 16 bytes      not used             next 8 of K          next line of the same K
 *     `stride`     next 8 rows        next 8 rows          next 16 bytes        next 8 of K
 *
 * Rows are those of A, or columns of B.  An instruction's K is 32 bytes: along K, the tile of the next one begins 32
 * bytes further on (none: 2 `leading`).  Atoms that are swizzled are aligned to their size; the 16-byte units of a
 * line are exchanged by the bits of the address from the seventh on, just as the copy engine lays out a tile.
 */
#ifndef RL_CUDA_MACHINE_WGMMA_CUH
#define RL_CUDA_MACHINE_WGMMA_CUH

#include <stdint.h>

#include <machine/numbers.cuh>

/* As a descriptor has it. */
enum Swizzle { SWIZZLE_NONE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

/* Where a tile lies in shared memory; distances in bytes, multiples of 16. */
__device__ inline uint64_t tile_descriptor(const void *tile, uint32_t leading, uint32_t stride, Swizzle swizzle)
{
    const uint64_t address = (uint64_t)__cvta_generic_to_shared(tile);
    return (address & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)swizzle << 62;
}

/* Before the first product, and after a thread's own writes to sums or to A in registers. */
__device__ inline void products_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Products are grouped; sums may be touched, and tiles overwritten, once at most `open` groups are under way. */
__device__ inline void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int open> __device__ inline void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(open) : "memory");
}

/* The registers that each thread of the warp has, a multiple of 8; a rise waits until some are free. */
template <int registers> __device__ inline void registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers> __device__ inline void registers_lower()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/* Names of sums within an instruction, and the sums themselves. */
#define RL_NAMES_4 "%0, %1, %2, %3"
#define RL_NAMES_8 RL_NAMES_4 ", %4, %5, %6, %7"
#define RL_NAMES_16 RL_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define RL_NAMES_32 RL_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RL_NAMES_48                                                                                                  \
    RL_NAMES_32                                                                                                      \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define RL_NAMES_64                                                                                                  \
    RL_NAMES_32                                                                                                      \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                               \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RL_NAMES_72 RL_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define RL_NAMES_128                                                                                                 \
    RL_NAMES_64                                                                                                      \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                               \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                               \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"                   \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define RL_SUMS_4(k) "+f"(sum[k]), "+f"(sum[k + 1]), "+f"(sum[k + 2]), "+f"(sum[k + 3])
#define RL_SUMS_8(k) RL_SUMS_4(k), RL_SUMS_4(k + 4)
#define RL_SUMS_16(k) RL_SUMS_8(k), RL_SUMS_8(k + 8)
#define RL_SUMS_32(k) RL_SUMS_16(k), RL_SUMS_16(k + 16)
#define RL_SUMS_48(k) RL_SUMS_32(k), RL_SUMS_16(k + 32)
#define RL_SUMS_64(k) RL_SUMS_32(k), RL_SUMS_32(k + 32)
#define RL_SUMS_72(k) RL_SUMS_64(k), RL_SUMS_8(k + 64)
#define RL_SUMS_128(k) RL_SUMS_64(k), RL_SUMS_64(k + 64)

/* One instruction; `adds` false: sums begin at 0.  Operands behind the sums are given by their numbers. */
#define RL_PRODUCT(shape, types, count, a, b, p, turns, ...)                                                         \
    asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.s32 adds, " p ", 0;\n\t"                                          \
                 "wgmma.mma_async.sync.aligned." shape ".f32." types " {" RL_NAMES_##count                           \
                 "}, " a ", " b ", adds, 1, 1" turns ";\n\t}"                                                        \
                 : RL_SUMS_##count(0)                                                                                \
                 : __VA_ARGS__)

template <int N> struct Product;

/* All kinds of products of one N; r0 to r7 are the numbers of what follows the sums. */
#define RL_PRODUCTS(N, count, r0, r1, r2, r3, r4, r5, r6)                                                            \
    template <> struct Product<N> {                                                                                  \
        template <Number number, bool a_turned, bool b_turned>                                                       \
        __device__ static void of_tiles(float (&sum)[count], uint64_t a, uint64_t b, int adds)                       \
        {                                                                                                            \
            if constexpr (number == BF16)                                                                            \
                RL_PRODUCT("m64n" #N "k16", "bf16.bf16", count, r0, r1, r2, ", " r3 ", " r4, "l"(a), "l"(b),         \
                           "r"(adds), "n"((int)a_turned), "n"((int)b_turned));                                       \
            else if constexpr (number == F16)                                                                        \
                RL_PRODUCT("m64n" #N "k16", "f16.f16", count, r0, r1, r2, ", " r3 ", " r4, "l"(a), "l"(b),           \
                           "r"(adds), "n"((int)a_turned), "n"((int)b_turned));                                       \
            else                                                                                                     \
                RL_PRODUCT("m64n" #N "k8", "tf32.tf32", count, r0, r1, r2, "", "l"(a), "l"(b), "r"(adds));           \
        }                                                                                                            \
        template <Number number, bool b_turned>                                                                      \
        __device__ static void of_registers(float (&sum)[count], const uint32_t (&a)[4], uint64_t b, int adds)       \
        {                                                                                                            \
            if constexpr (number == BF16)                                                                            \
                RL_PRODUCT("m64n" #N "k16", "bf16.bf16", count, "{" r0 ", " r1 ", " r2 ", " r3 "}", r4, r5, ", " r6, \
                           "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"((int)b_turned));       \
            else if constexpr (number == F16)                                                                        \
                RL_PRODUCT("m64n" #N "k16", "f16.f16", count, "{" r0 ", " r1 ", " r2 ", " r3 "}", r4, r5, ", " r6,   \
                           "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"((int)b_turned));       \
            else                                                                                                     \
                RL_PRODUCT("m64n" #N "k8", "tf32.tf32", count, "{" r0 ", " r1 ", " r2 ", " r3 "}", r4, r5, "",       \
                           "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));                           \
        }                                                                                                            \
    }

RL_PRODUCTS(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10");
RL_PRODUCTS(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14");
RL_PRODUCTS(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22");
RL_PRODUCTS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38");
RL_PRODUCTS(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54");
RL_PRODUCTS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70");
RL_PRODUCTS(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78");
RL_PRODUCTS(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134");

#undef RL_PRODUCTS
#undef RL_PRODUCT

/* sum (+)= A B, both in shared memory; N is 8, 16, 32, 64, 96, 128, 144 or 256.  `turned`: lines run across K. */
template <Number number, int N, bool a_turned, bool b_turned>
__device__ inline void product_of_tiles(float (&sum)[N / 2], uint64_t a, uint64_t b, bool adds)
{
    static_assert(number != TF32 || (!a_turned && !b_turned), "tiles of tf32 run along K");
    Product<N>::template of_tiles<number, a_turned, b_turned>(sum, a, b, adds);
}

/* The same with A in registers, which stay as they are until the wait. */
template <Number number, int N, bool b_turned>
__device__ inline void product_of_registers(float (&sum)[N / 2], const uint32_t (&a)[4], uint64_t b, bool adds)
{
    static_assert(number != TF32 || !b_turned, "tiles of tf32 run along K");
    Product<N>::template of_registers<number, b_turned>(sum, a, b, adds);
}

#endif
