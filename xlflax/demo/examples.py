"""What the trained model finds: one held-out message of each language."""

import pathlib

from xlflax.evaluation import base, sources, states
from xlflax.similarity import cosine as similarity
from xlflax.training import run as run_lib


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
  run = run_lib.open_run(model_dir)
  subject = base.Subject(
    model=run.model,
    params=run.restore_params(run.steps[-1]),
    vocabulary=run.vocabulary,
  )
  source = sources.CorpusPairs(directory=str(corpus))
  queries, languages, answers = [], [], []
  for index, pair in enumerate(source.pairs()):
    text = source.load(pair)
    place = index % len(text.first)
    queries.append(text.second[place])
    answers.append(text.first[place])
    languages.append(pair[1])
  english = tuple(dict.fromkeys(source.load(source.pairs()[0]).first))
  nearest = _nearest(subject, queries, languages, english)
  return [
    {
      'language': language,
      'query': query,
      'answer': answer,
      'found': english[index],
    }
    for language, query, answer, index in zip(
      languages, queries, answers, nearest, strict=True
    )
  ]


def _nearest(subject: base.Subject, queries, languages, english) -> list[int]:
  """Indices into `english` by cosine of the last layer's states."""
  ids = [subject.vocabulary.language_id(code) for code in languages]
  ids += [subject.vocabulary.language_id('en')] * len(english)
  vectors = states.sentence_states(subject, [*queries, *english], ids).states[
    -1
  ]
  return similarity.nearest(
    vectors[: len(queries)], vectors[len(queries) :]
  ).forward.tolist()
