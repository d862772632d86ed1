/* What the programs of tests on a GPU begin with: each test has a cuda context of its own. */
#ifndef API_CUDA_GROUP_H
#define API_CUDA_GROUP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include <rill/cuda.h>
#include <rill/rill.h>

static rill_context *context;

static int make_context(void **unused)
{
    (void)unused;
    return rill_context_create(&(rill_options){.backend = RILL_BACKEND_CUDA}, &context) != RILL_OK;
}

static int drop_context(void **unused)
{
    (void)unused;
    rill_context_destroy(context);
    return 0;
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, make_context, drop_context)

#endif
