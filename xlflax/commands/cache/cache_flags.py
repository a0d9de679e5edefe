"""The flags of `xlflax cache`."""

import argparse

from xlflax.commands.flags import json_lines, shares
from xlflax.foundation import numeric_flags, ranges


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of cache writing."""
  parser.add_argument(
    'action',
    nargs='?',
    choices=('write', 'finish'),
    default='write',
    help='write (the default), or finish: check that the shards of all '
    '--shard=i/N are there, and seal the cache; takes their flags',
  )
  parser.add_argument(
    '--output',
    metavar='DIR',
    required=True,
    help='directory of the cache; what is in it stays',
  )
  parser.add_argument(
    '--vocabulary', metavar='DIR', help='directory made by `xlflax vocab`'
  )
  parser.add_argument(
    '--verify',
    action='store_true',
    help='write nothing: read the cache in --output and compare every file '
    'with its digest',
  )
  parser.add_argument(
    '--stage',
    metavar='DIR',
    help='write nothing: copy the cache in --output, which may be in a bucket, '
    'to a local disk, for training to read it there',
  )
  _add_text(parser)
  _add_writing(parser)
  _add_engine(parser)
  _add_changed(parser)
  _add_task_sources(parser)
  json_lines.add(parser)


def _add_text(parser: argparse.ArgumentParser) -> None:
  """Adds the text that is tokenised."""
  parser.add_argument(
    '--corpus', metavar='DIR', help='corpus directory; registers corpus.*'
  )
  parser.add_argument(
    '--mixture',
    metavar='NAME',
    action='append',
    default=[],
    help='SeqIO mixture or task; may be repeated (default: corpus.mono and '
    'corpus.parallel, as far as the corpus has them)',
  )
  parser.add_argument(
    '--split',
    metavar='NAME',
    action='append',
    default=[],
    help='may be repeated (default: train)',
  )


def _add_writing(parser: argparse.ArgumentParser) -> None:
  """Adds how shards are written."""
  parser.add_argument(
    '--num_processes',
    type=numeric_flags.of(ranges.Processes),
    default=1,
    help='processes that tokenise (default: %(default)s)',
  )
  parser.add_argument(
    '--shard_size',
    type=numeric_flags.of(ranges.Bytes),
    default=1 << 26,
    metavar='BYTES',
    help='text in one file of the cache; what an interruption can lose '
    '(default: %(default)s)',
  )
  parser.add_argument(
    '--shard',
    type=shares.parse,
    metavar='I/N',
    help='write only the I-th of N shares, I from 0, beside other machines '
    'that write the others to the same directory; "auto" asks the job: an '
    'array or the tasks of Slurm, or what `xlflax launch` says',
  )


def _add_engine(parser: argparse.ArgumentParser) -> None:
  """Adds who writes the shards."""
  parser.add_argument(
    '--runner',
    choices=('local', 'beam'),
    default='local',
    help='who writes the shards: processes of this machine, or Apache Beam '
    '(default: %(default)s)',
  )
  parser.add_argument(
    '--beam_options',
    metavar='FLAGS',
    default='',
    help="Beam's own flags, such as "
    '"--runner=DirectRunner --direct_num_workers=8 '
    '--direct_running_mode=multi_processing"',
  )


def _add_changed(parser: argparse.ArgumentParser) -> None:
  """Adds what becomes of text that has changed."""
  changed = parser.add_mutually_exclusive_group()
  changed.add_argument(
    '--overwrite',
    action='store_true',
    help='replace what was written from other text or with another vocabulary',
  )
  changed.add_argument(
    '--add',
    action='store_true',
    help='files that came to the text make a new generation of the cache; '
    'the ones before it can still be read',
  )


def _add_task_sources(parser: argparse.ArgumentParser) -> None:
  """Adds where further tasks come from."""
  parser.add_argument(
    '--task_module',
    metavar='MODULE',
    action='append',
    default=[],
    help='importable module that registers tasks; may be repeated',
  )
  parser.add_argument(
    '--tfds_data_dir', metavar='DIR', help='prepared TensorFlow datasets'
  )
