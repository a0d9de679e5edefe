"""Evaluation tasks: what a checkpoint is measured by."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.evaluation.base import EvalResult, EvalTask, Failure, Subject
  from xlflax.evaluation.during_training import Evaluation
  from xlflax.evaluation.sources import (
    CorpusPairs,
    CorpusText,
    FilePairs,
    PairSource,
    TextSource,
  )
  from xlflax.evaluation.task_sources import TaskPairs, TaskText
  from xlflax.evaluation.tasks.classification import Classification
  from xlflax.evaluation.tasks.mining import BitextMining
  from xlflax.evaluation.tasks.nearest_sentences import NearestSentences
  from xlflax.evaluation.tasks.parsing import Parsing
  from xlflax.evaluation.tasks.perplexity import (
    Perplexity,
    TranslationPerplexity,
  )
  from xlflax.evaluation.tasks.question_answering import ExtractiveQA
  from xlflax.evaluation.tasks.retrieval import Retrieval
  from xlflax.evaluation.tasks.tagging import Tagging
  from xlflax.evaluation.tasks.translation import TranslationQuality
  from xlflax.evaluation.tasks.word_alignment import WordAlignment
  from xlflax.evaluation.tatoeba import Tatoeba
  from xlflax.evaluation.translation_options import TranslationOptions
