"""Tests of serialized configurations: restoring, comparison, fingerprints."""

import dataclasses
import enum
import json
from typing import Any

import pytest

from tests.errors import raises_error
from tests.training import tiny, training_setup_test
from xlflax import trainer
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.checkpointing import checkpoints, config_serialization
from xlflax.training.devices import partitioning
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import class_registry, errors


class _Color(enum.Enum):
  RED = 'red'
  BLUE = 'blue'


@class_registry.register('settings_of_the_description_test')
@dataclasses.dataclass(frozen=True)
class _Settings:
  name: str
  color: _Color | None = _Color.RED
  colors: tuple[_Color, ...] = ()
  sizes: tuple = ()
  rate: float | None = None
  files: dict | None = None
  place: Any = class_registry.changeable_field(default='here')


def _through_json(value):
  return json.loads(json.dumps(config_serialization.to_json_config(value)))


def test_settings_are_restored_from_json():
  settings = _Settings(
    'a',
    color=_Color.BLUE,
    colors=(_Color.RED, _Color.BLUE),
    sizes=(1, (2, 'x'), _Settings('inner', color=None)),
    rate=0.1,
    files={'en': ('a.txt', 'b.txt')},
  )
  assert (
    config_serialization.from_json_config(_through_json(settings)) == settings
  )


def test_unserializable_setting_is_rejected():
  with raises_error(errors.ConfigError, mentions='<built-in'):
    config_serialization.to_json_config(_Settings('a', sizes=(len,)))


def test_unserializable_changeable_setting_is_stored_as_text():
  described = config_serialization.to_json_config(_Settings('a', place=len))
  assert 'built-in' in described['fields']['place']


def test_removed_field_is_reported():
  described = _through_json(_Settings('a'))
  described['fields']['gone'] = 1
  with raises_error(
    errors.RunDirectoryError, mentions='settings_of_the_description_test'
  ):
    config_serialization.from_json_config(described)


def test_identity_excludes_changeable_fields():
  parts = config_serialization.config_identity(
    _Settings('a', sizes=(_Settings('b'),))
  )
  assert parts['name'] == 'a' and parts['sizes[0].name'] == 'b'
  assert not [key for key in parts if key.endswith('place')]


def test_new_field_with_its_default_is_not_a_difference():
  old, new = _through_json(_Settings('a')), _through_json(_Settings('a'))
  del old['fields']['rate']
  assert not config_serialization.config_difference(old, new)
  other = _through_json(_Settings('a', rate=0.5))
  assert config_serialization.config_difference(old, other) == [
    ('rate', 'null', '0.5')
  ]


def _trainer(**fields) -> trainer.Trainer:
  settings = training_setup_test.make_settings(**fields)
  return trainer.Trainer(
    **{f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
  )


def _print(run) -> str:
  return config_serialization.config_fingerprint(run.resolved(None))


@pytest.mark.parametrize(
  'fields',
  [
    {'model_dir': 'elsewhere'},
    {'corpus': 'elsewhere'},
    {'num_train_steps': 200},
    {'log_metrics_every': 7},
    {'prefetch': 4},
    {'stop_after_steps': 5},
    {'task_modules': ('a.b',)},
    {'partitioner': partitioning.Partitioner(fsdp=4)},
    {'checkpoints': checkpoints.CheckpointOptions(save_interval_steps=5)},
  ],
)
def test_changeable_fields_keep_the_fingerprint(fields):
  assert _print(_trainer(**fields)) == _print(_trainer())


def _mixture(**fields):
  return tiny.make_mixture(
    objective_mixture.WeightedObjective(
      dataset='mono', objective=masked_lm.MaskedLM(**fields)
    )
  )


@pytest.mark.parametrize(
  'fields',
  [
    {'seed': 1},
    {'cache_dir': 'cache'},
    {'ema_decay': 0.9},
    {'optimizer': optimizers.AdamW(learning_rate=0.02)},
    {'optimizer': optimizers.Adam(learning_rate=0.01)},
    {'objectives': _mixture(mask_ratio=0.3)},
    {'datasets': (dataclasses.replace(training_setup_test.MONO, length=8),)},
    {'model': tiny.make_model(num_layers=1)},
  ],
)
def test_other_fields_change_the_fingerprint(fields):
  assert _print(_trainer(**fields)) != _print(_trainer())


def test_cache_location_keeps_the_fingerprint():
  first, two = (
    _print(_trainer(cache_dir=cache_dir)) for cache_dir in ('a', 'b/c')
  )
  assert first == two


def test_number_of_steps_changes_the_fingerprint_of_a_decaying_schedule():
  def run(steps):
    rate = schedules.Linear(peak_value=0.1)
    return _print(
      _trainer(
        optimizer=optimizers.Adam(learning_rate=rate), num_train_steps=steps
      )
    )

  assert run(100) != run(200)


def test_fields_of_registered_classes_are_in_the_identity_or_changeable():
  for name, cls in class_registry.registered_classes().items():
    for field in config_serialization.described_fields(cls):
      described = {
        'class': name,
        'fields': {field.name: 'a value that no field has'},
      }
      counts = field.name in config_serialization.identity_of_description(
        described
      )
      assert counts or class_registry.is_changeable(field), (name, field.name)


def test_identity_contains_registered_class_names():
  """Classes are not identified by their module path."""
  parts = config_serialization.config_identity(_trainer())
  assert not [v for k, v in parts.items() if k.endswith('.class') and ':' in v]


@class_registry.register('start_of_the_description_test')
@dataclasses.dataclass(frozen=True)
class _Start:
  place: str = class_registry.path_field(lambda path: _PLACES.get(path))
  step: int = 0


_PLACES = {'run': 'content 1', '/home/me/run': 'content 1', 'other': '2'}


def test_paths_are_compared_by_content():
  """The spelling of the path does not matter, and it may be missing later."""
  first, same, other = (_Settings('a', sizes=(_Start(p),)) for p in _PLACES)
  old = _through_json(first)
  assert config_serialization.from_json_config(old) == first
  assert config_serialization.config_fingerprint(
    first
  ) == config_serialization.config_fingerprint(same)
  assert config_serialization.config_fingerprint(
    first
  ) != config_serialization.config_fingerprint(other)
  assert config_serialization.config_difference(old, _through_json(same)) == []
  assert config_serialization.config_difference(old, _through_json(other)) == [
    ('sizes[0].place', '"run" (content 1)', '"other" (2)')
  ]


def test_unreadable_paths_are_compared_by_name(monkeypatch):
  old = _through_json(_Start('run'))
  monkeypatch.setattr(
    'tests.training.checkpointing.config_serialization_test._PLACES', {}
  )
  gone, elsewhere = _through_json(_Start('run')), _through_json(_Start('/x'))
  assert 'contents' in old and 'contents' not in gone
  assert config_serialization.config_difference(old, gone) == []
  assert config_serialization.config_difference(gone, old) == []
  assert config_serialization.config_difference(old, elsewhere) == [
    ('place', '"run"', '"/x"')
  ]
