"""From a model directory to a Hugging Face folder: every check.

`folder_writing.convert` writes what has been checked here.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from xlflax import errors
from xlflax.interop.huggingface import (
  architectures,
  config_options,
  importing,
  labelled_heads,
  model_files,
)
from xlflax.interop.huggingface import plan as plan_lib
from xlflax.interop.huggingface import rules as rules_lib
from xlflax.interop.huggingface.architectures import Architecture, Config, Task
from xlflax.interop.huggingface.rules import Assignment
from xlflax.models import encoder, encoder_decoder
from xlflax.training import checkpoints
from xlflax.training import params as params_lib
from xlflax.training import run as run_lib

DTYPES = {
  'float32': np.float32,
  'float16': np.float16,
  'bfloat16': ml_dtypes.bfloat16,
}


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

  run: run_lib.SavedRun
  step: int
  architecture: Architecture
  task: Task
  options: dict[str, Any]
  assignments: list[Assignment]
  constants: dict[str, np.ndarray]
  dropped: list[str]
  dtype: Any


def check(
  model_dir: str | pathlib.Path,
  *,
  step: int | None = None,
  model_type: str | None = None,
  task: Task | str | None = None,
  drop: Sequence[str] = (),
  dtype: str = 'float32',
) -> Export:
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
  config = _config(run)
  record = _record(run.directory)
  architecture, options = _architecture(
    config, model_type or record.get('config', {}).get('model_type')
  )
  step = max(run.steps, default=-1) if step is None else step
  checkpoint = checkpoints.path_of(run.directory, step)
  saved = checkpoints.saved_shapes(checkpoint)
  dropped = [name for name in saved if params_lib.matches(drop, name)]
  shapes = {name: shape for name, shape in saved.items() if name not in dropped}
  task = _task(config, architecture, task or record.get('task'), shapes)
  assignments = _assignments(architecture, task, config, shapes, checkpoint)
  constants = {
    architecture.prefix + name: table
    for name, make in architecture.constants.items()
    if (table := make(config)) is not None
  }
  if record.get('config', {}).get('model_type') == architecture.model_type:
    options = _changed(record, architecture, options, config)
  options = _complete(options, architecture, task, run, shapes, dtype)
  return Export(
    run,
    step,
    architecture,
    task,
    options,
    assignments,
    constants,
    dropped,
    DTYPES[dtype],
  )


def _config(run: run_lib.SavedRun) -> Config:
  kinds = (encoder.Encoder, encoder_decoder.EncoderDecoder)
  if type(run.model) not in kinds:
    raise errors.ConfigError(
      'A model of this kind cannot be converted',
      got=type(run.model).__name__,
      expected='an Encoder or an EncoderDecoder',
      where=str(run.directory),
    )
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
    if not isinstance(config, architecture.config_class):
      refused.append(f'{name}: it is no {type(config).__name__}')
      continue
    options, problems = architecture.write(config)
    if not problems:
      return architecture, options
    refused.append(f'{name}: ' + ', '.join(problems))
  raise errors.ConfigError(
    'No Hugging Face architecture expresses the model',
    got='; '.join(refused),
    where=type(config).__name__,
  )


def _changed(
  record, architecture: Architecture, options, config
) -> dict[str, Any]:
  """What was imported, with the options that now have another meaning."""
  read = config_options.read(record['config'], architecture.aliases)
  read.has_output = config.output_embeddings == 'own'
  before, _ = architecture.write(
    architecture.config_class(**architecture.read(read, Task(record['task'])))
  )
  return record['config'] | {
    name: value for name, value in options.items() if before.get(name) != value
  }


def _task(config, architecture: Architecture, task, shapes) -> Task:
  heads = {name.split('/')[1] for name in shapes if name.startswith('heads/')}
  found = [t for t in architectures.LABELLED if t.value in heads]
  if task is not None:
    known = [t.value for t in architecture.classes]
    if task not in known:
      raise errors.ConfigError(
        f'{architecture.model_type} has no such task',
        got=task,
        expected='one of ' + ', '.join(known),
        where='--task',
      )
    return Task(task)
  if len(found) == 1:
    return found[0]
  if Task.SEQ2SEQ in architecture.classes:
    return Task.SEQ2SEQ
  if config.mlm_head == 'none':
    return Task.STATES
  return Task.MASKED_LM


def _assignments(architecture, task, config, shapes, checkpoint):
  rules = plan_lib.rules_for(architecture, task, config, has=shapes)
  assert config.vocab_size is not None
  found = rules_lib.assign(rules, shapes, vocab_size=config.vocab_size)
  used = {a.parameter for a in found} | set(rules_lib.unread(rules, shapes))
  problems = [
    f'{name} has no place in {architecture.classes[task]}'
    for name in sorted(shapes.keys() - used)
  ]
  heads = [r.parameter for r in rules if r.parameter.startswith('heads/')]
  problems += [f'{name} is missing' for name in heads if name not in shapes]
  if problems:
    raise errors.CheckpointError(
      'The parameters do not fit the architecture',
      got='; '.join(problems),
      where=str(checkpoint),
      fix='name another --task, or leave parameters out by --drop=PATTERN',
    )
  return found


def _complete(options, architecture, task, run, shapes, dtype):
  """config.json with what the weights and the vocabulary tell."""
  spec = run.vocabulary.spec
  options = options | {
    'model_type': architecture.model_type,
    'dtype': dtype,
    'architectures': [architecture.classes[task]],
  }
  options.pop('torch_dtype', None)
  t5 = getattr(run.model.config, 'is_t5', False)
  for name, index in (
    ('bos_token_id', None if t5 else spec.bos_id),
    ('eos_token_id', spec.eos_id),
    ('pad_token_id', spec.pad_id),
    ('decoder_start_token_id', spec.pad_id if t5 else None),
  ):
    if index is not None:
      options.setdefault(name, index)
  head = f'heads/{task.value}/output/bias'
  if head in shapes:
    labels = shapes[head][0]
    if len(options.get('id2label') or {}) != labels:
      options['id2label'] = {str(i): f'LABEL_{i}' for i in range(labels)}
      options['label2id'] = {f'LABEL_{i}': i for i in range(labels)}
    options |= labelled_heads.label_options(
      run.objectives.get(task.value), labels
    )
  if options.get('use_lang_emb') and not options.get('lang2id'):
    options['lang2id'] = {code: i for i, code in enumerate(spec.languages)}
    options['id2lang'] = {str(i): c for i, c in enumerate(spec.languages)}
  return options
