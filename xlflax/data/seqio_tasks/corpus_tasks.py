"""SeqIO tasks and mixtures for a corpus directory. Requires TensorFlow."""

import itertools

import seqio

from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.plain_text import corpus_directory_tasks
from xlflax.data.seqio_tasks import data_sources, task_registry
from xlflax.utils import validation

# Map from prefix to the names of the tasks and mixtures registered with it.
_registered_names: dict[str, list[str]] = {}


@validation.validate_call
def register_corpus(
  corpus: Corpus,
  *,
  prefix: str = 'corpus',
  alpha: validation.SamplingExponent = corpus_directory_tasks.ALPHA,
  code_switching: CodeSwitching = CodeSwitching(),  # noqa: B008
) -> tuple[str, ...]:
  """Registers a corpus directory's tasks and mixtures in SeqIO.

  The tasks are `corpus.mono.<language>`, `corpus.parallel.<l1>_<l2>`, and, for
  languages with a dictionary, `corpus.code_switched.<language>`. The mixtures
  `corpus.mono`, `corpus.parallel` and `corpus.code_switched` have the mixing
  rates N_i^α. Each mixture contains all tasks that have training text, or all
  tasks if none of them has training text. A second registration with the same
  prefix replaces the first.

  Args:
    corpus: Corpus directory.
    prefix: Prefix of the task and mixture names.
    alpha: Exponent α of the mixing rates.
    code_switching: Settings for the code-switched tasks.

  Returns:
    The names of the tasks, followed by the names of the mixtures.

  Raises:
    CorpusError: If a different task already has one of the names.
  """
  for name in _registered_names.pop(prefix, ()):
    task_registry.remove_task(name)
  groups = corpus_directory_tasks.list_tasks(
    corpus, prefix=prefix, code_switching=code_switching
  )
  names = _registered_names.setdefault(prefix, [])
  for task in itertools.chain.from_iterable(groups.values()):
    _register(task)
    names.append(task.name)
  for mixture, tasks in groups.items():
    if tasks:
      members = corpus_directory_tasks.mixture_members(tasks)
      task_registry.add_mixture(
        mixture, [task.name for task in members], alpha=alpha
      )
      names.append(mixture)
  return tuple(names)


def registered_tasks(prefix: str = 'corpus') -> list[str]:
  """Returns the names of the tasks that `register_corpus` registered.

  Args:
    prefix: Prefix of the task names.
  """
  registered = seqio.TaskRegistry.names()
  return [
    name for name in _registered_names.get(prefix, ()) if name in registered
  ]


def _register(task: corpus_directory_tasks.TextTask) -> None:
  source = data_sources.create_text_source(task.source)
  if task.switch is not None:
    task_registry.add_code_switched_task(
      task.name,
      source,
      language=task.languages[0],
      dictionaries=task.switch.dictionaries,
      settings=task.switch.settings,
    )
  elif len(task.languages) == 1:
    task_registry.add_monolingual_task(
      task.name, source, language=task.languages[0]
    )
  else:
    first, second = task.languages
    task_registry.add_parallel_task(
      task.name, source, languages=(first, second)
    )
