"""Multilingual C4: web pages of 107 languages and scripts, from TFDS.

Tasks `mc4.<language>` and the mixture `mc4` with rates N^0.7, N the number of
pages. A line of a page is a line, a page a document. All languages are one TFDS
dataset, `c4/multilingual`, whose splits they are.

Xue et al. 2021, "mT5", section 3.1.
"""

from xlflax.data.seqio_tasks import preprocessors, tfds_source
from xlflax.data.seqio_tasks import task_registry as task_registry

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


def code_of(name: str) -> str:
  """C4's name of a language as a code: `zh-Latn` is `zh_Latn`, `iw` `he`."""
  return 'he' if name == 'iw' else name.replace('-', '_')


def register(*, prefix: str = 'mc4', data_dir: str | None = None) -> None:
  """Registers the tasks and the mixture; see `tfds_source.TfdsSource`."""
  names = []
  for language in LANGUAGES:
    names.append(f'{prefix}.{code_of(language)}')
    tfds_source.add_monolingual(
      names[-1],
      f'c4/multilingual:{VERSION}',
      language=code_of(language),
      splits={'train': language, 'validation': f'{language}-validation'},
      preprocessors=(preprocessors.split_lines,),
      data_dir=data_dir,
    )
  task_registry.add_mixture(prefix, names)


register()
