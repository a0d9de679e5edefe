"""Vocabularies, sources, streams, token caches and loaders."""

from typing import TYPE_CHECKING

from xlflax.foundation import lazy

if TYPE_CHECKING:
  from xlflax.data.corpus.directory import Corpus as Corpus
  from xlflax.data.corpus.writer import write_monolingual as write_monolingual
  from xlflax.data.corpus.writer import write_parallel as write_parallel
  from xlflax.data.labelled.rows.classification_rows import (
    ClassificationRows as ClassificationRows,
  )
  from xlflax.data.labelled.rows.parsing_rows import ParsingRows as ParsingRows
  from xlflax.data.labelled.rows.question_rows import (
    QuestionRows as QuestionRows,
  )
  from xlflax.data.labelled.rows.tagging_rows import TaggingRows as TaggingRows
  from xlflax.data.labelled.sources.source import FileExamples as FileExamples
  from xlflax.data.labelled.sources.task_source import (
    TaskExamples as TaskExamples,
  )
  from xlflax.data.labelled.stream import LabelledStream as LabelledStream
  from xlflax.data.stream import LanguageBatching as LanguageBatching
  from xlflax.data.stream import Layout as Layout
  from xlflax.data.stream import Packing as Packing
  from xlflax.data.stream import PairOptions as PairOptions
  from xlflax.data.stream import Positions as Positions
  from xlflax.data.stream import Separator as Separator
  from xlflax.data.stream import SideOrder as SideOrder
  from xlflax.data.stream import Stream as Stream
  from xlflax.data.vocabularies.spec import VocabularySpec as VocabularySpec
  from xlflax.data.vocabularies.training import (
    train_vocabulary as train_vocabulary,
  )
  from xlflax.data.vocabularies.vocabulary import Vocabulary as Vocabulary
else:
  __getattr__, __dir__, __all__ = lazy.exports(__spec__)
