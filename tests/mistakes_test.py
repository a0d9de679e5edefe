"""Messages for user errors on the command line.

Every entry is an invalid command. It exits with status 2 and one message that
contains the problem, the flag or file, the value, and a hint.
"""

import shlex

import pytest

from xlflax import cli

_TRAIN = 'train --gin_file=pretrain/mlm.gin --gin_file=models/tiny.gin'
_GIVEN = f'{_TRAIN} --model_dir=new --vocabulary=v --gin.TRAIN_STEPS=9'
_EVALUATE = 'evaluate --model_dir=run'
_VOCAB = 'vocab --output=new --size=100'

# Command line -> parts of the message.
_MISTAKES: dict[str, tuple[str, ...]] = {
  # Names.
  'trian': ('Unknown command', 'Did you mean train or pretrain?'),
  'eval --model_dir=run': ('Unknown command', "'eval'"),
  'configs show models/smal.gin': ('Got: models/smal.gin', 'models/small.gin'),
  'configs list nothing/*': ('Got: nothing/*', 'pretrain/*'),
  'configs lst': ('Got: lst', 'Did you mean list?'),
  'analyze cak --output=o': ('Got: cak', 'Did you mean cka?'),
  'convert to_hf run --output=o': ('Got: to_hf', 'Did you mean to-hf or'),
  'convert': ('from-hf',),
  'tasks convert sib20': ('sib20',),
  # Flags.
  'evaluate --modeldir=run': ('--model_dir',),
  f'{_EVALUATE} --task=retrieval': ('Got: --task.', 'mean --tasks'),
  f'{_EVALUATE} --tasks retrieval perplexity': ('Got: perplexity',),
  f'{_EVALUATE} -tasks=retrieval': ('-tasks',),
  f'{_EVALUATE} --tasks=retrieval --max_examples=many': (
    'many', 'an integer'),
  f'{_EVALUATE} --tasks=retrieval --batch_size=8.5': (
    'Got: 8.5', 'an integer'),
  f'{_EVALUATE} --tasks=retrieval --timeout=1h --continuous': (
    '1h', 'a number'),
  'evaluate --tasks=retrieval': ('--model_dir',),
  'vocab --size=100': ('--corpus',),
  'vocab --corpus --size=100': ('--corpus',),
  f'{_TRAIN} --on_config_mismatch=yes': ('Got: yes', 'continue, error'),
  f'{_TRAIN} --platform=cuda': ('Got: cuda', 'cpu, gpu, tpu'),
  f'{_VOCAB} --corpus=c --model_type=BPE': ('Got: BPE', 'Did you mean bpe?'),
  'convert average --model_dir=run --output=o': ('--last', '--checkpoint_steps'),
  'convert from-hf f --output=o --vocabulary=v --languages=en': (
    '--languages', '--vocabulary'),
  'convert from-t5x c --output=o --vocabulary=v --languages=en': (
    '--languages', '--tokenizer'),
  'convert from-t5x c --output=o --vocabulary=v --gin_file=models/tiny.gin '
  '--scan_layers=false': ('--scan_layers', '--gin_file'),
  'convert from-t5x c --output=o --vocabulary=v --gin_file=models/tiny.gin '
  '--activation=relu': ('--activation', '--gin_file'),
  'convert average --model_dir=run --output=o --last=2 --checkpoint_steps=1': (
    '--last and --checkpoint_steps',),
  'convert to-hf run --output=o --checkpoint_steps=2': ('Did you mean --step?',),
  'evaluate --model_dir=run --step=2': ('Did you mean --checkpoint_steps ',),
  'push-to-hub run --repo=me/x': ('NAME', 'ORGANIZATION/NAME'),
  # Flags without effect.
  f'{_EVALUATE} --max_examples=3': ('--max_examples', '--tasks'),
  f'{_EVALUATE} --split=validation': ('--split', '--tasks'),
  f'{_EVALUATE} --tasks=retrieval --poll_interval=3': ('--poll_interval', '--continuous'),
  f'{_EVALUATE} --tasks=retrieval --metric_for_best_model=m': (
    '--metric_for_best_model', '--checkpoint_steps=best'),
  f'{_EVALUATE} --suite=xtreme --data=d --output=o --split=test': (
    '--split', '--suite'),
  f'{_GIVEN} --target_topology=gpu:H200:8': ('--target_topology', '--dry_run'),
  f'{_GIVEN} --profile_memory': ('--profile_memory', '--profile_steps'),
  f'{_GIVEN} --num_languages=3': ('--num_languages', '--vocabulary_size'),
  'finetune --output=o --test_top_k=all': ('--test_top_k', '--eval_gin_file'),
  'cache verify o --vocabulary=v': ('--vocabulary', 'cache verify'),
  'tasks --gin.A=1 list': ('gin bindings', '--gin.A=1'),
  # Options of other libraries.
  f'{_GIVEN} --max_steps=9': ('Got: --max_steps', '--gin.TRAIN_STEPS=N'),
  f'{_GIVEN} --gradient_accumulation_steps=9': (
    '--gin.Trainer.gradient_accumulation_steps=N',),
  'finetune --model_name_or_path=run --output_dir=o': (
    'Got: --model_name_or_path', '--init_from=DIR', 'from-hf'),
  f'{_GIVEN} --gin.MIXTURE_OR_TASK_NAME="\'a\'"': ('--gin.MONO="\'NAME\'"',),
  f'{_GIVEN} --gin.MaskedLM.mask_prob=0.2': ('Did you mean mask_ratio?',),
  f'{_GIVEN} --gin.MaskedLM.mask_rate=0.2': (
    'mask_ratio (Fraction', 'mask_probability (Probability'),
  # Gin.
  f'{_TRAIN} --gin.TRAIN_STEPS': ('--gin.TRAIN_STEPS', '--gin.NAME=VALUE'),
  f'{_GIVEN} --gin.BATCH_SZIE=4': ('Got: BATCH_SZIE', 'BATCH_SIZE'),
  f'{_GIVEN} --gin.batch_size=4': ('Got: batch_size', 'BATCH_SIZE'),
  f'{_GIVEN} --gin.EncoderConfig.num_layer=3': (
    'Got: num_layer', 'Did you mean num_layers'),
  f'{_GIVEN} --gin.trainer.Trainr.seed=3': ('Trainr', 'mean trainer.Trainer'),
  f'{_GIVEN} --gin.MONO=corpus.mono': ('--gin.MONO="\'corpus.mono\'"',),
  f'{_GIVEN} --gin.CACHE_DIR=none': ('--gin.CACHE_DIR=None',),
  f'{_GIVEN} --gin.SEED=': ('--gin.SEED', 'empty'),
  f'{_GIVEN} --gin.TRAIN_STEPS="\'x\'"': ('num_train_steps', 'x'),
  f'{_GIVEN} --gin.TRAIN_STEPS=None': ('num_train_steps',),
  f'{_GIVEN} --gin.EPOCHS=1': ('Got: 1', 'Trainer.epochs', '--gin.EPOCHS', 'TRAIN_STEPS'),
  f'{_GIVEN} --gin.TRAIN_STEPS=1e400': ('num_train_steps', 'inf'),
  f'{_GIVEN} --gin.TRAIN_STEPS=-1': ('num_train_steps', '-1'),
  'cache --output=o --corpus=corpus --vocabulary=v --num_workers=-1': (
    '--num_workers', 'Got: -1'),
  f'{_TRAIN} --model_dir=new --vocabulary=v': (
    'a value for TRAIN_STEPS', '--gin.TRAIN_STEPS=VALUE'),
  'train --gin_file=pretrain/mlm.gin --model_dir=a --vocabulary=v '
  '--gin.TRAIN_STEPS=9': ('a value for MODEL', 'models/SIZE.gin'),
  'train --gin_file=pretrain/mml.gin': ('pretrain/mlm.gin', '--gin_file'),
  'train --gin_file=mine/unread.gin --gin_file=models/tiny.gin '
  '--model_dir=a --vocabulary=v --gin.TRAIN_STEPS=9': (
    'LENGTH = 48', 'SIDE_LENGTH', 'mine/unread.gin'),
  f'{_GIVEN} --gin.LEARNING_RATE=1e--3': (
    'Got: --gin.LEARNING_RATE=1e--3', 'a number'),
  f"""{_GIVEN} --gin.OPTIMIZER="'adafactor'" """: (
    "Got: 'adafactor'", '--gin.OPTIMIZER="@optimizers.Adafactor()"'),
  f'{_GIVEN} --gin.MASK_RATIO=1,,2': ('--gin.MASK_RATIO=1000',),
  f'{_GIVEN} --gin.LANGUAGES=en,de': ("--gin.LANGUAGES=\"['en', 'de']\"",),
  'finetune --gin_file=finetune/classification.gin --init_from=run --output=o '
  '--gin.TRAIN_FILES=en=a.tsv': ("--gin.TRAIN_FILES=\"{'en': 'a.tsv'}\"",),
  f'{_GIVEN} --gin.trainer.Trainer.optimizer=@optimizers.Adamw()': (
    'Did you mean optimizers.AdamW',),
  f'{_TRAIN} --model_dir=a --vocabulary=v --gin_file=mine/no_sign.gin': (
    'Got: TRAIN_STEPS 2', 'mine/no_sign.gin:2'),
  f'{_GIVEN} --gin_file=mine/marked.gin': ('byte order mark', 'marked.gin'),
  f'{_GIVEN} --gin_file=mine/utf16.gin': ('UTF-8', 'utf16.gin'),
  'train --gin_file=pretrain/mlm.gin --gin_file=trained/model.gin': (
    'Got: trained/model.gin', 'imported', '--gin_file=models/', 'trained/config.gin'),
  'train --gin_file=mine/circle.gin': ('circle.gin -> mine/circle.gin',),
  # Files.
  f'{_EVALUATE}s --tasks=retrieval': ('Got: runs', 'Did you mean run'),
  f'{_EVALUATE} --tasks=retreival --corpus=corpus': (
    'Got: retreival', 'Did you mean retrieval?'),
  f'{_EVALUATE} --tasks=retrieval --corpus=corpsu': (
    'Got: corpsu', 'Did you mean corpus?'),
  f'{_EVALUATE} --tasks=retrieval --checkpoint_steps=first': ('Got: first', 'last, all'),
  f'{_EVALUATE} --suite=xtrem --data=d --output=o': (
    'Got: xtrem', 'Did you mean xtreme or xtreme_r?'),
  f'{_EVALUATE} --suite=xtreme --output=o': ('--data=DIR',),
  'finetune --output=o --init_from=rnu': ('Got: rnu', 'Did you mean run?'),
  'finetune --output=o --init_from=google/bert-x': (
    'Got: google/bert-x', 'from-hf google/bert-x'),
  'finetune --output=o --init_from=mine/marked.gin': (
    'Got: mine/marked.gin', 'a directory instead of a file'),
  'report run --output=o': ('Got: run', 'checkpoints or metrics.jsonl'),
  'report run run=run --output=o': ('Got: run, run', 'NAME=DIR'),
  f'{_VOCAB} --corpus=nowhere': ('Got: nowhere',),
  f'{_VOCAB} --corpus=corpus/mono': ('Did you mean corpus?',),
  f'{_EVALUATE} --tasks=retrieval --corpus=corpus/mono/en.txt': (
    'Got: corpus/mono/en.txt', 'Did you mean corpus?'),
  f'{_VOCAB} --corpus=cache': ('cache is a token cache', '--cache'),
  f'{_VOCAB} --corpus=empty': ('empty', 'mono/<language>.txt'),
  f'{_VOCAB} --corpus=named': ('english.text', '<language>[.anything].txt'),
  f'{_VOCAB} --corpus=both': ('de-en', 'en-de'),
  f'{_VOCAB} --corpus=blank': ('fr.txt',),
  f'{_VOCAB} --corpus=blanks': (
    'mono/fr.txt, test/mono/en.txt', 'Where: blanks'),
  f'{_VOCAB} --corpus=latin1 --dry_run': ('mono/de.txt:1', 'UTF-8'),
  f'{_VOCAB} --corpus=columns --dry_run': ('en-de.tsv:2',),
  f'{_VOCAB} --corpus=sentences': (
    'en.jsonl:1', '`[[records]]`', "`text_field = 'sentence'`"),
  'preprocess --corpus=sentences --output=o': ("`text_field = 'sentence'`",),
  f'{_VOCAB} --corpus=flat': ('Got: text_field', '`[[records]]`'),
  'cache --output=o --vocabulary=v': ('--mixture', '--corpus'),
  'cache --output=o --corpus=corpus': ('--vocabulary',),
  'cache --output=o --corpus=corpus --vocabulary=v --num_workers=0': (
    '--num_workers', 'Got: 0'),
  'preprocess --corpus=corpus --output=o --moses --num_copies=2': ('--code_switch',),
  'predict --model_dir=run --output=o --input=text.fr': (
    'Got: text.fr', 'LANGUAGE=PATH'),
  'predict --model_dir=run --output=o --input=fr=corpus': (
    'directory', 'Got: corpus', 'a text file'),
  'predict --model_dir=run --output=o --input=fr=fr.conllu': (
    'Where: fr.conllu:2', 'CoNLL-U', 'evaluate/tagging.gin'),
  'translate --model_dir=run --source=en --target=de --input=nowhere.txt': (
    'Got: nowhere.txt', '--input'),
  'preprocess --corpus=corpus --output=o --moses --languages=eng': (
    'Got: eng', 'Did you mean en?'),
}  # fmt: skip


@pytest.fixture(scope='module')
def workspace(tmp_path_factory):
  root = tmp_path_factory.mktemp('mistakes')
  files: dict[str, str | bytes] = {
    'corpus/mono/en.txt': 'a b\n',
    'empty/README': '',
    'cache/cache.json': '{}',
    'named/mono/english.text': 'a b\n',
    'both/parallel/en-de.tsv': 'a\tb\n',
    'both/parallel/de-en.tsv': 'b\ta\n',
    'blank/mono/en.txt': 'a b\n',
    'blank/mono/fr.txt': '\n',
    'blanks/mono/en.txt': 'a b\n',
    'blanks/mono/fr.txt': '',
    'blanks/test/mono/en.txt': '\n',
    'latin1/mono/de.txt': 'schön\n'.encode('latin-1'),
    'columns/parallel/en-de.tsv': 'a\tb\nonly one\n',
    'sentences/mono/en.jsonl': '{"id": "7", "sentence": "A house."}\n',
    'flat/corpus.toml': "text_field = 'sentence'\n",
    'flat/mono/en.jsonl': '{"id": "7", "sentence": "A house."}\n',
    'mine/unread.gin': "include 'pretrain/translation.gin'\nLENGTH = 48\n",
    'mine/circle.gin': "include 'mine/circle.gin'\n",
    'mine/no_sign.gin': 'BATCH_SIZE = 8\nTRAIN_STEPS 2\n',
    'mine/marked.gin': '\ufeffBATCH_SIZE = 8\n',
    'mine/utf16.gin': 'BATCH_SIZE = 8\n'.encode('utf-16'),
    'run/notes.txt': '',
    'trained/config.gin': 'encoder_config.EncoderConfig.num_layers = 2\n',
    'fr.conllu': '# sent_id = 1\n1\tun\tun\tDET\t_\t_\t2\tdet\t_\t_\n',
    'xtreme.tsv': '',
  }
  for name, content in files.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(data)
  return root


def test_table_has_at_least_60_commands():
  assert len(_MISTAKES) >= 60


@pytest.mark.parametrize('line', _MISTAKES)
def test_user_error_is_reported(line, workspace, monkeypatch, capsys):
  monkeypatch.chdir(workspace)
  before = sorted(workspace.rglob('*'))
  assert cli.main(shlex.split(line)) == 2
  captured = capsys.readouterr()
  for part in _MISTAKES[line]:
    assert part in captured.err
  assert 'Traceback' not in captured.err
  if line.split()[0] in cli.COMMANDS:
    messages = [x for x in captured.err.splitlines() if x.startswith('xlflax ')]
    assert len(messages) == 1 and messages[0] == captured.err.splitlines()[-1]
    assert any(
      part in messages[0]
      for part in ('What to do: ', 'Expected: ', 'not allowed with')
    )
  assert sorted(workspace.rglob('*')) == before  # The command wrote no files.
