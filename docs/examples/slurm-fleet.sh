#!/usr/bin/env bash
# One matrix from every kind of GPU of a cluster: `./slurm-fleet.sh PROJECT PLACE a100 h100 b200`, on the login node.
# It submits one job for each kind (the tasks of one array would all ask for the same kind), each of which runs for its
# own GPU and leaves its run at PLACE, a folder that all nodes see or s3://bucket/prefix?region=...; and one job after
# them that lays what is there into one page. A kind whose job did not end leaves its column empty, and is named.
set -euo pipefail

if [ -z "${SLURM_JOB_ID:-}" ]; then
  project=${1:?"the folder of matrix.toml"}
  place=${2:?"a folder or an address that all nodes reach"}
  shift 2
  : "${1:?"the kinds of GPU, as Slurm calls them: a100 h100 ..."}"
  night="${place%/}/$(date -u +%Y-%m-%d)"
  jobs=()
  for gpu in "$@"; do
    # Two minutes before the limit the run gets SIGTERM: it ends in order, and the same command resumes it.
    job=$(sbatch --parsable --job-name="matrix-$gpu" --output="matrix-$gpu-%j.log" --gres="gpu:$gpu:1" --exclusive \
      --cpus-per-task=16 --mem=64G --time=04:00:00 --signal=TERM@120 "$0" shard "$project" "$night")
    jobs+=("${job%%;*}")
  done
  sbatch --parsable --job-name=matrix-merge --output="matrix-merge-%j.log" --cpus-per-task=2 --mem=8G --time=00:30:00 \
    --dependency="afterany:$(IFS=:; echo "${jobs[*]}")" "$0" merge "$project" "$night"
  exit
fi

cd "$2"
case $1 in
  shard) exec srun --ntasks=1 triton-matrix run --quiet --profile nightly --share "$3" ;;
  merge) exec triton-matrix report "$3" --output "matrix-$(basename "$3").html" ;;
esac
