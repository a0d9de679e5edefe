"""What a model finds for held-out messages, one of each language."""

import pathlib

import rich.markup
import rich.table

from xlflax.evaluation import eval_task, hidden_states, text_sources
from xlflax.similarity import cosine as similarity
from xlflax.training.checkpointing import saved_run
from xlflax.utils import rich_tables


def find(
  model_dir: str | pathlib.Path, corpus: str | pathlib.Path
) -> list[dict[str, str]]:
  """For one message of each language the nearest English message.

  Message i of the test split is taken for the i-th pair, good or bad.

  Args:
    model_dir: a run; its last checkpoint is read.
    corpus: corpus directory with pairs of English in its test split.

  Returns:
    Dicts with 'language', 'query', 'answer' (its English side) and 'found'.
  """
  run = saved_run.open_run(model_dir)
  subject = eval_task.Subject(
    model=run.model,
    params=run.restore_params(run.steps[-1]),
    vocabulary=run.vocabulary,
  )
  source = text_sources.CorpusPairs(directory=str(corpus))
  found = []
  for index, pair in enumerate(source.pairs()):
    text = source.load(pair)
    place = index % len(text.first)
    found.append(
      {
        'language': pair[1],
        'query': text.second[place],
        'answer': text.first[place],
      }
    )
  english = tuple(dict.fromkeys(source.load(source.pairs()[0]).first))
  for example, place in zip(
    found, _nearest(subject, found, english), strict=True
  ):
    example['found'] = english[place]
  return found


def table(examples: list[dict[str, str]]) -> rich.table.Table:
  """The messages, what was found for them, and whether that is right."""
  made = rich_tables.make_table(
    ['', 'held-out message', 'nearest English message', ''],
    [],
    title='What it finds',
  )
  for one in examples:
    texts = (rich.markup.escape(one[name]) for name in ('query', 'found'))
    right = one['found'] == one['answer']
    made.add_row(one['language'], *texts, 'right' if right else 'wrong')
  return made


def _nearest(subject: eval_task.Subject, queries, english) -> list[int]:
  """Indices into `english` by cosine of the last layer's states."""
  ids = [subject.vocabulary.language_id(one['language']) for one in queries]
  ids += [subject.vocabulary.language_id('en')] * len(english)
  texts = [*(one['query'] for one in queries), *english]
  vectors = hidden_states.sentence_states(subject, texts, ids).states[-1]
  return similarity.find_nearest(
    vectors[: len(queries)], vectors[len(queries) :]
  ).forward.tolist()
