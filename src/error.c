#include <stdarg.h>
#include <stdio.h>

#include "context.h"

rill_status rl_fail(rill_context *context, rill_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context->message, sizeof context->message, format, arguments);
    va_end(arguments);
    return status;
}

const char *rill_status_name(rill_status status)
{
    switch (status) {
    case RILL_OK:
        return "RILL_OK";
    case RILL_INVALID_NULL:
        return "RILL_INVALID_NULL";
    case RILL_INVALID_DTYPE:
        return "RILL_INVALID_DTYPE";
    case RILL_INVALID_SHAPE:
        return "RILL_INVALID_SHAPE";
    case RILL_INVALID_STRIDE:
        return "RILL_INVALID_STRIDE";
    case RILL_INVALID_OVERLAP:
        return "RILL_INVALID_OVERLAP";
    case RILL_INVALID_DEVICE:
        return "RILL_INVALID_DEVICE";
    case RILL_INVALID_OFFSETS:
        return "RILL_INVALID_OFFSETS";
    case RILL_INVALID_OPTION:
        return "RILL_INVALID_OPTION";
    case RILL_UNSUPPORTED:
        return "RILL_UNSUPPORTED";
    case RILL_OUT_OF_MEMORY:
        return "RILL_OUT_OF_MEMORY";
    case RILL_DEVICE_ERROR:
        return "RILL_DEVICE_ERROR";
    case RILL_INTERNAL:
        return "RILL_INTERNAL";
    }
    return "unknown status";
}
