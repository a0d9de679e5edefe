"""The SeqIO tasks and mixtures of a corpus directory. Needs TensorFlow."""

import seqio

from xlflax.data.corpus.directory import TRAIN, Corpus
from xlflax.data.dictionaries.settings import CodeSwitching
from xlflax.data.seqio_tasks import corpus_source
from xlflax.data.seqio_tasks import registry as task_registry

_names: dict[str, list[str]] = {}  # Prefix -> what is registered under it.


def register_corpus(
  corpus: Corpus,
  *,
  prefix: str = 'corpus',
  alpha: float = 0.7,
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
    task_registry.remove(name)
  groups = {
    f'{prefix}.mono': [
      _register_monolingual(corpus, language, prefix)
      for language in corpus.languages
      if corpus.splits(language)
    ],
    f'{prefix}.parallel': [
      _register_parallel(corpus, pair, prefix) for pair in corpus.pairs
    ],
    f'{prefix}.code_switched': _register_code_switched(
      corpus, prefix, code_switching
    ),
  }
  names = _names.setdefault(prefix, [])
  names += [task for tasks in groups.values() for task in tasks]
  for mixture, tasks in groups.items():
    with_text = [
      task for task in tasks if TRAIN in seqio.TaskRegistry.get(task).splits
    ]
    if tasks:
      task_registry.add_mixture(mixture, with_text or tasks, alpha=alpha)
      names.append(mixture)
  return tuple(names)


def _register_monolingual(corpus: Corpus, language: str, prefix: str) -> str:
  name = f'{prefix}.mono.{language}'
  task_registry.add_monolingual_task(
    name, corpus_source.monolingual_source(corpus, language), language=language
  )
  return name


def _register_parallel(
  corpus: Corpus, pair: tuple[str, str], prefix: str
) -> str:
  name = f'{prefix}.parallel.{"_".join(pair)}'
  task_registry.add_parallel_task(
    name, corpus_source.parallel_source(corpus, pair), languages=pair
  )
  return name


def _register_code_switched(
  corpus: Corpus, prefix: str, settings: CodeSwitching
) -> list[str]:
  names = []
  for language in sorted(
    settings.sources(file.languages for file in corpus.dictionaries)
  ):
    paths = [
      file.path for file in corpus.dictionaries if language in file.languages
    ]
    if corpus.splits(language):
      names.append(f'{prefix}.code_switched.{language}')
      task_registry.add_code_switched_task(
        names[-1],
        corpus_source.monolingual_source(corpus, language),
        language=language,
        dictionaries=paths,
        settings=settings,
      )
  return names
