"""`xlflax translate`: text through a run's encoder-decoder."""

import argparse
import contextlib
import pathlib
import sys
from typing import Any, Literal

from xlflax.cli import output_paths
from xlflax.commands.flags import compilation
from xlflax.foundation import errors, flag_tables, validation
from xlflax.storage import paths

HELP = (
  'Translates files, or standard input line by line, with a checkpoint '
  'of an encoder-decoder by beam search.'
)

_SEARCH_OPTIONS = """beam_size length_penalty early_stopping n_best max_length
  decoder_start source_symbols""".split()


FLAGS = f"""
--model_dir DIR (required): directory of the run
--source CODE (required): language of the text
--target CODE (required): language to translate into
--input FILE (default -): text, a sentence a line; - is standard input
--output FILE (default -): what it becomes, a line for each line; - is standard
  output
--step (Step, default last): of the checkpoint
--batch_size (Count, default 64): lines at a time
[search]
--beam_size K (Count, default 5): hypotheses kept; 1 is greedy
--length_penalty A (Real, default 1.0): log probabilities are divided by
  length^A
--early_stopping WHEN (default exact): exact: when no unfinished hypothesis can
  beat the best; full: with K finished ones, as in fairseq
--n_best (Count, default 1): hypotheses written; above 1 as lines of number,
  score and text
--max_length (Count): tokens read of a line, and written for it, at most
  (default: what the model has positions for)
--decoder_start SYMBOL: the decoder's first input: language, bos, pad or eos
  (default: as the run was trained)
--source_symbols SYMBOLS: of the encoder's rows: bos or language_last (default:
  as the run was trained)
[]
{compilation.FLAG}
"""
FLAG_KINDS = {
  'Step': flag_tables.of(validation.NonNegativeInt | Literal['last'])
}


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
  source = args.input
  if source == '-' and pathlib.Path('/dev/stdin').is_file():
    source = '/dev/stdin'  # of a shell's `<`
  if '-' not in (source, args.output):
    output_paths.check_differs(source, args.output, option='output')
  if args.input != '-' and not pathlib.Path(args.input).is_file():
    raise errors.CorpusError(
      'There is no such file of text',
      got=args.input,
      expected='a file, or - for standard input',
      where='--input',
    )
