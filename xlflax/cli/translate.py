"""`xlflax translate`: translates text with an encoder-decoder."""

import contextlib
import dataclasses
import pathlib
import sys
from typing import Any, Literal

from xlflax.cli import compilation_cache, output_paths
from xlflax.cli import options as shared_options
from xlflax.storage import paths
from xlflax.utils import errors, plurals


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions:
  """Translates the lines of a file or of standard input with beam search.

  Attributes:
    model_dir: Directory of a run with an encoder-decoder.
    source: Language code of the input.
    target: Language code of the output.
    input: Text file with one sentence per line. "-" reads standard input.
    output: File to which the translations are written, one line per input line.
      "-" writes to standard output.
    step: Training step of the checkpoint. Defaults to the last checkpoint.
    batch_size: Number of lines that are translated together.
    beam_size: Number of hypotheses in the beam. 1 results in greedy decoding.
    length_penalty: Exponent A for length normalization. The log probability of
      a hypothesis is divided by length^A.
    early_stopping: Stopping criterion of the search. "exact" stops when no
      unfinished hypothesis can outscore the hypotheses that are written. "full"
      stops when beam_size hypotheses are finished, as in fairseq.
    n_best: Number of hypotheses per input line, at most beam_size. If it is
      above 1, each output line consists of the input line's number, the score
      and the text.
    max_length: Maximum number of tokens in an input line and in its
      translation. Longer input lines are truncated. Defaults to the model's
      number of positions.
    decoder_start_token: First input token of the decoder. Defaults to the token
      with which the run was trained.
    source_special_tokens: Special tokens of the encoder input. Defaults to the
      special tokens with which the run was trained, or to bos if they are not
      recorded.
  """

  model_dir: str
  source: str
  target: str
  input: str = '-'
  output: str = '-'
  step: Literal['last'] | shared_options.NonNegativeInt = 'last'
  batch_size: shared_options.PositiveInt = 64
  beam_size: shared_options.PositiveInt = 5
  length_penalty: shared_options.FiniteFloat = 1.0
  early_stopping: Literal['exact', 'full'] = 'exact'
  n_best: shared_options.PositiveInt = 1
  max_length: shared_options.PositiveInt | None = None
  decoder_start_token: Literal['language', 'bos', 'pad', 'eos'] | None = None
  source_special_tokens: Literal['bos', 'language_suffix'] | None = None
  compilation: shared_options.CompilationOptions = (
    shared_options.CompilationOptions()
  )


EXAMPLES = r"""
Translate a file; run the same command again to resume after an interruption:
  xlflax translate --model_dir=runs/en_ja --source=en --target=ja \
      --input=test.en --output=test.ja

Translate standard input line by line:
  echo 'Hello.' | xlflax translate --model_dir=runs/en_ja --source=en \
      --target=ja

Average the last ten checkpoints, and write four hypotheses per line:
  xlflax convert average --model_dir=runs/en_ja --last=10 --output=runs/averaged
  xlflax translate --model_dir=runs/averaged --source=en --target=ja \
      --input=test.en --output=test.tsv --n_best=4
"""


def main(options: TranslateOptions) -> None:
  """Translates the input. Only translations are written to standard output."""
  _check_paths(options)
  compilation_cache.enable(options.compilation.compilation_cache)
  translator = _open_translator(options)
  if options.input != '-' and options.output != '-':
    counts = translator.file(
      pathlib.Path(options.input), pathlib.Path(options.output)
    )
  else:
    counts = _translate_stream(translator, options)
  if counts is not None:
    print(
      f'Translated {plurals.format_count(counts.lines, "line")}: '
      f'{counts.resumed} before the command was resumed, {counts.empty} empty, '
      f'{counts.cut} truncated.',
      file=sys.stderr,
    )


def _open_translator(options: TranslateOptions):
  """Opens the run for translation with the given search options."""
  from xlflax import translate

  search_options: dict[str, Any] = {
    'beam_size': options.beam_size,
    'length_penalty': options.length_penalty,
    'early_stopping': options.early_stopping,
    'n_best': options.n_best,
    'max_length': options.max_length,
    'decoder_start': options.decoder_start_token,
    'source_symbols': options.source_special_tokens,
  }
  return translate.open_translator(
    model_dir=options.model_dir,
    source=options.source,
    target=options.target,
    step=options.step,
    batch_size=options.batch_size,
    options=translate.TranslationOptions(**search_options),
  )


def _translate_stream(translator, options: TranslateOptions):
  """Translates from standard input, to standard output, or both.

  Returns:
    The counts of lines, or None if standard output has no reader.
  """
  with contextlib.ExitStack() as files:
    try:
      source: Any = sys.stdin.buffer
      if options.input != '-':
        source = files.enter_context(open(options.input, 'rb'))
      output: Any = sys.stdout.buffer
      if options.output != '-':
        output = files.enter_context(open(options.output, 'wb'))
      return translator.stream(source, output)
    except BrokenPipeError:
      return None
    except OSError as error:
      error.filename = (
        error.filename or f'{options.input} into {options.output}'
      )
      raise


def _check_paths(options: TranslateOptions) -> None:
  """Checks that the input exists and differs from the output."""
  for name in ('input', 'output'):
    paths.to_local_path(getattr(options, name), where=f'--{name}')
  source = options.input
  if source == '-' and pathlib.Path('/dev/stdin').is_file():
    source = '/dev/stdin'  # The shell redirected a file.
  if '-' not in (source, options.output):
    output_paths.check_differs(source, options.output, option='output')
  if options.input != '-' and not pathlib.Path(options.input).is_file():
    raise errors.CorpusError(
      'The file given with --input does not exist',
      got=options.input,
      fix='Pass the path of a text file, or pass - to read standard input.',
    )
