"""The SeqIO tasks and mixtures of a corpus directory. Needs TensorFlow."""

import itertools

from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.dictionaries.code_switching_config import CodeSwitching
from xlflax.data.plain_text import corpus_directory_tasks as text_corpus
from xlflax.data.seqio_tasks import data_sources, task_registry
from xlflax.utils import validation

_names: dict[str, list[str]] = {}  # Prefix -> what is registered under it.


@validation.validate_call
def register_corpus(
  corpus: Corpus,
  *,
  prefix: str = 'corpus',
  alpha: validation.SamplingExponent = text_corpus.ALPHA,
  code_switching: CodeSwitching = CodeSwitching(),  # noqa: B008
) -> tuple[str, ...]:
  """Registers a corpus directory's tasks and mixtures.

  `corpus.mono.<language>`, `corpus.parallel.<l1>_<l2>`,
  `corpus.code_switched.<language>` for languages that a dictionary is of, and
  over them the mixtures `corpus.mono`, `corpus.parallel` and
  `corpus.code_switched` with rates N_i^α (those with training text; all, where
  none has any). Registering again under the same prefix replaces what was
  there.

  Args:
    corpus: the directory.
    prefix: of the names.
    alpha: exponent of the rates.
    code_switching: how the code-switched tasks are switched.

  Returns:
    The names, mixtures last.

  Raises:
    CorpusError: another task has one of the names.
  """
  for name in _names.pop(prefix, ()):
    task_registry.remove_task(name)
  groups = text_corpus.list_tasks(
    corpus, prefix=prefix, code_switching=code_switching
  )
  names = _names.setdefault(prefix, [])
  for task in itertools.chain.from_iterable(groups.values()):
    _register(task)
    names.append(task.name)
  for mixture, tasks in groups.items():
    if tasks:
      task_registry.add_mixture(
        mixture,
        [t.name for t in text_corpus.mixture_members(tasks)],
        alpha=alpha,
      )
      names.append(mixture)
  return tuple(names)


def _register(task: text_corpus.TextTask) -> None:
  source = data_sources.of_rows(task.source)
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
