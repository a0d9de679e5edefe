"""Test data of suites is checked before the first fine-tuning run."""

import logging

import pytest

from tests.finetuning import fakes
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import eval_task, gold_labels
from xlflax.evaluation.tasks import mining_task
from xlflax.suites import evaluate_suite, suite_config

pytest_plugins = ['tests.finetuning.fixtures']

_TASK = """
from __gin__ import dynamic_registration
from tests.finetuning import fakes
from xlflax import evaluate
from xlflax.data.supervised.sources import xtreme
from xlflax.evaluation.tasks import classification_task
include '{training}'
DATA = %gin.REQUIRED
INIT_STEP = None
evaluate.evaluate.steps = (%INIT_FROM, %INIT_STEP)
evaluate.evaluate.tasks = [@classification_task.Classification()]
evaluate.evaluate.model_dir = %DATA
classification_task.Classification:
  name = '{name}'
  source = @xtreme.xtreme_examples()
xtreme.xtreme_examples:
  directory = %DATA
  name = '{name}'
"""


@pytest.fixture
def make_suite(tmp_path, training_gin, fake_training):
  """Returns a function that creates a suite of XTREME tasks with fake training.

  The fake trainer copies a run without a head, so every test fails.
  """
  del fake_training

  def make(*names):
    for name in names:
      (tmp_path / f'{name}.gin').write_text(
        _TASK.format(training=training_gin, name=name)
      )
    return suite_config.Suite(
      name='xtreme',
      tasks=tuple(
        suite_config.SuiteTask(
          name=name,
          family='classification',
          gin_file=str(tmp_path / f'{name}.gin'),
          trials=name,
        )
        for name in names
      ),
    )

  return make


@pytest.fixture
def write_files(tmp_path):
  """Returns a function that writes test files of an XTREME task by language."""

  def write(task, **texts):
    folder = tmp_path / 'data' / task
    folder.mkdir(parents=True)
    for language, text in texts.items():
      (folder / f'test-{language}.tsv').write_text(text)

  return write


_LABELED = 'a dog\tthe cat\tneutral\n'
_BLIND = 'a dog\tthe cat\n'


def _run(suite, runs, tmp_path, caplog, **fields):
  """Runs a suite and returns its warnings before the first training."""
  messages = []

  class Recorder(logging.Handler):
    def emit(self, record):
      messages.append((record.getMessage(), record.levelno, len(fakes.CALLS)))

  fakes.CALLS.clear()
  logger, handler = logging.getLogger('xlflax'), Recorder()
  logger.addHandler(handler)
  with caplog.at_level(logging.INFO):
    evaluate_suite.evaluate_suite(
      suite=suite,
      model_dirs=runs,
      data=str(tmp_path / 'data'),
      output=str(tmp_path / 'out'),
      **fields,
    )
  logger.removeHandler(handler)
  assert fakes.CALLS
  return [
    (text, num_calls)
    for text, level, num_calls in messages
    if level == logging.WARNING
  ]


@pytest.mark.slow
def test_missing_labels_are_reported_before_fine_tuning(
  make_suite, make_run, write_files, tmp_path, caplog
):
  write_files('xnli', en=_LABELED, de=_BLIND, fr=_LABELED + 'a\tb\t\n')
  write_files('pawsx', en=_BLIND)
  run = str(make_run(tmp_path / 'mlm', [10]))
  warnings = _run(make_suite('xnli', 'pawsx'), [run], tmp_path, caplog)
  (unlabeled,) = [
    (text, num_calls) for text, num_calls in warnings if 'gold label' in text
  ]
  text, num_calls = unlabeled
  assert num_calls == 0
  for name in ('xnli (de, fr (1 of 2 labeled))', 'pawsx (en)'):
    assert name in text


def test_unreadable_files_are_reported_before_fine_tuning(
  make_suite, make_run, write_files, tmp_path, caplog
):
  write_files('xnli', en=_LABELED, de='one column\n')
  run = str(make_run(tmp_path / 'mlm', [10]))
  warnings = _run(make_suite('xnli', 'pawsx'), [run], tmp_path, caplog)
  (unreadable,) = [
    (text, num_calls)
    for text, num_calls in warnings
    if 'test-de.tsv' in text and 'pawsx' in text
  ]
  assert unreadable[1] == 0


@pytest.mark.slow
def test_missing_languages_are_reported_once_for_each_task(
  make_suite, make_run, write_files, tmp_path, caplog
):
  write_files('xnli', en=_LABELED, de=_LABELED, fr=_LABELED)
  write_files('pawsx', en=_LABELED)
  runs = [str(make_run(tmp_path / name, [10])) for name in ('mlm', 'tlm')]
  suite = make_suite('xnli', 'pawsx')
  warnings = _run(suite, runs, tmp_path, caplog)
  missing = [text for text, _ in warnings if 'have no files' in text]
  assert len(missing) == 2
  assert '12 of 15' in missing[0] and 'ar, bg, el' in missing[0]


def test_other_shards_are_not_checked(
  make_suite, make_run, write_files, tmp_path, caplog
):
  write_files('xnli', en=_BLIND)
  write_files('pawsx', en=_BLIND)
  run = str(make_run(tmp_path / 'mlm', [10]))
  warnings = _run(
    make_suite('xnli', 'pawsx'),
    [run],
    tmp_path,
    caplog,
    only={('mlm@10', 'xnli')},
  )
  texts = [text for text, _ in warnings if 'gold label' in text]
  assert len(texts) == 1 and 'pawsx' not in texts[0]


def test_pairs_without_gold_translations_are_unlabeled(tmp_path):
  for name, text in {
    'de': '1\ta\n2\tb\n',
    'en': '1\tc\n',
    'gold': '1\t1\n',
  }.items():
    (tmp_path / name).write_text(text)
  sides = (str(tmp_path / 'de'), str(tmp_path / 'en'))
  task = mining_task.BitextMining(
    source=example_source.BitextMiningFiles(
      format='bucc',
      files={'de-en': sides, 'fr-en': (*sides, str(tmp_path / 'gold'))},
    )
  )
  data = gold_labels.read_test_data([task], eval_task.Failures('bucc'))
  assert data.parts == ('de-en', 'fr-en')
  assert data.unlabeled == {'de-en': eval_task.LabelCount(0, 1)}


def test_tasks_without_labeled_examples_have_no_parts():
  data = gold_labels.read_test_data(
    [fakes.Counted()], eval_task.Failures('counted')
  )
  assert data == gold_labels.TestData()
  assert not gold_labels.describe_unlabeled({'counted': data})
  assert not gold_labels.describe_failures({'counted': data})


def test_long_lists_of_languages_are_truncated():
  parts = [f'l{number}' for number in range(30)]
  count = eval_task.LabelCount(0, 5)
  data = gold_labels.TestData(
    parts=tuple(parts), unlabeled=dict.fromkeys(parts, count)
  )
  text = gold_labels.describe_unlabeled({'panx': data})
  assert 'l19 and 10 more' in text and 'l20' not in text
