"""Translation of files and streams with a run's encoder-decoder."""

import codecs
import dataclasses
import hashlib
import itertools
import json
import logging
import os
import pathlib
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import jax

from xlflax.evaluation import (
  checkpoint_selection,
  eval_task,
  result_store,
  sentence_translator,
  translation_options,
)
from xlflax.training.checkpointing import data_fingerprint, saved_run
from xlflax.training.devices import partitioning
from xlflax.utils import (
  errors,
  line_splitting,
  plurals,
  progress_reporting,
  validation,
)

Hypothesis = sentence_translator.Hypothesis
TranslationOptions = translation_options.TranslationOptions
Translator = sentence_translator.Translator

# Number of batches of a file that are sorted by length together.
_SORTED_BATCHES = 16

_LOG = logging.getLogger(__name__)


class Counts(NamedTuple):
  """Statistics of the lines processed by a translation command.

  Attributes:
    lines: Number of translated lines, including empty lines.
    empty: Number of lines without text, which stay empty.
    cut: Number of lines that exceeded the maximum length and were truncated.
    resumed: Number of lines that had already been translated by an earlier,
      interrupted call.
    replaced: Number of invalid UTF-8 bytes that were replaced with U+FFFD.
    with_tabs: Number of lines with a tab between two texts.
  """

  lines: int = 0
  empty: int = 0
  cut: int = 0
  resumed: int = 0
  replaced: int = 0
  with_tabs: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineTranslator:
  """Translator of text lines for one checkpoint and one language pair.

  Attributes:
    translator: Translator that uses the parameters of the checkpoint.
    n_best: Number of hypotheses to write per line. If 1, the output has one
      line per input line. Otherwise, each input line results in `n_best` lines
      of the form `number <TAB> score <TAB> text`, where `number` is the number
      of the input line, starting at 1.
    batch_size: Number of lines to translate at a time.
    identity: All settings that the translations depend on, except the text, as
      plain JSON values.
  """

  translator: Translator
  n_best: int
  batch_size: int
  identity: dict

  @validation.validate_call
  def translate(self, lines: Iterable[str]) -> list[list[Hypothesis]]:
    """Returns candidate translations of each line, best first.

    Args:
      lines: Lines of text in the source language.
    """
    return self.translator.translate(list(lines)).hypotheses

  def stream(self, source: BinaryIO, output: BinaryIO) -> Counts:
    """Translates a stream's lines in order, as they arrive.

    Each model call translates all lines that have arrived so far, but at most
    `batch_size` lines. Interactive input is therefore translated immediately.

    Args:
      source: Stream of UTF-8 text. Invalid bytes are replaced with U+FFFD.
      output: Stream for the translations, which is flushed after each batch.
    """
    counts = Counts()
    for chunk in _available_lines(source, self.batch_size):
      counts = self._translate_chunk(chunk, output, counts)
    _log_warnings(counts, self.translator)
    return counts

  @validation.validate_call
  def file(
    self, source: validation.FilePath, output: validation.FilePath
  ) -> Counts:
    """Translates a file, resuming where an interrupted call stopped.

    The finished lines are stored in `OUTPUT.partial`, and a record of their
    text, checkpoint and settings is stored in `OUTPUT.partial.json`. If the
    text, the checkpoint or a setting has changed, the file is translated from
    the start.

    Args:
      source: Text file to translate.
      output: File for the translations.

    Raises:
      CorpusError: If a file cannot be read or written.
    """
    source, output = pathlib.Path(source), pathlib.Path(output)
    partial = output.with_name(output.name + '.partial')
    record = output.with_name(output.name + '.partial.json')
    try:
      with errors.add_path_to_errors(partial), source.open('rb') as text:
        num_finished = _resume(
          partial, record, self._identity(text), self.n_best
        )
        text.seek(0)
        counts = Counts(lines=num_finished, resumed=num_finished)
        lines = line_splitting.read_numbered_lines(text, source)
        for _ in itertools.islice(lines, num_finished):
          pass
        with (
          partial.open('ab') as file,
          progress_reporting.progress_name('translation'),
        ):
          while chunk := list(
            itertools.islice(lines, _SORTED_BATCHES * self.batch_size)
          ):
            counts = self._translate_chunk(
              [line for _, line in chunk], file, counts
            )
            os.fsync(file.fileno())
            _LOG.info(
              'Translated %s.', plurals.format_count(counts.lines, 'line')
            )
      partial.replace(output)
      record.unlink()
    except OSError as error:
      raise errors.CorpusError(
        'A file could not be read or written during the translation',
        got=error.strerror or str(error),
        where=error.filename or f'{source} into {output}',
      ) from error
    _log_warnings(counts, self.translator)
    return counts

  def _identity(self, text: BinaryIO) -> dict:
    """Returns everything that the translations of a text depend on."""
    digest = hashlib.sha256()
    while block := text.read(1 << 20):
      digest.update(block)
    return {**self.identity, 'text': digest.hexdigest()}

  def _translate_chunk(
    self, chunk: list[bytes], file: BinaryIO, counts: Counts
  ) -> Counts:
    """Translates lines, writes the result, and returns the updated counts."""
    if not counts.lines:
      chunk = [chunk[0].removeprefix(codecs.BOM_UTF8), *chunk[1:]]
    decoded = [_decode(line) for line in chunk]
    lines = [text.strip() for text, _ in decoded]
    with_tabs = ['\t' in line for line in lines]
    if any(with_tabs) and not counts.with_tabs:
      _LOG.warning(
        'Line %d contains a tab. Tabs do not separate columns, so each line is '
        'translated as a single text. If the input is a parallel file, pass '
        'only the column in the source language, such as the output of cut -f1.',
        counts.lines + 1 + with_tabs.index(True),
      )
    translations = self.translator.translate(lines)
    for number, hypotheses in enumerate(
      translations.hypotheses, counts.lines + 1
    ):
      file.write(self._format(number, hypotheses).encode())
    file.flush()
    return counts._replace(
      lines=counts.lines + len(lines),
      cut=counts.cut + translations.cut,
      empty=counts.empty + sum(not line for line in lines),
      replaced=counts.replaced + sum(replaced for _, replaced in decoded),
      with_tabs=counts.with_tabs + sum(with_tabs),
    )

  def _format(self, number: int, hypotheses: list[Hypothesis]) -> str:
    """Returns the output of one input line."""
    if self.n_best == 1:
      return hypotheses[0].text + '\n'
    missing = [Hypothesis('', 0.0)] * (self.n_best - len(hypotheses))
    return ''.join(
      f'{number}\t{score:.4f}\t{text}\n'
      for text, score in [*hypotheses, *missing]
    )


@validation.validate_call
def open_translator(
  *,
  model_dir: validation.FilePath,
  source: str,
  target: str,
  step: str | int = 'last',
  options: TranslationOptions | None = None,
  batch_size: validation.PositiveInt = 64,
  partitioner: partitioning.Partitioner | None = None,
) -> LineTranslator:
  """Opens a run for translation.

  Args:
    model_dir: Directory of a run that trained an encoder-decoder.
    source: Code of the language to translate from.
    target: Code of the language to translate to.
    step: Checkpoint to load: 'last' or its training step.
    options: Search options. If None, beam search with a beam size of 5 is used.
    batch_size: Number of lines to translate at a time.
    partitioner: Partitioner for parameters and batches. If None, batches are
      split over all devices.

  Returns:
    A translator of lines, files and streams.

  Raises:
    XlflaxError: If the directory does not contain a run, the model is not an
      encoder-decoder, or it does not support a language.
  """
  options = options or TranslationOptions()
  run = saved_run.load_run(model_dir)
  sentence_translator.check_model(run.model)
  _warn_of_untrained_target(run.directory, target)
  (selected_step,) = checkpoint_selection.select_checkpoints(
    run, _parse_step(step)
  )
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  eval_model = eval_task.EvalModel(
    model=run.model,
    vocabulary=run.vocabulary,
    partitioner=partitioner,
    params=run.restore_params(selected_step, partitioner=partitioner),
    batch_size=batch_size,
    objectives=run.objectives,
  )
  translator = Translator(
    eval_model, source=source, target=target, options=options
  )
  return LineTranslator(
    translator=translator,
    n_best=options.n_best,
    batch_size=batch_size,
    identity={
      'source': translator.source,
      'target': translator.target,
      'options': eval_task.task_settings(options),
      'search': translator.describe(),
      'vocabulary': run.vocabulary.hash,
      'step': selected_step,
      'checkpoint': result_store.checkpoint_identity(
        run.directory, selected_step
      ),
    },
  )


def _parse_step(step: str | int) -> str | list[int]:
  """Returns the step in the format of `select_checkpoints`.

  Raises:
    ConfigError: If the step is neither 'last' nor a number.
  """
  if step == 'last':
    return step
  if isinstance(step, str) and not step.isdigit():
    raise errors.ConfigError(
      "The step of the checkpoint must be 'last' or a training step",
      got=repr(step),
      fix="Pass step='last' or the training step of one of the run's "
      'checkpoints.',
    )
  return [int(step)]


def _warn_of_untrained_target(directory: pathlib.Path, target: str) -> None:
  """Logs a warning if the run was not trained to translate to a language."""
  trained_languages = data_fingerprint.recorded_languages(directory)
  if trained_languages is not None and target not in trained_languages:
    _LOG.warning(
      'The run was not trained to translate to %s, but to %s. The output may '
      'be in another language or meaningless.',
      target,
      ', '.join(sorted(trained_languages)),
    )


def _resume(
  partial: pathlib.Path, record: pathlib.Path, identity: dict, n_best: int
) -> int:
  """Prepares the partial output and returns the number of finished lines.

  Incomplete lines at the end of the partial output are removed. If the partial
  output belongs to a different text or different settings, it is emptied.

  Args:
    partial: File with the finished lines.
    record: File that records the settings and the text on which the finished
      lines depend.
    identity: Settings and text on which this call's translations depend.
    n_best: Number of hypotheses per input line.

  Raises:
    CorpusError: If the partial output exists, but not the record of its text
      and settings.
  """
  recorded_identity = _read_record(record)
  if recorded_identity != identity or not partial.exists():
    if recorded_identity is not None:
      _LOG.warning(
        '%s belongs to another text or other settings. Translating the file '
        'from the start.',
        partial,
      )
    elif partial.exists() and partial.stat().st_size:
      raise errors.CorpusError(
        'A file with unfinished translations already exists, but the file '
        f'{record.name}, which records their text and settings, does not exist',
        got=str(partial),
        fix='Remove the file with unfinished translations, or pass a different '
        'output.',
      )
    partial.write_bytes(b'')
    record.write_text(json.dumps(identity))
    return 0
  num_finished, num_bytes = 0, 0
  with partial.open('rb') as file:
    while lines := list(itertools.islice(file, n_best)):
      if len(lines) < n_best or not lines[-1].endswith(b'\n'):
        break
      num_finished += 1
      num_bytes += sum(map(len, lines))
  os.truncate(partial, num_bytes)
  _LOG.info('Resuming after %d translated lines.', num_finished)
  return num_finished


def _read_record(record: pathlib.Path) -> Any:
  """Returns the settings and the text digest that an earlier call recorded.

  The result is None if there is no record, and '' if it is damaged.
  """
  if not record.exists():
    return None
  try:
    return json.loads(record.read_text(encoding='utf-8'))
  except (ValueError, RecursionError):
    return ''


def _decode(line: bytes) -> tuple[str, int]:
  """Decodes a line as UTF-8 and returns the number of replaced bytes."""
  try:
    return line.decode('utf-8'), 0
  except UnicodeDecodeError:
    valid = line.decode('utf-8', 'ignore')
    return line.decode('utf-8', 'replace'), len(line) - len(valid.encode())


def _log_warnings(counts: Counts, translator: Translator) -> None:
  """Logs warnings of truncated lines and replaced bytes."""
  if counts.cut:
    _LOG.warning(
      '%d of %d lines were truncated to %d tokens.',
      counts.cut,
      counts.lines - counts.resumed,
      translator.max_length,
    )
  if counts.replaced:
    _LOG.warning(
      '%d bytes of the text are not UTF-8 and were read as U+FFFD.',
      counts.replaced,
    )


def _available_lines(source: BinaryIO, count: int) -> Iterator[list[bytes]]:
  """Yields chunks of the lines that are available without waiting.

  Each chunk has at least one line. A thread reads ahead, so that a typed line
  is yielded immediately, and many lines of a fast source are yielded together.

  Args:
    source: Source of lines. If reading it fails, the lines that were read are
      yielded before the error is raised.
    count: Maximum number of lines in a chunk.
  """
  lines: queue.Queue = queue.Queue(maxsize=4 * count)

  def read():
    try:
      for line in source:
        for part in line.splitlines(keepends=True):
          lines.put(part)
      lines.put(None)
    except Exception as error:  # Raised below in the main thread.
      lines.put(error)

  threading.Thread(target=read, daemon=True).start()
  last = None
  while True:
    chunk = [lines.get()]
    while len(chunk) < count and isinstance(chunk[-1], bytes):
      try:
        chunk.append(lines.get_nowait())
      except queue.Empty:
        break
    if not isinstance(chunk[-1], bytes):
      last = chunk.pop()
      if chunk:
        yield chunk
      if last is not None:
        raise last
      return
    yield chunk
