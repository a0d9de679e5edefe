"""Complete messages of the most common mistakes.

All other tests compare the class and the fields of an error. These tests show
the formatted message, and detect unintended changes of its wording.
"""

import pytest

from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.tokenizers import base_vocabulary
from xlflax.objectives import objective_mixture
from xlflax.objectives.pretraining import masked_lm
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

_MISSING_RUN = (
  'The model directory does not exist. It must be a directory that `xlflax '
  'train` has written. Got: nowhere.'
)
_MISSING_CORPUS = (
  'The corpus directory does not exist. Got: nowhere. What to do: Pass a '
  'directory that contains a folder mono/ or parallel/.'
)
_MISSING_VOCABULARY = (
  'The directory does not contain a vocabulary. A vocabulary consists of the '
  'file vocabulary.json and the model files that it lists. Got: nowhere. '
  'What to do: Run `xlflax vocab --corpus=DIR --output=DIR --size=N`.'
)
_SAME_NAME = (
  'Different objectives of a mixture must have different names, but entry 1, '
  "which uses dataset 'b', has the name of an earlier objective. Got: 'mlm'. "
  'What to do: Set a different `name` for one of them.'
)
_NOT_UTF8 = (
  'A line of a text file is not valid UTF-8. Got: byte 0xff at column 3. '
  'Where: corpus/mono/en.txt:2. What to do: If the complete file is in a '
  'different encoding, such as Latin-1, convert it with '
  '`iconv -f ISO-8859-1 -t UTF-8 corpus/mono/en.txt`, and replace the file with '
  'the output. Otherwise, correct the line.'
)


def _create_objectives_with_the_same_name():
  entries = (
    objective_mixture.WeightedObjective(
      dataset='a', objective=masked_lm.MaskedLM()
    ),
    objective_mixture.WeightedObjective(
      dataset='b', objective=masked_lm.MaskedLM(mask_ratio=0.3)
    ),
  )
  objective_mixture.ObjectiveMixture(entries=entries)


def _read_invalid_utf8():
  corpus_writer.write_monolingual('corpus', 'en', [['a dog']])
  with open('corpus/mono/en.txt', 'ab') as file:
    file.write(b'a \xff\n')
  corpus_directory.Corpus('corpus').validate()


@pytest.mark.parametrize(
  'mistake, message',
  [
    (lambda: saved_run.load_run('nowhere'), _MISSING_RUN),
    (lambda: corpus_directory.Corpus('nowhere'), _MISSING_CORPUS),
    (lambda: base_vocabulary.Vocabulary.load('nowhere'), _MISSING_VOCABULARY),
    (_create_objectives_with_the_same_name, _SAME_NAME),
    (_read_invalid_utf8, _NOT_UTF8),
  ],
)
def test_formatted_message(mistake, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.XlflaxError) as caught:
    mistake()
  assert str(caught.value) == message
