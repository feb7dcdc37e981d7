#!/usr/bin/env bash
# One night: the nightly profile in PROJECT (the folder of matrix.toml), added to HISTORY (a folder or s3://...), and
# the trends over all nights drawn. Ends with the run's own exit code: 1 regressed, 2 usage, 3 incomplete.
#
#   nightly.sh PROJECT HISTORY [further options of `triton-matrix run`]
set -euo pipefail
project=${1:?"the folder of matrix.toml"}
history=${2:?"a folder or an address for the history"}
shift 2

cd "$project"
code=0
triton-matrix run --quiet --profile nightly --history "$history" "$@" || code=$?
if [ "$code" -ne 2 ]; then
  triton-matrix trend --history "$history" --output .matrix/trend.html || echo "no trends were drawn" >&2
fi
exit "$code"
