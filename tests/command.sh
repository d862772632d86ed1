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

# fails NAME ARGUMENT...: exit status 1 and nothing on stderr: a miss.
fails()
{
    name=$1
    shift
    checks=$((checks + 1))
    "$rill" "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status -eq 1 ] && [ ! -s "$work/err" ] && return 0
    miss "$name: exit status $status, expected 1"
    cat "$work/err"
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

# lacking TARGET OUTPUT: what check printed, here read, says that the target does not have the operator of this output.
lacking()
{
    pattern="^[^ ]*  *$1  *[a-z_]*: this backend does not have it, not checked"
    case $2 in
    d*) grep -q "$pattern" ;;
    *) grep "$pattern" | grep -qv '_backward: this' ;;
    esac
}

# lacks TARGET CASE: the target does not have the case's own operator, and check of all backends says so.
lacks()
{
    "$rill" check "$2" | lacking "$1" y
}

good info info
grep -q cpu "$work/out" || miss "info does not name the cpu backend"

good --version --version
grep -q '^rill [0-9]*\.[0-9]*\.[0-9]*$' "$work/out" || miss "--version prints no version"

good "check of every case" check "$data"/*.safetensors
grep -q ' 0 failed' "$work/out" || miss "check counts failures"
grep -q '^scan_.*not checked' "$work/out" && miss "gradients of scan are not checked"
for backend in reference loop cpu/baseline; do
    for tensor in h h_final da db dh_init; do
        grep -q "^scan_packed  *$backend  *$tensor .*PASS" "$work/out" || miss "$tensor of scan_packed is not checked on $backend"
    done
    grep -q "^scan_f32  *$backend  *dh_init " "$work/out" && miss "a gradient without its input on $backend"
    grep -q "^scan_c128  *$backend  *da  *c128 .*PASS" "$work/out" || miss "no complex gradient on $backend"
done
attention="$data/linear_attention_packed_log.safetensors"
good "check of linear attention" check "$attention"
for backend in reference loop cpu/baseline; do
    if lacks $backend "$attention"; then
        [ $backend = cpu/baseline ] || miss "$backend lacks linear_attention"
        bad "check of an operator that $backend lacks" "the cpu backend does not have it" check --backend cpu "$attention"
        bad "run of an operator that $backend lacks" "the cpu backend does not have it" run --backend cpu "$attention"
        good "check of all backends" check "$attention"
        grep -q "^linear_attention_packed_log  *$backend .*PASS" "$work/out" && miss "$backend passes what it does not have"
        continue
    fi
    for tensor in y S_final dq dk dv dgate dbeta; do
        grep -q "^linear_attention_packed_log  *$backend  *$tensor .*PASS" "$work/out" || miss "$tensor of linear attention is not checked on $backend"
    done
done
# Gradients that a backend lacks are named, and no miss even of the one that is asked; outputs count all the same.
for case in selective_scan_f32 selective_layer_low_rank_gated; do
    operator=${case%_f32}
    operator=${operator%_low_rank_gated}
    good "check of $operator" check "$data/$case.safetensors"
    for backend in reference loop cpu/baseline; do
        grep -q "^$case  *$backend  *y .*PASS" "$work/out" || miss "y of $case is not checked on $backend"
        if grep -q "^$case  *$backend  *${operator}_backward: this backend does not have it, not checked" "$work/out"; then
            [ $backend = cpu/baseline ] || miss "$backend lacks the gradients of $operator"
            good "run of $case on cpu" run --backend cpu "$data/$case.safetensors"
            grep -q "^${operator}_backward: this backend does not have it, not computed" "$work/out" || miss "run does not name lacking gradients"
            continue
        fi
        for tensor in dx dD dz; do
            grep -q "^$case  *$backend  *$tensor .*PASS" "$work/out" || miss "$tensor of $case is not checked on $backend"
        done
    done
done
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
for case in "$data"/*.safetensors; do
    gradients=
    case ${case##*/} in
    scan_*) gradients="da db dh_init" ;;
    linear_attention_grouped_states*) gradients="dq dk dv dgate dbeta dS_init" ;;
    linear_attention_[fz]*) continue ;; # large, and nothing new in them
    selective_scan_[fcr]*) gradients="dx ddelta dA dB dC dD dz ddelta_bias dh_init" ;;
    selective_layer_[lp]*) gradients="dx dW_delta dW_delta_down dW_B dW_C dA_log db_delta dD dz dh_init" ;;
    esac
    for output in y h h_final S_final $gradients; do
        spoil "$case" $output || continue
        checks=$((checks + 1))
        "$rill" check "$work/spoilt.safetensors" >"$work/out" 2>"$work/err"
        [ $? -eq 1 ] || miss "check with a wrong $output of ${case##*/}: not exit status 1"
        for target in reference loop cpu/baseline; do
            [ $target = cpu/baseline ] && lacking $target $output <"$work/out" && continue
            grep -q "^spoilt  *$target  *$output .*FAIL" "$work/out" || miss "no FAIL on $target: $output of ${case##*/}"
        done
        grep "^spoilt .* $output " "$work/out" | grep PASS && miss "a wrong $output of ${case##*/} passes"
    done
done

for case in "$data"/*.safetensors; do
    backend=cpu
    ! lacks cpu/baseline "$case" || backend=reference
    good "run ${case##*/}" run "$case" -o "$work/written.safetensors" --backend $backend
    [ -s "$work/written.safetensors" ] || miss "run ${case##*/} wrote nothing"
done
# What run wrote is a safetensors file with the outputs in it; it is no case, and says so.
good "run, to be read again" run "$data/selective_scan_states.safetensors" -o "$work/written.safetensors"
head -c 4000 "$work/written.safetensors" | tr -d '\0' | grep -q '"h_final"' || miss "run wrote no h_final"
head -c 4000 "$work/written.safetensors" | tr -d '\0' | grep -q '"y"' || miss "run wrote no y"
good "the same again" run "$data/selective_scan_states.safetensors" -o "$work/again.safetensors"
cmp -s "$work/written.safetensors" "$work/again.safetensors" || miss "two runs wrote different files"
bad "outputs are not a case" . check "$work/written.safetensors"
good "run, with gradients" run "$data/scan_packed.safetensors" -o "$work/written.safetensors"
for tensor in h h_final da db dh_init; do
    grep -q "^$tensor  *f32  *\[.*norm" "$work/out" || miss "run prints no $tensor"
    head -c 4000 "$work/written.safetensors" | tr -d '\0' | grep -q "\"$tensor\"" || miss "run wrote no $tensor"
done
good "run, without init" run "$data/scan_f32.safetensors" -o "$work/written.safetensors"
head -c 4000 "$work/written.safetensors" | tr -d '\0' | grep -q '"dh_init"' && miss "run wrote the gradient of an absent state"
good "run, complex" run "$data/scan_c128.safetensors" -o "$work/written.safetensors"
head -c 4000 "$work/written.safetensors" | tr -d '\0' | grep -q '"complex":"h,h_final,da,db"' || miss "run does not name its complex tensors"
head -c 4000 "$work/written.safetensors" | tr -d '\0' | grep -q '"h":{"dtype":"F64","shape":\[1,50,4,2\]' || miss "run wrote no parts of h"

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

# What is printed counts only when it has arrived.
full()
{
    checks=$((checks + 1))
    "$rill" "$@" >/dev/full 2>"$work/err"
    status=$?
    [ $status -eq 1 ] || miss "$* on a full disk: exit status $status, expected 1"
    grep -q "standard output cannot be written" "$work/err" || { miss "$* on a full disk: no word of it"; cat "$work/err"; }
}
if [ -w /dev/full ]; then
    for words in --help --version info "info --help" "run --help" "run $data/selective_scan_f32.safetensors" \
        "check $data/selective_scan_f32.safetensors"; do
        full $words
    done
    if "$rill" help | grep -q '^  bench'; then
        full bench --help
        full bench --list
        full bench --quick --threads 1 scan:f32:1x8x8
    fi
fi

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
    for slip in ":fly" ":delta_min=low" ": on=gpu" ": quick=yes" ": compare=all" ": mode=fast" ": fly=1" "x3" \
        ": mark.fly=1" ": mark.triad=low" ": mark.nt-triad=.8,low" ":in_place mode=graph" x ":" ":," ":D," ":,D" \
        ":D,,z" ":D:z" " compare=threads," " compare=,threads" " on=cpu," " mark.nt-triad=.8," ":groups=3" \
        ":delta_min=nan" " compare=yardstick" ":groups=100000000000"; do
        bad "problem with '$slip'" . bench --quick "selective_scan:f32:1x8x8x4$slip"
        [ -s "$work/out" ] && miss "bench measures before it refuses '$slip'"
    done
    bad "complex numbers where there are none" "takes no complex numbers" bench --quick selective_scan:c64:1x8x8x4
    bad "no output" "no output of scan_backward is given: no word is one of da, db, dh_init" \
        bench --quick scan_backward:f32:1x8x4
    bad "half a switch" "reverse: '2' is neither 0 nor 1" bench --quick scan:f32:1x8x4:reverse=2
    for word in h_init reverse time_contiguous in_place sequences=2; do
        bad "$word twice" "'${word%=*}' is given twice" bench --quick scan:f32:1x8x4:$word,$word
    done
    for key in mode=call quick=1 on=cpu compare=threads mark.triad=1; do
        bad "$key twice" "'${key%=*}' is given twice" bench --quick "scan:f32:1x8x4 $key on=cpu,cuda mode=eager quick=0 compare=triad mark.triad=2"
    done
    bad "no size" "the size of channels is missing" bench --quick scan:f32:1x8x
    bad "a graph on the cpu" "mode=graph is for the cuda backend" bench --quick --backend cpu "scan:f32:1x8x4 mode=graph"
    [ -s "$work/out" ] && miss "bench measures before it refuses a graph"
    bad "a terabyte" "more than a terabyte" bench --quick --backend cpu scan:f32:1x8x4 scan:f32:1000000x1000000x1
    [ -s "$work/out" ] && miss "bench measures before it refuses the second shape"
    printf '# no shape\n\n' >"$work/bare"
    for file in /dev/null "$work/bare"; do
        bad "shapes of $file" "$file names no shape" bench --quick "$file"
        bad "shapes of $file after another" "$file names no shape" bench --quick scan:f32:1x8x4 "$file"
    done
    good "bench on the loop" bench --quick --threads 1 --backend loop scan:f32:0x8x4 scan:f32:1x0x4 "scan:f32:1x8x4 mode=eager"
    bad "nothing to lie over" "does not work in place" bench --quick scan_backward:f32:1x8x4:h,da,in_place
    bad "attention without a size" "the size of values is missing" bench --quick linear_attention:f32:1x8x2x4
    good "bench of attention" bench --quick --backend reference --json "$work/report" linear_attention:f32:2x16x2x8x8:gate,beta,gate_is_log,scale=0.5 \
        linear_attention:bf16:1x16x4x8x8:gate,query_heads=2,S_init,S_final,sequences=3 "linear_attention:f32:4x1x2x8x8:gate,gate_is_log mode=decode" \
        linear_attention_backward:f64:1x16x2x8x8:gate,dy,dq,dk,dv,dgate
    good "bench of selective gradients" bench --quick --backend reference --json "$work/report" \
        selective_scan_backward:f32:2x16x8x4:delta_softplus,delta_bias,D,dy,dx,ddelta,dA,dB,dC,dD,ddelta_bias \
        selective_layer_backward:bf16:1x16x8x4:b_delta,D,rank=3,h_init,sequences=3,dh_final,dx,dW_delta,dW_delta_down,dh_init
    bad "decoding backward" "no state to decode with" bench --quick "scan_backward:f32:1x8x4:h,h_init,da mode=decode"
    good "bench of scans" bench --quick --backend cpu --threads 2 --json "$work/report" scan:f32:2x64x16 scan:c64:2x64x16:h_init,h_final \
        scan:bf16:1x64x16:reverse,sequences=3 "scan:f32:2x64x16:time_contiguous,in_place compare=triad,nt-triad" \
        scan_backward:f64:2x64x16:h,dh,da,db,time_contiguous
    [ "$(grep -c 'of the time of a triad' "$work/out")" -eq 2 ] || miss "no triads of one thread and of two"
    [ "$(grep -c 'of the speed of a triad' "$work/out")" -eq 2 ] || miss "no triads past the caches"
    grep -q '"beside_triad": \[' "$work/report" || miss "no triad in the report"
    grep -q '"beside_nt_triad": \[' "$work/report" || miss "no triad past the caches in the report"
fi

for case in selective_scan_f32 scan_packed scan_c128; do
    size=$(wc -c <"$data/$case.safetensors")
    for keep in 0 1 7 8 9 100 $((size / 2)) $((size - 1)); do
        head -c "$keep" "$data/$case.safetensors" >"$work/cut"
        bad "$case truncated to $keep bytes" . check "$work/cut"
    done
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

# h_t = h_{t-1} + 1 over four steps, the decay stretched from one number: h = 1..4, g = 4..1, and da is the sum over
# the steps of g_t h_{t-1} = 3*1 + 2*2 + 1*3 = 10.
one='\0\0\200\77' ten='\0\0\0\0\0\0\44\100'
case4='"a":{"dtype":"F32","shape":[1,1,1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1,4,1],"data_offsets":[0,16]},"dh":{"dtype":"F32","shape":[1,4,1],"data_offsets":[0,16]}'
linear='"__metadata__":{"op":"scan","dtype":"f32"}'
da='"expect.da":{"dtype":"F64","shape":[1,1,1],"data_offsets":[0,8]}'
file stretched.safetensors "$(flat "{$linear,$case4,$da}")"
for number in 1 2 3 4 5 6 7 8 9; do printf "$one" >>"$work/stretched.safetensors"; done
cp "$work/stretched.safetensors" "$work/wrong.safetensors"
printf "$ten" >>"$work/stretched.safetensors"
printf '\0\0\0\0\0\1\44\100' >>"$work/wrong.safetensors" # 10 and 2^-41 * 1024
good "the gradient of a stretched decay" check "$work/stretched.safetensors"
for backend in reference loop cpu/baseline; do
    grep -q "^stretched  *$backend  *da  *[f0-9]*  *\[1,1,1\] .*PASS" "$work/out" || miss "no sum over a stretched axis on $backend"
done
fails "a wrong gradient of a stretched decay" check "$work/wrong.safetensors"
grep -q '^wrong  *reference  *da .*FAIL' "$work/out" || miss "a wrong sum over a stretched axis passes"

# A gradient that is asked for though nothing comes from above is zero; its name, shape and type are checked.
file zero.safetensors "$(flat "{$linear,${case4%,\"dh\"*},$da}")" 28
good "no gradient from above" check "$work/zero.safetensors"
for slip in 's/"expect.da"/"expect.dh"/' 's/"expect.da"/"da"/' 's/"expect.da"/"expect.dh_init"/' 's/"F64","shape":\[1,1,1\]/"F64","shape":[1,1]/' \
    's/"F64","shape":\[1,1,1\],"data_offsets":\[0,8\]/"F64","shape":[1,4,1],"data_offsets":[0,32]/' 's/"F64"/"I64"/' \
    's/"dh":{"dtype":"F32","shape":\[1,4,1\]/"dh":{"dtype":"F32","shape":[1,2,2]/' 's/"dh"/"dh_init"/' 's/"dh"/"dh_last"/'; do
    spoilt=$(printf %s "{$linear,$case4,$da}" | sed "$slip")
    [ "$spoilt" = "{$linear,$case4,$da}" ] && miss "the slip $slip changes nothing"
    file slip.safetensors "$(flat "$spoilt")" "$(flat "$spoilt" | sed 's/.*,\([0-9]*\)\]}}$/\1/')"
    bad "a gradient with $slip" . check "$work/slip.safetensors"
done

# h_t = i h_{t-1} from 1, packed as two sequences of two steps: i, -1 in each.  Three offsets of 4 bytes leave the complex
# numbers at odd places.
complex='"__metadata__":{"op":"scan","dtype":"c64","complex":"a,b,h_init,expect.h"}'
quarter='"offsets":{"dtype":"I32","shape":[3],"data_offsets":[0,12]},"a":{"dtype":"F32","shape":[1,1,1,2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1,4,1,2],"data_offsets":[0,32]},"h_init":{"dtype":"F32","shape":[1,1,2],"data_offsets":[0,8]},"expect.h":{"dtype":"F64","shape":[1,4,1,2],"data_offsets":[0,64]}'
zero='\0\0\0\0' i64='\0\0\0\0\0\0\0\0\0\0\0\0\0\0\360\77' minus64='\0\0\0\0\0\0\360\277\0\0\0\0\0\0\0\0'
turns()
{
    printf "\0\0\0\0\2\0\0\0\4\0\0\0$zero$one$zero$zero$zero$zero$zero$zero$zero$zero$one$zero"
    printf "$i64$minus64$i64$1"
}
file turns.safetensors "$(flat "{$complex,$quarter}")"
cp "$work/turns.safetensors" "$work/turned.safetensors"
turns "$minus64" >>"$work/turns.safetensors"
turns "$i64" >>"$work/turned.safetensors"
good "complex numbers" check "$work/turns.safetensors"
grep -q '^turns  *cpu/baseline  *h  *c64 .*PASS' "$work/out" || miss "no complex output is checked"
fails "wrong complex numbers" check "$work/turned.safetensors"
grep -q '^turned  *cpu/baseline  *h  *c64 .*FAIL' "$work/out" || miss "a wrong complex output passes"
for slip in 's/"complex":"a,b/"complex":"b,a,b/' 's/"complex":"a,/"complex":"/' 's/,expect.h"/"/' 's/"complex":"a,/"complex":"q,a,/' 's/"c64"/"f32"/' 's/"c64"/"c128"/' \
    's/,expect.h"/,expect.h,offsets"/' 's/"shape":\[1,1,1,2\]/"shape":[1,1,2,1]/'; do
    file slip.safetensors "$(flat "{$complex,$quarter}" | sed "$slip")" 124
    bad "complex numbers with $slip" . check "$work/slip.safetensors"
done

echo "$checks checks, $failed failed"
[ $failed -eq 0 ]
