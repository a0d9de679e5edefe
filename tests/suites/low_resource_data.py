"""Small synthetic data of the low-resource suite in the publishers' formats."""

import csv
import json
import pathlib

from xlflax.tasks import public_data

TOPICS = {'sports': 'a b', 'travel': 'c d', 'health': 'e f'}
CODES = ('eng_Latn', 'swh_Latn', 'kab_Latn')


def write_data(root: pathlib.Path) -> pathlib.Path:
  """Writes English, Swahili (head) and Kabyle (tail) data of all tasks.

  Returns:
    Directory of the data, as `--data` expects it.
  """
  download, data = root / 'download', root / 'data'
  for code in CODES:
    _write_sib200(download / 'sib200' / code)
    _write_taxi1500(download / 'taxi1500', code[:3])
    _write_flores(download / 'flores', code)
  for name in ('sib200', 'taxi1500'):
    public_data.convert(name, str(download / name), str(data / name))
  public_data.convert(
    'flores_plus', str(download / 'flores'), str(data / 'flores')
  )
  _write_belebele(data / 'belebele')
  _write_treebanks(data / 'ud')
  _write_wikiann(data / 'wikiann')
  _write_tatoeba(data / 'tatoeba')
  return data


def _write_lines(path: pathlib.Path, lines) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(''.join(f'{line}\n' for line in lines), 'utf-8')


def _write_sib200(folder: pathlib.Path) -> None:
  for split in ('train', 'dev', 'test'):
    lines = ['index_id\tcategory\ttext']
    lines += [
      f'{i}\t{topic}\t{topic_words} {i}'
      for i, (topic, topic_words) in enumerate(TOPICS.items())
    ]
    _write_lines(folder / f'{split}.tsv', lines)


def _write_taxi1500(folder: pathlib.Path, language: str) -> None:
  for split in ('train', 'dev', 'test'):
    lines = ['\tid\tlabel\tverse']
    lines += [
      f'{i}\t5500202{i}\t{topic}\t{topic_words} ,'
      for i, (topic, topic_words) in enumerate(TOPICS.items())
    ]
    _write_lines(folder / f'{language}_{split}.tsv', lines)


def _write_flores(folder: pathlib.Path, code: str) -> None:
  records = [
    {'id': i, 'iso_639_3': code[:3], 'iso_15924': code[4:], 'text': f'a b {i}'}
    for i in (1, 0, 2)
  ]
  _write_lines(folder / f'devtest/{code}.jsonl', map(json.dumps, records))


def _write_belebele(folder: pathlib.Path) -> None:
  path = folder / 'eng_Latn/train.tsv'
  path.parent.mkdir(parents=True)
  with path.open('w', encoding='utf-8', newline='') as file:
    names = ['passage', 'question', *(f'answer{i}' for i in range(1, 5))]
    writer = csv.DictWriter(
      file, [*names, 'correct_answer_num', 'split'], delimiter='\t'
    )
    writer.writeheader()
    for split, number in (('train', 8), ('dev', 2)):
      for i in range(number):
        row = {name: f'{name} {i}' for name in names}
        row |= {'correct_answer_num': str(1 + i % 4), 'split': split}
        writer.writerow(row)
  for code in CODES:
    record = {
      'link': 'https://a.example',
      'question_number': 1,
      'flores_passage': 'a b c',
      'question': 'd',
      **{f'mc_answer{i}': f'e {i}' for i in range(1, 5)},
      'correct_answer_num': '2',
      'dialect': code,
      'ds': '2023-05-03',
    }
    _write_lines(folder / code / 'test.jsonl', [json.dumps(record)])


def _write_treebanks(folder: pathlib.Path) -> None:
  rows = [
    '\t'.join((str(i), word, '_', tag, '_', '_', str(i - 1), 'dep', '_', '_'))
    for i, (word, tag) in enumerate((('a', 'NOUN'), ('b', 'VERB')), start=1)
  ]
  for name in (
    'UD_English-EWT/en_ewt-ud-train',
    'UD_English-EWT/en_ewt-ud-dev',
    'UD_English-EWT/en_ewt-ud-test',
    'UD_English-GUM/en_gum-ud-test',
    'UD_Swahili-X/sw_x-ud-test',
    'UD_Kabyle-X/kab_x-ud-test',
  ):
    _write_lines(folder / f'{name}.conllu', [*rows, '', *rows, ''])


def _write_wikiann(folder: pathlib.Path) -> None:
  for language in ('en', 'sw', 'kab'):
    lines = [f'{language}:a\tB-LOC', f'{language}:b\tO', '']
    for split in ('train', 'dev', 'test'):
      _write_lines(folder / language / split, lines * 3)


def _write_tatoeba(folder: pathlib.Path) -> None:
  for language in ('swh', 'kab'):
    for side in (language, 'eng'):
      name = f'tatoeba.{language}-eng.{side}'
      _write_lines(folder / name, [f'c d {i}' for i in range(12)])
