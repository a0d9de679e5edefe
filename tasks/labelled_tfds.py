"""Labelled examples from TFDS: classes, tags, trees, questions.

| tasks | dataset | splits |
| --- | --- | --- |
| `xnli.<language>` | xnli | validation, test |
| `xnli_translated.<language>` | xtreme_xnli: MultiNLI by machine | train |
| `paws_x.<language>` | paws_x_wiki | train (by machine), validation, test |
| `paws_x_translated.<language>` | xtreme_pawsx | train |
| `pos.<language>` | xtreme_pos | train, validation, test |
| `wikiann.<language>` | wikiann | train, validation, test |
| `treebank.<treebank>` | universal_dependencies | train, validation, test |
| `squad.en` | squad/v1.1 | train, validation |
| `xquad.<language>` | xquad | test; SQuAD by machine: train, validation |
| `mlqa.<language>` | mlqa | validation, test |
| `tydiqa.<language>` | tydi_qa/goldp | train, validation |
| `amazon_us_reviews.<domain>` | amazon_us_reviews | train |

and a mixture of each. Labels are those of the files that XTREME's script leaves
(PAWS-X: 0, 1), so a model trained on either is tested on either. For other
datasets: `supervised_tasks.add_labelled_tfds_task`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from xlflax.data.supervised.sources import supervised_tasks, xtreme

NLI_LABELS = ('entailment', 'neutral', 'contradiction')
PAWS_LABELS = ('0', '1')
IOB2_LABELS = ('O', 'B-PER', 'I-PER', 'B-ORG', 'I-ORG', 'B-LOC', 'I-LOC')
POS_LABELS = (
  'ADJ',
  'ADP',
  'ADV',
  'AUX',
  'CCONJ',
  'DET',
  'INTJ',
  'NOUN',
  'NUM',
  'PART',
  'PRON',
  'PROPN',
  'PUNCT',
  'SCONJ',
  'SYM',
  'VERB',
  'X',
  '_',
)
# TFDS 4.9 gives the treebanks of these two each other's code.
POS_CONFIGURATIONS = {'ta': 'tl', 'tl': 'ta'}
POS_SPLITS = {
  'kk': ('train', 'test'),
  'th': ('test',),
  'tl': ('test',),
  'yo': ('test',),
}
WIKIANN_LANGUAGES = (
  *xtreme.TASKS['panx'].languages,
  *('az', 'gu', 'lt', 'pa', 'pl', 'qu', 'ro', 'uk'),
)
TYDIQA_NAMES = {
  'ar': 'arabic',
  'bn': 'bengali',
  'en': 'english',
  'fi': 'finnish',
  'id': 'indonesian',
  'ko': 'korean',
  'ru': 'russian',
  'sw': 'swahili',
  'te': 'telugu',
}
TREEBANKS = [
  'af_afribooms',
  'ar_padt',
  'bg_btb',
  'cs_pdt',
  'de_gsd',
  'el_gdt',
  'en_ewt',
  'es_gsd',
  'et_edt',
  'eu_bdt',
  'fa_seraji',
  'fi_tdt',
  'fr_gsd',
  'he_htb',
  'hi_hdtb',
  'hu_szeged',
  'id_gsd',
  'it_isdt',
  'ja_gsd',
  'ko_gsd',
  'mr_ufal',
  'nl_alpino',
  'pl_pdb',
  'pt_bosque',
  'ro_rrt',
  'ru_gsd',
  'ru_syntagrus',
  'sv_talbanken',
  'ta_ttb',
  'te_mtg',
  'tr_imst',
  'uk_iu',
  'ur_udtb',
  'vi_vtb',
  'wo_wtb',
  'zh_gsd',
  'zh_gsdsimp',
]
AMAZON_DOMAINS = {
  'books': 'Books_v1_02',
  'dvd': 'Video_DVD_v1_00',
  'music': 'Music_v1_00',
}
_THREE = {'train': 'train', 'validation': 'validation', 'test': 'test'}
_UD = {'train': 'train', 'validation': 'dev', 'test': 'test'}


def classes(
  example: Mapping,
  *,
  labels: Sequence[str],
  texts: tuple[str, str] = ('sentence1', 'sentence2'),
) -> dict:
  """Two texts and the number of their class; -1 is none."""
  return {
    'text': example[texts[0]],
    'paired_text': example[texts[1]],
    'label': _named(example['label'], labels),
  }


def translated_classes(example: Mapping, *, language: str) -> dict:
  """A premise and hypothesis in one of the languages of a row of XNLI."""
  hypothesis = example['hypothesis']
  found = tf.boolean_mask(
    hypothesis['translation'], tf.equal(hypothesis['language'], language)
  )
  return {
    'text': example['premise'][language],
    'paired_text': tf.concat([found, ['']], 0)[0],
    'label': _named(example['label'], NLI_LABELS),
  }


def reviews(example: Mapping) -> dict:
  """A review: positive above three stars, negative below."""
  data = example['data']
  return {
    'id': data['review_id'],
    'text': tf.strings.strip(
      data['review_headline'] + ' ' + data['review_body']
    ),
    'label': tf.where(data['star_rating'] > 3, 'positive', 'negative'),
  }


def tags(example: Mapping, *, feature: str, labels: Sequence[str]) -> dict:
  """Words and the numbers of their tags."""
  return {'words': example['tokens'], 'tags': _named(example[feature], labels)}


def trees(example: Mapping) -> dict:
  """The syntactic words of a sentence of Universal Dependencies.

  Multiword tokens and empty nodes, which have no head, are passed over.
  """
  keep = tf.not_equal(example['head'], 'None')
  return {
    'id': example['idx'],
    'words': tf.boolean_mask(example['tokens'], keep),
    'tags': tf.boolean_mask(_named(example['upos'], POS_LABELS), keep),
    'heads': tf.strings.to_number(
      tf.boolean_mask(example['head'], keep), tf.int32
    ),
    'relations': tf.boolean_mask(example['deprel'], keep),
  }


def questions(example: Mapping) -> dict:
  """A question in SQuAD's format."""
  return {
    'id': example['id'],
    'title': example['title'],
    'question': example['question'],
    'context': example['context'],
    'answers': example['answers']['text'],
    'answer_starts': example['answers']['answer_start'],
  }


def register(*, prefix: str = '', data_dir: str | None = None) -> None:
  """Registers the tasks and mixtures; see `tfds_source.TfdsSource`."""
  add = functools.partial(_add, prefix=prefix, data_dir=data_dir)
  _register_classes(add)
  _register_tags(add)
  _register_questions(add)


def _register_classes(add: Callable) -> None:
  languages = xtreme.TASKS['xnli'].languages
  for name, dataset, splits in (
    ('xnli', 'xnli', _take('validation', 'test')),
    ('xnli_translated', 'xtreme_xnli', _take('train')),
  ):
    add(
      name,
      'classification',
      {
        language: (
          f'{dataset}:1.1.0',
          splits,
          functools.partial(translated_classes, language=language),
        )
        for language in languages
      },
    )
  languages = xtreme.TASKS['pawsx'].languages
  step = functools.partial(classes, labels=PAWS_LABELS)
  add(
    'paws_x',
    'classification',
    {
      language: (f'paws_x_wiki/{language}:1.0.0', _THREE, step)
      for language in languages
    },
  )
  add(
    'paws_x_translated',
    'classification',
    {
      language: (f'xtreme_pawsx/{language}:1.0.0', _take('train'), step)
      for language in languages
      if language != 'en'
    },
  )
  add(
    'amazon_us_reviews',
    'classification',
    {
      domain: (f'amazon_us_reviews/{name}:0.1.0', _take('train'), reviews)
      for domain, name in AMAZON_DOMAINS.items()
    },
    languages=dict.fromkeys(AMAZON_DOMAINS, 'en'),
    keep=lambda example: tf.not_equal(example['data']['star_rating'], 3),
  )


def _register_tags(add: Callable) -> None:
  step = functools.partial(tags, feature='upos', labels=POS_LABELS)
  add(
    'pos',
    'tagging',
    {
      language: (
        'xtreme_pos/xtreme_pos_'
        f'{POS_CONFIGURATIONS.get(language, language)}:1.0.0',
        _take(*POS_SPLITS.get(language, _UD), names=_UD),
        step,
      )
      for language in xtreme.TASKS['udpos'].languages
    },
  )
  step = functools.partial(tags, feature='tags', labels=IOB2_LABELS)
  add(
    'wikiann',
    'tagging',
    {
      language: (f'wikiann/{language}:1.0.0', _THREE, step)
      for language in WIKIANN_LANGUAGES
    },
  )
  add(
    'treebank',
    'parsing',
    {
      treebank: (f'universal_dependencies/{treebank}:1.0.1', _UD, trees)
      for treebank in TREEBANKS
    },
    languages={name: name.split('_')[0] for name in TREEBANKS},
  )


def _register_questions(add: Callable) -> None:
  kind = 'question_answering'
  add(
    'squad',
    kind,
    {'en': ('squad/v1.1:3.0.0', _take('train', 'validation'), questions)},
  )
  translated = {
    'train': 'translate-train',
    'validation': 'translate-dev',
    'test': 'test',
  }
  add(
    'xquad',
    kind,
    {
      language: (
        f'xquad/{language}:3.0.0',
        _take('test') if language == 'en' else translated,
        questions,
      )
      for language in xtreme.TASKS['xquad'].languages
    },
  )
  add(
    'mlqa',
    kind,
    {
      language: (
        f'mlqa/{language}:1.0.0',
        _take('validation', 'test'),
        questions,
      )
      for language in xtreme.TASKS['mlqa'].languages
    },
  )
  for language, name in TYDIQA_NAMES.items():
    add(
      'tydiqa',
      kind,
      {
        language: (
          'tydi_qa/goldp:3.0.0',
          {'train': 'train', 'validation': f'validation-{language}'},
          questions,
        )
      },
      mixture=False,
      keep=functools.partial(_starts_with, start=f'{name}-'),
    )
  add('tydiqa', kind, {}, members=tuple(TYDIQA_NAMES))


def _add(
  name: str,
  kind: str,
  parts: Mapping[str, tuple],
  *,
  prefix: str,
  data_dir: str | None,
  languages: Mapping[str, str] | None = None,
  keep: Callable | None = None,
  mixture: bool = True,
  members: Sequence[str] | None = None,
) -> None:
  name = prefix + name
  for part, (dataset, splits, step) in parts.items():
    steps = [] if keep is None else [functools.partial(_filter, keep=keep)]
    supervised_tasks.add_labelled_tfds_task(
      f'{name}.{part}',
      dataset,
      kind=kind,
      splits=splits,
      language=(languages or {}).get(part, part),
      preprocessors=[*steps, functools.partial(_map, step=step)],
      data_dir=data_dir,
    )
  if mixture:
    supervised_tasks.add_labelled_mixture(
      name, [f'{name}.{part}' for part in (members or parts)]
    )


def _take(*splits: str, names: Mapping[str, str] = _THREE) -> dict[str, str]:
  return {split: names[split] for split in splits}


def _map(dataset: tf.data.Dataset, *, step: Callable) -> tf.data.Dataset:
  return dataset.map(
    tf.autograph.experimental.do_not_convert(lambda example: step(example)),
    num_parallel_calls=tf.data.AUTOTUNE,
  )


def _filter(dataset: tf.data.Dataset, *, keep: Callable) -> tf.data.Dataset:
  return dataset.filter(
    tf.autograph.experimental.do_not_convert(lambda example: keep(example))
  )


def _starts_with(example: Mapping, *, start: str) -> tf.Tensor:
  return tf.equal(tf.strings.substr(example['id'], 0, len(start)), start)


def _named(numbers: tf.Tensor, labels: Sequence[str]) -> tf.Tensor:
  """Names of classes by number; '' for -1."""
  return tf.gather(tf.constant(['', *labels]), numbers + 1)


register()
