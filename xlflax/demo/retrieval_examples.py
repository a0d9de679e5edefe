"""Retrieval results for one held-out message per language."""

import pathlib

import rich.markup
import rich.table

from xlflax.evaluation import eval_task, hidden_states, text_sources
from xlflax.similarity import cosine
from xlflax.training.checkpointing import saved_run
from xlflax.utils import rich_tables


def find(
  model_dir: str | pathlib.Path, corpus: str | pathlib.Path
) -> list[dict[str, str]]:
  """Finds the nearest English message for one query message per language.

  Message i of the test split is used for language pair i, so that the examples
  are not selected by their result.

  Args:
    model_dir: Directory of a run. Its last checkpoint is used.
    corpus: Corpus directory whose test split contains sentence pairs with
      English.

  Returns:
    Dicts with the keys 'language', 'query', 'answer' (the English translation
    of the query) and 'found' (the nearest English message).
  """
  run = saved_run.load_run(model_dir)
  eval_model = eval_task.EvalModel(
    model=run.model,
    params=run.restore_params(run.steps[-1]),
    vocabulary=run.vocabulary,
  )
  source = text_sources.ParallelCorpus(directory=str(corpus))
  examples = []
  for pair_index, pair in enumerate(source.pairs()):
    text = source.load(pair)
    message_index = pair_index % len(text.first)
    examples.append(
      {
        'language': pair[1],
        'query': text.second[message_index],
        'answer': text.first[message_index],
      }
    )
  english = tuple(dict.fromkeys(source.load(source.pairs()[0]).first))
  neighbors = _find_nearest(eval_model, examples, english)
  for example, neighbor in zip(examples, neighbors, strict=True):
    example['found'] = english[neighbor]
  return examples


def table(examples: list[dict[str, str]]) -> rich.table.Table:
  """Formats retrieval examples as a table that marks correct results."""
  result = rich_tables.make_table(
    ['', 'held-out message', 'nearest English message', ''],
    [],
    title='Retrieval examples',
  )
  for example in examples:
    texts = (rich.markup.escape(example[name]) for name in ('query', 'found'))
    is_correct = example['found'] == example['answer']
    result.add_row(
      example['language'], *texts, 'correct' if is_correct else 'wrong'
    )
  return result


def _find_nearest(
  eval_model: eval_task.EvalModel, examples: list[dict[str, str]], english
) -> list[int]:
  """Returns the index in `english` of each query's nearest neighbor.

  The similarity is the cosine of the mean states of the last layer.
  """
  vocabulary = eval_model.vocabulary
  language_ids = [
    *(vocabulary.language_id(example['language']) for example in examples),
    *[vocabulary.language_id('en')] * len(english),
  ]
  texts = [*(example['query'] for example in examples), *english]
  vectors = hidden_states.sentence_states(
    eval_model, texts, language_ids
  ).states[-1]
  num_queries = len(examples)
  return cosine.find_nearest(
    vectors[:num_queries], vectors[num_queries:]
  ).forward.tolist()
