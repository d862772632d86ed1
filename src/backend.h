/*
 * The only contract between the front and a backend: one problem struct an operator, and a table of functions.
 *
 * The front has checked everything before a backend sees it; a backend asserts and never checks again.  In a problem
 *   - every size is >= 0, groups >= 1 and divides channels, query_heads >= 1 and divides heads, and no size or
 * address computation overflows 64 bits;
 *   - a tensor that is not given has data == NULL; one that has no elements may have it too;
 *   - tensors given lie where the backend computes (backend->memory), are aligned to their element (c128 to 8 bytes),
 *     and have exactly the shapes written below, with any signed strides (0 too, in inputs);
 *   - no output overlaps itself or another tensor, but for the aliases named (the very same view);
 *   - offsets on the host are ordered and span [0, length]; on the device they are not checked: clamp them.
 * Sizes may be 0: with length 0 the states are still handed on, with states 0 the skip and the gate still act.
 */
#ifndef RL_BACKEND_H
#define RL_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include <rill/context.h>
#include <rill/cuda.h>
#include <rill/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Types: see rill_scan_args.  With wide_outputs h and the states may be f64 (c128) beside any input. */
typedef struct rl_scan_problem {
    int64_t batch, length, channels;
    int64_t sequences;   /* batch, or the packed count */
    rill_tensor a;       /* [batch, length, channels] */
    rill_tensor b;       /* [batch, length, channels] */
    rill_tensor h_init;  /* [sequences, channels] or absent */
    rill_tensor offsets; /* i64 [sequences + 1] or absent; with it batch is 1 */
    rill_tensor h;       /* [batch, length, channels]; may be b */
    rill_tensor h_final; /* [sequences, channels] or absent; may be h_init */
    bool reverse;
} rl_scan_problem;

/* Types: see rill_scan_backward_args.  At least one output is given. */
typedef struct rl_scan_backward_problem {
    int64_t batch, length, channels;
    int64_t sequences;
    rill_tensor a;        /* [batch, length, channels] */
    rill_tensor h;        /* [batch, length, channels]; absent only without da */
    rill_tensor h_init;   /* [sequences, channels] or absent */
    rill_tensor offsets;  /* i64 [sequences + 1] or absent; with it batch is 1 */
    rill_tensor dh;       /* [batch, length, channels] or absent: zero */
    rill_tensor dh_final; /* [sequences, channels] or absent: zero */
    rill_tensor da;       /* [batch, length, channels] or absent: not wanted; so are the next two */
    rill_tensor db;       /* [batch, length, channels] */
    rill_tensor dh_init;  /* [sequences, channels]; only with h_init */
    bool reverse;         /* of the forward recurrence: the gradients run the other way */
} rl_scan_backward_problem;

/* Types: see rill_selective_scan_args.  With wide_outputs backends y and the states may be f64 beside any input. */
typedef struct rl_selective_scan_problem {
    int64_t batch, length, channels, states, groups;
    int64_t sequences;      /* batch, or the packed count */
    rill_tensor x;          /* [batch, length, channels] */
    rill_tensor delta;      /* [batch, length, channels] */
    rill_tensor A;          /* [channels, states] */
    rill_tensor B;          /* [batch, length, groups, states] */
    rill_tensor C;          /* [batch, length, groups, states] */
    rill_tensor D;          /* [channels] or absent */
    rill_tensor z;          /* [batch, length, channels] or absent */
    rill_tensor delta_bias; /* [channels] or absent */
    rill_tensor h_init;     /* [sequences, channels, states] or absent */
    rill_tensor offsets;    /* i64 [sequences + 1] or absent; with it batch is 1 */
    rill_tensor y;          /* [batch, length, channels]; may be x */
    rill_tensor h_final;    /* [sequences, channels, states] or absent; may be h_init */
    bool delta_softplus;
    bool reverse;
    double delta_min, delta_max; /* resolved: -inf and +inf where no clamp acts */
} rl_selective_scan_problem;

/* Types: see rill_selective_scan_backward_args.  At least one output has an element. */
typedef struct rl_selective_scan_backward_problem {
    int64_t batch, length, channels, states, groups;
    int64_t sequences;
    rill_tensor x;           /* [batch, length, channels] */
    rill_tensor delta;       /* [batch, length, channels] */
    rill_tensor A;           /* [channels, states] */
    rill_tensor B;           /* [batch, length, groups, states] */
    rill_tensor C;           /* [batch, length, groups, states] */
    rill_tensor D;           /* [channels] or absent */
    rill_tensor z;           /* [batch, length, channels] or absent */
    rill_tensor delta_bias;  /* [channels] or absent */
    rill_tensor h_init;      /* [sequences, channels, states] or absent */
    rill_tensor offsets;     /* i64 [sequences + 1] or absent; with it batch is 1 */
    rill_tensor dy;          /* [batch, length, channels] or absent: zero */
    rill_tensor dh_final;    /* [sequences, channels, states] or absent: zero */
    rill_tensor dx;          /* [batch, length, channels] or absent: not wanted; so are all that follow */
    rill_tensor ddelta;      /* [batch, length, channels] */
    rill_tensor dA;          /* [channels, states]; this and the next two are written also where no step is */
    rill_tensor dD;          /* [channels]; only with D */
    rill_tensor ddelta_bias; /* [channels]; only with delta_bias */
    rill_tensor dB;          /* [batch, length, groups, states]; these two are zero where there are no channels */
    rill_tensor dC;          /* [batch, length, groups, states] */
    rill_tensor dz;          /* [batch, length, channels]; only with z */
    rill_tensor dh_init;     /* [sequences, channels, states]; only with h_init */
    bool delta_softplus;
    bool reverse;                /* of the forward recurrence: the gradients run the other way */
    double delta_min, delta_max; /* resolved: -inf and +inf where no clamp acts */
} rl_selective_scan_backward_problem;

typedef struct rl_selective_layer_problem {
    int64_t batch, length, channels, states;
    int64_t rank;             /* of the step size; meaningful only with W_delta_down */
    int64_t sequences;        /* batch, or the packed count */
    rill_tensor x;            /* [batch, length, channels] */
    rill_tensor W_delta;      /* [channels, channels], or [channels, rank] with W_delta_down */
    rill_tensor W_delta_down; /* [rank, channels] or absent (dtype RILL_ABSENT; rank may be 0 when given) */
    rill_tensor W_B;          /* [states, channels] */
    rill_tensor W_C;          /* [states, channels] */
    rill_tensor A_log;        /* [channels, states] */
    rill_tensor b_delta;      /* [channels] or absent */
    rill_tensor D;            /* [channels] or absent */
    rill_tensor z;            /* [batch, length, channels] or absent */
    rill_tensor h_init;       /* [sequences, channels, states] or absent */
    rill_tensor offsets;      /* i64 [sequences + 1] or absent; with it batch is 1 */
    rill_tensor y;            /* [batch, length, channels] */
    rill_tensor h_final;      /* [sequences, channels, states] or absent; may be h_init */
    bool reverse;
    double delta_min, delta_max; /* resolved: -inf and +inf where no clamp acts */
} rl_selective_layer_problem;

/* Types: see rill_selective_layer_backward_args.  At least one output has an element. */
typedef struct rl_selective_layer_backward_problem {
    int64_t batch, length, channels, states;
    int64_t rank; /* as in the forward problem */
    int64_t sequences;
    rill_tensor x;               /* [batch, length, channels] */
    rill_tensor W_delta;         /* [channels, channels], or [channels, rank] with W_delta_down */
    rill_tensor W_delta_down;    /* [rank, channels] or absent (dtype RILL_ABSENT; rank may be 0 when given) */
    rill_tensor W_B;             /* [states, channels] */
    rill_tensor W_C;             /* [states, channels] */
    rill_tensor A_log;           /* [channels, states] */
    rill_tensor b_delta;         /* [channels] or absent */
    rill_tensor D;               /* [channels] or absent */
    rill_tensor z;               /* [batch, length, channels] or absent */
    rill_tensor h_init;          /* [sequences, channels, states] or absent */
    rill_tensor offsets;         /* i64 [sequences + 1] or absent; with it batch is 1 */
    rill_tensor dy;              /* [batch, length, channels] or absent: zero */
    rill_tensor dh_final;        /* [sequences, channels, states] or absent: zero */
    rill_tensor dx;              /* [batch, length, channels] or absent: not wanted; so are all that follow */
    rill_tensor dW_delta;        /* the shape of W_delta; this and the next six are written also where no step is */
    rill_tensor dW_delta_down;   /* [rank, channels]; only with W_delta_down */
    rill_tensor dW_B;            /* [states, channels] */
    rill_tensor dW_C;            /* [states, channels] */
    rill_tensor dA_log;          /* [channels, states] */
    rill_tensor db_delta;        /* [channels]; only with b_delta */
    rill_tensor dD;              /* [channels]; only with D */
    rill_tensor dz;              /* [batch, length, channels]; only with z */
    rill_tensor dh_init;         /* [sequences, channels, states]; only with h_init */
    bool reverse;                /* of the forward recurrence: the gradients run the other way */
    double delta_min, delta_max; /* resolved: -inf and +inf where no clamp acts */
} rl_selective_layer_backward_problem;

/* Types: see rill_linear_attention_args.  With wide_outputs backends y and the states may be f64 beside any input. */
typedef struct rl_linear_attention_problem {
    int64_t batch, length, query_heads, heads, keys, values;
    int64_t sequences;   /* batch, or the packed count */
    rill_tensor q;       /* [batch, length, query_heads, keys] */
    rill_tensor k;       /* [batch, length, query_heads, keys] */
    rill_tensor v;       /* [batch, length, heads, values] */
    rill_tensor gate;    /* [batch, length, heads] or absent: 1 */
    rill_tensor beta;    /* [batch, length, heads] or absent: 1 */
    rill_tensor S_init;  /* [sequences, heads, keys, values]  or absent: zero */
    rill_tensor offsets; /* i64 [sequences + 1] or absent; with it batch is 1 */
    rill_tensor y;       /* [batch, length, heads, values] */
    rill_tensor S_final; /* [sequences, heads, keys, values] or absent; may be S_init */
    bool gate_is_log;    /* gate is the factor's natural logarithm; -inf is the reset that 0 is elsewhere */
    bool reverse;
    double scale; /* resolved: 1 where the caller gave 0 */
} rl_linear_attention_problem;

/* Types: see rill_linear_attention_backward_args.  At least one output has an element. */
typedef struct rl_linear_attention_backward_problem {
    int64_t batch, length, query_heads, heads, keys, values;
    int64_t sequences;
    rill_tensor q;        /* [batch, length, query_heads, keys] */
    rill_tensor k;        /* [batch, length, query_heads, keys] */
    rill_tensor v;        /* [batch, length, heads, values] */
    rill_tensor gate;     /* [batch, length, heads] or absent: 1 */
    rill_tensor beta;     /* [batch, length, heads] or absent: 1 */
    rill_tensor S_init;   /* [sequences, heads, keys, values]  or absent: zero */
    rill_tensor offsets;  /* i64 [sequences + 1] or absent; with it batch is 1 */
    rill_tensor dy;       /* [batch, length, heads, values] or absent: zero */
    rill_tensor dS_final; /* [sequences, heads, keys, values] or absent: zero */
    rill_tensor dq;       /* [batch, length, query_heads, keys] or absent: not wanted; so are all that follow */
    rill_tensor dk;       /* [batch, length, query_heads, keys] */
    rill_tensor dv;       /* [batch, length, heads, values] */
    rill_tensor dgate;    /* [batch, length, heads]; only with gate */
    rill_tensor dbeta;    /* [batch, length, heads]; only with beta */
    rill_tensor dS_init;  /* [sequences, heads, keys, values]; only with S_init */
    bool gate_is_log;
    bool reverse; /* of the forward recurrence: the gradients run the other way */
    double scale; /* resolved: 1 where the caller gave 0 */
} rl_linear_attention_backward_problem;

/*
 * A backend.  Functions answer RILL_OK or a status set through rl_fail (src/error.h).  Operator members may be NULL
 * while a backend lacks the operator; the front then answers RILL_UNSUPPORTED.
 */
typedef struct rl_backend {
    const char *name;
    rill_backend id;
    rill_device memory; /* where it computes; the front stages host tensors when that is not the host */
    bool wide_outputs;  /* takes results and states in f64, or c128, beside any activations */

    /* Makes context->state from context->options (already checked for range), or fails.  close gets what open made.
     */
    rill_status (*open)(rill_context *context);
    void (*close)(rill_context *context);
    void (*describe)(const rill_context *context, rill_info *info); /* fills what only the backend knows */

    /* Memory of `memory`, 256-byte aligned; alloc answers RILL_OUT_OF_MEMORY, also during graph capture. */
    rill_status (*alloc)(rill_context *context, size_t bytes, void **memory);
    void (*free)(rill_context *context, void *memory);
    /* Same type and shape, any strides, any device the backend knows; ordered after earlier work of the context. */
    rill_status (*copy)(rill_context *context, const rill_tensor *destination, const rill_tensor *source);
    rill_status (*synchronize)(rill_context *context);

    /* The caller's stream; NULL where there is none to set. */
    rill_status (*set_stream)(rill_context *context, rill_cuda_stream stream);
    rill_status (*get_stream)(rill_context *context, rill_cuda_stream *stream);

    rill_status (*scan)(rill_context *context, const rl_scan_problem *problem);
    rill_status (*scan_backward)(rill_context *context, const rl_scan_backward_problem *problem);
    rill_status (*selective_scan)(rill_context *context, const rl_selective_scan_problem *problem);
    rill_status (*selective_scan_backward)(rill_context *context, const rl_selective_scan_backward_problem *problem);
    rill_status (*selective_layer)(rill_context *context, const rl_selective_layer_problem *problem);
    rill_status (*selective_layer_backward)(rill_context *context,
                                            const rl_selective_layer_backward_problem *problem);
    rill_status (*linear_attention)(rill_context *context, const rl_linear_attention_problem *problem);
    rill_status (*linear_attention_backward)(rill_context *context,
                                             const rl_linear_attention_backward_problem *problem);
} rl_backend;

extern const rl_backend rl_backend_cpu;
extern const rl_backend rl_backend_reference;
extern const rl_backend rl_backend_loop;
extern const rl_backend rl_backend_cuda; /* only in builds with CUDA (RL_HAVE_CUDA) */

#ifdef __cplusplus
}
#endif

#endif
