"""Vocabularies, text sources, streams, token caches and loaders."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.data.corpus.corpus_directory import Corpus
  from xlflax.data.corpus.corpus_writer import write_monolingual, write_parallel
  from xlflax.data.dataset_config import (
    LanguageBatching,
    Layout,
    Packing,
    PairOptions,
    Positions,
    Separator,
    SideOrder,
    Stream,
  )
  from xlflax.data.supervised.featurizers.classification_featurizer import (
    ClassificationRows,
  )
  from xlflax.data.supervised.featurizers.parsing_featurizer import ParsingRows
  from xlflax.data.supervised.featurizers.question_featurizer import (
    QuestionRows,
  )
  from xlflax.data.supervised.featurizers.tagging_featurizer import TaggingRows
  from xlflax.data.supervised.sources.example_source import FileExamples
  from xlflax.data.supervised.sources.task_source import TaskExamples
  from xlflax.data.supervised.supervised_dataset import LabelledStream
  from xlflax.data.tokenizers.base_vocabulary import Vocabulary
  from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
  from xlflax.data.tokenizers.vocabulary_training import train_vocabulary
