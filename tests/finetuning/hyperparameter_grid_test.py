import pytest

from tests.errors import raises_error
from xlflax.config import gin_config
from xlflax.finetuning import hyperparameter_grid
from xlflax.utils import errors


@pytest.mark.parametrize(
  'text, values',
  [
    ('LEARNING_RATE=1e-5,2e-5', ('1e-5', '2e-5')),
    ('LANGUAGE=en,fr', ("'en'", "'fr'")),
    ("PARTS=('en','fr'),('en',)", ("('en','fr')", "('en',)")),
    ("NAME='a,b',c", ("'a,b'", "'c'")),
    ('MODEL=@small.model(),%OTHER', ('@small.model()', '%OTHER')),
    ('optimizers.AdamW.b2=0.98', ('0.98',)),
  ],
)
def test_parse_axis(text, values):
  axis = hyperparameter_grid.parse_axis(text)
  assert axis == hyperparameter_grid.Axis(text.split('=')[0], values)


@pytest.mark.parametrize('text', ['LEARNING_RATE', '=1', 'A=', 'a b=1'])
def test_malformed_axes_are_rejected(text):
  with raises_error(errors.ConfigError, got=text, mentions='--grid'):
    hyperparameter_grid.parse_axis(text)


@pytest.mark.parametrize(
  ('text', 'value', 'values'),
  [
    ('RATE=[1e-5,2e-5]', [1e-5, 2e-5], '1e-5,2e-5'),
    ('RATE=[a,b]', '[a,b]', 'a,b'),
    ('RATE=[1e-5,2e-5]', 3, None),
    ('RATE=1e-5', 1e-5, None),
  ],
)
def test_values_in_brackets_have_a_hint(text, value, values):
  axis = hyperparameter_grid.parse_axis(text)
  (trial,) = hyperparameter_grid.expand_grid([axis])
  hint = hyperparameter_grid.suggest_without_brackets(trial, value)
  assert hint is None if values is None else f'--grid RATE={values}' in hint


def test_duplicate_values_are_rejected():
  with raises_error(errors.ConfigError, got='A=1,2,1', mentions='--grid'):
    hyperparameter_grid.parse_axis('A=1,2,1')


def test_expand_grid_returns_all_trials():
  axes = [
    hyperparameter_grid.parse_axis('RATE=1e-5,2e-5'),
    hyperparameter_grid.parse_axis('SEED=0,1'),
  ]
  trials = hyperparameter_grid.expand_grid(axes)
  assert [trial.name for trial in trials] == [
    'RATE=1e-5,SEED=0',
    'RATE=1e-5,SEED=1',
    'RATE=2e-5,SEED=0',
    'RATE=2e-5,SEED=1',
  ]
  assert trials[1].macros == {'RATE': 1e-5, 'SEED': 1}
  settings = hyperparameter_grid.group_by_setting(trials)
  assert {
    name: [c.values['SEED'] for c in setting_trials]
    for name, setting_trials in settings.items()
  } == {'RATE=1e-5': ['0', '1'], 'RATE=2e-5': ['0', '1']}


def test_no_axis_gives_one_trial():
  (trial,) = hyperparameter_grid.expand_grid([])
  assert (trial.name, trial.setting, trial.macros) == ('single', 'single', {})


def test_trial_names_are_valid_folder_names():
  (trial,) = hyperparameter_grid.expand_grid(
    [hyperparameter_grid.parse_axis("FILE='a/b c'")]
  )
  assert trial.name == 'FILE=a_b_c'


def test_trials_with_the_same_folder_are_rejected():
  with raises_error(errors.ConfigError, got='FILE=a_b', mentions='--grid'):
    hyperparameter_grid.expand_grid(
      [hyperparameter_grid.parse_axis("FILE='a/b','a_b'")]
    )


def test_duplicate_axes_are_rejected():
  with raises_error(errors.ConfigError, got='A, A', mentions='--grid'):
    hyperparameter_grid.expand_grid(
      [
        hyperparameter_grid.Axis('A', ('1',)),
        hyperparameter_grid.Axis('A', ('2',)),
      ]
    )


def test_gin_references_are_parsed():
  (trial,) = hyperparameter_grid.expand_grid(
    [hyperparameter_grid.parse_axis('RATE=@schedules.constant()')]
  )
  assert trial.macros == {'RATE': gin_config.Reference('@schedules.constant()')}
