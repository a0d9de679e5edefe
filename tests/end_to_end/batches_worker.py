"""One process of a job that writes its examples of steps 10 to 19.

batches_worker.py WORKSPACE OUTPUT NUM_PROCESSES PROCESS_ID PORT
"""

import pathlib
import sys

import numpy as np

from xlflax.data import dataset_config, loader_factory, prefetch
from xlflax.data.tokenizers import base_vocabulary
from xlflax.training.devices import partitioning
from xlflax.training.distributed import distributed_job


def main(root: str, output: str, processes: str, index: str, port: str):
  if processes != '1':
    distributed_job.initialize_distributed(
      coordinator_address=f'127.0.0.1:{port}',
      num_processes=int(processes),
      process_id=int(index),
    )
  dataset = dataset_config.DatasetConfig(
    name='mono',
    mixture='corpus.mono',
    layout=dataset_config.ExampleLayout.BLOCKS,
    length=16,
    batch_size=8,
    alpha=0.7,
  )
  loader = loader_factory.open_loader(
    dataset,
    seed=0,
    cache_dir=pathlib.Path(root) / 'cache',
    vocabulary=base_vocabulary.Vocabulary.load(
      pathlib.Path(root) / 'vocabulary'
    ),
  )
  feed = prefetch.Prefetcher(
    loader,
    sharding=partitioning.Partitioner().batch_sharding,
    first_step=10,
    size=2,
  )
  rows = {}
  for step in range(10, 20):
    for key, value in feed.next().items():
      shards = sorted(
        value.addressable_shards, key=lambda shard: shard.index[0].start or 0
      )
      rows[f'{step}/{key}'.replace('/', '_')] = np.concatenate(
        [shard.data for shard in shards]
      )
  feed.close()
  np.savez(pathlib.Path(output) / f'{processes}-{index}.npz', **rows)


if __name__ == '__main__':
  main(*sys.argv[1:])
