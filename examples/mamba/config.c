/* config.json: the sizes of a Mamba, each checked. */
#include "config.h"

#include <string.h>

#include "fail.h"

static int64_t size_of(const json_t *root, const char *path, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(root, key);
    if ((!value || json_is_null(value)) && otherwise > 0) return otherwise;
    if (!json_is_integer(value)) fail("%s: %s is not an integer", path, key);
    const json_int_t size = json_integer_value(value);
    if (size < 1 || size > 1 << 30) fail("%s: %s is %lld, expected 1 to 2^30", path, key, (long long)size);
    return size;
}

static bool flag_of(const json_t *root, const char *path, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(root, key);
    if (!value || json_is_null(value)) return otherwise;
    if (!json_is_boolean(value)) fail("%s: %s is neither true nor false", path, key);
    return json_is_true(value);
}

static void expect_word(const json_t *root, const char *path, const char *key, const char *expected)
{
    const json_t *value = json_object_get(root, key);
    if (!value) return;
    const char *word = json_string_value(value);
    if (!word || strcmp(word, expected) != 0)
        fail("%s: %s is %s, expected %s", path, key, word ? word : "not a word", expected);
}

/* What keeps the norm of a row of zeros from dividing by 0. */
static double epsilon_of(const json_t *root, const char *path)
{
    const json_t *value = json_object_get(root, "layer_norm_epsilon");
    if (!value || json_is_null(value)) return 1e-5;
    if (!json_is_number(value)) fail("%s: layer_norm_epsilon is not a number", path);
    const double epsilon = json_number_value(value);
    if (!((float)epsilon > 0)) fail("%s: layer_norm_epsilon is %g, expected a float32 above 0", path, epsilon);
    return epsilon;
}

config config_read(const json_t *root, const char *path)
{
    if (!json_is_object(root)) fail("%s: not a JSON object", path);
    if (!json_object_get(root, "model_type")) fail("%s: model_type is missing, expected mamba", path);
    expect_word(root, path, "model_type", "mamba");
    expect_word(root, path, "hidden_act", "silu");
    config sizes = {
        .vocab = size_of(root, path, "vocab_size", 0),
        .width = size_of(root, path, "hidden_size", 0),
        .states = size_of(root, path, "state_size", 16),
        .layers = size_of(root, path, "num_hidden_layers", 0),
        .taps = size_of(root, path, "conv_kernel", 4),
        .has_bias = flag_of(root, path, "use_bias", false),
        .has_conv_bias = flag_of(root, path, "use_conv_bias", true),
        .is_tied = flag_of(root, path, "tie_word_embeddings", true),
        .epsilon = epsilon_of(root, path),
    };
    sizes.channels = size_of(root, path, "intermediate_size", size_of(root, path, "expand", 2) * sizes.width);
    const char *word = json_string_value(json_object_get(root, "time_step_rank"));
    const bool is_auto = word && strcmp(word, "auto") == 0;
    sizes.rank = is_auto ? (sizes.width + 15) / 16 : size_of(root, path, "time_step_rank", (sizes.width + 15) / 16);
    return sizes;
}
