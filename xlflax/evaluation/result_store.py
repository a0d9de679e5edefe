"""Storage of evaluation results: `eval/<task>/<split>-<settings>/<step>.json`.

Results in the same folder differ only in the checkpoint. The folder is named
after the split and a hash of the task's settings, its text and the seed.
Validation scores of training and test scores of `xlflax evaluate` therefore
never replace each other, and are never joined in one curve.

Results are stored in the run's directory, or in a separate output directory if
the run is only read. An output directory records in `eval/run.json` the run
that its results belong to, so that the results of two runs are never mixed.
"""

import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xlflax.evaluation import eval_task, sentence_embedding
from xlflax.storage import bucket_access, checksums, paths
from xlflax.training.checkpointing import (
  checkpoint_items,
  checkpoint_reader,
  code_fingerprint,
  config_serialization,
  run_directory,
  saved_run,
)
from xlflax.utils import errors, logs, user_modules, validation

_LOG = logging.getLogger(__name__)

UNTRAINED = 'untrained'
OWNER_FILE = 'run.json'
_FORMAT = 2
# Keys of an identity that all results in a folder have in common.
_SHARED = ('task', 'seed', 'parameters', 'sentence')

Step = validation.NonNegativeInt | str


class ResultStore:
  """Stored evaluation results of a run.

  A result is identified by the task's settings, the text that the task reads,
  the source code of the user's own tasks, the model, the vocabulary, the seed
  and the content of the checkpoint. `read` returns a stored result only if all
  of these are unchanged, so an interrupted evaluation resumes where it stopped.

  Attributes:
    run: Evaluated run.
    directory: Directory that contains `eval/` with the results.
    seed: Random seed for the tasks.
  """

  def __init__(
    self,
    run: saved_run.SavedRun,
    *,
    seed: int,
    output: str | os.PathLike[str] | None = None,
  ):
    """Opens the store without reading or writing results.

    Args:
      run: Evaluated run. It is only read if `output` is a different directory.
      seed: Random seed for the tasks.
      output: Directory in which `eval/` is stored. If None, the run's directory
        is used.

    Raises:
      RunDirectoryError: If `output` contains the results of a different run.
    """
    self.run = run
    self.seed = seed
    self.directory = _store_directory(run, output)
    self._task_identities: dict[str, dict[str, Any]] = {}
    self._checkpoint_identities: dict[Step, str] = {}

  def read(
    self, task: eval_task.EvalTask, step: Step
  ) -> eval_task.EvalResult | None:
    """Returns a task's complete result for a checkpoint, or None.

    The result is None if the task reads data that cannot be identified
    (`eval_task.find_unidentified_data`).
    """
    result = read_finished(self.directory, self._identity(task, step), step)
    data = result and eval_task.find_unidentified_data(task)
    if not data:
      return result
    _LOG.info(
      '%s: The stored result of step %s is not reused, because xlflax cannot '
      'detect whether the data in %s.%s have changed. To reuse results, define '
      'a method `fingerprint` in the class of the source that returns a hash '
      'of the text, or declare the field of a path as '
      '`class_registry.path_field(content_hash.hash_paths)`.',
      task.name,
      step,
      type(task).__name__,
      data,
    )
    return None

  def write(
    self, task: eval_task.EvalTask, step: Step, result: eval_task.EvalResult
  ) -> None:
    """Stores a task's result for a checkpoint."""
    _record_owner(self.directory, self.run)
    write_result(
      self.directory, result, step=step, identity=self._identity(task, step)
    )

  def read_all(self) -> 'dict[Group, dict[Step, eval_task.EvalResult]]':
    """Returns all stored results, including those from earlier calls."""
    return find_results(self.directory)

  def group(self, task: eval_task.EvalTask) -> 'Group':
    """Returns the group that contains a task's results at all checkpoints."""
    return result_group(self._task_identity(task))

  def folder(self, group: 'Group') -> pathlib.Path:
    """Returns the folder that stores the results of a group."""
    return self.directory / run_directory.EVALUATION / group.folder

  def _identity(self, task: eval_task.EvalTask, step: Step) -> dict[str, Any]:
    if step not in self._checkpoint_identities:
      self._checkpoint_identities[step] = checkpoint_identity(
        self.run.directory, step
      )
    checkpoint = self._checkpoint_identities[step]
    return self._task_identity(task) | {'checkpoint': checkpoint}

  def _task_identity(self, task: eval_task.EvalTask) -> dict[str, Any]:
    """Returns the identity of a task's results, without the checkpoint.

    The first call for a task reads the task's text.
    """
    if task.name not in self._task_identities:
      self._task_identities[task.name] = result_identity(
        task,
        model=self.run.model,
        vocabulary_hash=self.run.vocabulary.hash,
        seed=self.seed,
        sentence=sentence_embedding.read_sentence_encoding(self.run.directory),
      )
    return self._task_identities[task.name]


class Group(NamedTuple):
  """Key for comparable results: task name, split and settings.

  The results of a group can be plotted as one curve over training steps.

  Attributes:
    task: Name of the evaluation task.
    split: Data split, such as 'test'.
    settings: Hash of the task's settings, its text and the random seed.
  """

  task: str
  split: str
  settings: str

  @property
  def folder(self) -> str:
    """Path to the folder with the group's results, relative to `eval/`."""
    return f'{self.task}/{self.split}-{self.settings}'


def name_groups(
  results: Mapping[Group, Iterable[eval_task.EvalResult]],
  *,
  has_split: bool = True,
) -> dict[Group, str]:
  """Returns a distinct name for each result group.

  A group is named after its task. If groups have the same task, their names
  contain the properties in which they differ, as in 'retrieval (test split,
  flores)': the split, and the test data. If the test data is not recorded or
  does not differ, the name contains the hash of the settings instead.

  Args:
    results: Mapping from each group to its evaluation results.
    has_split: Whether group names contain the split. If True, they contain it
      if groups of the same task have different splits. If False, groups with
      different splits can have the same name.
  """
  splits: dict[str, set[str]] = {}
  groups_by_split: dict[tuple[str, str], list[Group]] = {}
  for group in results:
    splits.setdefault(group.task, set()).add(group.split)
    groups_by_split.setdefault((group.task, group.split), []).append(group)
  test_data = {
    group: next((r.test_data for r in group_results if r.test_data), '')
    for group, group_results in results.items()
  }
  names = {}
  for group in results:
    details = []
    if has_split and len(splits[group.task]) > 1:
      details.append(f'{group.split} split')
    similar_groups = groups_by_split[group.task, group.split]
    if len(similar_groups) > 1:
      distinct = {test_data[similar] for similar in similar_groups} - {''}
      is_distinct = len(distinct) == len(similar_groups)
      details.append(
        test_data[group] if is_distinct else f'settings {group.settings}'
      )
    details_text = f' ({", ".join(details)})' if details else ''
    names[group] = f'{group.task}{details_text}'
  return names


def result_identity(
  task: eval_task.EvalTask,
  *,
  model: Any,
  vocabulary_hash: str,
  seed: int,
  parameters: str = 'default',
  sentence: sentence_embedding.SentenceEmbedding | None = None,
) -> dict[str, Any]:
  """Returns JSON values that identify a result but not its checkpoint.

  Args:
    task: Evaluation task. Its settings and the text that it reads are part of
      the identity. If its class is not part of xlflax, the source code of the
      class and of the user's modules that it imports is also part of the
      identity.
    model: Linen module. If its class is not part of xlflax, the source code of
      the class is part of the identity.
    vocabulary_hash: Hash of the run's vocabulary.
    seed: Random seed for the evaluation.
    parameters: Parameters to read from a checkpoint: 'default' for the
      averaged weights if EMA is enabled, or 'not averaged'.
    sentence: Definition of sentence vectors that is stored with the run, if
      any.
  """
  identity = {
    'format': _FORMAT,
    'split': task.split,
    'task': eval_task.task_settings(task),
    'model': config_serialization.to_json_config(model),
    'vocabulary': vocabulary_hash,
    'seed': seed,
    'parameters': parameters,
  }
  if sentence:
    identity['sentence'] = sentence.describe()
  code = _digest_task_code(task)
  if code:
    identity['code'] = code
  model_code = code_fingerprint.describe_model_code(model)
  if model_code:
    identity['model_code'] = model_code
  return identity


def _digest_task_code(task: eval_task.EvalTask) -> str | None:
  """Returns a hash of the user's source code that computes a task's results.

  The code consists of the task's class and the classes of its settings, each
  with the user's modules that it imports. Sources with a method `fingerprint`
  are omitted, because results are identified by their text.
  """
  task_class: type = type(task)
  codes = [user_modules.digest_code(task_class)]
  for field in dataclasses.fields(task):
    value = getattr(task, field.name)
    value_class: type = type(value)
    if user_modules.is_user_class(value_class):
      if not hasattr(value, 'fingerprint'):
        codes.append(user_modules.digest_code(value_class))
  distinct = list(dict.fromkeys(code for code in codes if code))
  if len(distinct) < 2:
    return distinct[0] if distinct else None
  return hashlib.sha256(''.join(distinct).encode('ascii')).hexdigest()[:16]


def result_group(identity: Mapping[str, Any]) -> Group:
  """Returns the group that contains a result and all comparable results."""
  shared = {key: identity[key] for key in _SHARED if key in identity}
  return Group(
    identity['task']['name'],
    re.sub(r'[^\w.]+', '_', identity['split']),
    eval_task.settings_hash(shared)[:8],
  )


def result_path(
  directory: pathlib.Path, identity: Mapping[str, Any], step: Step
) -> pathlib.Path:
  """Returns the path to a result file.

  Args:
    directory: Run directory.
    identity: JSON values that identify the result; see `result_identity`.
    step: Step of the evaluated checkpoint.
  """
  folder = directory / run_directory.EVALUATION / result_group(identity).folder
  return folder / f'{step}.json'


def checkpoint_identity(directory: pathlib.Path, step: Step) -> str:
  """Returns a hash that identifies a checkpoint.

  The hash depends on the content of the checkpoint and does not change when the
  checkpoint is copied. It is empty for the untrained model.
  """
  if step == UNTRAINED:
    return ''
  return checkpoint_items.checkpoint_identity(
    directory / checkpoint_reader.DIRECTORY / str(step)
  )


def write_result(
  directory: pathlib.Path,
  result: eval_task.EvalResult,
  *,
  step: Step,
  identity: Mapping[str, Any],
) -> pathlib.Path:
  """Writes a result, its settings and its files to a run directory.

  Args:
    directory: Run directory.
    result: Result of evaluating the task. Its files are written to
      `<step>/<name>`.
    step: Step of the evaluated checkpoint.
    identity: JSON values that identify the result and determine its folder (see
      `result_identity`).

  Returns:
    Path to the JSON file. It is written last, so every existing result is
    complete.
  """
  file = result_path(directory, identity, step)
  for name, text in result.files.items():
    paths.write_atomically(file.with_suffix('') / name, text)
  record = {
    'run': run_directory.run_id(directory),
    'step': step,
    'settings_hash': eval_task.settings_hash(identity),
    'settings': identity,
    'files': {
      name: checksums.digest_content(text)
      for name, text in result.files.items()
    },
  } | result.to_json()
  paths.write_atomically(
    file,
    json.dumps(checksums.add_digest(record), indent=2, ensure_ascii=False)
    + '\n',
  )
  return file


def read_result(
  file: pathlib.Path, *, directory: pathlib.Path | None = None
) -> eval_task.EvalResult | None:
  """Reads a stored result. Returns None if the file is unusable.

  The result may have any task settings.

  Args:
    file: JSON file that contains the result. The result is unusable if the file
      is missing, is damaged or belongs to another run.
    directory: Run directory. If None, the directory that contains `eval`.
  """
  record = _load(file, directory or file.parents[3])
  return None if record is None else _restore_result(record)


def describe_code_versions(files: Mapping[str, pathlib.Path]) -> str:
  """Describes which results were computed by different versions of a task.

  Only tasks that are not part of xlflax record their source code.

  Args:
    files: Paths of the result files by display name, such as 'step 20'.

  Returns:
    A sentence that groups the names by version of the code, or an empty text if
    the code is the same.
  """
  names_by_code: dict[str, list[str]] = {}
  for name, file in files.items():
    try:
      settings = json.loads(file.read_text(encoding='utf-8'))['settings']
      code = settings.get('code', '')
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
      continue
    names_by_code.setdefault(code, []).append(name)
  if len(names_by_code) < 2:
    return ''
  versions = '; '.join(', '.join(names) for names in names_by_code.values())
  return (
    'The scores were computed with different versions of the source code of '
    f'the task and may not be comparable. Results by version: {versions}. '
    'Evaluate these checkpoints again with the current code.'
  )


def check_files(folder: pathlib.Path) -> None:
  """Checks that prediction files have not changed since they were written.

  Args:
    folder: Folder with the predictions, next to the result file.

  Raises:
    RunDirectoryError: If a file is missing or has changed.
  """
  file = folder.with_name(f'{folder.name}.json')
  record = _load(file, file.parents[3])
  problems = checksums.find_changes(
    folder, record.get('files', {}) if record else {}
  )
  if problems:
    raise errors.RunDirectoryError(
      'The prediction files have changed since they were written',
      got='; '.join(problems.values()),
      where=str(folder),
      fix=f'Delete {folder.name}.json next to the folder and evaluate again.',
    )


def list_predictions(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns the prediction files of a result.

  Files with per-example statistics are omitted.

  Args:
    folder: Folder with the predictions, next to the result file.
  """
  return [
    file
    for file in paths.list_directory(folder)
    if file.suffix != eval_task.STATISTICS
  ]


def read_finished(
  directory: pathlib.Path, identity: Mapping[str, Any], step: Step
) -> eval_task.EvalResult | None:
  """Reads a stored result. Returns None if it is missing or incomplete.

  Results with failures are not returned.
  """
  record = _load(result_path(directory, identity, step), directory)
  if record is None:
    return None
  if record.get('settings_hash') != eval_task.settings_hash(identity):
    return None
  result = _restore_result(record)
  return None if result.failures else result


def _restore_result(record: dict[str, Any]) -> eval_task.EvalResult:
  """Restores a result, and makes the declarations of its metrics known."""
  result = eval_task.EvalResult.from_json(record)
  eval_task.recall_metrics(result.declarations)
  return result


def find_results(
  directory: pathlib.Path, task: str | None = None
) -> dict[Group, dict[Step, eval_task.EvalResult]]:
  """Returns all results of a run, by result group and training step.

  In each group, the untrained model is first.

  Args:
    directory: Run directory.
    task: Name of a task. If None, the results of all tasks are returned.
  """
  results: dict[Group, dict[Step, eval_task.EvalResult]] = {}
  for task_folder in paths.list_directory(directory / run_directory.EVALUATION):
    if not task_folder.is_dir() or task not in (None, task_folder.name):
      continue
    for folder in paths.list_directory(task_folder):
      if not folder.is_dir():
        continue
      split, _, settings = folder.name.rpartition('-')
      results_by_step = _read_folder(folder)
      if results_by_step:
        results[Group(task_folder.name, split, settings)] = results_by_step
  return results


def step_sort_key(step: Step) -> int:
  """Returns a sort key that places the untrained model before step 0."""
  return step if isinstance(step, int) else -1


def _read_folder(folder: pathlib.Path) -> dict[Step, eval_task.EvalResult]:
  """Returns the usable results of a folder by step."""
  results: dict[Step, eval_task.EvalResult] = {}
  for file in folder.glob('*.json'):
    result = read_result(file)
    if result is not None:
      results[int(file.stem) if file.stem.isdigit() else file.stem] = result
  return {step: results[step] for step in sorted(results, key=step_sort_key)}


def _load(file: pathlib.Path, directory: pathlib.Path) -> dict[str, Any] | None:
  """Returns the file's JSON if it is a result of this run, else None."""
  if not file.exists():
    return None
  try:
    record = checksums.read_json(
      file,
      error=errors.RunDirectoryError,
      message='The file with an evaluation result is damaged and is ignored',
      has_digest=True,
      fix='Run the evaluation again.',
    )
  except errors.RunDirectoryError as error:
    logging.warning('%s', error, extra=logs.ONCE)
    return None
  try:
    if str(record.get('step')) != file.stem:
      raise ValueError(
        f'The file must contain the result of step {file.stem}, but it '
        f'contains the result of step {record.get("step")}.'
      )
    eval_task.EvalResult.from_json(record)
  except (TypeError, ValueError, LookupError, AttributeError) as error:
    logging.warning(
      'Ignoring %s: the content is invalid or does not match the file name '
      '(%s).',
      file,
      error,
      extra=logs.ONCE,
    )
    return None
  expected_run, run = _run_id(directory), record.get('run', '')
  if expected_run and run and expected_run != run:
    logging.warning(
      'Ignoring %s: it is a result of run %s, not of run %s.',
      file,
      run,
      expected_run,
      extra=logs.ONCE,
    )
    return None
  return record


def _run_id(directory: pathlib.Path) -> str:
  """Returns the identifier of the run, or '' if it cannot be read."""
  try:
    return run_directory.run_id(directory)
  except errors.RunDirectoryError:
    return ''


def check_writable(
  model_dir: str | os.PathLike[str], output: str | os.PathLike[str] | None
) -> None:
  """Checks that the directory for the results is writable.

  Args:
    model_dir: Run directory, which need not exist yet.
    output: Output directory. If None, the run directory is used.

  Raises:
    RunDirectoryError: If the directory is not writable.
  """
  if output is not None:
    bucket_access.check_usable(paths.to_path(output))
    return
  run = paths.to_path(model_dir)
  try:
    bucket_access.check_usable(run)
  except errors.RunDirectoryError as error:
    if error.status is not errors.ExitStatus.MISTAKE:
      raise
    raise errors.RunDirectoryError(
      'Evaluation results cannot be stored, because the run directory is not '
      'writable',
      got=error.got,
      where=str(run),
      fix='Pass --output=DIR (in Python, output=DIR) to store results, tables '
      'and predictions in a different directory.',
    ) from error


def run_of(folder: pathlib.Path) -> pathlib.Path:
  """Returns the model directory of the run that was evaluated."""
  owner = _read_owner(folder)
  return paths.to_path(owner['run']) if owner else folder


def _store_directory(
  run: saved_run.SavedRun, output: str | os.PathLike[str] | None
) -> pathlib.Path:
  """Returns the directory for the results of a run.

  Raises:
    RunDirectoryError: If the directory contains the results of a different run.
  """
  if output is None or _is_same(paths.to_path(output), run.directory):
    return run.directory
  directory = paths.to_absolute_path(output)
  owner, run_id = _read_owner(directory), run_directory.run_id(run.directory)
  if (directory / run_directory.MODEL).exists():
    got = 'the directory of a different run'
  elif owner and (owner['id'] or run_id) and owner['id'] != run_id:
    got = f'results of {owner["run"]}'
  else:
    return directory
  raise errors.RunDirectoryError(
    'The output directory belongs to a different run. It must be new, or '
    f'contain results of {run.directory}',
    got=got,
    where=str(directory),
    fix='Pass a different --output.',
  )


def _record_owner(directory: pathlib.Path, run: saved_run.SavedRun) -> None:
  """Records which run produced the results in an output directory.

  Nothing is written if the results are stored in the run's own directory.
  """
  if _is_same(directory, run.directory):
    return
  owner = {
    'run': os.fspath(paths.to_absolute_path(run.directory)),
    'id': run_directory.run_id(run.directory),
  }
  paths.write_atomically(
    directory / run_directory.EVALUATION / OWNER_FILE,
    json.dumps(checksums.add_digest(owner), indent=2) + '\n',
  )


def _read_owner(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the record that `_record_owner` wrote, or {} if none exists."""
  path = directory / run_directory.EVALUATION / OWNER_FILE
  if not path.exists():
    return {}
  owner = checksums.read_json(
    path,
    error=errors.RunDirectoryError,
    message='The file that identifies the run of these results is damaged',
    has_digest=True,
    fix='Pass a different --output.',
  )
  if not all(isinstance(owner.get(key), str) for key in ('run', 'id')):
    raise errors.RunDirectoryError(
      'The file that identifies the run of these results must contain the '
      'string fields `run` and `id`',
      where=str(path),
    )
  return owner


def _is_same(first: pathlib.Path, second: pathlib.Path) -> bool:
  """Returns whether two paths denote the same directory."""
  if paths.is_bucket(first) or paths.is_bucket(second):
    return os.fspath(first).rstrip('/') == os.fspath(second).rstrip('/')
  return first.resolve() == second.resolve()
