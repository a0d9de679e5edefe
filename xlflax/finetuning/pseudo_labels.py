"""Self-labelled translate-train: a teacher labels words of translated text.

For labels of words a translation does not carry over: a model that was
fine-tuned on English labels the translated training text, and the next model
is trained on both (FILTER, Fang et al. 2021; VECO, section 5.1).
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import pydantic

from xlflax.data.corpus import line_reader as corpus_lines
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import example_source
from xlflax.evaluation import checkpoint_selection, eval_task
from xlflax.evaluation.tasks import tagging_task
from xlflax.objectives.finetuning import token_classification
from xlflax.storage import bucket_staging, paths
from xlflax.training.checkpointing import saved_run
from xlflax.training.devices import partitioning
from xlflax.utils import errors, validation


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class WordLines(example_source.ExampleSource):
  """Sentences without labels: one a line, words separated by spaces.

  Attributes:
    files: language -> file. Empty lines are passed over.
  """

  files: Annotated[
    Mapping[str, str],
    pydantic.Field(
      description="a mapping of languages to files, such as {'sw': 'words.sw'}"
    ),
  ]

  def languages(self) -> tuple[str, ...]:
    return tuple(self.files)

  def load(self, part: str) -> list[labeled_examples.Example]:
    """The sentences of a language; the id is the number of the line, from 0.

    Raises:
      CorpusError: the file is missing, no UTF-8, or has no word.
    """
    path = bucket_staging.stage_input(self.files[part])
    sentences: list[labeled_examples.Example] = [
      labeled_examples.TaggedSentence(
        id=str(number - 1), language=part, words=tokens
      )
      for number, line in file_reading.read_lines(path)
      if (tokens := tuple(corpus_lines.split_tokens(line)))
    ]
    if not sentences:
      raise errors.CorpusError('A file has no text', where=str(path))
    return sentences


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
  """Writes the labels that a fine-tuned run gives to the words of text.

  Args:
    teacher: model directory of a run with `TokenClassification`.
    source: sentences; labels that they have are not looked at.
    output: directory of `<part>.conll`, which are written whole or not at
      all: `word<TAB>label` a line, an empty line between sentences (format
      'conll', and 'conll_iob2' for ENTITIES).
    step: of the teacher's checkpoint; None: the newest.
    scheme: The type of the labels; entities are repaired to IOB2. If None,
      that of the teacher's labels.
    length: Maximum number of tokens per sequence. If None, the length that the
      teacher was fine-tuned with.
    batch_size: sentences a batch.
    partitioner: shards parameters and batches; None: one device.

  Returns:
    Part -> file.

  Raises:
    ConfigError: the run has no such objective, or several.
    CorpusError: text can't be labelled; parts before it are written.
  """
  run = saved_run.open_run(teacher)
  names = [
    name
    for name, objective in run.objectives.items()
    if isinstance(objective, token_classification.TokenClassification)
  ]
  if len(names) != 1:
    raise errors.ConfigError(
      'The teacher has not been fine-tuned to label words',
      where=teacher,
      got=', '.join(run.objectives) or 'no objective',
      expected='one TokenClassification',
    )
  step = checkpoint_selection.select_checkpoints(
    run, 'last' if step is None else [step]
  )[0]
  subject = eval_task.Subject(
    model=run.model,
    vocabulary=run.vocabulary,
    partitioner=partitioner,
    params=run.restore_params(step, partitioner=partitioner),
    batch_size=batch_size,
    objectives=run.objectives,
    inputs=run.inputs,
  )
  task = tagging_task.Tagging(
    source=_Blind(source),
    objective=names[0],
    length=length,
    scheme=validation.validate(
      scheme, tagging_task.Scheme | None, name='label.scheme'
    ),
  )
  result = eval_task.evaluate_task(task, subject)
  paths_by_part = {}
  for part in source.languages():
    if task.file_name(part) in result.files:
      path = paths.to_path(output) / f'{part}.conll'
      paths.write_atomically(
        path, _conll(source.load(part), result.files[task.file_name(part)])
      )
      paths_by_part[part] = str(path)
  if result.failures:
    raise errors.CorpusError(
      'Some text could not be labelled',
      where=teacher,
      got='; '.join(map(str, result.failures)),
      expected=f'{", ".join(paths_by_part) or "nothing"} is written',
    )
  return paths_by_part


@dataclasses.dataclass(frozen=True)
class _Blind(example_source.ExampleSource):
  """A source's sentences without their labels."""

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


def _conll(examples, predictions: str) -> str:
  """Words beside their predicted labels."""
  read = labeled_examples.TaggedSentence.read_predictions(examples, predictions)
  return '\n'.join(
    ''.join(
      f'{word}\t{tag}\n' for word, tag in zip(example.words, tags, strict=True)
    )
    for example, tags in zip(examples, read, strict=True)
  )
