"""Log messages of `xlflax train` that suggest exports and next commands."""

import contextlib
import logging
import shlex
from typing import Any

from xlflax.config import config_files
from xlflax.utils import errors

# Gin files in `evaluate/` by objective, if the names differ.
_EVALUATION_FILES = {
  'sequence_classification': 'classification',
  'token_classification': 'tagging',
  'dependency_parsing': 'parsing',
}


def log_export(trainer: Any) -> None:
  """Logs the Hugging Face architecture that the model can be exported to."""
  from xlflax.interop.huggingface import export_plan
  from xlflax.models import encoder, encoder_decoder

  exportable = (encoder.Encoder, encoder_decoder.EncoderDecoder)
  if type(trainer.model) not in exportable:
    logging.info(
      'Export: No Hugging Face architecture supports the model class %s.',
      type(trainer.model).__name__,
    )
    return
  description = export_plan.find_export_type(trainer.model.config, pad_id=0)
  name, _, reason = description.partition(': ')
  if reason:
    logging.info(
      'Export: No Hugging Face architecture supports the model. '
      '`xlflax convert to-hf` lists the reasons.'
    )
  else:
    logging.info(
      'Export: The model can be exported to the Hugging Face architecture %s '
      '(`xlflax convert to-hf`).',
      name,
    )


def log_next_steps(trainer: Any, result: dict[str, Any]) -> None:
  """Logs a run's result and suggests commands that use the run.

  Args:
    trainer: Trainer that has finished or stopped training.
    result: Result of `Trainer.train`.
  """
  from xlflax.training import progress_lines

  duration = progress_lines.format_duration(sum(result['seconds'].values()))
  loss = result['loss']
  if result['finished']:
    label = 'loss'
  elif result['step'] < trainer.log_metrics_every:
    label = 'mean loss'
  else:
    label = 'last reported loss'
  logging.info(
    '%s %s: step %s of %s in %s%s%s.',
    result['model_dir'],
    'finished' if result['finished'] else 'stopped',
    f'{result["step"]:,}',
    f'{trainer.num_train_steps:,}' if trainer.num_train_steps else 'all epochs',
    duration,
    ' in all starts of the run' if result['earlier_seconds'] else '',
    '' if loss is None else f', {label} {loss:.4f}',
  )
  lines = next_commands(trainer, result)
  logging.info('Next steps:\n%s', '\n'.join(f'  {line}' for line in lines))


def next_commands(trainer: Any, result: dict[str, Any]) -> list[str]:
  """Returns commands that use a run, such as `xlflax evaluate`.

  Args:
    trainer: Trainer that has finished or stopped training.
    result: Result of `Trainer.train`.
  """
  if not result['finished']:
    if 'rejected_by' in result:
      return [
        f'Change `{result["rejected_by"]}.before_checkpoint` so that it '
        'returns True for a state to save. Then run the same command again.'
      ]
    if 'stopped_by' in result:
      return _suggest_after_stop(trainer, result)
    if result['checkpoint'] is None:
      return ['Run the same command again to start the run.']
    stop = trainer.stop_after_steps
    if stop is not None and result['step'] >= stop:
      return [
        'Run the same command again without --stop_after_steps, or with a '
        f'larger value than {stop:,}, to resume from the checkpoint of step '
        f'{result["checkpoint"]:,}.'
      ]
    return [
      'Run the same command again to resume from the checkpoint of step '
      f'{result["checkpoint"]:,}.'
    ]
  return _commands_for_checkpoint(trainer, result)


def _suggest_after_stop(trainer: Any, result: dict[str, Any]) -> list[str]:
  """Returns advice and commands for a run that a hook has stopped."""
  hook, checkpoint = result['stopped_by'], result['checkpoint']
  if checkpoint is None:
    return [
      f'The hook {hook} stopped the run before its first step. Correct it, or '
      'remove it from Trainer.hooks, and run the same command again.'
    ]
  return [
    f'The hook {hook} stopped the run. If this was intended, use the '
    f'checkpoint of step {checkpoint:,} as in the commands below. The same '
    f'command would resume from this checkpoint with the saved state of '
    f'{hook}, which may stop the run again. To train from step '
    f'{checkpoint:,} on, remove {hook} from Trainer.hooks and run the same '
    f'command again. If {hook} stopped the run too early, correct it and train '
    'with another MODEL_DIR.',
    *_commands_for_checkpoint(trainer, result),
  ]


def _commands_for_checkpoint(trainer: Any, result: dict[str, Any]) -> list[str]:
  """Returns commands that use the last checkpoint of a run."""
  directory = shlex.quote(result['model_dir'])
  corpus = shlex.quote(trainer.corpus or 'CORPUS')
  from xlflax.models import encoder_decoder
  from xlflax.objectives.finetuning import finetuning_objective
  from xlflax.objectives.pretraining import seq2seq

  if any(
    isinstance(objective, seq2seq.Translation)
    for objective in trainer.objectives.objectives
  ):
    return [
      f'xlflax translate --model_dir={directory} --source=CODE --target=CODE '
      '--input=FILE --output=FILE',
      f'xlflax evaluate --model_dir={directory} '
      f'--gin_file=evaluate/translation.gin --corpus={corpus}',
    ]
  tasks = [
    _evaluation_file(objective)
    for objective in trainer.objectives.objectives
    if isinstance(objective, finetuning_objective.FineTuning)
  ]
  export = f'xlflax convert to-hf {directory} --output=FOLDER'
  if tasks:
    gin_file = f'evaluate/{tasks[0]}.gin'
    if gin_file not in config_files.shipped_file_names():
      # The task family is user-defined.
      gin_file = 'FILE.gin'
    return [
      f'xlflax evaluate --model_dir={directory} --gin_file={gin_file}',
      export,
    ]
  finetune = (
    f'xlflax finetune --init_from={directory} --gin_file=finetune/tagging.gin '
    "--gin.TRAIN_FILES=\"{'CODE': 'FILE'}\" --output=DIR"
  )
  if isinstance(trainer.model, encoder_decoder.EncoderDecoder):
    # The model was not trained to predict masked tokens or to translate.
    return [finetune, export]
  evaluation_tasks = _tasks_with_text(trainer.corpus)
  if not evaluation_tasks:
    evaluation_tasks = ['retrieval', 'perplexity']
    corpus = 'CORPUS'
  if result['has_untrained_mlm_head']:
    # The perplexity would be that of an untrained model.
    if evaluation_tasks == ['perplexity']:
      corpus = 'CORPUS'
    evaluation_tasks = ['retrieval']
    export += ' --head=states'
  return [
    f'xlflax evaluate --model_dir={directory} '
    f'--tasks={",".join(evaluation_tasks)} --corpus={corpus} '
    '--checkpoint_steps=all --random_init_baseline',
    finetune,
    export,
  ]


def _tasks_with_text(directory: str | None) -> list[str]:
  """Returns the evaluation tasks that can read the test split of a corpus.

  A corpus in a bucket is not read. A corpus that cannot be read is assumed to
  contain text for all tasks.
  """
  from xlflax.data.corpus import corpus_directory
  from xlflax.storage import paths

  if directory and not paths.is_bucket(paths.to_path(directory)):
    with contextlib.suppress(errors.XlflaxError, OSError):
      corpus = corpus_directory.Corpus(directory)
      tasks = ['retrieval'] if corpus.parallel_pairs('test') else []
      if corpus.monolingual_languages('test'):
        tasks.append('perplexity')
      return tasks
  return ['retrieval', 'perplexity']


def _evaluation_file(objective: Any) -> str:
  """Returns the name of the gin file in `evaluate/` for an objective."""
  from xlflax.objectives.finetuning import reranking, sequence_regression

  if isinstance(objective, reranking.Reranking):
    return 'reranking'
  if isinstance(objective, sequence_regression.SequenceRegression):
    return 'regression'
  return _EVALUATION_FILES.get(objective.name, objective.name)
