"""Tasks over WMT 2014 to 2019: news translation pairs from TFDS.

The tasks are `wmt<year>.<l1>_<l2>`. For each year, a mixture `wmt<year>`
samples its tasks at rates proportional to N^0.7, where N is the number of
pairs. WMT 2019 has no test split.
"""

from xlflax.data.seqio_tasks import task_registry, tfds_source

VERSION = '1.0.0'
PAIRS = {
  14: ('cs-en', 'de-en', 'fr-en', 'hi-en', 'ru-en'),
  15: ('cs-en', 'de-en', 'fi-en', 'fr-en', 'ru-en'),
  16: ('cs-en', 'de-en', 'fi-en', 'ro-en', 'ru-en', 'tr-en'),
  17: ('cs-en', 'de-en', 'fi-en', 'lv-en', 'ru-en', 'tr-en', 'zh-en'),
  18: ('cs-en', 'de-en', 'et-en', 'fi-en', 'ru-en', 'tr-en', 'zh-en'),
  19: (
    'cs-en',
    'de-en',
    'fi-en',
    'gu-en',
    'kk-en',
    'lt-en',
    'ru-en',
    'zh-en',
    'fr-de',
  ),
}


def register(*, prefix: str = 'wmt', data_dir: str | None = None) -> None:
  """Registers the WMT tasks and the mixtures.

  Args:
    prefix: Prefix of the names of the registered tasks and mixtures.
    data_dir: TFDS data directory. See `tfds_source.TfdsSource`.
  """
  for year, pairs in PAIRS.items():
    splits = dict(tfds_source.DEFAULT_SPLITS)
    if year == 19:
      del splits['test']
    names = []
    for pair in pairs:
      first, second = pair.split('-')
      names.append(f'{prefix}{year}.{first}_{second}')
      tfds_source.add_parallel(
        names[-1],
        f'wmt{year}_translate/{pair}:{VERSION}',
        languages=(first, second),
        splits=splits,
        data_dir=data_dir,
      )
    task_registry.add_mixture(f'{prefix}{year}', names)


register()
