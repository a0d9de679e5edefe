"""Tests of `xlflax analyze` on a tiny model."""

import json

import jax
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax import cli
from xlflax.cli import analyze
from xlflax.cli.analyze import analysis_options
from xlflax.evaluation import hidden_states
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.fixture(scope='module')
def run(make_run, tmp_path_factory):
  return str(make_run(tmp_path_factory.mktemp('analyze') / 'tiny', (1, 2)))


@pytest.fixture(autouse=True)
def _one_device(monkeypatch):
  """Uses one device, because eight only cost time here."""
  monkeypatch.setattr(jax, 'device_count', lambda: 1)


def _analyze(subcommand, output, *flags):
  flags = ('--batch_size=8', '--compilation_cache=', *flags)
  return cli.main(['analyze', subcommand, f'--output={output}', *flags])


def _rows(output):
  return json.loads((output / 'analysis.json').read_text())['rows']


def test_cka_writes_and_prints_results(run, corpus, tmp_path, capsys):
  out = tmp_path / 'out'
  flags = [
    f'--model_dir={run}',
    f'--text={corpus}',
    '--languages=de',
    f'--activation_cache={tmp_path / "states"}',
  ]
  assert _analyze('cka', out, *flags) == 0
  rows = _rows(out)
  assert {(row['series'], row['pair'], row['sentences']) for row in rows} == {
    (name, 'en-de', 40) for name in ('tiny', 'random encoder')
  }
  assert len(rows) == 2 * 9
  assert all(-1e-6 < row['cka'] < 1 + 1e-6 for row in rows)
  page = (out / 'report.html').read_text().replace('\\\n', ' ')
  assert f'xlflax analyze cka --output={out}' in ' '.join(page.split())
  assert '| layer 2 |' in capsys.readouterr().out
  assert {path.name for path in out.iterdir()} >= {
    'cka.csv',
    'layers.png',
    'layers.csv',
    'matrix.en-de.png',
  }
  assert len(list((tmp_path / 'states').iterdir())) == 3


@pytest.mark.slow
def test_interrupted_analysis_is_resumed(run, sentences, tmp_path, monkeypatch):
  """Completed hidden states are not computed again."""
  texts = []
  for first, second in (('en', 'de'), ('en', 'en')):
    texts.append(f'--text={first}-{second}={tmp_path / second}.tsv')
    (tmp_path / f'{second}.tsv').write_text(
      ''.join(
        f'{a}\t{b}\n'
        for a, b in zip(
          sentences(first, 12), sentences(second, 12), strict=True
        )
      )
    )
  flags = [
    f'--models=model={run}',
    f'--models=random={run},{run}@untrained',
    f'--activation_cache={tmp_path / "states"}',
    '--estimator=debiased',
    '--layer_pairs=diagonal',
    *texts,
  ]
  read = []

  def interrupt_third_call(eval_model, texts, *args, **settings):
    read.append(texts[0])
    if len(read) == 3:
      raise KeyboardInterrupt
    return sentence_states(eval_model, texts, *args, **settings)

  sentence_states = hidden_states.sentence_states
  monkeypatch.setattr(hidden_states, 'sentence_states', interrupt_third_call)
  assert _analyze('cka', tmp_path / 'out', *flags) == 130
  assert not (tmp_path / 'out').exists() and len(read) == 3
  assert _analyze('cka', tmp_path / 'out', *flags) == 0
  # The states of the model exist. Two of the random encoder remain.
  assert len(read) == 5
  bounds = {
    (row['series'], row['pair'], row['first_layer']): row['cka']
    for row in _rows(tmp_path / 'out')
  }
  assert len(bounds) == 12
  for layer in range(3):
    assert bounds['model', 'en-en', layer] == pytest.approx(1, abs=1e-4)
    assert bounds['random', 'en-en', layer] < 0.99


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_devices(
  run, corpus, tmp_path, monkeypatch
):
  flags = [
    f'--model_dir={run}',
    '--no_random_baseline',
    f'--text={corpus}',
    '--languages=de',
    '--layer_pairs=diagonal',
  ]
  results = []
  for count in (1, 8):
    monkeypatch.setattr(jax, 'device_count', lambda n=count: n)
    assert _analyze('cka', tmp_path / str(count), *flags) == 0
    results.append([row['cka'] for row in _rows(tmp_path / str(count))])
  assert results[1] == pytest.approx(results[0], abs=1e-5)


def test_sentence_retrieval_of_all_checkpoints(run, corpus, tmp_path):
  out = tmp_path / 'out'
  assert (
    _analyze(
      'sentence-retrieval',
      out,
      f'--models=a={run}',
      f'--test={corpus}',
      f'--train={corpus}@train',
      '--languages=de',
      '--checkpoint_steps=all',
      '--layers=-1',
    )
    == 0
  )
  assert [
    (row['step'], row['mapping'], row['layer'], row['learned_from'])
    for row in _rows(out)
  ] == [
    (step, mapping, 2, pairs)
    for step in (1, 2)
    for mapping, pairs in (('none', 0), ('procrustes', 60))
  ]


def test_failing_part_sets_the_exit_code(run, corpus, tmp_path, capsys):
  valid_file = tmp_path / 'good.tsv'
  valid_file.write_text('a\tb\nc d\te\nf\tg\n')
  assert (
    _analyze(
      'cka',
      tmp_path / 'out',
      f'--model_dir={run}',
      '--no_random_baseline',
      f'--text=en-de={valid_file}',
      '--text=en-fr=nowhere.tsv',
    )
    == 2
  )
  assert_mentions(capsys.readouterr().err, 'en-fr')
  assert (
    _analyze(
      'cka',
      tmp_path / 'out',
      f'--model_dir={run}',
      f'--text=en-de={valid_file}',
      '--layers=7',
    )
    == 2
  )
  assert_mentions(capsys.readouterr().err, 7)


@pytest.mark.parametrize(
  'flags, fields',
  [
    (['cka', '--text=x'], {'mentions': ('--model_dir', '--models')}),
    (
      ['cka', '--text=x', '--model_dir=y', '--checkpoint_steps=some'],
      {'got': 'some', 'mentions': '--checkpoint_steps'},
    ),
    (
      ['cka', '--text=x', '--model_dir=y', '--layers=1.5'],
      {'got': '1.5', 'mentions': '--layers'},
    ),
    (
      ['cka', '--text=en=x', '--model_dir=y'],
      {'got': 'en=x', 'where': '--text'},
    ),
    (
      ['cka', '--text=en-fr=a,b,c', '--model_dir=y'],
      {'got': 'a,b,c', 'where': '--text'},
    ),
    (['cka', '--text=a=x', '--text=a=y', '--model_dir=z'], {'got': 'a=y'}),
    (
      ['alignment', '--model_dir=y'],
      {'mentions': ('--gold_alignments', '--text', 'neither')},
    ),
    (
      ['alignment', '--model_dir=y', '--text=a-b=x', '--methods=argmx'],
      {'mentions': ('--methods', 'argmx')},
    ),
    (
      [
        'lexicon-induction',
        '--model_dir=y',
        '--train=en-fr=x',
        '--test=en-de=x',
      ],
      {'mentions': ('en-fr', 'en-de')},
    ),
    (
      [
        'lexicon-induction',
        '--model_dir=y',
        '--train=en-fr=x',
        '--test=en-fr=x',
        '--text=en=nowhere',
      ],
      {'got': 'nowhere', 'mentions': '--text'},
    ),
    (
      [
        'transfer',
        '--head_model=x',
        '--head_model=y',
        '--alignment_map=x',
        '--target_model=z',
        '--test=fr=x',
      ],
      {'mentions': ('--alignment_map', '--head_model', '1 and 2')},
    ),
    (['learning-curves'], {'mentions': '--model_dir'}),
    (
      ['transfer-matrix', '--result=a=x', '--result=a=y'],
      {'got': 'a=y', 'mentions': '--result'},
    ),
    (['transfer-matrix', '--result=nowhere'], {'mentions': 'nowhere'}),
  ],
)
def test_invalid_options_are_rejected(tmp_path, monkeypatch, flags, fields):
  monkeypatch.chdir(tmp_path)
  with raises_error(errors.XlflaxError, status=2, **fields):
    cli.parse('analyze', [*flags, f'--output={tmp_path / "out"}'])()
  assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('subcommand', analyze.SUBCOMMANDS)
def test_help_of_subcommands(capsys, subcommand):
  assert cli.main(['analyze', subcommand, '--help']) == 0
  assert '--output' in capsys.readouterr().out


def test_load_pairs_accepts_all_formats(tmp_path):
  def pairs(*items):
    return analysis_options.load_pairs(items, '--text')

  assert pairs('fr-en=a.tsv', 'en-de=a,b').pairs() == (
    ('en', 'fr'),
    ('en', 'de'),
  )
  assert pairs('en=a', 'fr=b', 'ru=c').pairs() == (('en', 'fr'), ('en', 'ru'))
  (tmp_path / 'tatoeba.deu-eng.deu').write_text('a\n')
  assert pairs(str(tmp_path)).pairs() == (('en', 'de'),)
  with pytest.raises(errors.CorpusError, match='does not exist'):
    pairs('nowhere@train').pairs()
