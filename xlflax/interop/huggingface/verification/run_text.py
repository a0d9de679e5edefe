"""A sample of the text that a run was trained on, from its corpus."""

import itertools
import json
import pathlib

from xlflax.data.corpus import directory as corpus_directory
from xlflax.foundation import errors
from xlflax.training.checkpointing import description, run_directory

_LINES = 50  # of each language, and of each pair
_LONGEST = 1000  # characters of a line


def sample(directory: pathlib.Path) -> tuple[list[str], list[str]]:
  """(texts, why there are none: a line, of a run that was trained).

  Args:
    directory: a model directory.
  """
  trainer = run_directory.trained_by(directory)
  if not trainer:
    return [], []
  path = trainer.get(description.FIELDS, {}).get('corpus')
  why = 'no text of the run was compared: '
  if path is None:
    return [], [f'{why}it does not name a corpus']
  try:
    return _lines(corpus_directory.Corpus(path)), []
  except (errors.XlflaxError, OSError) as error:
    said = getattr(error, 'what', error)
    return [], [f'{why}{said} ({json.dumps(str(path))})']


def _lines(corpus: corpus_directory.Corpus) -> list[str]:
  found: list[str] = []
  for language in corpus.monolingual_languages():
    lines = itertools.islice(corpus.monolingual(language), _LINES)
    found += [line.text for line in lines]
  for pair in corpus.parallel_pairs():
    for both in itertools.islice(corpus.parallel(*pair), _LINES):
      found += both
  return [text[:_LONGEST] for text in found]
