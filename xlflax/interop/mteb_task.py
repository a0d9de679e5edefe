"""Evaluation of checkpoints on tasks and benchmarks of the package `mteb`.

`mteb` loads the data, computes the scores and defines the tasks. The results
are stored like those of all evaluation tasks.

Source: Enevoldsen et al. (2025), "MMTEB: Massive Multilingual Text Embedding
Benchmark".
"""

import collections
import dataclasses
import importlib.util
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlflax.data.corpus import language_codes
from xlflax.evaluation import eval_task, hidden_states, sentence_embedding
from xlflax.evaluation.metrics.metric import Better, Metric, Unit
from xlflax.evaluation.tasks import head_task, sentence_task
from xlflax.interop import mteb_encoder
from xlflax.utils import errors, name_suggestions, validation

PREFIX = 'mteb.'  # Prefix of the names of evaluation tasks.
MAIN_SCORE = 'main_score'
# Commas that are not in parentheses, as in "MTEB(eng, v2),STS22.v2".
_SEPARATOR = re.compile(r',\s*(?![^()]*\))')


@validation.validate_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class MtebTask(sentence_task.SentenceTask):
  """Task of the package `mteb`, scored by `mteb` itself.

  `select_tasks` creates the arguments of a task. The metric
  `main_score/<part>` is the main score that the authors of the task chose, such
  as `cosine_spearman`. A part is a subset of the data set, which is usually a
  language, preceded by the split if there are several splits. The mean over
  parts is the score of the task in `mteb`. The table `scores` contains all
  scores, and the file `<task>.json` has the format of `mteb`'s result files.

  Attributes:
    task: Name of the task in `mteb`, such as 'STS22.v2'.
    splits: Names of the splits to evaluate, such as 'test'.
    subsets: Subsets of the data set to evaluate. If empty, all subsets are
      evaluated.
    dataset: Path of the data set on the Hugging Face Hub.
    revision: Revision of the data set.
    task_type: Type of the task in `mteb`, such as 'STS'.
    score_name: Name of the main score in `mteb`, such as 'cosine_spearman'.
    default_language: Language code for texts in languages that the vocabulary
      does not contain. It is read only if the inputs of the model depend on the
      language.
  """

  METRICS = (
    Metric(
      MAIN_SCORE,
      Better.HIGHER,
      title='main score of mteb',
      unit=Unit.FRACTION,
      description='Score that mteb reports as the main score of the task.',
    ),
  )
  task: str
  splits: tuple[str, ...]
  subsets: tuple[str, ...] = ()
  dataset: str = ''
  revision: str = ''
  task_type: str = ''
  score_name: str = ''
  default_language: str | None = None

  @property
  def split(self) -> str:
    """Names of the evaluated splits, joined by plus signs."""
    return '+'.join(self.splits)

  def evaluate(self, eval_model: eval_task.EvalModel) -> eval_task.EvalResult:
    """Evaluates a model with `mteb`."""
    mteb = import_mteb()
    notes: list[str] = [f'scored by mteb {mteb.__version__}']
    encoder = _make_encoder(self, eval_model, notes)
    task = _find_task(self.task)
    task.filter_eval_splits(list(self.splits))
    if self.subsets:
      task.filter_languages(None, hf_subsets=list(self.subsets))
    try:
      model_result = mteb.evaluate(
        encoder,
        task,
        cache=None,
        co2_tracker=False,
        overwrite_strategy='always',
        encode_kwargs={'batch_size': eval_model.batch_size},
        show_progress_bar=False,
      )
    except (ConnectionError, FileNotFoundError) as error:
      raise self._loading_error(str(error)) from error
    if not model_result.task_results:  # A data set that is not public.
      raise self._loading_error(
        '; '.join(
          exception.exception for exception in model_result.exceptions or ()
        )
      )
    (task_result,) = model_result.task_results
    result = eval_task.EvalResult(
      metrics=self._part_scores(task_result),
      tables={'scores': list(_score_rows(task_result))},
      files={f'{self.task}.json': _result_file(task_result)},
      notes=tuple(dict.fromkeys(notes)),
    )
    result.metrics.update(head_task.mean_metrics(result.metrics))
    return result

  def _loading_error(self, reason: str) -> errors.CorpusError:
    """Returns the error for a data set that cannot be loaded."""
    return errors.CorpusError(
      f'The data set {self.dataset} of the mteb task {self.task} cannot be '
      'loaded',
      got=reason,
      fix='Check the connection to the Hugging Face Hub and the access to '
      'the data set. Without a connection, copy a cache that contains '
      'the data set to HF_HOME.',
    )

  def _part_scores(self, task_result: Any) -> dict[str, float]:
    """Returns the main score of each split and subset."""
    scores = {}
    for split, subset_scores in task_result.scores.items():
      for values in subset_scores:
        part = values['hf_subset']
        if len(self.splits) > 1:
          part = f'{split}.{part}'
        scores[f'{MAIN_SCORE}/{part}'] = float(values[MAIN_SCORE])
    return scores


class _TextEncoder:
  """Text encoder with a task's settings, for `mteb_encoder.MtebEncoder`."""

  def __init__(
    self, task: MtebTask, eval_model: eval_task.EvalModel, notes: list[str]
  ):
    self.sentence = task.encoding(eval_model, notes)
    self._task, self._eval_model, self._notes = task, eval_model, notes
    if self.sentence.centering is not sentence_embedding.Centering.NONE:
      notes.append('vectors are not centered, because mteb encodes batches')

  def encode(
    self,
    texts: Sequence[str],
    *,
    languages: str | None = None,
    prompt: str | None = None,
    **options: Any,
  ) -> np.ndarray:
    """Computes the embeddings of N texts, of shape [N, D].

    Args:
      texts: N texts.
      languages: Language code of all texts, or None if the inputs of the model
        do not depend on the language.
      prompt: Text that is prepended to each text. If None, the default prompt
        is used.
      **options: Options of `Run.encode`, which the task determines instead.

    Raises:
      ConfigError: If the model requires a language and `languages` is None.
    """
    del options
    language_id = 0
    if languages is not None:
      language_id = self._task.language_id(
        self._eval_model, languages, self._notes
      )
    elif reads_languages(self._eval_model):
      raise errors.ConfigError(
        'The vocabulary of the run does not contain the language of the '
        f'texts in the mteb task {self._task.task}',
        expected=', '.join(self._eval_model.vocabulary.spec.languages),
        where=errors.field_location(self._task, 'default_language'),
        fix='Set --gin.mteb_task.MtebTask.default_language to a language of '
        'the vocabulary.',
      )
    vectors = hidden_states.sentence_vectors(
      self._eval_model,
      texts,
      [language_id] * len(texts),
      self.sentence,
      prompt=self.sentence.prompt() if prompt is None else prompt,
    )
    if vectors.truncated:
      self._notes.append('some texts were truncated')
    return vectors.vectors


def _make_encoder(
  task: MtebTask, eval_model: eval_task.EvalModel, notes: list[str]
) -> mteb_encoder.MtebEncoder:
  """Returns the model as an encoder for `mteb`."""
  languages: tuple[str, ...] = ()
  if reads_languages(eval_model):
    languages = tuple(eval_model.vocabulary.spec.languages)
  return mteb_encoder.MtebEncoder(
    _TextEncoder(task, eval_model, notes),
    languages=languages,
    default_language=task.default_language,
  )


def reads_languages(eval_model: eval_task.EvalModel) -> bool:
  """Returns whether the inputs of a model depend on the text's language."""
  return eval_model.needs_languages or getattr(
    eval_model.model.config, 'use_language_embeddings', False
  )


def check_installed() -> None:
  """Checks that the package `mteb` is installed, without importing it.

  Raises:
    ConfigError: If the package is not installed.
  """
  if importlib.util.find_spec('mteb') is None:
    raise errors.ConfigError(
      'The flag --mteb requires the package mteb, which is not installed',
      fix='Run `pip install ".[mteb]"` in a checkout of xlflax.',
    )


def import_mteb() -> Any:
  """Imports the package `mteb`.

  Raises:
    ConfigError: If the package is not installed.
  """
  check_installed()
  import mteb

  return mteb


def select_tasks(
  names: str, languages: Sequence[str] | None = None
) -> list[dict[str, Any]]:
  """Selects tasks of `mteb` by name and returns arguments of `MtebTask`.

  Args:
    names: Comma-separated names of benchmarks and tasks, such as
      'MTEB(Multilingual, v2)' or 'STS22.v2,BUCC.v2'. Subclasses of `AbsTask`
      that are defined in an imported module are found as well.
    languages: Language codes. Subsets of a data set without any of these
      languages are left out. Tasks of which no subset remains are also left
      out. If None, all languages are evaluated.

  Raises:
    ConfigError: If `mteb` is not installed, if a name is neither a benchmark
      nor a task, if a task contains images, audio or video, or if no task has
      texts in one of the languages.
  """
  import_mteb()
  selected: dict[str, dict[str, Any]] = {}
  for name in filter(None, map(str.strip, _SEPARATOR.split(names))):
    for task in _tasks_of(name):
      modalities = set(task.metadata.modalities)
      if modalities != {'text'}:
        modality_names = ', '.join(sorted(modalities))
        raise errors.ConfigError(
          'Only text tasks of mteb can be evaluated, but the modalities of the '
          f'task {task.metadata.name} in --mteb={name} are {modality_names}'
        )
      arguments = _task_arguments(task, languages)
      if arguments is not None:
        selected[task.metadata.name] = arguments
  if not selected:
    raise errors.ConfigError(
      'None of the mteb tasks selected with --mteb has texts in the '
      'requested languages',
      got=', '.join(languages or ()) or repr(names),
    )
  return list(selected.values())


def _tasks_of(name: str) -> list[Any]:
  """Returns all tasks of a benchmark, or the one task with a given name."""
  mteb = import_mteb()
  benchmarks = {
    alias: benchmark
    for benchmark in mteb.get_benchmarks()
    for alias in (benchmark.name, *(benchmark.aliases or ()))
  }
  if name in benchmarks:
    return list(benchmarks[name].tasks)
  classes = _task_classes()
  if name in classes:
    return [classes[name]()]
  raise errors.ConfigError(
    'The flag --mteb must contain names of mteb tasks or benchmarks. There '
    f'are {len(benchmarks)} benchmarks, such as MTEB(Multilingual, v2), and '
    f'{len(classes)} tasks',
    got=name,
    fix=name_suggestions.did_you_mean(name, [*benchmarks, *classes]),
  )


def _find_task(name: str) -> Any:
  """Returns a new instance of a task, with all splits and subsets."""
  classes = _task_classes()
  if name not in classes:
    raise errors.ConfigError(
      '`task` must be the name of a task in mteb',
      got=name,
      where=errors.field_location(MtebTask, 'task'),
      fix=name_suggestions.did_you_mean(name, classes),
    )
  return classes[name]()


def _task_classes() -> dict[str, type]:
  """Returns all task classes by name, including those of user modules."""
  mteb = import_mteb()
  from mteb.get_tasks import TASK_LIST

  classes: dict[str, type] = {}
  pending = [mteb.AbsTask]
  while pending:
    for task_class in pending.pop().__subclasses__():
      pending.append(task_class)
      metadata = getattr(task_class, 'metadata', None)
      if not task_class.__module__.startswith('mteb.') and metadata is not None:
        classes[metadata.name] = task_class
  # The names of mteb's own tasks take precedence.
  return classes | {
    task_class.metadata.name: task_class for task_class in TASK_LIST
  }


def _task_arguments(
  task: Any, languages: Sequence[str] | None
) -> dict[str, Any] | None:
  """Returns the arguments of `MtebTask`, or None if no subset is selected."""
  metadata = task.metadata
  all_subsets = list(metadata.hf_subsets_to_langscripts)
  subsets = list(task.hf_subsets or all_subsets)
  if languages is not None:
    subsets = [
      subset
      for subset in subsets
      if any(
        language_codes.match_language(code, languages)
        for code in metadata.hf_subsets_to_langscripts[subset]
      )
    ]
    if not subsets:
      return None
  is_complete = set(subsets) == set(all_subsets)
  return {
    'name': PREFIX + metadata.name,
    'task': metadata.name,
    'splits': tuple(task.eval_splits),
    'subsets': () if is_complete else tuple(subsets),
    'dataset': str(metadata.dataset.get('path', '')),
    'revision': str(metadata.dataset.get('revision', '')),
    'task_type': str(metadata.type),
    'score_name': str(metadata.main_score),
  }


def _score_rows(task_result: Any):
  """Yields all scores of a result as rows of a table."""
  for split, subset_scores in task_result.scores.items():
    for values in subset_scores:
      for name, value in values.items():
        if isinstance(value, (int, float)) and name != MAIN_SCORE:
          yield {
            'split': split,
            'part': values['hf_subset'],
            'score': name,
            'value': float(value),
          }


def _result_file(task_result: Any) -> str:
  """Returns a result in the format of `mteb`'s result files."""
  content = task_result.model_dump()
  content['date'] = task_result.date.timestamp() if task_result.date else None
  return json.dumps(content, indent=2) + '\n'


def summarize_scores(
  tasks: Sequence[eval_task.EvalTask],
  results: Mapping[str, eval_task.EvalResult],
) -> dict[str, float]:
  """Returns the means over tasks that `mteb`'s leaderboards report.

  Args:
    tasks: Evaluation tasks. Those that are not tasks of `mteb` are ignored.
    results: Mapping from the name of each task to its result.

  Returns:
    The mean over tasks (`mean_task`), the mean over the means of task types
    (`mean_task_type`), and the mean of each task type. The mapping is empty if
    the score of a task is missing.
  """
  scores_by_type: dict[str, list[float]] = collections.defaultdict(list)
  for task in tasks:
    if not isinstance(task, MtebTask):
      continue
    result = results.get(task.name)
    score = None if result is None else result.metrics.get(f'{MAIN_SCORE}/mean')
    if score is None:
      return {}
    scores_by_type[task.task_type].append(score)
  if not scores_by_type:
    return {}
  type_means = {
    task_type: float(np.mean(scores))
    for task_type, scores in scores_by_type.items()
  }
  all_scores = list(itertools.chain.from_iterable(scores_by_type.values()))
  return {
    'mean_task': float(np.mean(all_scores)),
    'mean_task_type': float(np.mean(list(type_means.values()))),
    **dict(sorted(type_means.items())),
  }
