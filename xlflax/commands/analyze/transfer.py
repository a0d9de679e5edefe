"""`xlflax analyze transfer`: a head on another model's mapped states."""

import argparse
from typing import Any

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import errors

HELP = (
  "Runs a fine-tuned model's head on the states of another model, "
  'mapped into its space (ECS section 5.1.2). The head reads one layer '
  'of a frozen body; the map is of `xlflax analyze procrustes`.'
)

# --task -> the format of its files.
_FORMATS = {
  'tagging': 'conllu_tags',
  'entities': 'conll_iob2',
  'parsing': 'conllu',
  'classification': 'tsv',
}


FLAGS = f"""
{flags.FLAGS}
--head DIR (repeated, required): run with the head, DIR or DIR@STEP; once for
  each layer
--map FILE (repeated, required): map from the target's layer to the source's; as
  often as --head
--target DIR (required): run whose states are mapped
--task (one of {' '.join(_FORMATS)}, default tagging)
--test LANGUAGE=FILE (repeated, required): labelled text of the target's
  language; may be repeated
--format NAME: of the files (default: the task's:
  {', '.join(f'{task} {name}' for task, name in _FORMATS.items())})
--objective NAME: the head's name (default: the task's usual one)
--max_examples (Count): of a file; all by default
"""


def run(args: argparse.Namespace) -> int:
  """Runs the analysis."""
  from xlflax.analysis import transfer_study

  if len(args.head) != len(args.map):
    raise errors.ConfigError(
      'Each head needs its map',
      got=f'{len(args.head)} heads, {len(args.map)} maps',
      expected='as many of both',
    )
  return flags.finish(
    args,
    transfer_study.TransferStudy(
      heads=tuple(map(transfer_study.Head, args.head, args.map)),
      target=args.target,
      task=_task(args),
    ),
  )


def _task(args: argparse.Namespace):
  from xlflax.evaluation.tasks import classification, parsing, tagging

  settings = _settings(args)
  if args.task == 'parsing':
    return parsing.Parsing(**settings)
  if args.task == 'classification':
    return classification.Classification(**settings)
  return tagging.Tagging(
    scheme=tagging.Scheme.ENTITIES
    if args.task == 'entities'
    else tagging.Scheme.TAGS,
    unseen=tagging.Unseen.WRONG,
    **settings,
  )


def _settings(args: argparse.Namespace) -> dict[str, Any]:
  """What all tasks are told: the text and the head."""
  from xlflax.data.labelled.sources import source as source_lib

  source = source_lib.FileExamples(
    format=args.format or _FORMATS[args.task],
    files=flags.named_files(args.test, '--test'),
    max_examples=args.max_examples,
  )
  if not args.objective:
    return {'source': source}
  return {'source': source, 'objective': args.objective}
