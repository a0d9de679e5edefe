"""What `xlflax train` says beside the loop: exports, and what comes next."""

import logging
import shlex
from typing import Any

# Objective -> its gin file in `evaluate/`, where the names differ.
_FILES = {
  'sequence_classification': 'classification',
  'sequence_regression': 'regression',
  'token_classification': 'tagging',
  'dependency_parsing': 'parsing',
}


def tell_export(trainer: Any) -> None:
  """Logs what `xlflax convert to-hf` can make of a trainer's model."""
  from xlflax.interop.huggingface import exporting
  from xlflax.models import encoder, encoder_decoder

  kinds = (encoder.Encoder, encoder_decoder.EncoderDecoder)
  if type(trainer.model) not in kinds:
    logging.info('Export: a %s has none.', type(trainer.model).__name__)
    return
  found = exporting.expressed_as(trainer.model.config, pad_id=0)
  name, _, why = found.partition(': ')
  if why:
    logging.info('Export: no Hugging Face architecture fits (%s).', why)
  else:
    logging.info(
      'Export: the model fits %s of Hugging Face (`xlflax convert to-hf`).',
      name,
    )


def tell_next(trainer: Any, result: dict[str, Any]) -> None:
  """Logs how the run ended, and the commands that come next."""
  from xlflax.training import progress

  spent = progress.duration(sum(result['seconds'].values()))
  loss = result['loss']
  logging.info(
    '%s %s: step %s of %s in %s%s.',
    result['model_dir'],
    'is finished' if result['finished'] else 'has stopped',
    f'{result["step"]:,}',
    f'{trainer.total_steps:,}' if trainer.total_steps else 'its epochs',
    spent,
    '' if loss is None else f', loss {loss:.4f}',
  )
  lines = commands(trainer, result)
  logging.info('Next:\n%s', '\n'.join(f'  {line}' for line in lines))


def commands(trainer: Any, result: dict[str, Any]) -> list[str]:
  """Returns command lines that fit a run, such as its evaluation.

  Args:
    trainer: of the run.
    result: what `Trainer.train` returned.
  """
  directory = shlex.quote(result['model_dir'])
  if not result['finished']:
    return ['the same command, which goes on from the last checkpoint']
  corpus = shlex.quote(trainer.corpus or 'CORPUS')
  from xlflax.models import encoder_decoder
  from xlflax.objectives.finetuning import base as finetuning

  if isinstance(trainer.model, encoder_decoder.EncoderDecoder):
    return [
      f'xlflax translate --model_dir={directory} --source=CODE --target=CODE '
      '--input=FILE --output=FILE',
      f'xlflax evaluate --model_dir={directory} '
      f'--gin_file=evaluate/translation.gin --corpus={corpus}',
    ]
  tuned = [
    _FILES.get(one.name, one.name)
    for one in trainer.objectives.objectives
    if isinstance(one, finetuning.FineTuning)
  ]
  export = f'xlflax convert to-hf {directory} --output=FOLDER'
  if tuned:
    return [
      f'xlflax evaluate --model_dir={directory} '
      f'--gin_file=evaluate/{tuned[0]}.gin',
      export,
    ]
  return [
    f'xlflax evaluate --model_dir={directory} --tasks=retrieval,perplexity '
    f'--corpus={corpus} --steps=all --untrained',
    f'xlflax finetune --init_from={directory} --gin_file=finetune/tagging.gin '
    "--gin.TRAIN_FILES=\"{'en': 'FILE'}\" --output=DIR",
    export,
  ]
