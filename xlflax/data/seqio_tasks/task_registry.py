"""SeqIO tasks and mixtures whose languages are known. Needs TensorFlow.

Conventions of the examples that a task yields:

- monolingual: `{'targets': int32 [n], 'starts_document': bool}`
- parallel: `{'inputs': int32 [n], 'targets': int32 [m]}`, the languages of
  the two in the order of `task_languages`

without any special symbol: streams add those. Tasks are registered with a
deferred vocabulary unless they are given one;
`xlflax.data.seqio_tasks.seqio_reader` fills in the run's.
"""

import contextlib
import functools
import os
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
from xlflax.utils import errors, validation

_languages: dict[str, tuple[str, ...]] = {}
_sizes: dict[tuple[str, str], int] = {}  # see `known_sizes`


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
  """Registers a task of one language's text.

  Args:
    name: the task's name.
    source: a SeqIO data source.
    language: language code of the text.
    preprocessors: from the source's examples to `text` (a scalar string) and,
      where the order of lines matters, `starts_document` (bool).
    vocabulary: a vocabulary of its own; None: that of the run.
    **task_options: passed to `seqio.TaskRegistry.add`.

  Raises:
    CorpusError: the name is taken.
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
  """Registers a task of sentence pairs.

  As `add_monolingual_task`, but the preprocessors lead to `inputs` (text of
  the first language) and `targets` (its translation).
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
  """Registers a task of one language's text with words of others in it.

  As `add_monolingual_task`, but words of the text are replaced by their
  translations before it is tokenised (`xlflax.data.dictionaries.code_switching`).

  Args:
    name: the task's name, on which the random draws depend.
    source: a SeqIO data source.
    language: language code of the text.
    dictionaries: of the language and any others, or paths of such files
      (`<l1>-<l2>.tsv`), which are read when the task first is.
    settings: how often, how much, into which languages; how many copies.
    preprocessors: see `add_monolingual_task`.
    vocabulary: see `add_monolingual_task`.
    **task_options: passed to `seqio.TaskRegistry.add`.

  Raises:
    CorpusError: the name is taken.
  """
  switch = code_switched_text.CodeSwitch(name, language, dictionaries, settings)
  steps = (*preprocessors, *_MONOLINGUAL, switch, tokenize)
  source = code_switched_text.repeat_source(source, settings.copies)
  return _add_task(
    name, source, (language,), ('targets',), steps, vocabulary, task_options
  )


@validation.validate_call
def add_mixture(
  name: str, tasks: Sequence[str], *, alpha: validation.SamplingExponent = 0.7
) -> seqio.Mixture:
  """Registers a mixture with rates N_i^α, N_i the examples of task i.

  The sizes are asked for when a rate is first needed, not now.
  """
  if name in seqio.MixtureRegistry.names():
    raise errors.CorpusError("The mixture's name is taken", got=name)
  rate = functools.partial(_rate, alpha=alpha)
  return seqio.MixtureRegistry.add(name, [(task, rate) for task in tasks])


def remove_task(name: str) -> None:
  """Removes a task or mixture, if there is one of this name."""
  seqio.TaskRegistry.remove(name)
  seqio.MixtureRegistry.remove(name)
  _languages.pop(name, None)


def set_task_languages(name: str, languages: Sequence[str]) -> None:
  """Tells the languages of a task that was registered with plain SeqIO.

  One language: its `targets` are text of that; two: those of `inputs` and
  `targets`.
  """
  _languages[name] = tuple(languages)


def task_languages(name: str) -> tuple[str, ...]:
  """The language of a monolingual task, or the two of a parallel one.

  Raises:
    CorpusError: no such task, or its languages were never told.
  """
  get_task(name)
  if name not in _languages:
    raise errors.CorpusError(
      'The languages of a task are not known',
      where=f'task {name}',
      fix='register it with add_monolingual_task or add_parallel_task of '
      'xlflax.data.seqio_tasks.task_registry, or call set_task_languages',
    )
  return _languages[name]


def known_languages(name: str) -> tuple[str, ...]:
  """As `task_languages`, but empty for a task that was never told."""
  return _languages.get(name, ())


def get_task(name: str, *, split: str | None = None) -> seqio.Task:
  """The registered task.

  Raises:
    CorpusError: no task of this name, or it lacks the split, if one is given.
  """
  if name not in seqio.TaskRegistry.names():
    raise text_tasks.unknown_task_error(
      name, 'task', list(seqio.TaskRegistry.names())
    )
  task = seqio.TaskRegistry.get(name)
  if split is not None and split not in task.splits:
    raise text_tasks.missing_split_error(name, split, task.splits)
  return task


def task_names(name: str, *, split: str | None = None) -> list[str]:
  """As `expand_mixture`, but without the rates, for which text may have to be read."""
  return [task.name for task in _tasks(name, split)]


def expand_mixture(name: str, *, split: str | None = None) -> dict[str, float]:
  """The tasks of a task or (nested) mixture, with their mixing rates.

  Args:
    name: of a task (its rate is 1) or a mixture.
    split: leave out tasks that lack this split.

  Returns:
    Rates by task name, not normalised, in the order of the names.

  Raises:
    CorpusError: unknown name, no task with the split, or a rate that depends
      on an unknown number of examples.
  """
  tasks = _tasks(name, split)
  if name not in seqio.MixtureRegistry.names():
    return {task.name: 1.0 for task in tasks}
  mixture = seqio.MixtureRegistry.get(name)
  return {task.name: mixture.get_rate(task) for task in tasks}


def _tasks(name: str, split: str | None) -> list[seqio.Task]:
  """The tasks of a task or mixture that have a split, by their names."""
  if name in seqio.MixtureRegistry.names():
    all_tasks = seqio.MixtureRegistry.get(name).tasks
  elif name in seqio.TaskRegistry.names():
    all_tasks = [seqio.TaskRegistry.get(name)]
  else:
    raise text_tasks.unknown_task_error(
      name,
      'task or mixture',
      [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()],
    )
  tasks = [task for task in all_tasks if split is None or split in task.splits]
  if not tasks:
    raise text_tasks.no_text_error(name, split)
  return sorted(tasks, key=lambda task: task.name)


def num_examples(name: str, split: str = TRAIN) -> int:
  """Examples of a task's source: N_i of p ∝ N^α.

  Sentences or pairs for corpus directories; a source of documents counts
  those.

  Raises:
    CorpusError: no such task or split, or a source that does not tell.
  """
  if (name, split) in _sizes:
    return _sizes[name, split]
  number = get_task(name, split=split).num_input_examples(split)
  if number is None or number == float('inf'):
    raise errors.CorpusError(
      'The number of examples is unknown, so that no rate follows from it',
      where=f'task {name}, split {split}',
      fix='give the source num_input_examples, or the mixture fixed rates',
    )
  return int(number)


@contextlib.contextmanager
def known_sizes(sizes: Mapping[tuple[str, str], int]) -> Iterator[None]:
  """Context in which `num_examples` need not count the text of tasks.

  Args:
    sizes: (task, split) -> its examples.
  """
  _sizes.update(sizes)
  try:
    yield
  finally:
    for key in sizes:
      del _sizes[key]


def fingerprint_task_files(name: str, split: str = TRAIN) -> tuple | None:
  """Returns the fingerprints of a task's files; None if its source has none."""
  source = get_task(name).source
  if not isinstance(source, data_sources.TextSource):
    return None
  return source.text.fingerprint(split)


def name_monolingual(dataset):
  """`text` becomes `targets`; only that and `starts_document` are kept."""
  return preprocessors.rename_features(
    dataset, {'targets': 'text', 'starts_document': 'starts_document'}
  )


_MONOLINGUAL = (preprocessors.mark_documents, name_monolingual)


def name_parallel(dataset):
  """Only `inputs` and `targets` are kept."""
  return preprocessors.rename_features(
    dataset, {'inputs': 'inputs', 'targets': 'targets'}
  )


def tokenize(dataset, output_features):
  """The last step of every task that is added here."""
  return preprocessors.tokenize_features(dataset, output_features)


def _add_task(name, source, languages, features, steps, vocabulary, options):
  check_free(name)
  chosen = {
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
      for feature, feature_vocabulary in chosen.items()
    },
    **options,
  )
  _languages[name] = languages
  return task


def check_free(name: str) -> None:
  """Raises CorpusError if SeqIO has a task of this name."""
  if name in seqio.TaskRegistry.names():
    raise errors.CorpusError(
      "The task's name is taken",
      got=name,
      fix='choose another name, or remove the task from seqio.TaskRegistry',
    )


def _rate(task: seqio.Task, *, alpha: float) -> float:
  split = TRAIN if TRAIN in task.splits else task.splits[0]
  return float(num_examples(task.name, split)) ** alpha
