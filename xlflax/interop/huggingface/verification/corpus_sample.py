"""A sample of the text that a run was trained on."""

import itertools
import json
import pathlib

from xlflax.data.corpus import corpus_directory
from xlflax.training.checkpointing import config_serialization, run_directory
from xlflax.utils import errors

_NUM_LINES = 50  # of each language, and of each pair
_MAX_CHARACTERS = 1000


def sample_texts(directory: pathlib.Path) -> tuple[list[str], list[str]]:
  """Reads the first lines of each language and pair of the run's corpus.

  Args:
    directory: A model directory.

  Returns:
    The texts, and sentences that describe why a run that was trained has none.
  """
  trainer = run_directory.read_trainer(directory)
  if not trainer:
    return [], []
  path = trainer.get(config_serialization.FIELDS, {}).get('corpus')
  note = 'no text of the run was compared: '
  if path is None:
    return [], [f'{note}it does not name a corpus']
  try:
    return _first_lines(corpus_directory.Corpus(path)), []
  except (errors.XlflaxError, OSError) as error:
    reason = getattr(error, 'what', error)
    return [], [f'{note}{reason} ({json.dumps(str(path))})']


def _first_lines(corpus: corpus_directory.Corpus) -> list[str]:
  texts: list[str] = []
  for language in corpus.monolingual_languages():
    lines = itertools.islice(corpus.monolingual(language), _NUM_LINES)
    texts += [line.text for line in lines]
  for languages in corpus.parallel_pairs():
    pairs = itertools.islice(corpus.parallel(*languages), _NUM_LINES)
    texts += [text for pair in pairs for text in pair]
  return [text[:_MAX_CHARACTERS] for text in texts]
