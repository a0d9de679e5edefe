#!/bin/bash
# Regenerates requirements/{cpu,gpu,tpu,audit}.lock: all packages that setup.py
# requires, with versions and hashes, for Linux on x86-64.
#
#   launch/docker/lock.sh [CONSTRAINTS]
#
# CONSTRAINTS is a file such as the output of `pip freeze` in an environment in
# which the tests pass. Without it, the newest versions are locked. Requires `uv`.
set -euo pipefail
cd "$(dirname "$0")/../.."

for kind in cpu gpu tpu; do
  extra=(--extra buckets)
  [[ $kind == cpu ]] || extra+=(--extra "$kind")
  # setuptools is required to build xlflax.
  echo 'setuptools>=68' | uv pip compile setup.py - "${extra[@]}" \
    ${1:+--constraint "$1"} \
    --python-version 3.11 --python-platform x86_64-manylinux_2_31 \
    --generate-hashes --no-annotate --quiet \
    --custom-compile-command launch/docker/lock.sh \
    --output-file "requirements/$kind.lock"
done

# The tools of `make audit` and `make sbom`, for every platform.
uv pip compile requirements/audit.in --universal --python-version 3.11 \
  --generate-hashes --no-annotate --quiet \
  --custom-compile-command launch/docker/lock.sh \
  --output-file requirements/audit.lock
