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
    plan: Encoder parameters with a separate copy for each language. If None,
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
      'so each language requires its own embeddings. `EncoderConfig.sharing` '
      f'must be a SharingPlan with embeddings=True, but it is {plan}',
      fix='Set SharingPlan.embeddings = True, or train the vocabulary with '
      '`xlflax vocab --vocab_sharing=none`.',
    )
  if plan is not None:
    for dataset in datasets:
      _check_dataset(dataset)


def _check_dataset(dataset: loader_base.AnyDatasetConfig) -> None:
  """Raises ConfigError if a batch of a dataset can mix languages."""
  text = dataset if isinstance(dataset, dataset_config.DatasetConfig) else None
  if text and text.layout is dataset_config.ExampleLayout.PAIRS:
    raise errors.ConfigError(
      f'Dataset {dataset.name!r} has the layout PAIRS, but a sharing plan '
      'requires that each sequence contains a single language',
      fix='Use ExampleLayout.DUAL, or do not set EncoderConfig.sharing.',
    )
  if dataset.batching is not dataset_config.LanguageBatching.ONE_LANGUAGE:
    raise errors.ConfigError(
      f'Dataset {dataset.name!r} has the batching {dataset.batching.name}, but '
      'a sharing plan requires ONE_LANGUAGE, so that each batch contains a '
      'single language',
      fix="Set batching='one_language' for the dataset.",
    )
  if (
    text
    and text.layout is dataset_config.ExampleLayout.DUAL
    and text.pairs.order is dataset_config.PairOrder.RANDOM
  ):
    raise errors.ConfigError(
      f'Dataset {dataset.name!r} swaps the sentences of pairs at random '
      '(pairs.order=RANDOM). A sharing plan requires pairs.order=UNCHANGED, so '
      'that all first sentences are in one language and all second sentences '
      'are in another',
      fix="Set order='unchanged' in the PairOptions of the dataset.",
    )
