"""SeqIO tasks for the text and the labeled examples of synthetic languages.

Importing this module registers no tasks, because they depend on the folder.
After `python -m studies.synthetic --output=toy`,

    from studies.synthetic import seqio_tasks
    seqio_tasks.register_tasks('toy')

registers

- `synthetic.mono.<language>`, `synthetic.parallel.<l1>_<l2>`,
  `synthetic.code_switched.<language>` and mixtures over them, as for any
  corpus directory;
- `synthetic.<family>.<language>` and mixtures `synthetic.<family>`: nli,
  paraphrase, reviews, pos, trees, ner, qa, choices, unanswerable, topics;
- `synthetic.alignment.<l1>_<l2>`, `synthetic.bucc.<l2>_<l1>`,
  `synthetic.similarity.<l2>_<l1>`, `synthetic.pairs.<l2>_<l1>` and the parallel
  tasks `synthetic.tatoeba.<l2>_<l1>`, where l1 is the first language.
"""

import pathlib
from collections.abc import Mapping

import seqio

from studies.synthetic import generator, sources
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.seqio_tasks import corpus_tasks, task_registry
from xlflax.data.supervised.sources import supervised_tasks
from xlflax.tasks import opus

_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}


def register_tasks(
  directory: str | pathlib.Path, *, prefix: str = 'synthetic'
) -> tuple[str, ...]:
  """Registers SeqIO tasks and mixtures for a folder with synthetic languages.

  Args:
    directory: Folder written by `python -m studies.synthetic`.
    prefix: Prefix of the names of the registered tasks and mixtures.

  Returns:
    The registered names, with mixtures last.

  Raises:
    CorpusError: If the folder does not exist or a name is already registered.
  """
  options = generator.read_options(directory)
  corpus = Corpus(pathlib.Path(directory) / 'corpus')
  names = list(corpus_tasks.register_corpus(corpus, prefix=prefix))
  mixtures = []
  for family in (*sources.FAMILIES, 'bucc', 'tatoeba'):
    files_by_split = {
      _SPLITS[split]: sources.family_files(directory, family, split)
      for split in options.splits(family)
    }
    languages = [
      language
      for language in files_by_split['test']
      if family != 'qa' or '-' not in language
    ]
    task_names = [
      _add_task(
        f'{prefix}.{family}.{language.replace("-", "_")}',
        family,
        language,
        {split: files[language] for split, files in files_by_split.items()},
      ).name
      for language in languages
    ]
    mixture = f'{prefix}.{family}'
    if family == 'tatoeba':
      task_registry.add_mixture(mixture, task_names)
    else:
      supervised_tasks.add_labeled_mixture(mixture, task_names)
    mixtures.append(mixture)
    names += task_names
  return (*names, *mixtures)


def _add_task(
  name: str,
  family: str,
  language: str,
  files: Mapping[str, str | tuple[str, ...]],
) -> seqio.Task:
  """Adds a SeqIO task for a task family.

  Args:
    name: Name of the task.
    family: Name of the task family.
    language: Language code, or language pair such as 'en-aa'.
    files: Map from split to the path of its file, or to the paths of its files.
  """
  first, _, second = language.partition('-')
  if family == 'tatoeba':
    return opus.add_moses_task(
      name,
      languages=(first, second),
      files={split: tuple(paths) for split, paths in files.items()},
    )
  if family == 'bucc':
    return supervised_tasks.add_mined_task(
      name,
      language=language,
      files={split: tuple(paths) for split, paths in files.items()},
    )
  format, options = sources.FAMILIES[family]
  return supervised_tasks.add_labeled_task(
    name, format=format, language=language, files=files, **options
  )
