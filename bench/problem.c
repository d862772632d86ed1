/* A problem is a text: what rill bench prints is what reproduces it on the command line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static rill_dtype parse_type(const char *text)
{
    static const rill_dtype types[] = {RILL_F64, RILL_F32, RILL_BF16, RILL_F16, RILL_C64, RILL_C128};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(rill_dtype_name(types[i]), text) == 0) return types[i];
    return RILL_ABSENT;
}

static bool parse_size(const char *text, int64_t *size)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *size = value;
    return !errno && end != text && !*end && value >= 0 && value <= INT64_C(1) << 40;
}

static bool parse_number(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && !*end;
}

/* Words between commas, each one of a list that ends in NULL: bit i of *found for the i-th. */
static bool parse_set(const char *text, const char *const *words, int *found)
{
    *found = 0;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        int which = -1;
        for (int i = 0; words[i]; i++)
            if (strlen(words[i]) == length && strncmp(text, words[i], length) == 0) which = i;
        if (which < 0) return false;
        *found |= 1 << which;
        text += length;
        if (!*text) return true;
    }
}

/* The words of a list in which each stands once. */
typedef struct seen_words {
    const char *word[2 * BENCH_TEXT];
    int count;
} seen_words;

static bool once(seen_words *seen, const char *word, failure *why)
{
    for (int i = 0; i < seen->count; i++)
        if (strcmp(seen->word[i], word) == 0) return failure_set(why, "'%s' is given twice", word);
    seen->word[seen->count++] = word;
    return true;
}

static bool parse_sizes(char *text, bench_problem *problem, failure *why)
{
    const op *row = problem->operation;
    char *rest = text, *word = strsep(&rest, "x");
    for (int axis = 0; axis < RILL_MAX_RANK && row->problem_axes[axis]; axis++) {
        int64_t size;
        if (!word || !parse_size(word, &size))
            return failure_set(why, "the size of %s is missing or not a number", row->problem_axes[axis]);
        op_size_set(&problem->sizes, row->problem_axes[axis], size);
        word = strsep(&rest, "x");
    }
    return word ? failure_set(why, "'x%s' is one size too many", word) : true;
}

/* The axis' name as the operator's row spells it; NULL where it has none such. */
static const char *own_axis(const op *row, const char *name)
{
    for (int i = 0; i < row->tensor_count; i++)
        for (int axis = 0; axis < row->tensors[i].rank; axis++) {
            const char *own = row->tensors[i].axes[axis];
            if (strcmp(own, name) == 0) return own;
        }
    return NULL;
}

static void give(bench_problem *problem, const char *tensor)
{
    const op_tensor *found = op_tensor_find(problem->operation, tensor);
    if (found) problem->given[found - problem->operation->tensors] = true;
}

static bool parse_setting(char *word, char *value, bench_problem *problem, failure *why)
{
    const op *row = problem->operation;
    const op_option *option = op_option_find(row, word);
    if (option) {
        double *number = &problem->option[option - row->options];
        if (!parse_number(value, number)) return failure_set(why, "%s: '%s' is not a number", word, value);
        if (option->type != OP_BOOL || *number == 0.0 || *number == 1.0) return true;
        return failure_set(why, "%s: '%s' is neither 0 nor 1", word, value);
    }
    const char *axis = own_axis(row, word);
    int64_t size;
    if (!axis || !parse_size(value, &size)) return failure_set(why, "'%s=%s' is no option or axis", word, value);
    op_size_set(&problem->sizes, axis, size);
    for (int i = 0; i < row->rule_count; i++)
        if (strcmp(row->rules[i].axis, axis) == 0) give(problem, row->rules[i].unless);
    return true;
}

static bool parse_words(char *text, bench_problem *problem, failure *why)
{
    char *rest = text, *word;
    seen_words seen = {.count = 0};
    while ((word = strsep(&rest, ","))) {
        char *equals = strchr(word, '=');
        if (equals) *equals = '\0';
        if (!once(&seen, word, why)) return false;
        const op_option *option = op_option_find(problem->operation, word);
        const op_tensor *tensor = op_tensor_find(problem->operation, word);
        if (equals) {
            if (!parse_setting(word, equals + 1, problem, why)) return false;
        } else if (strcmp(word, "time_contiguous") == 0) {
            problem->time_contiguous = true;
        } else if (strcmp(word, "in_place") == 0) {
            if (!problem->operation->overlay.output)
                return failure_set(why, "%s does not work in place", problem->operation->name);
            problem->in_place = true;
        } else if (option && option->type == OP_BOOL) {
            problem->option[option - problem->operation->options] = 1.0;
        } else if (tensor && (tensor->role == OP_OPTIONAL_INPUT || tensor->role == OP_OPTIONAL_OUTPUT)) {
            if (problem->given[tensor - problem->operation->tensors])
                return failure_set(why, "'%s' is given twice", word);
            give(problem, word);
        } else {
            return failure_set(why, "'%s' is no optional tensor and no option of %s", word, problem->operation->name);
        }
    }
    return true;
}

/* Milliseconds on a GPU, a part of a triad's time, or one or two parts of a triad's speed. */
static bool parse_mark(const char *of, char *value, bench_problem *problem, failure *why)
{
    if (strcmp(of, "h200") == 0)
        return parse_number(value, &problem->cuda_mark_ms)
                   ? true
                   : failure_set(why, "mark.h200=%s is not a number of milliseconds", value);
    if (strcmp(of, "triad") == 0)
        return parse_number(value, &problem->triad_mark) ? true
                                                         : failure_set(why, "mark.triad=%s is not a number", value);
    if (strcmp(of, "nt-triad") != 0) return failure_set(why, "'mark.%s' is not a key", of);
    char *comma = strchr(value, ','), *second = comma ? comma + 1 : value;
    if (comma) *comma = '\0';
    return parse_number(value, &problem->streaming_mark[0]) && parse_number(second, &problem->streaming_mark[1])
               ? true
               : failure_set(why, "mark.nt-triad takes a number, or two with a comma");
}

static bool parse_key(char *key, bench_problem *problem, failure *why)
{
    char *value = strchr(key, '=');
    if (!value) return failure_set(why, "'%s' is not KEY=VALUE", key);
    *value++ = '\0';
    int found;
    if (strcmp(key, "on") == 0) {
        if (!parse_set(value, (const char *const[]){"cpu", "cuda", NULL}, &found))
            return failure_set(why, "on=%s is none of cpu, cuda or both with a comma", value);
        problem->on_cpu = found & 1;
        problem->on_cuda = found & 2;
    } else if (strcmp(key, "quick") == 0) {
        if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
            return failure_set(why, "quick=%s is neither 0 nor 1", value);
        problem->quick = *value == '1';
    } else if (strcmp(key, "compare") == 0) {
        if (!parse_set(value, (const char *const[]){"yardstick", "threads", "triad", "nt-triad", NULL}, &found))
            return failure_set(why, "compare=%s is none of yardstick, threads, triad, nt-triad with commas", value);
        problem->yardstick = found & 1;
        problem->threads = found & 2;
        problem->triad[BENCH_ORDINARY] = found & 4;
        problem->triad[BENCH_STREAMING] = found & 8;
    } else if (strncmp(key, "mark.", 5) == 0) {
        return parse_mark(key + 5, value, problem, why);
    } else if (strcmp(key, "mode") == 0) {
        static const char *const modes[] = {"call", "eager", "graph", "decode"};
        for (int i = 0; i < 4; i++) {
            if (strcmp(value, modes[i]) != 0) continue;
            problem->mode = (bench_mode)i;
            return true;
        }
        return failure_set(why, "mode '%s' is none of call, eager, graph, decode", value);
    } else {
        return failure_set(why, "'%s' is not a key", key);
    }
    return true;
}

/* The rules' sizes and the required tensors; decoding carries the state in place. */
static void complete(bench_problem *problem)
{
    const op *row = problem->operation;
    if (problem->mode == BENCH_DECODE && row->state.input) {
        give(problem, row->state.input);
        give(problem, row->state.output);
    }
    for (int i = 0; i < row->tensor_count; i++) {
        op_role role = row->tensors[i].role;
        if (role == OP_INPUT || role == OP_OUTPUT) problem->given[i] = true;
    }
    for (int i = 0; i < row->rule_count; i++) {
        const op_axis_rule *rule = &row->rules[i];
        const op_tensor *unless = op_tensor_find(row, rule->unless);
        if (unless && !problem->given[unless - row->tensors])
            op_size_set(&problem->sizes, rule->axis, op_size(&problem->sizes, rule->same_as));
        else if (op_size(&problem->sizes, rule->axis) < 0)
            op_size_set(&problem->sizes, rule->axis, 1);
    }
    if (op_size(&problem->sizes, "groups") < 0) op_size_set(&problem->sizes, "groups", 1);
    if (op_size(&problem->sizes, "query_heads") < 0)
        op_size_set(&problem->sizes, "query_heads", op_size(&problem->sizes, "heads"));
}

static bool has_output(const bench_problem *problem, failure *why)
{
    const op *row = problem->operation;
    char names[BENCH_TEXT] = "";
    for (int i = 0; i < row->tensor_count; i++) {
        if (!op_is_output(&row->tensors[i])) continue;
        if (problem->given[i]) return true;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", row->tensors[i].name);
    }
    return failure_set(why, "no output of %s is given: no word is one of %s", row->name, names);
}

/* What no single word or key can say. */
static bool check(const bench_problem *problem, failure *why)
{
    const op *row = problem->operation;
    if (!has_output(problem, why)) return false;
    if (op_type_is_complex(problem->dtype) && !row->takes_complex)
        return failure_set(why, "%s takes no complex numbers", row->name);
    if (problem->mode == BENCH_DECODE && !row->state.input)
        return failure_set(why, "%s has no state to decode with", row->name);
    if (problem->in_place && problem->mode != BENCH_ONE_CALL)
        return failure_set(why, "in_place is for mode=call, where the input is restored before each");
    return true;
}

static bool parse_keys(char *rest, bench_problem *problem, failure *why)
{
    seen_words seen = {.count = 0};
    for (char *key = strtok_r(NULL, " \t\r\n", &rest); key; key = strtok_r(NULL, " \t\r\n", &rest))
        if (!parse_key(key, problem, why) || !once(&seen, key, why)) return false; /* the key ends at its '=' now */
    return true;
}

bool bench_parse(const char *line, bench_problem *problem, failure *why)
{
    char copy[2 * BENCH_TEXT], *rest = NULL, *parts;
    *problem = (bench_problem){.on_cpu = true, .on_cuda = true};
    if ((size_t)snprintf(copy, sizeof copy, "%s", line) >= sizeof copy)
        return failure_set(why, "the line is too long");
    char *text = strtok_r(copy, " \t\r\n", &rest);
    if (!text || strlen(text) >= BENCH_TEXT) return failure_set(why, "a problem is missing or too long");
    strcpy(problem->text, text);
    strcpy(problem->name, "-");
    parts = text;
    char *name = strsep(&parts, ":"), *type = strsep(&parts, ":");
    char *sizes = strsep(&parts, ":"), *words = strsep(&parts, ":");
    problem->operation = op_find(name);
    if (!problem->operation) return failure_set(why, "operator '%s' is not known", name);
    problem->dtype = type ? parse_type(type) : RILL_ABSENT;
    if (problem->dtype == RILL_ABSENT)
        return failure_set(why, "type '%s' is none of f64, f32, bf16, f16, c64, c128", type ? type : "");
    if (!sizes) return failure_set(why, "sizes are missing");
    if (parts) return failure_set(why, "':%s' is one part too many", parts);
    if (!parse_sizes(sizes, problem, why) || (words && !parse_words(words, problem, why))) return false;
    if (!parse_keys(rest, problem, why)) return false;
    complete(problem);
    return check(problem, why);
}
