#!/usr/bin/env bash
# Makes everything in docs/real_text.md:  docs/real_text/run.sh DATA WORK
# DATA: folder of the data sets that build_corpus.py names. WORK: for results.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=$1 work=$2
mkdir -p "$work"
inputs=(--corpus="$work/corpus" --vocabulary="$work/vocab" --cache="$work/cache")
[ -d "$work/corpus" ] || python "$here/build_corpus.py" --data "$data" --output "$work/corpus"
xlflax vocab --corpus="$work/corpus" --output="$work/vocab" --size=12000
xlflax cache --corpus="$work/corpus" --vocabulary="$work/vocab" --output="$work/cache"

train() {  # name, objective file, further flags
  local name=$1 file=$2
  shift 2
  xlflax train --gin_file="$file" --gin_file=models/encoder.gin --gin_file="$here/study.gin" \
    "${inputs[@]}" --model_dir="$work/runs/$name" "$@"
  xlflax evaluate --model_dir="$work/runs/$name" --tasks=tatoeba --tatoeba="$data/tatoeba" --untrained \
    --gin.retrieval.Retrieval.centre="'none'" --gin.retrieval.Retrieval.leave_out="'nothing'"
  xlflax evaluate --model_dir="$work/runs/$name" --tasks=perplexity --corpus="$work/corpus" --split=validation
}
pairs=(--gin.PAIR_LENGTH=96 --gin.PAIR_BATCH_SIZE=16)
time train mlm pretrain/mlm.gin
time train mlm_tlm pretrain/mlm_tlm.gin "${pairs[@]}"
time train mlm_tlm_contrast pretrain/mlm_tlm_contrast.gin "${pairs[@]}" \
  --gin.SIDE_LENGTH=32 --gin.SIDE_BATCH_SIZE=96
python "$here/table.py" "$work/runs"
