"""Vocabularies, text sources, datasets, token caches and loaders."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.data.corpus.corpus_directory import Corpus
  from xlflax.data.corpus.corpus_writer import write_monolingual, write_parallel
  from xlflax.data.dataset_config import (
    DatasetConfig,
    ExampleLayout,
    LanguageBatching,
    Packing,
    PairOptions,
    PairOrder,
    PositionIds,
    SpecialTokenTemplate,
  )
  from xlflax.data.supervised.featurizers.classification_featurizer import (
    ClassificationFeaturizer,
  )
  from xlflax.data.supervised.featurizers.parsing_featurizer import (
    ParsingFeaturizer,
  )
  from xlflax.data.supervised.featurizers.question_featurizer import (
    QuestionAnsweringFeaturizer,
  )
  from xlflax.data.supervised.featurizers.tagging_featurizer import (
    TaggingFeaturizer,
  )
  from xlflax.data.supervised.sources.example_source import FileDataset
  from xlflax.data.supervised.sources.task_source import SeqioDataset
  from xlflax.data.supervised.supervised_dataset import LabeledDatasetConfig
  from xlflax.data.tokenizers.base_vocabulary import Vocabulary
  from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
  from xlflax.data.tokenizers.vocabulary_training import train_vocabulary
