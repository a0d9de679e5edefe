"""Tasks over multilingual C4: web pages in 107 languages and scripts.

The tasks are `mc4.<language>`. The mixture `mc4` samples each language at a
rate proportional to N^0.7, where N is its number of pages. Each page becomes
one document with the same lines. All languages are splits of one TFDS dataset,
`c4/multilingual`.

Xue et al. 2021, "mT5", section 3.1.
"""

from xlflax.data.seqio_tasks import preprocessors, task_registry, tfds_source

VERSION = '3.1.0'
LANGUAGES = [
  'af',
  'am',
  'ar',
  'az',
  'be',
  'bg',
  'bg-Latn',
  'bn',
  'ca',
  'ceb',
  'co',
  'cs',
  'cy',
  'da',
  'de',
  'el',
  'el-Latn',
  'en',
  'eo',
  'es',
  'et',
  'eu',
  'fa',
  'fi',
  'fil',
  'fr',
  'fy',
  'ga',
  'gd',
  'gl',
  'gu',
  'ha',
  'haw',
  'hi',
  'hi-Latn',
  'hmn',
  'ht',
  'hu',
  'hy',
  'id',
  'ig',
  'is',
  'it',
  'iw',
  'ja',
  'ja-Latn',
  'jv',
  'ka',
  'kk',
  'km',
  'kn',
  'ko',
  'ku',
  'ky',
  'la',
  'lb',
  'lo',
  'lt',
  'lv',
  'mg',
  'mi',
  'mk',
  'ml',
  'mn',
  'mr',
  'ms',
  'mt',
  'my',
  'ne',
  'nl',
  'no',
  'ny',
  'pa',
  'pl',
  'ps',
  'pt',
  'ro',
  'ru',
  'ru-Latn',
  'sd',
  'si',
  'sk',
  'sl',
  'sm',
  'sn',
  'so',
  'sq',
  'sr',
  'st',
  'su',
  'sv',
  'sw',
  'ta',
  'te',
  'tg',
  'th',
  'tr',
  'uk',
  'ur',
  'uz',
  'vi',
  'xh',
  'yi',
  'yo',
  'zh',
  'zh-Latn',
  'zu',
]


def language_code(name: str) -> str:
  """Converts a C4 language code to an xlflax code, such as `iw` to `he`."""
  return 'he' if name == 'iw' else name.replace('-', '_')


def register(*, prefix: str = 'mc4', data_dir: str | None = None) -> None:
  """Registers the mC4 tasks and the mixture.

  Args:
    prefix: Prefix of the names of the registered tasks and mixtures.
    data_dir: TFDS data directory. See `tfds_source.TfdsSource`.
  """
  names = []
  for language in LANGUAGES:
    names.append(f'{prefix}.{language_code(language)}')
    tfds_source.add_monolingual(
      names[-1],
      f'c4/multilingual:{VERSION}',
      language=language_code(language),
      splits={'train': language, 'validation': f'{language}-validation'},
      preprocessors=(preprocessors.split_lines,),
      data_dir=data_dir,
    )
  task_registry.add_mixture(prefix, names)


register()
