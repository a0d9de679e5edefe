"""README.md of a Hugging Face folder: the model card and its metadata.

The metadata are those of the Hub's model cards: languages, licence, base
model, tags. What was trained, on what and how, is read from the run.
"""

import importlib.metadata
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from xlflax.evaluation import result_store
from xlflax.interop.huggingface.architectures.architecture_registry import Task
from xlflax.interop.huggingface.cards import card_metadata
from xlflax.interop.huggingface.huggingface_export import Export
from xlflax.training.checkpointing import config_serialization, run_directory

_MANY = 30  # languages of a vocabulary beyond this are no claim about a model
_PIPELINES = {
  Task.STATES: 'feature-extraction',
  Task.MASKED_LM: 'fill-mask',
  Task.PRETRAINING: 'fill-mask',
  Task.SEQUENCE_CLASSIFICATION: 'text-classification',
  Task.TOKEN_CLASSIFICATION: 'token-classification',
  Task.QUESTION_ANSWERING: 'question-answering',
  Task.SEQ2SEQ: 'translation',
}


def of_export(checked: Export, *, name: str, license: str | None = None) -> str:
  """The model card of a folder.

  Args:
    checked: what is exported.
    name: of the model.
    license: such as 'mit'; None takes that of the model that the run starts
      from, if its folder stated one.
  """
  origin = _read(checked.run.directory, run_directory.ORIGIN)
  trainer = run_directory.read_trainer(checked.run.directory)
  settings = trainer.get(config_serialization.FIELDS, {})
  stated = origin.get('card', {})
  is_mean = (checked.run.directory / run_directory.AVERAGED).exists()
  kind = 'the mean of checkpoints up to step' if is_mean else 'step'
  return '\n'.join(
    [
      '---',
      *_metadata(checked, origin, license or stated.get('license'), settings),
      *_measured(checked, name, _PIPELINES[checked.task]),
      '---',
      '',
      f'# {name}',
      '',
      f'{checked.options["architectures"][0]}, {kind} {checked.step}, exported '
      f'by xlflax {importlib.metadata.version("xlflax")}.',
      '',
      *_training(settings, origin),
      *_notice(settings.get('corpus')),
      *_left_out(checked.left_out),
    ]
  )


def _metadata(checked: Export, origin, license, settings) -> list[str]:
  vocabulary_languages = checked.run.vocabulary.spec.languages
  languages = origin.get('card', {}).get('language') or (
    vocabulary_languages if len(vocabulary_languages) <= _MANY else ()
  )
  library, pipeline = 'transformers', _PIPELINES[checked.task]
  if checked.sentence:
    library, pipeline = 'sentence-transformers', 'sentence-similarity'
  lines = [f'library_name: {library}']
  for key, codes in card_metadata.hub_languages(languages).items():
    lines += _list(key, codes)
  if license:
    listed = license in card_metadata.LICENSES
    lines.append(f'license: {license if listed else "other"}')
    lines += [] if listed else [f'license_name: {json.dumps(license)}']
  if origin.get('hub'):
    lines.append(f'base_model: {json.dumps(origin["hub"]["repository"])}')
  lines.append(f'pipeline_tag: {pipeline}')
  names = [fields['name'] for fields in _objectives(settings)]
  return lines + _list('tags', ['xlflax', *names])


def _measured(checked: Export, name: str, pipeline: str) -> list[str]:
  """What evaluation found of this checkpoint, as a `model-index`."""
  results = []
  for group, by_step in result_store.find_results(
    checked.run.directory
  ).items():
    result = by_step.get(checked.step)
    scores = result.score_metrics if result else ()
    metrics = [
      {'type': name.partition('/')[0], 'name': name, 'value': value}
      for name, value in (result.metrics if result else {}).items()
      if name.partition('/')[0] in scores and math.isfinite(value)
    ]
    data = {'name': f'{group.task} ({group.split})', 'type': group.task}
    if metrics and _is_of_folder(checked, group):
      results.append(
        {'task': {'type': pipeline}, 'dataset': data, 'metrics': metrics}
      )
  if not results:
    return []
  return ['model-index: ' + json.dumps([{'name': name, 'results': results}])]


def _is_of_folder(checked: Export, group: result_store.Group) -> bool:
  """Whether the folder has the parameters, and makes the vectors, of a result."""
  result_folder = (
    checked.run.directory / run_directory.EVALUATION / group.folder
  )
  record = (result_folder / f'{checked.step}.json').read_text(encoding='utf-8')
  settings = json.loads(record)['settings']
  task = settings['task']
  if settings['parameters'] != 'default' or 'pooling' not in task:
    return settings['parameters'] == 'default'
  pooling, layer = task['pooling'], task['layer']
  if checked.sentence is None:
    return pooling is layer is None
  of_run = settings.get('sentence') or {'pooling': 'mean', 'layers': [-1]}
  exported_encoding = checked.sentence.pooling.value, [*checked.sentence.layers]
  layers = of_run['layers'] if layer is None else [layer]
  return (pooling or of_run['pooling'], [*layers]) == exported_encoding


def _training(settings: Mapping[str, Any], origin) -> list[str]:
  """What was trained, on what, and how."""
  base = origin.get('base_model')
  if not settings:
    return [f'Converted from {base}, without training.', ''] if base else []
  optimizer = settings['optimizer'][config_serialization.FIELDS]
  rate = optimizer.get('learning_rate')
  if isinstance(rate, dict):
    rate = rate[config_serialization.FIELDS].get(
      'peak', rate[config_serialization.CLASS]
    )
  lines = [
    '## Training',
    '',
    f'- Started from: {base or _start(settings)}',
    f'- Steps: {settings["total_steps"]}, seed {settings["seed"]}',
    f'- Optimizer: {settings["optimizer"][config_serialization.CLASS]}, learning rate '
    f'{rate}, weight decay {optimizer.get("weight_decay")}',
    '- Objectives: '
    + ', '.join(fields['name'] for fields in _objectives(settings)),
    '',
    '| training data | rows a step | tokens a row | sampling exponent |',
    '| --- | --- | --- | --- |',
  ]
  for stream in settings['streams']:
    fields = stream[config_serialization.FIELDS]
    source = fields.get('mixture') or fields.get('name')
    lines.append(
      f'| `{source}` | {fields.get("batch_size")} | {fields.get("length")} | '
      f'{fields.get("alpha", "-")} |'
    )
  return [*lines, '']


def _start(settings: Mapping[str, Any]) -> str:
  """The runs of xlflax that a run begins with, as far as they are there."""
  init_from = settings.get('init_from')
  if not init_from:
    return 'random parameters'
  sentences = []
  for source in init_from if isinstance(init_from, list) else [init_from]:
    source_dir = pathlib.Path(source[config_serialization.FIELDS]['model_dir'])
    before = _read(source_dir, run_directory.TRAINER).get(
      config_serialization.FIELDS, {}
    )
    names = ', '.join(fields['name'] for fields in _objectives(before))
    sentences.append(
      f'a run of xlflax of {before["total_steps"]} steps ({names}), which '
      f'started from {_start(before)}'
      if before
      else 'another run of xlflax'
    )
  return '; '.join(sentences)


def _notice(corpus: str | None) -> list[str]:
  """Whose text it was, as the corpus says beside its files."""
  path = pathlib.Path(corpus or '', 'NOTICE')
  if corpus is None or not path.is_file():
    return []
  text = path.read_text(encoding='utf-8', errors='replace')
  return ['## The training text', '', text.strip(), '']


def _left_out(left_out: Mapping[str, str]) -> list[str]:
  if not left_out:
    return []
  lines = ['## Not in these files', '']
  for reason in dict.fromkeys(left_out.values()):
    names = [name for name, why in left_out.items() if why == reason]
    lines.append(f'- {", ".join(f"`{n}`" for n in names)}: {reason}')
  return [*lines, '']


def _objectives(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
  if not settings:
    return []
  mixture = settings['objectives'][config_serialization.FIELDS]
  return [
    entry[config_serialization.FIELDS]['objective'][config_serialization.FIELDS]
    for entry in mixture['entries']
  ]


def _list(key: str, values: Sequence[str]) -> list[str]:
  return [f'{key}:', *(f'- {json.dumps(v)}' for v in dict.fromkeys(values))]


def _read(directory: pathlib.Path, name: str) -> dict[str, Any]:
  if not (directory / name).exists():
    return {}
  return run_directory.read_run_file(directory, name)
