"""Submissions of suites, scored by the official XTREME `evaluate.py`."""

import json
import os
import random
import subprocess
import sys

import pytest

from tests.end_to_end import conftest as end_to_end
from tests.official import extended_folder, scorers, xtreme_folder
from xlflax.data.corpus import corpus_writer
from xlflax.data.supervised.sources import beir, xtreme, xtreme_tasks
from xlflax.evaluation.tasks import mteb_tasks

pytestmark = pytest.mark.slow

_GROUPS = {
  'classification': 'classification',
  'tagging': 'structured prediction',
  'qa': 'question answering',
  'retrieval': 'retrieval',
  'all_task': 'all',
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  xtreme = xtreme_folder.Folder(tmp_path_factory.mktemp('xtreme'))
  xtreme.write()
  return xtreme


def _sentences(folder):
  """Returns the Tatoeba sentences by language, used for pretraining."""
  scores = {
    language: (folder.data / f'tatoeba/{language}-en.{language}').read_text()
    for language in xtreme.find_xtreme_task('tatoeba').languages
  }
  scores['en'] = (folder.data / 'tatoeba/fr-en.en').read_text()
  return {key: text.splitlines() for key, text in scores.items()}


@pytest.fixture(scope='module')
def space(folder, tmp_path_factory):
  """A workspace with a small pretrained model, `run`."""
  space = end_to_end.Workspace(tmp_path_factory.mktemp('suite'))
  for language, lines in _sentences(folder).items():
    corpus_writer.write_monolingual(
      space.root / 'corpus', language, [lines * 4]
    )
  space.run(
    'vocab',
    f'--corpus={space.root / "corpus"}',
    f'--output={space.root / "vocabulary"}',
    '--size=120',
  )
  space.run(
    'train',
    '--gin_file=pretrain/mlm.gin',
    '--gin_file=models/tiny.gin',
    '--gin.EncoderConfig.hidden_dim=32',
    '--gin.EncoderConfig.mlp_dim=64',
    '--gin.EncoderConfig.max_position_embeddings=384',
    '--gin.LENGTH=32',
    '--gin.BATCH_SIZE=32',
    '--gin.LEARNING_RATE=3e-3',
    '--gin.WARMUP_STEPS=10',
    '--gin.TRAIN_STEPS=100',
    *space.inputs,
    f'--model_dir={space.root / "run"}',
  )
  return space


def _evaluate(space, name, data, *more):
  """Runs a suite with `xlflax evaluate` and returns its folder."""
  subprocess.run(
    [
      *(sys.executable, '-m', 'xlflax.cli', 'evaluate', f'--suite={name}'),
      f'--data={data}',
      f'--model_dir={space.root / "run"}',
      f'--output={space.root / name}',
      f'--compilation_cache={space.root / "compiled"}',
      '--gin.LEARNING_RATE=3e-3',
      '--gin.EPOCHS=8',
      *more,
    ],
    env=space.environment(),
    check=True,
  )
  return space.root / name


def _official(suite, labels, version):
  """Returns the report of the official program for a suite's submission."""
  script = scorers.find_program('xtreme', 'evaluate.py')
  report = suite.parent / f'{version}.json'
  (submission,) = (suite / 'submission').iterdir()
  subprocess.run(
    [
      *(sys.executable, str(script), f'--prediction_folder={submission}'),
      f'--label_folder={labels}',
      f'--output_file={report}',
      f'--xtreme_version={version}',
    ],
    env=os.environ | {'PYTHONPATH': str(scorers.find_program('seqeval'))},
    check=True,
  )
  return json.loads(report.read_text())


def _ours(suite):
  (model,) = json.loads((suite / 'suite.json').read_text())['models']
  return model


@pytest.fixture(scope='module')
def suite(folder, space):
  return _evaluate(space, 'xtreme', folder.data)


@pytest.fixture(scope='module')
def official(folder, suite):
  return _official(suite, folder.gold, 'xtreme')


@pytest.fixture(scope='module')
def ours(suite):
  return _ours(suite)


@pytest.fixture(scope='module')
def extended(space, tmp_path_factory):
  """XTREME-R folder with rankings written by `xlflax tasks convert`."""
  folder = extended_folder.Folder(tmp_path_factory.mktemp('extended'))
  folder.write()
  for name in ('mewslix', 'lareqa'):
    space.run(
      *('tasks', 'convert', name, f'--input={folder.data / name}'),
      f'--output={folder.data / name / "ranked"}',
    )
  return folder


@pytest.fixture(scope='module')
def extended_suite(extended, space):
  tasks = '--tasks=xcopa,tatoeba,mewslix,lareqa'
  return _evaluate(space, 'xtreme_r', extended.data, tasks)


def _compare(ours, official, metrics, languages):
  """Checks that all scores and their average equal the official ones.

  Args:
    ours: Entry of a task in `suite.json`.
    official: Entry of the same task in the official report.
    metrics: Mapping from the names of xlflax's metrics to those of the official
      script.
    languages: Languages of the task.
  """
  for metric, name in metrics.items():
    named = {
      key.split('/')[1].removesuffix('-en'): 100 * score['mean']
      for key, score in ours['scores'].items()
      if key.split('/')[0] == metric
    }
    named.pop('mean', None)
    assert set(named) == set(languages)
    assert named == pytest.approx(official[name], abs=1e-6)
  assert ours['score'] == pytest.approx(official['avg_metric'], abs=1e-6)
  # Scores of 0 or 100 would make the comparison trivial.
  assert 0 < official['avg_metric'] < 100


@pytest.mark.parametrize('task', xtreme.TASKS)
def test_xtreme_scores_equal_the_official_scores(ours, official, task):
  task_entry = xtreme.find_xtreme_task(task)
  names = {
    'accuracy': ('accuracy',),
    'f1': ('f1',),
    'f1 and exact match': ('f1', 'exact_match'),
  }[task_entry.metric]
  metrics = {name: name for name in names}
  _compare(ours['tasks'][task], official[task], metrics, task_entry.languages)


def test_xtreme_averages_equal_the_official_averages(ours, official):
  assert ours['xtreme'] == pytest.approx(
    {name: official[group] for group, name in _GROUPS.items()}, abs=1e-6
  )


def test_xtreme_r_scores_equal_the_official_scores(extended, extended_suite):
  ours = _ours(extended_suite)['tasks']
  official = _official(extended_suite, extended.gold, 'xtreme-r')
  for task in ('xcopa', 'tatoeba'):
    languages = xtreme.find_xtreme_task(task, 'xtreme-r').languages
    _compare(ours[task], official[task], {'accuracy': 'accuracy'}, languages)
  _compare(
    ours['mewslix'],
    official['mewslix'],
    {'mrr@20': 'map@20'},
    xtreme_tasks.RANKED['mewslix'][1],
  )


@pytest.mark.parametrize(
  'task, metric, part',
  [('mewslix', 'mrr@20', 'test'), ('lareqa', 'map@20', '')],
)
def test_rankings_are_better_than_chance(
  extended, extended_suite, task, metric, part
):
  folder = extended.data / task / 'ranked' / part
  held = beir.BeirDataset(directory=str(folder)).load('all')
  draw = random.Random(0)
  names = list(held.documents)
  run = {
    query: [(name, 0.0) for name in draw.sample(names, len(names))]
    for query in held.queries
  }
  chance = mteb_tasks.score_run(run, held.relevance)[metric].value
  score = _ours(extended_suite)['tasks'][task]['scores'][f'{metric}/mean']
  assert score['mean'] > 2 * chance
