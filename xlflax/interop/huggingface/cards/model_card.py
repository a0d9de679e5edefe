"""Model card (README.md) for an exported Hugging Face folder.

The metadata follow the Hub's model cards: languages, license, base model and
tags. The description of the training is generated from the run's files.
"""

import collections
import importlib.metadata
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.evaluation import (
  eval_task,
  result_store,
  result_tables,
  sentence_embedding,
)
from xlflax.interop import mteb_task
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.interop.huggingface.cards import card_metadata
from xlflax.interop.huggingface.huggingface_export import Export
from xlflax.objectives.finetuning import reranking
from xlflax.training.checkpointing import config_serialization, run_directory
from xlflax.training.initialization import averaging
from xlflax.utils import errors, plurals

# The languages of a vocabulary with more languages are not listed, because the
# model may not have been trained on all of them.
_MAX_LANGUAGES = 30
_PIPELINES = {
  Task.STATES: 'feature-extraction',
  Task.MASKED_LM: 'fill-mask',
  Task.PRETRAINING: 'fill-mask',
  Task.SEQUENCE_CLASSIFICATION: 'text-classification',
  Task.TOKEN_CLASSIFICATION: 'token-classification',
  Task.QUESTION_ANSWERING: 'question-answering',
  Task.SEQ2SEQ: 'translation',
}


def format_model_card(
  export: Export, *, name: str, license: str | None = None
) -> str:
  """Returns the text of an exported folder's model card.

  Args:
    export: Export that has been checked by `huggingface_export.check_export`.
    name: Name of the model.
    license: License identifier, such as 'mit'. If None, the recorded license of
      the model from which the run was initialized is used.
  """
  origin = _read(export.run.directory, run_directory.ORIGIN)
  trainer = run_directory.read_trainer(export.run.directory)
  settings = trainer.get(config_serialization.FIELDS, {})
  license = license or origin.get('card', {}).get('license')
  is_average = (export.run.directory / averaging.RECORD).exists()
  step = f'step {export.step}'
  if is_average:
    step = f'average of checkpoints up to {step}'
  version = importlib.metadata.version('xlflax')
  results, unknown_languages = _find_results(
    export, 'text-ranking' if _is_reranker(export) else _PIPELINES[export.task]
  )
  return '\n'.join(
    [
      '---',
      *_metadata(export, origin, license, settings),
      *_model_index(results, name),
      '---',
      '',
      f'# {name}',
      '',
      f'{export.options["architectures"][0]}, {step}, exported by xlflax '
      f'{version}.',
      '',
      *_sentence_embeddings(export.sentence),
      *_training(export.run.directory, settings, origin),
      *_evaluation(results, unknown_languages),
      *_notice(settings.get('corpus')),
      *_excluded_parameters(export.left_out),
    ]
  )


def _metadata(export: Export, origin, license, settings) -> list[str]:
  """Returns the metadata of the model card as lines of YAML."""
  vocabulary_languages = export.run.vocabulary.spec.languages
  languages = origin.get('card', {}).get('language') or (
    vocabulary_languages if len(vocabulary_languages) <= _MAX_LANGUAGES else ()
  )
  library, pipeline = 'transformers', _PIPELINES[export.task]
  if export.sentence:
    library, pipeline = 'sentence-transformers', 'sentence-similarity'
  tags = ['xlflax', *(fields['name'] for fields in _objectives(settings))]
  if _is_reranker(export):
    library, pipeline = 'sentence-transformers', 'text-ranking'
    tags += ['cross-encoder', 'reranker']
  lines = [f'library_name: {library}']
  for key, codes in card_metadata.hub_languages(languages).items():
    lines += _list(key, codes)
  if license:
    if license in card_metadata.LICENSES:
      lines.append(f'license: {license}')
    else:
      lines += ['license: other', f'license_name: {json.dumps(license)}']
  if origin.get('hub'):
    lines.append(f'base_model: {json.dumps(origin["hub"]["repository"])}')
  lines.append(f'pipeline_tag: {pipeline}')
  return lines + _list('tags', tags)


def _is_reranker(export: Export) -> bool:
  """Returns whether the exported head was trained to score documents."""
  objective = export.run.objectives.get(export.task.value)
  return isinstance(objective, reranking.Reranking)


def _model_index(results: Sequence[Mapping[str, Any]], name: str) -> list[str]:
  """Returns the `model-index` with the results of `_find_results`."""
  if not results:
    return []
  return ['model-index: ' + json.dumps([{'name': name, 'results': results}])]


def _find_results(
  export: Export, pipeline: str
) -> tuple[list[dict[str, Any]], list[str]]:
  """Returns the evaluation results of this checkpoint for a `model-index`.

  Args:
    export: Export whose checkpoint was evaluated.
    pipeline: Task type on the Hub, such as 'fill-mask', for results that are
      not based on pooled hidden states.

  Returns:
    The results, and the languages and pairs whose scores are omitted because
    they are not in the vocabulary.
  """
  results = []
  unknown_languages: set[str] = set()
  group_results = {
    group: result_by_step[export.step]
    for group, result_by_step in result_store.find_results(
      export.run.directory
    ).items()
    if export.step in result_by_step
    and _matches_export(export, _read_settings(export, group))
  }
  group_results = _drop_limited(group_results)
  num_groups = collections.Counter(
    (group.task, group.split) for group in group_results
  )
  for group, result in group_results.items():
    scores = {
      name: value
      for name, value in result.metrics.items()
      if name.partition('/')[0] in result.score_metrics
    }
    # The main score of a task of `mteb` is a mean over all of its subsets.
    if not group.task.startswith(mteb_task.PREFIX):
      scores, unknown_parts = _drop_unknown_languages(
        scores, export.run.vocabulary.spec.languages
      )
      unknown_languages |= unknown_parts
    metrics = [
      {'type': name.partition('/')[0], 'name': name, 'value': value}
      for name, value in scores.items()
      if math.isfinite(value)
    ]
    settings = _read_settings(export, group)
    if metrics:
      is_unique = num_groups[group.task, group.split] == 1
      dataset, score_name = _describe_dataset(
        export, group, result, has_test_data=not is_unique
      )
      if score_name is not None:
        metrics = [_rename_metric(metric, score_name) for metric in metrics]
      task_type = pipeline
      if pooling := _read_pooling(settings):
        task_type = 'sentence-similarity'
        metrics = [metric | {'args': pooling} for metric in metrics]
      results.append(
        {'task': {'type': task_type}, 'dataset': dataset, 'metrics': metrics}
      )
  return results, sorted(unknown_languages)


def _drop_unknown_languages(
  scores: Mapping[str, float], languages: Sequence[str]
) -> tuple[dict[str, float], set[str]]:
  """Drops the scores of languages that are not in the vocabulary.

  The means are computed over the other languages.

  Args:
    scores: Scores by metric and part, such as 'accuracy/de' or 'accuracy/mean'.
    languages: Languages of the vocabulary.

  Returns:
    The remaining scores, and the languages and pairs that were dropped.
  """
  parts = [name.partition('/')[2] for name in scores]
  unknown_parts = result_tables.find_unknown_parts(parts, languages)
  known_scores = {
    name: value
    for name, value in scores.items()
    if name.partition('/')[2] not in unknown_parts
  }
  if not unknown_parts:
    return known_scores, unknown_parts
  for name in [name for name in known_scores if name.endswith('/mean')]:
    metric = name.removesuffix('/mean')
    values = [
      value
      for other_name, value in known_scores.items()
      if other_name.startswith(f'{metric}/') and other_name != name
    ]
    if values:
      mean = result_tables.mean_of_parts(
        values, geometric=metric.endswith('perplexity')
      )
      assert mean is not None
      known_scores[name] = mean
    else:
      del known_scores[name]
  return known_scores, unknown_parts


def _read_settings(export: Export, group: result_store.Group) -> dict[str, Any]:
  """Returns the settings that identify a result."""
  result_folder = export.run.directory / run_directory.EVALUATION / group.folder
  record = (result_folder / f'{export.step}.json').read_text(encoding='utf-8')
  return json.loads(record)['settings']


def _drop_limited(
  results: Mapping[result_store.Group, eval_task.EvalResult],
) -> dict[result_store.Group, eval_task.EvalResult]:
  """Drops results on some of the examples if the complete results exist.

  Results of the same task and split on the same test data are considered to be
  complete if the number of examples was not limited.
  """
  complete = {
    (group.task, group.split, result.test_data)
    for group, result in results.items()
    if result.max_examples is None and result.metrics
  }
  return {
    group: result
    for group, result in results.items()
    if result.max_examples is None
    or (group.task, group.split, result.test_data) not in complete
  }


def _describe_dataset(
  export: Export,
  group: result_store.Group,
  result: eval_task.EvalResult,
  *,
  has_test_data: bool,
) -> tuple[dict[str, Any], str | None]:
  """Returns the fields that describe a result's data set in a Hub model card.

  Args:
    export: Export whose checkpoint was evaluated.
    group: Task, split and settings of the result.
    result: Evaluation result. The description states if it was computed during
      training or on some of the examples only.
    has_test_data: Whether the name of the data set includes the directory or
      SeqIO mixture of the test data. This is necessary if task and split are
      ambiguous. Only the last component of a path is published.

  Returns:
    Name and type of the data set, and the name of the main score of a task of
    the package `mteb`, or None.
  """
  task = _read_settings(export, group)['task']
  if not group.task.startswith(mteb_task.PREFIX):
    details = [group.split]
    if result.is_development:
      label = result_tables.label_development([result], group.split)
      label = label.removeprefix(', ')
      details = [label] if group.split == 'all' else [group.split, label]
    if has_test_data:
      details.append(pathlib.PurePath(result.test_data).name)
    if result.max_examples is not None:
      details.append(f'at most {result.max_examples:,} examples per language')
    name = f'{group.task} ({", ".join(filter(None, details))})'
    return {'name': name, 'type': group.task}, None
  dataset = {
    'name': f'MTEB {task["task"]}',
    'type': task['dataset'],
    'split': group.split,
    'revision': task['revision'],
  }
  return dataset, task['score_name']


def _rename_metric(metric: dict[str, Any], score_name: str) -> dict[str, Any]:
  """Returns a metric of `mteb` under the name of the task's main score."""
  part = metric['name'].partition('/')[2]
  return metric | {'type': score_name, 'name': f'{score_name}/{part}'}


def _matches_export(export: Export, settings: Mapping[str, Any]) -> bool:
  """Returns True if a result used the exported parameters and embeddings.

  An export without a sentence encoding matches the results with the pooling of
  the run, which the card states.

  Args:
    export: Export whose checkpoint was evaluated.
    settings: Settings that identify the result.
  """
  if settings['parameters'] != 'default':
    return False
  pooling = _read_pooling(settings)
  if pooling is None:
    return True
  if export.sentence is None:
    return settings['task']['pooling'] is settings['task']['layer'] is None
  return pooling == {
    'pooling': export.sentence.pooling.value,
    'layers': [*export.sentence.layers],
  }


def _read_pooling(settings: Mapping[str, Any]) -> dict[str, Any] | None:
  """Returns the pooling and the layers of a result of sentence embeddings.

  The result is None if the task does not use sentence embeddings.
  """
  task = settings['task']
  if 'pooling' not in task:
    return None
  # The task's settings override the sentence encoding of the run.
  encoding = settings.get('sentence') or {'pooling': 'mean', 'layers': [-1]}
  layers = encoding['layers'] if task['layer'] is None else [task['layer']]
  return {
    'pooling': task['pooling'] or encoding['pooling'],
    'layers': [*layers],
  }


def _evaluation(
  results: Sequence[Mapping[str, Any]], unknown_languages: Sequence[str]
) -> list[str]:
  """Returns the section about the evaluation results.

  The section states the pooling of the results, and the languages whose scores
  are omitted.

  Args:
    results: Evaluation results in the `model-index` format of model cards.
    unknown_languages: Languages and pairs that are not in the vocabulary.
  """
  names_by_pooling: dict[str, list[str]] = {}
  for result in results:
    pooling = result['metrics'][0].get('args')
    if pooling is not None:
      encoding = sentence_embedding.SentenceEmbedding(**pooling)
      description = f'`{pooling["pooling"]}` ({encoding})'
      names = names_by_pooling.setdefault(description, [])
      names.append(result['dataset']['name'])
  lines = [
    f'- {", ".join(dict.fromkeys(names))}: The pooling of the hidden states '
    f'is {description}.'
    for description, names in names_by_pooling.items()
  ]
  if unknown_languages:
    lines.append(
      '- Scores are omitted for languages that are not in the vocabulary '
      f'({", ".join(unknown_languages)}). The means exclude these languages.'
    )
  if not lines:
    return []
  return ['## Evaluation', '', *lines, '']


def _sentence_embeddings(
  encoding: sentence_embedding.SentenceEmbedding | None,
) -> list[str]:
  """Returns the section that defines the model's sentence embeddings."""
  if encoding is None:
    return []
  return [
    '## Sentence embeddings',
    '',
    f'The pooling is `{encoding.pooling.value}`. The embedding of a text is '
    f'{encoding}.',
    '',
  ]


def _training(
  directory: pathlib.Path, settings: Mapping[str, Any], origin
) -> list[str]:
  """Returns the section that describes the training."""
  base = origin.get('base_model')
  if not settings:
    return [f'Converted from {base}, without training.', ''] if base else []

  optimizer_name = settings['optimizer'][config_serialization.CLASS]
  optimizer = settings['optimizer'][config_serialization.FIELDS]
  learning_rate = optimizer.get('learning_rate')
  if isinstance(learning_rate, dict):
    learning_rate = learning_rate[config_serialization.FIELDS].get(
      'peak_value', learning_rate[config_serialization.CLASS]
    )
  objectives = ', '.join(fields['name'] for fields in _objectives(settings))
  lines = [
    '## Training',
    '',
    f'- Initialized from: {base or _initialization(settings)}',
    f'- Steps: {settings["num_train_steps"]}, seed {settings["seed"]}',
    f'- Optimizer: {optimizer_name}, learning rate {learning_rate}, weight '
    f'decay {optimizer.get("weight_decay")}',
    f'- Objectives: {objectives}',
    '',
    '| training data | batch size | sequence length | sampling exponent |',
    '| --- | --- | --- | --- |',
  ]
  counts = _read_example_counts(directory)
  for dataset in settings['datasets']:
    fields = dataset[config_serialization.FIELDS]
    lines.append(
      f'| {_describe_data(dataset, counts)} | {fields.get("batch_size")} | '
      f'{fields.get("length")} | {_describe_exponent(fields)}'
      f'{_describe_replay(fields)} |'
    )
  return [*lines, '']


def _describe_data(
  dataset: Mapping[str, Any], counts: Mapping[tuple[str, str, str], int]
) -> str:
  """Describes the training data of a dataset.

  For labeled data, the description contains the names of the files or SeqIO
  tasks, the languages and the numbers of examples, such as
  '`pos-train.conllu` (en, 150 examples)'. The directories of files are not
  published.

  Args:
    dataset: Configuration of the dataset as in `trainer.json`.
    counts: Numbers of examples by dataset, language and source.
  """
  fields = dataset[config_serialization.FIELDS]
  name = fields.get('mixture') or fields.get('name')
  if not isinstance(fields.get('source'), dict):
    return f'`{name}`'
  try:
    config = config_serialization.from_json_config(dataset)
    languages = config.chosen_parts()
    sources = {part: config.source.describe(part) for part in languages}
  except (errors.XlflaxError, OSError, ImportError):
    # The classes, tasks or files are not available.
    return f'`{name}`'
  languages_by_names: dict[tuple[str, ...], list[str]] = {}
  for part, source in sources.items():
    names = tuple(pathlib.PurePath(file).name for file in source.split(', '))
    count = counts.get((config.name, part, source))
    if count is not None:
      part += f', {plurals.format_count(count, "example")}'
    languages_by_names.setdefault(names, []).append(part)
  return ', '.join(
    f'{", ".join(f"`{name}`" for name in names)} ({"; ".join(languages)})'
    for names, languages in languages_by_names.items()
  )


def _read_example_counts(
  directory: pathlib.Path,
) -> dict[tuple[str, str, str], int]:
  """Returns the numbers of training examples that `xlflax finetune` recorded.

  Args:
    directory: Run directory. The counts are recorded in the output directory of
      `xlflax finetune` if the run is one of its trials.

  Returns:
    Numbers of examples by dataset, language and source. Numbers that differ
    between the trials are omitted.
  """
  grid_file = directory.parent.parent / run_directory.GRID_RESULTS
  if (
    directory.parent.name != run_directory.GRID_TRIALS or not grid_file.exists()
  ):
    return {}
  counts: dict[tuple[str, str, str], set[int | None]] = {}
  try:
    grid = json.loads(grid_file.read_text(encoding='utf-8'))
    for data in grid['training_data']:
      key = data['dataset'], data['language'], data['source']
      counts.setdefault(key, set()).add(data['num_examples'])
  except (OSError, ValueError, LookupError, TypeError):
    return {}
  return {
    key: count
    for key, values in counts.items()
    for count in values
    if len(values) == 1 and isinstance(count, int)
  }


def _describe_exponent(fields: Mapping[str, Any]) -> str:
  """Describes the sampling exponent of a dataset.

  Without an exponent, labeled data are sampled with the exponent 1, and a
  mixture is sampled with its SeqIO rates.
  """
  alpha = fields.get('alpha')
  if isinstance(alpha, dict):
    return f'`{alpha[config_serialization.CLASS]}`'
  if alpha is None:
    return '-' if fields.get('mixture') else '1'
  return str(alpha)


def _describe_replay(fields: Mapping[str, Any]) -> str:
  """Describes the fractions of new and old languages, if a dataset sets them."""
  if not fields.get('replay'):
    return ''
  options = fields['replay'][config_serialization.FIELDS]
  languages = ', '.join(options['new_languages'])
  percentage = 100 * options['fraction']
  return (
    f' ({100 - percentage:.4g} % of the sequences in {languages}, '
    f'{percentage:.4g} % in other languages)'
  )


def _initialization(settings: Mapping[str, Any]) -> str:
  """Describes the runs that a run was initialized from, if they exist."""
  init_from = settings.get('init_from')
  if not init_from:
    return 'random parameters'
  descriptions = []
  for source in init_from if isinstance(init_from, list) else [init_from]:
    source_dir = pathlib.Path(source[config_serialization.FIELDS]['model_dir'])
    trainer = _read(source_dir, run_directory.TRAINER)
    source_settings = trainer.get(config_serialization.FIELDS, {})
    if not source_settings:
      descriptions.append('another xlflax run')
      continue
    names = ', '.join(fields['name'] for fields in _objectives(source_settings))
    step = source[config_serialization.FIELDS].get('step')
    checkpoint = '' if step is None else f'step {step} of '
    descriptions.append(
      f'{checkpoint}an xlflax run ({names}), '
      f'which was initialized from {_initialization(source_settings)}'
    )
  return '; '.join(descriptions)


def _notice(corpus: str | None) -> list[str]:
  """Returns the section with the NOTICE file of the training corpus."""
  path = pathlib.Path(corpus or '', 'NOTICE')
  if corpus is None or not path.is_file():
    return []
  text = path.read_text(encoding='utf-8', errors='replace')
  return ['## Training text', '', text.strip(), '']


def _excluded_parameters(reasons: Mapping[str, str]) -> list[str]:
  """Returns the section that lists the parameters missing from the folder."""
  if not reasons:
    return []
  names_by_reason: dict[str, list[str]] = {}
  for name, reason in reasons.items():
    names_by_reason.setdefault(reason, []).append(f'`{name}`')
  lines = ['## Excluded parameters', '']
  lines += [
    f'- {", ".join(names)}: {reason}'
    for reason, names in names_by_reason.items()
  ]
  return [*lines, '']


def _objectives(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
  """Returns the fields of each objective in a trainer's settings."""
  if not settings:
    return []
  mixture = settings['objectives'][config_serialization.FIELDS]
  return [
    entry[config_serialization.FIELDS]['objective'][config_serialization.FIELDS]
    for entry in mixture['entries']
  ]


def _list(key: str, values: Sequence[str]) -> list[str]:
  """Formats a key and its values, without duplicates, as a YAML list."""
  items = [f'- {json.dumps(value)}' for value in dict.fromkeys(values)]
  return [f'{key}:', *items]


def _read(directory: pathlib.Path, name: str) -> dict[str, Any]:
  """Reads a file of a run directory, or returns {} if it does not exist."""
  if not (directory / name).exists():
    return {}
  return run_directory.read_run_file(directory, name)
