"""Import of the modules that `--task_module` lists."""

from collections.abc import Sequence

from xlflax.utils import user_modules

# Packages that define SeqIO tasks. They import TensorFlow.
_SEQIO_PACKAGES = ('seqio', 'xlflax.data.seqio_tasks', 'xlflax.tasks')


def import_task_modules(
  modules: Sequence[str],
  corpus: str | None = None,
  *,
  reads_tasks: bool = False,
) -> None:
  """Imports modules that define evaluation tasks or register SeqIO tasks.

  If the command or a module uses SeqIO tasks, the tasks of public corpora and
  of the corpus are registered first. This takes several seconds, because it
  imports TensorFlow.

  Args:
    modules: Names or paths of the modules.
    corpus: Corpus directory whose tasks the modules may use.
    reads_tasks: Whether the command reads SeqIO tasks.

  Raises:
    ConfigError: If a module does not exist or cannot be imported.
    CorpusError: If a module uses a task that is not registered.
  """
  if not reads_tasks and not any(map(_uses_seqio, modules)):
    user_modules.import_modules(modules, where=user_modules.TASK_MODULE_FLAG)
    return
  from xlflax.data.seqio_tasks import tensorflow_setup

  tensorflow_setup.load_tensorflow()
  from xlflax.data.seqio_tasks import task_registration

  task_registration.register_tasks(corpus, modules)


def _uses_seqio(module: str) -> bool:
  """Returns whether a module imports a package that defines SeqIO tasks."""
  return any(
    f'{name}.'.startswith(f'{package}.')
    for name in user_modules.find_imports(module)
    for package in _SEQIO_PACKAGES
  )
