"""From a model directory to a Hugging Face folder: every check.

`folder_writer.write_folder` writes what has been checked here.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from xlflax.evaluation import sentence_embedding
from xlflax.interop.huggingface import export_plan as choices
from xlflax.interop.huggingface import (
  generation_config,
  huggingface_import,
  labeled_heads,
  sentence_modules,
  tensor_mapping,
)
from xlflax.interop.huggingface.architectures import (
  config_options,
  linear_head,
  tensor_rules,
)
from xlflax.interop.huggingface.architectures.architecture_registry import (
  Architecture,
  Config,
  Task,
)
from xlflax.interop.huggingface.architectures.tensor_rules import Assignment
from xlflax.models import encoder, encoder_decoder
from xlflax.objectives.model_calls import Pooling
from xlflax.training.checkpointing import (
  checkpoint_reader,
  run_directory,
  saved_run,
)
from xlflax.utils import errors, name_suggestions, validation

_SENTENCE = 'heads/sentence_dense_'  # written as modules of their own
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
    shapes: of each parameter; a row, or a table, that the checkpoint lacks is
      zero.
    assignments: what each tensor is made of.
    constants: tensors that follow from the configuration.
    left_out: parameter that is left out -> why.
    dtype: of the tensors.
    sentence: how sentence vectors are made, of a folder that is one for
      Sentence-Transformers, too; None for others.
    generation: how an encoder-decoder's text begins and ends; None for
      encoders.
  """

  run: saved_run.SavedRun
  step: int
  architecture: Architecture
  task: Task
  options: dict[str, Any]
  shapes: dict[str, tuple[int, ...]]
  assignments: list[Assignment]
  constants: dict[str, np.ndarray]
  left_out: dict[str, str]
  dtype: Any
  sentence: sentence_embedding.SentenceEncoding | None = None
  generation: generation_config.Generation | None = None


@validation.validate_call
def check_export(
  model_dir: validation.FilePath,
  *,
  step: int | None = None,
  model_type: str | None = None,
  task: Task | str | None = None,
  drop: Sequence[str] = (),
  dtype: str = 'float32',
  pooling: Pooling | str | None = None,
  direction: Sequence[str] | None = None,
) -> Export:
  """Checks all of a model directory but its values.

  Args:
    model_dir: a run's, or an imported model's.
    step: a checkpoint; None takes the newest.
    model_type: the architecture; None takes that of the tokenizer, else that
      of the published model that the run starts from, else the first that can
      express the model.
    task: whose head is taken along; None takes the labelled task whose head
      there is, else the masked LM, else the states.
    drop: patterns of parameters to leave out.
    dtype: of the tensors: 'float32', 'float16' or 'bfloat16'.
    pooling: makes a Sentence-Transformers folder of an encoder that pools
      states so; None makes one only of what came as such.
    direction: codes of the source's and the target's language, of a
      translation model whose folder is to have one.

  Raises:
    ConfigError: no architecture can express the model.
    CheckpointError: no such checkpoint, or parameters that the architecture
      has no place for, or lacks; all listed.
  """
  if dtype not in DTYPES:
    raise errors.ConfigError(
      'There is no such type of tensors in a Hugging Face folder',
      got=repr(dtype),
      expected=' or '.join(map(repr, DTYPES)),
      where='dtype',
      fix=name_suggestions.did_you_mean(dtype, DTYPES),
    )
  if pooling is not None:
    pooling = validation.validate(pooling, Pooling, name='pooling')
    task = task or Task.STATES
  run = saved_run.open_run(model_dir)
  record = _record(run.directory)
  step = max(run.steps, default=-1) if step is None else step
  checkpoint = checkpoint_reader.checkpoint_path(run.directory, step)
  chosen = choices.choose_export(
    _config(run),
    checkpoint_reader.saved_shapes(checkpoint),
    run.objectives,
    drop=drop,
    model_type=model_type,
    task=task,
    origin=record,
    tokenizer_type=run.vocabulary.description.get('model_type'),
    pad_id=run.vocabulary.spec.pad_id,
  )
  if direction and chosen.task is not Task.SEQ2SEQ:
    raise errors.ConfigError(
      'A direction is of translation models',
      got=f'a model for {chosen.task.value}',
      where='direction',
      fix='leave it out',
    )
  architecture, config = chosen.architecture, chosen.config
  options = _options(run, record, chosen, dtype)
  return Export(
    run=run,
    step=step,
    architecture=architecture,
    task=chosen.task,
    options=options,
    shapes=chosen.shapes,
    assignments=_assignments(chosen, checkpoint),
    constants=_constants(architecture, config),
    left_out=chosen.left_out,
    dtype=DTYPES[dtype],
    sentence=_pooled(run, chosen, pooling)
    if pooling
    else _sentence(run, chosen.task, chosen.shapes),
    generation=generation_config.of_run(run, options, record, direction)
    if chosen.task is Task.SEQ2SEQ
    else None,
  )


def expressed_as(config: Config, *, pad_id: int) -> str:
  """What a model can be exported as, in words.

  Args:
    config: the model's; VECO's plug-in module does not count.
    pad_id: of the vocabulary.

  Returns:
    The `model_type`, such as 'bert', or 'nothing: ' and why.
  """
  plain, _ = choices.plug_out(config, ())
  try:
    architecture, _ = choices.choose_architecture(
      plain, None, (), pad_id=pad_id
    )
  except errors.ConfigError as error:
    return f'nothing: {error.got}'
  return architecture.model_type


def _options(run, record, chosen: choices.Choice, dtype: str) -> dict[str, Any]:
  """config.json."""
  architecture, config = chosen.architecture, chosen.config
  options, _ = architecture.write(config)
  if chosen.linear_head:
    options |= {linear_head.OPTION: True}
  if record.get('config', {}).get('model_type') == architecture.model_type:
    options = _changed(record, architecture, options, config)
  return _complete(
    options, architecture, chosen.task, run, chosen.shapes, dtype
  )


def _pooled(run, chosen: choices.Choice, pooling: Pooling):
  """The modules of an encoder that was trained here, with its own prompts.

  Raises:
    ConfigError: the library has no such pooling, or passes no languages.
  """
  by_language = getattr(chosen.config, 'use_language_embeddings', False)
  mean = pooling is Pooling.MEAN
  if chosen.task is Task.STATES and not mean and not by_language:
    return _sentence(run, chosen.task, chosen.shapes, pooling) or (
      sentence_embedding.SentenceEncoding(
        pooling=pooling,
        max_length=chosen.config.max_length,
        settings={'similarity_fn_name': 'cosine'},
      )
    )
  raise errors.ConfigError(
    'Sentence-Transformers cannot make these vectors',
    got=f'pooling {pooling.value}, task {chosen.task.value}, '
    f'use_language_embeddings={by_language}',
    expected='the states of an encoder without language embeddings, pooled by '
    'first or mean_all: its mean has the special symbols in it, too',
    where=str(run.directory),
    fix='measure the model with pooling="mean_all", and export that',
  )


def _sentence(run, task: Task, shapes, pooling: Pooling | None = None):
  """The modules of a model that has states only, if their layers are there."""
  encoding = sentence_embedding.read_sentence_encoding(run.directory)
  heads = {name.split('/')[1] for name in shapes if name.startswith('heads/')}
  if not (task is Task.STATES and encoding and encoding.has_parameters(heads)):
    return None
  if pooling not in (None, encoding.pooling):
    encoding = encoding.changed(pooling=pooling)
  if (
    encoding.layers != (-1,)
    or encoding.pooling not in sentence_modules.POOLINGS
  ):
    raise errors.ConfigError(
      'Sentence-Transformers cannot make the sentence vectors of this run',
      got=f'pooling {encoding.pooling.value} of layers {encoding.layers}',
      expected='the last layer, pooled by '
      + ', '.join(
        sorted(pooling_kind.value for pooling_kind in sentence_modules.POOLINGS)
      ),
      where=str(run.directory / run_directory.SENTENCE),
      fix='give --sentence_transformers, or change it by sentence_encoding.write',
    )
  return encoding


def _constants(architecture: Architecture, config) -> dict[str, np.ndarray]:
  return {
    architecture.prefix + name: table
    for name, make in architecture.constants.items()
    if (table := make(config)) is not None
  }


def _config(run: saved_run.SavedRun) -> Config:
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
  if not (directory / huggingface_import.RECORD).exists():
    return {}
  return run_directory.read_run_file(directory, huggingface_import.RECORD)


def _changed(
  record, architecture: Architecture, options, config
) -> dict[str, Any]:
  """What was imported, with the options that now have another meaning."""
  read = config_options.read_config_options(
    record['config'], architecture.aliases
  )
  read.has_output = config.output_embeddings == 'own'
  before, _ = architecture.write(
    architecture.config_class(**architecture.read(read, Task(record['task'])))
  )
  return record['config'] | {
    name: value for name, value in options.items() if before.get(name) != value
  }


def _assignments(chosen: choices.Choice, checkpoint) -> list[Assignment]:
  """What each tensor is made of.

  Raises:
    CheckpointError: a parameter has no place, or is missing; all listed.
  """
  architecture, task = chosen.architecture, chosen.task
  config, shapes = chosen.config, chosen.shapes
  rules = tensor_mapping.rules_for(architecture, task, config, has=shapes)
  assert config.vocab_size is not None
  assignments = tensor_rules.assign_tensors(
    rules, shapes, vocab_size=config.vocab_size
  )
  used = {a.parameter for a in assignments} | set(
    tensor_rules.unused_layer_parameters(rules, shapes)
  )
  problems = [
    f'{name} has no place in {architecture.classes[task]}'
    for name in sorted(shapes.keys() - used)
    if not name.startswith(_SENTENCE)
  ]
  heads = [r.parameter for r in rules if r.parameter.startswith('heads/')]
  problems += [f'{name} is missing' for name in heads if name not in shapes]
  if problems:
    raise errors.CheckpointError(
      'The parameters do not fit the architecture',
      got='; '.join(problems),
      where=str(checkpoint),
      fix='Pass another --head, or leave parameters out with --exclude=PATTERN.',
    )
  return assignments


def _complete(options, architecture, task, run, shapes, dtype):
  """config.json with what the weights and the vocabulary tell."""
  spec = run.vocabulary.spec
  options = options | {
    'model_type': architecture.model_type,
    'dtype': dtype,
    'architectures': [architecture.classes[task]],
  }
  options.pop('torch_dtype', None)
  published = 'tokenizer_files' in run.vocabulary.description
  t5 = getattr(run.model.config, 'is_t5', False)
  for name, index in (
    ('bos_token_id', None if t5 else spec.bos_id),
    ('eos_token_id', spec.eos_id),
    ('pad_token_id', spec.pad_id),
    ('decoder_start_token_id', spec.pad_id if t5 else None),
  ):
    if index is not None and not (published and name in options):
      options[name] = index
  head = f'heads/{task.value}/output/bias'
  if head in shapes:
    labels = shapes[head][0]
    if len(options.get('id2label') or {}) != labels:
      options['id2label'] = {str(i): f'LABEL_{i}' for i in range(labels)}
      options['label2id'] = {f'LABEL_{i}': i for i in range(labels)}
    objective = run.objectives.get(task.value)
    options |= labeled_heads.label_options(objective, labels)
    if task is Task.SEQUENCE_CLASSIFICATION and objective is not None:
      options |= labeled_heads.style_options(
        architecture, run.model.config, objective, options
      )
  if options.get('use_lang_emb') and not options.get('lang2id'):
    options['lang2id'] = {code: i for i, code in enumerate(spec.languages)}
    options['id2lang'] = {str(i): c for i, c in enumerate(spec.languages)}
  return options
