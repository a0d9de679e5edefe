"""Values of gin files and flags, checked as text."""

import pytest

from xlflax.configuration import gin_values, shipped_configs
from xlflax.foundation import errors

_NAMES = ('pretrain/mlm_tlm.gin', 'models/tiny.gin')


def _files(*more):
  names = (*_NAMES, *map(str, more))
  return [f for name in names for f in shipped_configs.read(name).files()]


@pytest.mark.parametrize(
  'binding',
  [
    'TRAIN_STEPS=1e4',
    'LEARNING_RATE=1e-4',
    'WARMUP_STEPS=0.1',
    'mono/stream.Stream.length=8',
    'trainer.Trainer.ema_decay=None',
    'optimizers.AdamW.learning_rate=@schedules.Constant()',
    'optimizers.AdamW.learning_rate=%WARMUP_STEPS',
    "trainer.Trainer.non_finite='SKIP'",
    'trainer.Trainer.task_modules=("a",)',
    'mine.Unknown.anything=3',
    'UNUSED=3',
    'trainer.Trainer.model_dir=runs/a',  # a path needs no quotes
    'LEARNING_RATE=%LEARNING_RATE',
  ],
)
def test_what_can_be_passes(binding):
  gin_values.check([binding], _files())


@pytest.mark.parametrize(
  ('binding', 'message'),
  [
    ('trainer.Trainer.ema_decay=5', 'Trainer.ema_decay .* above 0 and below 1'),
    ('Trainer.ema_decay=-1', 'Got: -1.*Where: --gin.Trainer.ema_decay'),
    (f'Trainer.ema_decay={"9" * 40}', 'Trainer.ema_decay is out of range'),
    ('trainer.Trainer.seed=(', 'cannot be read.*Where: --gin.trainer.*seed'),
    ('LEARNING_RATE=1e400', 'Linear.peak .*inf.*Where: --gin.LEARNING_RATE'),
    ('LEARNING_RATE=-1e400', 'Linear.peak is out of range. Got: -inf'),
    ('ALPHA=1e400', 'Stream.alpha is out of range'),
    ('TRAIN_STEPS=1.5', 'Trainer.total_steps .*Got: 1.5. .*a whole number'),
    ("TRAIN_STEPS='20'", 'What to do: write it without quotes: 20'),
    (f'TRAIN_STEPS={"9" * 40}', 'at most 2,147,483,647'),
    ('optimizers.AdamW.b1=1.5', 'AdamW.b1 is out of range'),
    ('optimizers.AdamW.eps=1e400', 'AdamW.eps is out of range'),
    ('optimizers.AdamW.weight_decay=-1e400', 'AdamW.weight_decay is out'),
    (f'optimizers.AdamW.clip_norm={"9" * 40}', 'finite as float32'),
    ('CheckpointOptions.every_steps=1.5', 'every_steps is out of range'),
    ('EncoderConfig.layer_norm_epsilon=-1', 'layer_norm_epsilon is out of'),
    ('stream.Stream.sizes="x"', "has no such value.*'examples', 'tokens'"),
    ('trainer.Trainer.streams=3', 'Expected: a list of streams'),
    ('trainer.Trainer.optimizer="adam"', 'Expected: an optimizer of'),
  ],
)
def test_what_cannot_be_is_told(binding, message):
  with pytest.raises(errors.ConfigError, match=message):
    gin_values.check([binding], _files())


def test_a_file_is_told_with_its_line(tmp_path):
  mine = tmp_path / 'mine.gin'
  mine.write_text('SEED = 1\nMINE = 7\ntrainer.Trainer:\n  ema_decay = %MINE\n')
  with pytest.raises(errors.ConfigError) as error:
    gin_values.check([], _files(mine))
  assert str(error.value) == (
    'Trainer.ema_decay is out of range. Got: 7. Expected: a number above 0 and '
    f'below 1. Where: {mine}:4 and {mine}:2.'
  )
  gin_values.check(['MINE=0.9'], _files(mine))
