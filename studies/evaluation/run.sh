#!/usr/bin/env bash
# Produces the results of docs/measured/evaluation.md:
#   studies/evaluation/run.sh DATA WORK [FAMILY...]
# DATA is the folder of the data sets that splits.py and build_corpus.py name.
# WORK is the folder for models and results. Results that exist are not created
# again. FAMILY is one of the functions below; the default is all of them.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$here/../..
data=$1 work=$2
shift 2
families=${*:-encoder pos parsing ner nli pawsx qa retrieval ntrex mining alignment perplexity translation}
files=$work/files encoder=$work/runs/encoder
ewt=$data/ud/UD_English-EWT/en_ewt-ud gsd=$data/ud
mkdir -p "$work/done"

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

[ -d "$files" ] || python "$here/splits.py" --data "$data" --output "$files"

encoder() {
  local inputs=(--corpus="$work/corpus" --vocabulary="$work/vocab" --cache="$work/cache")
  [ -d "$work/corpus" ] || {
    python "$here/../real_text/build_corpus.py" --data "$data" --output "$work/corpus" \
      --languages en fr de es ru zh ja --sources bible guide enja --pair_sources bible enja
    cp "$data/udhr/ind.txt" "$work/corpus/mono/id.txt"
  }
  xlflax vocab --corpus="$work/corpus" --output="$work/vocab" --size=12000
  xlflax cache --corpus="$work/corpus" --vocabulary="$work/vocab" --output="$work/cache"
  timed encoder xlflax train --gin_file=pretrain/mlm_tlm_contrast.gin \
    --gin_file=models/encoder.gin --gin_file="$here/pretrain.gin" "${inputs[@]}" --model_dir="$encoder"
}

# tune NAME FILE EPOCHS LENGTH [FLAG...]: Fine-tunes the encoder on English and
# evaluates it in every language. FILE is the name of the gin file in finetune/ and
# in evaluate/.
tune() {
  local name=$1 file=$2 epochs=$3 length=$4
  shift 4
  timed "$name" xlflax finetune --gin_file="finetune/$file.gin" --init_from="$encoder" \
    --output="$work/$name" --gin.EPOCHS="$epochs" --gin.LENGTH="$length" --gin.BATCH_SIZE=16 \
    --gin.HEAD_LEARNING_RATE=2e-3 --gin.EVAL_STEPS=200 --eval_gin_file="evaluate/$file.gin" "$@"
}

pos() {
  tune pos tagging 5 64 --grid LEARNING_RATE=5e-4 --metric_for_best_model=tagging/accuracy/en \
    --gin.BATCH_SIZE=32 --gin.HEAD_LEARNING_RATE=1e-3 --gin.EVAL_STEPS=100 \
    --gin.token_classification.TokenClassification.layer=1 \
    --gin.TRAIN_FILES="{'en': '$ewt-train.part.conllu'}" \
    --gin.DEV_FILES="{'en': '$ewt-dev.first500.conllu'}" \
    --eval_gin "TEST_FILES={'en': '$ewt-test.first600.conllu', $(trees)}"
}

parsing() {
  tune parsing parsing 10 64 --grid LEARNING_RATE=1e-3 --metric_for_best_model=parsing/las/en \
    --gin.TRAIN_FILES="{'en': '$ewt-train.part.conllu'}" \
    --gin.DEV_FILES="{'en': '$ewt-dev.first500.conllu'}" \
    --gin.OPTIONS="{'keep_subtypes': False}" --eval_gin "example_source.FileDataset.options={'keep_subtypes': False}" \
    --eval_gin "TEST_FILES={'en': '$ewt-test.first600.conllu', $(trees)}"
}

trees() {
  echo "'fr': '$gsd/UD_French-GSD/fr_gsd-ud-test.conllu'," \
    "'ru': '$gsd/UD_Russian-GSD/ru_gsd-ud-test.first250.conllu'," \
    "'zh': '$gsd/UD_Chinese-GSDSimp/zh_gsdsimp-ud-test.first250.conllu'"
}

ner() {
  local entities=(FORMAT="'uner'" SCHEME="'entities'")
  tune ner tagging 10 48 --grid LEARNING_RATE=1e-3 --metric_for_best_model=tagging/f1/en \
    "${entities[@]/#/--gin.}" "${entities[@]/#/--eval_gin=}" \
    --gin.TRAIN_FILES="{'en': '$files/uner.en.train.iob2'}" \
    --gin.DEV_FILES="{'en': '$files/uner.en.dev.iob2'}" \
    --eval_gin "TEST_FILES={
      'en': '$data/uner/UNER_English-EWT/en_ewt-ud-test.iob2',
      'pt': '$data/uner/UNER_Portuguese-Bosque/pt_bosque-ud-test.iob2',
      'zh': '$data/uner/UNER_Chinese-GSDSIMP/zh_gsdsimp-ud-test.iob2'}"
}

nli() {
  timed nli xlflax train --gin_file=finetune/classification.gin --model_dir="$work/runs/nli" \
    --gin.INIT_FROM="'$encoder'" --gin.TRAIN_FILES="{'en': '$data/nli/snli/en.dev.tsv'}" \
    --gin.LENGTH=64 --gin.EPOCHS=3 --gin.LEARNING_RATE=5e-4
  timed nli-test xlflax evaluate --model_dir="$work/runs/nli" --gin_file=evaluate/classification.gin \
    --gin.TEST_FILES="{
      'en': '$data/nli/snli/en.test.first1500.tsv',
      'fr': '$data/nli/rte3_fr/fr.dev.tsv', 'ja': '$data/nli/jsick/ja.test.first2000.tsv',
      'aym': '$data/nli/americasnli/aym.dev.tsv', 'gn': '$data/nli/americasnli/gn.dev.tsv',
      'nah': '$data/nli/americasnli/nah.dev.tsv', 'quy': '$data/nli/americasnli/quy.dev.tsv'}"
}

pawsx() {
  local name tests=
  for name in en es fr zh; do tests+="'$name': '$files/pawsx.$name.test.tsv', "; done
  tune pawsx classification 2 96 --grid LEARNING_RATE=5e-4 --metric_for_best_model=classification/accuracy/en \
    --gin.POOLING="'mean'" --gin.TRAIN_FILES="{'en': '$files/pawsx.en.train.tsv'}" \
    --gin.DEV_FILES="{'en': '$files/pawsx.en.dev.tsv'}" --eval_gin "TEST_FILES={$tests}"
}

qa() {
  local tests="'en': '$files/tydiqa.en.test.json', 'id': '$data/tydiqa_goldp/tydiqa.goldp.id.dev.json'"
  tune qa question_answering 4 128 --gin.LEARNING_RATE=5e-4 --gin.DOC_STRIDE=64 \
    --gin.question_featurizer.QuestionAnsweringFeaturizer.no_answer="'drop'" --gin.MAX_QUESTION_LENGTH=32 \
    --gin.TRAIN_FILES="{'en': '$files/tydiqa.en.train.json'}" \
    --eval_gin_file="$here/qa.gin" --eval_gin "TEST_FILES={$tests}" \
    --eval_gin "XQUAD=$(for n in en es ru zh; do printf "'%s': '%s', " $n "$data/xquad/xquad.$n.json"; done | sed 's/.*/{&}/')" \
    --eval_gin "MLQA={'es': '$data/mlqa/dev-context-es-question-es.json',
      'zh': '$data/mlqa/dev-context-zh-question-zh.json',
      'es-en': '$data/mlqa/dev-context-es-question-en.json'}"
}

# measure NAME [FLAG...]: Evaluates the encoder without fine-tuning.
measure() {
  local name=$1
  shift
  timed "$name" xlflax evaluate --model_dir="$encoder" "$@"
}

retrieval() {
  measure retrieval --tasks=tatoeba --tatoeba="$data/tatoeba" --random_init_baseline
}

ntrex() {
  mkdir -p "$work/ntrex/test/parallel"
  cp "$data"/ntrex/en-*.tsv "$work/ntrex/test/parallel"
  measure ntrex --tasks=retrieval --corpus="$work/ntrex" --random_init_baseline \
    --gin.retrieval_task.Retrieval.name="'ntrex'"
}

mining() {
  local name bucc= tatoeba=
  for name in fr zh; do
    bucc+="'$name-en': $(sides "$data/bucc_style/$name-en.dev" $name), "
    tatoeba+="'$name-en': $(sides "$files/tatoeba.$name-en" $name), "
  done
  measure mining-ntrex --gin_file=evaluate/mining.gin --random_init_baseline \
    --gin.mining_task.BitextMining.name="'mining_ntrex'" --gin.TEST_FILES="{$bucc}"
  measure mining-tatoeba --gin_file=evaluate/mining.gin --random_init_baseline \
    --gin.mining_task.BitextMining.name="'mining_tatoeba'" --gin.TEST_FILES="{$tatoeba}"
}

# sides BASE LANGUAGE: Prints the files of a mining collection as a Python tuple.
sides() { echo "('$1.$2', '$1.en', '$1.gold')"; }

alignment() {
  local gold=$data/word_alignment
  local ugarit=$gold/ugarit_grc-eng sample=$gold/simalign_sample
  measure alignment-ja --gin_file=evaluate/word_alignment.gin --random_init_baseline --gin.FIRST_INDEX=1 \
    --gin.word_alignment_task.WordAlignment.name="'alignment_ja'" --gin.TEST_FILES="{
      'ja-en': ('$gold/awesome_align_examples/jaen.src-tgt', '$gold/awesome_align_examples/jaen.gold')}"
  measure alignment --gin_file=evaluate/word_alignment.gin --random_init_baseline \
    --gin.word_alignment_task.WordAlignment.name="'alignment'" --gin.TEST_FILES="{
      'en-de': ('$sample/sample_eng.txt', '$sample/sample_deu.txt', '$sample/sample_eng_deu.gold'),
      'grc-en': ('$ugarit/text_grc_eng.txt', '$ugarit/alignment_grc_eng.txt')}"
}

perplexity() {
  measure perplexity --tasks=perplexity --corpus="$work/corpus" --split=validation --random_init_baseline
}

translation() {
  local corpus=$files/en-ja
  local inputs=(--corpus="$corpus" --vocabulary="$work/vocab_en_ja" --cache="$work/cache_en_ja")
  xlflax vocab --corpus="$corpus" --output="$work/vocab_en_ja" --size=5000
  xlflax cache --corpus="$corpus" --vocabulary="$work/vocab_en_ja" --output="$work/cache_en_ja"
  timed translation xlflax train --gin_file=pretrain/translation.gin --gin_file=models/transformer.gin \
    --gin_file="$here/translation.gin" "${inputs[@]}" --model_dir="$work/runs/en_ja"
  timed translation-test xlflax evaluate --model_dir="$work/runs/en_ja" \
    --gin_file=evaluate/translation.gin --corpus="$corpus"
}

status=0
for family in $families; do
  "$family" || { echo "Family $family failed." >&2; status=1; }
done
python "$here/baselines.py" --data "$data" --files "$files" --output "$work/baselines.json" &&
  python "$here/table.py" "$work" || status=1
exit $status
