"""Text, dictionaries, layers and checkpoints that `xlflax analyze` can't use."""

import re

import jax
import jax.numpy as jnp
import pytest

from tests.slow import mark_slow
from xlflax import cli
from xlflax.training import train_state
from xlflax.training.checkpointing import checkpoints

pytest_plugins = ['tests.evaluation.fixtures']

_COMMON = ('--batch_size=16', '--compilation_cache=')


@pytest.fixture(scope='module')
def runs(make_run, subject, tmp_path_factory):
  """The runs `good`, and `broken`, whose parameters are NaN."""
  root = tmp_path_factory.mktemp('bad_input')
  make_run(root / 'good', (1,))
  make_run(root / 'broken')
  saved = checkpoints.Checkpoints(
    root / 'broken', checkpoints.CheckpointOptions(asynchronous=False)
  )
  saved.save(
    train_state.TrainState(
      step=jnp.int32(1),
      opt_state={'m': jnp.zeros(2)},
      ema=(),
      params=jax.tree.map(lambda x: x * jnp.nan, subject.params),
      objective_state={},
    ),
    {'seed': 0},
  )
  saved.close()
  return root


@pytest.fixture
def folder(tmp_path, sentences):
  """Text of two languages, a dictionary, and links."""
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
  """Eight devices bring nothing here but time."""
  monkeypatch.setattr(jax, 'device_count', lambda: 1)


def _flags(kind, folder, german='de'):
  text = f'{folder / german},{folder / "en"}'
  if kind == 'sentences':
    return ['sentences', f'--test=de-en={text}', f'--train=de-en={text}']
  if kind == 'alignment':
    return ['alignment', f'--links=de-en={text},{folder / "links"}']
  if kind == 'words':
    return [
      'words',
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


def _fails(folder, capsys, flags, *more):
  """What is said; nothing is written."""
  assert (
    cli.main(
      [
        'analyze',
        flags[0],
        f'--output={folder / "out"}',
        *_COMMON,
        *flags[1:],
        *more,
      ]
    )
    == 2
  )
  assert not (folder / 'out').exists()
  said = capsys.readouterr().err
  assert 'Traceback' not in said
  return said


_KINDS = (
  'cka',
  'sentences',
  'words',
  'alignment',
  'procrustes',
  'maps of words',
)


@pytest.mark.parametrize(
  'kind', mark_slow(_KINDS, ('cka', 'words', 'alignment'))
)
def test_states_that_are_nan(runs, folder, capsys, kind):
  said = _fails(
    folder, capsys, _flags(kind, folder), f'--model_dir={runs / "broken"}'
  )
  assert 'is not finite. Got: NaN or infinity' in said
  assert 'What to do: see whether the checkpoint itself is finite' in said


@pytest.mark.parametrize('kind', [x for x in _KINDS if x != 'words'])
def test_languages_of_unequal_length(runs, folder, capsys, kind):
  said = _fails(
    folder, capsys, _flags(kind, folder, 'more'), f'--model_dir={runs / "good"}'
  )
  assert ('unequal lengths. Got: ' in said and 'more:21' in said) or (
    kind == 'alignment' and '23' in said and '20' in said
  )


@pytest.mark.parametrize('kind', [x for x in _KINDS if x != 'words'])
def test_a_layer_that_does_not_exist(runs, folder, capsys, kind):
  flag = '--layer' if kind == 'alignment' else '--layers'
  said = _fails(
    folder,
    capsys,
    _flags(kind, folder),
    f'--model_dir={runs / "good"}',
    f'{flag}=3',
  )
  assert (
    'The model has no such layer. Got: 3. Expected: 0 (embeddings) to 2' in said
  )


def test_embeddings_are_not_lost_with_a_layer(runs, folder, capsys):
  assert (
    cli.main(
      [
        'analyze',
        *_flags('words', folder),
        *_COMMON,
        '--layers=3',
        f'--model_dir={runs / "good"}',
        f'--output={folder / "out"}',
      ]
    )
    == 2
  )
  assert (
    'good de-en at step 1, layers: The model has no such layer. Got: 3.'
    in capsys.readouterr().err
  )


def test_a_dictionary_of_other_words(folder, capsys):
  for language in ('de', 'en'):
    (folder / f'{language}.vec').write_text('2 2\nx 1 2\ny 3 4\n')
  said = _fails(
    folder,
    capsys,
    [
      'words',
      *_flags('words', folder)[3:],
      *(f'--vec={x}={folder / x}.vec' for x in ('de', 'en')),
    ],
  )
  assert (
    'No word of the dictionary can be asked for' in said
    and 'What to do: look whether both are lowercased' in said
  )


@pytest.mark.parametrize(
  'flags, text',
  [
    (
      ['cka', '--text=de-en=x', '--languages=de'],
      'Without a directory of parallel text a flag has no effect. '
      'Got: --languages',
    ),
    (
      ['sentences', '--test=de-en=x', '--train=de-en=x', '--languages=de'],
      'Got: --languages',
    ),
    (
      ['procrustes', '--text=de-en=x', '--alignments=de-en=x', '--states=x'],
      'States of words in context are not kept. Got: --states',
    ),
    (
      ['alignment', '--text=de-en=x', '--first_index=1'],
      'Without --links a flag has no effect. Got: --first_index',
    ),
    (
      [
        'words',
        '--train=de-en=x',
        '--test=de-en=x',
        '--layers=1',
        '--max_length=9',
        '--min_count=2',
        '--states=x',
      ],
      'Without --text a flag has no effect. Got: --layers, --max_length, '
      '--min_count, --states. What to do: give --text too, or leave the flag out',
    ),
    (
      ['words', '--train=de-en=x', '--test=de-en=x', '--vec=de=x'],
      'Word vectors of a language have no counterpart. Got: de',
    ),
  ],
)
def test_flags_without_effect(folder, capsys, flags, text):
  assert text in _fails(folder, capsys, flags, '--model_dir=nowhere')


def test_text_without_a_model(folder, capsys):
  said = _fails(
    folder,
    capsys,
    [
      'words',
      '--train=de-en=x',
      '--test=de-en=x',
      '--vec=de=x',
      '--vec=en=x',
      '--text=de=x',
    ],
  )
  assert 'Without --model_dir or --series a flag has no effect' in said


def test_links_found_by_one_command_are_mapped_by_another(runs, folder, capsys):
  """Text, links in Pharaoh's format, maps of words in context."""
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
  assert (
    'A link names a word that its sentence lacks' in capsys.readouterr().err
  )
  rows = (folder / 'procrustes' / 'procrustes.csv').read_text().splitlines()
  assert len(rows) == 2 and ',1,words,' in rows[1]
  assert (folder / 'procrustes' / 'good.de-en.1.layer1.npz').exists()
