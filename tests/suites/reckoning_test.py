"""What a suite costs, before it starts, and its shares."""

import io
import shutil

import pytest
import rich.console

from tests.errors import raises_error
from tests.finetuning import fakes
from xlflax.foundation import errors
from xlflax.storage import manifests
from xlflax.suites import evaluate_suite, forecast, reckoning, runner
from xlflax.suites import suite as suite_lib

pytest_plugins = ['tests.finetuning.fixtures']

_GIN = """
from __gin__ import dynamic_registration
from xlflax import evaluate
from xlflax.data.labelled.sources import source
from xlflax.evaluation.tasks import classification
include 'finetune/classification.gin'
DATA = %gin.REQUIRED
evaluate.evaluate.model_dir = %DATA
LENGTH = 12
BATCH_SIZE = 8
EPOCHS = 3
TRAIN_FILES = {{'en': '{train}'}}
evaluate.evaluate.tasks = [@test/classification.Classification()]
test/classification.Classification.source = @test/source.FileExamples()
test/source.FileExamples.files = {{'en': '{test}', 'fr': '{test}'}}
"""


def _one(task, flops, **fields):
  group = fields.pop('group', task)
  return reckoning.Reckoned(
    model='m@1', task=task, group=group, flops=flops, left=flops, **fields
  )


def test_shares_are_about_equal_and_leave_nothing_out():
  found = [
    _one('xnli', 50.0),
    _one('xquad', 40.0),
    _one('mlqa', 20.0, group='xquad'),
    _one('tatoeba', 5.0),
    _one('bucc', 6.0),
  ]
  shares = [reckoning.share(found, i, 2) for i in range(2)]
  names = [{task for _, task in share} for share in shares]
  assert names == [{'xquad', 'mlqa'}, {'xnli', 'bucc', 'tatoeba'}]
  every = [reckoning.share(found, i, 7) for i in range(7)]
  assert sum(map(len, every)) == len(set().union(*every)) == len(found)


def test_what_is_not_known_is_not_shared_out():
  found = [_one('a', 0.0, unknown='no file'), _one('b', 1.0)]
  with raises_error(errors.ConfigError, where='--shard'):
    reckoning.share(found, 0, 2)


def test_hours():
  rate = forecast.Rate(flops=10.0, held=2.0, program_seconds=100.0, basis='b')
  assert rate.hours(_one('a', 36e3, trials=3)) == pytest.approx(
    2 * (3600 + 400) / 3600
  )
  assert rate.hours(_one('a', 0.0)) == 0
  text = io.StringIO()
  found = [_one('a', 36e3), _one('b', 0.0, unknown='b: no file')]
  forecast.show(found, rate, rich.console.Console(file=text, width=100))
  printed = text.getvalue()
  assert '2.056' in printed and 'Not known: b: no file' in printed


@pytest.fixture
def made(tmp_path, make_run):
  """A runner of a suite with one fine-tuned task, and its model."""
  for name, count in (('train', 20), ('test', 6)):
    lines = (f'one two {i}\tthree\t{"ab"[i % 2]}\n' for i in range(count))
    (tmp_path / f'{name}.tsv').write_text(''.join(lines))
  (tmp_path / 'a.gin').write_text(
    _GIN.format(train=tmp_path / 'train.tsv', test=tmp_path / 'test.tsv')
  )
  task = suite_lib.SuiteTask(
    name='a',
    family='f',
    gin_file=str(tmp_path / 'a.gin'),
    trials='a',
    grid=('SEED=0,1',),
  )
  suite = suite_lib.Suite(name='s', tasks=(task,))
  made = runner.SuiteRunner(suite=suite, output=tmp_path / 'out', data='data')
  run = make_run(tmp_path / 'mlm', [10])
  return made, runner.models([str(run)])


def test_a_task_with_a_head(made):
  """20 rows in batches of 8, 3 epochs: 8 steps; 2 seeds, 12 test texts."""
  (one,) = reckoning.reckon(*made)
  assert not one.unknown
  assert (one.trials, one.steps, one.texts) == (2, 8, 12)
  a_step = one.flops / (2 * 8 + 2 * 12 / 8 / 3)
  assert one.left == one.flops
  rate = forecast.measure([one])
  assert rate.flops > 0 and rate.held > 0 and rate.program_seconds > 0
  assert one.trainer.benchmark(steps=1)['model_flops_per_step'] == (
    pytest.approx(a_step)
  )


def test_what_cannot_be_read_is_not_known(made, tmp_path):
  (tmp_path / 'test.tsv').unlink()
  (one,) = reckoning.reckon(*made)
  assert 'test.tsv' in one.unknown and one.flops == 0


def test_shares_make_one_report(tmp_path, make_run):
  """Two machines with one folder; the last one writes what one would."""
  for name in 'ab':
    (tmp_path / f'{name}.gin').write_text(
      'from __gin__ import dynamic_registration\n'
      'from tests.finetuning import fakes\nfrom xlflax import evaluate\n'
      'DATA = %gin.REQUIRED\nevaluate.evaluate.model_dir = %DATA\n'
      f"evaluate.evaluate.tasks = [@fakes.Counted()]\nfakes.Counted.name = '{name}'"
    )
  tasks = [
    suite_lib.SuiteTask(name=n, family='f', gin_file=str(tmp_path / f'{n}.gin'))
    for n in 'ab'
  ]
  run, out = make_run(tmp_path / 'mlm', [10]), tmp_path / 'out'

  def call(only=None):
    fakes.CALLS.clear()
    return evaluate_suite.evaluate_suite(
      suite=suite_lib.Suite(name='s', tasks=tasks),
      model_dirs=[str(run)],
      data='data',
      output=str(out),
      only=only,
    )

  whole = call().to_json()
  shutil.rmtree(out)
  call({('mlm@10', 'b')})
  assert fakes.CALLS == ['b'] and not (out / 'suite.json').exists()
  assert call({('mlm@10', 'a')}).to_json() == whole
  assert fakes.CALLS == ['a'] and (out / 'report/leaderboard.html').exists()
  assert not manifests.problems(out)
  assert 'results/mlm@10/b.json' in manifests.read(out).files
