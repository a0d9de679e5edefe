#!/usr/bin/env bash
# Produces the results of docs/measured/synthetic.md: studies/synthetic/run.sh WORK
# Run the same command again to resume.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../..
work=$(realpath -m "$1")
cd "$here/../.."
mkdir -p "$work"
inputs=(--corpus="$work/toy/corpus" --vocabulary="$work/vocab" --cache="$work/cache")
[ -d "$work/toy" ] || python -m studies.synthetic --output="$work/toy" --languages=en,aa,bb --change bb.word_order=svo --anchors=0.5 --hard_inference=0 --seed=0 \
  --size nli/train=60000 --size paraphrase/train=60000 --size qa/train=60000 --sentences=20000 --pairs=20000
xlflax vocab --corpus="$work/toy/corpus" --output="$work/vocab" --size=1500 --model_type=bpe --character_coverage=1
xlflax cache --corpus="$work/toy/corpus" --vocabulary="$work/vocab" --output="$work/cache"

time xlflax train --gin_file=pretrain/mlm_tlm.gin --gin_file=models/encoder.gin --gin_file="$here/encoder.gin" \
  "${inputs[@]}" --model_dir="$work/runs/encoder"
time xlflax evaluate --suite="$here/measured_suite.gin" --data="$work/toy" --model_dir="$work/runs/encoder" --output="$work/runs/suite"
time xlflax train --gin_file=pretrain/translation.gin --gin_file=models/transformer.gin --gin_file="$here/translation.gin" \
  "${inputs[@]}" --model_dir="$work/runs/translation"
time xlflax evaluate --model_dir="$work/runs/translation" --gin_file=evaluate/translation.gin --corpus="$work/toy/corpus"
# Word alignment needs less pretraining than question answering, and is better with rotary
# positions.
time xlflax train --gin_file=pretrain/mlm_tlm.gin --gin_file=models/encoder.gin --gin_file="$here/encoder.gin" \
  --gin.TRAIN_STEPS=1500 --gin.WARMUP_STEPS=200 --gin.EncoderConfig.position_embedding="'rotary'" \
  "${inputs[@]}" --model_dir="$work/runs/rotary"
xlflax evaluate --model_dir="$work/runs/rotary" --gin_file=studies/synthetic/suite/alignment.gin --gin.DATA="'$work/toy'"
python "$here/table.py" "$work"
