"""Suites of the papers' tables on synthetic data in the publishers' formats."""

import json
import pathlib

import numpy as np
import pytest

from studies.synthetic import __main__ as synthetic
from tests.end_to_end import conftest as end_to_end
from tests.papers import table_runs
from xlflax import cli
from xlflax.data.supervised.sources import xtreme

pytestmark = pytest.mark.slow

# The synthetic language that is written as French.
_FRENCH = table_runs.SYNTHETIC_LANGUAGE
_TINY = ('--gin.LENGTH=24', '--gin.MAX_EXAMPLES=48')


def _write_xnli(toy: pathlib.Path, data: pathlib.Path) -> None:
  """Writes the files of XNLI-1.0.zip and XNLI-MT-1.0.zip."""
  for language, code in (('en', 'en'), ('fr', _FRENCH)):
    table_runs.write_lines(
      data / f'XNLI-MT-1.0/multinli/multinli.train.{language}.tsv',
      [
        'premise\thypo\tlabel',
        *(
          line.replace('contradiction', 'contradictory')
          for line in table_runs.read_lines(toy / f'nli/train.{code}.tsv')
        ),
      ],
    )
  for split in ('dev', 'test'):
    lines = ['language\tgold_label\tsentence1\tsentence2']
    for language, code in (('en', 'en'), ('fr', _FRENCH)):
      for line in table_runs.read_lines(toy / f'nli/{split}.{code}.tsv'):
        premise, hypothesis, label = line.split('\t')
        lines.append('\t'.join((language, label, premise, hypothesis)))
    table_runs.write_lines(data / f'XNLI-1.0/xnli.{split}.tsv', lines)


def _write_wikiann(toy: pathlib.Path, data: pathlib.Path) -> None:
  """Writes files of WikiAnn, whose words have a language prefix."""
  for language, code in (('en', 'en'), ('fr', _FRENCH)):
    for split in ('train', 'dev', 'test'):
      lines = [
        f'{language}:{line}' if line else ''
        for line in table_runs.word_labels(
          toy / f'ner/{split}.{code}.iob2', label_column=2
        )
      ]
      table_runs.write_lines(data / f'wikiann/{language}/{split}', lines)


def _write_xtreme_xnli(toy: pathlib.Path, data: pathlib.Path) -> None:
  """Writes XNLI in XTREME's directory, with labels of the test sets.

  All languages except English have the same text.
  """
  for language in xtreme.find_xtreme_task('xnli').languages:
    code = 'en' if language == 'en' else _FRENCH
    for split in ('train', 'dev', 'test') if language == 'en' else ('test',):
      table_runs.copy_file(
        toy / f'nli/{split}.{code}.tsv', data / f'xnli/{split}-{language}.tsv'
      )


@pytest.fixture(scope='module')
def work(tmp_path_factory) -> pathlib.Path:
  """Data in the publishers' formats, and a pretrained run."""
  root = tmp_path_factory.mktemp('tables')
  toy = root / 'toy'
  arguments = [
    f'--output={toy}',
    f'--languages=en,{_FRENCH}',
    '--sentences=200',
    '--examples=60',
    '--held_out=30',
  ]
  assert not synthetic.main(arguments)
  for write in (_write_xnli, _write_wikiann):
    write(toy, root / 'data')
  _write_xtreme_xnli(toy, root / 'data')
  vocabulary = f'{root}/vocabulary'
  assert not cli.main(
    [
      'vocab',
      f'--corpus={toy}/corpus',
      f'--output={vocabulary}',
      '--size=400',
      '--character_coverage=1',
    ]
  )
  assert not cli.main(
    [
      'train',
      *end_to_end.TINY_MLM,
      f'--corpus={toy}/corpus',
      f'--vocabulary={vocabulary}',
      f'--model_dir={root}/pretrained',
      '--gin.TRAIN_STEPS=6',
    ]
  )
  return root


def _make_runs(work: pathlib.Path, paper: str, *names: str) -> str:
  """Returns a directory in which the runs have the names of the table."""
  return table_runs.copy_runs(
    work / 'pretrained', work / 'runs' / paper, *names
  )


def _evaluate(work, suite, runs, tasks, *flags) -> pathlib.Path:
  return table_runs.evaluate_suite(
    suite,
    work / 'data',
    runs,
    work / 'out' / suite.replace('/', '_'),
    f'--tasks={",".join(tasks)}',
    *_TINY,
    *flags,
  )


def _best_two(grid: pathlib.Path, task: str, metric: str) -> float:
  """Returns the mean test score of the two best settings, in points."""
  trials = json.loads((grid / 'grid.json').read_text())['trials']
  names = [trial['directory'] for trial in trials]
  dev_scores = np.array([trial['value'] for trial in trials])
  assert len(trials) == 6
  assert len(set(dev_scores)) > 1
  best = np.argsort(-dev_scores, kind='stable')[:2]
  scores = np.array(
    [
      table_runs.read_scores(grid / 'trials' / names[i], task, metric)
      for i in best
    ]
  )
  assert scores.shape == (2, 1)
  return 100 * scores.mean()


def test_ecs_table_1_averages_the_two_best_settings(work, capsys):
  """The table contains the mean of the two settings with the best dev scores."""
  runs = _make_runs(work, 'ecs', 'default_en_fr')
  output = _evaluate(
    work,
    'papers/ecs/table1',
    runs,
    ('ner_fr',),
    '--gin.EPOCHS=30',
    '--gin.NUM_EVALUATIONS=10',
  )
  table = table_runs.read_table(output)
  (folder,) = output.glob('default_en_fr@*')
  score = _best_two(folder / 'ner_fr', 'ner', 'f1/fr')
  line = table['default', 'NER fr']
  assert float(line['published']) == 79.8
  assert float(line['measured']) == pytest.approx(score)
  assert float(line['differences']) == pytest.approx(score - 79.8)
  assert table['default', 'NER avg']['measured'] == ''  # No ru and zh.
  printed = capsys.readouterr().out
  assert f'{score - 79.8:+.1f}' in printed


def test_ppa_table_2_compares_code_switched_training(work):
  """Compares code-switched translate-train with the same model without it."""
  runs = _make_runs(work, 'ppa', '250k', 'mbert')
  output = _evaluate(
    work, 'papers/ppa/table2', runs, ('xnli_fr', 'xnli_fr_no_cs')
  )
  table = table_runs.read_table(output)
  for row, run, task in (
    ('250k_tt', '250k', 'xnli_fr'),
    ('mbert_tt', 'mbert', 'xnli_fr_no_cs'),
  ):
    (folder,) = output.glob(f'{run}@*')
    [score] = table_runs.read_scores(
      folder / task / 'trials/single', 'xnli', 'accuracy/fr'
    )
    assert float(table[row, 'fr']['measured']) == pytest.approx(100 * score)
    assert table[row, 'en']['measured'] == ''
  assert not list(output.glob('250k@*/xnli_fr_no_cs'))


def test_metaxlm_table_1_averages_languages_and_seeds(work):
  """Scores are averaged over languages and five seeds."""
  runs = _make_runs(work, 'metaxlm', 'xlm')
  output = _evaluate(
    work, 'papers/metaxlm/table1', runs, ('xnli',), '--gin.EPOCHS=2'
  )
  languages = xtreme.find_xtreme_task('xnli').languages
  scores = np.array(
    [
      [
        score
        for language in languages
        for score in table_runs.read_scores(
          trial, 'xnli', f'accuracy/{language}'
        )
      ]
      for seed in range(5)
      for trial in output.glob(f'xlm@*/xnli/trials/SEED={seed}')
    ]
  )
  assert scores.shape == (5, len(languages))
  line = table_runs.read_table(output)['xlm', 'XNLI']
  assert float(line['measured']) == pytest.approx(100 * scores.mean())
  assert float(line['differences']) == pytest.approx(100 * scores.mean() - 57.9)
