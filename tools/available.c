#include "available.h"

#include <stdlib.h>

bool op_available(const op *row, rill_context *context)
{
    static const int64_t ones[RILL_MAX_RANK] = {1, 1, 1, 1, 1, 1};
    float element[OP_MAX_TENSORS] = {0};
    void *args = calloc(1, row->args_size);
    if (!args) return true; /* whatever is called next will say so */
    for (int i = 0; i < row->tensor_count; i++)
        if (row->tensors[i].kind != OP_OFFSETS)
            *op_args_tensor(&row->tensors[i], args) =
                rill_tensor_view(RILL_HOST, &element[i], RILL_F32, row->tensors[i].rank, ones, NULL);
    rill_status status = row->run(context, args);
    free(args);
    return status != RILL_UNSUPPORTED;
}
