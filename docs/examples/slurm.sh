#!/usr/bin/env bash
# One night on one GPU of a cluster: `sbatch slurm.sh PROJECT HISTORY`; from cron or scrontab, every night. On compute
# nodes without internet let matrix.toml name environments with `inherit = "host"` and `find_links`.
#SBATCH --job-name=triton-matrix
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --gres=gpu:1
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --output=triton-matrix-%j.log
# Two minutes before the limit the run gets SIGTERM: it ends in order, and the next one resumes it.
#SBATCH --signal=TERM@120
set -euo pipefail
project=${1:?"the folder of matrix.toml"}
history=${2:?"a folder or an address for the history"}
shift 2

# Slurm runs a copy of this file: nightly.sh is looked for beside where it was submitted.
nightly=${NIGHTLY:-${SLURM_SUBMIT_DIR:-.}/nightly.sh}
exec srun --ntasks=1 "$nightly" "$project" "$history" "$@"
