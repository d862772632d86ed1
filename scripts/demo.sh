#!/bin/sh
# Shows rill at work: installs what is missing, builds, computes a trained layer on every backend of the machine, each
# beside the reference, times the layer, and lets a small language model write.  Ends with 0 only when every backend agreed.
set -eu
cd "$(dirname "$0")/.."
. scripts/lib.sh

need build-essential meson ninja-build pkg-config libopenblas-openmp-dev libjansson-dev
prefer_openmp_blas

say "Building"
configure build-demo --buildtype=release -Dtests=false
ninja -C build-demo --quiet
rill=build-demo/tools/rill

say "This machine"
$rill info

say "A trained selective layer on English text, against the float64 reference"
status=0
$rill check tests/data/selective_layer_real.safetensors || status=$?

say "Scans and their gradients: decays of 0, packed sequences, complex numbers"
$rill check tests/data/scan_*.safetensors >build-demo/scan.log || status=$?
tail -n 12 build-demo/scan.log

say "The layer at batch 32, length 4096, 256 channels, 16 states, float32"
$rill bench --quick --shape layer-f32-32x4096x256x16 || status=$?

say "A trained Mamba goes on with a text, its layers on rill"
build-demo/examples/mamba/mamba-lm examples/mamba/tiny-mamba --prompt "A hacker is someone who" --tokens 600 || status=$?

say "$([ $status -eq 0 ] && echo "All backends agree with the reference." || echo "FAILED")"
exit $status
