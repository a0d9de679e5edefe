"""`xlflax analyze transfer`: evaluates task heads on mapped hidden states."""

import dataclasses
from typing import Any, Literal

from xlflax.cli import options as shared_options
from xlflax.cli.analyze import analysis_options
from xlflax.utils import errors

# Default formats of the files by task.
_FORMATS = {
  'tagging': 'conllu_tags',
  'entities': 'conll_iob2',
  'parsing': 'conllu',
  'classification': 'tsv',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransferOptions(analysis_options.ModelAnalysisOptions):
  """Evaluates a fine-tuned model's head on another model's hidden states.

  The states are mapped into the fine-tuned model's space by a map that `xlflax
  analyze procrustes` learned. The head reads one layer of a frozen encoder (Wu
  et al., 2020, section 5.1.2).

  Attributes:
    head_model: Run directory of the fine-tuned model with the task head, as DIR
      or DIR@STEP. Repeat the option for heads on several layers.
    alignment_map: File with the map from the target model's layer to the layer
      that the head reads. Repeat the option once for each --head_model.
    target_model: Run directory of the model whose hidden states are mapped.
    test: Labeled text in the target model's language, as LANGUAGE=FILE. Repeat
      the option for several files.
    task: Task that the head was trained for.
    format: Format of the files. Defaults to conllu_tags for tagging, conll_iob2
      for entities, conllu for parsing, and tsv for classification.
    objective: Name of the head in the fine-tuned model. Defaults to the task's
      name.
    max_examples: Maximum number of examples per file. By default, all examples
      are used.
  """

  head_model: tuple[str, ...]
  alignment_map: tuple[str, ...]
  target_model: str
  test: tuple[str, ...]
  task: Literal['tagging', 'entities', 'parsing', 'classification'] = 'tagging'
  format: str | None = None
  objective: str | None = None
  max_examples: shared_options.PositiveInt | None = None

  def __post_init__(self):
    if len(self.head_model) != len(self.alignment_map):
      raise errors.ConfigError(
        'The number of --alignment_map values must equal the number of '
        f'--head_model values, but found {len(self.alignment_map)} and '
        f'{len(self.head_model)}'
      )


def main(options: TransferOptions) -> int:
  """Evaluates the task heads."""
  from xlflax.analysis import transfer_study

  heads = map(transfer_study.Head, options.head_model, options.alignment_map)
  analysis = transfer_study.HeadTransferStudy(
    heads=tuple(heads), target=options.target_model, task=_build_task(options)
  )
  return analysis_options.run_with_models(options, analysis)


def _build_task(options: TransferOptions):
  """Returns the task on which the head is evaluated."""
  from xlflax.data.supervised.sources import example_source
  from xlflax.evaluation.tasks import (
    classification_task,
    parsing_task,
    tagging_task,
  )

  fields: dict[str, Any] = {
    'source': example_source.FileDataset(
      format=options.format or _FORMATS[options.task],
      files=analysis_options.parse_named_files(options.test, '--test'),
      max_examples=options.max_examples,
    )
  }
  if options.objective:
    fields['objective'] = options.objective
  if options.task == 'parsing':
    return parsing_task.Parsing(**fields)
  if options.task == 'classification':
    return classification_task.Classification(**fields)
  scheme = (
    tagging_task.Scheme.ENTITIES
    if options.task == 'entities'
    else tagging_task.Scheme.TAGS
  )
  return tagging_task.Tagging(
    scheme=scheme, unseen=tagging_task.UnseenLabelPolicy.WRONG, **fields
  )
