#!/bin/bash
# Creates TPUs, runs a command on all of their workers, and deletes the TPUs.
# Rendered by `xlflax launch tpu`.
#
# The run does not depend on the connections of this script. A lost connection
# is opened again. Ctrl-C stops the run and deletes the TPUs.
set -uo pipefail
name=mlm
location=(--zone=us-east5-a)
nodes=(mlm-0 mlm-1)
max_restarts=20
poll_seconds=30
errors=$(mktemp) output=$(mktemp)

# The command line of the run, as each worker executes it.
run='PYTHONUNBUFFERED=1 venv/bin/xlflax train --gin_file=pretrain/mlm.gin --model_dir=gs://bucket/runs/mlm --platform=tpu --preemption_exit_code=75'

# Scripts for the workers: install xlflax, start a run, report its status, stop it.
IFS= read -r -d '' set_up << 'END_OF_SCRIPT'
# TPU VM images have Python 3.10, so Python 3.11 is installed. A package that is
# already installed is not installed again.
package=gs://bucket/xlflax-0.1.0-py3-none-any.whl
if [[ $(cat venv/package 2> /dev/null) != "$package" ]]; then
  # A new VM may still be updating its packages, so apt-get waits for its lock.
  sudo apt-get -o DPkg::Lock::Timeout=600 update -qq &&
    sudo apt-get -o DPkg::Lock::Timeout=600 install -qqy git python3.11-venv &&
    python3.11 -m venv --clear venv &&
    # pip cannot read gs://, so the package is copied first.
    gcloud storage cp "$package" . &&
    venv/bin/pip install -q "./${package##*/}[tpu,buckets]" &&
    echo "$package" > venv/package
fi
END_OF_SCRIPT
IFS= read -r -d '' start << 'END_OF_SCRIPT'
cd && mkdir -p .xlflax && cd .xlflax || exit 1
touch heartbeat
if [[ $(cat token 2> /dev/null) != "$token" ]]; then
  if [[ -e pid ]]; then
    kill -TERM -- "-$(cat pid)" 2> /dev/null
    tail --pid="$(cat pid)" -f /dev/null
  fi
  rm -f status
  echo "$token" > token
  # The run is independent of this connection. Its shell ignores SIGTERM in order
  # to store the status.
  nohup setsid bash -c '
    trap : TERM
    cd
    while sleep 60; do touch .xlflax/heartbeat; done &
    eval "$1"
    status=$?
    kill $!
    echo $status > .xlflax/status' - "$run" > log 2>&1 < /dev/null &
  echo $! > pid
fi
tail -n "$lines" --pid="$(cat pid)" -f log
true  # Prevents the shell from replacing itself by tail, which would never end.
END_OF_SCRIPT
IFS= read -r -d '' report << 'END_OF_SCRIPT'
cd && cd .xlflax || exit 1
touch heartbeat
if [[ $(cat token) == "$token" && -s status ]]; then
  echo "xlflax-status $(cat status)"
elif [[ $(cat token) == "$token" ]] && kill -0 "$(cat pid)" 2> /dev/null; then
  echo 'xlflax-status running'
elif [[ $(cat token) == "$token" ]]; then
  echo 'xlflax-status 74'  # The machine has rebooted.
else
  echo 'xlflax-status running'  # Not started yet.
fi
END_OF_SCRIPT
IFS= read -r -d '' stop << 'END_OF_SCRIPT'
cd && cd .xlflax && kill -TERM -- "-$(cat pid)"
tail -n 20 --pid="$(cat pid)" -f log
END_OF_SCRIPT
# Each worker runs this script when it boots.
startup_script=$(mktemp)
cat > "$startup_script" << 'END_OF_SCRIPT'
#!/bin/bash
# Deletes the TPUs if no run was active and the machine that launched the job did
# not connect for 60 minutes. The service account of the TPUs needs the
# permission to delete them (roles/tpu.admin).
name=mlm
location=(--zone=us-east5-a)
booted=$(date +%s)
while sleep 60; do
  last=$(stat -c %Y /home/*/.xlflax/heartbeat 2> /dev/null | sort -n | tail -n 1)
  last=$((${last:-0} > booted ? last : booted))
  if (($(date +%s) - last > 60 * 60)); then
    gcloud compute tpus queued-resources delete "$name" "${location[@]}" \
      --force --quiet
  fi
done &
END_OF_SCRIPT

create_tpus() {
  gcloud compute tpus queued-resources create "$name" "${location[@]}" \
    --accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --node-count=2 --node-prefix=mlm --spot \
    --metadata-from-file=startup-script="$startup_script"
}

delete_tpus() {
  gcloud compute tpus queued-resources delete "$name" "${location[@]}" \
    --force --quiet
}

# Prints the state of the TPUs, or nothing if they do not exist. If Google Cloud
# does not respond, the request is repeated, because a network failure must not
# delete anything.
tpu_state() {
  until gcloud compute tpus queued-resources describe "$name" \
    "${location[@]}" --format='value(state.state)' 2> "$errors"; do
    grep -q NOT_FOUND "$errors" && return
    echo "$name: no response from Google Cloud: $(tail -n 1 "$errors")" >&2
    sleep "$poll_seconds"
  done
}

wait_until_active() {
  local state last=
  while state=$(tpu_state); [[ $state != ACTIVE ]]; do
    [[ $state != "$last" ]] && echo "$name: ${state:-does not exist}"
    last=$state
    case $state in
      '' | FAILED | SUSPENDED | SUSPENDING) return 1 ;;
    esac
    sleep "$poll_seconds"
  done
}

on_all_workers() {
  local jobs=() node job status=0
  for node in "${nodes[@]}"; do
    gcloud compute tpus tpu-vm ssh "$node" "${location[@]}" --worker=all \
      --command="$1" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do
    wait "$job" || status=$?
  done
  return "$status"
}

set_up_workers() {
  until on_all_workers "( $set_up
) || echo xlflax-setup-failed" | tee "$output"; do
    [[ $(tpu_state) == ACTIVE ]] || return 0  # follow_run reports it.
    echo "$name: cannot connect to the workers. Retrying." >&2
    sleep "$poll_seconds"
  done
  grep -q xlflax-setup-failed "$output" || return 0
  echo "$name: the setup command failed (see above). The TPUs are kept. Delete" \
    "them with: gcloud compute tpus queued-resources delete $name" >&2
  return 1
}

# Starts the run with this token unless it has been started already, follows it
# to its end, and returns the largest status of all workers, or 255 if the TPUs
# do not exist anymore.
follow_run() {
  local token=$1 answers lines=+1
  while :; do
    on_all_workers "token=$token lines=$lines run=$(printf %q "$run"); $start"
    lines=20
    until answers=$(on_all_workers "token=$token; $report"); do
      [[ $(tpu_state) == ACTIVE ]] || return 255
      echo "$name: cannot connect to the workers. Retrying." >&2
      sleep "$poll_seconds"
    done
    grep -q 'xlflax-status running' <<< "$answers" && continue
    return "$(sed -n 's/.*xlflax-status //p' <<< "$answers" | sort -n | tail -n 1)"
  done
}

end_job() {
  delete_tpus
  exit "$1"
}

trap 'on_all_workers "$stop"; end_job 130' INT TERM
for ((attempt = 0; attempt <= max_restarts; attempt++)); do
  [[ -n $(tpu_state) ]] || create_tpus || exit 1
  if wait_until_active; then
    set_up_workers || exit 1
    follow_run "$(date +%s)-$$-$attempt"
    status=$?
    case $status in
      0 | 2) end_job "$status" ;;  # Finished, or a user error.
      255) echo "$name: the TPUs were preempted. Retrying." >&2 ;;
      *)
        echo "$name: the run failed with status $status. Restarting it." >&2
        continue
        ;;
    esac
  else
    echo "$name: the TPUs were preempted or not granted. Retrying." >&2
  fi
  delete_tpus
done
echo "$name: failed after $max_restarts restarts." >&2
end_job 1
