cd && cd .xlflax || exit 1
if [[ $(cat token) == "$token" && -s status ]]; then
  echo "xlflax-status $(cat status)"
elif [[ $(cat token) == "$token" ]] && kill -0 "$(cat pid)" 2> /dev/null; then
  echo 'xlflax-status running'
elif [[ $(cat token) == "$token" ]]; then
  echo 'xlflax-status 74'  # its machine was started anew
else
  echo 'xlflax-status running'  # not begun yet
fi
