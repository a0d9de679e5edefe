"""Synthetic languages: text and labelled examples of every family.

Nothing is registered on import, as the folder must be told. After `xlflax
synthetic --output=toy`,

    from studies.synthetic import seqio_tasks
    synthetic.register('toy')

registers

- `synthetic.mono.<language>`, `synthetic.parallel.<l1>_<l2>`,
  `synthetic.code_switched.<language>` and mixtures over them, as for any
  corpus directory;
- `synthetic.<family>.<language>` and mixtures `synthetic.<family>`: nli,
  paraphrase, reviews, pos, trees, ner, qa, choices, unanswerable, topics;
- `synthetic.alignment.<l1>_<l2>`, `synthetic.bucc.<l2>_<l1>`,
  `synthetic.similarity.<l2>_<l1>`, `synthetic.pairs.<l2>_<l1>` and the parallel
  tasks `synthetic.tatoeba.<l2>_<l1>`, l1 being the first language.
"""

import pathlib
from collections.abc import Mapping

import seqio

from studies.synthetic import generator, sources
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.seqio_tasks import corpus_tasks
from xlflax.data.seqio_tasks import task_registry as task_registry
from xlflax.data.supervised.sources import supervised_tasks
from xlflax.tasks import opus

_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}


def register(
  directory: str | pathlib.Path, *, prefix: str = 'synthetic'
) -> tuple[str, ...]:
  """Registers tasks and mixtures over a folder; see the module.

  Args:
    directory: written by `python -m studies.synthetic`.
    prefix: of the names.

  Returns:
    The names, mixtures last.

  Raises:
    CorpusError: no such folder, or a name is taken.
  """
  options = generator.read_options(directory)
  names = list(
    corpus_tasks.register_corpus(
      Corpus(pathlib.Path(directory) / 'corpus'), prefix=prefix
    )
  )
  mixtures = []
  for kind in (*sources.FAMILIES, 'bucc', 'tatoeba'):
    splits = {
      _SPLITS[split]: sources.files(directory, kind, split)
      for split in options.splits(kind)
    }
    parts = [part for part in splits['test'] if kind != 'qa' or '-' not in part]
    own = [
      _add(
        f'{prefix}.{kind}.{part.replace("-", "_")}',
        kind,
        part,
        {split: paths[part] for split, paths in splits.items()},
      ).name
      for part in parts
    ]
    mixtures.append(f'{prefix}.{kind}')
    if kind == 'tatoeba':
      task_registry.add_mixture(mixtures[-1], own)
    else:
      supervised_tasks.add_labelled_mixture(mixtures[-1], own)
    names += own
  return (*names, *mixtures)


def _add(
  name: str, kind: str, part: str, files: Mapping[str, str | tuple[str, ...]]
) -> seqio.Task:
  first, _, second = part.partition('-')
  if kind == 'tatoeba':
    return opus.add_moses_task(
      name,
      languages=(first, second),
      files={split: tuple(paths) for split, paths in files.items()},
    )
  if kind == 'bucc':
    return supervised_tasks.add_mined_task(
      name,
      language=part,
      files={split: tuple(paths) for split, paths in files.items()},
    )
  family = sources.FAMILIES[kind]
  return supervised_tasks.add_labelled_task(
    name, format=family.format, language=part, files=files, **family.options
  )
