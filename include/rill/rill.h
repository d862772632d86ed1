/*
 * rill: gated linear recurrences, from the plain scan to the Mamba layer and linear attention, on CPU and GPU.
 *
 * One function an operator.  Its arguments travel in a struct filled by designated initialisers, in which
 * zero is always the default and an absent tensor is an absent feature:
 *
 *     rill_context *ctx;
 *     rill_context_create(NULL, &ctx);
 *     rill_selective_scan_args scan = {
 *         .x = rill_tensor_3d(x, RILL_F32, batch, length, channels),
 *         ...
 *     };
 *     if (rill_selective_scan(ctx, &scan) != RILL_OK) fprintf(stderr, "%s\n", rill_last_error(ctx));
 *
 * This header brings all that most callers need; each part also stands alone.
 */
#ifndef RILL_RILL_H
#define RILL_RILL_H

#include <rill/context.h>
#include <rill/linear_attention.h>
#include <rill/scan.h>
#include <rill/selective_layer.h>
#include <rill/selective_scan.h>
#include <rill/status.h>
#include <rill/tensor.h>
#include <rill/version.h>

#endif
