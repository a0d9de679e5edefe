"""Sample of a run's training texts."""

import itertools
import json
import pathlib

from xlflax.data.corpus import corpus_directory
from xlflax.training.checkpointing import config_serialization, run_directory
from xlflax.utils import errors

_NUM_LINES = 50  # Number of lines per language and per language pair.
_MAX_CHARACTERS = 1000


def sample_texts(directory: pathlib.Path) -> tuple[list[str], list[str]]:
  """Reads the first lines for each language and pair in a run's corpus.

  Args:
    directory: Model directory of the run.

  Returns:
    The texts, and notes on why a trained run has no texts.
  """
  trainer = run_directory.read_trainer(directory)
  if not trainer:
    return [], []
  path = trainer.get(config_serialization.FIELDS, {}).get('corpus')
  note = 'The token ids of the training texts were not compared'
  if path is None:
    return [], [f'{note}, because the run does not record its corpus.']
  try:
    return _first_lines(corpus_directory.Corpus(path)), []
  except (errors.XlflaxError, OSError) as error:
    reason = getattr(error, 'what', error)
    return [], [f'{note}. {reason} ({json.dumps(str(path))}).']


def _first_lines(corpus: corpus_directory.Corpus) -> list[str]:
  texts: list[str] = []
  for language in corpus.monolingual_languages():
    lines = itertools.islice(corpus.monolingual(language), _NUM_LINES)
    texts += [line.text for line in lines]
  for languages in corpus.parallel_pairs():
    pairs = itertools.islice(corpus.parallel(*languages), _NUM_LINES)
    texts += [text for pair in pairs for text in pair]
  return [text[:_MAX_CHARACTERS] for text in texts]
