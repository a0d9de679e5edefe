"""Pseudo-labels: word labels that a teacher model predicts for translations.

Word labels do not carry over to a translation. A model that was fine-tuned on
English therefore labels the translated training text, and the next model is
trained on the English and the translated text (FILTER, Fang et al. 2021; VECO,
section 5.1).
"""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping
from typing import Annotated

import pydantic

from xlflax.data.corpus import line_reader
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import checkpoint_selection, eval_task
from xlflax.evaluation.tasks import tagging_task
from xlflax.objectives.finetuning import token_classification
from xlflax.storage import bucket_staging, paths
from xlflax.training import run_header
from xlflax.training.checkpointing import saved_run
from xlflax.training.devices import partitioning
from xlflax.utils import errors, logs, validation

_NUM_CONLLU_COLUMNS = 10
_MAX_SHOWN = 60  # Number of characters of a line that an error shows.


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class WordLines(example_source.ExampleSource):
  """Unlabeled sentences, one per line with words separated by spaces.

  Attributes:
    files: Mapping from languages to text files, which must not contain tabs.
      Empty lines are skipped.
  """

  files: Annotated[
    Mapping[str, str],
    pydantic.Field(
      description="a mapping of languages to files, such as {'sw': 'words.sw'}"
    ),
  ]

  def languages(self) -> tuple[str, ...]:
    """Returns the languages that have a file of unlabeled sentences."""
    return tuple(self.files)

  def load(self, part: str) -> list[labeled_examples.Example]:
    """Reads the unlabeled sentences of a language.

    The id of a sentence is its zero-based line number.

    Raises:
      CorpusError: If the file is missing, is not UTF-8, does not contain words,
        or contains a tab.
    """
    path = bucket_staging.stage_input(self.files[part])
    sentences: list[labeled_examples.Example] = []
    for number, line in file_reading.read_lines(path):
      if '\t' in line.strip():
        raise _columns_error(line, path, number, language=part)
      if tokens := tuple(line_reader.split_tokens(line)):
        sentences.append(
          labeled_examples.TaggedSentence(
            id=str(number - 1), language=part, words=tokens
          )
        )
    if not sentences:
      raise errors.CorpusError(
        'The file does not contain any text', where=str(path)
      )
    return sentences


def _columns_error(
  line: str, path: pathlib.Path, number: int, *, language: str
) -> errors.CorpusError:
  """Returns the error for a line with tabs, as in a file of labeled words."""
  num_columns = line.count('\t') + 1
  description = (
    'The line has 10 tab-separated columns, as in a CoNLL-U file'
    if num_columns == _NUM_CONLLU_COLUMNS
    else f'The line has {num_columns} tab-separated columns, as in a file of '
    'labeled words'
  )
  return errors.CorpusError(
    f'A file of unlabeled text must not contain tabs. {description}',
    got=repr(line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + '…'),
    expected='one sentence per line, with spaces between words',
    where=errors.line_location(path, number),
    fix='If the file contains labeled words, evaluate the run on it with '
    '`xlflax evaluate '
    '--model_dir=DIR --gin_file=evaluate/tagging.gin '
    f"--gin.TEST_FILES=\"{{'{language}': '{path}'}}\"`, which also writes "
    'the predicted labels. If the file is not in the CoNLL-U format, also set '
    'FORMAT.',
  )


@validation.validate_call
def pseudo_label(
  *,
  teacher: str,
  source: example_source.ExampleSource,
  output: validation.FilePath,
  step: validation.NonNegativeInt | None = None,
  scheme: tagging_task.Scheme | str | None = None,
  length: validation.PositiveInt | None = None,
  batch_size: validation.PositiveInt = 64,
  partitioner: partitioning.Partitioner | None = None,
) -> dict[str, str]:
  """Writes the word labels that a fine-tuned run predicts for sentences.

  A warning is logged for each language that the vocabulary does not contain.

  Args:
    teacher: Model directory of a run with `TokenClassification`.
    source: Source of sentences. Any labels are ignored.
    output: Directory for the files `<part>.conll`, which are written
      atomically. A file contains a line `word<TAB>label` for each word and an
      empty line between sentences (format 'conll', or 'conll_iob2' for
      ENTITIES).
    step: Step of the teacher's checkpoint. If None, the newest checkpoint is
      used.
    scheme: Type of the word labels. Predicted entity labels are converted to
      valid IOB2 labels. If None, the type of the teacher's labels is used.
    length: Maximum number of tokens per sequence. If None, the length with
      which the teacher was fine-tuned.
    batch_size: Number of sentences per batch.
    partitioner: Partitioner for parameters and batches. If None, a single
      device is used.

  Returns:
    Mapping from languages to files.

  Raises:
    ConfigError: If the run does not have exactly one objective of the class
      `TokenClassification`.
    CorpusError: If some text cannot be labeled. The remaining files are
      written.
  """
  run = saved_run.load_run(teacher)
  names = [
    name
    for name, objective in run.objectives.items()
    if isinstance(objective, token_classification.TokenClassification)
  ]
  if len(names) != 1:
    raise errors.ConfigError(
      'Labeling words requires a run that was fine-tuned for tagging, with '
      'exactly one objective of class TokenClassification',
      where=teacher,
      got=', '.join(
        f'{name}: {type(objective).__name__}'
        for name, objective in run.objectives.items()
      )
      or 'no objective',
      fix='Pass the directory of such a run. To fine-tune a run for tagging, '
      'use `xlflax finetune --gin_file=finetune/tagging.gin`.',
    )
  for message in run_header.describe_unknown_languages(
    'The input', source.languages(), run.vocabulary.spec.languages
  ):
    logging.warning('%s', message, extra=logs.ONCE)
  step = checkpoint_selection.select_checkpoints(
    run, 'last' if step is None else [step]
  )[0]
  eval_model = eval_task.EvalModel(
    model=run.model,
    vocabulary=run.vocabulary,
    partitioner=partitioner,
    params=run.restore_params(step, partitioner=partitioner),
    batch_size=batch_size,
    objectives=run.objectives,
    inputs=run.inputs,
  )
  task = tagging_task.Tagging(
    source=_UnlabeledSource(source),
    objective=names[0],
    length=length,
    scheme=validation.validate(
      scheme, tagging_task.Scheme | None, name='label.scheme'
    ),
  )
  result = eval_task.evaluate_task(task, eval_model)
  paths_by_part = {}
  for part in source.languages():
    if task.file_name(part) in result.files:
      predictions = result.files[task.file_name(part)]
      path = paths.to_path(output) / f'{part}.conll'
      paths.write_atomically(
        path, _format_conll(source.load(part), predictions)
      )
      paths_by_part[part] = str(path)
  if result.failures:
    raise errors.CorpusError(
      'The text of some languages could not be labeled. The labels of the '
      'following languages were written: '
      f'{", ".join(paths_by_part) or "none"}',
      where=teacher,
      got='; '.join(map(str, result.failures)),
    )
  return paths_by_part


@dataclasses.dataclass(frozen=True)
class _UnlabeledSource(example_source.ExampleSource):
  """Source that removes the labels from another source's sentences.

  Attributes:
    source: Source of labeled or unlabeled sentences.
  """

  source: example_source.ExampleSource

  def languages(self):
    return self.source.languages()

  def load(self, part):
    return [
      dataclasses.replace(example, tags=None)
      if isinstance(example, labeled_examples.TaggedSentence)
      else example
      for example in self.source.load(part)
    ]


def _format_conll(examples, predictions: str) -> str:
  """Returns words and their predicted labels in the CoNLL format."""
  tags_of_examples = labeled_examples.TaggedSentence.read_predictions(
    examples, predictions
  )
  return '\n'.join(
    ''.join(
      f'{word}\t{tag}\n' for word, tag in zip(example.words, tags, strict=True)
    )
    for example, tags in zip(examples, tags_of_examples, strict=True)
  )
