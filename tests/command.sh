#!/bin/sh
# command.sh RILL DATA BUILD: the rill command on good files, on what it wrote itself, and on all kinds of bad input.
rill=$1 data=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 checks=0

miss()
{
    echo "FAILED: $*"
    failed=$((failed + 1))
}

# good NAME ARGUMENT...: exit status 0 and nothing on stderr.
good()
{
    name=$1
    shift
    checks=$((checks + 1))
    "$rill" "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status -eq 0 ] && [ ! -s "$work/err" ] && return 0
    miss "$name: exit status $status"
    cat "$work/out" "$work/err"
}

# bad NAME PATTERN ARGUMENT...: exit status 1 and a message on stderr that matches.
bad()
{
    name=$1 pattern=$2
    shift 2
    checks=$((checks + 1))
    "$rill" "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status -eq 1 ] || { miss "$name: exit status $status, expected 1"; cat "$work/err"; return; }
    grep -q -- "$pattern" "$work/err" || { miss "$name: no '$pattern' on stderr"; cat "$work/err"; }
}

# file NAME HEADER [BYTES]: a safetensors file with this header and so many zero bytes behind it.
file()
{
    length=$(printf %s "$2" | wc -c)
    {
        printf "\\$(printf %03o $((length % 256)))\\$(printf %03o $((length / 256)))\\0\\0\\0\\0\\0\\0"
        printf %s "$2"
        [ "${3:-0}" -eq 0 ] || head -c "$3" /dev/zero
    } >"$work/$1"
}

good info info
grep -q cpu "$work/out" || miss "info does not name the cpu backend"

good --version --version
grep -q '^rill [0-9]*\.[0-9]*\.[0-9]*$' "$work/out" || miss "--version prints no version"

good "check of every case" check "$data"/selective_*.safetensors
grep -q ' 0 failed' "$work/out" || miss "check counts failures"
for backend in reference loop cpu; do
    good "check --backend $backend" check --backend $backend "$data/selective_scan_f32.safetensors"
    grep -q PASS "$work/out" || miss "check --backend $backend compared nothing"
    grep -q FAIL "$work/out" && miss "check --backend $backend prints FAIL and exits 0"
done

# spoil CASE OUTPUT: a copy of the case whose first expected value of the output is 1000.
spoil()
{
    cp "$1" "$work/spoilt.safetensors"
    header=$(od -An -tu4 -N4 "$1" | tr -d ' ')
    at=$(head -c $((8 + header)) "$1" | tail -c +9 | sed -n 's/.*"expect\.'"$2"'":{"dtype":"F64"[^}]*"data_offsets":\[\([0-9]*\),.*/\1/p')
    [ -n "$at" ] || return 1
    printf '\0\0\0\0\0\100\217\100' | dd of="$work/spoilt.safetensors" bs=1 seek=$((8 + header + at)) conv=notrunc 2>"$work/dd"
}

# A wrong expectation is a miss on every backend that is there, whatever the backends say among themselves.
for case in "$data"/selective_*.safetensors; do
    for output in y h_final; do
        spoil "$case" $output || continue
        checks=$((checks + 1))
        "$rill" check "$work/spoilt.safetensors" >"$work/out" 2>"$work/err"
        [ $? -eq 1 ] || miss "check with a wrong $output of ${case##*/}: not exit status 1"
        grep -q "^spoilt  *reference  *$output .*FAIL" "$work/out" || miss "no FAIL on the reference: $output of ${case##*/}"
        grep -q "^spoilt  *cpu/baseline  *$output .*FAIL" "$work/out" || miss "no FAIL on the cpu: $output of ${case##*/}"
        grep "^spoilt .* $output " "$work/out" | grep PASS && miss "a wrong $output of ${case##*/} passes"
    done
done

for case in "$data"/selective_*.safetensors; do
    good "run ${case##*/}" run "$case" -o "$work/written.safetensors" --backend cpu
    [ -s "$work/written.safetensors" ] || miss "run ${case##*/} wrote nothing"
done
# What run wrote is a safetensors file with the outputs in it; it is no case, and says so.
good "run, to be read again" run "$data/selective_scan_states.safetensors" -o "$work/written.safetensors"
head -c 4000 "$work/written.safetensors" | tr -d '\0' | grep -q '"h_final"' || miss "run wrote no h_final"
head -c 4000 "$work/written.safetensors" | tr -d '\0' | grep -q '"y"' || miss "run wrote no y"
good "the same again" run "$data/selective_scan_states.safetensors" -o "$work/again.safetensors"
cmp -s "$work/written.safetensors" "$work/again.safetensors" || miss "two runs wrote different files"
bad "outputs are not a case" . check "$work/written.safetensors"

bad "no command" usage
bad "unknown command" "'fly' is not a command" fly
bad "unknown option" "'--fly' is not an option" check --fly "$data/selective_scan_f32.safetensors"
bad "unknown letter" "'-q' is not an option" run -q "$data/selective_scan_f32.safetensors"
bad "an option without its value" "'--backend' needs a value" check "$data/selective_scan_f32.safetensors" --backend
bad "a letter without its value" "'-o' needs a value" run "$data/selective_scan_f32.safetensors" -o
bad "a value too many" "takes no value" check --reproducible=yes "$data/selective_scan_f32.safetensors"
for twice in "--backend cpu" "--isa auto" "--threads 1"; do
    bad "$twice twice" "is given twice" check $twice $twice "$data/selective_scan_f32.safetensors"
done
bad "two outputs" "'--output' is given twice" run "$data/selective_scan_f32.safetensors" -o "$work/one" --output "$work/two"
[ ! -e "$work/one" ] && [ ! -e "$work/two" ] || miss "a refused run left an output"
bad "unknown backend" abacus check --backend abacus "$data/selective_scan_f32.safetensors"
bad "unknown isa" mmx run --isa mmx "$data/selective_scan_f32.safetensors"
bad "no threads" "'zero' is not a whole number" run --threads zero "$data/selective_scan_f32.safetensors"
for threads in -1 1025; do
    bad "$threads threads" "threads: found $threads, expected 0 to 1024" run --threads $threads "$data/selective_scan_f32.safetensors"
done
good "default threads" run --threads 0 "$data/selective_scan_f32.safetensors"
bad "no case" "at least one case" check
bad "two cases to run" "one case file" run a b
bad "missing file" "nowhere" check "$work/nowhere.safetensors"
bad "directory" . check "$work"
bad "unwritable output" "out: cannot write" run "$data/selective_scan_f32.safetensors" -o "$work/no/such/folder/out"
[ -s "$work/out" ] && miss "an unwritable output is found after the work"
[ -e /dev/full ] && bad "a full disk" "cannot write" run "$data/selective_scan_f32.safetensors" -o /dev/full

# An output is never its own input, by any name; and a failure leaves no new file behind.
cp "$data/selective_scan_f32.safetensors" "$work/same.safetensors"
ln "$work/same.safetensors" "$work/hard.safetensors"
ln -s same.safetensors "$work/soft.safetensors"
for name in same hard soft; do
    bad "output over the case, $name" "is the case itself" run "$work/same.safetensors" -o "$work/$name.safetensors"
    cmp -s "$data/selective_scan_f32.safetensors" "$work/same.safetensors" || miss "run overwrote its case ($name)"
done
bad "an output of a backend that fails" . run --threads 1025 "$data/selective_scan_f32.safetensors" -o "$work/left"
[ -e "$work/left" ] && miss "a failed run left an output"

# A build without CUDA has nothing to say about it, unless it is asked.
if "$rill" info | grep -q '^cuda .*not in this build\|^cuda .*built without CUDA'; then
    good "check without cuda" check "$data/selective_scan_f32.safetensors"
    grep -q '^cuda' "$work/out" && miss "check speaks of a backend that is not in the build"
    bad "check --backend cuda" "cuda is not available: " check --backend cuda "$data/selective_scan_f32.safetensors"
fi

if "$rill" help | grep -q '^  bench'; then
    good "bench --list" bench --list
    bad "unwritable report" "/x: cannot write" bench --quick --json "$work/no/such/folder/x"
    [ -s "$work/out" ] && miss "bench measures before it finds that it cannot write"
    bad "two reports" "'--json' is given twice" bench --json "$work/one" --json "$work/two"
    bad "no report" "'--json' needs a value" bench --json
    echo 'small selective_scan:f32:1x8x8x4' >"$work/shapes"
    cp "$work/shapes" "$work/shapes.kept"
    bad "a report over the shapes" "holds the shapes" bench --json "$work/shapes" "$work/shapes"
    cmp -s "$work/shapes" "$work/shapes.kept" || miss "bench overwrote its shapes"
    head -c 100000 /dev/zero >"$work/report"
    good "a report over an older file" bench --quick --threads 1 --json "$work/report" "$work/shapes"
    [ "$(head -c 1 "$work/report")$(tail -c 1 "$work/report")" = "{}" ] || miss "the report is not one JSON object"
    for slip in ":fly" ":delta_min=low" ": on=gpu" ": quick=yes" ": compare=all" ": mode=fast" ": fly=1" "x3"; do
        bad "problem with '$slip'" . bench --quick "selective_scan:f32:1x8x8x4$slip"
        [ -s "$work/out" ] && miss "bench measures before it refuses '$slip'"
    done
fi

size=$(wc -c <"$data/selective_scan_f32.safetensors")
for keep in 0 1 7 8 9 100 $((size / 2)) $((size - 1)); do
    head -c "$keep" "$data/selective_scan_f32.safetensors" >"$work/cut"
    bad "truncated to $keep bytes" . check "$work/cut"
done

meta='"__metadata__":{"op":"selective_scan","dtype":"f32","options":"{}","complex":""}'
x='"x":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}'
file empty.st '{}'
bad "empty header" . check "$work/empty.st"
file array.st '[1,2]'
bad "header is an array" . check "$work/array.st"
file json.st '{"x":{'
bad "header is no JSON" . check "$work/json.st"
file nometa.st "{$x}" 24
bad "no metadata" . check "$work/nometa.st"
file missing.st "{$meta,$x}" 24
bad "missing tensor" delta check "$work/missing.st"
file op.st "{\"__metadata__\":{\"op\":\"fly\",\"dtype\":\"f32\",\"options\":\"{}\"},$x}" 24
bad "unknown operator" fly check "$work/op.st"
file range.st "{$meta,\"x\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,2400]}}" 24
bad "data beyond the file" . check "$work/range.st"
file negative.st "{$meta,\"x\":{\"dtype\":\"F32\",\"shape\":[1,-2,3],\"data_offsets\":[0,24]}}" 24
bad "negative size" . check "$work/negative.st"
file huge.st "{$meta,\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,3],\"data_offsets\":[0,24]}}" 24
bad "sizes that overflow" . check "$work/huge.st"
file count.st "{$meta,\"x\":{\"dtype\":\"F32\",\"shape\":[1,2,4],\"data_offsets\":[0,24]}}" 24
bad "shape and data disagree" . check "$work/count.st"
file dtype.st "{$meta,\"x\":{\"dtype\":\"Q7\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}" 24
bad "unknown dtype" . check "$work/dtype.st"
printf '\377\377\377\377\377\377\377\177{}' >"$work/length.st"
bad "header length of 2^63" . check "$work/length.st"
{ printf '\0\0\020\0\0\0\0\0'; head -c 1048576 /dev/zero | tr '\0' '['; } >"$work/deep.st"
bad "a million brackets" . check "$work/deep.st"

# Whole cases, right but for one thing: the library's own message comes through.
scan='"x":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]},"delta":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]},"A":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}'
bc='"B":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[0,16]},"C":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[0,16]}'
flat()
{
    # Offsets in a file may not overlap: lay the tensors one behind the other.
    awk -v text="$1" 'BEGIN {
        at = 0
        while (match(text, /"data_offsets":\[0,[0-9]+\]/)) {
            piece = substr(text, RSTART, RLENGTH); size = piece
            sub(/.*,/, "", size); sub(/\]/, "", size)
            printf "%s\"data_offsets\":[%d,%d]", substr(text, 1, RSTART - 1), at, at + size
            at += size; text = substr(text, RSTART + RLENGTH)
        }
        printf "%s", text
    }'
}
file whole.st "$(flat "{$meta,$scan,$bc}")" 104
good "a small whole case" check "$work/whole.st"
file shape.st "$(flat "{$meta,$scan,$bc}" | sed 's/"A":{"dtype":"F32","shape":\[3,2\]/"A":{"dtype":"F32","shape":[2,3]/')" 104
bad "wrong shape" . check "$work/shape.st"
file type.st "$(flat "{$meta,$scan,$bc}" | sed 's/"A":{"dtype":"F32","shape":\[3,2\]/"A":{"dtype":"I64","shape":[3,1]/')" 104
bad "wrong dtype" . check "$work/type.st"
file option.st "$(flat "{$meta,$scan,$bc}" | sed 's/"options":"{}"/"options":"{\\\\"fly\\\\":1}"/')" 104
bad "unknown option in a file" . check "$work/option.st"

echo "$checks checks, $failed failed"
[ $failed -eq 0 ]
