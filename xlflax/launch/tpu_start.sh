cd && mkdir -p .xlflax && cd .xlflax || exit 1
if [[ $(cat token 2> /dev/null) != "$token" ]]; then
  if [[ -e pid ]]; then
    kill -TERM -- "-$(cat pid)" 2> /dev/null
    tail --pid="$(cat pid)" -f /dev/null
  fi
  rm -f status
  echo "$token" > token
  nohup setsid bash -c 'trap : TERM; cd; eval "$1"; echo $? > .xlflax/status'     - "$run" > log 2>&1 < /dev/null &
  echo $! > pid
fi
tail -n "$lines" --pid="$(cat pid)" -f log
true  # a shell that is still there; `tail` would wait for its own child
