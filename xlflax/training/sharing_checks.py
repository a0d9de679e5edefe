"""Checks of streams and vocabulary against a sharing plan."""

from collections.abc import Sequence

from xlflax.data import dataset_config, loader_base
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models.variants import parameter_sharing
from xlflax.utils import errors


def check_sharing(
  plan: parameter_sharing.SharingPlan | None,
  streams: Sequence[loader_base.AnyStream],
  spec: VocabularySpec,
) -> None:
  """Each batch has the parts of one language: so must its rows.

  Raises:
    ConfigError: a stream mixes languages in a batch or in a row, or one id of
      the vocabulary means different words but embeddings are shared.
  """
  if spec.words_overlap and not (plan is not None and plan.embeddings):
    raise errors.ConfigError(
      'The vocabulary has one id for different words of its languages, but '
      'their embeddings are shared',
      got=f'sharing={plan}',
      expected='SharingPlan(embeddings=True)',
      where='EncoderConfig.sharing',
      fix='separate the embeddings, or make the vocabulary with '
      '`xlflax vocab --vocab_sharing=none`',
    )
  if plan is not None:
    for stream in streams:
      _check_stream(stream)


def _check_stream(stream: loader_base.AnyStream) -> None:
  where = f'stream {stream.name!r}'
  text = stream if isinstance(stream, dataset_config.Stream) else None
  if text and text.layout is dataset_config.Layout.PAIRS:
    raise errors.ConfigError(
      'A row of two languages cannot be read with the parts of one',
      got='layout=PAIRS with a sharing plan',
      expected='rows of one language',
      where=where,
      fix='take Layout.SIDES, or leave EncoderConfig.sharing unset',
    )
  if stream.batching is not dataset_config.LanguageBatching.ONE_LANGUAGE:
    raise errors.ConfigError(
      'A sharing plan needs batches of one language',
      got=f'batching={stream.batching.name}',
      expected='ONE_LANGUAGE',
      where=where,
      fix="set the stream's batching to 'one_language'",
    )
  if (
    text
    and text.layout is dataset_config.Layout.SIDES
    and text.pairs.order is dataset_config.SideOrder.RANDOM
  ):
    raise errors.ConfigError(
      'Sides exchanged at random put two languages in the batch of a side',
      got='pairs.order=RANDOM with a sharing plan',
      expected='AS_IS',
      where=where,
      fix="set the order of the stream's PairOptions to 'as_is'",
    )
