"""`xlflax analyze transfer`: a head on another model's mapped states."""

import argparse
from typing import Any

from xlflax.commands.analyze import analysis_flags as flags
from xlflax.foundation import errors, numeric_flags, ranges

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of transfer."""
  flags.add_arguments(parser)
  _add_models(parser)
  parser.add_argument(
    '--task',
    choices=list(_FORMATS),
    default='tagging',
    help='(default: %(default)s)',
  )
  _add_text(parser)
  parser.add_argument(
    '--objective',
    metavar='NAME',
    help="the head's name (default: the task's usual one)",
  )
  parser.add_argument(
    '--max_examples',
    type=numeric_flags.of(ranges.Count),
    help='of a file; all by default',
  )


def _add_models(parser: argparse.ArgumentParser) -> None:
  """Adds the heads, the maps and the run that is mapped."""
  parser.add_argument(
    '--head',
    metavar='DIR',
    action='append',
    required=True,
    help='run with the head, DIR or DIR@STEP; once for each layer',
  )
  parser.add_argument(
    '--map',
    metavar='FILE',
    action='append',
    required=True,
    help="map from the target's layer to the source's; as often as --head",
  )
  parser.add_argument(
    '--target', metavar='DIR', required=True, help='run whose states are mapped'
  )


def _add_text(parser: argparse.ArgumentParser) -> None:
  """Adds the labelled text and its format."""
  parser.add_argument(
    '--test',
    metavar='LANGUAGE=FILE',
    action='append',
    required=True,
    help="labelled text of the target's language; may be repeated",
  )
  parser.add_argument(
    '--format',
    metavar='NAME',
    help="of the files (default: the task's: "
    + ', '.join(f'{task} {name}' for task, name in _FORMATS.items())
    + ')',
  )


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
