#!/usr/bin/env bash
# Produces the results of docs/case_study.md:
#   studies/case_study/run.sh WORK DATA [STAGE...]
# WORK is the folder for models and results. Results that exist are not created
# again, and interrupted runs are resumed. DATA is the folder of the data sets of
# studies/evaluation/run.sh. STAGE is text, resumed, pretraining, untrained,
# baseline, scores or published; the default is all of them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../..
work=$1 data=$2
shift 2
languages=en,ca,cs,da,de,el,es,et,eu,fi,fr,hi,hu,id,ja,ko,nl,pl,pt,ru,sv,tr,vi,zh
mlm_steps=${MLM_STEPS:-32500} pair_steps=${PAIR_STEPS:-4200}
mkdir -p "$work/runs"

# timed NAME COMMAND...: Runs a command and writes its user, system and elapsed
# seconds and its memory in KB to WORK/times.
timed() {
  local name=$1
  shift
  /usr/bin/time -f "$name %U %S %e %M" -a -o "$work/times" "$@"
}

text() {
  [ -d "$work/corpus" ] || timed corpus xlflax build-corpus libreoffice \
    --languages=$languages --packages="$work/packages" --output="$work/corpus"
  [ -d "$work/vocab" ] || timed vocab xlflax vocab --corpus="$work/corpus" \
    --output="$work/vocab" --size=16000
  [ -d "$work/cache" ] || timed cache xlflax cache --corpus="$work/corpus" \
    --vocabulary="$work/vocab" --output="$work/cache"
}

# train NAME FILE STEPS [FLAG...]: Trains a run with a gin file.
train() {
  local name=$1 file=$2 steps=$3
  shift 3
  [ -e "$work/runs/$name/finished.json" ] || timed "$name" xlflax train \
    --gin_file="$file" --gin_file=recipes/small.gin --corpus="$work/corpus" \
    --vocabulary="$work/vocab" --cache="$work/cache" \
    --model_dir="$work/runs/$name" --gin.TRAIN_STEPS="$steps" \
    --gin.MASK_RATIO="${MASK_RATIO:-0.15}" --gin.CheckpointOptions.save_interval_steps=1000 "$@"
  # A run that is stopped by a signal exits with status 0. The following stages
  # need the complete run.
  [ -e "$work/runs/$name/finished.json" ] || [[ $* == *--stop_after_steps* ]]
}

# Trains 60 steps without interruption and in three calls. table.py compares the
# losses.
resumed() {
  local stop
  train copy-whole pretrain/mlm.gin 60 --gin.WARMUP_STEPS=10
  for stop in 25 45; do
    train copy-parts pretrain/mlm.gin 60 --gin.WARMUP_STEPS=10 --stop_after_steps=$stop
  done
  train copy-parts pretrain/mlm.gin 60 --gin.WARMUP_STEPS=10
}

pretraining() {
  train mlm pretrain/mlm.gin "$mlm_steps"
  train aligned pretrain/mlm_tlm_contrast.gin "$pair_steps" \
    --gin.INIT_FROM="'$work/runs/mlm'" --gin.BATCH_SIZE=16 \
    --gin.PAIR_LENGTH=64 --gin.PAIR_BATCH_SIZE=16 --gin.SIDE_LENGTH=32 \
    --gin.SIDE_BATCH_SIZE=64
}

published() {
  [ -d "$work/published" ] || timed export xlflax convert to-hf \
    "$work/runs/aligned" --output="$work/published" --license=mpl-2.0 \
    --sentence_transformers=mean_all
  xlflax push-to-hub "$work/published" example/case_study --dry_run
}

# The untrained model is saved after one step with a negligible learning rate.
untrained() {
  train untrained pretrain/mlm.gin 1 --gin.LEARNING_RATE=1e-12
}

# Trains the Hugging Face baseline.
baseline() {
  [ -d "$work/runs/baseline" ] ||
    python "$here/baseline.py" "$work" "${BASELINE_THREADS:-1}"
}

scores() {
  local name
  for name in untrained aligned baseline; do
    [ -e "$work/runs/$name/finished.json" ] || [ "$name" = baseline ] || continue
    [ -d "$work/runs/$name" ] || continue
    [ -e "$work/scores/$name/.done" ] && continue
    mkdir -p "$work/scores/$name/runs"
    ln -sfn "$work/runs/$name" "$work/scores/$name/runs/encoder"
    timed "retrieval-$name" xlflax evaluate --model_dir="$work/runs/$name" \
      --corpus="$work/corpus" --tasks=retrieval --max_examples=1000
    "$here/../evaluation/run.sh" "$data" "$work/scores/$name" \
      retrieval ntrex mining pos ner nli pawsx qa || true
    touch "$work/scores/$name/.done"
  done
}

for stage in ${*:-text resumed pretraining untrained baseline scores published}; do
  "$stage"
done
