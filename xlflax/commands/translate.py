"""`xlflax translate`: text through a run's encoder-decoder."""

import argparse
import contextlib
import pathlib
import sys
from typing import Any, Literal

from xlflax.commands.flags import compilation
from xlflax.foundation import errors, numeric_flags, ranges
from xlflax.storage import paths

HELP = (
  'Translates files, or standard input line by line, with a checkpoint '
  'of an encoder-decoder by beam search.'
)
EXAMPLES = """
  # a file; an interrupted call goes on where it stopped
  xlflax translate --model_dir=runs/en_ja --source=en --target=ja \\
      --input=test.en --output=test.ja

  # standard input to standard output, as lines arrive
  echo 'Hello.' | xlflax translate --model_dir=runs/en_ja --source=en \\
      --target=ja

  # the average of the last ten checkpoints; four hypotheses a line
  xlflax convert average --model_dir=runs/en_ja --last=10 --output=runs/averaged
  xlflax translate --model_dir=runs/averaged --source=en --target=ja \\
      --input=test.en --output=test.tsv --n_best=4
"""

_SEARCH_OPTIONS = (
  'beam_size',
  'length_penalty',
  'early_stopping',
  'n_best',
  'max_length',
  'decoder_start',
  'source_symbols',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags of translation."""
  parser.add_argument(
    '--model_dir', metavar='DIR', required=True, help='directory of the run'
  )
  parser.add_argument(
    '--source', metavar='CODE', required=True, help='language of the text'
  )
  parser.add_argument(
    '--target', metavar='CODE', required=True, help='language to translate into'
  )
  _add_files(parser)
  _add_running(parser)
  _add_search_arguments(parser)
  compilation.add_flag(parser)


def _add_files(parser: argparse.ArgumentParser) -> None:
  """Adds what is read and written."""
  parser.add_argument(
    '--input',
    metavar='FILE',
    default='-',
    help='text, a sentence a line; - is standard input (default: %(default)s)',
  )
  parser.add_argument(
    '--output',
    metavar='FILE',
    default='-',
    help='what it becomes, a line for each line; - is '
    'standard output (default: %(default)s)',
  )


def _add_running(parser: argparse.ArgumentParser) -> None:
  """Adds the checkpoint and the size of batches."""
  parser.add_argument(
    '--step',
    type=numeric_flags.of(ranges.Natural | Literal['last']),
    default='last',
    help='of the checkpoint (default: %(default)s)',
  )
  parser.add_argument(
    '--batch_size',
    type=numeric_flags.of(ranges.Count),
    default=64,
    help='lines at a time (default: %(default)s)',
  )


def _add_search_arguments(parser: argparse.ArgumentParser) -> None:
  group = parser.add_argument_group('search')
  _add_beam(group)
  _add_hypotheses(group)
  group.add_argument(
    '--max_length',
    type=numeric_flags.of(ranges.Count),
    help='tokens read of a line, and written for it, at most '
    '(default: what the model has positions for)',
  )
  _add_symbols(group)


def _add_beam(group: argparse._ArgumentGroup) -> None:
  """Adds the size of the beam and how it scores."""
  group.add_argument(
    '--beam_size',
    type=numeric_flags.of(ranges.Count),
    default=5,
    metavar='K',
    help='hypotheses kept; 1 is greedy (default: %(default)s)',
  )
  group.add_argument(
    '--length_penalty',
    type=numeric_flags.of(ranges.Real),
    default=1.0,
    metavar='A',
    help='log probabilities are divided by length^A (default: %(default)s)',
  )


def _add_hypotheses(group: argparse._ArgumentGroup) -> None:
  """Adds when the search ends, and what it keeps."""
  group.add_argument(
    '--early_stopping',
    default='exact',
    metavar='WHEN',
    help='exact: when no unfinished hypothesis can beat the best; full: '
    'with K finished ones, as in fairseq (default: %(default)s)',
  )
  group.add_argument(
    '--n_best',
    type=numeric_flags.of(ranges.Count),
    default=1,
    help='hypotheses written; '
    'above 1 as lines of number, score and text (default: %(default)s)',
  )


def _add_symbols(group: argparse._ArgumentGroup) -> None:
  """Adds the symbols that rows start or end with."""
  group.add_argument(
    '--decoder_start',
    metavar='SYMBOL',
    help="the decoder's first input: "
    'language, bos, pad or eos (default: as the run was trained)',
  )
  group.add_argument(
    '--source_symbols',
    metavar='SYMBOLS',
    help="of the encoder's rows: bos "
    'or language_last (default: as the run was trained)',
  )


def run(args: argparse.Namespace) -> int:
  """Translates; standard output holds nothing but translations."""
  _check(args)
  compilation.use(args.compilation_cache)
  lines = _translator(args)
  if args.input != '-' and args.output != '-':
    counts = lines.file(pathlib.Path(args.input), pathlib.Path(args.output))
  else:
    counts = _stream(lines, args)
  if counts is not None:
    print(
      f'{counts.lines} lines translated: {counts.resumed} of them before, '
      f'{counts.empty} empty, {counts.cut} cut.',
      file=sys.stderr,
    )
  return 0


def _translator(args: argparse.Namespace):
  from xlflax import translate

  options = {name: getattr(args, name) for name in _SEARCH_OPTIONS}
  return translate.open_translator(
    model_dir=args.model_dir,
    source=args.source,
    target=args.target,
    step=args.step,
    batch_size=args.batch_size,
    options=translate.TranslationOptions(**options),
  )


def _stream(lines, args: argparse.Namespace):
  """Between standard streams and files; None if nobody reads any more."""
  with contextlib.ExitStack() as files:
    try:
      source: Any = sys.stdin.buffer
      if args.input != '-':
        source = files.enter_context(open(args.input, 'rb'))
      output: Any = sys.stdout.buffer
      if args.output != '-':
        output = files.enter_context(open(args.output, 'wb'))
      return lines.stream(source, output)
    except BrokenPipeError:
      return None
    except OSError as error:
      error.filename = error.filename or f'{args.input} into {args.output}'
      raise


def _check(args: argparse.Namespace) -> None:
  for flag in ('input', 'output'):
    paths.local(getattr(args, flag), where=f'--{flag}')
  if args.input != '-' and not pathlib.Path(args.input).is_file():
    raise errors.CorpusError(
      'There is no such file of text',
      got=args.input,
      expected='a file, or - for standard input',
      where='--input',
    )
