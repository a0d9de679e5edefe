"""Analyses of how similarly a model represents different languages."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.analysis.alignment_study import AlignmentStudy
  from xlflax.analysis.cka_study import CkaStudy
  from xlflax.analysis.lexicon_induction_study import LexiconInductionStudy
  from xlflax.analysis.procrustes_study import ProcrustesStudy
  from xlflax.analysis.sentence_study import SentenceRetrievalStudy
  from xlflax.analysis.training_curves import LearningCurvesStudy
  from xlflax.analysis.transfer_matrix_study import TransferMatrixStudy
  from xlflax.analysis.transfer_study import HeadTransferStudy
