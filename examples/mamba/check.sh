#!/bin/sh
# check.sh PROGRAM MODEL: mamba-lm as a user runs it, and what it says of checkpoints that are not right.
set -eu
program=$1 model=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

wrong()
{
    echo "$*"
    failed=1
}

# refuses TEXT COMMAND...: ends with 1 and says TEXT
refuses()
{
    text=$1 status=0
    shift
    "$@" >"$work/out" 2>"$work/message" </dev/null || status=$?
    [ $status -eq 1 ] && grep -qF -- "$text" "$work/message" ||
        wrong "expected 1 and '$text', found $status and: $(cat "$work/message")"
}

# broken FILE: a copy of the model whose FILE comes from standard input
broken()
{
    rm -rf "$work/broken"
    mkdir "$work/broken"
    cp "$model/config.json" "$model/model.safetensors" "$work/broken"
    chmod u+w "$work/broken"/*
    cat >"$work/broken/$1"
}

cpu()
{
    "$program" "$@" --backend cpu
}

# The same text whatever the blocks, alone or beside another one, by bytes or by numbers.
cpu "$model" --prompt 'A hacker is ' --temperature 0 --tokens 40 >"$work/first" 2>"$work/figures"
grep -q '39 steps' "$work/figures" || wrong "figures: $(cat "$work/figures")"
[ "$(wc -c <"$work/first")" -eq 53 ] || wrong "found $(cat "$work/first")"
cpu "$model" --prompt 'A hacker is ' --temperature 0 --tokens 40 --block 5 >"$work/blocks" 2>/dev/null
cmp "$work/first" "$work/blocks" || wrong "a prompt in blocks goes on differently"
cpu "$model" --prompt 'A hacker is ' --prompt 'Another' --temperature 0 --tokens 40 >"$work/two" 2>/dev/null
head -c 53 "$work/two" | cmp - "$work/first" || wrong "a text beside another one goes on differently"
cpu "$model" --ids --prompt '65 32 104 97 99 107 101 114 32 105 115 32' --temperature 0 --tokens 40 2>/dev/null |
    tr ' ' '\n' | awk 'NF { printf "%c", $1 + 0 }' >"$work/numbers"
LC_ALL=C head -c 52 "$work/first" | cmp - "$work/numbers" || wrong "tokens by number go on differently"
cpu "$model" --seed 7 --tokens 30 >"$work/seven" 2>/dev/null
cpu "$model" --seed 7 --tokens 30 2>/dev/null | cmp - "$work/seven" || wrong "the same seed gives another text"

# Bits a byte of held-out text, whatever the blocks.
head -c 6000 "$model/heldout.txt" >"$work/text"
cpu "$model" --score "$work/text" >"$work/score" 2>/dev/null
grep -q '^2\.[0-9]* bits a byte, 5999 bytes$' "$work/score" || wrong "score: $(cat "$work/score")"
cpu "$model" --score "$work/text" --block 77 2>/dev/null | cmp - "$work/score" || wrong "blocks change the score"

# What is printed counts only when it has arrived.
if [ -w /dev/full ]; then
    for words in "--score $work/text" "--tokens 3" --help; do
        status=0
        cpu "$model" $words >/dev/full 2>"$work/message" || status=$?
        [ $status -eq 1 ] && grep -q 'the output cannot be written' "$work/message" ||
            wrong "$words on a full disk: $status and $(cat "$work/message")"
    done
fi

# The same weights in two files with an index.
if command -v python3 >/dev/null; then
    python3 - "$model" "$work/sharded" <<'END'
import json, os, struct, sys
source, target = sys.argv[1:]
os.mkdir(target)
data = open(source + "/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
names = sorted(name for name in header if name != "__metadata__")
index = {}
for part, own in enumerate([names[::2], names[1::2]]):
    file, at, kept, bytes_ = "part-%d.safetensors" % part, 0, {}, b""
    for name in own:
        begin, end = header[name]["data_offsets"]
        bytes_ += data[8 + size + begin:8 + size + end]
        kept[name] = dict(header[name], data_offsets=[at, at + end - begin])
        at, index[name] = at + end - begin, file
    text = json.dumps(kept).encode()
    open(target + "/" + file, "wb").write(struct.pack("<Q", len(text)) + text + bytes_)
json.dump({"weight_map": index}, open(target + "/model.safetensors.index.json", "w"))
open(target + "/config.json", "w").write(open(source + "/config.json").read())
END
    cpu "$work/sharded" --score "$work/text" 2>/dev/null | cmp - "$work/score" || wrong "two files score differently"
fi

# What is damaged or does not match is refused, with the file, the name, what was found and what expected.
refuses 'which model' "$program"
refuses 'absent/config.json: No such file' "$program" "$work/absent"
refuses '--tokens -1: expected a whole number' "$program" "$model" --tokens -1
refuses '--tokens 99999999999999999999: expected a whole number' "$program" "$model" --tokens 99999999999999999999
refuses '--threads 4294967297: expected a whole number' "$program" "$model" --threads 4294967297
refuses '--backend tpu: expected auto' "$program" "$model" --backend tpu
refuses 'absent.txt: No such file' "$program" "$model" --backend cpu --score "$work/absent.txt"
printf x >"$work/one"
refuses 'has one token' "$program" "$model" --backend cpu --score "$work/one"
refuses 'token 256, expected 0 to 255' "$program" "$model" --backend cpu --ids --prompt '1 256'
for word in one 1x 1.5 0x1 -; do
    refuses "'$word' is not a token number" "$program" "$model" --backend cpu --ids --prompt "1 $word"
done
refuses "'' is not a token number" "$program" "$model" --backend cpu --ids --prompt '1,,2'
for word in -1 256 99999999999999999999 -99999999999999999999; do
    refuses "token $word, expected 0 to 255" "$program" "$model" --backend cpu --ids --prompt "1,$word"
done
head -c 2000000 "$model/model.safetensors" | broken model.safetensors
refuses "are not within the file's" "$program" "$work/broken" --backend cpu
head -c 5 "$model/model.safetensors" | broken model.safetensors
refuses 'too short for a safetensors file' "$program" "$work/broken" --backend cpu
{ cat "$model/model.safetensors"; printf x; } | broken model.safetensors
refuses 'model.safetensors: the tensors end at byte' "$program" "$work/broken" --backend cpu
about()
{
    printf '"%s":{"dtype":"F32","shape":[%s],"data_offsets":[%s]}' "$1" "$2" "$3"
}
# holding HEADER: a file of 16 zero bytes behind this header
holding()
{
    printf "\\$(printf %03o ${#1})\0\0\0\0\0\0\0%s" "$1"
    head -c 16 /dev/zero
}
holding "{$(about a 3 0,12),$(about b 2 8,16)}" | broken model.safetensors
refuses 'b: begins at byte 8, expected 12 (it overlaps another)' "$program" "$work/broken" --backend cpu
holding "{$(about a 2 0,8),$(about b 1 12,16)}" | broken model.safetensors
refuses 'b: begins at byte 12, expected 8 (after a hole)' "$program" "$work/broken" --backend cpu
holding "{$(about a 4 0,16),$(about a 4 0,16)}" | broken model.safetensors
refuses 'model.safetensors: header: duplicate' "$program" "$work/broken" --backend cpu
holding "{$(about a 4 0)}" | broken model.safetensors
refuses 'a: data_offsets are not two integers' "$program" "$work/broken" --backend cpu
printf '\377\377\377\377\377\377\377\377{}' | broken model.safetensors
refuses 'its header has' "$program" "$work/broken" --backend cpu
printf '\003\0\0\0\0\0\0\0{x}' | broken model.safetensors
refuses 'model.safetensors: header' "$program" "$work/broken" --backend cpu
printf '\002\0\0\0\0\0\0\0{}' | broken model.safetensors
refuses 'no tensor backbone.embeddings.weight' "$program" "$work/broken" --backend cpu
sed 's/"hidden_size": 128/"hidden_size": 96/' "$model/config.json" | broken config.json
refuses 'shape [256,128], expected [256,96]' "$program" "$work/broken" --backend cpu
sed 's/"mamba"/"llama"/' "$model/config.json" | broken config.json
refuses 'model_type is llama, expected mamba' "$program" "$work/broken" --backend cpu
sed 's/"state_size": 16/"state_size": -16/' "$model/config.json" | broken config.json
refuses 'state_size is -16' "$program" "$work/broken" --backend cpu
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$model/config.json" | broken config.json
refuses 'no tensor lm_head.weight' "$program" "$work/broken" --backend cpu
sed 's/"use_conv_bias": true/"use_conv_bias": false/' "$model/config.json" | broken config.json
refuses 'use_conv_bias is false, expected true (there is a tensor backbone.layers.0.mixer.conv1d.bias)' \
    "$program" "$work/broken" --backend cpu
for epsilon in 0 -1e-05 1e-60; do
    sed "s/\"layer_norm_epsilon\": [^,}]*/\"layer_norm_epsilon\": $epsilon/" "$model/config.json" | broken config.json
    refuses "layer_norm_epsilon is $epsilon, expected" "$program" "$work/broken" --backend cpu
done
rm "$work/broken/config.json"
mkdir "$work/broken/config.json"
refuses 'config.json: cannot be read' "$program" "$work/broken" --backend cpu
echo '{' | broken config.json
refuses 'config.json: line' "$program" "$work/broken" --backend cpu

# One file goes before an index; an index names files.
echo '{"weight_map":{"backbone.embeddings.weight":"absent.safetensors"}}' | broken model.safetensors.index.json
cpu "$work/broken" --score "$work/text" 2>/dev/null | cmp - "$work/score" || wrong "an index goes before the one file"
rm "$work/broken/model.safetensors"
refuses 'absent.safetensors: No such file' "$program" "$work/broken" --backend cpu
echo '{"weight_map":{"backbone.embeddings.weight":3}}' >"$work/broken/model.safetensors.index.json"
refuses 'index.json: weight_map: backbone.embeddings.weight: not the name of a file' "$program" "$work/broken" --backend cpu
echo '{}' >"$work/broken/model.safetensors.index.json"
refuses 'index.json: weight_map is missing' "$program" "$work/broken" --backend cpu
rm "$work/broken/model.safetensors.index.json"
refuses 'neither model.safetensors nor model.safetensors.index.json is there' "$program" "$work/broken" --backend cpu

# The usage, asked for, is no failure.
for words in --help "$model --help" "--ids --help"; do
    "$program" $words >"$work/out" 2>"$work/message" || wrong "$words: exit status $?"
    grep -q '^usage: mamba-lm DIR' "$work/out" && [ ! -s "$work/message" ] || wrong "$words: $(cat "$work/message")"
done
exit $failed
