#!/usr/bin/env bash
# Creates the screenshots of HTML pages in docs/images:
#   studies/page_images/run.sh NTREX WORK
# NTREX is a folder that contains en-fr.tsv and en-sw.tsv of the data set NTREX-128,
# each with one pair of sentences per line. WORK is the folder for models and results.
# Run the same command again to resume. The screenshots require `chromium`.
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
ntrex=$(realpath "$1")
export PYTHONPATH=$root
mkdir -p "$2" && cd "$2"
small=(--gin_file=models/tiny.gin --gin.LENGTH=64 --gin.BATCH_SIZE=16 --gin.LEARNING_RATE=1e-3)
pairs=(--gin.PAIR_LENGTH=64 --gin.PAIR_BATCH_SIZE=16)

# prepare CORPUS NAME SIZE: Trains a vocabulary and writes a token cache.
prepare() {
  xlflax vocab --corpus="$1" --output="$2_vocab" --size="$3"
  xlflax cache --corpus="$1" --vocabulary="$2_vocab" --output="$2_cache"
  inputs=(--corpus="$1" --vocabulary="$2_vocab" --cache="$2_cache")
}

# capture PAGE WIDTH HEIGHT IMAGE: Saves the top of a page as a PNG image.
capture() {
  chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=5000 \
    --user-data-dir="$PWD/chromium" --window-size="$2,2400" --screenshot="$PWD/$4" "file://$PWD/$1" 2>chromium.log
  python -c "import sys; from PIL import Image
width, height = map(int, sys.argv[1:3])
image = Image.open(sys.argv[3]).convert('RGB').crop((0, 0, width, height))
image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(sys.argv[4], optimize=True)" "$2" "$3" "$4" "$root/docs/images/$4"
}

# The last 100 sentences in each language are held out.
mkdir -p ntrex/{,test/}{mono,parallel}
head -n -100 "$ntrex/en-fr.tsv" | cut -f 1 >ntrex/mono/en.txt
tail -n 100 "$ntrex/en-fr.tsv" | cut -f 1 >ntrex/test/mono/en.txt
for language in fr sw; do
  head -n -100 "$ntrex/en-$language.tsv" | tee "ntrex/parallel/en-$language.tsv" | cut -f 2 >"ntrex/mono/$language.txt"
  tail -n 100 "$ntrex/en-$language.tsv" | tee "ntrex/test/parallel/en-$language.tsv" | cut -f 2 >"ntrex/test/mono/$language.txt"
done
prepare ntrex ntrex 1000
xlflax train --gin_file=pretrain/mlm_tlm_contrast.gin "${small[@]}" "${pairs[@]}" "${inputs[@]}" --gin.SIDE_BATCH_SIZE=32 \
  --model_dir=runs/encoder --gin.TRAIN_STEPS=90 --gin.CheckpointOptions.save_interval_steps=30
xlflax evaluate --model_dir=runs/encoder --tasks=retrieval,perplexity --corpus=ntrex --checkpoint_steps=all --random_init_baseline
capture runs/encoder/eval/report.html 1000 1430 evaluation_page.png
xlflax analyze cka --model_dir=runs/encoder --text=ntrex@test --estimator=debiased --output=cka
capture cka/report.html 1000 1290 analysis_page.png

python -m studies.synthetic --output=toy --languages=en,aa,bb --sentences=2000 --examples=500 --held_out=200
prepare toy/corpus toy 800
for objectives in mlm mlm_tlm; do
  xlflax train --gin_file="pretrain/$objectives.gin" "${small[@]}" $([ $objectives = mlm ] || echo "${pairs[@]}") "${inputs[@]}" \
    --model_dir="runs/$objectives" --gin.TRAIN_STEPS=300
done
xlflax evaluate --suite=studies/synthetic/suite.gin --gin_search_paths="$root" --tasks=pos --data=toy \
  --model_dir=runs/mlm --model_dir=runs/mlm_tlm --output=suite
capture suite/report/leaderboard.html 1200 1465 leaderboard_page.png
