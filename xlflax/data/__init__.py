"""Vocabularies, sources, streams, token caches and loaders."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.data.corpus.directory import Corpus
  from xlflax.data.corpus.writer import write_monolingual, write_parallel
  from xlflax.data.labelled.rows.classification_rows import ClassificationRows
  from xlflax.data.labelled.rows.parsing_rows import ParsingRows
  from xlflax.data.labelled.rows.question_rows import QuestionRows
  from xlflax.data.labelled.rows.tagging_rows import TaggingRows
  from xlflax.data.labelled.sources.source import FileExamples
  from xlflax.data.labelled.sources.task_source import TaskExamples
  from xlflax.data.labelled.stream import LabelledStream
  from xlflax.data.stream import (
    LanguageBatching,
    Layout,
    Packing,
    PairOptions,
    Positions,
    Separator,
    SideOrder,
    Stream,
  )
  from xlflax.data.vocabularies.spec import VocabularySpec
  from xlflax.data.vocabularies.training import train_vocabulary
  from xlflax.data.vocabularies.vocabulary import Vocabulary
