"""Tests of the file format of shards."""

import numpy as np
import pytest
import safetensors.numpy

from xlflax.data import tokenized_examples
from xlflax.data.cache import shards as cache_shards
from xlflax.storage import checksums


@pytest.mark.parametrize('dtype', [np.uint16, np.int32])
@pytest.mark.parametrize('sides', [('targets',), ('inputs', 'targets')])
def test_shard_files_equal_those_of_safetensors(
  tmp_path, toy_vocabulary, dtype, sides
):
  path = tmp_path / 'a.safetensors'
  batches = [
    tokenized_examples.Examples(
      tuple(
        tokenized_examples.Ragged(
          np.arange(sum(lengths), dtype=np.int32) % 7,
          np.array(lengths, np.int64),
        )
        for _ in sides
      ),
      np.ones(len(lengths), bool),
    )
    for lengths in ([2, 3], [], [0, 1])
  ]
  entry = cache_shards.write_shard_file(
    path, batches, dtype=dtype, spec=toy_vocabulary.spec, sides=sides
  )
  content = path.read_bytes()
  arrays = safetensors.numpy.load(content)
  assert safetensors.numpy.save(arrays) == content
  assert arrays['targets'].tolist() == [0, 1, 2, 2, 3, 4, 2, 0, 2]
  assert arrays['targets.offsets'].tolist() == [0, 3, 7, 9]
  assert arrays['targets'].dtype == dtype and len(arrays) == 1 + 2 * len(sides)
  assert entry.digest == checksums.digest_file(path)
  assert entry.tokens == (6,) * len(sides)
  assert entry.unknown == (1,) * len(sides)  # ID 3 is the unknown token
  assert (entry.examples, entry.empty) == (3, 1)
