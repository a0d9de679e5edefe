"""SeqIO task that tokenizes text files, for SeqIO's `cache_tasks` program.

Pass this module to `cache_tasks` with `--module_import`. It reads its inputs
from environment variables, because Beam's workers also import it.
"""

import os

import seqio
import tensorflow as tf


def _name_targets(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Converts each line to an example with the single feature 'targets'."""
  return dataset.map(lambda line: {'targets': line})


seqio.TaskRegistry.add(
  'xlflax_benchmark',
  source=seqio.TextLineDataSource(
    {'train': os.environ['XLFLAX_BENCHMARK_TEXTS'].split(os.pathsep)}
  ),
  preprocessors=[
    _name_targets,
    seqio.preprocessors.tokenize,
    seqio.CacheDatasetPlaceholder(),
  ],
  output_features={
    'targets': seqio.Feature(
      seqio.SentencePieceVocabulary(os.environ['XLFLAX_BENCHMARK_MODEL']),
      add_eos=False,
    )
  },
)
