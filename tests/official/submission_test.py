"""A suite's submission, scored by XTREME's `evaluate.py` as it is."""

import json
import os
import subprocess
import sys

import pytest

from tests.end_to_end import conftest as end_to_end
from tests.official import scorers, xtreme_folder
from xlflax.data.corpus import writer as corpus_writer
from xlflax.data.labelled import xtreme

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
  made = xtreme_folder.Folder(tmp_path_factory.mktemp('xtreme'))
  made.write()
  return made


def _sentences(folder):
  """Language -> its side of Tatoeba; what the model is pretrained on."""
  found = {
    language: (folder.data / f'tatoeba/{language}-en.{language}').read_text()
    for language in xtreme.task('tatoeba').languages
  }
  found['en'] = (folder.data / 'tatoeba/fr-en.en').read_text()
  return {key: text.splitlines() for key, text in found.items()}


@pytest.fixture(scope='module')
def suite(folder, tmp_path_factory):
  """The folder of a suite that `xlflax evaluate` ran on a small model."""
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
    '--gin.EncoderConfig.max_length=384',
    '--gin.LENGTH=32',
    '--gin.BATCH_SIZE=32',
    '--gin.LEARNING_RATE=3e-3',
    '--gin.WARMUP_STEPS=10',
    '--gin.TRAIN_STEPS=100',
    *space.inputs,
    f'--model_dir={space.root / "run"}',
  )
  subprocess.run(
    [
      *(sys.executable, '-m', 'xlflax.cli', 'evaluate', '--suite=xtreme'),
      f'--data={folder.data}',
      f'--model_dir={space.root / "run"}',
      f'--output={space.root / "suite"}',
      f'--compilation_cache={space.root / "compiled"}',
      '--gin.LEARNING_RATE=3e-3',
      '--gin.EPOCHS=8',
    ],
    env=space.environment(),
    check=True,
  )
  return space.root / 'suite'


@pytest.fixture(scope='module')
def official(folder, suite, tmp_path_factory):
  """What the official program writes of the submission."""
  script = scorers.path('xtreme', 'evaluate.py')
  report = tmp_path_factory.mktemp('official') / 'scores.json'
  (submission,) = (suite / 'submission').iterdir()
  subprocess.run(
    [
      *(sys.executable, str(script), f'--prediction_folder={submission}'),
      f'--label_folder={folder.gold}',
      f'--output_file={report}',
    ],
    env=os.environ | {'PYTHONPATH': str(scorers.path('seqeval'))},
    check=True,
  )
  return json.loads(report.read_text())


@pytest.fixture(scope='module')
def ours(suite):
  (model,) = json.loads((suite / 'suite.json').read_text())['models']
  return model


@pytest.mark.parametrize('task', xtreme.TASKS)
def test_every_number_is_the_official_one(ours, official, task):
  scores = ours['tasks'][task]['scores']
  expected = {
    f'{metric}/{language}': value
    for metric, by_language in official[task].items()
    if not metric.startswith('avg')
    for language, value in by_language.items()
  }
  languages = {name.split('/')[1] for name in expected}
  assert languages == set(xtreme.task(task).languages)
  assert {
    name: 100 * found['mean']
    for name, found in scores.items()
    if name in expected
  } == pytest.approx(
    {name: value for name, value in expected.items() if name in scores},
    abs=1e-6,
  )
  assert ours['tasks'][task]['score'] == pytest.approx(
    official[task]['avg_metric'], abs=1e-6
  )
  # Neither all right nor all wrong: the comparison says something.
  assert 0 < official[task]['avg_metric'] < 100


def test_averages_are_the_official_ones(ours, official):
  assert ours['xtreme'] == pytest.approx(
    {name: official[group] for group, name in _GROUPS.items()}, abs=1e-6
  )
