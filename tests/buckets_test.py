"""Tests of commands that read and write runs in a bucket."""

import dataclasses
import json
import pathlib
import re

import jax
import numpy as np
import pytest
from matplotlib import figure

from tests import fake_bucket
from tests.errors import assert_mentions, raises_error
from tests.finetuning import fakes
from tests.training import tiny
from xlflax import cli, integrity
from xlflax import evaluate as evaluate_lib
from xlflax.analysis import (
  analysis_report,
  model_refs,
  study_base,
  training_curves,
)
from xlflax.config import gin_config
from xlflax.data.cache import cache_reader
from xlflax.data.corpus import corpus_writer
from xlflax.data.supervised import xtreme_submission
from xlflax.evaluation import eval_task
from xlflax.finetuning import finetune_grid, hyperparameter_grid
from xlflax.storage import paths
from xlflax.suites import evaluate_suite, suite_config
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

pytest_plugins = ['tests.finetuning.fixtures']
_PNG = b'\x89PNG\r\n'
_RUN = 'gs://bucket/run'


@pytest.fixture(scope='module')
def bucket(pretrained):
  """Fake bucket with the run `gs://bucket/run` at the steps 10 and 20."""
  pytest.importorskip('gcsfs')
  fake = fake_bucket.get_shared_bucket()
  fake.objects.clear()
  fake.writable, fake.silent = True, False
  fakes.copy_run(pretrained, paths.to_path(_RUN))
  return fake


def _content(bucket, name: str) -> bytes:
  return bucket.objects[name][1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Total(eval_task.EvalTask):
  """Task that sums all parameters, with data for a plot of layers."""

  name: str = 'total'

  @property
  def primary_metric(self):
    return 'accuracy'

  def evaluate(self, eval_model):
    total = sum(
      float(leaf.sum()) for leaf in jax.tree.leaves(eval_model.params)
    )
    return eval_task.EvalResult(
      metrics={'accuracy/mean': total},
      files={'de.txt': 'a\n'},
      tables={
        'layers': [
          {'pair': 'de-en', 'layer': layer, 'accuracy': 0.5}
          for layer in range(2)
        ]
      },
    )


def _evaluate(model_dir, **settings):
  return evaluate_lib.evaluate(
    model_dir=str(model_dir), tasks=(_Total(),), steps='all', **settings
  )


@pytest.mark.slow
def test_evaluation_writes_results_and_plots(bucket, pretrained, tmp_path):
  fakes.copy_run(pretrained, tmp_path / 'run')
  expected, actual = _evaluate(tmp_path / 'run'), _evaluate(_RUN)
  assert actual.failures == () and actual.results == expected.results
  assert _evaluate(_RUN).computed == 0
  assert {
    re.sub('all-[0-9a-f]{8}', 'all-X', name.removeprefix('run/eval/'))
    for name in bucket.objects
    if name.startswith('run/eval/')
  } == {
    'total/all-X/10.json',
    'total/all-X/10/de.txt',
    'total/all-X/20.json',
    'total/all-X/20/de.txt',
    'report.html',
    'summary.csv',
    'total.png',
    'total.layers.png',
  }
  for name in ('total.png', 'total.layers.png'):
    content = _content(bucket, f'run/eval/{name}')
    assert content.startswith(_PNG)
    assert content == (tmp_path / 'run/eval' / name).read_bytes()


@pytest.mark.slow
def test_watch_ends_at_a_finished_run(bucket, pretrained):
  fakes.copy_run(pretrained, paths.to_path('gs://bucket/watched'))
  saved_run.mark_finished(paths.to_path('gs://bucket/watched'), 20)
  watched_results = _evaluate(
    'gs://bucket/watched', watch=True, poll_seconds=0.01
  )
  assert list(watched_results.results['total']) == [10, 20]


@pytest.mark.slow
def test_learning_curves_are_written(bucket):
  _evaluate(_RUN)
  study_base.analyze(
    training_curves.LearningCurvesStudy(runs=(_RUN,)),
    output='gs://bucket/curves',
  )
  record = json.loads(_content(bucket, 'curves/analysis.json'))
  assert [row['step'] for row in record['rows']] == [10, 20]
  assert any(
    key.startswith('curves/') and key.endswith('.png') for key in bucket.objects
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Size(study_base.Study):
  """Study of the number of parameters, with a plot and a binary file."""

  model: str

  def run(self, opened):
    eval_model = opened.eval_model(model_refs.ModelRef.parse(self.model))
    count = sum(leaf.size for leaf in jax.tree.leaves(eval_model.params))
    rows = [{'model': self.model, 'count': count}]
    return analysis_report.Analysis(
      name='size',
      title='Size',
      explanation='',
      rows=rows,
      pictures={'n': analysis_report.Figure('n', figure.Figure(), rows)},
      files={'n.npz': b'\x00\xff'},
    )


def test_analysis_reads_and_writes_the_bucket(bucket):
  results = study_base.analyze(
    _Size(model=f'{_RUN}@10'), output='gs://bucket/analysis'
  )
  assert results.rows[0]['count'] > 1000
  assert _content(bucket, 'analysis/n.png').startswith(_PNG)
  assert _content(bucket, 'analysis/n.npz') == b'\x00\xff'
  assert b'data:image/png' in _content(bucket, 'analysis/report.html')


def _tune(training_gin, function=finetune_grid.finetune, bindings=(), **fields):
  return function(
    configuration=gin_config.load_gin_files(
      [training_gin], [f"INIT_FROM='{_RUN}'", *bindings], partial=True
    ),
    select='dev/accuracy/en',
    test_tasks=[fakes.Counted()],
    **fields,
  )


@pytest.mark.slow
def test_grid_is_written_and_resumed(bucket, training_gin, fake_training):
  axes = [hyperparameter_grid.parse_axis('LEARNING_RATE=0.2,0.4')]
  first = _tune(training_gin, axes=axes, output='gs://bucket/grid')
  assert first.is_complete
  assert json.loads(_content(bucket, 'grid/grid.json'))['selected'] == (
    'LEARNING_RATE=0.4'
  )
  trial = 'grid/trials/LEARNING_RATE=0.4'
  assert any(
    re.fullmatch(f'{trial}/eval/counted/[^/]+/10.json', name)
    for name in bucket.objects
  )
  assert f'{trial}/checkpoints/10/commit_success.txt' in bucket.objects
  # Checkpoints other than the best one are deleted.
  assert not [
    name
    for name in bucket.objects
    if name.startswith(f'{trial}/checkpoints/20/')
  ]
  fake_training.clear()
  again = _tune(training_gin, axes=axes, output='gs://bucket/grid')
  assert fake_training == [] and again.to_json() == first.to_json()


@pytest.mark.slow
def test_transfer_directions_are_written(
  bucket, training_gin, fake_training, tmp_path
):
  gin = tmp_path / 'languages.gin'
  gin.write_text(
    f"include '{training_gin}'\nTRAIN_LANGUAGE = 'en'\n"
    'from __gin__ import dynamic_registration\n'
    'from tests.finetuning import fakes\n'
    'fakes.Counted.name = %TRAIN_LANGUAGE\n'
  )
  reports = _tune(
    str(gin),
    finetune_grid.finetune_directions,
    languages=('en', 'fr'),
    output='gs://bucket/ways',
  )
  assert list(reports) == ['en', 'fr']
  assert _content(bucket, 'ways/directions.counted.png').startswith(_PNG)
  assert _content(bucket, 'ways/directions.counted.csv').startswith(b'train,')


@pytest.mark.slow
def test_suite_is_written(bucket, tmp_path):
  (tmp_path / 'plain.gin').write_text("""
from __gin__ import dynamic_registration
from tests.finetuning import fakes
from xlflax import evaluate
DATA = %gin.REQUIRED
evaluate.evaluate.tasks = [@fakes.Counted()]
evaluate.evaluate.model_dir = %DATA
""")
  suite = suite_config.Suite(
    name='made',
    tasks=(
      suite_config.SuiteTask(
        name='plain', family='f', gin_file=str(tmp_path / 'plain.gin')
      ),
    ),
  )
  results = evaluate_suite.evaluate_suite(
    suite=suite,
    model_dirs=[_RUN],
    data='data',
    steps=[10, 20],
    output='gs://bucket/suite',
  )
  assert list(results.models) == ['run@10', 'run@20'] and not results.failures
  assert json.loads(_content(bucket, 'suite/suite.json'))['suite'] == 'made'
  for name in ('leaderboard.html', 'plain.png', 'plain.curves.png'):
    assert f'suite/report/{name}' in bucket.objects


@pytest.mark.slow
def test_leaderboard_predictions_are_written(bucket):
  name = xtreme_submission.file_name('xnli', 'de')
  missing = xtreme_submission.write_submission(
    'gs://bucket/predictions', {name: 'x\n'}
  )
  assert name not in missing and len(missing) > 10
  assert _content(bucket, f'predictions/{name}') == b'x\n'


@pytest.mark.slow
def test_checkpoint_average_equals_the_disk(bucket, pretrained, tmp_path):
  """A second call is rejected."""
  outputs = str(tmp_path / 'mean'), 'gs://bucket/mean'
  for source, output in zip((pretrained, _RUN), outputs, strict=True):
    assert (
      cli.main(
        [
          'convert',
          'average',
          f'--model_dir={source}',
          '--last=2',
          f'--output={output}',
        ]
      )
      == 0
    )
  expected, actual = (saved_run.load_run(output) for output in outputs)
  assert actual.steps == [20] and actual.is_finished()
  tiny.assert_trees_equal(
    *(
      jax.tree.map(np.asarray, averaged.restore_params(20))
      for averaged in (actual, expected)
    )
  )
  with raises_error(
    errors.RunDirectoryError, where='--output', mentions='gs://bucket/mean'
  ):
    with paths.new_directory(
      paths.to_path('gs://bucket/mean'), where='--output'
    ):
      raise AssertionError


def test_failed_outputs_leave_nothing(bucket):
  with pytest.raises(ZeroDivisionError):
    with paths.new_directory(
      paths.to_path('gs://bucket/half'), where='--output'
    ) as output:
      (output / 'a' / 'b').write_text('x')
      assert 'half/a/b' in bucket.objects
      raise ZeroDivisionError
  assert not [name for name in bucket.objects if name.startswith('half')]


@pytest.mark.parametrize(
  'arguments',
  [
    (
      'translate',
      f'--model_dir={_RUN}',
      '--source=en',
      '--target=de',
      '--output=gs://bucket/x',
    ),
    (
      'finetune',
      '--gin_file=finetune/classification.gin',
      '--output=out',
      '--cache=gs://bucket/x',
    ),
    (
      *('build-corpus', 'libreoffice', '--languages=en,de', '--output=out'),
      '--packages=gs://bucket/x',
    ),
  ],
  ids=' '.join,
)
def test_options_that_require_a_disk_reject_buckets(
  bucket, arguments, corpus, vocabulary_dir, tmp_path, monkeypatch, capsys
):
  del bucket
  message = _error_message(
    arguments, corpus, vocabulary_dir, tmp_path, monkeypatch, capsys
  )
  assert_mentions(message, 'gs://bucket/x')


@pytest.mark.parametrize(
  'arguments',
  [
    ('convert', 'from-hf', 'gs://bucket/x', '--output=out'),
    (
      'convert',
      'from-t5x',
      'gs://bucket/x',
      '--output=out',
      '--vocabulary=VOCABULARY',
    ),
    ('vocab', '--corpus=gs://bucket/x', '--output=out', '--size=80'),
    (
      *('build-corpus', 'pages', '--folder=en=gs://bucket/x'),
      *('--folder=de=gs://bucket/x', '--output=out'),
    ),
    ('pretrain', 'gs://bucket/x', '--output=out', '--steps=1'),
    ('inspect', 'CORPUS', '--decontaminate_against=gs://bucket/x'),
    (
      'evaluate',
      f'--model_dir={_RUN}',
      '--tasks=retrieval',
      '--corpus=gs://bucket/x',
    ),
    (
      'evaluate',
      f'--model_dir={_RUN}',
      '--tasks=tatoeba',
      '--tatoeba=gs://bucket/x',
    ),
  ],
  ids=' '.join,
)
def test_missing_inputs_are_errors(
  bucket, arguments, corpus, vocabulary_dir, tmp_path, monkeypatch, capsys
):
  del bucket
  message = _error_message(
    arguments, corpus, vocabulary_dir, tmp_path, monkeypatch, capsys
  )
  assert_mentions(message, 'gs://bucket/x')


def _error_message(
  arguments, corpus, vocabulary_dir, tmp_path, monkeypatch, capsys
) -> str:
  """Returns the error of a command that exits with 2 and writes nothing."""
  monkeypatch.chdir(tmp_path)
  resolved_arguments = [
    text.replace('CORPUS', corpus).replace('VOCABULARY', vocabulary_dir)
    for text in arguments
  ]
  assert cli.main(resolved_arguments) == 2
  assert list(tmp_path.iterdir()) == []
  return capsys.readouterr().err


def test_user_paths_are_resolved_before_use_as_local_paths():
  """`pathlib` treats bucket URLs as local folders.

  User paths must pass through `paths.to_path`, `.local` or
  `bucket_staging.stage_input` first.
  """
  conversions = {
    path.name
    for path in pathlib.Path(cli.__file__).parent.rglob('*.py')
    if re.search(r'pathlib\.Path\((args|options)\.', path.read_text())
  }
  # `cache` writes inside `bucket_staging.stage_output`, `translate` calls
  # `paths.to_local_path`.
  assert conversions == {'cache.py', 'translate.py'}


def test_write_monolingual_rejects_buckets():
  with raises_error(errors.RunDirectoryError, got='gs://bucket/x'):
    corpus_writer.write_monolingual('gs://bucket/x', 'de', [['a']])


def test_text_vocabulary_and_cache_equal_the_disk(
  bucket, corpus, tmp_path, monkeypatch
):
  """The only corpus files on disk are in the mirror."""
  monkeypatch.setenv('XLFLAX_STAGE', str(tmp_path / 'staged'))
  for path in sorted(pathlib.Path(corpus).rglob('*.t*')):
    name = path.relative_to(corpus).as_posix()
    paths.to_path(f'gs://bucket/raw/{name}').write_bytes(path.read_bytes())
  for at, text in (('gs://bucket', 'gs://bucket/raw'), (tmp_path, corpus)):
    for arguments in (
      (
        'preprocess',
        f'--corpus={text}',
        f'--output={at}/c',
        '--min_characters=2',
      ),
      ('vocab', f'--corpus={at}/c', f'--output={at}/v', '--size=70'),
      (
        *('cache', f'--corpus={at}/c', f'--vocabulary={at}/v'),
        f'--output={at}/t',
      ),
    ):
      assert cli.main(arguments) == 0
      assert cli.main(arguments) == 0  # the output exists
  for name in ('c', 'v', 't'):
    of_disk = {
      path.relative_to(tmp_path).as_posix(): path.read_bytes()
      for path in (tmp_path / name).rglob('*')
      if path.is_file() and not path.name.startswith('.')
    }
    bucket_files = {
      key: content
      for key, (_, content) in bucket.objects.items()
      if key.startswith(f'{name}/') and '/.' not in key
    }
    assert bucket_files.keys() == of_disk.keys() or name == 't'
    if name == 'c':
      assert bucket_files == of_disk
  bucket_cache, local_cache = (
    cache_reader.TokenCache(f'{at}/t') for at in ('gs://bucket', tmp_path)
  )
  assert bucket_cache.directory == tmp_path / 'staged/out/gs/bucket/t'
  assert bucket_cache.mixtures == local_cache.mixtures
  assert cli.main(['cache', 'verify', 'gs://bucket/t']) == 0
  for name in ('c', 'v', 't'):
    assert cli.main(['verify', f'gs://bucket/{name}']) == 0
  inside = ('vocab', '--corpus=gs://bucket/c', '--output=gs://bucket/c/v')
  assert cli.main([*inside, '--size=80']) == 2


@pytest.mark.slow
def test_verify_checks_and_repairs_a_bucket(bucket):
  """The run is first valid, then has missing files, and then is repaired."""
  source = paths.to_path('gs://bucket/repaired')
  for name in [n for n in bucket.objects if n.startswith('run/')]:
    target = paths.to_path(f'gs://bucket/repaired/{name.removeprefix("run/")}')
    target.write_bytes(_content(bucket, name))
  report = integrity.verify_directory(source)
  assert report.is_valid, integrity.format_report(report)
  model = _content(bucket, 'repaired/model.json')
  for name in ('digests.json', 'model.json'):
    (source / name).unlink()
    formatted_report = integrity.format_report(
      integrity.verify_directory(source)
    )
    assert_mentions(formatted_report, name)
  report = integrity.repair_directory(source, log_progress=print)
  assert report.is_valid, integrity.format_report(report)
  assert _content(bucket, 'repaired/model.json') == model
