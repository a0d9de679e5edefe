"""A SeqIO task over text files, for SeqIO's own `cache_tasks`.

`--module_import` names this module; what it reads is in the environment, as
Beam's workers import it too.
"""

import os

import seqio
import tensorflow as tf


def _name_targets(dataset: tf.data.Dataset) -> tf.data.Dataset:
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
