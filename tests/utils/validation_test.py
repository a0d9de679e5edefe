"""Tests of `xlflax.utils.validation`."""

import copy
import dataclasses
import enum
import inspect
import math
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol

import gin
import numpy as np
import optax
import pydantic
import pytest
from flax import linen as nn

from tests.errors import assert_mentions, raises_error
from xlflax.data.dictionaries import code_switching_config
from xlflax.evaluation import eval_task
from xlflax.objectives import objective_base
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.hooks import hook_base
from xlflax.training.optimization import optimizers, schedules
from xlflax.utils import class_registry, errors, user_modules, validation


class _Pooling(enum.Enum):
  MEAN = 'mean'
  FIRST = 'first'


class _Sized(Protocol):
  size: int


class _Box:
  size = 3


class _Opened:
  OPENED_BY = 'open_it({})'


class _OpenedProtocol(Protocol):
  OPENED_BY: ClassVar[str] = 'open_it({})'
  size: int


@validation.validate_fields
@dataclasses.dataclass(frozen=True)
class _Engine:
  power: validation.PositiveFloat
  gears: tuple[validation.PositiveInt, ...] = (1, 2)
  pooling: _Pooling = _Pooling.MEAN
  name: str = 'engine'
  is_fast: bool = False
  sizes: Mapping[str, validation.Fraction] = dataclasses.field(
    default_factory=dict
  )
  box: _Sized | None = None
  step: validation.NonNegativeInt | Literal['last'] = 'last'
  schedule: validation.PositiveFloat | _Box = 1.0
  texts: str | Sequence[str] = ''
  languages: Sequence[str] = ()
  opened: _Opened | None = None
  function: Callable[[int], int] | None = None
  data: Annotated[
    Mapping[str, str], pydantic.Field(description='a mapping of names')
  ] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    assert isinstance(
      self.gears, tuple
    )  # The validator receives converted values.


class _Layer(nn.Module):
  size: validation.PositiveInt
  pooling: _Pooling = _Pooling.MEAN


validation.validate_fields(_Layer)


@validation.validate_call
def _encode(
  texts: Iterable[str],
  vectors: np.ndarray | None = None,
  *languages: str,
  pooling: _Pooling | str = 'mean',
  path: validation.FilePath = '.',
  batch_size: validation.PositiveInt = 8,
):
  return texts, vectors, languages, pooling, path, batch_size


def test_values_are_converted_to_the_declared_types():
  engine = _Engine(
    np.float32(0.5),
    gears=[1e4, np.int64(2)],
    pooling='FIRST',
    name=pathlib.Path('/a'),
    is_fast=np.bool_(True),
    sizes={'en': 1},
    box=_Box(),
    step=np.int32(3),
    texts=np.array(['a', 'b']),
    function=len,
  )
  assert (engine.power, engine.gears) == (0.5, (10_000, 2))
  assert all(type(gear) is int for gear in engine.gears)
  assert (engine.pooling, engine.name) == (_Pooling.FIRST, '/a')
  assert engine.is_fast is True
  assert (engine.step, engine.texts) == (3, ['a', 'b'])


def test_validated_dataclass_behaves_like_a_dataclass():
  engine = _Engine(3)
  assert dataclasses.replace(engine, power=4).power == 4
  assert copy.copy(engine) == pickle.loads(pickle.dumps(engine)) == engine
  assert list(inspect.signature(_Engine).parameters)[:2] == ['power', 'gears']
  assert validation.is_validated(_Engine)
  assert validation.validate_fields(_Engine) is _Engine


@pytest.mark.parametrize(
  ('field', 'value', 'where'),
  [
    ('power', 0, 'power'),
    ('power', True, 'power'),
    ('power', '20', 'power'),
    ('power', math.nan, 'power'),
    ('power', math.inf, 'power'),
    ('power', 1e40, 'power'),  # Infinite in float32.
    ('gears', 3, 'gears'),
    ('gears', {1, 2}, 'gears'),  # A set has no order.
    ('gears', (1, 0), 'gears[1]'),
    ('gears', (1.5,), 'gears[0]'),
    ('gears', (2**31,), 'gears[0]'),
    ('pooling', 'last', 'pooling'),
    ('pooling', 3, 'pooling'),
    ('name', 3, 'name'),
    ('is_fast', 1, 'is_fast'),
    ('is_fast', 'no', 'is_fast'),
    ('sizes', {'en': 2}, "sizes['en']"),
    ('sizes', 'en', 'sizes'),
    ('box', _Box, 'box'),
    ('box', 'box', 'box'),
    ('step', 'first', 'step'),
    ('step', -1, 'step'),
    ('schedule', -1, 'schedule'),
    ('schedule', _Box, 'schedule'),
    ('texts', ['a', 3], 'texts[1]'),
    ('function', 3, 'function'),
  ],
)
def test_invalid_values_raise_config_errors(field, value, where):
  with pytest.raises(errors.ConfigError) as error:
    _Engine(**{'power': 1, field: value})
  assert error.value.where == f'_Engine.{where}'
  assert error.value.got and error.value.expected
  with pytest.raises(errors.ConfigError):
    dataclasses.replace(_Engine(1), **{field: value})


@pytest.mark.parametrize(
  ('fields', 'fix'),
  [
    ({'gear': (1,)}, 'gears'),
    ({'pooling': 'frist'}, 'first'),
    ({'power': '20'}, '20'),
    ({'gears': 3}, '[3]'),
    ({'languages': 'en'}, "['en']"),
    ({'languages': 'en,fr, de'}, "['en', 'fr', 'de']"),
    ({'languages': 'a text, really'}, "['a text, really']"),
    ({'box': _Box}, '_Box(...)'),
    ({'opened': 'a'}, "open_it('a')"),
    ({'opened': pathlib.PurePosixPath('a')}, "open_it('a')"),
    ({'opened': _Box()}, "open_it('PATH')"),
  ],
)
def test_errors_suggest_a_correction(fields, fix):
  with pytest.raises(errors.ConfigError) as error:
    _Engine(**({'power': 1} | fields))
  assert fix in error.value.fix


def test_missing_and_excess_arguments_are_rejected():
  with pytest.raises(errors.ConfigError) as error:
    _Engine()
  assert error.value.where == '_Engine'
  assert_mentions(error.value, '`power`')
  with pytest.raises(errors.ConfigError):
    _Engine(*range(99))
  with pytest.raises(errors.ConfigError):
    _encode()


def test_description_of_a_type_is_the_expected_value():
  with pytest.raises(errors.ConfigError) as error:
    _Engine(1, data=3)
  assert error.value.expected == 'a mapping of names'


def test_fields_of_linen_modules_are_validated_but_not_converted():
  assert _Layer(size=3.0, pooling='first').pooling == 'first'
  assert _Layer(3, name='layer').name == 'layer'
  for fields in ({'size': 0}, {'size': 1, 'pooling': 'last'}, {}):
    with pytest.raises(errors.ConfigError):
      _Layer(**fields)


def test_arguments_of_functions_are_converted():
  texts, vectors, languages, pooling, path, batch_size = _encode(
    ['a'], [[1, 2]], 'en', pooling='first', path=pathlib.Path('a')
  )
  assert (texts, languages) == (['a'], ('en',))
  assert isinstance(vectors, np.ndarray)
  assert (pooling, path, batch_size) == (_Pooling.FIRST, 'a', 8)


def test_items_of_iterators_are_validated_when_they_are_read():
  texts = _encode(iter(['a', 3]))[0]
  assert next(texts) == 'a'
  with pytest.raises(errors.ConfigError):
    next(texts)


@pytest.mark.parametrize(
  ('args', 'kwargs', 'where'),
  [
    (('a',), {}, 'texts'),
    ((['a', 3],), {}, 'texts[1]'),
    (([], ['a']), {}, 'vectors'),
    (([], [[1], [2, 3]]), {}, 'vectors'),
    (([], None, 3), {}, 'languages'),
    (([],), {'path': 3}, 'path'),
    (([],), {'pooling': 'last'}, 'pooling'),
    (([],), {'batch_size': 0}, 'batch_size'),
  ],
)
def test_invalid_arguments_raise_config_errors(args, kwargs, where):
  with pytest.raises(errors.ConfigError) as error:
    _encode(*args, **kwargs)
  assert error.value.where == f'_encode.{where}'


def test_validate_names_the_location():
  assert validation.validate('mean', _Pooling, name='p') is _Pooling.MEAN
  with pytest.raises(errors.ConfigError) as error:
    validation.validate(0, validation.PositiveInt, name='n', where='a.gin:3')
  assert error.value.where == 'a.gin:3'
  assert validation.validate(0, Any, name='n') == 0


def test_config_errors_pass_through_gin():
  configurable = gin.external_configurable(_Engine, 'engine')
  with pytest.raises(errors.ConfigError) as error:
    configurable(power=0)
  assert error.value.where == '_Engine.power'


def test_numeric_types_are_found_in_type_hints():
  hint = dict[int, tuple[validation.PositiveInt, ...]] | float | None
  assert list(validation.numeric_types(hint)) == [validation.PositiveInt, float]


def test_import_does_not_import_jax():
  program = (
    'import sys, xlflax.utils.validation; '
    "print({'jax', 'numpy', 'tensorflow'} & set(sys.modules))"
  )
  done = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == 'set()'


def test_mapping_views_are_accepted_as_iterables():
  @validation.validate_call
  def count(pairs: Iterable[tuple[str, int]]) -> int:
    return sum(number for _, number in pairs)

  assert count({'a': 1, 'b': 2}.items()) == 3
  with pytest.raises(errors.ConfigError) as caught:
    count({('a', 1)})
  assert str(caught.value.where).endswith('count.pairs')


@pytest.mark.parametrize('path', ['a\udcff', 'runs/x\r', 'a\0', 'a\x1b[0m'])
def test_paths_with_control_characters_are_rejected(path):
  @validation.validate_call
  def read(path: validation.FilePath):
    raise AssertionError(path)

  with raises_error(errors.ConfigError):
    read(path)
  with raises_error(errors.ConfigError):
    read(pathlib.Path(path))


@pytest.mark.parametrize('path', ['a b', 'é/猫', 'gs://bucket/x'])
def test_paths_with_spaces_and_unicode_are_accepted(path):
  @validation.validate_call
  def read(path: validation.FilePath):
    return path

  assert read(path) == path


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Extended(validation.ValidatedFields):
  """Base class, as those of objectives and hooks are."""

  name: str


@dataclasses.dataclass(kw_only=True)
class _Mutable(validation.ValidatedFields):
  every_steps: int = 1
  recorded: list[int] = dataclasses.field(default_factory=list, init=False)


class _Plain(validation.ValidatedFields):
  def __init__(self, value):
    self.value = value


def test_fields_of_subclasses_are_validated_without_a_decorator():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _UserDefined(_Extended):
    size: validation.PositiveInt = 1

  assert (_UserDefined(name='a', size=2).name, _UserDefined(name='a').size) == (
    'a',
    1,
  )
  with raises_error(
    errors.ConfigError, got=0, where="_UserDefined.size of 'a'"
  ):
    _UserDefined(name='a', size=0)
  with raises_error(errors.ConfigError, where='_UserDefined.name'):
    dataclasses.replace(_UserDefined(name='a'), name=3)
  with raises_error(errors.ConfigError, where='_Mutable.every_steps'):
    _Mutable(every_steps='often')
  assert _Plain('any').value == 'any'


class _Undecorated(_Extended):
  name: str = 'undecorated'


@class_registry.register('vt_registered')
class _Registered(_Extended):
  name: str = 'registered'


class _UndecoratedSize(_Mutable):
  size: int = 1


class _UndecoratedHook(validation.ValidatedFields):
  size: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DerivedFromUndecorated(_Undecorated):
  size: int = 1


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Config:
  """A dataclass without the base class, as the configurations of models are."""

  size: int = 1


class _UndecoratedConfig(_Config):
  size: int = 2


@pytest.mark.parametrize(
  'cls, arguments, name',
  [
    (_Undecorated, {}, '_Undecorated'),
    (_Registered, {}, '_Registered'),
    (_UndecoratedSize, {}, '_UndecoratedSize'),
    (_UndecoratedHook, {'size': 2}, '_UndecoratedHook'),
    (_UndecoratedConfig, {}, '_UndecoratedConfig'),
    (_DerivedFromUndecorated, {}, '_Undecorated'),
  ],
)
def test_class_without_the_decorator_is_reported(cls, arguments, name):
  with raises_error(errors.ConfigError, where=name) as error:
    cls(**arguments)
  assert_mentions(
    error.value.fix, name, 'dataclasses.dataclass(frozen=True, kw_only=True)'
  )


def test_missing_method_is_reported():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _Misspelled(schedules.Schedule):
    def call(self, step):
      return step

  with raises_error(
    errors.ConfigError,
    where='_Misspelled',
    mentions=('__call__', 'xlflax.training.Schedule'),
  ):
    _Misspelled()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OtherArguments(objective_base.Objective):
  """Overrides methods with other names or more arguments."""

  name: str = 'a'

  def __call__(self, module, params, inputs, *rest, debug=False):
    raise AssertionError

  def init_heads(self, model, key, scale=1.0):
    return {}

  def load_state(self, state, **arguments):
    return state


def test_methods_with_compatible_arguments_are_accepted():
  assert _OtherArguments().name == 'a'


@pytest.mark.parametrize(
  'base, method, got, expected',
  [
    (
      eval_task.EvalTask,
      lambda self, run, corpus: None,
      'evaluate(self, run, corpus)',
      'evaluate(self, eval_model)',
    ),
    (
      objective_base.Objective,
      lambda self, model, params, batch: None,
      '__call__(self, model, params, batch)',
      '__call__(self, model, params, batch, context)',
    ),
    (
      objective_base.Objective,
      lambda self, state, params: None,
      'load_state(self, state, params)',
      'load_state(self, state, *, model, params, vocabulary)',
    ),
    (
      schedules.Schedule,
      lambda self: 0.1,
      '__call__(self)',
      '__call__(self, step)',
    ),
    (optimizers.Optimizer, lambda self: None, 'make(self)', 'make(self, rate)'),
    (
      hook_base.Hook,
      lambda self, run, step: None,
      'after_step(self, run, step)',
      'after_step(self, run, step, output)',
    ),
  ],
)
def test_method_with_the_wrong_arguments_is_reported(
  base, method, got, expected
):
  name = got.partition('(')[0]
  required = {'make': lambda self, rate: None, '__call__': lambda *args: None}
  members = {
    key: value
    for key, value in required.items()
    if key in getattr(base, '__abstractmethods__', ())
  } | {name: method, '__module__': __name__}
  cls = dataclasses.dataclass(frozen=base is not hook_base.Hook, kw_only=True)(
    type('_Wrong', (base,), members)
  )
  with raises_error(
    errors.ConfigError, got=got, expected=expected, mentions=f'_Wrong.{name}'
  ) as error:
    cls.__new__(cls)
  assert 'tests/utils/validation_test.py' in error.value.where


class _UnannotatedHook(hook_base.Hook):
  patience = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class _UnannotatedName(_Extended):
  name = 'own'


@class_registry.register('vt_unannotated')
@dataclasses.dataclass(frozen=True, kw_only=True)
class _UnannotatedConfig(_Config):
  size = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Unannotated(_Extended):
  name: str = 'own'
  decay = 1e-3
  sizes = [1, 2]  # noqa: RUF012
  best = None
  CONSTANT: ClassVar[int] = 3

  @property
  def half(self):
    return self.decay / 2


@pytest.mark.parametrize(
  'cls, arguments, got, fix',
  [
    (_UnannotatedName, {}, "name = 'own'", "name: str = 'own'"),
    (_UnannotatedName, {'name': 'x'}, "name = 'own'", "name: str = 'own'"),
    (_UnannotatedConfig, {}, 'size = 2', 'size: int = 2'),
    (_UnannotatedHook, {'patience': 3}, 'patience = 2', 'patience: int = 2'),
    (_Unannotated, {'decay': 0.1}, 'decay = 1e-3', 'decay: float = 1e-3'),
    (_Unannotated, {'best': 0.1}, 'best = None', 'best: float | None = None'),
    (
      _Unannotated,
      {'sizes': [3]},
      'sizes = [1, 2]',
      'sizes: list = dataclasses.field(default_factory=lambda: [1, 2])',
    ),
  ],
)
def test_field_without_an_annotation_is_reported(cls, arguments, got, fix):
  with raises_error(errors.ConfigError, got=got) as error:
    cls(**arguments)
  assert f'`{fix}`' in error.value.fix
  assert_mentions(error.value.where, 'validation_test.py', got)


@pytest.mark.parametrize('name', ['half', 'CONSTANT', '__doc__', 'other'])
def test_attributes_that_are_no_fields_need_no_annotation(name):
  with raises_error(errors.ConfigError, got=name):
    _Unannotated(**{name: 3})


def test_dataclass_without_an_annotation_is_reported_when_it_is_passed():
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _UserDefined(code_switching_config.CodeSwitching):
    num_copies = 2

  with raises_error(errors.ConfigError, got='num_copies = 2'):
    validation.validate(
      _UserDefined(), code_switching_config.CodeSwitching, name='x'
    )


def test_class_variables_and_properties_are_overridden_by_plain_values():
  @dataclasses.dataclass(kw_only=True)
  class _UserHook(hook_base.Hook):
    state_key = 'own'

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class _UserObjective(masked_lm.MaskedLM):
    ROWS = objective_base.Rows.SINGLE
    GOLD = {'labels': 1}  # noqa: RUF012

  assert _UserHook().state_key == 'own'
  assert validation.validate(_UserObjective(), masked_lm.MaskedLM, name='x')


def test_registered_classes_declare_their_fields():
  for cls in class_registry.registered_classes().values():
    if user_modules.is_xlflax(cls.__module__):
      validation.check_declared_fields(cls)


def test_linen_modules_need_no_decorator():
  class _UserDefined(nn.Module):
    size: int = 1

  class _Derived(validation.validate_fields(_UserDefined)):
    size: int = 2
    depth: int = 1

  assert (_Derived().size, _Derived(depth=3).depth) == (2, 3)


def test_classes_without_fields_need_no_decorator():
  class _UserDefined(_Mutable):
    CONSTANT: ClassVar[int] = 3
    _state: int = 4

  class _WithInit(_Mutable):
    size: int

    def __init__(self, size):
      super().__init__(every_steps=size)
      self.size = size

  @dataclasses.dataclass(init=False)
  class _DecoratedWithInit(_Mutable):
    every_steps = 2
    size = 4

    def __init__(self):
      super().__init__(every_steps=self.every_steps)

  assert (_UserDefined(every_steps=2).every_steps, _WithInit(3).size) == (2, 3)
  assert _DecoratedWithInit().every_steps == 2
  assert validation.unannotated_attribute(_DecoratedWithInit, 'size') is None
  assert validation.unannotated_attribute(_Box, 'size') is None
  assert _UndecoratedHook().size == 1


def test_instances_with_validated_fields_are_copied_and_pickled():
  value = _Mutable(every_steps=2)
  value.recorded.append(3)
  for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
    assert other == value and other.recorded == [3]


def test_path_in_place_of_a_protocol_suggests_the_function_to_open_it():
  """The attribute with the function's name is not part of the protocol."""
  box = _Box()
  assert validation.validate(box, _OpenedProtocol, name='x') is box
  with raises_error(errors.ConfigError, got='folder') as error:
    validation.validate('folder', _OpenedProtocol, name='x')
  assert_mentions(error.value.fix, "open_it('folder')")


class _WithoutBase:
  pass


@pytest.mark.parametrize(
  'hint, base',
  [
    (optimizers.Optimizer, 'xlflax.training.Optimizer'),
    (
      Annotated[optimizers.Optimizer, pydantic.Field(description='one')],
      'xlflax.training.Optimizer',
    ),
    (tuple[hook_base.Hook, ...], 'xlflax.training.Hook'),
    (schedules.Schedule | float, 'xlflax.training.Schedule'),
    (objective_base.Objective, 'xlflax.objectives.Objective'),
    (tuple[eval_task.EvalTask, ...], 'xlflax.evaluation.EvalTask'),
    (nn.Module, 'flax.linen.Module'),
  ],
)
def test_instance_without_the_base_class_suggests_it(hint, base):
  value = _WithoutBase()
  is_sequence = str(hint).startswith('tuple')
  with raises_error(errors.ConfigError) as error:
    validation.validate([value] if is_sequence else value, hint, name='x')
  assert_mentions(error.value.fix, '_WithoutBase', base)


@pytest.mark.parametrize('value', [3, optax.sgd(1.0), _Engine(power=1.0)])
def test_base_class_is_only_suggested_for_user_classes(value):
  hint = tuple[int] if isinstance(value, _Engine) else optimizers.Optimizer
  with raises_error(errors.ConfigError) as error:
    validation.validate(value, hint, name='x')
  assert 'xlflax' not in str(error.value.fix)


class _UndecoratedOptimizer(optimizers.SGD):
  nesterov: float = 0.1


def test_argument_of_a_class_without_the_decorator_is_reported():
  for fields in ({'nesterov': 0.5}, {}):
    with raises_error(
      errors.ConfigError, got='nesterov', where='_UndecoratedOptimizer'
    ) as error:
      _UndecoratedOptimizer(learning_rate=1.0, **fields)
    assert_mentions(
      error.value.fix, '_UndecoratedOptimizer', '@dataclasses.dataclass'
    )
