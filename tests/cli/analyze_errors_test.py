"""Tests of invalid text, dictionaries, layers and checkpoints in `analyze`."""

import re

import jax
import jax.numpy as jnp
import pytest

from tests.errors import assert_mentions, raises_error
from tests.slow import mark_slow
from xlflax import cli
from xlflax.cli.analyze import analysis_options
from xlflax.training import train_state
from xlflax.training.checkpointing import checkpoints
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']

_COMMON = ('--batch_size=16', '--compilation_cache=')


@pytest.fixture(scope='module')
def runs(make_run, eval_model, tmp_path_factory):
  """Directory with the runs `good`, and `broken` with NaN parameters."""
  root = tmp_path_factory.mktemp('bad_input')
  make_run(root / 'good', (1,))
  make_run(root / 'broken')
  saved = checkpoints.Checkpoints(
    root / 'broken',
    checkpoints.CheckpointOptions(enable_async_checkpointing=False),
  )
  saved.save(
    train_state.TrainState(
      step=jnp.int32(1),
      opt_state={'m': jnp.zeros(2)},
      ema=(),
      params=jax.tree.map(lambda x: x * jnp.nan, eval_model.params),
      objective_state={},
    ),
    {'seed': 0},
  )
  saved.close()
  return root


@pytest.fixture
def folder(tmp_path, sentences):
  """Directory with text of two languages, a dictionary and alignments."""
  for language in ('de', 'en'):
    (tmp_path / language).write_text(
      ''.join(f'{text}\n' for text in sentences(language, 20))
    )
  (tmp_path / 'more').write_text(
    ''.join(f'{text}\n' for text in sentences('de', 23))
  )
  (tmp_path / 'words').write_text('Hund\tdog\nMilch\tmilk\n1\t1\n2\t2\n')
  (tmp_path / 'links').write_text('0-0 1-1\n' * 20)
  return tmp_path


@pytest.fixture(autouse=True)
def _one_device(monkeypatch):
  """Uses one device, because eight only cost time here."""
  monkeypatch.setattr(jax, 'device_count', lambda: 1)


def _flags(kind, folder, german='de'):
  text = f'{folder / german},{folder / "en"}'
  if kind == 'sentence-retrieval':
    return [
      'sentence-retrieval',
      f'--test=de-en={text}',
      f'--train=de-en={text}',
    ]
  if kind == 'alignment':
    return ['alignment', f'--gold_alignments=de-en={text},{folder / "links"}']
  if kind == 'lexicon-induction':
    return [
      'lexicon-induction',
      f'--text=de={folder / german}',
      f'--text=en={folder / "en"}',
      *(f'--{x}=de-en={folder / "words"}' for x in ('train', 'test')),
    ]
  if kind == 'maps of words':
    return [
      'procrustes',
      f'--text=de-en={text}',
      '--pivot=de',
      f'--alignments=de-en={folder / "links"}',
    ]
  return [kind, f'--text=de-en={text}', '--pivot=de']


def _failure_message(folder, capsys, flags, *extra_flags):
  """Returns the error message and asserts that nothing is written."""
  assert (
    cli.main(
      [
        'analyze',
        flags[0],
        f'--output={folder / "out"}',
        *_COMMON,
        *flags[1:],
        *extra_flags,
      ]
    )
    == 2
  )
  assert not (folder / 'out').exists()
  message = capsys.readouterr().err
  assert 'Traceback' not in message
  return message


_KINDS = (
  'cka',
  'sentence-retrieval',
  'lexicon-induction',
  'alignment',
  'procrustes',
  'maps of words',
)


@pytest.mark.parametrize(
  'kind', mark_slow(_KINDS, ('cka', 'lexicon-induction', 'alignment'))
)
def test_nan_states_are_reported(runs, folder, capsys, kind):
  message = _failure_message(
    folder, capsys, _flags(kind, folder), f'--model_dir={runs / "broken"}'
  )
  assert_mentions(message, 'NaN')


@pytest.mark.parametrize(
  'kind', [x for x in _KINDS if x != 'lexicon-induction']
)
def test_text_of_unequal_length_is_reported(runs, folder, capsys, kind):
  message = _failure_message(
    folder, capsys, _flags(kind, folder, 'more'), f'--model_dir={runs / "good"}'
  )
  if kind == 'alignment':
    assert_mentions(message, 23, 20)
  else:
    assert_mentions(message, f'23 lines in {folder / "more"}')


@pytest.mark.parametrize(
  'kind', [x for x in _KINDS if x != 'lexicon-induction']
)
def test_unknown_layer_is_reported(runs, folder, capsys, kind):
  flag = '--layer' if kind == 'alignment' else '--layers'
  message = _failure_message(
    folder,
    capsys,
    _flags(kind, folder),
    f'--model_dir={runs / "good"}',
    f'{flag}=3',
  )
  assert_mentions(message, 3, 0, 2)


def test_unknown_layer_of_lexicon_induction_is_reported(runs, folder, capsys):
  assert (
    cli.main(
      [
        'analyze',
        *_flags('lexicon-induction', folder),
        *_COMMON,
        '--layers=3',
        f'--model_dir={runs / "good"}',
        f'--output={folder / "out"}',
      ]
    )
    == 2
  )
  assert_mentions(capsys.readouterr().err, 'good de-en at step 1, layers', 3)


def test_dictionary_without_known_words_is_reported(folder, capsys):
  for language in ('de', 'en'):
    (folder / f'{language}.vec').write_text('2 2\nx 1 2\ny 3 4\n')
  message = _failure_message(
    folder,
    capsys,
    [
      'lexicon-induction',
      *_flags('lexicon-induction', folder)[3:],
      *(f'--vec={x}={folder / x}.vec' for x in ('de', 'en')),
    ],
  )
  assert_mentions(message, 'de-en')


@pytest.mark.parametrize(
  'flags, option',
  [
    (['cka', '--text=de-en=x', '--languages=de'], '--languages'),
    (
      [
        'sentence-retrieval',
        '--test=de-en=x',
        '--train=de-en=x',
        '--languages=de',
      ],
      '--languages',
    ),
    (['sentence-retrieval', '--test=corpus', '--train_pairs=9'], '--train'),
    (
      [
        'procrustes',
        '--text=de-en=x',
        '--alignments=de-en=x',
        '--activation_cache=x',
      ],
      '--activation_cache',
    ),
    (['alignment', '--text=de-en=x', '--index_base=1'], '--index_base'),
    (
      ['alignment', '--text=de-en=x', '--gold_alignments=de-en=x'],
      '--gold_alignments',
    ),
    *(
      (
        ['lexicon-induction', '--train=de-en=x', '--test=de-en=x', option],
        option.partition('=')[0],
      )
      for option in (
        '--layers=1',
        '--max_length=9',
        '--max_lines=2',
        '--min_count=2',
        '--activation_cache=x',
      )
    ),
  ],
)
def test_options_without_effect(flags, option):
  with raises_error(errors.ConfigError, mentions=option):
    cli.parse('analyze', [*flags, '--model_dir=x', '--output=out'])


def test_missing_vectors_of_a_language_are_reported(folder, capsys):
  flags = ['lexicon-induction', '--train=de-en=x', '--test=de-en=x']
  message = _failure_message(
    folder, capsys, [*flags, '--vec=de=x'], '--model_dir=nowhere'
  )
  assert_mentions(message, 'de')


@pytest.mark.parametrize(
  'item', ['de=de.txt,en=en.txt', 'de-en=a.de,a.en,de-fr=b.de,b.fr']
)
def test_several_files_in_one_value_are_rejected(item):
  with raises_error(errors.ConfigError, got=item, where='--text'):
    analysis_options.parse_named_files([item], '--text')


def test_text_without_a_model_is_rejected():
  flags = ['lexicon-induction', '--train=de-en=x', '--test=de-en=x']
  flags += ['--vec=de=x', '--vec=en=x', '--text=de=x', '--output=out']
  with raises_error(errors.ConfigError, mentions=('--text', '--model_dir')):
    cli.parse('analyze', flags)


def test_alignments_are_input_of_procrustes(runs, folder, capsys):
  """Passes links in the Pharaoh format from one command to the other."""
  model, text = (
    f'--model_dir={runs / "good"}',
    (f'--text=de-en={folder / "de"},{folder / "en"}'),
  )

  def run(kind, *flags):
    assert (
      cli.main(
        [
          'analyze',
          kind,
          f'--output={folder / kind}',
          *_COMMON,
          model,
          text,
          *flags,
        ]
      )
      == 0
    )

  run('alignment', '--methods=argmax', '--layer=1')
  links = folder / 'alignment' / 'good.1.de-en.argmax.txt'
  lines = links.read_text().splitlines()
  assert len(lines) == 20 and all(
    link.count('-') == 1 for line in lines for link in line.split()
  )
  run('procrustes', '--pivot=de', f'--alignments=de-en={links}', '--layers=1')
  from_one = folder / 'from_one.txt'
  from_one.write_text(
    re.sub(r'\d+', lambda n: str(int(n[0]) + 1), '\n'.join(lines))
  )
  command = ['analyze', 'procrustes', f'--output={folder / "wrong"}', *_COMMON]
  command += [model, text, '--pivot=de', f'--alignments=de-en={from_one}']
  assert cli.main([*command, '--layers=1']) != 0
  assert_mentions(capsys.readouterr().err, 'word 7', '0 to 6')
  rows = (folder / 'procrustes' / 'procrustes.csv').read_text().splitlines()
  assert len(rows) == 2 and ',1,words,' in rows[1]
  assert (folder / 'procrustes' / 'good.de-en.1.layer1.npz').exists()
