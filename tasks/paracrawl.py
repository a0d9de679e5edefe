"""Tasks over ParaCrawl: web-crawled pairs of English with 23 languages.

The data come from TFDS. The tasks are `paracrawl.en_<language>`. The mixture
`paracrawl` samples each task at a rate proportional to N^0.7, where N is its
number of pairs.

Bañón et al. 2020, "ParaCrawl: Web-Scale Acquisition of Parallel Corpora".
"""

from xlflax.data.seqio_tasks import task_registry, tfds_source

VERSION = '1.2.0'
LANGUAGES = [
  'bg',
  'cs',
  'da',
  'de',
  'el',
  'es',
  'et',
  'fi',
  'fr',
  'ga',
  'hr',
  'hu',
  'it',
  'lt',
  'lv',
  'mt',
  'nl',
  'pl',
  'pt',
  'ro',
  'sk',
  'sl',
  'sv',
]


def register(*, prefix: str = 'paracrawl', data_dir: str | None = None) -> None:
  """Registers the ParaCrawl tasks and the mixture.

  Args:
    prefix: Prefix of the names of the registered tasks and mixtures.
    data_dir: TFDS data directory. See `tfds_source.TfdsSource`.
  """
  names = []
  for language in LANGUAGES:
    names.append(f'{prefix}.en_{language}')
    tfds_source.add_parallel(
      names[-1],
      f'para_crawl/en{language}:{VERSION}',
      languages=('en', language),
      splits={'train': 'train'},
      data_dir=data_dir,
    )
  task_registry.add_mixture(prefix, names)


register()
