"""Gin at the entry point: what is found, what is refused, and how it is told."""

import pathlib

import pytest

from xlflax import config, errors, trainer
from xlflax.objectives import mixture
from xlflax.training import schedules

_FILES = ('pretrain/mlm.gin', 'models/tiny.gin')
_GIVEN = ('MODEL_DIR=runs/a', 'VOCABULARY=data/vocab', 'TRAIN_STEPS=5000')


def _fails(files=_FILES, bindings=_GIVEN, paths=()) -> str:
  with pytest.raises(errors.ConfigError) as error:
    config.parse(files, bindings, paths)
  return str(error.value)


def _write(path: pathlib.Path, *lines: str) -> str:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(
    '\n'.join(
      [
        'from __gin__ import dynamic_registration',
        'from xlflax import trainer',
        *lines,
      ]
    )
    + '\n',
    encoding='utf-8',
  )
  return str(path)


def _bound(**more):
  """What the trainer would be made of."""
  seen = {}

  def settings(self, **given):
    seen.update(given)
    raise errors.ConfigError('seen')

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(trainer.Trainer, '__init__', settings)
    with pytest.raises(errors.ConfigError, match='seen'):
      config.call(trainer.Trainer, **more)
  return seen


def test_bindings_are_taken_out_of_the_command_line():
  assert config.split_bindings(
    ['--gin.A=1', '--x', 'y', '--gin.b/c.D.e=[1, 2]', '--gin_file=f']
  ) == (['--x', 'y', '--gin_file=f'], ['A=1', 'b/c.D.e=[1, 2]'])


def test_binding_without_a_value():
  with pytest.raises(errors.ConfigError) as error:
    config.split_bindings(['--gin.A'])
  assert str(error.value) == (
    'A gin flag has no value. Got: --gin.A. Expected: --gin.NAME=VALUE.'
  )


def test_later_files_and_bindings_override(tmp_path):
  mine = _write(
    tmp_path / 'mine.gin', 'trainer.Trainer.seed = 3', 'LENGTH = 99'
  )
  config.parse([*_FILES, mine], [*_GIVEN, 'LENGTH=7'])
  seen = _bound()
  assert (seen['seed'], seen['streams'][0].length) == (3, 7)
  assert seen['total_steps'] == 5000


def test_paths_need_no_quotes():
  config.parse(
    _FILES,
    (
      'MODEL_DIR=runs/a-1',
      'VOCABULARY=~/v',
      'CORPUS=./c',
      'TRAIN_STEPS=5000',
      'CACHE_DIR="x/y"',
    ),
  )
  seen = _bound()
  assert [
    seen[k] for k in ('model_dir', 'vocabulary', 'corpus', 'cache_dir')
  ] == ['runs/a-1', '~/v', './c', 'x/y']


def test_quoted_strings_survive():
  odd = 'it\'s\\a "b"'
  config.parse(_FILES, (config.quoted('MODEL_DIR', odd), *_GIVEN[1:]))
  assert _bound()['model_dir'] == odd


def test_word_without_quotes():
  text = _fails(bindings=('MODEL_DIR=runs', *_GIVEN[1:]))
  assert "'runs'" in text
  assert '''What to do: put text in quotes, as in --gin.NAME="'text'"''' in text


def test_required_macro():
  assert _fails(bindings=_GIVEN[1:]) == (
    'The configuration needs values that are not given. Got: none for '
    'MODEL_DIR. What to do: --gin.MODEL_DIR=VALUE.'
  )


@pytest.mark.parametrize('files', [_FILES[:1], _FILES[::-1]])
def test_model_is_missing_or_came_too_early(files):
  assert _fails(files) == (
    'The configuration needs values that are not given. Got: none for MODEL.'
    ' What to do: --gin_file=models/SIZE.gin, after the other files.'
  )


def test_misspelt_macro():
  assert _fails(bindings=(*_GIVEN, 'LENTGH=3')) == (
    'A gin macro is set, but nothing uses it. Got: LENTGH. Expected: one of '
    'LENGTH. What to do: correct its name.'
  )


def test_misspelt_macro_in_a_file(tmp_path):
  mine = _write(tmp_path / 'mine.gin', 'WARMUP_STPES = 3')
  assert 'Got: WARMUP_STPES. Expected: one of WARMUP_STEPS' in _fails(
    [*_FILES, mine]
  )


def test_macro_of_an_overridden_binding_may_be_idle(tmp_path):
  """Setting what used a macro by its own name is no mistake."""
  mine = _write(tmp_path / 'mine.gin', 'MY_OWN = 1', 'trainer.Trainer.seed = 3')
  config.parse([*_FILES, mine], (*_GIVEN, 'mono/stream.Stream.length=64'))
  seen = _bound()
  assert (seen['seed'], seen['streams'][0].length) == (3, 64)
  text = _fails(bindings=(*_GIVEN, 'trainer.Trainer.seed=3', 'SEED=4'))
  assert 'nothing uses it. Got: SEED' in text


def test_macro_that_is_not_set(tmp_path):
  mine = _write(tmp_path / 'mine.gin', 'trainer.Trainer.seed = %MY_SEED')
  assert _fails([mine], ()) == (
    'The configuration uses macros that are not set. Got: MY_SEED. What to '
    'do: --gin.MY_SEED=VALUE.'
  )


@pytest.mark.parametrize(
  ('binding', 'named'),
  [
    (
      'trainer.Trainer.sed=3',
      "'trainer.Trainer' doesn't have a parameter named 'sed'",
    ),
    ('optimizers.adamx.b1=3', "No configurable matching 'optimizers.adamx'"),
  ],
)
def test_unknown_names(binding, named):
  text = _fails(bindings=(*_GIVEN, binding))
  assert named in text and binding in text
  assert 'check the spelling' in text and '<function' not in text


def test_names_in_a_file_are_told_with_its_line(tmp_path):
  mine = _write(tmp_path / 'mine.gin', 'trainer.Trainer.sed = 3')
  text = _fails([mine])
  assert "doesn't have a parameter named 'sed'" in text
  assert f'In file "{mine}", line 3' in text


@pytest.mark.parametrize(
  ('line', 'named'),
  [
    ('from xlflax import nope', "No module named 'xlflax.nope'"),
    ("include 'pretrain/nope.gin'", 'pretrain/nope.gin'),
    ('trainer.Trainer.seed == 3', "expected ':' or '='"),
    (
      'trainer.Trainer.seed = @nope.f()',
      "'nope' was not provided by an import",
    ),
  ],
)
def test_lines_that_can_not_be_read(tmp_path, line, named):
  text = _fails([_write(tmp_path / 'mine.gin', line)])
  assert text.startswith('The gin configuration is wrong. Got: ')
  assert named in text and 'line 3' in text


def test_missing_file():
  text = _fails(['pretrain/mlmm.gin'])
  assert 'A gin file does not exist. Got: pretrain/mlmm.gin' in text
  assert 'such as pretrain/mlm.gin' in text and 'Where: --gin_file' in text


def test_search_paths_come_before_the_shipped_files(tmp_path):
  _write(tmp_path / 'a/pretrain/mlm.gin', 'trainer.Trainer.seed = 1')
  _write(tmp_path / 'b/pretrain/mlm.gin', 'trainer.Trainer.seed = 2')
  _write(tmp_path / 'b/only_b.gin', 'trainer.Trainer.log_every_steps = 9')
  more = dict(
    model_dir='',
    model=None,
    objectives=None,
    streams=(),
    vocabulary='',
    total_steps=1,
    optimizer=None,
  )
  config.parse(
    ['pretrain/mlm.gin', 'only_b.gin'], (), [f'{tmp_path}/a,{tmp_path}/b']
  )
  seen = _bound(**more)
  assert (seen['seed'], seen['log_every_steps']) == (1, 9)
  config.parse(['pretrain/mlm.gin'], (), [f'{tmp_path}/b'])
  assert _bound(**more)['seed'] == 2
  config.parse(_FILES, _GIVEN)  # and nothing is left of either
  assert _bound()['seed'] == 0


def test_arguments_that_nothing_gives(tmp_path):
  config.parse([_write(tmp_path / 'mine.gin', 'trainer.Trainer.seed = 1')])
  with pytest.raises(errors.ConfigError) as error:
    config.call(trainer.Trainer)
  text = str(error.value)
  assert "'model_dir', 'model', 'objectives'" in text
  assert 'give them values in a gin file or by --gin flags' in text


def test_mistakes_found_while_objects_are_made_are_plain():
  config.parse(_FILES, (*_GIVEN, "ObjectiveMixture.combine='nope'"))
  with pytest.raises(errors.ConfigError) as error:
    config.call(trainer.Trainer)
  assert str(error.value) == (
    "ObjectiveMixture.combine has no such value. Got: 'nope'. Expected: one "
    "of 'sum', 'alternate', 'sample'."
  )


@pytest.mark.parametrize('kind', [ValueError, TypeError, RuntimeError])
def test_bugs_are_not_told_as_mistakes(monkeypatch, kind):
  def broken(self):
    raise kind('the original configurable engine')

  monkeypatch.setattr(trainer.Trainer, '__post_init__', broken)
  config.parse(_FILES, _GIVEN)
  with pytest.raises(kind, match='original configurable engine') as error:
    config.call(trainer.Trainer)
  assert not isinstance(error.value, errors.XlflaxError)


def test_enums_by_value():
  config.parse(
    _FILES,
    (
      *_GIVEN,
      "ObjectiveMixture.combine='alternate'",
      "trainer.Trainer.non_finite='skip'",
    ),
  )
  seen = _bound()
  assert seen['objectives'].combine is mixture.Combine.ALTERNATE
  assert seen['non_finite'] == 'skip'
  config.parse(_FILES, (*_GIVEN, "trainer.Trainer.non_finite='ignore'"))
  with pytest.raises(errors.ConfigError) as error:
    config.call(trainer.Trainer)
  assert str(error.value) == (
    "Trainer.non_finite has no such value. Got: 'ignore'. Expected: one of "
    "'stop', 'skip'."
  )


def test_flags_may_name_what_no_file_names():
  """From the modules that the files import."""
  config.parse(
    _FILES,
    (
      *_GIVEN,
      'optimizers.AdamW.learning_rate=@schedules.Constant()',
      'schedules.Constant.peak=0.5',
    ),
  )
  rate = _bound()['optimizer'].rate_at
  assert float(rate(10)) == float(schedules.Constant(peak=0.5)(10)) == 0.5


def test_operative_configuration_is_what_was_used():
  config.parse(_FILES, (*_GIVEN, 'LENGTH=7'))
  _bound(stop_at_step=3)
  text = config.operative()
  assert 'LENGTH = 7' in text
  assert "mono/stream.Stream.layout = 'blocks'" in text
  assert 'trainer.Trainer.accumulation = 1' in text  # a default
  assert 'stop_at_step' not in text  # given by the caller
  assert 'schedules.Cosine' not in text  # not called


def test_what_no_file_names_is_called_as_it_is():
  config.parse([])
  assert config.call(schedules.Constant, peak=2.0)(0) == 2.0


def test_a_macro_is_built_anew():
  config.parse(['models/tiny.gin'])
  model = config.macro('MODEL')
  assert model.config.hidden_dim == 128
  assert config.macro('MODEL') is not model


def test_a_macro_that_is_not_set():
  config.parse(['models/tiny.gin'])
  with pytest.raises(errors.ConfigError, match='Got: no MODELL'):
    config.macro('MODELL')
