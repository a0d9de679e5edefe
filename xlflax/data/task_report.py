"""Human-readable tables and examples for SeqIO tasks. Requires TensorFlow."""

import itertools
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import seqio
import tensorflow as tf

from xlflax.data import tokenized_examples
from xlflax.data.corpus.corpus_directory import TRAIN
from xlflax.data.seqio_tasks import data_sources, seqio_reader, task_registry
from xlflax.data.seqio_tasks.seqio_vocabulary import (
  DeferredVocabulary,
  SeqioVocabulary,
  resolve_deferred,
)
from xlflax.data.supervised.sources import supervised_tasks
from xlflax.data.tokenizers.base_vocabulary import Vocabulary

_MAX_TOKENS = 64
_MAX_CHARACTERS = 200


def list_registered() -> list[dict]:
  """Returns a table row for each registered task and mixture."""
  tasks = [
    {
      'name': name,
      'kind': supervised_tasks.kind_of(name) or 'task',
      'languages': list(task_registry.registered_languages(name)),
      'splits': list(seqio.TaskRegistry.get(name).splits),
    }
    for name in sorted(seqio.TaskRegistry.names())
  ]
  mixtures = []
  for name in sorted(seqio.MixtureRegistry.names()):
    members = seqio.MixtureRegistry.get(name).tasks
    languages = {
      code
      for task in members
      for code in task_registry.registered_languages(task.name)
    }
    splits = dict.fromkeys(split for task in members for split in task.splits)
    mixtures.append(
      {
        'name': name,
        'kind': f'mixture of {len(members)}',
        'languages': sorted(languages),
        'splits': list(splits),
      }
    )
  return tasks + mixtures


def group_by_family(rows: Sequence[dict]) -> list[dict]:
  """Groups tasks and mixtures into families, such as `mc4` or `corpus.mono`.

  The family of `opus.koran.de_en` is `opus`, because this prefix is a mixture.
  The family of a name without such a prefix is the name without its last part.

  Args:
    rows: Table rows of tasks and mixtures, as returned by `list_registered`.

  Returns:
    A table row for each family, sorted by name: the kinds and the number of its
    tasks, the number of their languages, and their splits. A mixture is counted
    only if its family has no tasks.
  """
  mixtures = {row['name'] for row in rows if _is_mixture(row)}
  prefixes = {
    prefix for row in rows for prefix in _name_prefixes(row['name'])[1:]
  }
  families: dict[str, list[dict]] = {}
  for row in rows:
    family = _find_family(row['name'], mixtures & prefixes)
    families.setdefault(family, []).append(row)
  table = []
  for family, members in sorted(families.items()):
    tasks = [row for row in members if not _is_mixture(row)] or members
    kinds = sorted({row['kind'].partition(' of ')[0] for row in tasks})
    table.append(
      {
        'family': family,
        'kind': ', '.join(kinds),
        'tasks': len(tasks),
        'languages': len({code for row in tasks for code in row['languages']}),
        'splits': list(
          dict.fromkeys(split for row in tasks for split in row['splits'])
        ),
      }
    )
  return table


def _is_mixture(row: dict) -> bool:
  """Returns whether a row of `list_registered` describes a mixture."""
  return row['kind'].startswith('mixture of ')


def _name_prefixes(name: str) -> list[str]:
  """Returns `a.b.c`, `a.b` and `a` for the name `a.b.c`."""
  parts = name.split('.')
  return ['.'.join(parts[:end]) for end in range(len(parts), 0, -1)]


def _find_family(name: str, family_mixtures: Collection[str]) -> str:
  """Returns the family of a task or mixture; see `group_by_family`."""
  prefixes = _name_prefixes(name)
  return next(
    (prefix for prefix in prefixes if prefix in family_mixtures),
    prefixes[:2][-1],
  )


def mixture_rates(name: str, *, split: str = TRAIN) -> list[dict]:
  """Returns the sampling rate of each task in a mixture.

  Args:
    name: Name of a mixture or task.
    split: Split whose examples are counted.

  Returns:
    One dict per task, with its name, languages, number of examples, rate, and
    fraction of the sum of all rates.

  Raises:
    CorpusError: If no mixture or task has this name, or if no task has the
      split.
  """
  rates = task_registry.expand_mixture(name, split=split)
  total = sum(rates.values())
  return [
    {
      'name': task,
      'languages': list(task_registry.registered_languages(task)),
      'examples': task_registry.num_examples(task, split),
      'rate': f'{rate:.4g}',
      'share': f'{rate / total:.1%}',
    }
    for task, rate in rates.items()
  ]


def describe_preprocessing(
  name: str,
  vocabulary: Vocabulary | None,
  *,
  split: str = TRAIN,
  num_examples: int = 3,
) -> Iterator[str]:
  """Yields lines that show examples of a task after each preprocessing step.

  Args:
    name: Name of the task.
    vocabulary: Vocabulary for tasks that were registered without a vocabulary.
      If None, such tasks are shown only up to tokenization.
    split: Name of the split, such as 'train'.
    num_examples: Number of examples to show after each step.

  Raises:
    CorpusError: If the task or the split does not exist, if a line is
      malformed, if the examples do not have the output features of the task, or
      if the task adds special tokens. In the last two cases, the error is
      raised after the last line.
    VocabularyError: If the task was registered with a different vocabulary.
  """
  task = task_registry.get_task(name, split=split)
  languages = task_registry.registered_languages(name)
  if vocabulary:
    task = resolve_deferred(task, vocabulary, languages=languages)
  yield (
    f'{name}: {"-".join(languages) or "languages unknown"}, splits '
    f'{", ".join(task.splits)}'
  )
  with (
    data_sources.converting_task_errors(name, is_shown=True),
    seqio.utils.map_seed_manager(data_sources.PREPROCESSING_SEED),
  ):
    yield from _describe_steps(task, vocabulary, split, num_examples)


def _describe_steps(
  task: seqio.Task, vocabulary: Vocabulary | None, split: str, num_examples: int
) -> Iterator[str]:
  """Yields lines that show examples after each preprocessing step.

  If a vocabulary is given, the special tokens of the last step are checked.
  """
  dataset = task.source.get_dataset(split=split, shuffle=False)
  yield f'\n0. source: {type(task.source).__name__}'
  yield from _examples(dataset, task, num_examples)
  for number, step in enumerate(task.preprocessors, start=1):
    yield f'\n{number}. {data_sources.step_name(step)}'
    if step is task_registry.tokenize and _is_deferred(task):
      yield '  (not shown; pass a vocabulary with --vocabulary=DIR)'
      return
    step = seqio.utils.add_kwargs_to_transform(
      step, sequence_length=None, output_features=task.output_features
    )
    dataset = step(dataset)
    yield from _examples(dataset, task, num_examples)
  task._validate_preprocessing(dataset)
  if vocabulary and supervised_tasks.kind_of(task.name) is None:
    examples = list(data_sources.numpy_examples(dataset.take(num_examples)))
    seqio_reader.check_special_tokens(
      task, _token_columns(examples, task), vocabulary, is_shown=True
    )


def _token_columns(
  examples: Sequence, task: seqio.Task
) -> dict[str, tokenized_examples.Ragged]:
  """Returns the output features of a task that contain token ids."""
  if not examples or not all(isinstance(example, dict) for example in examples):
    return {}
  columns = {
    name: [np.asarray(example.get(name)) for example in examples]
    for name in task.output_features
  }
  return {
    name: tokenized_examples.Ragged(
      np.concatenate(column), np.array([ids.size for ids in column], np.int64)
    )
    for name, column in columns.items()
    if all(
      ids.ndim == 1 and np.issubdtype(ids.dtype, np.integer) for ids in column
    )
  }


def format_table(rows: Sequence[dict], columns: Sequence[str]) -> str:
  """Formats rows as an aligned text table with a header of column names.

  Args:
    rows: Rows of the table, as dicts that map column names to values.
    columns: Names of the columns to show, in order.
  """
  lines = [
    list(columns),
    *([_cell(row[column]) for column in columns] for row in rows),
  ]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) for cell, width in zip(line, widths, strict=True)
    ).rstrip()
    for line in lines
  )


def _cell(value) -> str:
  if isinstance(value, list):
    shortened = value if len(value) <= 8 else [*value[:8], f'… ({len(value)})']
    return ' '.join(shortened)
  return f'{value:,}' if isinstance(value, int) else str(value)


def _is_deferred(task: seqio.Task) -> bool:
  return any(
    isinstance(feature.vocabulary, DeferredVocabulary)
    for feature in task.output_features.values()
  )


def _examples(
  dataset: tf.data.Dataset, task: seqio.Task, num_examples: int
) -> Iterator[str]:
  examples = data_sources.numpy_examples(dataset.take(num_examples))
  index = -1
  for index, example in enumerate(itertools.islice(examples, num_examples)):
    if not isinstance(example, dict):
      example = {'': example}
    for position, (key, value) in enumerate(sorted(example.items())):
      mark = f'[{index}]' if position == 0 else '   '
      for line in _value_lines(key, value, task):
        yield f'  {mark} {line}'
        mark = '   '
  if index < 0:
    yield '  (no examples)'


def _value_lines(key: str, value, task: seqio.Task) -> Iterator[str]:
  if isinstance(value, bytes):
    text = value.decode('utf-8', errors='replace')
    yield f'{key}: {_shorten(text)!r}'
    return
  if isinstance(value, np.ndarray) and value.dtype == object:
    texts = [item.decode('utf-8', errors='replace') for item in value]
    yield f'{key}: {_shorten(str(texts))}'
    return
  feature = task.output_features.get(key)
  is_ids = (
    np.ndim(value) == 1
    and np.issubdtype(value.dtype, np.integer)
    and supervised_tasks.kind_of(task.name) is None
  )
  if feature is None or not is_ids:
    yield f'{key}: {value}'
    return
  ids = value.tolist()
  yield f'{key}: {len(ids)} ids {_shorten(" ".join(map(str, ids)))}'
  if isinstance(feature.vocabulary, SeqioVocabulary):
    tokens = ' '.join(map(feature.vocabulary.piece, ids[:_MAX_TOKENS]))
    yield f'  tokens:  {_shorten(tokens)}'
  if not isinstance(feature.vocabulary, seqio.PassThroughVocabulary):
    yield f'  decoded: {_shorten(feature.vocabulary.decode(ids))!r}'


def _shorten(text: str) -> str:
  if len(text) <= _MAX_CHARACTERS:
    return text
  return text[:_MAX_CHARACTERS] + f'… ({len(text)} characters)'
