import dataclasses
import json
import pathlib

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.evaluation import checkpoint_selection
from xlflax.storage import checksums
from xlflax.training.checkpointing import run_directory
from xlflax.utils import errors


@dataclasses.dataclass
class _Run:
  directory: pathlib.Path
  steps: list[int]


@pytest.fixture
def run(tmp_path):
  values = {10: 0.3, 20: 0.7, 30: 0.5, 40: 0.9}
  lines = [
    json.dumps({'step': step, 'train': {'loss': 1.0}})
    + '\n'
    + json.dumps(
      {
        'step': step,
        'eval': {
          'retrieval/accuracy/mean': value,
          'perplexity/perplexity/mean': 100 * value,
          'perplexity/accuracy/mean': value,
          'word_alignment/best_aer/mean': value,
          'word_alignment/best_layer/mean': 3,
        },
      }
    )
    for step, value in values.items()
  ]
  (tmp_path / 'metrics.jsonl').write_text('\n'.join(lines) + '\n{"st')
  return _Run(tmp_path, [10, 20, 30])


@pytest.mark.parametrize(
  'steps, expected',
  [('last', [30]), ('all', [10, 20, 30]), ('none', []), ([30, 10], [10, 30])],
)
def test_select_checkpoints(run, steps, expected):
  assert checkpoint_selection.select_checkpoints(run, steps) == expected


@pytest.mark.parametrize(
  'metric, expected, extreme',
  [
    ('retrieval/accuracy/mean', 20, 'highest'),
    ('perplexity/perplexity/mean', 10, 'lowest'),
    ('perplexity/accuracy/mean', 20, 'highest'),
    ('word_alignment/best_aer/mean', 10, 'lowest'),
  ],
)
def test_best_follows_the_direction_of_the_metric(
  run, metric, expected, extreme, caplog
):
  caplog.set_level('INFO')
  # Step 40 has the highest accuracy, but its checkpoint was deleted.
  assert checkpoint_selection.select_checkpoints(
    run, 'best', metric_for_best_model=metric
  ) == [expected]
  assert_mentions(caplog.text, expected, extreme, metric)


def test_best_requires_a_recorded_metric(run):
  with raises_error(
    errors.ConfigError,
    got='bleu',
    where='metrics.jsonl',
    mentions=(
      'perplexity/accuracy/mean',
      'perplexity/perplexity/mean',
      'retrieval/accuracy/mean',
      'word_alignment/best_aer/mean',
    ),
  ):
    checkpoint_selection.select_checkpoints(
      run, 'best', metric_for_best_model='bleu'
    )


def test_missing_metric_reports_the_failure(run):
  result = {
    'step': 10,
    'metrics': {},
    'tables': {},
    'notes': [],
    'failures': [{'task': 'dev', 'part': 'en', 'message': 'The cause.'}],
  }
  folder = run.directory / 'eval' / 'dev' / 'validation-0'
  folder.mkdir(parents=True)
  (folder / '10.json').write_text(json.dumps(checksums.add_digest(result)))
  with raises_error(errors.ConfigError, mentions=('dev/f1/en', 'en')):
    checkpoint_selection.select_checkpoints(
      run, 'best', metric_for_best_model='dev/f1/en'
    )


def test_best_rejects_metrics_without_a_direction(run):
  with raises_error(errors.ConfigError, got='word_alignment/best_layer/mean'):
    checkpoint_selection.select_checkpoints(
      run, 'best', metric_for_best_model='word_alignment/best_layer/mean'
    )


def test_best_without_evaluations_is_rejected(tmp_path):
  with raises_error(errors.ConfigError, where='metrics.jsonl'):
    checkpoint_selection.select_checkpoints(_Run(tmp_path, [10]), 'best')


def test_steps_without_checkpoints_are_rejected(run):
  with raises_error(
    errors.CheckpointError, got='15, 40', mentions=(10, 20, 30)
  ):
    checkpoint_selection.select_checkpoints(run, [15, 20, 40])


def test_run_without_checkpoints_is_rejected_unless_optional(tmp_path):
  run = _Run(tmp_path, [])
  assert (
    checkpoint_selection.select_checkpoints(run, 'all', may_be_none=True) == []
  )
  with raises_error(errors.CheckpointError, mentions='--continuous'):
    checkpoint_selection.select_checkpoints(run, 'last')


def test_unknown_steps_are_rejected():
  with raises_error(
    errors.ConfigError, got='newest', mentions=('steps', 'last')
  ):
    checkpoint_selection.check_checkpoint_steps('newest')


@pytest.mark.parametrize(
  'metric, last, best_step',
  [
    ('retrieval/accuracy/mean', 30, 20),
    ('retrieval/accuracy/mean', 20, None),
    ('perplexity/perplexity/mean', 30, 10),
    ('other/accuracy/mean', 30, None),
    (None, 30, None),
  ],
)
def test_a_better_checkpoint_than_the_last_is_described(
  run, metric, last, best_step
):
  run.steps = [step for step in run.steps if step <= last]
  settings = {
    'class': 'trainer',
    'fields': {
      'ema_decay': None,
      'checkpoints': {
        'class': 'checkpoints',
        'fields': {'metric_for_best_model': metric},
      },
    },
  }
  run_directory.write_run_file(run.directory, 'trainer.json', settings)
  assert checkpoint_selection.read_selection_metric(run.directory) == metric
  sentences = checkpoint_selection.describe_selection(run, last)
  assert len(sentences) == (best_step is not None)
  for sentence in sentences:
    assert_mentions(sentence, metric, f'--step={best_step}')


def test_averaged_parameters_are_described(run):
  settings = {'class': 'trainer', 'fields': {'ema_decay': 0.9}}
  run_directory.write_run_file(run.directory, 'trainer.json', settings)
  (sentence,) = checkpoint_selection.describe_selection(run, 30)
  assert_mentions(sentence, 'ema_decay=0.9')
