"""Checks that data are compatible with language-specific parameters."""

from collections.abc import Sequence

from xlflax.data import dataset_config, loader_base
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.models.variants import parameter_sharing
from xlflax.utils import errors


def check_sharing(
  plan: parameter_sharing.SharingPlan | None,
  datasets: Sequence[loader_base.AnyDatasetConfig],
  spec: VocabularySpec,
) -> None:
  """Checks that each batch contains sequences of a single language.

  For each batch, a sharing plan selects the parameters of a single language.

  Args:
    plan: Encoder parameters of which each language has its own copy. If None,
      the languages share all parameters.
    datasets: Datasets on which the run trains.
    spec: Sizes and special ids of the vocabulary.

  Raises:
    ConfigError: If a dataset mixes languages in a batch or in a sequence, or if
      one id of the vocabulary stands for different words although embeddings
      are shared.
  """
  if spec.words_overlap and not (plan is not None and plan.embeddings):
    raise errors.ConfigError(
      'The languages of the vocabulary use the same ids for different words, '
      'which requires separate embeddings',
      got=f'sharing={plan}',
      expected='SharingPlan(embeddings=True)',
      where='EncoderConfig.sharing',
      fix='Set SharingPlan.embeddings, or train the vocabulary with '
      '`xlflax vocab --vocab_sharing=none`.',
    )
  if plan is not None:
    for dataset in datasets:
      _check_dataset(dataset)


def _check_dataset(dataset: loader_base.AnyDatasetConfig) -> None:
  """Raises ConfigError if a batch of a dataset can mix languages."""
  where = f'dataset {dataset.name!r}'
  text = dataset if isinstance(dataset, dataset_config.DatasetConfig) else None
  if text and text.layout is dataset_config.ExampleLayout.PAIRS:
    raise errors.ConfigError(
      'A sharing plan requires that each sequence contains a single language',
      got='layout=PAIRS',
      expected='layout=DUAL',
      where=where,
      fix='Use ExampleLayout.DUAL, or do not set EncoderConfig.sharing.',
    )
  if dataset.batching is not dataset_config.LanguageBatching.ONE_LANGUAGE:
    raise errors.ConfigError(
      'A sharing plan requires that each batch contains a single language',
      got=f'batching={dataset.batching.name}',
      expected='batching=ONE_LANGUAGE',
      where=where,
      fix="Set batching='one_language' for the dataset.",
    )
  if (
    text
    and text.layout is dataset_config.ExampleLayout.DUAL
    and text.pairs.order is dataset_config.PairOrder.RANDOM
  ):
    raise errors.ConfigError(
      'A sharing plan requires that all first sentences of pairs have one '
      'language, and all second sentences another. Swapping them at random '
      'mixes the languages',
      got='pairs.order=RANDOM',
      expected='pairs.order=UNCHANGED',
      where=where,
      fix="Set order='unchanged' in the PairOptions of the dataset.",
    )
