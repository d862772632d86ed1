/* What the files of rows share: their names for the table, and shapes that recur. */
#ifndef TOOLS_OPERATORS_ROWS_H
#define TOOLS_OPERATORS_ROWS_H

#include "operators.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Macros, because C has no constant arrays inside initialisers. */
/* clang-format off */
#define BLD {"batch", "length", "channels"}
#define SEQUENCES_ARE_ROWS {"sequences", "offsets", "batch"}
/* clang-format on */

extern const op op_scan, op_scan_backward, op_selective_scan, op_selective_scan_backward, op_selective_layer,
    op_selective_layer_backward, op_linear_attention, op_linear_attention_backward;

#endif
