/* The launcher of products: on units for products of tiles where the device has them, else by multiply-adds. */
#include "product.h"

#include <cudaTypedefs.h>
#include <string.h>

#include "counts.h"
#include "product_args.h"
#include "product_flow.h"
#include "product_little.h"

enum {
    LEAST_STEPS = 256, /* of a part, so that its sums are worth their way through memory */
    MOST_PARTS = 128,
    PART_BYTES = 64 << 20, /* of all parts, where they are more than one */
    A_BLOCKS = 8,
    FOLD_THREADS = 256
};

static rl_product_rows rows_of(const rill_tensor *tensor)
{
    rl_product_rows rows = {.data = tensor->data, .dtype = (int32_t)tensor->dtype};
    if (!tensor->data) return rows;
    const int64_t size = (int64_t)rill_dtype_size(tensor->dtype);
    rows.batch = rl_cuda_stride(tensor, 0);
    rows.step = rl_cuda_stride(tensor, 1);
    rows.lane = rl_cuda_stride(tensor, 2);
    rows.wide = (rows.lane == 1 || tensor->shape[2] == 1) && (uintptr_t)tensor->data % 16 == 0 &&
                rows.batch * size % 16 == 0 && rows.step * size % 16 == 0;
    rows.even = tensor->shape[0] == 1 || rows.batch == tensor->shape[1] * tensor->stride[1];
    if (rows.even && tensor->shape[1] == 1) rows.step = rl_cuda_stride(tensor, 0);
    return rows;
}

/* Columns of a block that sums over steps: those that leave fewer idle. */
static int columns_of_block(int64_t columns, bool tiles)
{
    const int64_t narrow = rl_quotient_up(columns, RL_PARTS_NARROW) * RL_PARTS_NARROW;
    const int64_t wide = rl_quotient_up(columns, RL_PARTS_WIDE) * RL_PARTS_WIDE;
    return !tiles ? RL_PRODUCT_COLUMNS : wide <= narrow ? RL_PARTS_WIDE : RL_PARTS_NARROW;
}

static bool takes_tiles(const rill_context *context, rill_dtype a, rill_dtype exact)
{
    return rl_cuda_state_of(context)->multiplies && (a == RILL_F32 || (a != RILL_F64 && a == exact));
}

static bool sums_tiles(const rill_context *context, rill_dtype a)
{
    return rl_cuda_state_of(context)->multiplies && a != RILL_F64;
}

static rl_parts_way way_of(const rl_product *product)
{
    if (product->a.dtype == RILL_BF16) return RL_PARTS_BF16;
    if (product->a.dtype == RILL_F16) return RL_PARTS_F16;
    return !product->rough ? RL_PARTS_EXACT : product->exact == RILL_BF16 ? RL_PARTS_ROUGH_BF16 : RL_PARTS_ROUGH;
}

/* In these a row's bits are not those that it has among many. */
static bool is_few(const rill_context *context, int64_t rows)
{
    return rows <= RL_FEW_ROWS && !context->options.reproducible;
}

static bool is_little(const rill_context *context, int64_t rows, int64_t columns, int64_t inner)
{
    return rl_is_little(rows, columns, inner) && !context->options.reproducible;
}

bool rl_cuda_product_is_brief(const rill_context *context, int64_t rows, int64_t columns, int64_t inner)
{
    return is_few(context, rows) || is_little(context, rows, columns, inner);
}

bool rl_cuda_product_takes(const rill_context *context, rill_dtype a, rill_dtype exact, int64_t rows, int64_t columns,
                           int64_t inner)
{
    if (is_few(context, rows)) return a != RILL_F64; /* float32 is all the A that it makes */
    return is_little(context, rows, columns, inner) || takes_tiles(context, a, exact);
}

static rl_product_weight weight_of(const rill_tensor *w)
{
    rl_product_weight weight = {.data = w->data, .dtype = (int32_t)w->dtype};
    if (!w->data) return weight;
    weight.columns = w->shape[0];
    weight.row = rl_cuda_stride(w, 0);
    weight.lane = rl_cuda_stride(w, 1);
    weight.wide = w->dtype != RILL_F64 && weight.lane == 1 && weight.row % 4 == 0 &&
                  (uintptr_t)w->data % (4 * rill_dtype_size(w->dtype)) == 0;
    return weight;
}

static rill_status launch_few(rill_context *context, rl_product_args *p)
{
    int64_t columns;
    const void *kernel = rl_product_few_kernel(p->a.dtype, p->inner, &columns);
    void *arguments[] = {p};
    return rl_cuda_launch_early(context, kernel, rl_quotient_up(p->columns, columns), 1, RL_FEW_THREADS, 0, arguments,
                                "selective_layer: launch of a product");
}

static rill_status launch_little(rill_context *context, const rl_product *product, const rl_product_args *p)
{
    rl_little little = {0};
    const rl_little_product of = {.a = rl_little_over_time(&product->a),
                                  .b = rl_little_below_each_other(product->w, RL_PRODUCT_WEIGHTS),
                                  .add = rl_little_over_time(&product->add),
                                  .out = rl_little_over_time(&product->out),
                                  .rows = p->rows,
                                  .columns = p->columns,
                                  .inner = p->inner};
    const rl_little_piece A = {.data = product->A,
                               .line = p->A_states,
                               .lane = 1,
                               .dtype = product->a.dtype == RILL_F64 ? RILL_F64 : RILL_F32};
    const rl_little_move decay = {
        .to = A, .from = rl_little_piece_of(&product->A_log), .lanes = p->A_states, .decay = true};
    rl_little_add(&little, &of);
    rl_little_add_move(&little, &decay);
    return rl_cuda_little(context, &little, product->a.dtype == RILL_F64, "selective_layer: launch of a product");
}

/* 64 rows by 32 numbers of rows that follow each other evenly, as the copy engine brings them. */
static bool describe(rill_context *context, const rl_product_rows *rows, int64_t count, int64_t lanes,
                     CUtensorMap *map)
{
    if (!rows->data) return true;
    const int64_t step = count == 1 ? 4 : rows->step;
    if (!rows->wide || !rows->even || step <= 0 || lanes > INT32_MAX) return false;
    const cuuint64_t sizes[] = {(cuuint64_t)lanes, (cuuint64_t)count, 1}, strides[] = {(cuuint64_t)step * 4, 16};
    const cuuint32_t box[] = {RL_PARTS_CHUNK, RL_PARTS_TILE, 1}, each[] = {1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode =
        (PFN_cuTensorMapEncodeTiled_v12000)rl_cuda_state_of(context)->encode_tiles;
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, rows->data, sizes, strides, box, each,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Whether the copy engine can bring the rows, and the weights have room beside them. */
static bool flows(rill_context *context, rl_product_flow_args *args, rl_parts_way way, rl_product_kernel_of *kernel)
{
    const rl_product_args *p = &args->product;
    if (!rl_cuda_state_of(context)->encode_tiles || p->inner == 0 || p->rows > INT32_MAX / 2) return false;
    if (p->columns <= RL_PARTS_SLIM || p->columns % 4 != 0) return false;
    if (!p->out.wide || p->out.dtype == RILL_F64 || p->a.dtype != RILL_F32) return false;
    return rl_product_flow_kernel(way, p->inner, p->columns, kernel) &&
           describe(context, &p->a, p->rows, p->inner, &args->a) &&
           describe(context, &p->add, p->rows, p->columns, &args->add);
}

rill_status rl_cuda_product(rill_context *context, const rl_product *product)
{
    const rill_tensor *a = &product->a, *out = &product->out;
    rl_product_args p = {.a = rows_of(a),
                         .out = rows_of(out),
                         .add = rows_of(&product->add),
                         .weights = {weight_of(&product->w[0]), weight_of(&product->w[1]), weight_of(&product->w[2])},
                         .A_log = weight_of(&product->A_log),
                         .A = product->A,
                         .A_states = product->A_log.data ? product->A_log.shape[1] : 0,
                         .b = product->w[0].data,
                         .rows = a->shape[0] * a->shape[1],
                         .columns = out->shape[2],
                         .inner = a->shape[2],
                         .length = a->shape[1],
                         .b_row = a->shape[2],
                         .part_count = 1};
    if (p.rows == 0 || p.columns == 0) return RILL_OK;
    if (is_few(context, p.rows)) return launch_few(context, &p);
    if (is_little(context, p.rows, p.columns, p.inner)) return launch_little(context, product, &p);
    void *arguments[] = {&p};
    if (!takes_tiles(context, a->dtype, product->exact)) {
        p.column_blocks = rl_quotient_up(p.columns, RL_PRODUCT_COLUMNS);
        p.row_blocks = rl_quotient_up(p.rows, RL_PRODUCT_ROWS);
        return rl_cuda_launch_early(context, rl_product_kernel(p.a.dtype, false), p.column_blocks * p.row_blocks, 1,
                                    RL_PRODUCT_THREADS, 0, arguments, "selective_layer: launch of a product");
    }
    rl_product_flow_args flow = {.product = p};
    rl_product_kernel_of kernel;
    const bool streams = flows(context, &flow, way_of(product), &kernel);
    if (!streams) kernel = rl_product_parts_kernel(way_of(product), p.inner, p.columns);
    p.column_blocks = rl_quotient_up(p.columns, kernel.columns);
    p.row_blocks = rl_quotient_up(p.rows, kernel.rows);
    const int64_t sms = rl_cuda_state_of(context)->sms; /* a block each, which keeps its columns */
    p.blocks = p.column_blocks * rl_least(p.row_blocks, rl_most(1, sms / p.column_blocks));
    const int64_t blocks = p.blocks + rl_least(A_BLOCKS, p.A ? rl_most(0, sms - p.blocks) : 0);
    p.A_block = blocks > p.blocks ? p.blocks : 0; /* by blocks of its own, where they have room */
    flow.product = p;
    if (streams) arguments[0] = &flow;
    return rl_cuda_launch_early(context, kernel.address, blocks, 1, kernel.threads, (size_t)kernel.shared, arguments,
                                "selective_layer: launch of a product");
}

static bool is_rough(const rl_step_sum *sum)
{
    return sum->rough || rill_dtype_size(sum->a.dtype) == 2;
}

/* How the sum over steps is cut: all but the pointers. */
static rl_product_args cut(const rill_context *context, const rl_step_sum *sum, bool tiles)
{
    const rill_tensor *a = &sum->a;
    const bool brain = a->dtype == RILL_BF16;
    const int64_t groups = brain ? RL_PARTS_GROUPS_OVER_STEPS_16 : RL_PARTS_GROUPS_OVER_STEPS;
    rl_product_args p = {.a = rows_of(a),
                         .b = sum->g,
                         .parts = sum->parts,
                         .rows = a->shape[2],
                         .columns = sum->columns,
                         .inner = a->shape[0] * a->shape[1],
                         .length = rl_most(1, a->shape[1]),
                         .b_row = sum->g_row};
    const int columns = columns_of_block(p.columns, tiles);
    p.column_blocks = rl_quotient_up(p.columns, columns);
    p.row_blocks = rl_quotient_up(p.rows, tiles ? RL_PARTS_TILE * groups : RL_PRODUCT_ROWS);
    const int64_t bytes =
        rl_most(1, p.rows * p.columns * (int64_t)(a->dtype == RILL_F64 ? sizeof(double) : sizeof(float)));
    const int64_t at_once = tiles && is_rough(sum) && !brain && columns == RL_PARTS_NARROW ? 2 : 1; /* blocks */
    const int64_t blocks = rl_most(1, p.column_blocks * p.row_blocks);
    const int64_t wanted = rl_cuda_state_of(context)->sms * at_once / blocks;
    p.part_count = rl_least(rl_least(wanted, p.inner / LEAST_STEPS), rl_least(MOST_PARTS, PART_BYTES / bytes));
    p.part_count = rl_most(1, p.part_count);
    return p;
}

size_t rl_cuda_step_sum_bytes(const rill_context *context, const rl_step_sum *sum)
{
    const rl_product_args p = cut(context, sum, sums_tiles(context, sum->a.dtype));
    return (size_t)(p.part_count * p.rows * p.columns) * (sum->a.dtype == RILL_F64 ? sizeof(double) : sizeof(float));
}

static rill_status fold_parts(rill_context *context, bool f64, const rl_product_fold *fold)
{
    rl_product_fold of = *fold;
    void *arguments[] = {&of};
    if (of.numbers == 0) return RILL_OK;
    return rl_cuda_launch_early(context, rl_product_fold_kernel(f64), rl_quotient_up(of.numbers, FOLD_THREADS), 1,
                                FOLD_THREADS, 0, arguments, "selective_layer_backward: launch of a sum");
}

rill_status rl_cuda_add_part(rill_context *context, rill_dtype dtype, void *total, const void *part, int64_t numbers,
                             bool adds)
{
    const rl_product_fold fold = {.parts = part, .total = total, .numbers = numbers, .part_count = 1, .adds = adds};
    return fold_parts(context, dtype == RILL_F64, &fold);
}

rill_status rl_cuda_sum_steps(rill_context *context, const rl_step_sum *sum)
{
    const bool tiles = sums_tiles(context, sum->a.dtype);
    rl_product_args p = cut(context, sum, tiles);
    if (p.rows == 0 || p.columns == 0) return RILL_OK;
    p.blocks = p.column_blocks * p.row_blocks * p.part_count;
    const bool whole = p.part_count == 1 && !sum->adds; /* the one part is the sum */
    if (whole) p.parts = sum->total;
    const rl_product_kernel_of plain = {.address = rl_product_kernel(p.a.dtype, true), .threads = RL_PRODUCT_THREADS};
    const rl_product_kernel_of kernel =
        tiles ? rl_product_steps_kernel(p.a.dtype, columns_of_block(p.columns, true), is_rough(sum)) : plain;
    void *arguments[] = {&p};
    rill_status status =
        rl_cuda_launch_early(context, kernel.address, p.blocks, 1, kernel.threads, (size_t)kernel.shared, arguments,
                             "selective_layer_backward: launch of a product");
    const rl_product_fold fold = {.parts = sum->parts,
                                  .total = sum->total,
                                  .numbers = p.rows * p.columns,
                                  .part_count = p.part_count,
                                  .adds = sum->adds};
    return status == RILL_OK && !whole ? fold_parts(context, sum->a.dtype == RILL_F64, &fold) : status;
}

cudaError_t rl_cuda_prepare_product(rl_cuda_state *state)
{
    static const rill_dtype types[] = {RILL_F32, RILL_BF16, RILL_F16};
    cudaError_t error = cudaSuccess;
    if (!state->multiplies) return error;
    for (int k = 0; k < 2 * RL_PARTS_WAYS && error == cudaSuccess; k++) {
        const rl_product_kernel_of kernel =
            rl_product_parts_kernel((rl_parts_way)(k / 2), INT32_MAX, RL_PARTS_SLIM + k % 2);
        error = rl_cuda_allow(state, kernel.address, (size_t)kernel.shared);
    }
    for (int k = 0; k < 4 && error == cudaSuccess; k++) {
        rl_product_kernel_of kernel;
        const rl_parts_way way = k < 2 ? RL_PARTS_EXACT : RL_PARTS_ROUGH_BF16;
        const int64_t columns = k % 2 ? 128 : k < 2 ? 144 : 256;
        if (rl_product_flow_kernel(way, 1, columns, &kernel))
            error = rl_cuda_allow(state, kernel.address, state->most_shared);
    }
    for (int k = 0; k < 12 && error == cudaSuccess; k++) {
        const rl_product_kernel_of kernel =
            rl_product_steps_kernel((int32_t)types[k / 4], k / 2 % 2 ? RL_PARTS_WIDE : RL_PARTS_NARROW, k % 2);
        error = rl_cuda_allow(state, kernel.address, (size_t)kernel.shared);
    }
    return error;
}
