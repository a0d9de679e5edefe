"""Tests of trainers created from recipes and of their type annotations."""

import dataclasses
import pathlib
import subprocess
import sys
import textwrap

import pytest

import xlflax
from tests.errors import raises_error
from xlflax.evaluation import during_training
from xlflax.training import train_loop
from xlflax.utils import errors

_GIVEN = {'model_dir': 'runs/a', 'corpus': 'corpus', 'vocabulary': 'vocab'}
# Typical user code with type annotations.
_SCRIPT = """
import pathlib

import numpy as np

import xlflax
from xlflax import data, evaluation, models, objectives, training


def print_metrics(step: int, metrics: object) -> None:
  print(step, metrics)


def train(corpus: pathlib.Path) -> str:
  trainer = xlflax.Trainer.from_recipe('small', model_dir='runs/a', corpus='c')
  other = xlflax.Trainer(
    model_dir='runs/b',
    corpus=str(corpus),
    vocabulary='vocab',
    datasets=(
      data.DatasetConfig(
        name='text',
        mixture='corpus.mono',
        layout=data.ExampleLayout.BLOCKS,
        length=64,
        batch_size=8,
      ),
    ),
    objectives=objectives.ObjectiveMixture(
      entries=(
        objectives.WeightedObjective(dataset='text', objective=objectives.MaskedLM()),
      )
    ),
    model=models.Encoder(
      models.EncoderConfig(
        num_layers=2, hidden_dim=16, mlp_dim=16, num_heads=2
      )
    ),
    optimizer=training.AdamW(learning_rate=1e-4),
    num_train_steps=10,
  )
  other.train()
  result: dict[str, object] = trainer.train(report=print_metrics)
  return str(result['loss'])


run: xlflax.Run = xlflax.load_run('runs/a', step='last')
vectors: np.ndarray = run.encode(['Ein Hund.'], languages='de')
states: list[np.ndarray] = run.states(['Ein Hund.'], languages='de')
token: str = run.fill_mask(['Ein <mask>.'], languages='de')[0][0].token
ids: list[int] = list(run.tokenizer.encode('Ein Hund.'))
task = evaluation.Retrieval(source=evaluation.ParallelCorpus(directory='corpus'))
score: float = run.evaluate([task])['retrieval'].metrics['accuracy/mean']
"""


def test_trainer_is_created_from_a_recipe():
  recipe_trainer = xlflax.Trainer.from_recipe('small', **_GIVEN, train_steps=10)
  assert (recipe_trainer.num_train_steps, recipe_trainer.corpus) == (
    10,
    'corpus',
  )
  assert recipe_trainer.model.config.hidden_dim == 128
  (dataset,) = recipe_trainer.datasets
  assert dataset.length == 64
  combined_trainer = xlflax.Trainer.from_recipe(
    'small', pretraining='mlm_tlm', **_GIVEN, train_steps=10
  )
  assert len(combined_trainer.objectives.objectives) == 2


@pytest.mark.parametrize(
  ('name', 'options', 'values'),
  [
    ('smal', {}, ('recipes/smal.gin', '--gin_file')),
    ('small', {'train_step': 3}, ('TRAIN_STEPS', 'TRAIN_STEP')),
    ('small', {}, 'TRAIN_STEPS'),
    (
      'small',
      {'train_steps': 3, 'pretraining': 'mml'},
      ('pretrain/mml.gin', '--gin_file'),
    ),
  ],
)
def test_missing_recipes_are_reported(name, options, values, caplog):
  with raises_error(errors.ConfigError, mentions=values):
    xlflax.Trainer.from_recipe(name, **_GIVEN, **options)
  assert not caplog.records


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_script_passes_a_strict_type_checker(tmp_path):
  """A script with wrong types fails."""
  valid_script, invalid_script = tmp_path / 'right.py', tmp_path / 'wrong.py'
  valid_script.write_text(_SCRIPT)
  invalid_script.write_text(
    textwrap.dedent("""
    import xlflax

    vectors: str = xlflax.load_run('a').encode(['Ein Hund.'])
    xlflax.Trainer.from_recipe(3)
    """)
  )
  checked = subprocess.run(
    [sys.executable, '-m', 'mypy', '--strict', '--follow-imports=silent']
    + [
      f'--cache-dir={tmp_path / "cache"}',
      str(valid_script),
      str(invalid_script),
    ],
    cwd=tmp_path,
    env={'MYPYPATH': str(pathlib.Path(xlflax.__file__).parents[1])},
    capture_output=True,
    text=True,
    check=False,
  )
  errors = checked.stdout.splitlines()
  assert not [line for line in errors if 'right.py' in line], checked.stdout
  assert sum('wrong.py' in line for line in errors) == 2, checked.stdout


@pytest.mark.parametrize(
  ('metric', 'greater_is_better', 'highest'),
  [
    ('perplexity/perplexity/mean', None, False),
    ('retrieval/accuracy/mean', None, True),
    ('perplexity/perplexity/mean', True, True),
  ],
)
def test_metric_determines_the_best_checkpoint(
  monkeypatch, metric, greater_is_better, highest
):
  used_options = []
  monkeypatch.setattr(
    train_loop,
    'train',
    lambda trainer, **_: used_options.append(trainer.checkpoints),
  )
  recipe_trainer = xlflax.Trainer.from_recipe('small', **_GIVEN, train_steps=10)
  options = dataclasses.replace(
    recipe_trainer.checkpoints,
    metric_for_best_model=metric,
    greater_is_better=greater_is_better,
  )
  evaluation = during_training.Evaluation(tasks=(), eval_interval_steps=5)
  with raises_error(
    errors.ConfigError, where='CheckpointOptions.metric_for_best_model'
  ):
    dataclasses.replace(recipe_trainer, checkpoints=options)
  dataclasses.replace(
    recipe_trainer, checkpoints=options, evaluation=evaluation
  ).train()
  assert [
    checkpoint_options.greater_is_better for checkpoint_options in used_options
  ] == [highest]
