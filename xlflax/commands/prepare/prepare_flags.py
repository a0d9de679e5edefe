"""The flags of `xlflax prepare`."""

import argparse
from typing import Annotated

from xlflax.commands.flags import json_lines, shares
from xlflax.data.corpus import likeness
from xlflax.data.dictionaries.settings import CodeSwitching
from xlflax.foundation import numeric_flags, ranges


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of corpus preparation."""
  _add_text(parser)
  _add_filters(parser)
  _add_duplicates(parser)
  _add_decontamination(parser)
  _add_margins(parser)
  _add_code_switching(parser)
  _add_switching_limits(parser)
  _add_copies(parser)
  parser.add_argument(
    '--num_processes',
    type=numeric_flags.of(ranges.Processes),
    default=1,
    help='default: %(default)s',
  )
  parser.add_argument(
    '--shard',
    type=shares.parse,
    metavar='I/N',
    help='write only the I-th of N shares of the files, I from 0, beside other '
    'machines that write the others to the same directory; "auto" asks the '
    'job. The command without it checks, and writes what is missing',
  )
  parser.add_argument(
    '--overwrite',
    action='store_true',
    help='replace an output of other settings',
  )
  json_lines.add(parser)


def _add_text(parser: argparse.ArgumentParser) -> None:
  """Adds the text and how it is processed."""
  parser.add_argument(
    '--corpus', metavar='DIR', required=True, help='corpus directory to read'
  )
  parser.add_argument(
    '--output', metavar='DIR', required=True, help='corpus directory to write'
  )
  parser.add_argument(
    '--languages', metavar='CODES', help='comma-separated; others are left out'
  )
  parser.add_argument(
    '--moses',
    action='store_true',
    help='normalise punctuation and tokenise, dictionaries too',
  )
  parser.add_argument(
    '--split_sentences',
    action='store_true',
    help='a line of monolingual text becomes one line for each of its '
    'sentences, before all else (sentencex; pairs stay)',
  )
  parser.add_argument(
    '--segment_chinese',
    action='store_true',
    help='put spaces between the words of Chinese (jieba)',
  )


def _add_filters(parser: argparse.ArgumentParser) -> None:
  """Adds which lines are dropped."""
  for name, kind, text in (
    (
      'min_letters',
      ranges.Natural,
      'drop lines with fewer letters, such as numbers '
      '(default: 1; 0 keeps them)',
    ),
    (
      'max_similarity',
      ranges.Share,
      'drop pairs whose sides are equal, or have a larger share of their '
      'character trigrams in common: they were not translated '
      f'(default: {likeness.COPIED}; 1 keeps them)',
    ),
    ('min_characters', ranges.Natural, 'drop shorter lines'),
    ('max_characters', ranges.Count, 'drop longer lines'),
    (
      'min_script_share',
      ranges.Share,
      "drop lines with a smaller share of letters of their language's script",
    ),
    (
      'min_language_probability',
      ranges.Share,
      'drop lines that are not of their language with so much probability, '
      'given what the languages of their file are (py3langid; lines of '
      'languages that it does not know stay; 0.5, say)',
    ),
    (
      'max_ratio',
      Annotated[float, ranges.real(at_least=1)],
      'drop pairs of which one side has so many times more characters',
    ),
  ):
    parser.add_argument(
      f'--{name}', type=numeric_flags.of(kind), metavar='N', help=text
    )


def _add_duplicates(parser: argparse.ArgumentParser) -> None:
  """Adds which lines are dropped since others are like them."""
  parser.add_argument(
    '--duplicates',
    choices=('keep', 'equal', 'near'),
    default='keep',
    help='drop lines that are equal, but for case and punctuation, or near to '
    'another one; held-out text comes first, so no training line is like '
    'a held-out one (default: %(default)s)',
  )
  for name, text in (
    ('bands', 'of a signature, one of which near lines have in common'),
    ('rows', 'values in a band'),
    ('characters', 'of the n-grams that lines are compared by'),
  ):
    parser.add_argument(
      f'--near_{name}', type=numeric_flags.of(ranges.Count), help=text
    )


def _add_decontamination(parser: argparse.ArgumentParser) -> None:
  """Adds the evaluation texts that training may not hold."""
  parser.add_argument(
    '--decontaminate',
    metavar='FILES',
    help='drop training lines that have 13 words in a row in common with a '
    'text of these comma-separated files (.txt, .tsv with a text in each '
    'column, .jsonl …), or are equal to a shorter one; of scripts without '
    'spaces a character is a word',
  )


def _add_margins(parser: argparse.ArgumentParser) -> None:
  """Adds which pairs are dropped as an encoder finds them unlike."""
  parser.add_argument(
    '--min_margin',
    type=numeric_flags.of(ranges.Positive),
    help='drop training pairs whose margin is lower: the cosine of the two '
    'sides beside that of their nearest neighbours (Artetxe and Schwenk 2019; '
    '1.06, say)',
  )
  parser.add_argument(
    '--margin_model', metavar='DIR', help='run whose encoder gives the vectors'
  )
  parser.add_argument(
    '--margin_layer',
    type=numeric_flags.of(ranges.Layers),
    help='of the encoder, 0 for the embeddings (default: the last)',
  )


def _add_code_switching(parser: argparse.ArgumentParser) -> None:
  """Adds the dictionaries and how often they are used."""
  parser.add_argument(
    '--code_switch',
    action='store_true',
    help="replace words of monolingual training text by the dictionaries' "
    'translations; the tasks corpus.code_switched.* do so without a corpus '
    'of its own',
  )
  parser.add_argument(
    '--code_switch_probability',
    type=numeric_flags.of(ranges.Share),
    metavar='P',
    help='of replacing a word that a dictionary has (default: '
    f'{CodeSwitching.probability})',
  )


def _add_switching_limits(parser: argparse.ArgumentParser) -> None:
  """Adds how much of a line or group is switched."""
  parser.add_argument(
    '--code_switch_max_share',
    type=numeric_flags.of(ranges.Share),
    metavar='S',
    help='of the words of a group of lines, that are replaced at most '
    f'(default: {CodeSwitching.max_share})',
  )
  parser.add_argument(
    '--code_switch_group_lines',
    type=numeric_flags.of(ranges.Count),
    help=f'lines that the share is of (default: {CodeSwitching.group_lines})',
  )


def _add_copies(parser: argparse.ArgumentParser) -> None:
  """Adds how many switched copies there are, and into which languages."""
  parser.add_argument(
    '--code_switch_into',
    metavar='CODES',
    help='comma-separated languages of the translations '
    '(default: all of the dictionaries)',
  )
  parser.add_argument(
    '--copies',
    type=numeric_flags.of(ranges.Count),
    help='differently switched copies of the text '
    f'(default: {CodeSwitching.copies})',
  )
  parser.add_argument(
    '--seed',
    type=numeric_flags.of(ranges.Seed),
    help=f'of the switching (default: {CodeSwitching.seed})',
  )
