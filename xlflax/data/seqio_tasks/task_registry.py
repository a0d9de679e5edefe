"""Registry of SeqIO tasks and mixtures with their languages.

The tasks yield examples of the following structure:

- Monolingual: `{'targets': int32 [n], 'starts_document': bool}`
- Parallel: `{'inputs': int32 [n], 'targets': int32 [m]}`, with the languages of
  `inputs` and `targets` in the order of `task_languages`

The examples do not contain special tokens, which are added by datasets. If no
vocabulary is passed, a task is registered with a deferred vocabulary, which
`xlflax.data.seqio_tasks.seqio_reader` replaces with the run's vocabulary.
Requires TensorFlow.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import seqio

from xlflax.data.corpus.corpus_directory import TRAIN
from xlflax.data.dictionaries.bilingual_dictionary import Dictionary
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.plain_text import text_tasks
from xlflax.data.seqio_tasks import (
  code_switched_text,
  data_sources,
  preprocessors,
)
from xlflax.data.seqio_tasks.seqio_vocabulary import (
  DeferredVocabulary,
  SeqioVocabulary,
)
from xlflax.data.tokenizers.base_vocabulary import Vocabulary
from xlflax.utils import errors, user_modules, validation

_languages: dict[str, tuple[str, ...]] = {}
# Numbers of examples by task and split, set by `cached_sizes`.
_sizes: dict[tuple[str, str], int] = {}
# Tasks and mixtures that the modules of the user register, by file.
_module_tasks: dict[str, list[str]] = {}
# Names of the modules of `--task_module`, by the task that they registered.
_task_modules: dict[str, str] = {}


@validation.validate_call
def add_monolingual_task(
  name: str,
  source,
  *,
  language: str,
  preprocessors: Sequence[Callable] = (),
  vocabulary: Vocabulary | None = None,
  **task_options,
) -> seqio.Task:
  """Registers a task that reads text in one language.

  Args:
    name: Name of the task.
    source: SeqIO data source of the task.
    language: Language code of the text.
    preprocessors: SeqIO preprocessors that convert the source's examples to the
      features `text` (a scalar string) and, if the order of lines matters,
      `starts_document` (bool).
    vocabulary: Vocabulary of the task. If None, the run's vocabulary is used.
    **task_options: Arguments of `seqio.TaskRegistry.add`.

  Raises:
    CorpusError: If a task with this name already exists.
  """
  steps = (*preprocessors, *_MONOLINGUAL, tokenize)
  return _add_task(
    name, source, (language,), ('targets',), steps, vocabulary, task_options
  )


@validation.validate_call
def add_parallel_task(
  name: str,
  source,
  *,
  languages: tuple[str, str],
  preprocessors: Sequence[Callable] = (),
  vocabulary: Vocabulary | None = None,
  **task_options,
) -> seqio.Task:
  """Registers a task that reads sentence pairs.

  Args:
    name: Name of the task.
    source: SeqIO data source of the task.
    languages: Codes of the languages of `inputs` and `targets`.
    preprocessors: SeqIO preprocessors that convert the source's examples to the
      features `inputs` (text in the first language) and `targets` (its
      translation).
    vocabulary: Vocabulary of the task. If None, the run's vocabulary is used.
    **task_options: Arguments of `seqio.TaskRegistry.add`.

  Raises:
    CorpusError: If a task with this name already exists.
  """
  steps = (*preprocessors, name_parallel, tokenize)
  return _add_task(
    name,
    source,
    tuple(languages),
    ('inputs', 'targets'),
    steps,
    vocabulary,
    task_options,
  )


@validation.validate_call
def add_code_switched_task(
  name: str,
  source,
  *,
  language: str,
  dictionaries: Sequence[Dictionary | str | os.PathLike],
  settings: CodeSwitching = CodeSwitching(),  # noqa: B008
  preprocessors: Sequence[Callable] = (),
  vocabulary: Vocabulary | None = None,
  **task_options,
) -> seqio.Task:
  """Registers a task that reads code-switched text.

  Words of the text are replaced by their translations before the text is
  tokenized (`xlflax.data.dictionaries.code_switching`).

  Args:
    name: Name of the task, which is part of the random seed.
    source: SeqIO data source of the task.
    language: Language code of the text.
    dictionaries: Dictionaries that translate the language into other languages,
      or paths of dictionary files (`<l1>-<l2>.tsv`), which are read when the
      task is first read.
    settings: Settings for code-switching.
    preprocessors: SeqIO preprocessors, as in `add_monolingual_task`.
    vocabulary: Vocabulary of the task, as in `add_monolingual_task`.
    **task_options: Arguments of `seqio.TaskRegistry.add`.

  Raises:
    CorpusError: If a task with this name already exists.
  """
  switch = code_switched_text.CodeSwitch(name, language, dictionaries, settings)
  steps = (*preprocessors, *_MONOLINGUAL, switch, tokenize)
  source = code_switched_text.repeat_source(source, settings.num_copies)
  return _add_task(
    name, source, (language,), ('targets',), steps, vocabulary, task_options
  )


@validation.validate_call
def add_mixture(
  name: str, tasks: Sequence[str], *, alpha: validation.SamplingExponent = 0.7
) -> seqio.Mixture:
  """Registers a mixture in which a task with N examples has the rate N^α.

  The examples are counted when a mixing rate is first required.

  Args:
    name: Name of the mixture.
    tasks: Names of the tasks and mixtures to combine. Each mixture is replaced
      by its tasks, and its own mixing rates are ignored.
    alpha: Exponent α of the mixing rates.

  Raises:
    CorpusError: If a mixture with this name already exists, or if a task or
      mixture is not registered.
  """
  if name in seqio.MixtureRegistry.names():
    raise errors.CorpusError(
      'A mixture with the same name already exists', got=name
    )
  leaf_tasks = dict.fromkeys(
    task for member in tasks for task in task_names(member)
  )
  rate = functools.partial(_rate, alpha=alpha)
  return seqio.MixtureRegistry.add(name, [(task, rate) for task in leaf_tasks])


def remove_task(name: str) -> None:
  """Removes the task or mixture with the given name, if it exists."""
  seqio.TaskRegistry.remove(name)
  seqio.MixtureRegistry.remove(name)
  _languages.pop(name, None)


def record_module_tasks(module: str, names: Sequence[str]) -> None:
  """Records which tasks a user module registered.

  Args:
    module: Name of the imported module.
    names: Names of the tasks and mixtures that the import registered. They are
      added to those of earlier calls, because a module is imported only once.
  """
  file = getattr(sys.modules[module], '__file__', None) or module
  _task_modules.update(dict.fromkeys(names, module))
  recorded = _module_tasks.setdefault(file, [])
  recorded.extend(name for name in names if name not in recorded)


def describe_task_code(name: str) -> dict[str, str]:
  """Returns hashes of the user's modules that define a task.

  See `user_modules.digest_modules`. The result is empty for a task that no
  module of `--task_module` registered.
  """
  module = _task_modules.get(name)
  return user_modules.digest_modules([module]) if module else {}


def set_task_languages(name: str, languages: Sequence[str]) -> None:
  """Sets the languages of a task that was registered with SeqIO directly.

  Args:
    name: Name of the task.
    languages: Language of `targets`, or languages of `inputs` and `targets`.
  """
  _languages[name] = tuple(languages)


def task_languages(name: str) -> tuple[str, ...]:
  """Returns a monolingual task's language or a parallel task's two languages.

  Raises:
    CorpusError: If the task does not exist, or if its languages are not
      registered.
  """
  get_task(name)
  if name not in _languages:
    raise errors.CorpusError(
      f'No languages are registered for the task {name!r}',
      fix='Register the task with add_monolingual_task or add_parallel_task '
      'in xlflax.data.seqio_tasks.task_registry, or call '
      'set_task_languages.',
    )
  return _languages[name]


def registered_languages(name: str) -> tuple[str, ...]:
  """Returns the languages of a task, or () if none are registered."""
  return _languages.get(name, ())


def get_task(name: str, *, split: str | None = None) -> seqio.Task:
  """Returns a registered SeqIO task by name.

  Args:
    name: Name of the task.
    split: Split that the task must have. If None, the splits are not checked.

  Raises:
    CorpusError: If the task does not exist, or if it does not have the split.
  """
  if name not in seqio.TaskRegistry.names():
    raise text_tasks.unknown_task_error(
      name, 'task', list(seqio.TaskRegistry.names()), module_tasks=_module_tasks
    )
  task = seqio.TaskRegistry.get(name)
  if split is not None and split not in task.splits:
    raise text_tasks.missing_split_error(name, split, task.splits)
  return task


def task_names(name: str, *, split: str | None = None) -> list[str]:
  """Returns the names of all tasks in a mixture and in nested mixtures.

  In contrast to `expand_mixture`, no examples are counted.

  Args:
    name: Name of a task or mixture.
    split: Split that the tasks must have. If None, all tasks are returned.
  """
  return [task.name for task in _find_tasks(name, split)]


def expand_mixture(name: str, *, split: str | None = None) -> dict[str, float]:
  """Returns the mixing rates of all tasks in a mixture and in nested mixtures.

  Args:
    name: Name of a mixture, or of a single task, which gets the rate 1.
    split: Split that the tasks must have. If None, all tasks are returned.

  Returns:
    The mixing rates by task name, not normalized and sorted by name.

  Raises:
    CorpusError: If no mixture or task has this name, if no task has the split,
      or if a rate depends on an unknown number of examples.
  """
  tasks = _find_tasks(name, split)
  if name not in seqio.MixtureRegistry.names():
    return {task.name: 1.0 for task in tasks}
  mixture = seqio.MixtureRegistry.get(name)
  return {task.name: mixture.get_rate(task) for task in tasks}


def _find_tasks(name: str, split: str | None) -> list[seqio.Task]:
  """Returns the tasks of a mixture that have a split, sorted by name.

  If `name` is the name of a task, the list contains only this task.
  """
  if name in seqio.MixtureRegistry.names():
    all_tasks = seqio.MixtureRegistry.get(name).tasks
  elif name in seqio.TaskRegistry.names():
    all_tasks = [seqio.TaskRegistry.get(name)]
  else:
    raise text_tasks.unknown_task_error(
      name,
      'task or mixture',
      [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()],
      module_tasks=_module_tasks,
    )
  tasks = [task for task in all_tasks if split is None or split in task.splits]
  if not tasks:
    raise text_tasks.no_text_error(
      name, split, (task.splits for task in all_tasks)
    )
  return sorted(tasks, key=lambda task: task.name)


def num_examples(name: str, split: str = TRAIN) -> int:
  """Returns the number of examples in a split of a task's source.

  This is the number N_i in the sampling rates p ∝ N^α. For a corpus directory,
  it is the number of sentences or sentence pairs. For a source of documents, it
  is the number of documents.

  Raises:
    CorpusError: If the task or split does not exist, or if the number is
      unknown.
  """
  if (name, split) in _sizes:
    return _sizes[name, split]
  number = get_task(name, split=split).num_input_examples(split)
  if number is None or number == float('inf'):
    raise errors.CorpusError(
      'The mixing rate requires the number of examples, but the source of '
      f'the task {name!r} does not provide this number for the split {split!r}',
      where=f'task {name}',
      fix=f'Pass num_input_examples={{{split!r}: N}} to the source of the task, '
      'or set fixed rates in the mixture.',
    )
  return int(number)


@contextlib.contextmanager
def cached_sizes(sizes: Mapping[tuple[str, str], int]) -> Iterator[None]:
  """Context manager inside which `num_examples` returns the given sizes.

  Without it, `num_examples` may count the examples of a task.

  Args:
    sizes: Number of examples by task name and split.
  """
  _sizes.update(sizes)
  try:
    yield
  finally:
    for key in sizes:
      del _sizes[key]


def fingerprint_task_files(name: str, split: str = TRAIN) -> tuple | None:
  """Returns the fingerprints of a task's text files, if the task has any."""
  source = get_task(name).source
  if not isinstance(source, data_sources.TextSource):
    return None
  return source.text.fingerprint(split)


def name_monolingual(dataset):
  """Renames `text` to `targets` and keeps `starts_document`.

  All other features are dropped.

  Raises:
    CorpusError: If the examples lack a feature, or if `text` is not a scalar
      string.
  """
  renamed_dataset = preprocessors.rename_features(
    dataset, {'targets': 'text', 'starts_document': 'starts_document'}
  )
  preprocessors.check_text_features(dataset, ['text'])
  return renamed_dataset


_MONOLINGUAL = (preprocessors.mark_documents, name_monolingual)


def name_parallel(dataset):
  """Drops all features except the parallel texts `inputs` and `targets`.

  Raises:
    CorpusError: If the examples lack a feature, or if a text is not a scalar
      string.
  """
  renamed_dataset = preprocessors.rename_features(
    dataset, {'inputs': 'inputs', 'targets': 'targets'}
  )
  preprocessors.check_text_features(dataset, ['inputs', 'targets'])
  return renamed_dataset


def tokenize(dataset, output_features):
  """Tokenizes text features. Registered tasks end with this preprocessor."""
  return preprocessors.tokenize_features(dataset, output_features)


def _add_task(name, source, languages, features, steps, vocabulary, options):
  check_unused_name(name)
  data_sources.record_definition(name)
  vocabularies = {
    feature: SeqioVocabulary(vocabulary, language=language)
    if vocabulary
    else DeferredVocabulary(language)
    for feature, language in zip(features, languages, strict=True)
  }
  task = seqio.TaskRegistry.add(
    name,
    source,
    preprocessors=list(steps),
    output_features={
      feature: seqio.Feature(feature_vocabulary, add_eos=False)
      for feature, feature_vocabulary in vocabularies.items()
    },
    **options,
  )
  _languages[name] = languages
  return task


def check_unused_name(name: str) -> None:
  """Raises a CorpusError if a task with the given name already exists."""
  if name in seqio.TaskRegistry.names():
    raise errors.CorpusError(
      'A task with the same name already exists',
      got=name,
      fix='Choose a different name, or remove the task from '
      'seqio.TaskRegistry.',
    )


def _rate(task: seqio.Task, *, alpha: float) -> float:
  split = TRAIN if TRAIN in task.splits else task.splits[0]
  return float(num_examples(task.name, split)) ** alpha
