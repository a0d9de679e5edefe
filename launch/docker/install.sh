#!/bin/bash
# Installs xlflax and all that it needs, at the locked versions, into a new
# virtual environment, and checks that it plans a run. The images are built by
# it; it runs outside of a container too (KIND is cpu, gpu or tpu):
#
#   launch/docker/install.sh KIND VENV
set -euo pipefail
kind=$1 venv=$2
cd "$(dirname "$0")/../.."
source=$(mktemp -d)  # building leaves files behind
trap 'rm -rf "$source"' EXIT
cp -r setup.py pyproject.toml README.md gin_configs tasks xlflax "$source"

"${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install --no-cache-dir --no-deps --require-hashes --quiet \
  --requirement "requirements/$kind.lock"
"${pip[@]}" install --no-cache-dir --no-deps --no-build-isolation --quiet \
  "$source"
"${pip[@]}" check

# The plan of a tiny run, on the CPU, away from the sources.
cd /
JAX_PLATFORMS=cpu "$venv/bin/xlflax" train --dry_run --compilation_cache= \
  --gin_file=pretrain/mlm.gin --gin_file=models/tiny.gin \
  --gin.TRAIN_STEPS=2000 --gin.LENGTH=32 --gin.BATCH_SIZE=8 \
  --vocabulary_size=1000
