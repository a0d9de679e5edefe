"""Evaluation tasks, their text sources, and their settings."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.evaluation.during_training import Evaluation
  from xlflax.evaluation.eval_task import (
    EvalModel,
    EvalResult,
    EvalTask,
    Failure,
  )
  from xlflax.evaluation.task_sources import SeqioPairs, TaskText
  from xlflax.evaluation.tasks.classification_task import Classification
  from xlflax.evaluation.tasks.mining_task import BitextMining
  from xlflax.evaluation.tasks.parsing_task import Parsing
  from xlflax.evaluation.tasks.perplexity import (
    Perplexity,
    TranslationPerplexity,
  )
  from xlflax.evaluation.tasks.question_answering_task import ExtractiveQA
  from xlflax.evaluation.tasks.retrieval_predictions import RetrievalPredictions
  from xlflax.evaluation.tasks.retrieval_task import Retrieval
  from xlflax.evaluation.tasks.tagging_task import Tagging
  from xlflax.evaluation.tasks.translation_task import TranslationEval
  from xlflax.evaluation.tasks.word_alignment_task import WordAlignment
  from xlflax.evaluation.tatoeba_pairs import Tatoeba
  from xlflax.evaluation.text_sources import (
    CorpusText,
    PairSource,
    ParallelCorpus,
    ParallelFiles,
    TextSource,
  )
  from xlflax.evaluation.translation_options import TranslationOptions
