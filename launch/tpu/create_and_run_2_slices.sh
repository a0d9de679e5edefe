#!/bin/bash
# Creates TPUs, runs a command on all of their workers, and deletes the TPUs.
# Rendered by `xlflax launch tpu`.
#
# The run does not depend on the connections of this script. A lost connection
# is opened again. Ctrl-C and SIGTERM stop the run and delete the TPUs.
set -uo pipefail
name=mlm
location=(--zone=us-east5-a)
nodes=(mlm-0 mlm-1)
delete=(compute tpus queued-resources delete "$name" "${location[@]}" --force)
max_restarts=20
poll_seconds=30
files=$(mktemp -d)
errors=$files/errors output=$files/output
trap 'rm -rf "$files"' EXIT

# Errors of the first request to Google Cloud that a repetition does not correct.
access_errors='PERMISSION_DENIED|UNAUTHENTICATED|INVALID_ARGUMENT'
access_errors+='|not have permission|valid credentials|active account'
access_errors+='|Reauthentication|invalid_grant|required property|Invalid choice'

# The command line of the run, as each worker executes it.
run='PYTHONUNBUFFERED=1 venv/bin/xlflax train --gin_file=pretrain/mlm.gin --model_dir=gs://bucket/runs/mlm --platform=tpu --preemption_exit_code=75'

# Scripts for the workers: install xlflax, start a run, report its status, stop it.
IFS= read -r -d '' set_up << 'END_OF_SCRIPT'
# TPU VM images have Python 3.10, so Python 3.11 is installed. A package that is
# already installed is not installed again.
package=gs://bucket/xlflax-0.1.0-py3-none-any.whl
if [[ $(cat venv/package 2> /dev/null) != "$package" ]]; then
  # A new VM may still be updating its packages. apt-get waits for the lock of
  # dpkg, but fails if the lists of packages are locked.
  attempts=0
  until sudo apt-get update -qq &&
    sudo apt-get -o DPkg::Lock::Timeout=600 install -qqy git python3.11-venv; do
    ((++attempts < 30)) || exit 1
    sleep 10
  done
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
# After a reboot, the stored process id may belong to another process.
boot_id=$(cat /proc/sys/kernel/random/boot_id)
[[ $(cat boot_id 2> /dev/null) == "$boot_id" ]] || rm -f pid
if [[ $(cat token 2> /dev/null) != "$token" ]]; then
  if [[ -e pid ]]; then
    # The processes of `sudo docker run` belong to root.
    sudo kill -TERM -- "-$(cat pid)" 2> /dev/null
    tail --pid="$(cat pid)" -f /dev/null
  fi
  rm -f status
  echo "$token" > token
  echo "$boot_id" > boot_id
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
[[ -e pid ]] && tail -n "$lines" --pid="$(cat pid)" -f log
true  # Prevents the shell from replacing itself by tail, which would never end.
END_OF_SCRIPT
IFS= read -r -d '' report << 'END_OF_SCRIPT'
cd && cd .xlflax || exit 1
touch heartbeat
if [[ $(cat token) == "$token" && -s status ]]; then
  echo "xlflax-status $(cat status)"
elif [[ $(cat token) == "$token" ]] &&
  [[ $(cat boot_id) == $(cat /proc/sys/kernel/random/boot_id) ]] &&
  kill -0 "$(cat pid)" 2> /dev/null; then
  echo 'xlflax-status running'
elif [[ $(cat token) == "$token" ]]; then
  echo 'xlflax-status 74'  # The machine has rebooted.
else
  echo 'xlflax-status running'  # Not started yet.
fi
END_OF_SCRIPT
IFS= read -r -d '' stop << 'END_OF_SCRIPT'
cd && cd .xlflax || exit 0
[[ $(cat boot_id) == $(cat /proc/sys/kernel/random/boot_id) ]] || exit 0
sudo kill -TERM -- "-$(cat pid)"
timeout 900 tail -n 20 --pid="$(cat pid)" -f log ||
  echo 'The run did not end within 15 minutes.'
END_OF_SCRIPT
# Each worker runs this script when it boots.
startup_script=$files/startup_script
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

describe_tpus() {
  gcloud compute tpus queued-resources describe "$name" "${location[@]}" \
    --format="$1"
}

# Sleeps in the background, because bash handles a signal during `wait` at once,
# but otherwise only after the current command.
pause() {
  sleep "$1" &> /dev/null &
  wait $!
}

# Requests the state of the TPUs, which is empty if they do not exist. Fails if
# Google Cloud does not respond.
state=
request_state() {
  local response
  if response=$(describe_tpus 'value(state.state)' 2> "$errors"); then
    state=$response
  elif grep -q NOT_FOUND "$errors"; then
    state=
  else
    return 1
  fi
}

# Requests the state until Google Cloud responds, because a network failure must
# not delete anything.
update_state() {
  until request_state; do
    echo "$name: no response from Google Cloud: $(tail -n 1 "$errors")" >&2
    pause "$poll_seconds"
  done
}

# Requests the deletion again if it fails, at most 20 times.
delete_tpus() {
  for _ in {1..20}; do
    if gcloud "${delete[@]}" --quiet || { request_state && [[ -z $state ]]; }; then
      state=
      return
    fi
    echo "$name: the TPUs were not deleted. Retrying." >&2
    pause "$poll_seconds"
  done
  echo "$name: the TPUs could not be deleted. Delete them with:" \
    "gcloud ${delete[*]}" >&2
  return 1
}

wait_until_active() {
  local last=
  while update_state; [[ $state != ACTIVE ]]; do
    [[ $state != "$last" ]] && echo "$name: ${state:-does not exist}"
    last=$state
    [[ $state == FAILED ]] && describe_tpus 'yaml(state)' >&2  # The reason.
    case $state in
      '' | FAILED | SUSPENDED | SUSPENDING) return 1 ;;
    esac
    pause "$poll_seconds"
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

# Runs the setup command on all workers, at most three times. The heartbeat file
# prevents the workers from deleting the TPUs. It is updated for at most six
# hours, because the command may never end.
set_up_workers() {
  local failures=0
  while ((failures < 3)); do
    until { on_all_workers "mkdir -p ~/.xlflax; touch ~/.xlflax/heartbeat
for _ in {1..360}; do sleep 60; touch ~/.xlflax/heartbeat; done &> /dev/null &
( $set_up
) || echo xlflax-setup-failed
kill %1 2> /dev/null; touch ~/.xlflax/heartbeat" | tee "$output"; } & wait $!; do
      update_state
      [[ $state == ACTIVE ]] || return 0  # follow_run reports it.
      echo "$name: cannot connect to the workers. Retrying." >&2
      pause "$poll_seconds"
    done
    grep -q xlflax-setup-failed "$output" || return 0
    echo "$name: the setup command failed (see above)." >&2
    ((++failures < 3)) && pause "$poll_seconds"
  done
  return 1
}

# Starts the run with this token unless it has been started already, follows it
# to its end, and returns the largest status of all workers, or 255 if the TPUs
# do not exist anymore.
follow_run() {
  local token=$1 lines=+1
  while :; do
    on_all_workers "token=$token lines=$lines run=$(printf %q "$run"); $start"
    lines=20
    until on_all_workers "token=$token; $report" > "$output" & wait $! &&
      grep -q xlflax-status "$output"; do
      update_state
      [[ $state == ACTIVE ]] || return 255
      echo "$name: cannot connect to the workers. Retrying." >&2
      pause "$poll_seconds"
    done
    grep -q 'xlflax-status running' "$output" && continue
    return "$(sed -n 's/.*xlflax-status //p' "$output" | sort -n | tail -n 1)"
  done
}

end_job() {
  delete_tpus || exit $(($1 == 0 ? 1 : $1))
  exit "$1"
}

stop_job() {
  trap '' INT TERM HUP  # A second signal must not prevent the deletion.
  echo "$name: stopping the job." >&2
  [[ $state == ACTIVE ]] && on_all_workers "$stop"
  end_job 130
}

trap stop_job INT TERM
if ! request_state && grep -qE "$access_errors" "$errors"; then
  cat "$errors" >&2
  exit 2
fi
failures=0  # Consecutive requests for TPUs that failed.
for ((attempt = 0; attempt <= max_restarts; attempt++)); do
  update_state
  if [[ -z $state ]] && ! create_tpus; then
    ((attempt == 0)) && exit 1
    echo "$name: the TPUs were not created. Retrying." >&2
    pause $((++failures * poll_seconds))
    continue
  fi
  if wait_until_active; then
    failures=0
    if ! set_up_workers; then
      ((attempt > 0)) && continue
      echo "$name: the TPUs are kept for 60 minutes. Delete them with:" \
        "gcloud ${delete[*]}" >&2
      exit 1
    fi
    follow_run "$(date +%s)-$$-$attempt"
    status=$?
    case $status in
      0 | 2) end_job "$status" ;;  # Finished, or a user error.
      75 | 130)
        echo "$name: the run was stopped by a signal. Restarting it." >&2
        ((max_restarts++))  # Only other restarts are limited.
        continue
        ;;
      255) echo "$name: the TPUs were preempted. Retrying." >&2 ;;
      *)
        echo "$name: the run failed with status $status. Restarting it." >&2
        continue
        ;;
    esac
  else
    echo "$name: the TPUs were preempted or not granted. Retrying." >&2
    pause $((failures++ * poll_seconds))
  fi
  delete_tpus
done
echo "$name: failed after $max_restarts restarts." >&2
end_job 1
