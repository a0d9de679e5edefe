"""Tasks over labeled TFDS datasets: classification, tagging, parsing and QA.

| tasks | dataset | splits |
| --- | --- | --- |
| `xnli.<language>` | xnli | validation, test |
| `xnli_translated.<language>` | xtreme_xnli: translated MultiNLI | train |
| `paws_x.<language>` | paws_x_wiki | train (translated), validation, test |
| `paws_x_translated.<language>` | xtreme_pawsx | train |
| `pos.<language>` | xtreme_pos | train, validation, test |
| `wikiann.<language>` | wikiann | train, validation, test |
| `treebank.<treebank>` | universal_dependencies | train, validation, test |
| `squad.en` | squad/v1.1 | train, validation |
| `xquad.<language>` | xquad | test; translated SQuAD: train, validation |
| `mlqa.<language>` | mlqa | validation, test |
| `tydiqa.<language>` | tydi_qa/goldp | train, validation |
| `amazon_us_reviews.<domain>` | amazon_us_reviews | train |

Translated examples are machine translations. Each row of the table also defines
a mixture of its tasks. The labels are the same as in the files that XTREME's
download script writes (PAWS-X: 0, 1), so models can be trained on TFDS and
tested on these files, or vice versa. Other datasets can be registered with
`supervised_tasks.add_labeled_tfds_task`.
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
# In TFDS 4.9, the codes of the treebanks of these languages are exchanged.
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
_SPLITS = {'train': 'train', 'validation': 'validation', 'test': 'test'}
_UD_SPLITS = {'train': 'train', 'validation': 'dev', 'test': 'test'}


def to_text_pair(
  example: Mapping,
  *,
  labels: Sequence[str],
  texts: tuple[str, str] = ('sentence1', 'sentence2'),
) -> dict:
  """Extracts two texts and their label. Examples of class -1 have no label."""
  return {
    'text': example[texts[0]],
    'paired_text': example[texts[1]],
    'label': _label_names(example['label'], labels),
  }


def to_xnli_pair(example: Mapping, *, language: str) -> dict:
  """Extracts an XNLI example's premise and hypothesis in one language."""
  hypothesis = example['hypothesis']
  hypotheses = tf.boolean_mask(
    hypothesis['translation'], tf.equal(hypothesis['language'], language)
  )
  return {
    'text': example['premise'][language],
    'paired_text': tf.concat([hypotheses, ['']], 0)[0],
    'label': _label_names(example['label'], NLI_LABELS),
  }


def to_review(example: Mapping) -> dict:
  """Extracts a review. Reviews with more than three stars are 'positive'."""
  data = example['data']
  return {
    'id': data['review_id'],
    'text': tf.strings.strip(
      data['review_headline'] + ' ' + data['review_body']
    ),
    'label': tf.where(data['star_rating'] > 3, 'positive', 'negative'),
  }


def to_tagged_words(
  example: Mapping, *, feature: str, labels: Sequence[str]
) -> dict:
  """Extracts an example's words and converts its tag ids to tag names."""
  tags = _label_names(example[feature], labels)
  return {'words': example['tokens'], 'tags': tags}


def to_tree(example: Mapping) -> dict:
  """Extracts the words, tags, heads and relations of a dependency tree.

  Multiword tokens and empty nodes, which have no head, are dropped.
  """
  keep = tf.not_equal(example['head'], 'None')
  return {
    'id': example['idx'],
    'words': tf.boolean_mask(example['tokens'], keep),
    'tags': tf.boolean_mask(_label_names(example['upos'], POS_LABELS), keep),
    'heads': tf.strings.to_number(
      tf.boolean_mask(example['head'], keep), tf.int32
    ),
    'relations': tf.boolean_mask(example['deprel'], keep),
  }


def to_question(example: Mapping) -> dict:
  """Converts a SQuAD example to flat fields, such as `answer_starts`."""
  return {
    'id': example['id'],
    'title': example['title'],
    'question': example['question'],
    'context': example['context'],
    'answers': example['answers']['text'],
    'answer_starts': example['answers']['answer_start'],
  }


def register(*, prefix: str = '', data_dir: str | None = None) -> None:
  """Registers all tasks and mixtures of this module.

  Args:
    prefix: Prefix of the names of the registered tasks and mixtures.
    data_dir: TFDS data directory. See `tfds_source.TfdsSource`.
  """
  add = functools.partial(_add, prefix=prefix, data_dir=data_dir)
  _register_classification(add)
  _register_tagging_and_parsing(add)
  _register_question_answering(add)


def _register_classification(add: Callable) -> None:
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
          functools.partial(to_xnli_pair, language=language),
        )
        for language in languages
      },
    )
  languages = xtreme.TASKS['pawsx'].languages
  step = functools.partial(to_text_pair, labels=PAWS_LABELS)
  add(
    'paws_x',
    'classification',
    {
      language: (f'paws_x_wiki/{language}:1.0.0', _SPLITS, step)
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
      domain: (f'amazon_us_reviews/{name}:0.1.0', _take('train'), to_review)
      for domain, name in AMAZON_DOMAINS.items()
    },
    languages=dict.fromkeys(AMAZON_DOMAINS, 'en'),
    keep=lambda example: tf.not_equal(example['data']['star_rating'], 3),
  )


def _register_tagging_and_parsing(add: Callable) -> None:
  step = functools.partial(to_tagged_words, feature='upos', labels=POS_LABELS)
  add(
    'pos',
    'tagging',
    {
      language: (
        'xtreme_pos/xtreme_pos_'
        f'{POS_CONFIGURATIONS.get(language, language)}:1.0.0',
        _take(*POS_SPLITS.get(language, _UD_SPLITS), names=_UD_SPLITS),
        step,
      )
      for language in xtreme.TASKS['udpos'].languages
    },
  )
  step = functools.partial(to_tagged_words, feature='tags', labels=IOB2_LABELS)
  add(
    'wikiann',
    'tagging',
    {
      language: (f'wikiann/{language}:1.0.0', _SPLITS, step)
      for language in WIKIANN_LANGUAGES
    },
  )
  add(
    'treebank',
    'parsing',
    {
      treebank: (
        f'universal_dependencies/{treebank}:1.0.1',
        _UD_SPLITS,
        to_tree,
      )
      for treebank in TREEBANKS
    },
    languages={name: name.split('_')[0] for name in TREEBANKS},
  )


def _register_question_answering(add: Callable) -> None:
  kind = 'question_answering'
  add(
    'squad',
    kind,
    {'en': ('squad/v1.1:3.0.0', _take('train', 'validation'), to_question)},
  )
  translated_splits = {
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
        _take('test') if language == 'en' else translated_splits,
        to_question,
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
        to_question,
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
          to_question,
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
  """Registers a task for each item of `parts`, and optionally a mixture.

  Args:
    name: Name of the mixture, without the prefix.
    kind: Task family to which the tasks belong.
    parts: Map from the last component of a task's name, such as a language, to
      a tuple of the TFDS name, the splits, and the function that converts an
      example.
    prefix: Prefix of the names of the registered tasks and mixtures.
    data_dir: TFDS data directory.
    languages: Map from the keys of `parts` to languages. If None, the keys are
      languages.
    keep: Predicate that selects examples. If None, all examples are used.
    mixture: Whether to also register a mixture of the tasks.
    members: Keys of `parts` whose tasks belong to the mixture. If None, all
      tasks do.
  """
  name = prefix + name
  for part, (dataset, splits, step) in parts.items():
    steps = [] if keep is None else [functools.partial(_filter, keep=keep)]
    supervised_tasks.add_labeled_tfds_task(
      f'{name}.{part}',
      dataset,
      kind=kind,
      splits=splits,
      language=(languages or {}).get(part, part),
      preprocessors=[*steps, functools.partial(_map, step=step)],
      data_dir=data_dir,
    )
  if mixture:
    supervised_tasks.add_labeled_mixture(
      name, [f'{name}.{part}' for part in (members or parts)]
    )


def _take(*splits: str, names: Mapping[str, str] = _SPLITS) -> dict[str, str]:
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


def _label_names(ids: tf.Tensor, labels: Sequence[str]) -> tf.Tensor:
  """Returns the name of each label id, or '' for the id -1."""
  return tf.gather(tf.constant(['', *labels]), ids + 1)


register()
