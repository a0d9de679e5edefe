"""What a run says at its start: what it is, what it reads, and what is odd."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax

from xlflax.data import corpus_checks as oddities
from xlflax.data import loader_base
from xlflax.data.corpus import corpus_directory
from xlflax.data.sampling import sampling_order
from xlflax.models import compile_targets, vocabulary_padding
from xlflax.models import encoder_config as model_config
from xlflax.models.attention import attention_backends
from xlflax.training import param_tree, training_setup

if TYPE_CHECKING:
  from xlflax import trainer as trainer_lib


MANY_EPOCHS = 40  # of a language: a model learns its text by heart
MANY_UNKNOWN = 0.01  # share of unknown pieces in a language's text
_LISTED = 12  # languages of a stream on one line


def log_run_header(
  setup: training_setup.Setup,
  loaders: Mapping[str, loader_base.Loader],
  *,
  first_step: int,
) -> None:
  """Logs `run_header_lines` and, as warnings, what is odd about the data.

  Args:
    setup: of the run.
    loaders: stream -> its loader.
    first_step: finished steps.
  """
  tasks = {name: loader.statistics() for name, loader in loaders.items()}
  for line in run_header_lines(setup, tasks, first_step=first_step):
    logging.info('%s', line)
  for line in data_warnings(setup.settings, tasks):
    logging.warning('%s', line)
  settings = setup.settings
  if settings.corpus and not settings.cache_dir:  # `xlflax cache` has warned
    oddities.log_anomalies(corpus_directory.Corpus(settings.corpus))


def run_header_lines(
  setup: training_setup.Setup,
  tasks: Mapping[str, list[loader_base.TaskStatistics]],
  *,
  first_step: int,
) -> list[str]:
  """Returns lines on model, data, devices, steps and results.

  Args:
    setup: of the run.
    tasks: stream -> its tasks.
    first_step: finished steps.
  """
  settings = setup.settings
  mesh = settings.partitioner.mesh
  device = mesh.devices.flat[0]
  accumulated = (
    f', in {settings.accumulation} micro-batches'
    if settings.accumulation > 1
    else ''
  )
  return [
    f'Model: {_model(setup)}.',
    *(
      f'Stream {stream.name}: {stream.batch_size:,} rows of {stream.length:,} '
      f'tokens a step{accumulated}; {format_sequence_shares(tasks[stream.name])}.'
      for stream in settings.streams
      if stream.name in tasks
    ),
    *([f'Learning rate: {rate}.'] if (rate := setup.followed_rate) else []),
    f'Devices: {mesh.size} x {getattr(device, "device_kind", device)}, '
    + ' x '.join(f'{name} {size}' for name, size in mesh.shape.items())
    + f', {jax.process_count()} process'
    + ('es.' if jax.process_count() > 1 else '.'),
    f'Steps: {first_step:,} to {settings.last_step:,}, a report every '
    f'{settings.log_every_steps:,}, a checkpoint every '
    f'{settings.checkpoints.every_steps:,}, {_evaluated(settings.evaluation)}.',
    f'Results: {setup.model_dir}.',
  ]


def _evaluated(evaluation: Any) -> str:
  """'retrieval every 1,000'; other protocols than ours say no more."""
  if evaluation is None:
    return 'no evaluation'
  every_steps = getattr(evaluation, 'every_steps', None)
  if every_steps is None:
    return 'evaluation'
  names = ' and '.join(task.name for task in evaluation.tasks)
  return f'{names} every {every_steps:,}'


def _model(setup: training_setup.Setup) -> str:
  """'Encoder, 12 layers of 768, 278,295,186 parameters, ...'."""
  config = setup.model.config
  shapes = param_tree.param_shapes(setup.factory.abstract.params)
  optimizer = setup.settings.optimizer
  total = vocabulary_padding.count_unpadded(shapes, config)
  trained = vocabulary_padding.count_unpadded(
    {n: s for n, s in shapes.items() if optimizer.is_trainable(n)}, config
  )
  parts = [type(setup.model).__name__]
  layers = getattr(config, 'num_layers', None)
  if layers is not None:
    parts.append(f'{layers} layers of {config.hidden_dim:,}')
  parts.append(
    f'{total:,} parameters'
    + ('' if trained == total else f' ({trained:,} trained)')
  )
  parts.append(f'{getattr(config, "dtype", "float32")} over float32')
  return ', '.join([*parts, f'{attention_backend(setup.settings)} attention'])


def attention_backend(settings: 'trainer_lib.Trainer') -> str:
  """The attention backend on the devices of this process."""
  config = settings.model.config
  configured = getattr(config, 'attention_backend', None)
  if configured is None:
    return str(model_config.AttentionBackend.XLA)
  return str(
    attention_backends.resolve_backend(configured, attention_case(settings))
  )


def attention_case(
  settings: 'trainer_lib.Trainer', target: compile_targets.Target | None = None
) -> attention_backends.Case:
  """What the choice of the attention backend of a run depends on.

  Args:
    settings: of the run.
    target: the devices; None: those of this process.
  """
  config = settings.model.config
  target = target or compile_targets.current_target()
  return attention_backends.Case(
    dtype=config.dtype,
    head_dim=config.dim_per_head,
    length=max(stream.length for stream in settings.streams),
    masked=True,
    dropout_rate=config.attention_dropout_rate,
    capability=target.capability,
    platform=target.platform,
    biased=getattr(config, 'is_t5', False),
  )


def format_sequence_shares(tasks: list[loader_base.TaskStatistics]) -> str:
  """'en 41.0 %, de 30.2 %, ...': languages or pairs by share of the rows."""
  share_by_language: dict[str, float] = {}
  for task in tasks:
    name = '-'.join(task.languages)
    share_by_language[name] = share_by_language.get(name, 0.0) + task.rate
  listed = sorted(share_by_language.items(), key=lambda entry: -entry[1])
  text = ', '.join(f'{name} {share:.1%}' for name, share in listed[:_LISTED])
  more = len(listed) - _LISTED
  return text.replace('%', ' %') + (f' and {more} more' if more > 0 else '')


def data_warnings(
  settings: 'trainer_lib.Trainer',
  tasks: Mapping[str, list[loader_base.TaskStatistics]],
) -> list[str]:
  """Returns what people err in: too little text, or unknown pieces.

  Args:
    settings: of the run.
    tasks: stream -> its tasks.
  """
  streams = {stream.name: stream for stream in settings.streams}
  messages = []
  for name, ones in tasks.items():
    steps = settings.objectives.stream_step(name, settings.steps)
    read = sampling_order.count_rows_read(streams[name], ones, steps)
    for task, num_read in zip(ones, read.tolist(), strict=True):
      where = f'{task.task} (stream {name})'
      if task.rows and num_read / task.rows > MANY_EPOCHS:
        messages.append(
          f'{where} is read {num_read / task.rows:,.0f} times over: give '
          f'{"-".join(task.languages)} more text, train fewer steps, or raise '
          'ALPHA so that small languages come less often.'
        )
      messages += [
        f'{share:.1%} of the pieces of {language} in {where} are unknown: '
        'train the vocabulary on this text, with a higher '
        '--character_coverage or with --byte_fallback.'
        for language, share in zip(
          task.languages, task.unknown or (), strict=False
        )
        if share > MANY_UNKNOWN
      ]
  return messages
