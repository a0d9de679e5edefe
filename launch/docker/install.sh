#!/bin/bash
# Installs xlflax and its locked requirements into a new virtual environment, and
# checks the installation with a dry run. The Dockerfile runs this script. It can
# also be run outside of a container. KIND is cpu, gpu or tpu:
#
#   launch/docker/install.sh KIND VENV
set -euo pipefail
kind=$1 venv=$2
cd "$(dirname "$0")/../.."
source=$(mktemp -d)  # The build writes files into the source tree.
trap 'rm -rf "$source"' EXIT
cp -r --parents setup.py pyproject.toml README.md gin_configs launch/templates \
  tasks xlflax "$source"

"${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install --no-cache-dir --no-deps --require-hashes --quiet \
  --requirement "requirements/$kind.lock"
"${pip[@]}" install --no-cache-dir --no-deps --no-build-isolation --quiet \
  "$source"
"${pip[@]}" check

# A dry run of a tiny model on the CPU, outside of the source tree.
cd /
JAX_PLATFORMS=cpu "$venv/bin/xlflax" train --dry_run --compilation_cache= \
  --gin_file=pretrain/mlm.gin --gin_file=models/tiny.gin \
  --gin.TRAIN_STEPS=2000 --gin.LENGTH=32 --gin.BATCH_SIZE=8 \
  --vocabulary_size=1000
