"""Analysis of which gin bindings affect the objects that a command constructs.

A binding has an effect if it supplies a parameter's value to an object that is
constructed in the binding's scopes. Gin ignores all other bindings. The objects
are found without constructing them, by following the references of the
configuration.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from xlflax.config import binding_locations, gin_errors
from xlflax.utils import errors, name_suggestions

# Objects that the commands build. Gin files may serve several commands.
_ROOTS = ('trainer.Trainer', 'evaluate.evaluate', 'suite_config.Suite')
_MAX_SUGGESTIONS = 3
_DEV_FILES = 'DEV_FILES'  # Macro with the development files of fine-tuning.
_EVALUATION = 'during_training.Evaluation'
_EVALUATION_TASKS = 'xlflax.evaluation.tasks.'


@dataclasses.dataclass(frozen=True)
class Effects:
  """Objects that a command builds, and the gin bindings that set their values.

  Attributes:
    parameters: Triples (scope, selector, parameter) of the bindings that supply
      a value to an object.
    objects: Pairs (scope, selector) of the objects that are constructed.
  """

  parameters: set[tuple[str, str, str]] = dataclasses.field(default_factory=set)
  objects: set[tuple[str, str]] = dataclasses.field(default_factory=set)

  def add_call(
    self,
    bound: gin_errors.Bound,
    selector: str,
    *,
    scope: tuple[str, ...] = (),
    given: Collection[str] = (),
  ) -> None:
    """Records the bindings and objects that a call to a configurable uses.

    Args:
      bound: Bindings as Gin stores them: parameter values by (scope, selector).
      selector: Complete selector of the class or function.
      scope: Active scopes, outermost first.
      given: Parameters that the caller passes. Their bindings count as used,
        but the objects that these bindings refer to are not constructed.
    """
    self.objects.add(('/'.join(scope), selector))
    parameters = gin_errors.effective_bindings(bound, selector, scope)
    for name, (source, value) in parameters.items():
      self.parameters.add((source, selector, name))
      if name not in given:
        self.add_value(bound, value, scope=scope)

  def add_value(
    self, bound: gin_errors.Bound, value: Any, *, scope: tuple[str, ...] = ()
  ) -> None:
    """Records the bindings and objects that are used to build a gin value.

    The value may contain references to configurables.

    Args:
      bound: Bindings as Gin stores them: parameter values by (scope, selector).
      value: Value of a parameter, in Gin's internal representation.
      scope: Active scopes, outermost first.
    """
    for reference in gin_errors.references_in(value):
      inner = tuple(reference.scopes) or scope
      selector = reference.configurable.selector
      if ('/'.join(inner), selector) not in self.objects:
        self.add_call(bound, selector, scope=inner)

  def add_used(self, bound: gin_errors.Bound, used: gin_errors.Bound) -> None:
    """Records the objects that Gin has built and the bindings that it used.

    Args:
      bound: Bindings as Gin stores them: parameter values by (scope, selector).
      used: Operative configuration of Gin, which contains only the bindings
        that Gin used: parameter values by (scope, selector).
    """
    for (scope, selector), values in used.items():
      self.objects.add((scope, selector))
      parameters = gin_errors.effective_bindings(
        bound, selector, tuple(filter(None, scope.split('/')))
      )
      self.parameters.update(
        (source, selector, name)
        for name, (source, _) in parameters.items()
        if name in values
      )


@dataclasses.dataclass(frozen=True)
class Option:
  """A command-line option that a gin binding requires.

  Attributes:
    name: Command-line option with an example of its value, as the user types
      it.
    expected: Description of the option and its valid values for the error
      message, or None if they are not known.
  """

  name: str
  expected: str | None = None


def file_effects(stages: Iterable[gin_errors.Bound]) -> Effects:
  """Returns the bindings in gin files that affect at least one command.

  The result also contains the objects that the commands build.

  Args:
    stages: Copies of all bindings, in Gin's internal representation, one after
      each gin file that was read. A binding that has an effect at one stage may
      be overridden on purpose by a later file or flag.
  """
  effects = Effects()
  for bound in stages:
    stage = Effects()
    for scope, selector in bound:
      if not scope and selector.endswith(tuple(f'.{x}' for x in _ROOTS)):
        stage.add_call(bound, selector)
    effects.parameters.update(stage.parameters)
    effects.objects.update(stage.objects)
  return effects


def unused_bindings(
  bindings: Sequence[binding_locations.Binding],
  bound: gin_errors.Bound,
  effects: Effects,
  stages: Sequence[gin_errors.Bound],
) -> list[binding_locations.Binding]:
  """Returns the user's bindings that have no effect.

  A binding in a file may be overridden on purpose by a later file or flag. It
  is reported only if it has no effect at the end of its file and at all later
  stages. Objects of earlier stages, such as the default optimizer of a shipped
  file that the user's file replaces, are not considered.

  A value of a macro that a gin file requires is never reported, because the
  file cannot be read without it.

  Args:
    bindings: All bindings of the configuration.
    bound: Bindings as Gin stores them: parameter values by (scope, selector).
    effects: Record of the objects that the command builds, and of the bindings
      that supplied values to them.
    stages: Copies of all bindings, in Gin's internal representation, one after
      each gin file that was read, as in `file_effects`.
  """
  required = {
    binding.name for binding in bindings if 'gin.REQUIRED' in binding.macros
  }
  unused = [
    binding
    for binding in bindings
    if not binding.is_shipped
    and binding.name not in required
    and not _is_used(binding, bound, effects)
  ]
  if all(binding.is_flag for binding in unused):
    return unused
  later_effects = functools.cache(
    lambda index: file_effects([*stages[index:], bound])
  )
  return [
    binding
    for binding in unused
    if binding.is_flag
    or not _is_used(binding, bound, later_effects(binding.file_index))
  ]


def _is_used(
  binding: binding_locations.Binding, bound: gin_errors.Bound, effects: Effects
) -> bool:
  """Returns whether a binding supplies a value."""
  keys = matching_keys(binding, bound)
  return not keys or not keys.isdisjoint(effects.parameters)


def matching_keys(
  binding: binding_locations.Binding, bound: gin_errors.Bound
) -> set[tuple[str, str, str]]:
  """Resolves a binding to its scope, complete selector and parameter.

  A gin file may import a module under another name. Several classes can
  therefore match.

  Args:
    binding: Binding to resolve.
    bound: Bindings as Gin stores them: parameter values by (scope, selector).
  """
  if not binding.parameter:
    return {(binding.name, gin_errors.MACRO, 'value')}
  keys = {
    (scope, selector, binding.parameter)
    for (scope, selector), values in bound.items()
    if scope == binding.scope
    and binding.parameter in values
    and selector.rpartition('.')[2] == binding.selector.rpartition('.')[2]
  }
  exact = {key for key in keys if f'.{key[1]}'.endswith(f'.{binding.selector}')}
  return exact or keys


def unused_error(
  unused: Sequence[binding_locations.Binding],
  bindings: Sequence[binding_locations.Binding],
  bound: gin_errors.Bound,
  effects: Effects,
  imports: Collection[Any],
  evaluation_option: Option | None = None,
) -> errors.ConfigError:
  """Creates the error that reports bindings without effect.

  Args:
    unused: Bindings without effect. There must be at least one.
    bindings: All bindings of the configuration.
    bound: Bindings as Gin stores them: parameter values by (scope, selector).
    effects: Record of the objects that the command builds, and of the bindings
      that supplied values to them.
    imports: Modules that the gin files import, in Gin's internal
      representation.
    evaluation_option: Command-line option that enables evaluation during
      training. If None, evaluation is enabled by the macro EVALUATION.
  """
  binding = unused[0]
  if _is_used_only_in_evaluation(binding, bound, effects):
    return _evaluation_only_error(unused, bindings, bound, evaluation_option)
  choices = _alternatives(binding, bound, effects, imports)
  matches = name_suggestions.close_matches(binding.name, choices)
  if binding.parameter:
    matches = matches or sorted(choices)[:_MAX_SUGGESTIONS]
  readers = [
    other.name
    for other in bindings
    if not binding.parameter and binding.name in other.macros
  ]
  fix = 'Construct the object by a reference, or remove the binding.'
  if readers:
    remedies = [
      flag
      for reader in dict.fromkeys(readers)
      if (flag := _constructing_flag(reader.rpartition('.')[0], bindings))
    ]
    remedy = (
      f'Pass {" or ".join(remedies)}'
      if remedies
      else 'Add a reference to the object'
    )
    fix = (
      f'%{binding.name} supplies a value only to '
      f'{", ".join(dict.fromkeys(readers))}, but the command does not '
      f'construct such an object. {remedy}, or remove the binding.'
    )
    fields = {reader.rpartition('.')[2] for reader in readers}
    if replacement := _find_replaced_macro(readers, bindings):
      user_binding, macro = replacement
      fix = (
        f'%{binding.name} supplies a value to the object that %{macro} '
        f'constructs, but {user_binding.name} ({user_binding.location}) '
        f'replaces %{macro}. Remove one of the two bindings.'
      )
    if user_bindings := _suggest_user_bindings(
      fields, binding.name, effects, imports
    ):
      fix += f' To use the macro in your own class, bind {user_bindings}.'
  elif matches:
    fix = f'Did you mean {" or ".join(matches)}?'
  elif not binding.parameter:
    fix = 'Correct the name of the macro, or remove the binding.'
  selectors = {key[1] for key in matching_keys(binding, bound)}
  if binding.parameter and selectors.isdisjoint(x for _, x in effects.objects):
    scoped_selector = binding.name.rpartition('.')[0]
    flag = _constructing_flag(scoped_selector, bindings)
    remedy = f'Pass {flag}' if flag else f'Refer to it by @{scoped_selector}()'
    fix = (
      f'The configuration does not construct {binding.selector}. {remedy}, or '
      f'remove the binding. {fix}'
    )
  return errors.ConfigError(
    'The gin binding has no effect on any object that the configuration '
    'constructs',
    got=binding.name,
    expected=name_suggestions.format_choices(choices) if choices else None,
    where=binding.location,
    fix=fix + _list_others(unused),
  )


def _suggest_user_bindings(
  fields: Collection[str],
  macro: str,
  effects: Effects,
  imports: Collection[Any],
) -> str:
  """Returns bindings by which objects of a user's classes can use a macro.

  Args:
    fields: Names of fields to which the macro supplies values in classes of
      xlflax.
    macro: Name of the macro.
    effects: Record of the objects that the command builds.
    imports: Modules that the gin files import, in Gin's internal
      representation.

  Returns:
    Bindings such as 'own.Poly.warmup_steps = %WARMUP_STEPS', separated by
    'or'. Empty if no object of a user's class has one of the fields.
  """
  package = __name__.partition('.')[0]
  names = {
    f'{gin_errors.short_name(selector, imports)}.{field}'
    for _, selector in effects.objects
    if selector.partition('.')[0] not in (package, 'gin')
    for field in set(gin_errors.parameter_names(selector)) & set(fields)
  }
  return ' or '.join(f'{name} = %{macro}' for name in sorted(names))


def _find_replaced_macro(
  readers: Sequence[str], bindings: Sequence[binding_locations.Binding]
) -> tuple[binding_locations.Binding, str] | None:
  """Finds a user's binding that replaces a macro which constructs a reader.

  For example, `AdamW.learning_rate = 5e-4` replaces `%SCHEDULE`.

  Args:
    readers: Names of parameters, such as 'schedules.Linear.warmup_steps'.
    bindings: All bindings of the configuration.

  Returns:
    The binding and the name of the macro, or None.
  """
  selectors = {reader.rpartition('.')[0] for reader in readers}
  macros = {
    binding.name
    for binding in bindings
    if not binding.parameter and selectors.intersection(binding.references)
  }
  replaced: dict[str, str] = {}
  for binding in bindings:
    used = macros.intersection(binding.macros)
    if used and binding.parameter:
      replaced[binding.name] = used.pop()
    elif binding.name in replaced and not binding.is_shipped:
      return binding, replaced[binding.name]
  return None


def _constructing_flag(
  selector: str, bindings: Sequence[binding_locations.Binding]
) -> str | None:
  """Returns the flag of the macro that can construct a class, or None.

  Args:
    selector: Scopes and selector of the class, such as 'schedules.WSD'.
    bindings: All bindings of the configuration. If exactly one macro has a
      value from the same module and with the same scopes, such as
      `@schedules.Linear()`, the result is the flag that sets this macro.
      Otherwise, it is None.
  """
  module = selector.rpartition('.')[0]
  macros = {
    binding.name
    for binding in bindings
    if not binding.parameter
    and any(x.rpartition('.')[0] == module for x in binding.references)
  }
  return f'--gin.{macros.pop()}=@{selector}()' if len(macros) == 1 else None


def _is_used_only_in_evaluation(
  binding: binding_locations.Binding, bound: gin_errors.Bound, effects: Effects
) -> bool:
  """Returns whether a binding has an effect only if training evaluates."""
  evaluation = _evaluation_effects(bound)
  built = {selector for _, selector in effects.objects}
  if any(
    selector in built and f'.{selector}'.endswith(f'.{_EVALUATION}')
    for _, selector in evaluation.objects
  ):
    return False
  return not matching_keys(binding, bound).isdisjoint(evaluation.parameters)


def _evaluation_effects(bound: gin_errors.Bound) -> Effects:
  """Returns the bindings that evaluation during training would use."""
  effects = Effects()
  for selector in {selector for _, selector in bound}:
    if f'.{selector}'.endswith(f'.{_EVALUATION}'):
      effects.add_call(bound, selector)
  return effects


def _evaluation_only_error(
  unused: Sequence[binding_locations.Binding],
  bindings: Sequence[binding_locations.Binding],
  bound: gin_errors.Bound,
  option: Option | None,
) -> errors.ConfigError:
  """Creates the error for a binding of an evaluation that is not built."""
  binding = unused[0]
  option = option or Option(f'--gin.EVALUATION=@{_EVALUATION}()')
  dev_files = (_DEV_FILES, gin_errors.MACRO)
  is_read = (*dev_files, 'value') in _evaluation_effects(bound).parameters
  lacks_files = is_read and not bound.get(dev_files, {}).get('value')
  is_task_macro = not binding.parameter and any(
    selector.startswith(_EVALUATION_TASKS)
    for reader in bindings
    if binding.name in reader.macros
    for _, selector, _ in matching_keys(reader, bound)
  )
  return errors.ConfigError(
    f'{binding.name} is used only for evaluation during training, and this '
    'command does not evaluate during training',
    got=binding.name,
    expected=option.expected,
    where=binding.location,
    fix=f'Pass {option.name}'
    + (f' and --gin.{_DEV_FILES}' if lacks_files else '')
    + f', or remove {binding.name}.'
    + (
      f' For test files, pass --eval_gin="{binding.name}=VALUE".'
      if is_task_macro
      else ''
    )
    + _list_others(unused),
  )


def _list_others(unused: Sequence[binding_locations.Binding]) -> str:
  """Returns a sentence that lists the unused bindings after the first."""
  others = ', '.join(f'{other.name} ({other.location})' for other in unused[1:])
  if not others:
    return ''
  return f' The following bindings have no effect either: {others}.'


def _alternatives(
  binding: binding_locations.Binding,
  bound: gin_errors.Bound,
  effects: Effects,
  imports: Collection[Any],
) -> set[str]:
  """Suggests bindings that have an effect, in place of one without effect.

  The suggestions are bindings for objects with the same parameter: for those in
  the scope of the binding, or else for those of the same class, or else for all
  others.
  """
  if not binding.parameter:
    return {
      scope
      for scope, selector in effects.objects
      if selector == gin_errors.MACRO
    }
  macros = {scope for scope, selector in bound if selector == gin_errors.MACRO}
  selectors = {key[1] for key in matching_keys(binding, bound)}
  objects = {
    (scope, selector)
    for scope, selector in effects.objects
    if selector in selectors
    or (
      binding.parameter in gin_errors.parameter_names(selector)
      and selector != gin_errors.MACRO
    )
  }
  objects = (
    {obj for obj in objects if binding.scope and obj[0] == binding.scope}
    or {obj for obj in objects if obj[1] in selectors}
    or objects
  )
  names = set()
  for scope, selector in objects:
    parameters = gin_errors.effective_bindings(
      bound, selector, tuple(filter(None, scope.split('/')))
    )
    source, _ = parameters.get(binding.parameter, ('', None))
    for prefix in {scope, source} - macros:
      # An outer binding has no effect if an inner one exists.
      if len(prefix) >= len(source):
        name = f'{gin_errors.short_name(selector, imports)}.{binding.parameter}'
        names.add(f'{prefix}/{name}' if prefix else name)
  return names
