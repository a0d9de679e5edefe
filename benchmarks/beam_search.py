"""Beam search beside transformers on torch; see `benchmarks.inference`.

python -m benchmarks.beam_search
"""

from collections.abc import Callable
from typing import Any

from benchmarks import inference, measure, sentences, shapes

SHAPE = shapes.Shape(vocabulary=16_000, batch=32, length=48, dropout=0.0)
VARIANTS = ('x/beam_search', 'torch/beam_search')
BEAM_SIZE = 5
_MIN_AGREEMENT = 0.9  # of the hypotheses; rounding can change a beam's course


def make_translate_function(
  variant: str, shape: shapes.Shape, count: int
) -> Callable[[], list[list[int]]]:
  """A function that translates `count` sentences into up to `length` tokens."""
  from benchmarks.peers import converted

  texts = sentences.make_random_sentences(
    count, vocabulary=shape.vocabulary, longest=shape.length - 2
  )
  model = converted.make_encoder_decoder(shape, positions=shape.length)
  if variant.startswith('torch/'):
    from benchmarks.peers import inference as peer

    return peer.make_beam_search_function(
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
  one = sentence_translator.Translator(
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
    [int(word) for word in best[0].text.split()]
    for best in one.translate(texts).hypotheses
  ]


def measure_variant(
  variant: str, shape: shapes.Shape, count: int, calls: int
) -> dict[str, Any]:
  """Times one variant in this process."""
  call = make_translate_function(variant, shape, count)
  kept: list[list[list[int]]] = []
  figures = measure.time_calls(lambda: kept.append(call()), calls=calls)
  return figures | {'work': sum(map(len, kept[-1])), 'outputs': kept[-1]}


def outputs_agree(one: Any, other: Any) -> bool:
  """Whether nearly all hypotheses are the same."""
  same = sum(a == b for a, b in zip(one, other, strict=True))
  return same >= _MIN_AGREEMENT * len(one)


def main(arguments=None) -> None:
  inference.compare_variants(
    arguments,
    module='benchmarks.beam_search',
    variants=VARIANTS,
    shape=SHAPE,
    count=32,
    unit='tokens',
    agree=outputs_agree,
    measure_one=measure_variant,
  )


if __name__ == '__main__':
  main()
