"""Run summary and data warnings, which are logged at startup."""

import dataclasses
import itertools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from xlflax.config import setting_names
from xlflax.data import corpus_checks, loader_base
from xlflax.data.corpus import corpus_directory
from xlflax.data.dataset_config import DatasetConfig, ExampleLayout
from xlflax.data.sampling import sampling_order
from xlflax.data.supervised.featurizers import featurizer
from xlflax.data.tokenizers import base_vocabulary
from xlflax.models import (
  compile_targets,
  encoder_config,
  encoder_decoder,
  vocabulary_padding,
)
from xlflax.models.attention import attention_backends
from xlflax.objectives.finetuning import classification_objective
from xlflax.objectives.model_calls import Pooling
from xlflax.objectives.pretraining import sentence_alignment
from xlflax.training import param_tree, source_checks, training_setup
from xlflax.training.checkpointing import code_fingerprint, run_directory
from xlflax.training.optimization import schedule_checks
from xlflax.utils import logs, name_suggestions, user_modules

if TYPE_CHECKING:
  from xlflax.trainer import Trainer


# Number of epochs over a language's text from which memorization is likely.
MANY_EPOCHS = 40
# Fraction of a task's examples that are dropped or truncated from which a
# warning is logged.
MANY_DROPPED = 0.25
MANY_TRUNCATED = 0.25
_MAX_LISTED_LANGUAGES = 12
# Relative difference below which the rates of a mixture are equal, and the
# exponent of the task sizes from which rates are assumed to be computed.
_MAX_RATE_DIFFERENCE = 1e-6
_MIN_SIZE_EXPONENT = 0.5


def log_run_header(
  setup: training_setup.Setup,
  loaders: Mapping[str, loader_base.Loader],
  *,
  first_step: int,
) -> None:
  """Logs the run summary, and warnings about data anomalies.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
    loaders: Data loaders by dataset name.
    first_step: Number of steps that were completed before this process started.
  """
  tasks = {name: loader.statistics() for name, loader in loaders.items()}
  for line in run_header_lines(setup, tasks, first_step=first_step):
    logging.info('%s', line)
  for line in data_warnings(setup.settings, tasks):
    logging.warning('%s', line, extra=logs.ONCE)
  for line in mixture_rate_warnings(setup.settings, tasks):
    logging.warning('%s', line, extra=logs.ONCE)
  if setup.vocabulary is not None:
    for line in language_warnings(setup.vocabulary.spec.languages, tasks):
      logging.warning('%s', line, extra=logs.ONCE)
    for line in pair_template_warnings(
      setup.vocabulary, setup.settings.datasets
    ):
      logging.warning('%s', line, extra=logs.ONCE)
  settings = setup.settings
  for line in untrained_decoder_warnings(setup):
    logging.warning('%s', line, extra=logs.ONCE)
  for line in untrained_model_warnings(setup):
    logging.warning('%s', line, extra=logs.ONCE)
  user_classes = code_fingerprint.find_user_classes(settings)
  user_code = code_fingerprint.describe_code(settings)
  source_checks.warn_of_unread_fields(user_classes, user_code)
  source_checks.warn_of_lost_results(user_classes, user_code)
  for line in [
    *equal_dataset_warnings(settings.datasets),
    *pooling_warnings(setup),
  ]:
    logging.warning('%s', line, extra=logs.ONCE)
  # If there is a cache, `xlflax cache` has logged the anomalies.
  if settings.corpus and not settings.cache_dir:
    corpus_checks.log_anomalies(corpus_directory.Corpus(settings.corpus))
  for loader in loaders.values():
    # Only loaders of SeqIO tasks without a cache have this method.
    find_anomalies = getattr(loader, 'find_text_anomalies', None)
    for line in find_anomalies() if find_anomalies is not None else ():
      logging.warning('%s', line, extra=logs.ONCE)


def run_header_lines(
  setup: training_setup.Setup,
  tasks: Mapping[str, list[loader_base.TaskStatistics]],
  *,
  first_step: int,
) -> list[str]:
  """Returns the lines of the run summary.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
    tasks: Task statistics by dataset name.
    first_step: Number of steps that were completed before this process started.
  """
  settings = setup.settings
  mesh = settings.partitioner.mesh
  device = mesh.devices.flat[0]
  lines = [f'Model: {_describe_model(setup)}.']
  lines += [
    f'Objective {name}: {type(entry.objective).__name__} on dataset '
    f'{entry.dataset}, weight {entry.weight:g}.'
    for name, entry in zip(
      settings.objectives.metric_prefixes,
      settings.objectives.entries,
      strict=True,
    )
  ]
  lines += [
    f'Classes of {objective.name}: '
    f'{name_suggestions.format_names(objective.labels)}.'
    for objective in settings.objectives.objectives
    if isinstance(objective, classification_objective.Classification)
    and objective.labels
  ]
  count = settings.gradient_accumulation_steps
  if count > 1:
    lines.append(
      f'Gradient accumulation divides each batch into {count:,} micro-batches. '
      'It does not increase the batch size (`batch_size`, BATCH_SIZE), which is '
      'the number of sequences per optimizer update.'
    )
  for dataset in settings.datasets:
    if dataset.name in tasks:
      shares = format_sequence_shares(tasks[dataset.name])
      unit = (
        f'optimizer update, in {count:,} micro-batches of '
        f'{dataset.batch_size // count:,}'
        if count > 1
        else 'step'
      )
      lines.append(
        f'Dataset {dataset.name}: {dataset.batch_size:,} sequences of '
        f'{dataset.length:,} tokens per {unit}, {shares}.'
      )
  if setup.rate_description:
    lines.append(f'Learning rate: {setup.rate_description}.')
  lines += [
    f'{rate.label}: {rate.description}{rate.phases and f", {rate.phases}"}.'
    for rate in schedule_checks.find_max_rates(
      settings.optimizer, settings.steps
    )
  ]
  if settings.hooks:
    names = ', '.join(type(hook).__name__ for hook in settings.hooks)
    lines.append(f'Hooks: {names}.')
  axes = ' x '.join(f'{name} {size}' for name, size in mesh.shape.items())
  processes = 'processes' if jax.process_count() > 1 else 'process'
  if settings.checkpoints.metric_for_best_model:
    extreme = (
      'lowest' if settings.checkpoints.greater_is_better is False else 'highest'
    )
    lines.append(
      f'Best checkpoint: {extreme} '
      f'{settings.checkpoints.metric_for_best_model}.'
    )
  lines += [
    f'Devices: {mesh.size} x {getattr(device, "device_kind", device)}, {axes}, '
    f'{jax.process_count()} {processes}.',
    f'Steps: {first_step:,} to {settings.last_step:,}, report every '
    f'{settings.log_metrics_every:,}, checkpoint every '
    f'{settings.checkpoints.save_interval_steps:,}, '
    f'{_describe_evaluation(settings.evaluation)}.',
    f'Results: {setup.model_dir}.',
  ]
  return lines


def _describe_evaluation(evaluation: Any) -> str:
  """Describes the evaluation, for example 'retrieval every 1,000'.

  Other implementations of the interface may lack the interval and the tasks.
  """
  if evaluation is None:
    return 'no evaluation'
  every_steps = getattr(evaluation, 'eval_interval_steps', None)
  if every_steps is None:
    return 'evaluation'
  names = ' and '.join(task.name for task in evaluation.tasks)
  num_evaluations = getattr(evaluation, 'num_evaluations', None)
  if num_evaluations is not None:
    return f'{names} {num_evaluations:,} times'
  return f'{names} every {every_steps:,}'


def _describe_model(setup: training_setup.Setup) -> str:
  """Describes the model.

  An example is 'Encoder, 12 layers of 768, 278,295,186 parameters, ...'.
  """
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
  dtype = getattr(config, 'dtype', 'float32')
  parts.append(f'{dtype} compute, float32 parameters')
  parts.append(f'{attention_backend(setup.settings)} attention')
  return ', '.join(parts)


def attention_backend(settings: 'Trainer') -> str:
  """Returns the attention backend that is used on this process's devices."""
  config = settings.model.config
  configured = getattr(config, 'attention_backend', None)
  if configured is None:
    return str(encoder_config.AttentionBackend.XLA)
  return str(
    attention_backends.resolve_backend(configured, attention_case(settings))
  )


def attention_case(
  settings: 'Trainer', target: compile_targets.Target | None = None
) -> attention_backends.Case:
  """Returns the properties of a run that determine its attention backend.

  Args:
    settings: Settings of the run, which are the fields of its `Trainer`.
    target: Target devices. If None, this process's devices are used.
  """
  config = settings.model.config
  target = target or compile_targets.current_target()
  return attention_backends.Case(
    dtype=config.dtype,
    head_dim=config.dim_per_head,
    length=max(dataset.length for dataset in settings.datasets),
    masked=True,
    dropout_rate=config.attention_dropout_rate,
    capability=target.capability,
    platform=target.platform,
    biased=getattr(config, 'is_t5', False),
  )


def format_sequence_shares(tasks: list[loader_base.TaskStatistics]) -> str:
  """Formats the fractions of sequences by language or language pair.

  An example is 'en 41.0 %, de 30.2 %, ...'. At most 12 are listed.
  """
  share_by_language: dict[str, float] = {}
  for task in tasks:
    name = '-'.join(task.languages)
    share_by_language[name] = share_by_language.get(name, 0.0) + task.rate
  shares = sorted(share_by_language.items(), key=lambda entry: -entry[1])
  text = ', '.join(
    f'{name} {100 * share:.1f} %'
    for name, share in shares[:_MAX_LISTED_LANGUAGES]
  )
  num_more = len(shares) - _MAX_LISTED_LANGUAGES
  return text + (f' and {num_more} more' if num_more > 0 else '')


def data_warnings(
  settings: 'Trainer', tasks: Mapping[str, list[loader_base.TaskStatistics]]
) -> list[str]:
  """Returns warnings about common problems in the training data.

  The problems are too little text in a language, too many unknown tokens, and
  too many dropped or truncated examples.

  Args:
    settings: Settings of the run, which are the fields of its `Trainer`.
    tasks: Task statistics by dataset name.
  """
  datasets = {dataset.name: dataset for dataset in settings.datasets}
  messages = []
  for name, statistics in tasks.items():
    steps = settings.objectives.dataset_step(name, settings.steps)
    rows_read = sampling_order.count_rows_read(
      datasets[name], statistics, steps
    )
    for task, num_read in zip(statistics, rows_read.tolist(), strict=True):
      where = f'{task.task} (dataset {name})'
      if task.rows and num_read / task.rows > MANY_EPOCHS:
        alpha = setting_names.name_setting(
          name, 'alpha', class_name=type(datasets[name]).__name__
        )
        messages.append(
          f'{where} will be read for {num_read / task.rows:,.0f} epochs. Add '
          f'text for {"-".join(task.languages)}, train for fewer steps, or '
          f'increase {alpha} to sample small languages less often.'
        )
      messages += _length_warnings(datasets[name], task)
  unknown_rates = (
    (task.task, language, rate)
    for statistics in tasks.values()
    for task in statistics
    for language, rate in zip(task.languages, task.unknown or (), strict=False)
  )
  return messages + corpus_checks.find_unknown_tokens(unknown_rates)


def mixture_rate_warnings(
  settings: 'Trainer', tasks: Mapping[str, list[loader_base.TaskStatistics]]
) -> list[str]:
  """Returns a warning for each mixture whose own rates are not used.

  The rates of a mixture are replaced if the dataset has a sampling exponent.
  There is no warning if the user has set the exponent, if all rates are equal,
  or if the rates depend on the sizes of the tasks with a similar exponent, as
  those of a corpus directory.

  Args:
    settings: Settings of the run, which are the fields of its `Trainer`.
    tasks: Task statistics by dataset name.
  """
  messages = []
  for dataset in settings.datasets:
    statistics = tasks.get(dataset.name, [])
    alpha = getattr(dataset, 'alpha', None)
    mixture = getattr(dataset, 'mixture', None)
    if (
      not isinstance(alpha, int | float)
      or not setting_names.is_default_setting(dataset.name, 'alpha')
      or not _are_fixed_rates(statistics)
    ):
      continue
    total = sum(task.mixture_rate or 0.0 for task in statistics)
    rates = format_sequence_shares(
      [
        dataclasses.replace(task, rate=(task.mixture_rate or 0.0) / total)
        for task in statistics
      ]
    )
    setting = setting_names.name_setting(dataset.name, 'alpha')
    messages.append(
      f'Dataset {dataset.name} ignores the rates of the mixture '
      f'{mixture} ({rates}), because {setting} is {alpha:g} by default. '
      'Tasks are sampled in proportion to their sizes to the power of this '
      f'exponent ({format_sequence_shares(statistics)}). To use the rates of '
      f'the mixture, pass {setting}=None. To keep the exponent, pass '
      f'{setting}={alpha:g}.'
    )
  return messages


def _are_fixed_rates(statistics: Sequence[loader_base.TaskStatistics]) -> bool:
  """Returns whether the rates of a mixture seem to have been set by the user.

  Equal rates and rates of at least N ** 0.5, where N is the size of the task,
  are not fixed rates.
  """
  rates = [task.mixture_rate for task in statistics]
  known_rates = [rate for rate in rates if rate is not None]
  if len(known_rates) < len(rates) or sum(known_rates) <= 0:
    return False
  return max(known_rates) > min(known_rates) * (
    1 + _MAX_RATE_DIFFERENCE
  ) and any(
    rate < task.examples**_MIN_SIZE_EXPONENT
    for rate, task in zip(known_rates, statistics, strict=True)
  )


def _length_warnings(
  dataset: Any, task: loader_base.TaskStatistics
) -> list[str]:
  """Returns warnings about a task with many dropped or truncated examples."""
  where = f'{task.task} (dataset {dataset.name})'
  messages = []
  if task.dropped > MANY_DROPPED * task.examples_read > 0:
    pairs = dataset.pairs
    limits = (
      f'fewer than {pairs.min_tokens:,} tokens in the source or in the target'
    )
    if pairs.max_tokens is not None:
      limits += f', or more than {pairs.max_tokens:,} tokens in total'
    remedies = loader_base.suggest_filter_changes(dataset)
    hint = (
      f'To keep more examples, {" or ".join(remedies)}.'
      if remedies
      else 'Remove pairs with an empty text from the corpus.'
    )
    messages.append(
      f'The length filters drop {task.dropped:,} of {task.examples_read:,} '
      f'examples of {where}, which have {limits}. {hint}'
    )
  num_kept = task.examples_read - task.dropped
  if task.truncated > MANY_TRUNCATED * num_kept > 0:
    remedy = f'Increase {setting_names.name_setting(dataset.name, "length")}'
    # The lines of a pair must stay aligned, so pairs cannot be split.
    if len(task.languages) == 1:
      remedy += ', or split the text into shorter lines'
    messages.append(
      f'{task.truncated:,} of {num_kept:,} examples of {where} are truncated '
      f'to sequences of {dataset.length:,} tokens, and the rest of their text '
      f'is not read. {remedy}.'
    )
  return messages


def equal_dataset_warnings(datasets: Sequence[Any]) -> list[str]:
  """Returns warnings about datasets that differ only in their names.

  Such datasets contain the same examples, for example because the mixture of a
  copied dataset was not changed.

  Args:
    datasets: Datasets of the run.
  """
  return [
    f'The datasets {first.name} and {second.name} differ only in their names, '
    'so they contain the same examples. Correct '
    f'{setting_names.name_setting(second.name, "mixture")}, which is '
    f'{second.mixture!r}, or use one dataset for several objectives.'
    for first, second in itertools.combinations(datasets, 2)
    if isinstance(second, DatasetConfig)
    and dataclasses.replace(second, name=first.name) == first
  ]


def pooling_warnings(setup: training_setup.Setup) -> list[str]:
  """Returns warnings about alignment objectives with a different pooling.

  By default, evaluation uses the sentence embeddings that `sentence.json`
  defines, or the mean. A difference between the mean with and without special
  tokens is not reported.

  Args:
    setup: Settings and directory of the run.
  """
  definition: dict[str, Any] = {}
  if (setup.model_dir / run_directory.SENTENCE).exists():
    definition = run_directory.read_run_file(
      setup.model_dir, run_directory.SENTENCE
    )
  pooling = Pooling(definition.get('pooling', Pooling.MEAN.value))
  return [
    f'Objective {objective.name} trains the pooling '
    f'{objective.pooling.value!r}, but the sentence embeddings of the run use '
    f'{pooling.value!r}. To evaluate the trained pooling, set the pooling of '
    'the tasks, for example --gin.retrieval_task.Retrieval.pooling="'
    f"'{objective.pooling.value}'"
    '", or change the definition of the sentence embeddings '
    '(docs/evaluation.md#sentence-embeddings).'
    for objective in setup.settings.objectives.objectives
    if isinstance(objective, sentence_alignment.SentenceAlignment)
    and (objective.pooling is Pooling.FIRST) != (pooling is Pooling.FIRST)
  ]


def pair_template_warnings(
  vocabulary: base_vocabulary.Vocabulary, datasets: Iterable[Any]
) -> list[str]:
  """Returns warnings about pairs with other special tokens than in pretraining.

  The template of each dataset with text pairs in one sequence is compared with
  the template in the tokenizer files of a published model. For labeled
  datasets, `featurizer.warn_of_template_mismatch` logs such a warning.

  Args:
    vocabulary: Vocabulary of the run.
    datasets: Datasets of the run.
  """
  templates = featurizer.find_tokenizer_templates(vocabulary)
  if templates is None:
    return []
  messages = []
  for dataset in datasets:
    if getattr(dataset, 'layout', None) is not ExampleLayout.PAIRS:
      continue
    separator = dataset.pairs.separator
    if separator in templates:
      continue
    message = (
      f'The text pairs of the dataset {dataset.name} have the special tokens of '
      f'separator={separator.value!r}, but the tokenizer of the pretrained '
      'model uses different special tokens for pairs.'
    )
    if templates:
      setting = setting_names.name_setting(dataset.name, 'pairs.separator')
      message += f' Set {setting} to {templates[0].value!r}.'
    messages.append(message)
  return messages


def untrained_decoder_warnings(setup: training_setup.Setup) -> list[str]:
  """Returns a warning if a part of the decoder is not trained by any objective.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
  """
  if not isinstance(setup.model, encoder_decoder.EncoderDecoder):
    return []
  paths = [
    path
    for path in setup.find_unused_parameters()
    if path.startswith('model/decoder/')
  ]
  if not paths:
    return []
  params = param_tree.flatten_params(setup.factory.abstract.params)
  count = sum(math.prod(params[path].shape) for path in paths)
  names = sorted({o.name for o in setup.settings.objectives.objectives})
  return [
    f'No objective trains {count:,} parameters of the decoder, such as '
    f'{paths[0]}. Objectives: {", ".join(names)}. Add an objective that trains '
    'the decoder, such as @seq2seq.SequenceToSequence(), or train an '
    '@encoder.Encoder().'
  ]


def untrained_model_warnings(setup: training_setup.Setup) -> list[str]:
  """Returns a warning if user-defined objectives train only their heads.

  Args:
    setup: Model, vocabulary, settings and step functions of the run.
  """
  objectives = setup.settings.objectives.objectives
  if not any(user_modules.is_user_extension(type(o)) for o in objectives):
    return []
  trainable = {
    path
    for path in param_tree.flatten_params(setup.factory.abstract.params)
    if path.startswith('model/') and setup.settings.optimizer.is_trainable(path)
  }
  if not trainable or trainable - set(setup.find_unused_parameters()):
    return []
  names = sorted({objective.name for objective in objectives})
  return [
    'The gradients of all parameters of the model are 0, so the run does not '
    f'train the model. Objectives: {", ".join(names)}. Remove '
    '`jax.lax.stop_gradient` from the hidden states in `__call__`. If you '
    "intend to train only the heads, set frozen=('model/',) in the optimizer."
  ]


def language_warnings(
  vocabulary_languages: Sequence[str],
  tasks: Mapping[str, list[loader_base.TaskStatistics]],
) -> list[str]:
  """Returns warnings about dataset languages that the vocabulary lacks.

  Args:
    vocabulary_languages: Languages of the vocabulary. If empty, the vocabulary
      does not record its languages, and there are no warnings.
    tasks: Task statistics by dataset name.
  """
  return [
    message
    for name, statistics in tasks.items()
    for message in describe_unknown_languages(
      f'Dataset {name}',
      [code for task in statistics for code in task.languages],
      vocabulary_languages,
    )
  ]


def describe_unknown_languages(
  subject: str, languages: Iterable[str], vocabulary_languages: Sequence[str]
) -> list[str]:
  """Returns a warning for each language that the vocabulary does not contain.

  Args:
    subject: Name of the data that contains the text, such as 'Dataset labeled'.
    languages: Language codes, or codes of language pairs such as 'es-en'.
    vocabulary_languages: Languages of the vocabulary. If empty, the vocabulary
      does not record its languages, and there are no warnings.
  """
  if not vocabulary_languages:
    return []
  codes = {code for part in languages for code in part.split('-')}
  return [
    _describe_unknown_language(subject, code, vocabulary_languages)
    for code in sorted(codes - set(vocabulary_languages))
  ]


def _describe_unknown_language(
  subject: str, language: str, vocabulary_languages: Sequence[str]
) -> str:
  """Returns the warning for text in a language that the vocabulary lacks.

  Args:
    subject: Name of the data that contains the text, such as 'Dataset labeled'.
    language: Language code of the text.
    vocabulary_languages: Languages of the vocabulary.
  """
  listed_languages = ', '.join(vocabulary_languages[:_MAX_LISTED_LANGUAGES])
  if len(vocabulary_languages) > _MAX_LISTED_LANGUAGES:
    listed_languages += f' and {len(vocabulary_languages):,} languages in total'
  hint = name_suggestions.suggest_language(language, vocabulary_languages)
  return (
    f'{subject} contains text in {language}, but the vocabulary was trained on '
    f'text in {listed_languages}. ' + (hint or 'Check the language code.')
  )
