"""`xlflax mine-hard-negatives`: mines hard negatives for retrieval."""

import dataclasses
from typing import Annotated

import annotated_types

from xlflax.cli import compilation_cache, output_paths
from xlflax.cli import options as shared_options
from xlflax.utils import plurals


@dataclasses.dataclass(frozen=True, kw_only=True)
class MineHardNegativesOptions:
  """Adds hard negatives to pairs of queries and documents.

  Hard negatives are documents from other pairs to which the run's model gives a
  high score for a query, but a lower score than to the query's own document.

  Attributes:
    model_dir: Directory of the run that encodes queries and documents.
    pairs: TSV or JSON lines file with a query and its relevant document on each
      line.
    language: Language code of the texts.
    output: JSON lines file to write, in the format of finetune/search.gin.
    num_negatives: Number of negatives per query. Pairs for which fewer
      negatives are found are dropped.
    max_score_ratio: Maximum cosine similarity between a query and a negative,
      as a fraction of the similarity between the query and its own document.
    range_min: Number of top-ranked documents to skip for each query.
    range_max: Number of top-ranked documents to consider for each query,
      including those that are skipped.
  """

  model_dir: str
  pairs: str
  language: str
  output: str
  num_negatives: shared_options.PositiveInt = 1
  max_score_ratio: Annotated[float, annotated_types.Interval(gt=0, le=1)] = 0.95
  range_min: shared_options.NonNegativeInt = 0
  range_max: shared_options.PositiveInt = 100
  compilation: shared_options.CompilationOptions = (
    shared_options.CompilationOptions()
  )


EXAMPLES = r"""
Mine one negative per pair, and train on the result:
  xlflax mine-hard-negatives --model_dir=runs/search --pairs=pairs.tsv \
      --language=en --output=triples.jsonl
  xlflax train --gin_file=finetune/search.gin --model_dir=runs/search2 \
      --gin.INIT_FROM="'runs/search'" --gin.GROUP=3 --gin.BATCH_SIZE=96 \
      --gin.TRAIN_FILES="{'en': 'triples.jsonl'}"

Mine four negatives that score at most 90 % of the query's own document:
  xlflax mine-hard-negatives --model_dir=runs/search --pairs=pairs.tsv \
      --language=en --output=mined.jsonl --num_negatives=4 \
      --max_score_ratio=0.9 --range_max=200
"""


def main(options: MineHardNegativesOptions) -> None:
  """Writes the pairs with their negatives and prints the number of lines."""
  output_paths.check_differs(options.pairs, options.output, option='output')
  compilation_cache.enable(options.compilation.compilation_cache)
  from xlflax.finetuning import hard_negatives
  from xlflax.runs import loaded_run

  num_written, num_dropped = hard_negatives.mine_hard_negatives(
    loaded_run.load_run(options.model_dir),
    pairs=options.pairs,
    output=options.output,
    language=options.language,
    mining=hard_negatives.Mining(
      num_negatives=options.num_negatives,
      max_score_ratio=options.max_score_ratio,
      range_max=options.range_max,
      range_min=options.range_min,
    ),
  )
  print(
    f'Wrote {plurals.format_count(num_written, "line")} to {options.output}. '
    f'Dropped {plurals.format_count(num_dropped, "pair")} with too few '
    'negatives.'
  )
