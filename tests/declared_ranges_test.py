"""Every number says what it may be, and nothing else is accepted.

The campaign tries values below, above, not finite, of another kind and of 40
digits for every number of every class and command. `-s` prints how many.
"""

import argparse
import collections
import pathlib
import subprocess
import sys

import pytest

from tests import declared_fields, nonsense
from xlflax import cli
from xlflax.configuration import (
  gin_values,
  shipped_configs,
  source_text,
  source_types,
)
from xlflax.foundation import (
  errors,
  flag_tables,
  ranges,
  registry,
  schema,
  typed_values,
)

_NUMERIC = [
  (cls, name, hint)
  for cls, name, hint in declared_fields.fields()
  if typed_values.numeric(hint)
]
_BY_CLASS = collections.defaultdict(list)
for _cls, _name, _hint in _NUMERIC:
  _BY_CLASS[_cls].append((_name, _hint))


def _told(make, *parts) -> str:
  """The message that `make` raises, which has the parts."""
  with pytest.raises(errors.ConfigError) as error:
    make()
  text = str(error.value)
  assert all(part in text for part in (*parts, 'Got: ', 'Expected: ')), text
  assert len(text) < 600, text
  return text


def test_every_number_has_a_range():
  bare = [
    f'{cls.__module__}.{cls.__name__}.{name}: {hint}'
    for cls, name, hint in _NUMERIC
    if any(found is None for _, found in typed_values.numeric(hint))
  ]
  assert not bare
  assert len(_NUMERIC) > 400


def test_every_registered_dataclass_checks_its_fields():
  open_ = [
    name
    for name, cls in registry.registered().items()
    if hasattr(cls, '__dataclass_fields__')
    and not schema.is_checked(cls)
    and not any(one.__module__.startswith('flax.') for one in cls.__mro__)
  ]
  assert not open_


def test_defaults_are_what_the_fields_take():
  for cls in declared_fields.classes():
    hints = schema.hints(cls)
    for field in cls.__dataclass_fields__.values():
      if field.name in hints and field.default is not field.default_factory:
        value = field.default
        if 'MISSING' in repr(value):
          continue
        if value is None and field.name == 'name':
          continue  # an abstract class's
        found = schema.check(value, hints[field.name], name=field.name)
        assert found == value and type(found) is type(value), (cls, field.name)


@pytest.mark.parametrize('cls', _BY_CLASS, ids=lambda cls: cls.__name__)
def test_nonsense_is_refused_in_python(cls):
  cases = 0
  for name, hint in _BY_CLASS[cls]:
    for bad in _nonsense(hint):
      _told(
        lambda bad=bad, name=name: cls(**{name: bad}), f'{cls.__name__}.{name}'
      )
      cases += 1
    for good in _sense(hint):
      schema.check(good, hint, name=name)
  print(f'{cls.__name__}: {len(_BY_CLASS[cls])} fields, {cases} cases')


def test_nonsense_is_refused_as_text():
  """The same fields, by what their source says: nothing is imported."""
  cases = 0
  for cls, name, hint in _NUMERIC:
    module, _, last = cls.__module__.rpartition('.')
    text = f'from {module} import {last}\n'
    files = [shipped_configs.GinFile('x.gin', pathlib.Path('x.gin'), text)]
    for bad in _nonsense(hint):
      value = _in_gin(bad)
      if value is None:
        continue
      binding = f'{last}.{cls.__name__}.{name}={value}'
      _told(
        lambda binding=binding, files=files: gin_values.check([binding], files),
        f'--gin.{last}.{cls.__name__}.{name}',
      )
      cases += 1
  print(f'{len(_NUMERIC)} fields, {cases} cases')
  assert cases > 4000


def test_the_source_says_what_the_classes_say():
  for cls, name, hint in _NUMERIC:
    found = source_text.parameters_of(cls.__module__, cls.__name__)
    assert found is not None, cls
    read = source_types.type_of(found[name])
    assert typed_values.numeric(read) == typed_values.numeric(hint), (cls, name)


def _flags():
  parsers = [
    parser
    for name in cli.COMMANDS
    if cli.load_command(name).__name__.startswith('xlflax.commands.')
    for parser in cli.parser_of(name).parsers()
  ]
  for parser in parsers:
    for action in parser._actions:
      yield parser, action


def test_every_flag_that_is_a_number_has_a_range():
  for parser, action in _flags():
    assert action.type not in (int, float), (parser.prog, action.dest)
    is_number = ranges.is_number(action.default)
    if is_number and not isinstance(action, argparse._StoreConstAction):
      assert isinstance(action.type, flag_tables.NumericFlag), action.dest


def test_nonsense_is_refused_as_flags():
  flags = cases = 0
  for parser, action in _flags():
    if not isinstance(action.type, flag_tables.NumericFlag):
      continue
    flags += 1
    flag = (action.option_strings or [action.dest])[-1]
    found = [one for _, one in typed_values.numeric(action.type.hint)]
    bad = [repr(one) for one in nonsense.numbers_for(found)]
    for text in (*bad, 'many', '', '1,5', '0x10', '9' * 5000):
      _told(
        lambda parser=parser, action=action, text=text: parser._get_value(
          action, text
        ),
        flag,
        parser.prog,
      )
      cases += 1
    if ranges.is_number(action.default):
      typed_values.convert(action.default, action.type.hint)
  print(f'{flags} flags, {cases} cases')
  assert flags > 40


def test_text_is_checked_without_jax():
  program = (
    'import sys; from xlflax import cli; '
    "status = cli.main(['train', '--gin_file=pretrain/mlm.gin', "
    "'--gin_file=models/tiny.gin', '--model_dir=m', '--vocabulary=v', "
    "'--gin.TRAIN_STEPS=10', '--gin.trainer.Trainer.ema_decay=5']); "
    "print(status, 'jax' in sys.modules, 'tensorflow' in sys.modules)"
  )
  done = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, check=True
  )
  assert done.stdout.split() == ['2', 'False', 'False'], done
  assert 'Trainer.ema_decay is out of range. Got: 5.' in done.stderr


def test_the_page_of_fields(regenerate_goldens):
  if regenerate_goldens:
    declared_fields.PAGE.write_text(declared_fields.page(), encoding='utf-8')
  assert declared_fields.PAGE.read_text(encoding='utf-8') == (
    declared_fields.page()
  ), 'make goldens writes docs/fields.md anew'


def _nonsense(hint):
  found = [one for _, one in typed_values.numeric(hint)]
  for bad in nonsense.numbers_for(found):
    yield nonsense.around(hint, bad)
  yield from nonsense.kinds_for(hint)


def _sense(hint):
  for _, found in typed_values.numeric(hint):
    for good in nonsense.within(found):
      yield nonsense.around(hint, good)


def _in_gin(value) -> str | None:
  """The value as gin's text; None if it has none."""
  text = repr(value)
  text = text.replace('-inf', '-1e400').replace('inf', '1e400')
  return None if 'nan' in text or isinstance(value, type) else text
