"""Tests of the division of a task into units of work."""

from xlflax.data.cache import shard_plan as cache_parts
from xlflax.data.cache import write_plan as cache_jobs


class _TenShards:
  """Task with a source of 95 examples, that is, ten shards of ten examples."""

  def source_size(self, task, split):
    return 95


def test_units_cover_missing_shards(tmp_path):
  part = cache_parts.Part('p', '[]', None, None, None)
  job = cache_jobs.Job(
    cache=tmp_path,
    task='t',
    split='train',
    languages=('en',),
    vocabulary='v',
    fingerprint='{}',
    shard_size=10 * 256,
    dtype='uint16',
    parts=(part,),
  )

  def units(num_processes):
    part_units = job._part_units(part, _TenShards(), num_processes, finished)
    return [(unit.first, unit.last) for unit in part_units]

  finished = set()
  assert units(1) == [(0, 4), (4, 8), (8, None)]
  finished = set(map(part.name, (0, 1, 5)))
  assert units(2) == [(2, 4), (4, 5), (6, 8), (8, None)]
  finished = set(map(part.name, range(10)))
  assert units(2) == [(10, None)]
  job.end_part(part, 10)
  assert units(2) == []
