"""`translate`: text through a run's encoder-decoder, from files and streams."""

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
from xlflax.utils import errors, progress_reporting, validation

Hypothesis = sentence_translator.Hypothesis
TranslationOptions = translation_options.TranslationOptions
Translator = sentence_translator.Translator

# Batches of a file that are sorted by length together.
_SORTED_BATCHES = 16

_LOG = logging.getLogger(__name__)


class Counts(NamedTuple):
  """What was done.

  Attributes:
    lines: lines that were translated, empty ones included.
    empty: lines of nothing but spaces, which stay empty.
    cut: lines that were longer than the model reads.
    resumed: lines that an earlier, interrupted call had translated.
    replaced: Bytes that are not UTF-8 and were read as U+FFFD.
  """

  lines: int = 0
  empty: int = 0
  cut: int = 0
  resumed: int = 0
  replaced: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineTranslator:
  """Lines to lines.

  Attributes:
    translator: of one checkpoint and a pair of languages.
    n_best: hypotheses written for a line. For 1 a line becomes a line; else
      so many lines `number <TAB> score <TAB> text`, the number that of the
      input line, from 1.
    batch_size: lines that are translated at a time.
    identity: what the translations depend on but the text: plain JSON.
  """

  translator: Translator
  n_best: int
  batch_size: int
  identity: dict

  @validation.validate_call
  def translate(self, lines: Iterable[str]) -> list[list[Hypothesis]]:
    """The hypotheses of some lines, the best first."""
    return self.translator.translate(list(lines)).hypotheses

  def stream(self, source: BinaryIO, output: BinaryIO) -> Counts:
    """Translates lines as they come, in order.

    Each call of the model takes the lines that are there, `batch_size` at the
    most: a line that is typed is answered at once.

    Args:
      source: UTF-8 text; a byte that is none is read as U+FFFD.
      output: is flushed after each batch.
    """
    counts = Counts()
    for chunk in _arriving(source, self.batch_size):
      counts = self._write(chunk, output, counts)
    return _warned(counts, self.translator)

  @validation.validate_call
  def file(
    self, source: validation.FilePath, output: validation.FilePath
  ) -> Counts:
    """Translates a file; goes on where an interrupted call stopped.

    The lines that are done are kept in `OUTPUT.partial`, and what they depend
    on in `OUTPUT.partial.json`: with another text, checkpoint or setting the
    file is translated from the start.

    Raises:
      CorpusError: a file cannot be read or written.
    """
    source, output = pathlib.Path(source), pathlib.Path(output)
    partial = output.with_name(output.name + '.partial')
    record = output.with_name(output.name + '.partial.json')
    try:
      with errors.naming_path(partial), source.open('rb') as text:
        done = _resume(partial, record, self._identity(text), self.n_best)
        text.seek(0)
        counts = Counts(lines=done, resumed=done)
        for _ in itertools.islice(text, done):
          pass
        with (
          partial.open('ab') as file,
          progress_reporting.progress_name('translation'),
        ):
          while chunk := list(
            itertools.islice(text, _SORTED_BATCHES * self.batch_size)
          ):
            counts = self._write(chunk, file, counts)
            os.fsync(file.fileno())
            _LOG.info('%d lines are translated.', counts.lines)
      partial.replace(output)
      record.unlink()
    except OSError as error:
      raise errors.CorpusError(
        'A file of text cannot be translated',
        got=error.strerror or str(error),
        where=error.filename or f'{source} into {output}',
      ) from error
    return _warned(counts, self.translator)

  def _identity(self, text: BinaryIO) -> dict:
    digest = hashlib.sha256()
    while part := text.read(1 << 20):
      digest.update(part)
    return {**self.identity, 'text': digest.hexdigest()}

  def _write(
    self, chunk: list[bytes], file: BinaryIO, counts: Counts
  ) -> Counts:
    """Translates some lines, and writes what they become."""
    if not counts.lines:
      chunk = [chunk[0].removeprefix(codecs.BOM_UTF8), *chunk[1:]]
    decoded = [_decode(line) for line in chunk]
    lines = [text.strip() for text, _ in decoded]
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
    )

  def _format(self, number: int, hypotheses: list[Hypothesis]) -> str:
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
    model_dir: the directory of a run of an encoder-decoder.
    source: language that is read.
    target: language that is written.
    step: 'last' or the step of a checkpoint.
    options: of the search; None for a beam of 5.
    batch_size: lines that are translated at a time.
    partitioner: shards parameters and batches; None splits batches over all
      devices.

  Returns:
    A translator of lines, files and streams.

  Raises:
    XlflaxError: the directory is no run, its model is no encoder-decoder, or
      it does not know a language.
  """
  options = options or TranslationOptions()
  run = saved_run.open_run(model_dir)
  sentence_translator.check_model(run.model)
  _warn_of_unseen(run.directory, target)
  (chosen,) = checkpoint_selection.select_checkpoints(run, _asked(step))
  if partitioner is None and jax.device_count() > 1:
    partitioner = partitioning.Partitioner()
  subject = eval_task.Subject(
    model=run.model,
    vocabulary=run.vocabulary,
    partitioner=partitioner,
    params=run.restore_params(chosen, partitioner=partitioner),
    batch_size=batch_size,
    objectives=run.objectives,
  )
  translator = Translator(
    subject, source=source, target=target, options=options
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
      'step': chosen,
      'checkpoint': result_store.checkpoint_identity(run.directory, chosen),
    },
  )


def _asked(step: str | int) -> str | list[int]:
  """The step as `checkpoint_selection.select_checkpoints` takes it."""
  if step == 'last':
    return step
  if isinstance(step, str) and not step.isdigit():
    raise errors.ConfigError(
      'There is no such checkpoint',
      got=repr(step),
      expected="'last' or a step",
      where='open_translator.step',
      fix="take 'last', or one of the steps that the run has",
    )
  return [int(step)]


def _warn_of_unseen(directory: pathlib.Path, target: str) -> None:
  """Logs that the run has never been trained to write a language."""
  trained_languages = data_fingerprint.recorded_languages(directory)
  if trained_languages is not None and target not in trained_languages:
    _LOG.warning(
      'The run has never been trained to translate into %s, but into %s: what '
      'it writes may be of another language, or nonsense.',
      target,
      ', '.join(sorted(trained_languages)),
    )


def _resume(
  partial: pathlib.Path, record: pathlib.Path, identity: dict, n_best: int
) -> int:
  """How many lines are done; makes both files say just that."""
  before = _recorded(record)
  if before != identity or not partial.exists():
    if before is not None:
      _LOG.warning(
        '%s is of another text or with other settings; the file is '
        'translated from the start.',
        partial,
      )
    if before is None and partial.exists() and partial.stat().st_size:
      raise errors.CorpusError(
        'A file lies where the lines that are done would',
        got=str(partial),
        expected='none, or that of an interrupted call, with its .json',
        fix='move it, or give another output',
      )
    partial.write_bytes(b'')
    record.write_text(json.dumps(identity))
    return 0
  done, num_bytes = 0, 0
  with partial.open('rb') as file:
    while lines := list(itertools.islice(file, n_best)):
      if len(lines) < n_best or not lines[-1].endswith(b'\n'):
        break
      done, num_bytes = done + 1, num_bytes + sum(map(len, lines))
  os.truncate(partial, num_bytes)
  _LOG.info('%d lines are translated already.', done)
  return done


def _recorded(record: pathlib.Path) -> Any:
  """What an earlier call said of its text; '' where that is damaged."""
  if not record.exists():
    return None
  try:
    return json.loads(record.read_text(encoding='utf-8'))
  except (ValueError, RecursionError):
    return ''


def _decode(line: bytes) -> tuple[str, int]:
  """Returns a line of UTF-8, and how many bytes of it were replaced."""
  try:
    return line.decode('utf-8'), 0
  except UnicodeDecodeError:
    valid = line.decode('utf-8', 'ignore')
    return line.decode('utf-8', 'replace'), len(line) - len(valid.encode())


def _warned(counts: Counts, translator: Translator) -> Counts:
  if counts.cut:
    _LOG.warning(
      '%d of %d lines were cut to %d tokens.',
      counts.cut,
      counts.lines - counts.resumed,
      translator.max_length,
    )
  if counts.replaced:
    _LOG.warning(
      '%d bytes of the text are not UTF-8 and were read as U+FFFD.',
      counts.replaced,
    )
  return counts


def _arriving(source: BinaryIO, count: int) -> Iterator[list[bytes]]:
  """The lines that are there, at least one and at most `count` at a time.

  A thread reads ahead, so that a line that is typed comes at once and lines
  of a fast source come many at a time.

  Args:
    source: of lines; what reading it raises is raised after the last line.
    count: lines of a chunk at most.
  """
  lines: queue.Queue = queue.Queue(maxsize=4 * count)

  def read():
    try:
      for line in source:
        lines.put(line)
      lines.put(None)
    except Exception as error:  # raised below
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
