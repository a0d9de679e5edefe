"""Checks that a run can be exported to the Hugging Face format.

After these checks, `folder_writer.write_folder` writes the export.
"""

import dataclasses
import logging
import pathlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from xlflax.evaluation import sentence_embedding
from xlflax.interop.huggingface import (
  export_plan,
  generation_config,
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
from xlflax.models import adapter_config, encoder, encoder_decoder
from xlflax.objectives import objective_base
from xlflax.objectives.model_calls import Pooling
from xlflax.training import param_tree
from xlflax.training.checkpointing import (
  checkpoint_reader,
  code_fingerprint,
  run_directory,
  saved_run,
)
from xlflax.utils import errors, name_suggestions, validation

# Dense layers after the encoder, which are exported as separate modules.
_SENTENCE_DENSE = 'heads/sentence_dense_'
DTYPES = {
  'float32': np.float32,
  'float16': np.float16,
  'bfloat16': ml_dtypes.bfloat16,
}


@dataclasses.dataclass(frozen=True)
class Export:
  """Checked plan for the export of a run to a Hugging Face folder.

  It is created before parameters are read.

  Attributes:
    run: Run to export.
    step: Training step of the checkpoint.
    architecture: Architecture of the exported model.
    task: Task of the exported head, such as masked LM or token classification.
    options: Contents of the exported `config.json`, except for the list of
      languages, which is added when the folder is written.
    shapes: Mapping from the name of each exported parameter to its shape.
      Parameters and rows that the checkpoint does not contain are exported as
      zeros.
    assignments: Assignments of exported tensors to the run's parameters.
    constants: Mapping from the names of constant tensors to their values, which
      depend only on the configuration.
    left_out: Mapping from the name of each parameter that is left out to the
      reason why it is not exported.
    dtype: Data type of the exported tensors.
    sentence: Settings with which Sentence-Transformers computes sentence
      embeddings. If None, the folder is not a Sentence-Transformers folder.
    generation: Text generation settings for an encoder-decoder. None for
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
  sentence: sentence_embedding.SentenceEmbedding | None = None
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
  """Checks an export as far as possible without reading tensor values.

  Args:
    model_dir: Model directory, which contains a run or an imported model.
    step: Training step of the checkpoint. If None, the last checkpoint is used.
    model_type: Model type of the architecture. If None, the first available
      choice is used. The choices are the tokenizer's model type, the model type
      of the published model from which the run was initialized, and the first
      model type that can represent the model.
    task: Task of the exported head. If None, it is the labeled task for which
      the run has a head. Without such a head, it is sequence-to-sequence for an
      encoder-decoder, masked LM for an encoder with a masked LM head, and no
      head (only hidden states) for other encoders.
    drop: Regular expressions for the names of parameters that are not exported.
    dtype: Data type of the exported tensors: 'float32', 'float16' or
      'bfloat16'.
    pooling: Pooling method for a Sentence-Transformers folder. If None, the
      folder has this format only if the model was imported from a
      Sentence-Transformers folder.
    direction: Pair of language codes (source, target) that become the default
      translation direction in the exported folder. Only for translation models.

  Raises:
    ConfigError: If no supported architecture can represent the model.
    CheckpointError: If the checkpoint does not exist, or if parameters are
      missing or are not part of the architecture. The message lists all
      problems.
  """
  if dtype not in DTYPES:
    raise errors.ConfigError(
      '`dtype` must be a data type that is supported for Hugging Face exports',
      got=repr(dtype),
      expected=' or '.join(map(repr, DTYPES)),
      fix=name_suggestions.did_you_mean(dtype, DTYPES),
    )
  if pooling is not None:
    pooling = validation.validate(pooling, Pooling, name='pooling')
    task = task or Task.STATES
  run = saved_run.load_run(model_dir)
  _check_adapters(run, drop)
  record = read_origin(run.directory)
  step = max(run.steps, default=-1) if step is None else step
  checkpoint = checkpoint_reader.checkpoint_path(run.directory, step)
  code_fingerprint.warn_of_changed_model(run.model, checkpoint)
  choice = export_plan.choose_export(
    _model_config(run),
    checkpoint_reader.saved_shapes(checkpoint),
    run.objectives,
    drop=drop,
    model_type=model_type,
    task=task,
    origin=record,
    tokenizer_type=run.vocabulary.description.get('model_type'),
    pad_id=run.vocabulary.spec.pad_id,
  )
  if direction and choice.task is not Task.SEQ2SEQ:
    raise errors.ConfigError(
      'Source and target languages can only be set for translation models, '
      f'but the task of the model is {choice.task.value!r}',
      fix='Remove --source_lang and --target_lang (in Python, `direction`).',
    )

  options = _config_options(run, record, choice, dtype)
  sentence: Any
  if pooling:
    sentence = _sentence_encoding_with_pooling(run, choice, pooling)
  else:
    sentence = _sentence_encoding(run, choice.task, choice.shapes)
  generation = None
  if choice.task is Task.SEQ2SEQ:
    generation = generation_config.build_generation(
      run, options, record, direction
    )
  return Export(
    run=run,
    step=step,
    architecture=choice.architecture,
    task=choice.task,
    options=options,
    shapes=choice.shapes,
    assignments=_assignments(choice, checkpoint),
    constants=_constants(choice.architecture, choice.config),
    left_out=choice.left_out,
    dtype=DTYPES[dtype],
    sentence=sentence,
    generation=generation,
  )


def _config_options(
  run, record, choice: export_plan.Choice, dtype: str
) -> dict[str, Any]:
  """Returns the contents of `config.json`."""
  architecture, config = choice.architecture, choice.config
  options, _ = architecture.write(config)
  if choice.linear_head:
    options |= {linear_head.OPTION: True}
  if record.get('config', {}).get('model_type') == architecture.model_type:
    options = _merge_imported_options(record, architecture, options, config)
  return _add_run_options(
    options, architecture, choice.task, run, choice.shapes, dtype
  )


def _sentence_encoding_with_pooling(
  run, choice: export_plan.Choice, pooling: Pooling
) -> sentence_embedding.SentenceEmbedding:
  """Returns a run's sentence encoding with the pooling that the user chose.

  Raises:
    ConfigError: If Sentence-Transformers does not support the pooling or the
      model requires language inputs.
  """
  has_languages = getattr(choice.config, 'use_language_embeddings', False)
  if choice.task is not Task.STATES or pooling is Pooling.MEAN or has_languages:
    if choice.task is not Task.STATES:
      fix = 'Omit --head, or export without --sentence_transformers.'
    elif has_languages:
      fix = 'Export without --sentence_transformers.'
    else:
      fix = (
        'Evaluate the model with pooling="mean_all", and export it with '
        '--sentence_transformers=mean_all.'
      )
    raise errors.ConfigError(
      'A Sentence-Transformers export requires an encoder without a head and '
      'without language embeddings. The pooling method must be first or '
      'mean_all, because Sentence-Transformers includes special tokens in the '
      f'mean. Found the task {choice.task.value}, '
      f'use_language_embeddings={has_languages} and the pooling method '
      f'{pooling.value}',
      where=str(run.directory),
      fix=fix,
    )
  if warning := _pooling_warning(run, pooling):
    logging.warning('%s', warning)
  encoding = _sentence_encoding(run, choice.task, choice.shapes, pooling)
  return encoding or sentence_embedding.SentenceEmbedding(
    pooling=pooling,
    max_length=choice.config.max_position_embeddings,
    settings={'similarity_fn_name': 'cosine'},
  )


def _pooling_warning(run: saved_run.SavedRun, pooling: Pooling) -> str | None:
  """Returns a warning if an export uses a pooling that the run did not train.

  Args:
    run: Run to export.
    pooling: Pooling of the export. MEAN_ALL is not reported for a run whose own
      pooling is MEAN, which Sentence-Transformers does not support.
  """
  recorded = sentence_embedding.read_sentence_encoding(run.directory)
  run_embedding = recorded or sentence_embedding.SentenceEmbedding()
  run_pooling = (
    Pooling.MEAN_ALL
    if run_embedding.pooling is Pooling.MEAN
    else run_embedding.pooling
  )
  if pooling is run_pooling:
    return None
  objectives = ''
  if recorded is None:
    # A model that was imported without a definition may have any pooling.
    if not run.objectives or any(map(_pools_first, run.objectives.values())):
      return None
    objectives = (
      f', and none of its objectives ({", ".join(run.objectives)}) pools the '
      'first token'
    )
  exported = sentence_embedding.SentenceEmbedding(pooling=pooling)
  return (
    f'The sentence embeddings of the run are {run_embedding}{objectives}. The '
    f'export uses {exported} instead, so its embeddings may be poor. Pass '
    f'--sentence_transformers={run_pooling.value}, or compare the poolings '
    'with `xlflax evaluate --tasks=retrieval` and '
    f'--gin.retrieval_task.Retrieval.pooling="\'{pooling.value}\'".'
  )


def _pools_first(objective: objective_base.Objective) -> bool:
  """Returns whether an objective trains the first token as a vector."""
  pooling = getattr(objective, 'pooling', Pooling.MEAN)
  # Heads that classify sequences read the first token if `pooling` is None.
  return getattr(pooling, 'value', pooling) in (None, Pooling.FIRST.value)


def _sentence_encoding(
  run, task: Task, shapes, pooling: Pooling | None = None
) -> sentence_embedding.SentenceEmbedding | None:
  """Returns the sentence encoding of a model without a head.

  Returns None if the run has no sentence encoding or lacks its parameters.

  Raises:
    ConfigError: If Sentence-Transformers does not support the run's method of
      computing sentence embeddings.
  """
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
    supported_poolings = ', '.join(
      sorted(supported.value for supported in sentence_modules.POOLINGS)
    )
    raise errors.ConfigError(
      'Sentence-Transformers supports only the last layer and the pooling '
      f'methods {supported_poolings}, but the sentence embeddings of the run '
      f'use the layers {encoding.layers} and the pooling method '
      f'{encoding.pooling.value}',
      where=str(run.directory / run_directory.SENTENCE),
      fix='Pass --sentence_transformers with a supported pooling method.',
    )
  return encoding


def _constants(architecture: Architecture, config) -> dict[str, np.ndarray]:
  """Returns the tensors whose values are determined by the configuration."""
  return {
    architecture.prefix + name: table
    for name, compute_table in architecture.constants.items()
    if (table := compute_table(config)) is not None
  }


def _check_adapters(run: saved_run.SavedRun, drop: Sequence[str]) -> None:
  """Raises ConfigError if adapters would have to be exported."""
  names = [
    adapter.name
    for adapter in adapter_config.model_adapters(run.model)
    if not param_tree.matches_pattern(
      drop, f'/{adapter_config.PREFIX}{adapter.name}/'
    )
  ]
  if names:
    raise errors.ConfigError(
      'The run cannot be exported, because a Hugging Face model cannot '
      'contain adapters',
      got=', '.join(names),
      where=str(run.directory),
      fix='Merge LoRA adapters with `xlflax convert merge-adapters`, or '
      'export an adapter with `xlflax convert to-peft`.',
    )


def _model_config(run: saved_run.SavedRun) -> Config:
  """Returns the configuration of the run's model.

  Raises:
    ConfigError: If the model class cannot be converted.
  """
  model_classes = (encoder.Encoder, encoder_decoder.EncoderDecoder)
  if type(run.model) not in model_classes:
    raise errors.ConfigError(
      'Only an Encoder or an EncoderDecoder can be converted to the Hugging '
      'Face format',
      got=type(run.model).__name__,
      where=str(run.directory),
    )
  return run.model.config


def read_origin(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the import record of a run, or {} if no model was imported."""
  if not (directory / run_directory.ORIGIN).exists():
    return {}
  return run_directory.read_run_file(directory, run_directory.ORIGIN)


def _merge_imported_options(
  record, architecture: Architecture, options, config
) -> dict[str, Any]:
  """Returns the imported options, updated where the model has changed."""
  parsed = config_options.read_config_options(
    record['config'], architecture.aliases
  )
  parsed.has_output = not config.tie_word_embeddings
  imported_fields = architecture.read(parsed, Task(record['task']))
  imported_config = architecture.config_class(**imported_fields)
  imported_options, _ = architecture.write(imported_config)
  changes = {
    name: value
    for name, value in options.items()
    if imported_options.get(name) != value
  }
  return record['config'] | changes


def _assignments(choice: export_plan.Choice, checkpoint) -> list[Assignment]:
  """Returns the assignments of exported tensors to parameters.

  Raises:
    CheckpointError: If parameters are missing or are not part of the
      architecture. The message lists all problems.
  """
  architecture, task = choice.architecture, choice.task
  config, shapes = choice.config, choice.shapes
  rules = tensor_mapping.collect_rules(architecture, task, config, has=shapes)
  assert config.vocab_size is not None
  assignments = tensor_rules.assign_tensors(
    rules, shapes, vocab_size=config.vocab_size
  )
  used = {assignment.parameter for assignment in assignments}
  used.update(tensor_rules.unused_layer_parameters(rules, shapes))
  problems = [
    f'{name} is not part of {architecture.classes[task]}'
    for name in sorted(shapes.keys() - used)
    if not name.startswith(_SENTENCE_DENSE)
  ]
  heads = [
    rule.parameter for rule in rules if rule.parameter.startswith('heads/')
  ]
  problems += [f'{name} is missing' for name in heads if name not in shapes]
  if problems:
    raise errors.CheckpointError(
      'The parameters of the run do not match the architecture',
      got='; '.join(problems),
      where=str(checkpoint),
      fix=(
        'Pass a different --head, or exclude parameters with --exclude=PATTERN.'
      ),
    )
  return assignments


def _add_run_options(options, architecture, task, run, shapes, dtype):
  """Adds the options that depend on the run, and returns all options."""
  spec = run.vocabulary.spec
  options = options | {
    'model_type': architecture.model_type,
    'dtype': dtype,
    'architectures': [architecture.classes[task]],
  }
  options.pop('torch_dtype', None)

  is_imported_tokenizer = 'tokenizer_files' in run.vocabulary.description
  is_t5 = getattr(run.model.config, 'is_t5', False)
  for name, index in (
    ('bos_token_id', None if is_t5 else spec.bos_id),
    ('eos_token_id', spec.eos_id),
    ('pad_token_id', spec.pad_id),
    ('decoder_start_token_id', spec.pad_id if is_t5 else None),
  ):
    if index is not None and not (is_imported_tokenizer and name in options):
      options[name] = index

  output_bias = f'heads/{task.value}/output/bias'
  if output_bias in shapes:
    num_labels = shapes[output_bias][0]
    if len(options.get('id2label') or {}) != num_labels:
      options['id2label'] = {str(i): f'LABEL_{i}' for i in range(num_labels)}
      options['label2id'] = {f'LABEL_{i}': i for i in range(num_labels)}
    objective = run.objectives.get(task.value)
    options |= labeled_heads.label_options(objective, num_labels)
    options |= labeled_heads.cross_encoder_options(run, objective)
    if task is Task.SEQUENCE_CLASSIFICATION and objective is not None:
      options |= labeled_heads.style_options(
        architecture, run.model.config, objective, options
      )

  if options.get('use_lang_emb') and not options.get('lang2id'):
    options['lang2id'] = {code: i for i, code in enumerate(spec.languages)}
    options['id2lang'] = {str(i): code for i, code in enumerate(spec.languages)}
  return options
