"""Registration of all SeqIO tasks that a command uses. Requires TensorFlow."""

import importlib
from collections.abc import Sequence

import seqio

from xlflax.data import task_errors
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.seqio_tasks import corpus_tasks, task_registry
from xlflax.utils import user_modules

PUBLIC_TASK_MODULES = (
  'wiki40b',
  'mc4',
  'opus',
  'paracrawl',
  'wmt',
  'ecs',
  'labeled_tfds',
)
# Modules with thousands of tasks, whose registration takes about a second.
LARGE_TASK_MODULES = ('web_corpora',)


def register_tasks(
  corpus: Corpus | str | None,
  task_modules: Sequence[str] = (),
  tfds_data_dir: str | None = None,
  *,
  mixture: str | None = None,
) -> None:
  """Registers public tasks, corpus tasks and the tasks of user modules.

  To register the same tasks in other processes, pass them
  `functools.partial(register_tasks, corpus, modules)`, which can be pickled.

  Args:
    corpus: Corpus or corpus directory. If None, no corpus is registered.
    task_modules: Names or paths of modules that register tasks. The modules may
      use the tasks of the corpus. See `import_task_modules`.
    tfds_data_dir: Directory of prepared TensorFlow datasets.
    mixture: Name of the only task or mixture that the caller reads. Public
      tasks are then registered only until this name is registered. If None, or
      if user modules are imported, all public tasks are registered.
  """
  if tfds_data_dir:
    seqio.set_tfds_data_dir_override(tfds_data_dir)
  if isinstance(corpus, str):
    corpus = Corpus(corpus)
  if corpus is not None:
    corpus_tasks.register_corpus(corpus)
  for modules in (PUBLIC_TASK_MODULES, LARGE_TASK_MODULES):
    if mixture is None or task_modules or not _is_registered(mixture):
      _import_tasks(modules)
  import_task_modules(task_modules)


def import_public_tasks() -> None:
  """Registers the tasks for public corpora by importing `xlflax.tasks`."""
  _import_tasks(PUBLIC_TASK_MODULES + LARGE_TASK_MODULES)


def _import_tasks(modules: Sequence[str]) -> None:
  """Imports modules of `xlflax.tasks`, which register their tasks."""
  for module in modules:
    importlib.import_module(f'xlflax.tasks.{module}')


def _is_registered(name: str) -> bool:
  """Returns whether a task or mixture is registered."""
  return name in _registered_names()


def _registered_names() -> set[str]:
  """Returns the names of all registered tasks and mixtures."""
  return {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}


def import_task_modules(modules: Sequence[str]) -> None:
  """Imports modules that register tasks (`--task_module`).

  Raises:
    ConfigError: If a module does not exist or cannot be imported.
    CorpusError: If a module uses a task that is not registered.
  """
  for module in modules:
    names_before = _registered_names()
    user_modules.import_modules([module], where=user_modules.TASK_MODULE_FLAG)
    name = user_modules.importable_name(
      module, where=user_modules.TASK_MODULE_FLAG
    )
    names = sorted(_registered_names() - names_before)
    task_registry.record_module_tasks(name, names)
    task_errors.record_task_module(module, names)
