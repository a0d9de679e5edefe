#!/usr/bin/env bash
# Produces the results of "The papers' observations" in docs/measured/analysis.md:
#   studies/analysis/run.sh DATA WORK [PART...]
# DATA is the folder of the data sets that build_corpus.py names, and of ntrex,
# pawsx, word_alignment and bilingual_dictionaries. WORK is the folder for models
# and results. Results that exist are not created again. PART is models, cka,
# sentences, words, alignment or curves; the default is all of them. Set STEPS=5
# to test the script.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../..
data=$1 work=$2
shift 2
parts=${*:-models cka sentences words alignment curves}
steps=${STEPS:-2400}
runs=$work/runs text=$work/text out=$work/out
mkdir -p "$work/done" "$out" "$text"

# timed NAME COMMAND...: Runs a command unless it has succeeded before, and writes
# its elapsed, user and system seconds to WORK/seconds.tsv.
timed() {
  local name=$1 TIMEFORMAT="$1	%R	%U	%S" status
  shift
  [ -e "$work/done/$name" ] && return
  { time "$@" 2>&3; } 3>&2 2>>"$work/seconds.tsv"
  status=$?
  [ $status = 0 ] && printf '%q ' "$@" >"$work/done/$name"
  return $status
}

# Builds the corpus and the evaluation text. NTREX and Tatoeba are not part of the
# training text.
prepare() {
  local name
  [ -d "$work/corpus" ] || python "$here/../real_text/build_corpus.py" --data "$data" \
    --output "$work/corpus" --languages en fr ru de ja --sources bible guide enja --pair_sources bible enja || return
  for name in fr ru; do cp "$data/ntrex/en-$name.tsv" "$text/ntrex.en-$name.tsv"; done
  awk -F'\t' '$3 == 1 {print $1 "\t" $2}' "$data/pawsx/dev-en.tsv" >"$text/paws.en-en.tsv"
  for name in en fr ru; do head -n 8000 "$work/corpus/mono/$name.txt" | grep . >"$text/words.$name.txt"; done
}

# corpus NAME LANGUAGE...: Creates a corpus with the text and the pairs of some
# languages.
corpus() {
  local folder=$work/corpora/$1 split name other
  shift
  for split in . valid; do
    mkdir -p "$folder/$split/mono" "$folder/$split/parallel"
    for name in "$@"; do
      ln -f "$work/corpus/$split/mono/$name".* "$folder/$split/mono/"
      for other in "$@"; do
        [ -e "$work/corpus/$split/parallel/$name-$other.tsv" ] &&
          ln -f "$work/corpus/$split/parallel/$name-$other.tsv" "$folder/$split/parallel/"
      done
    done
  done
  [ $# -gt 1 ] || rmdir "$folder/parallel" "$folder/valid/parallel"
}

# model NAME CORPUS OBJECTIVE [FLAG...]: Trains a model.
model() {
  local name=$1 files=$work/corpora/$2 objective=$3 size=6000
  shift 3
  local inputs=(--corpus="$files" --vocabulary="$files.vocab" --cache="$files.cache")
  [ -e "$work/done/$name" ] && return
  [[ $files == *-* ]] && size=7500
  [ -d "$files.vocab" ] || xlflax vocab --corpus="$files" --output="$files.vocab" --size="$size" || return
  xlflax cache --corpus="$files" --vocabulary="$files.vocab" --output="$files.cache" || return
  timed "$name" xlflax train --gin_file="pretrain/$objective.gin" --gin_file=models/encoder.gin \
    --gin_file="$here/study.gin" --gin.TRAIN_STEPS="$steps" --gin.WARMUP_STEPS=$((steps / 10)) \
    "${inputs[@]}" --model_dir="$runs/$name" "$@"
}

models() {
  local name pair=(--gin.PAIR_LENGTH=96 --gin.PAIR_BATCH_SIZE=16)
  mkdir -p "$runs"
  for name in en fr ru; do
    corpus "$name" "$name"
    model "mono_$name" "$name" mlm || return
  done
  for name in fr ru; do
    corpus "en-$name" en "$name"
    model "mlm_en-$name" "en-$name" mlm || return
  done
  for name in fr ru de ja; do
    corpus "en-$name" en "$name"
    model "tlm_en-$name" "en-$name" mlm_tlm "${pair[@]}" || return
  done
  # Names of the models for dictionaries and gold alignments with the opposite
  # order of languages.
  for name in mlm_ru-en:mlm_en-ru tlm_ru-en:tlm_en-ru tlm_ja-en:tlm_en-ja; do
    ln -sfn "${name#*:}" "$runs/${name%:*}"
  done
}

series=(--models="MLM=$runs/mlm_{pair}" --models="MLM and TLM=$runs/tlm_{pair}"
  --models="monolingual=$runs/mono_{language}")
random=(--models="random=$runs/mlm_{pair},$runs/mlm_{pair}@untrained")
embeddings=(--activation_cache="$work/states" --max_length=64)
news=(--text="en-fr=$text/ntrex.en-fr.tsv" --text="en-ru=$text/ntrex.en-ru.tsv")

cka() {
  local estimator
  for estimator in biased debiased; do
    timed "cka-$estimator" xlflax analyze cka "${series[@]}" "${random[@]}" "${news[@]}" "${embeddings[@]}" \
      --estimator="$estimator" --output="$out/cka-$estimator" || return
  done
  # Paraphrases in one language and one model are the upper bound.
  timed cka-paraphrases xlflax analyze cka --text="en-en=$text/paws.en-en.tsv" "${embeddings[@]}" \
    --models="MLM en-fr=$runs/mlm_en-fr" --models="MLM en-ru=$runs/mlm_en-ru" \
    --models="monolingual=$runs/mono_en" --models="random=$runs/mono_en,$runs/mono_en@untrained" \
    --output="$out/cka-paraphrases"
}

retrieval=(--test="$data/tatoeba" --languages=fr,ru --train="en-fr=$text/ntrex.en-fr.tsv"
  --train="en-ru=$text/ntrex.en-ru.tsv")

sentences() {
  timed sentences xlflax analyze sentence-retrieval "${series[@]}" "${random[@]}" "${retrieval[@]}" "${embeddings[@]}" \
    --output="$out/sentences"
}

words() {
  local files=$data/bilingual_dictionaries name dictionaries=()
  for name in train test; do
    dictionaries+=(--$name="en-fr=$files/freedict/en-fr.$name.tsv"
      --$name="ru-en=$files/openrussian/ru-en.$name.tsv")
  done
  timed words xlflax analyze lexicon-induction "${series[@]}" "${dictionaries[@]}" "${embeddings[@]}" --max_words=8000 \
    --text="en=$text/words.en.txt" --text="fr=$text/words.fr.txt" --text="ru=$text/words.ru.txt" --output="$out/words"
}

alignment() {
  local gold=$data/word_alignment models
  local sample=$gold/simalign_sample kyoto=$gold/awesome_align_examples
  models=(--models="MLM and TLM=$runs/tlm_{pair}" --models="untrained=$runs/tlm_{pair}@untrained")
  timed alignment-en-de xlflax analyze alignment "${models[@]}" --output="$out/alignment-en-de" \
    --gold_alignments="en-de=$sample/sample_eng.txt,$sample/sample_deu.txt,$sample/sample_eng_deu.gold" &&
    timed alignment-ja-en xlflax analyze alignment "${models[@]}" --output="$out/alignment-ja-en" \
      --gold_alignments="ja-en=$kyoto/jaen.src-tgt,$kyoto/jaen.gold" --index_base=1
}

curves() {
  timed sentences-steps xlflax analyze sentence-retrieval "${series[@]}" "${retrieval[@]}" --max_length=64 \
    --checkpoint_steps=all --output="$out/sentences-steps"
}

prepare || exit 1
status=0
for part in $parts; do
  "$part" || { echo "Part $part failed." >&2; status=1; }
done
python "$here/observations.py" "$out" >"$out/observations.md" && cat "$out/observations.md" || status=1
exit $status
