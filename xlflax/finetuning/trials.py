"""One cell of a grid: an ordinary run, its record, its best checkpoint."""

import dataclasses
import enum
import gc
import json
import logging
import pathlib
import time
from typing import Any

from xlflax import config, errors, paths
from xlflax import trainer as train_lib
from xlflax.evaluation import checkpoint_choice
from xlflax.finetuning import configuration as configuration_lib
from xlflax.finetuning import grid as grid_lib
from xlflax.training import checkpoints, run_directory
from xlflax.training import run as run_lib
from xlflax.training.processes import distributed

CELLS = 'cells'
_LOG = logging.getLogger(__name__)


class Keep(enum.Enum):
  """Which checkpoints of a finished cell are kept."""

  BEST = 'best'  # the one that is evaluated
  ALL = 'all'  # as the configuration's CheckpointOptions say


class Status(enum.Enum):
  """How a cell ended."""

  FINISHED = 'finished'
  DIVERGED = 'diverged'  # its loss was not finite; not tried again
  FAILED = 'failed'  # anything else; tried again by the next call
  STOPPED = 'stopped'  # a signal ended it; continued by the next call


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellResult:
  """What a cell gave.

  Attributes:
    cell: which one.
    directory: of its run.
    status: how it ended.
    config: hash of its configuration.
    message: what went wrong, if anything.
    step: of its checkpoint: the best on the dev set, or the last.
    value: the metric that is selected by, at that step.
    metrics: all that training evaluated at that step.
    seconds: that training took, all calls together.
  """

  cell: grid_lib.Cell
  directory: pathlib.Path
  status: Status
  config: str
  message: str = ''
  step: int | None = None
  value: float | None = None
  metrics: dict[str, float] = dataclasses.field(default_factory=dict)
  seconds: float = 0.0

  @property
  def is_final(self) -> bool:
    return self.status in (Status.FINISHED, Status.DIVERGED)

  def to_json(self) -> dict[str, Any]:
    """Plain JSON values."""
    return dataclasses.asdict(self) | {
      'cell': self.cell.name,
      'macros': dict(self.cell.values),
      'directory': self.directory.name,
      'status': self.status.value,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellRunner:
  """Runs cells, one after the other, in folders of one directory.

  Attributes:
    output: the grid's directory; cells lie in its folder `cells`.
    configuration: of training; each cell adds its bindings and MODEL_DIR.
    select: metric of the dev set that says which checkpoint is best, such as
      'classification/accuracy/en'; None: the last checkpoint.
    keep: which checkpoints stay.
    other_config: what to do where a cell's folder holds another run.
  """

  output: pathlib.Path
  configuration: configuration_lib.Configuration
  select: str | None = None
  keep: Keep = Keep.BEST
  other_config: run_directory.OtherConfig = run_directory.OtherConfig.REFUSE

  def directory(self, cell: grid_lib.Cell) -> pathlib.Path:
    """Of the cell's run."""
    return self.output / CELLS / cell.name

  def parse(self, cell: grid_lib.Cell) -> str:
    """Makes the cell's configuration Gin's; returns its hash."""
    return self.configuration.parse(
      (*cell.bindings, config.quoted('MODEL_DIR', str(self.directory(cell))))
    )

  def run(self, cell: grid_lib.Cell) -> CellResult:
    """Trains a cell to its end, unless that has been done.

    Raises:
      RunDirectoryError: the cell's folder is of another configuration.
    """
    name = self.parse(cell)
    known = self.record(cell)
    if (
      known is not None
      and known.config != name
      and (self.other_config is run_directory.OtherConfig.REFUSE)
    ):
      raise errors.RunDirectoryError(
        "The folder holds another configuration's cell",
        got=str(known.directory),
        where='--output',
        fix='give another --output, or continue the cell with the new '
        'settings by --other_config=accept',
      )
    if known is not None and known.is_final and known.config == name:
      self._prune(known)
      return known
    result = self._train(cell, name, known.seconds if known else 0.0)
    self._write(result)
    self._prune(result)
    return result

  def record(self, cell: grid_lib.Cell) -> CellResult | None:
    """What an earlier call has written of a cell."""
    try:
      text = self._record_file(cell).read_text(encoding='utf-8')
    except FileNotFoundError:
      return None
    fields = json.loads(text)
    del fields['macros']
    return CellResult(
      **(
        fields
        | {
          'cell': cell,
          'directory': self.directory(cell),
          'status': Status(fields['status']),
        }
      )
    )

  def _train(self, cell, name: str, seconds: float) -> CellResult:
    """One call of `train`; what it raises is part of the result."""
    start = time.monotonic()
    given: dict[str, Any] = dict(
      cell=cell, directory=self.directory(cell), config=name
    )
    try:
      outcome = config.call(
        train_lib.Trainer, other_config=self.other_config
      ).train(gin_config=config.operative)
      given |= {'status': Status.STOPPED, 'message': 'stopped by a signal'}
      if outcome['finished']:
        given |= self._best(cell) | {'status': Status.FINISHED, 'message': ''}
    except errors.TrainingError as error:
      given |= {'status': Status.DIVERGED, 'message': str(error)}
    except errors.XlflaxError as error:
      given |= {'status': Status.FAILED, 'message': str(error)}
    except Exception as error:
      _LOG.exception('Cell %s failed.', cell.name)
      given |= {
        'status': Status.FAILED,
        'message': f'{type(error).__name__}: {error}',
      }
    gc.collect()  # parameters and programs of the cell
    return CellResult(
      **given, seconds=round(seconds + time.monotonic() - start, 1)
    )

  def _best(self, cell) -> dict[str, Any]:
    """Step, value and metrics of the checkpoint that counts."""
    run = run_lib.open_run(self.directory(cell))
    if self.select is None:
      step = checkpoint_choice.choose(run, 'last')[0]
    else:
      step = checkpoint_choice.choose(run, 'best', best_metric=self.select)[0]
    metrics = checkpoint_choice.evaluations(run).get(step, {})
    return {
      'step': step,
      'metrics': metrics,
      'value': metrics[self.select] if self.select else None,
    }

  def _record_file(self, cell) -> pathlib.Path:
    return self.output / CELLS / f'{cell.name}.json'

  def _write(self, result: CellResult) -> None:
    if distributed.is_lead():
      run_directory.write_atomically(
        self._record_file(result.cell),
        json.dumps(result.to_json(), indent=2, ensure_ascii=False) + '\n',
      )

  def _prune(self, result: CellResult) -> None:
    """Deletes the checkpoints that nothing will read."""
    if (
      self.keep is Keep.ALL
      or result.status is not Status.FINISHED
      or not distributed.is_lead()
    ):
      return
    for step in checkpoints.finished_steps(result.directory):
      if step != result.step:
        paths.remove(checkpoints.path_of(result.directory, step))
