"""Tasks over Wiki40B: cleaned Wikipedia articles in 41 languages, from TFDS.

The tasks are `wiki40b.<language>`. The mixture `wiki40b` samples each language
at a rate proportional to N^0.7, where N is its number of articles. Titles are
dropped. Each article becomes a document, and each paragraph a line.

Guo et al. 2020, "Wiki-40B: Multilingual Language Model Dataset".
"""

import tensorflow as tf

from xlflax.data.seqio_tasks import preprocessors, task_registry, tfds_source

VERSION = '1.3.0'
LANGUAGES = [
  'ar',
  'bg',
  'ca',
  'cs',
  'da',
  'de',
  'el',
  'en',
  'es',
  'et',
  'fa',
  'fi',
  'fr',
  'he',
  'hi',
  'hr',
  'hu',
  'id',
  'it',
  'ja',
  'ko',
  'lt',
  'lv',
  'ms',
  'nl',
  'no',
  'pl',
  'pt',
  'ro',
  'ru',
  'sk',
  'sl',
  'sr',
  'sv',
  'th',
  'tl',
  'tr',
  'uk',
  'vi',
  'zh-cn',
  'zh-tw',
]
CODES = {'zh-cn': 'zh_CN', 'zh-tw': 'zh_TW'}


def paragraphs(dataset: tf.data.Dataset) -> tf.data.Dataset:
  r"""Removes structural markers and titles from articles.

  Before:
  `\n_START_ARTICLE_\nSol\n_START_SECTION_\nName\n_START_PARAGRAPH_\nThe
  sun._NEWLINE_A star.`;
  after: `\nThe sun.\nA star.`.
  """

  @tf.autograph.experimental.do_not_convert
  def clean(example):
    text = tf.strings.regex_replace(
      example['text'], r'_START_(ARTICLE|SECTION)_\n[^\n]*\n?', ''
    )
    text = tf.strings.regex_replace(text, r'_START_PARAGRAPH_\n', '')
    return {'text': tf.strings.regex_replace(text, '_NEWLINE_', '\n')}

  return dataset.map(clean, num_parallel_calls=tf.data.AUTOTUNE)


def register(*, prefix: str = 'wiki40b', data_dir: str | None = None) -> None:
  """Registers the Wiki40B tasks and the mixture.

  Args:
    prefix: Prefix of the names of the registered tasks and mixtures.
    data_dir: TFDS data directory. See `tfds_source.TfdsSource`.
  """
  names = []
  for config in LANGUAGES:
    code = CODES.get(config, config)
    names.append(f'{prefix}.{code}')
    tfds_source.add_monolingual(
      names[-1],
      f'wiki40b/{config}:{VERSION}',
      language=code,
      preprocessors=(paragraphs, preprocessors.split_lines),
      data_dir=data_dir,
    )
  task_registry.add_mixture(prefix, names)


register()
