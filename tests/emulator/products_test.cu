/*
 * Products by the instructions of machine/wgmma.cuh and machine/mma.cuh against plain loops, for every layout of
 * their tiles, which the copy engine lays out.  Numbers are small and whole: every sum is exact.  Plain CUDA, so that
 * a machine with a GPU can tell whether the emulator is right.
 */
#include <cudaTypedefs.h>
#include <machine/bulk.cuh>
#include <machine/kernel.cuh>
#include <machine/mma.cuh>
#include <machine/wgmma.cuh>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

namespace
{

constexpr int ROWS = 64, LINE_BYTES = 128, AREA = 64 << 10; /* a tile's K is 128 bytes, in 4 products */

/* An operand in shared memory: lines of some bytes, in segments of all lines; in elements, `extent` is M or N. */
struct Layout {
    CUtensorMap map;
    int extent, depth, line, size, segments, lines; /* `line` in bytes */
    bool turned;
    Swizzle swizzle;
};

__device__ int segment_bytes(const Layout &layout)
{
    return layout.lines * layout.line;
}

/* The first 32 bytes of K, or 16 lines of it, of the step-th product. */
__device__ uint64_t describe(const Layout &layout, const char *tile, int step)
{
    const int segment = segment_bytes(layout), eight = 8 * layout.line;
    if (layout.turned) {
        const char *at = tile + 2 * step * eight;
        return layout.swizzle ? tile_descriptor(at, segment, eight, layout.swizzle)
                              : tile_descriptor(at, eight, segment, layout.swizzle);
    }
    const int place = 32 * step;
    return tile_descriptor(tile + place / layout.line * segment + place % layout.line, layout.swizzle ? 16 : segment,
                           eight, layout.swizzle);
}

__device__ void load_operand(const Layout &layout, char *tile, uint64_t *barrier)
{
    for (int k = 0; k < layout.segments; k++)
        tile_load(tile + k * segment_bytes(layout), layout.map, {k * layout.line / layout.size, 0, 0}, barrier);
}

struct Problem {
    Layout a, b;
    const uint32_t *a_words; /* of [64, 32], pairs of 16 bits or one of tf32 */
    float *out;
};

template <Number number, int N, bool a_turned, bool b_turned, bool registers>
__global__ void group_kernel(const __grid_constant__ Problem p)
{
    __shared__ uint64_t barrier;
    char *const a = (char *)dynamic_shared, *const b = a + AREA;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        barrier_publish();
        barrier_expect(&barrier, p.a.segments * segment_bytes(p.a) + p.b.segments * segment_bytes(p.b));
        load_operand(p.a, a, &barrier);
        load_operand(p.b, b, &barrier);
    }
    __syncthreads(); /* the barrier exists */
    barrier_wait(&barrier, 0);
    float sum[N / 2];
    for (int i = 0; i < N / 2; i++) sum[i] = 3;
    uint32_t held[4][4];
    for (int step = 0; step < 4; step++)
        for (int i = 0; i < 4; i++)
            held[step][i] = p.a_words[(16 * warp + lane / 4 + 8 * (i % 2)) * 32 + 8 * step + lane % 4 + 4 * (i / 2)];
    products_fence();
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const uint64_t in_b = describe(p.b, b, step);
        if constexpr (registers)
            product_of_registers<number, N, b_turned>(sum, held[step], in_b, true);
        else
            product_of_tiles<number, N, a_turned, b_turned>(sum, describe(p.a, a, step), in_b, true);
        products_commit();
    }
    products_wait<0>();
    for (int i = 0; i < N / 2; i++)
        p.out[(16 * warp + lane / 4 + 8 * (i / 2 % 2)) * N + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = sum[i];
}

/* out[16, 8] = 1 + x[16, 16] y[16, 8], and x turned goes to `turned`. */
__global__ void warp_kernel(const uint32_t *x, const uint32_t *y, float *out, uint32_t *turned)
{
    __shared__ __align__(16) uint32_t in_x[16][8], in_y[16][4], back[16][8];
    const int lane = threadIdx.x;
    for (int k = lane; k < 128; k += 32) in_x[k / 8][k % 8] = x[k];
    for (int k = lane; k < 64; k += 32) in_y[k / 4][k % 4] = y[k];
    __syncwarp();
    uint32_t a[4], b[2];
    float sum[4] = {1, 1, 1, 1};
    matrices_load<4, false>(a, &in_x[lane % 16][lane / 16 * 4]);
    matrices_load<2, true>(b, &in_y[lane % 16][0]);
    product_of_warp<BF16>(sum, a, b);
    for (int i = 0; i < 4; i++) out[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2] = sum[i];
    const uint32_t swapped[4] = {a[0], a[2], a[1], a[3]};
    matrices_store<4, true>(&back[lane % 16][lane / 16 * 4], swapped);
    __syncwarp();
    for (int k = lane; k < 128; k += 32) turned[k] = back[k / 8][k % 8];
}

int failures, checks;

void check(bool holds, const char *what, int n, int swizzle)
{
    checks++;
    if (holds) return;
    failures++;
    printf("%s, N %d, swizzle %d: wrong\n", what, n, swizzle);
}

void must(cudaError_t error)
{
    if (error == cudaSuccess) return;
    printf("%s\n", cudaGetErrorString(error));
    exit(1);
}

template <typename T> T *to_device(const std::vector<T> &host)
{
    void *memory;
    must(cudaMalloc(&memory, host.size() * sizeof(T)));
    must(cudaMemcpy(memory, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return (T *)memory;
}

template <typename T> std::vector<T> to_host(const T *memory, size_t count)
{
    std::vector<T> host(count);
    must(cudaMemcpy(host.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

uint32_t bits_of(Number number, int value)
{
    static const uint16_t halves[] = {0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200};
    const float wide = (float)value;
    uint32_t bits;
    memcpy(&bits, &wide, sizeof bits);
    return number == F16 ? halves[value + 3] : number == BF16 ? bits >> 16 : bits | 0x1000; /* which tf32 drops */
}

/* A matrix of small numbers, [extent, depth], as one of bytes, turned where asked for. */
struct Matrix {
    int extent, depth, size;
    std::vector<int> value;

    Matrix(Number number, int extent)
        : extent(extent), depth(LINE_BYTES / (number == TF32 ? 4 : 2)), size(number == TF32 ? 4 : 2),
          value((size_t)(extent * depth))
    {
        for (int &v : value) v = rand() % 7 - 3;
    }
    int at(int across, int k) const
    {
        return value[(size_t)(across * depth + k)];
    }
    std::vector<uint32_t> words(Number number, bool turned) const
    {
        std::vector<uint32_t> result((size_t)(extent * depth * size / 4));
        for (int across = 0; across < extent; across++)
            for (int k = 0; k < depth; k++) {
                const int place = turned ? k * extent + across : across * depth + k;
                const uint32_t bits = bits_of(number, at(across, k));
                memcpy((char *)result.data() + place * size, &bits, (size_t)size);
            }
        return result;
    }
};

PFN_cuTensorMapEncodeTiled_v12000 find_encode()
{
    void *encode = NULL;
    enum cudaDriverEntryPointQueryResult found;
    must(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
    return (PFN_cuTensorMapEncodeTiled_v12000)encode;
}

Layout lay_out(const Matrix &matrix, void *memory, bool turned, Swizzle swizzle)
{
    static const int lines[] = {16, 128, 64, 32};
    static const CUtensorMapSwizzle modes[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                               CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_32B};
    Layout layout = {{}, matrix.extent, matrix.depth, lines[swizzle], matrix.size, 0, 0, turned, swizzle};
    const int inner = turned ? matrix.extent : matrix.depth;
    layout.lines = turned ? matrix.depth : matrix.extent;
    layout.segments = inner * matrix.size / layout.line;
    const cuuint64_t sizes[] = {(cuuint64_t)inner, (cuuint64_t)layout.lines, 1};
    const cuuint64_t strides[] = {sizes[0] * (cuuint64_t)matrix.size, sizes[0] * sizes[1] * (cuuint64_t)matrix.size};
    const cuuint32_t box[] = {(cuuint32_t)(layout.line / matrix.size), (cuuint32_t)layout.lines, 1};
    const cuuint32_t each[] = {1, 1, 1};
    const CUresult result = find_encode()(
        &layout.map, matrix.size == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, memory,
        sizes, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, modes[swizzle], CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) printf("no tensor map: %d\n", (int)result), exit(1);
    return layout;
}

template <Number number, int N, bool a_turned, bool b_turned, bool registers> void test_layout(Swizzle swizzle)
{
    const Matrix a(number, ROWS), b(number, N);
    uint32_t *const a_memory = to_device(a.words(number, a_turned)), *const plain = to_device(a.words(number, false));
    uint32_t *const b_memory = to_device(b.words(number, b_turned));
    float *const out = to_device(std::vector<float>(ROWS * N));
    Problem problem = {lay_out(a, a_memory, a_turned, swizzle), lay_out(b, b_memory, b_turned, swizzle), plain, out};
    void *arguments[] = {&problem};
    const void *kernel = kernel_address<group_kernel<number, N, a_turned, b_turned, registers>>();
    must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 2 * AREA));
    must(cudaLaunchKernel(kernel, dim3(1), dim3(128), arguments, 2 * AREA, NULL));
    const std::vector<float> found = to_host(out, ROWS * N);
    bool holds = true;
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < N; column++) {
            int sum = 3;
            for (int k = 0; k < a.depth; k++) sum += a.at(row, k) * b.at(column, k);
            holds = holds && found[(size_t)(row * N + column)] == (float)sum;
        }
    static const char *const names[] = {"bf16", "f16", "tf32"};
    char what[64];
    snprintf(what, sizeof what, "%s%s%s%s", names[number],
             registers  ? ", A in registers"
             : a_turned ? ", A turned"
                        : "",
             b_turned ? ", B turned" : "", ", product of a group");
    check(holds, what, N, swizzle);
    for (void *memory : {(void *)a_memory, (void *)plain, (void *)b_memory, (void *)out}) must(cudaFree(memory));
}

template <Number number, int N> void test_all()
{
    for (Swizzle swizzle : {SWIZZLE_NONE, SWIZZLE_32, SWIZZLE_64, SWIZZLE_128}) {
        test_layout<number, N, false, false, false>(swizzle);
        test_layout<number, N, false, false, true>(swizzle);
        if constexpr (number != TF32) {
            static const int least[] = {8, 64, 32, 16}; /* columns of a line */
            test_layout<number, N, true, false, false>(swizzle);
            if (N % least[swizzle] != 0) continue;
            test_layout<number, N, false, true, false>(swizzle);
            test_layout<number, N, false, true, true>(swizzle);
            test_layout<number, N, true, true, false>(swizzle);
        }
    }
}

void test_warp()
{
    Matrix x(BF16, 16), y(BF16, 8);
    x.depth = y.depth = 16;
    uint32_t *const in_x = to_device(x.words(BF16, false)), *const in_y = to_device(y.words(BF16, true));
    float *const out = to_device(std::vector<float>(128));
    uint32_t *const turned = to_device(std::vector<uint32_t>(128));
    const void *places[] = {in_x, in_y, out, turned};
    void *arguments[] = {&places[0], &places[1], &places[2], &places[3]};
    must(cudaLaunchKernel(kernel_address<warp_kernel>(), dim3(1), dim3(32), arguments, 0, NULL));
    const std::vector<float> found = to_host(out, 128);
    bool holds = true;
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            int sum = 1;
            for (int k = 0; k < 16; k++) sum += x.at(row, k) * y.at(column, k);
            holds = holds && found[(size_t)(row * 8 + column)] == (float)sum;
        }
    check(holds, "product of a warp", 8, 0);
    const std::vector<uint32_t> expected = x.words(BF16, true);
    check(to_host(turned, 128) == std::vector<uint32_t>(expected.begin(), expected.begin() + 128), "matrix turned", 8,
          0);
}

} // namespace

int main()
{
    test_all<BF16, 8>();
    test_all<BF16, 64>();
    test_all<BF16, 96>();
    test_all<BF16, 144>();
    test_all<BF16, 256>();
    test_all<F16, 32>();
    test_all<F16, 128>();
    test_all<TF32, 16>();
    test_all<TF32, 128>();
    test_warp();
    printf("%d checks, %d failed\n", checks, failures);
    return failures > 0;
}
