#!/bin/bash
# Packs what tests/gpu/run.sh needs into one archive: the installation and the compiled programs,
# without NVRTC, which is large. For machines that have a GPU but no Rust.
#
#   tests/gpu/pack.sh ARCHIVE.tar.xz
set -euo pipefail
archive=$(realpath "${1:?usage: pack.sh ARCHIVE.tar.xz}")
target=${CARGO_TARGET_DIR:-$(dirname "$0")/../../target}
cd "$target"
tar --create --xz --file "$archive" --exclude 'libnvrtc*' --exclude stamps --exclude '*.fatbin' dist programs
echo "$archive: $(stat --format %s "$archive") bytes"
