"""Tests of `xlflax vocab`."""

import json

import pytest
import seqio

from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.data.corpus import corpus_writer
from xlflax.data.seqio_tasks import mixture_text, task_registry
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.utils import errors


@pytest.fixture
def corpus(tmp_path):
  vocabulary = [f'{a}{b}' for a in 'kmpt' for b in ('ano', 'iru', 'eso', 'uli')]
  for language, order in (('en', 1), ('fi', -1)):
    lines = [' '.join(vocabulary[i : i + 4][::order]) for i in range(12)]
    corpus_writer.write_monolingual(tmp_path / 'corpus', language, [lines])
  return tmp_path / 'corpus'


def _run(corpus, output, *flags: str) -> int:
  return cli.main(
    ['vocab', f'--corpus={corpus}', f'--output={output}', '--size=32', *flags]
  )


def test_vocabulary_is_trained_and_a_table_is_printed(corpus, tmp_path, capsys):
  assert _run(corpus, tmp_path / 'v', '--languages=sw') == 0
  assert Vocabulary.load(tmp_path / 'v').spec.languages == ('en', 'fi', 'sw')
  out = capsys.readouterr().out
  assert 'tokens/word' in out
  assert '32 tokens, 3 languages' in out


def test_json_output(corpus, tmp_path, capsys):
  assert _run(corpus, tmp_path / 'v', '--json') == 0
  (line,) = capsys.readouterr().out.splitlines()
  report = json.loads(line)
  assert report['directory'] == str(tmp_path / 'v')
  assert {'en', 'fi'} <= {
    statistics['language'] for statistics in report['statistics']
  }


def _unknown_token_warnings(capsys):
  lines = capsys.readouterr().err.splitlines()
  return [line for line in lines if ' W ' in line and 'unknown' in line]


def test_held_out_text_with_unknown_tokens_causes_a_warning(
  corpus, tmp_path, capsys
):
  corpus_writer.write_monolingual(corpus, 'fi', [['KANO']], split='validation')
  corpus_writer.write_monolingual(corpus, 'en', [['kano']], split='validation')
  assert _run(corpus, tmp_path / 'v') == 0
  [warning] = _unknown_token_warnings(capsys)
  assert_mentions(warning, 'validation', 'fi', '--byte_fallback')
  assert 'of en' not in warning
  command = ['vocab', f'--corpus={corpus}', f'--output={tmp_path / "b"}']
  command += ['--num_merges=4', '--model_type=bpe', '--byte_fallback']
  assert cli.main(command) == 0
  assert not _unknown_token_warnings(capsys)


def test_all_settings_are_recorded(corpus, tmp_path):
  options = [
    f'--corpus={corpus}',
    f'--output={tmp_path / "v"}',
    '--model_type=bpe',
    '--byte_fallback',
    '--alpha=0.3',
    '--character_coverage=0.99',
    '--seed=4',
    '--normalization=nfkc',
    '--max_sentences=20',
    '--num_threads=2',
    '--size=300',
  ]
  status = cli.main(['vocab', *options])
  assert status == 0
  training = Vocabulary.load(tmp_path / 'v').description['training']
  assert (
    training
    | {
      'size': 300,
      'model_type': 'bpe',
      'byte_fallback': True,
      'alpha': 0.3,
      'character_coverage': 0.99,
      'seed': 4,
      'normalization': 'nfkc',
      'max_sentences': 20,
      'num_threads': 2,
    }
    == training
  )


def test_dry_run_writes_nothing(corpus, tmp_path, capsys):
  assert _run(corpus, tmp_path / 'v', '--dry_run') == 0
  assert not (tmp_path / 'v').exists()
  assert 'mono/en' in capsys.readouterr().out
  (corpus / 'mono' / 'en.txt').write_bytes(b'good\n\xff\n')
  assert _run(corpus, tmp_path / 'v', '--dry_run') == 2
  assert 'en.txt:2' in capsys.readouterr().err


def test_dry_run_warns_about_untranslated_pairs(corpus, tmp_path, capsys):
  (corpus / 'parallel').mkdir()
  (corpus / 'parallel/en-fi.tsv').write_text('Save as\tSave as…\n' * 9)
  assert _run(corpus, tmp_path / 'v', '--dry_run') == 0
  warnings = capsys.readouterr().err
  assert_mentions(warnings, 'parallel/en-fi.tsv', '9 of 9')


def test_replacing_a_vocabulary_requires_overwrite(corpus, tmp_path, capsys):
  assert _run(corpus, tmp_path / 'v') == 0
  assert _run(corpus, tmp_path / 'v', '--seed=1', '--alpha=0.5') == 2
  assert 'alpha: 0.7 stored, 0.5 requested' in capsys.readouterr().err
  assert _run(corpus, tmp_path / 'v', '--alpha=0.5', '--overwrite') == 0


def test_missing_corpus_is_an_error(tmp_path, capsys):
  assert _run(tmp_path / 'none', tmp_path / 'v') == 2
  assert 'The corpus directory does not exist' in capsys.readouterr().err


def test_separate_model_per_language(corpus, tmp_path, capsys):
  assert (
    cli.main(
      [
        'vocab',
        f'--corpus={corpus}',
        f'--output={tmp_path / "v"}',
        '--vocab_sharing=none',
        '--model_type=bpe',
        '--num_merges=8',
        '--extra_ids=2',
      ]
    )
    == 0
  )
  vocabulary = Vocabulary.load(tmp_path / 'v')
  assert vocabulary.spec.sentinel_ids == (7, 8)
  word_counts = [
    stop - start for ((start, stop),) in vocabulary.spec.language_words
  ]
  out = capsys.readouterr().out
  assert f'{9 + sum(word_counts)} tokens, 2 languages' in out
  assert f'  en         {word_counts[0]:>12} words' in out


def test_dry_run_of_separate_models_per_language(corpus, tmp_path, capsys):
  assert (
    _run(
      corpus,
      tmp_path / 'v',
      '--dry_run',
      '--vocab_sharing=shared',
      '--max_sentences=5',
    )
    == 0
  )
  out = capsys.readouterr().out
  assert 'sentences for the model of each language, 32 tokens\n' in out
  assert '  fi                   12            5' in out


@pytest.mark.parametrize(
  'flags, mentioned',
  [
    (['--num_merges=5'], 'size=32 and merges=5'),
    (['--vocab_sharing=none', '--alpha=0.5'], 'Omit --alpha'),
  ],
)
def test_incompatible_flags_are_rejected(
  corpus, tmp_path, capsys, flags, mentioned
):
  assert _run(corpus, tmp_path / 'v', *flags) == 2
  assert mentioned in capsys.readouterr().err


def test_sharded_sampling_gives_the_same_vocabulary(corpus, tmp_path, capsys):
  """Compares one shard with three shards."""
  samples = {1: tmp_path / 'one', 3: tmp_path / 'three'}
  for count, sample in samples.items():
    for index in range(count):
      flags = [
        f'--sample_dir={sample}',
        f'--shard_index={index}',
        f'--num_shards={count}',
      ]
      assert cli.main(['vocab', f'--corpus={corpus}', *flags]) == 0
  assert 'en                   12 sentences' in capsys.readouterr().out
  single_shard, three_shards = (
    _run(corpus, tmp_path / f'v{count}', f'--sample_dir={sample}')
    or Vocabulary.load(tmp_path / f'v{count}')
    for count, sample in samples.items()
  )
  assert single_shard == three_shards
  capsys.readouterr()
  (samples[3] / 'shard-1-of-3.npz').unlink()
  assert _run(corpus, tmp_path / 'v', f'--sample_dir={samples[3]}') == 2
  assert '1/3' in capsys.readouterr().err
  flags = [f'--sample_dir={samples[1]}', '--seed=5']
  assert _run(corpus, tmp_path / 'v', *flags) == 2
  assert_mentions(capsys.readouterr().err, '--seed=0', '--seed=5')


@pytest.mark.parametrize(
  'options',
  [
    [],
    ['--sample_dir=s', '--dry_run'],
    ['--shard_index=0', '--num_shards=2'],
    ['--shard_from_env', '--output=v'],
    *(
      ['--sample_dir=s', '--shard_index=0', '--num_shards=2', option]
      for option in (
        *('--output=v', '--size=9', '--num_merges=9', '--extra_ids=9'),
        *('--vocab_sharing=none', '--model_type=bpe', '--alpha=0.5'),
        *('--byte_fallback', '--character_coverage=0.99', '--languages=x'),
        *('--normalization=x', '--num_threads=2', '--overwrite', '--dry_run'),
      )
    ),
  ],
)
def test_contradictory_options_are_rejected(options):
  with pytest.raises(errors.ConfigError):
    cli.parse('vocab', ['--corpus=c', *options])


@pytest.mark.parametrize('flag', ['--output', '--sample_dir'])
def test_outputs_inside_the_corpus_are_rejected(corpus, tmp_path, capsys, flag):
  """Outputs would be unknown files in the corpus."""
  flags = [f'{flag}={corpus}/mono/new', '--shard_index=0', '--num_shards=1']
  if flag == '--output':
    flags[1:] = ['--size=32']
  assert cli.main(['vocab', f'--corpus={corpus}', *flags]) == 2
  assert_mentions(capsys.readouterr().err, f'{corpus}/mono/new', flag)
  assert not (corpus / 'mono/new').exists()


def test_mixtures_of_a_corpus_give_the_vocabulary_of_the_corpus(
  corpus, tmp_path
):
  """Covers monolingual and parallel text in training and validation splits."""
  pairs = [('ano kiru', 'kiru ano'), ('tuli meso', 'meso tuli')]
  for split in ('train', 'validation'):
    corpus_writer.write_parallel(corpus, ('en', 'fi'), pairs, split=split)
  assert _run(corpus, tmp_path / 'v') == 0
  mixtures = ['--mixture=corpus.mono', '--mixture=corpus.parallel']
  assert _run(corpus, tmp_path / 'm', *mixtures) == 0
  descriptions = [
    (tmp_path / name / 'vocabulary.json').read_bytes() for name in 'vm'
  ]
  assert descriptions[0] == descriptions[1]


def test_vocabulary_of_custom_tasks(tmp_path, monkeypatch, capsys):
  """Lines that the preprocessor drops are neither counted nor sampled."""
  (tmp_path / 'vocab_tasks.py').write_text(
    'import seqio\nimport tensorflow as tf\n'
    'from xlflax.data.seqio_tasks import task_registry\n'
    'def parse(lines):\n'
    "  lines = lines.filter(lambda t: t != 'dropped')\n"
    "  return lines.map(lambda t: {'text': t})\n"
    "task_registry.add_monolingual_task('vocab.sw', seqio.TextLineDataSource(\n"
    "  {'train': 'sw.txt'}), language='sw', preprocessors=[parse])\n"
  )
  (tmp_path / 'sw.txt').write_text('moja mbili\ndropped\ntatu nne\n')
  monkeypatch.chdir(tmp_path)
  flags = ['--mixture=vocab.sw', '--task_module=vocab_tasks.py', '--size=19']
  assert cli.main(['vocab', *flags, '--output=v', '--dry_run']) == 0
  out = capsys.readouterr().out.split('\n')
  assert out[1].split() == ['vocab.sw', 'train', '2']
  assert out[-2].split() == ['sw', '2', '2']
  assert cli.main(['vocab', *flags, '--output=v']) == 0
  vocabulary = Vocabulary.load('v')
  assert vocabulary.spec.languages == ('sw',)
  assert vocabulary.description['training']['sentences'] == {
    'sw': {'available': 2, 'drawn': 2}
  }
  seqio.TaskRegistry.remove('vocab.sw')


def test_text_of_custom_tasks_is_checked(tmp_path, monkeypatch, capsys):
  (tmp_path / 'vocab_script.py').write_text(
    'import seqio\n'
    'from xlflax.data.seqio_tasks import task_registry\n'
    'def parse(lines):\n'
    "  return lines.map(lambda t: {'text': t})\n"
    "task_registry.add_monolingual_task('vocab.ru', seqio.TextLineDataSource(\n"
    "  {'train': 'ru.txt'}), language='ru', preprocessors=[parse])\n"
  )
  (tmp_path / 'ru.txt').write_text('ano kiru tuli meso kala vesi\n')
  monkeypatch.chdir(tmp_path)
  flags = ['--mixture=vocab.ru', '--task_module=vocab_script.py', '--size=19']
  assert cli.main(['vocab', *flags, '--output=v', '--dry_run']) == 0
  [message] = capsys.readouterr().err.splitlines()
  assert_mentions(message, 'vocab.ru', 'Latin', 'Cyrillic')
  seqio.TaskRegistry.remove('vocab.ru')


def test_task_that_tokenizes_its_text_is_rejected():
  task = seqio.TaskRegistry.add(
    'vocab.tokenized',
    seqio.TextLineDataSource({'train': 'none.txt'}),
    output_features={'targets': seqio.Feature(seqio.ByteVocabulary())},
    preprocessors=[seqio.preprocessors.tokenize],
  )
  task_registry.set_task_languages(task.name, ['en'])
  with raises_error(errors.CorpusError, mentions=task.name):
    mixture_text.MixtureText([task.name])
  task_registry.remove_task(task.name)


@pytest.mark.parametrize(
  'options',
  [
    [],
    ['--corpus=c', '--task_module=m'],
    ['--corpus=c', '--tfds_data_dir=d'],
    ['--mixture=m', '--sample_dir=s'],
    ['--mixture=m', '--shard_index=0', '--num_shards=2'],
  ],
)
def test_missing_or_incompatible_text_options_are_rejected(options):
  with pytest.raises(errors.ConfigError):
    cli.parse('vocab', ['--output=v', '--size=32', *options])


def test_vocabulary_is_extended(corpus, tmp_path, capsys):
  assert _run(corpus, tmp_path / 'v') == 0
  base = Vocabulary.load(tmp_path / 'v')
  corpus_writer.write_monolingual(corpus, 'sw', [['watoto wanakuja'] * 8])
  options = [
    f'--extend={tmp_path / "v"}',
    f'--corpus={corpus}',
    f'--output={tmp_path / "more"}',
    '--size=+12',
  ]
  capsys.readouterr()
  assert cli.main(['vocab', *options, '--json']) == 0
  extended = Vocabulary.load(tmp_path / 'more')
  assert len(extended) == len(base) + 12
  assert extended.spec.languages == ('en', 'fi', 'sw')
  (line,) = capsys.readouterr().out.splitlines()
  rows = {row['language']: row for row in json.loads(line)['statistics']}
  assert rows['sw']['tokens'] < rows['sw']['base']['tokens']
  assert rows['fi']['tokens'] == rows['fi']['base']['tokens']
  assert cli.main(['vocab', *options]) == 0
  assert '->' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('options', 'fields'),
  [
    (['--size=+20'], {'mentions': ('--size=+20', '--extend')}),
    # The temperature of T5 in place of its reciprocal.
    (['--size=20', '--alpha=5'], {'got': 5, 'mentions': ('--alpha', 0.2)}),
    (['--extend=v', '--size=20'], {'got': 20, 'mentions': '--extend'}),
    (
      ['--extend=v', '--size=+20', '--alpha=0.5'],
      {'mentions': ('--alpha', '--extend')},
    ),
    (
      ['--size=20', '--new_languages=sw'],
      {'mentions': ('--new_languages', '--extend')},
    ),
    (
      ['--size=20', '--allow_changed_ids'],
      {'mentions': ('--allow_changed_ids', '--extend')},
    ),
  ],
)
def test_incompatible_extension_options_are_rejected(
  corpus, tmp_path, options, fields
):
  arguments = [f'--corpus={corpus}', f'--output={tmp_path / "v"}', *options]
  with raises_error(errors.ConfigError, **fields):
    cli.parse('vocab', arguments)
