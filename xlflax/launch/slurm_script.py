"""The batch script of all jobs under Slurm, as `sbatch` gets it."""

SCRIPT = r"""#!/bin/bash
# Trains on one node or many, with one process per node or per GPU:
#
#   sbatch --nodes=2 --gpus-per-node=8 --ntasks-per-node=8 train.sbatch \
#       train --gin_file=pretrain/mlm.gin ... --model_dir=/shared/runs/mlm
#
# A sweep is an array; line i of the file named by XLFLAX_SWEEP has the flags
# that array task i adds (a --model_dir of its own at least):
#
#   XLFLAX_SWEEP=sweep.txt sbatch --array=1-8 ... train.sbatch train ...
#
# Some time before the limit, or a pre-emption, Slurm sends SIGUSR1: the run
# saves a checkpoint and stops, and is queued again to go on from it. So is a
# job that failed in any way but by a mistake (status 2): a killed task, a lost
# node, a hang; until it has started XLFLAX_RESTARTS times (20) again.
# With XLFLAX_AGENTS=1 the processes of a failed job start again within its
# allocation first, so often within an hour; what ends an agent queues it again.
# XLFLAX_COMMAND is what runs instead of `xlflax`, such as a container's line.
#SBATCH --job-name=xlflax
#SBATCH --output=%x_%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=USR1@120

# SIGTERM comes when the job is cancelled or its time is over: then it is not
# queued again here. (Where Slurm pre-empts by requeueing, it does that itself.)
srun= signal= cancelled=
tell() {
  signal=$1
  [[ -z $srun ]] || kill "-$signal" "$srun"
}
trap 'tell USR1' USR1
trap 'cancelled=1; tell TERM' TERM

arguments=("$@")
if [[ -n ${XLFLAX_SWEEP:-} ]]; then
  line=$(sed -n "${SLURM_ARRAY_TASK_ID:?XLFLAX_SWEEP needs --array}p" \
    "$XLFLAX_SWEEP") || exit 2
  if [[ -z $line ]]; then
    echo "$XLFLAX_SWEEP has no line $SLURM_ARRAY_TASK_ID." >&2
    exit 2
  fi
  # Quotes as a shell has them, but no variables and no commands.
  words=$(xargs -r printf '%q ' <<< "$line") || exit 2
  eval "arguments+=($words)"
fi
options=(${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK})
if [[ ${arguments[0]:-} == train && -n ${XLFLAX_AGENTS:-} ]]; then
  # An agent for each node starts the processes, and starts them again.
  each=${SLURM_NTASKS_PER_NODE:-1}
  options=(--ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1
    --cpus-per-task=$((each * ${SLURM_CPUS_PER_TASK:-1})))
  lead=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  arguments=(launch agent --num_processes="$each"
    --nodes="$SLURM_JOB_NUM_NODES" --restarts="${XLFLAX_RESTARTS:-20}"
    --lead="$lead:$((20000 + SLURM_JOB_ID % 10000))" -- "${arguments[@]}")
elif [[ ${arguments[0]:-} == train ]]; then
  arguments+=(--stopped_status=75)
fi

if [[ -n $signal ]]; then
  [[ -n $cancelled ]] && status=143 || status=75
else
  # A task that ends first, in whatever way, gives the others 60 seconds.
  srun --kill-on-bad-exit=0 --wait=60 "${options[@]}" \
    ${XLFLAX_COMMAND:-xlflax} "${arguments[@]}" &
  srun=$!
  # One may have come since it was looked for.
  [[ -z $signal ]] || kill "-$signal" "$srun"
  while signal=; wait "$srun"; status=$?; [[ -n $signal ]]; do :; done
fi

# 0: done; 2: a mistake, which a restart cannot mend.
if [[ -n $cancelled || $status == 0 || $status == 2 ]]; then
  exit "$status"
fi
# 75: stopped in order; 138: the signal came before the first step.
restarts=${SLURM_RESTART_COUNT:-0}
if [[ $status == 75 || $status == 138 ]]; then
  echo "Stopped by a signal; queueing job $SLURM_JOB_ID again."
elif ((restarts < ${XLFLAX_RESTARTS:-20})); then
  echo "Failed with status $status after $restarts restarts;" \
    "queueing job $SLURM_JOB_ID again." >&2
else
  echo "Failed with status $status after $restarts restarts." >&2
  exit "$status"
fi
# Slurm's controller may be away for some time. (It ends this script once the
# job is queued, so that nothing can be said after that.)
for seconds in ${XLFLAX_REQUEUE_WAITS:-5 10 20 40 80 160 320} none; do
  scontrol requeue "$SLURM_JOB_ID" && exit 0
  [[ -z $cancelled && $seconds != none ]] || break
  echo "Slurm did not queue it; asking again in $seconds s." >&2
  sleep "$seconds" &
  wait $!
done
echo "Job $SLURM_JOB_ID is NOT queued again: submit it anew, with the same" \
  "flags, and it goes on from its last checkpoint." >&2
exit "$status"
"""
