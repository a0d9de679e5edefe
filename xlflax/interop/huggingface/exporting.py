"""From a model directory to a Hugging Face folder."""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import safetensors.numpy

from xlflax import errors
from xlflax.data import vocabulary_sentencepiece
from xlflax.interop.huggingface import (
    architectures,
    config_options,
    importing,
    model_files,
    sentencepiece_files,
    tensor_files,
)
from xlflax.interop.huggingface import plan as plan_lib
from xlflax.interop.huggingface import rules as rules_lib
from xlflax.interop.huggingface.architectures import Architecture, Task
from xlflax.interop.huggingface.rules import Assignment
from xlflax.models import config as model_config
from xlflax.models import encoder
from xlflax.training import checkpoints, run_directory
from xlflax.training import params as params_lib
from xlflax.training import run as run_lib

DTYPES = {'float32': np.float32, 'float16': np.float16,
          'bfloat16': ml_dtypes.bfloat16}
MAX_SHARD_BYTES = 5 * 10**9
_METADATA = {'format': 'pt'}


@dataclasses.dataclass(frozen=True)
class Export:
  """A model directory that has been checked, but not read.

  Attributes:
    run: the model directory.
    step: the checkpoint.
    architecture: what it becomes.
    task: what its head does.
    options: config.json.
    assignments: what each tensor is made of.
    constants: tensors that follow from the configuration.
    dropped: parameters that are left out, at the user's word.
    dtype: of the tensors.
  """

  run: run_lib.Run
  step: int
  architecture: Architecture
  task: Task
  options: dict[str, Any]
  assignments: list[Assignment]
  constants: dict[str, np.ndarray]
  dropped: list[str]
  dtype: Any


def check(model_dir: str | pathlib.Path, *, step: int | None = None,
          model_type: str | None = None, task: Task | str | None = None,
          drop: Sequence[str] = (), dtype: str = 'float32') -> Export:
  """Checks all of a model directory but its values.

  Args:
    model_dir: a run's, or an imported model's.
    step: a checkpoint; None takes the newest.
    model_type: the architecture; None takes the one that it was imported
      from, else the first that can express the model.
    task: whose head is taken along; None takes what it was imported with,
      else the only one whose head there is, else the masked LM.
    drop: patterns of parameters to leave out.
    dtype: of the tensors: 'float32', 'float16' or 'bfloat16'.

  Raises:
    ConfigError: no architecture can express the model.
    CheckpointError: no such checkpoint, or parameters that the architecture
      has no place for, or lacks; all listed.
  """
  run = run_lib.open_run(model_dir)
  config = _encoder_config(run)
  record = _record(run.directory)
  architecture, options = _architecture(
      config, model_type or record.get('config', {}).get('model_type'))
  step = max(run.steps, default=-1) if step is None else step
  checkpoint = checkpoints.path_of(run.directory, step)
  saved = checkpoints.saved_shapes(checkpoint)
  dropped = [name for name in saved if params_lib.matches(drop, name)]
  shapes = {name: shape for name, shape in saved.items()
            if name not in dropped}
  task = _task(config, architecture, task or record.get('task'), shapes)
  assignments = _assignments(architecture, task, config, shapes, checkpoint)
  constants = {architecture.prefix + name: table for name, make in
               architecture.constants.items()
               if (table := make(config)) is not None}
  if record.get('config', {}).get('model_type') == architecture.model_type:
    options = _changed(record, architecture, options)
  options = _complete(options, architecture, task, run, shapes, dtype)
  return Export(run, step, architecture, task, options, assignments,
                constants, dropped, DTYPES[dtype])


def _encoder_config(run: run_lib.Run) -> model_config.EncoderConfig:
  if type(run.model) is not encoder.Encoder:
    raise errors.ConfigError(
        'A model of this kind can not be converted',
        got=type(run.model).__name__, expected='an Encoder',
        where=str(run.directory))
  return run.model.config


def _record(directory: pathlib.Path) -> dict[str, Any]:
  path = directory / importing.RECORD
  return model_files.read_json(path) if path.exists() else {}


def _architecture(config, model_type) -> tuple[Architecture, dict[str, Any]]:
  """The architecture, and the options that express the configuration."""
  wanted = [model_type] if model_type else list(architectures.MODEL_TYPES)
  refused = []
  for name in wanted:
    architecture = architectures.find(name)
    options, problems = architecture.write(config)
    if not problems:
      return architecture, options
    refused.append(f'{name}: ' + ', '.join(problems))
  raise errors.ConfigError(
      'No Hugging Face architecture expresses the model',
      got='; '.join(refused), where='EncoderConfig')


def _changed(record, architecture: Architecture, options) -> dict[str, Any]:
  """What was imported, with the options that now have another meaning."""
  read = config_options.read(record['config'], architecture.aliases)
  before, _ = architecture.write(model_config.EncoderConfig(
      **architecture.read(read, Task(record['task']))))
  return record['config'] | {name: value for name, value in options.items()
                             if before.get(name) != value}


def _task(config, architecture: Architecture, task, shapes) -> Task:
  heads = {name.split('/')[1] for name in shapes if name.startswith('heads/')}
  found = [t for t in architectures.LABELLED if t.value in heads]
  if task is not None:
    known = [t.value for t in architecture.classes]
    if task not in known:
      raise errors.ConfigError(
          f'{architecture.model_type} has no such task', got=task,
          expected='one of ' + ', '.join(known), where='--task')
    return Task(task)
  if len(found) == 1:
    return found[0]
  if config.mlm_head == 'none':
    return Task.STATES
  return Task.MASKED_LM


def _assignments(architecture, task, config, shapes, checkpoint):
  own = config.output_embeddings == 'own'
  rules = plan_lib.rules_for(architecture, task, own_output=own, has=shapes)
  assert config.vocab_size is not None
  found = rules_lib.assign(rules, shapes, num_layers=config.num_layers,
                           vocab_size=config.vocab_size)
  used = {a.parameter for a in found}
  problems = [f'{name} has no place in {architecture.classes[task]}'
              for name in sorted(shapes.keys() - used)]
  problems += [f'{rule.parameter} is missing' for rule in rules
               if rule.parameter.startswith('heads/')
               and rule.parameter not in shapes]
  if problems:
    raise errors.CheckpointError(
        'The parameters do not fit the architecture',
        got='; '.join(problems), where=str(checkpoint),
        fix='name another --task, or leave parameters out by --drop=PATTERN')
  return found


def _complete(options, architecture, task, run, shapes, dtype):
  """config.json with what the weights and the vocabulary tell."""
  spec = run.vocabulary.spec
  options = options | {
      'model_type': architecture.model_type, 'dtype': dtype,
      'architectures': [architecture.classes[task]]}
  options.pop('torch_dtype', None)
  for name, index in (('bos', spec.bos_id), ('eos', spec.eos_id),
                      ('pad', spec.pad_id)):
    options.setdefault(f'{name}_token_id', index)
  head = f'heads/{task.value}/output/bias'
  if head in shapes:
    labels = shapes[head][0]
    if len(options.get('id2label') or {}) != labels:
      options['id2label'] = {str(i): f'LABEL_{i}' for i in range(labels)}
      options['label2id'] = {f'LABEL_{i}': i for i in range(labels)}
  if options.get('use_lang_emb') and not options.get('lang2id'):
    options['lang2id'] = {code: i for i, code in enumerate(spec.languages)}
    options['id2lang'] = {str(i): c for i, c in enumerate(spec.languages)}
  return options


def convert(checked: Export, folder: str | pathlib.Path, *,
            max_shard_bytes: int = MAX_SHARD_BYTES) -> list[str]:
  """Writes config.json, safetensors and the tokenizer's files.

  The folder appears when it is complete.

  Args:
    checked: from `check`.
    folder: where to.
    max_shard_bytes: tensors beyond this begin another file; also what is
      held in memory, besides a parameter.

  Returns:
    What the reader should know: files that could not be written.

  Raises:
    RunDirectoryError: there is something already.
    CheckpointError: the checkpoint can't be read.
  """
  folder = pathlib.Path(folder).absolute()
  importing.check_free(folder)
  partial = folder.with_name(f'.{folder.name}.{os.getpid()}.partial')
  try:
    partial.mkdir(parents=True)
    _write_tensors(checked, partial, max_shard_bytes)
    text = json.dumps(checked.options, indent=2, sort_keys=True)
    (partial / model_files.CONFIG).write_text(text + '\n', encoding='utf-8')
    notes = _write_tokenizer(checked.run, partial)
    if folder.exists():
      folder.rmdir()
    os.replace(partial, folder)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return notes


def _write_tensors(checked: Export, folder: pathlib.Path, limit: int) -> None:
  """One file, or shards with an index."""
  shards: list[dict[str, int]] = [{}]  # name -> bytes
  width = np.dtype(checked.dtype).itemsize
  for name, shape in _sizes(checked):
    size = width * int(np.prod(shape))
    if shards[-1] and sum(shards[-1].values()) + size > limit:
      shards.append({})
    shards[-1][name] = size
  stem, suffix = tensor_files.SAFETENSORS.split('.')
  files = ([tensor_files.SAFETENSORS] if len(shards) == 1 else [
      f'{stem}-{i + 1:05}-of-{len(shards):05}.{suffix}'
      for i in range(len(shards))])
  values = _values(checked)
  for file, shard in zip(files, shards, strict=True):
    content: dict[str, np.ndarray] = {}
    while len(content) < len(shard):
      name, value = next(values)
      content[name] = value
    safetensors.numpy.save_file(content, folder / file, metadata=_METADATA)
  if len(files) > 1:
    index = {'metadata': {'total_size': sum(
        sum(shard.values()) for shard in shards)},
        'weight_map': {name: file for file, shard in
                       zip(files, shards, strict=True) for name in shard}}
    (folder / tensor_files.INDEX).write_text(
        json.dumps(index, indent=2) + '\n', encoding='utf-8')


def _by_parameter(checked: Export) -> dict[str, list[Assignment]]:
  found: dict[str, list[Assignment]] = {}
  for assignment in checked.assignments:
    found.setdefault(assignment.parameter, []).append(assignment)
  return found


def _name(checked: Export, tensor: str) -> str:
  """The base model alone has its tensors without prefix."""
  if checked.task is Task.STATES:
    return tensor.removeprefix(checked.architecture.prefix)
  return tensor


def _sizes(checked: Export) -> Iterator[tuple[str, tuple[int, ...]]]:
  for assignments in _by_parameter(checked).values():
    for assignment in assignments:
      yield _name(checked, assignment.tensor), assignment.tensor_shape
  for name, table in checked.constants.items():
    yield _name(checked, name), table.shape


def _values(checked: Export) -> Iterator[tuple[str, np.ndarray]]:
  """Tensors in the order of `_sizes`; reads one parameter at a time."""
  checkpoint = checkpoints.path_of(checked.run.directory, checked.step)
  shapes = checkpoints.saved_shapes(checkpoint)
  averaged = any(name.startswith('ema/') for name in
                 checkpoints.saved_shapes(checkpoint, 'train'))
  for parameter, assignments in _by_parameter(checked).items():
    value = _read(checkpoint, parameter, shapes[parameter],
                  averaged=averaged)
    for assignment in assignments:
      part = value if assignment.layer is None else value[assignment.layer]
      tensor = assignment.write(part).astype(checked.dtype)
      yield _name(checked, assignment.tensor), np.ascontiguousarray(tensor)
  for name, table in checked.constants.items():
    yield _name(checked, name), table.astype(checked.dtype)


def _read(checkpoint: pathlib.Path, parameter: str, shape, *,
          averaged: bool) -> np.ndarray:
  """One parameter of the checkpoint; its running average, if it has one."""
  sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  leaf = jax.ShapeDtypeStruct(shape, np.float32, sharding=sharding)
  path = [*(['ema'] if averaged else []), *parameter.split('/')]
  part: Any = leaf
  for name in reversed(path):
    part = {name: part}
  found = checkpoints.read_part(
      checkpoint, 'train' if averaged else 'params', part)
  for name in path:
    found = found[name]
  return np.asarray(found)


def _write_tokenizer(run: run_lib.Run, folder: pathlib.Path) -> list[str]:
  names = run.vocabulary.description.get('tokenizer_files', [])
  vocabulary = run.directory / run_directory.VOCABULARY
  for name in names:
    (folder / name).write_bytes((vocabulary / name).read_bytes())
  if names:
    return []
  made = None
  if isinstance(run.vocabulary,
                vocabulary_sentencepiece.SentencePieceVocabulary):
    made = sentencepiece_files.convert(run.vocabulary)
  for name, content in (made or run.vocabulary.files()).items():
    (folder / name).write_bytes(content)
  if made:
    return []
  return ["the vocabulary's own files were copied: transformers has no "
          f'tokenizer of the kind {run.vocabulary.kind}']
