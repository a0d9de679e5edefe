"""Speed of beam search in xlflax and transformers; see `benchmarks.inference`.

python -m benchmarks.beam_search
"""

from collections.abc import Callable
from typing import Any

from benchmarks import inference, measure, sentences, shapes

SHAPE = shapes.Shape(vocabulary=16_000, batch=32, length=48, dropout=0.0)
VARIANTS = ('x/beam_search', 'torch/beam_search')
BEAM_SIZE = 5
# Fraction of equal hypotheses. Rounding can change the course of a beam.
_MIN_AGREEMENT = 0.9


def make_translate_function(
  variant: str, shape: shapes.Shape, count: int
) -> Callable[[], list[list[int]]]:
  """Returns a function that translates random sentences.

  Args:
    variant: Implementation of beam search, one of `VARIANTS`.
    shape: Sizes of the model. Translations have at most `shape.length` tokens.
    count: Number of sentences to translate.
  """
  from benchmarks.baselines import converted

  texts = sentences.make_random_sentences(
    count, vocabulary=shape.vocabulary, max_words=shape.length - 2
  )
  model = converted.make_encoder_decoder(shape, positions=shape.length)
  if variant.startswith('torch/'):
    from benchmarks.baselines import inference as baseline

    return baseline.make_beam_search_function(
      model,
      sentences.tokenize_sentences(texts),
      shape.batch,
      beam_size=BEAM_SIZE,
      max_length=shape.length,
    )
  from xlflax.evaluation import (
    eval_task,
    sentence_translator,
    translation_options,
  )
  from xlflax.models import encoder_decoder

  config, params = converted.convert_model(model)
  vocabulary: Any = sentences.NumberVocabulary(shape.vocabulary)
  translator = sentence_translator.Translator(
    eval_task.EvalModel(
      model=encoder_decoder.EncoderDecoder(config),
      params=params,
      vocabulary=vocabulary,
      batch_size=shape.batch,
    ),
    source='en',
    target='de',
    options=translation_options.TranslationOptions(
      beam_size=BEAM_SIZE,
      decoder_start='bos',
      max_length=shape.length,
      max_length_ratio=shape.length,
    ),
  )
  return lambda: [
    [int(token) for token in best[0].text.split()]
    for best in translator.translate(texts).hypotheses
  ]


def measure_variant(
  variant: str, shape: shapes.Shape, count: int, calls: int
) -> dict[str, Any]:
  """Times one beam search implementation, and returns its times and output."""
  call = make_translate_function(variant, shape, count)
  outputs: list[list[list[int]]] = []
  figures = measure.time_calls(lambda: outputs.append(call()), calls=calls)
  return figures | {'work': sum(map(len, outputs[-1])), 'outputs': outputs[-1]}


def outputs_agree(first: Any, second: Any) -> bool:
  """Returns whether nearly all hypotheses of two beam searches are equal."""
  num_equal = sum(a == b for a, b in zip(first, second, strict=True))
  return num_equal >= _MIN_AGREEMENT * len(first)


def main(arguments=None) -> None:
  """Compares xlflax with transformers and prints a table."""
  inference.compare_variants(
    arguments,
    module='benchmarks.beam_search',
    variants=VARIANTS,
    shape=SHAPE,
    count=32,
    unit='tokens',
    are_equal=outputs_agree,
    measure_function=measure_variant,
  )


if __name__ == '__main__':
  main()
