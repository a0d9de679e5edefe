"""`xlflax analyze transfer-matrix`: scores by training and test language."""

import dataclasses
import pathlib

from xlflax.cli import options as shared_options
from xlflax.cli.analyze import analysis_options
from xlflax.storage import name_path_pairs
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransferMatrixOptions(analysis_options.AnalysisOptions):
  """Plots matrices of scores by training language and test language.

  Compares the results of several `xlflax finetune --train_languages` commands,
  and plots each model's gains over the first model (Chi et al., 2022, figure
  6).

  Attributes:
    result: Output directory of `xlflax finetune --train_languages`, as DIR or
      NAME=DIR. Repeat the option for several models. The first directory is the
      baseline.
    tasks: Evaluation tasks, separated by commas. Defaults to all tasks.
  """

  result: tuple[str, ...]
  tasks: shared_options.CommaSeparated = ()


def main(options: TransferMatrixOptions) -> int:
  """Plots the score matrices."""
  from xlflax.analysis import transfer_matrix_study

  analysis = transfer_matrix_study.TransferMatrixStudy(
    results=_parse_results(options.result), tasks=options.tasks or None
  )
  return analysis_options.run(options, analysis)


def _parse_results(items: tuple[str, ...]) -> dict[str, str]:
  """Returns the result directories by model name.

  Raises:
    ConfigError: If two models have the same name.
  """
  results: dict[str, str] = {}
  for item in items:
    name, directory = name_path_pairs.split_name(item)
    name = name or pathlib.Path(directory).name or directory
    if not (name and directory) or name in results:
      raise errors.ConfigError(
        'Each value of --result must have the form DIR or NAME=DIR, with a '
        'different name for each directory',
        got=item,
      )
    results[name] = directory
  return results
