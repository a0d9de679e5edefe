#!/bin/bash
# Gets TPUs, runs the command on all workers, and goes on with other ones
# where these are taken away. The run does not depend on this script's
# connections: a lost one is made again. Ctrl-C ends the run, and gives the
# TPUs back.
set -uo pipefail
name=@@name
place=(@@place)
nodes=(@@nodes)
restarts=@@restarts
errors=$(mktemp) output=$(mktemp)

create() {
  gcloud compute tpus queued-resources create "$name" "${place[@]}" \
    @@create
}

# The state, or nothing where there is no such resource. Without an answer it
# asks again: a lost network is no reason to give anything back.
state() {
  until gcloud compute tpus queued-resources describe "$name" "${place[@]}" \
    --format='value(state.state)' 2> "$errors"; do
    grep -q NOT_FOUND "$errors" && return
    echo "$name: no answer, asking again: $(tail -n 1 "$errors")" >&2
    sleep @@poll
  done
}

delete() {
  gcloud compute tpus queued-resources delete "$name" "${place[@]}" \
    --force --quiet
}

wait_until_active() {
  local now last=
  while now=$(state); [[ $now != ACTIVE ]]; do
    [[ $now != "$last" ]] && echo "$name: ${now:-not there}"
    last=$now
    case $now in
      '' | FAILED | SUSPENDED | SUSPENDING) return 1 ;;
    esac
    sleep @@poll
  done
}

on_all_workers() {
  local jobs=() node status=0 one
  for node in "${nodes[@]}"; do
    gcloud compute tpus tpu-vm ssh "$node" "${place[@]}" --worker=all \
      --command="$1" &
    jobs+=($!)
  done
  for one in "${jobs[@]}"; do
    wait "$one" || status=$?
  done
  return "$status"
}

set_up() {
  until on_all_workers "( $setup ) || echo xlflax-setup-failed" | tee "$output"
  do
    [[ $(state) == ACTIVE ]] || return 0  # `follow` finds out too
    echo "$name: the workers cannot be reached, trying again." >&2
    sleep @@poll
  done
  grep -q xlflax-setup-failed "$output" || return 0
  echo "$name: --setup failed; see above. The TPUs are kept: end them by" \
    "gcloud compute tpus queued-resources delete $name." >&2
  return 1
}

# What a worker does: `start` begins a run, once for each token, which goes on
# without the connection, and shows its log; `ask` says how it ended.
setup=@@setup
run=@@run
start=@@start
ask=@@ask
stop=@@stop

# Follows the run on all workers to its end, and returns its status, the
# largest of all; 255: the TPUs are gone.
follow() {
  local token=$1 answers lines=+1
  while :; do
    on_all_workers "token=$token lines=$lines run=$(printf %q "$run"); $start"
    lines=20
    until answers=$(on_all_workers "token=$token; $ask"); do
      [[ $(state) == ACTIVE ]] || return 255
      echo "$name: the workers cannot be reached, trying again." >&2
      sleep @@poll
    done
    grep -q 'xlflax-status running' <<< "$answers" && continue
    return "$(sed -n 's/.*xlflax-status //p' <<< "$answers" | sort -n | tail -n 1)"
  done
}

ended() {
  @@give_back
  exit "$1"
}

trap 'on_all_workers "$stop"; ended 130' INT TERM
for ((attempt = 0; attempt <= restarts; attempt++)); do
  [[ -n $(state) ]] || create || exit 1
  if wait_until_active; then
    set_up || exit 1
    follow "$(date +%s)-$$-$attempt"
    status=$?
    case $status in
      0 | 2) ended "$status" ;;  # 2: a mistake, which a restart cannot mend
      255) echo "$name: the TPUs were taken away; trying again." >&2 ;;
      *)
        echo "$name: the run ended with status $status; starting it again." >&2
        continue
        ;;
    esac
  else
    echo "$name: the TPUs were taken away, or not given; trying again." >&2
  fi
  delete
done
echo "$name: gave up after $restarts more attempts." >&2
ended 1
