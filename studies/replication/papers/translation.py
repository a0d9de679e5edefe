"""Translation models initialized from encoders (VECO, sections 4 and 6)."""

from studies.replication.conditions import Condition, Size
from studies.replication.study_data import (
  FIRST_LANGUAGE,
  SECOND_LANGUAGE,
  StudyData,
)
from xlflax.data import dataset_config
from xlflax.data.dataset_config import ExampleLayout
from xlflax.evaluation import eval_task
from xlflax.evaluation.tasks import translation_task
from xlflax.evaluation.translation_options import TranslationOptions
from xlflax.models import encoder_decoder
from xlflax.models.encoder_config import MlmHead
from xlflax.models.encoder_decoder_config import (
  EncoderDecoderConfig,
  EncoderDecoderFamily,
  TiedLayers,
)
from xlflax.objectives.pretraining import seq2seq

OBJECTIVE = seq2seq.Translation(
  label_smoothing=0.1, decoder_start=seq2seq.DecoderStart.BOS
)
_NUM_TEST_SENTENCES = 100


def build_model(
  condition: Condition, size: Size
) -> encoder_decoder.EncoderDecoder:
  """Builds a model whose decoder shares layers with its encoder, as in VECO."""
  tied_layers = TiedLayers.LAST
  if condition.decoder is not None and condition.decoder.layers is not None:
    tied_layers = TiedLayers(condition.decoder.layers.value)
  return encoder_decoder.EncoderDecoder(
    EncoderDecoderConfig(
      family=EncoderDecoderFamily.PRE_LN,
      num_encoder_layers=size.layers,
      num_decoder_layers=condition.decoder_layers,
      hidden_dim=size.hidden,
      mlp_dim=4 * size.hidden,
      num_heads=2,
      max_position_embeddings=2 * size.length,
      tie_decoder=True,
      tied_layers=tied_layers,
      mlm_head=MlmHead.TRANSFORM,
      layer_norm_epsilon=1e-12,
      dropout_rate=0.0,
      attention_dropout_rate=0.0,
    )
  )


def build_dataset(size: Size) -> dataset_config.DatasetConfig:
  """Returns a dataset of translations from the first to the second language."""
  return dataset_config.DatasetConfig(
    name='translated',
    mixture='corpus.parallel',
    layout=ExampleLayout.DUAL,
    length=size.length,
    batch_size=size.batch,
    pairs=dataset_config.PairOptions(order=dataset_config.PairOrder.UNCHANGED),
  )


def measure_bleu(
  model: eval_task.EvalModel, data: StudyData
) -> dict[str, float]:
  """Measures the BLEU of greedy translations into the second language.

  Args:
    model: Translation model.
    data: Data and vocabularies of the study's languages.

  Returns:
    A dictionary with BLEU, from 0 to 1, under the key `bleu`.
  """
  name = f'{FIRST_LANGUAGE}-{SECOND_LANGUAGE}'
  path = data.folder / 'translation' / f'test.{name}.tsv'
  task = translation_task.TranslationEval(
    source=translation_task.TsvPairs(
      files={name: str(path)}, max_pairs=_NUM_TEST_SENTENCES
    ),
    options=TranslationOptions(beam_size=1),
  )
  result = task.evaluate(model)
  if result.failures:
    raise RuntimeError(str(result.failures[0]))
  return {'bleu': result.metrics[f'bleu/{name}'] / 100}
