#!/bin/bash
# Gets TPUs, runs the command on all workers, and goes on with other ones
# where these are taken away. Ctrl-C ends the run, and gives them back.
set -u
name=mlm
place=(--zone=us-east5-a)
nodes=(mlm)
restarts=20

create() {
  gcloud compute tpus queued-resources create "$name" "${place[@]}" \
    --accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --node-id=mlm --spot
}

state() {
  gcloud compute tpus queued-resources describe "$name" "${place[@]}" \
    --format='value(state.state)' 2>/dev/null
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
    sleep 30
  done
}

# A slice that is being taken away is ACTIVE for a little longer.
still_active() {
  [[ $(state) == ACTIVE ]] && sleep 30 && [[ $(state) == ACTIVE ]]
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

setup='pip install '"'"'xlflax[tpu]'"'"''
run='xlflax train --gin_file=pretrain/mlm.gin --model_dir=gs://bucket/runs/mlm --platform=tpu --stopped_status=75'
stop='pkill -TERM -f -- '"'"'stopped_statu[s]='"'"''
interrupted() { on_all_workers "$stop"; exit 130; }
trap interrupted INT TERM
trap delete EXIT
for ((attempt = 0; attempt <= restarts; attempt++)); do
  [[ -n $(state) ]] || create || exit 1
  if wait_until_active && on_all_workers "$setup"; then
    on_all_workers "$run" && exit 0
    # On TPUs that are still there the run failed, or was asked to stop.
    if still_active; then
      echo "$name: the run ended before its last step; see above." >&2
      exit 1
    fi
  elif still_active; then
    echo "$name: --setup failed; see above." >&2
    exit 1
  fi
  echo "$name: the TPUs were taken away, or not given; trying again." >&2
  delete
done
echo "$name: gave up after $restarts more attempts." >&2
exit 1
