"""`xlflax mine`: hard negatives for search."""

import argparse

from xlflax.cli import output_paths
from xlflax.commands.flags import compilation

HELP = (
  'Writes pairs of queries and documents with hard negatives: documents of '
  'other pairs that a run finds near to the query, but not so near that they '
  'may answer it.'
)
FLAGS = f"""
--model_dir DIR (required): directory of the run whose vectors count
--pairs FILE (required): a query and its document a line: TSV or JSON lines
--language CODE (required): of the texts
--output FILE (required): JSON lines to write, as finetune/search.gin reads
--negatives N (Count, default 1): of each query; pairs with fewer go
--share S (PositiveShare, default 0.95): of the cosine of a query and its
  document, a negative's is at most
--nearest N (Count, default 100): documents that are looked at
--skip N (Natural, default 0): of the nearest, which are no negatives
{compilation.FLAG}
"""


def run(args: argparse.Namespace) -> int:
  """Mines, and says how many lines were written."""
  output_paths.check_differs(args.pairs, args.output, option='output')
  compilation.use(args.compilation_cache)
  from xlflax.finetuning import hard_negatives
  from xlflax.runs import run as run_lib

  written, left = hard_negatives.mine(
    run_lib.open_run(args.model_dir),
    pairs=args.pairs,
    output=args.output,
    language=args.language,
    mining=hard_negatives.Mining(
      negatives=args.negatives,
      share=args.share,
      nearest=args.nearest,
      skip=args.skip,
    ),
  )
  print(f'{args.output}: {written} lines; {left} pairs with too few negatives')
  return 0
