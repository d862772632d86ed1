#!/bin/sh
# check.sh EXAMPLES NAME PROGRAM [BACKEND]: runs an example on the numbers in data/ and compares with the right values.
set -eu
data=$1/data name=$2 program=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# close FOUND RIGHT: the same count of numbers, each within 1e-12 of the right one or of 1.
close()
{
    paste "$1" "$2" | awk '
        function size(v) { return v < 0 ? -v : v }
        NF != 2 || !(size($1 - $2) <= 1e-12 * (size($2) > 1 ? size($2) : 1)) {
            print "line " NR ": found " $1 ", expected " $2; bad = 1; exit
        }
        END { if (NR == 0) print "nothing was printed"; exit bad || NR == 0 }'
}

# What is printed counts only when it has arrived.
tells_of_a_full_disk()
{
    [ -w /dev/full ] || return 0
    ! "$program" "$@" >/dev/full 2>"$work/full" || return 1
    grep -q 'cannot be written' "$work/full"
}

case $name in
train) # the loss begins at ln 8, and falls
    "$program" "${4:-cpu}" 140 >"$work/found" || exit # 77: not there
    cat "$work/found"
    awk '/^step 1:/ { first = $4 } /^step 140:/ { last = $4 }
        END { exit !(first > 1.9 && first < 2.3 && last > 0 && last < 0.1) }' "$work/found"
    tells_of_a_full_disk "${4:-cpu}" 1
    for words in gpu "cpu many" "cpu 1.5" "cpu -1" "cpu 1 one" "cpu 1 1 1"; do
        ! "$program" $words >"$work/found" 2>"$work/message" || exit 1
        [ -s "$work/message" ] || exit 1
        [ ! -s "$work/found" ] || exit 1
    done
    exit
    ;;
decode) # compares with itself
    "$program"
    tells_of_a_full_disk
    exit
    ;;
ema)
    words=0.1
    "$program" $words "$data/signal.txt" >"$work/found"
    awk '{ s = NR == 1 ? $1 : 0.9 * s + 0.1 * $1; printf "%.17g\n", s }' "$data/signal.txt" >"$work/right"
    close "$work/found" "$work/right"
    [ "$(printf '8 4 4' | "$program" 0.5 | tr '\n' ' ')" = "8 6 5 " ]
    ;;
filter)
    words="0.2 0.1 -0.9" # the right values are those of scipy.signal.lfilter([0.2, 0.1], [1, -0.9], signal), SciPy 1.10.1
    "$program" $words "$data/signal.txt" >"$work/found"
    close "$work/found" "$data/lfilter.txt"
    ;;
returns)
    words=0.5 # three episodes, the last one cut short
    [ "$(printf '1 0\n1 0\n1 1\n8 1\n0 0\n4 0\n' | "$program" 0.5 | tr '\n' ' ')" = "1.75 1.5 1 8 2 4 " ]
    ;;
esac
# Words that are no numbers, and files that are not there, are refused.
! echo "1 two 3" | "$program" $words 2>"$work/message" || exit 1
! "$program" $words "$work/absent" 2>"$work/other" || exit 1
! "$program" $words "$work" >"$work/listed" 2>"$work/folder" || exit 1
if [ "$name" = returns ]; then
    printf '1 0\n2 1\n' >"$work/whole"
    tells_of_a_full_disk $words "$work/whole"
    ! echo "1 0 2" | "$program" $words 2>/dev/null || exit 1
    for end in 2 -1 0.5 nan; do # an end is 0 or 1
        ! printf '1 0\n1 %s\n' $end | "$program" $words >"$work/found" 2>"$work/end" || exit 1
        grep -q "line 2: the second number is $end, expected 0 or 1" "$work/end"
        [ ! -s "$work/found" ] || exit 1
    done
else
    tells_of_a_full_disk $words "$data/signal.txt"
fi
grep -q 'not all numbers' "$work/message" && grep -q 'absent: cannot be read' "$work/other"
