"""Training objectives, which compute a loss and metrics for a batch."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.objectives.finetuning.dependency_parsing import DependencyParsing
  from xlflax.objectives.finetuning.question_answering import QuestionAnswering
  from xlflax.objectives.finetuning.sequence_classification import (
    SequenceClassification,
  )
  from xlflax.objectives.finetuning.token_classification import (
    TokenClassification,
  )
  from xlflax.objectives.objective_base import (
    Objective,
    ObjectiveContext,
    ObjectiveOutput,
    WeightedMean,
  )
  from xlflax.objectives.objective_mixture import (
    Combine,
    ObjectiveMixture,
    WeightedObjective,
  )
  from xlflax.objectives.pretraining.cross_attention_mlm import (
    CrossAttentionMLM,
  )
  from xlflax.objectives.pretraining.denoising import (
    MaskedSeq2Seq,
    SpanCorruption,
    TextInfilling,
  )
  from xlflax.objectives.pretraining.distillation import Distillation
  from xlflax.objectives.pretraining.masked_lm import MaskedLM, TranslationLM
  from xlflax.objectives.pretraining.replaced_token import (
    ReplacedTokenDetection,
  )
  from xlflax.objectives.pretraining.sentence_alignment import SentenceAlignment
  from xlflax.objectives.pretraining.seq2seq import Translation
