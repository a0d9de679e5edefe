"""Translation models that begin from encoders (VECO, sections 4 and 6)."""

from studies.replication.conditions import Condition, Size
from studies.replication.worlds import FIRST, SECOND, World
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
_TRANSLATED = 100  # sentences


def model(condition: Condition, size: Size) -> encoder_decoder.EncoderDecoder:
  """A deep encoder and a decoder that shares its layers, as VECO's."""
  layers = TiedLayers.LAST
  if condition.decoder is not None and condition.decoder.layers is not None:
    layers = TiedLayers(condition.decoder.layers.value)
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
      tied_layers=layers,
      mlm_head=MlmHead.TRANSFORM,
      layer_norm_epsilon=1e-12,
      dropout_rate=0.0,
      attention_dropout_rate=0.0,
    )
  )


def dataset(size: Size) -> dataset_config.DatasetConfig:
  """Pairs, the first language on the first side."""
  return dataset_config.DatasetConfig(
    name='translated',
    mixture='corpus.parallel',
    layout=ExampleLayout.SIDES,
    length=size.length,
    batch_size=size.batch,
    pairs=dataset_config.PairOptions(order=dataset_config.PairOrder.AS_IS),
  )


def measure(subject: eval_task.EvalModel, world: World) -> dict[str, float]:
  """BLEU of greedy translations into the second language, from 0 to 1."""
  name = f'{FIRST}-{SECOND}'
  task = translation_task.TranslationEval(
    source=translation_task.TsvPairs(
      files={name: str(world.folder / 'translation' / f'test.{name}.tsv')},
      max_pairs=_TRANSLATED,
    ),
    options=TranslationOptions(beam_size=1),
  )
  result = task.evaluate(subject)
  if result.failures:
    raise RuntimeError(str(result.failures[0]))
  return {'bleu': result.metrics[f'bleu/{name}'] / 100}
