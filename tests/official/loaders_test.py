"""Compares the output of `xlflax tasks convert` with published loaders."""

import json
import random
import sys
import types

import pytest

from tests.official import scorers
from xlflax.data.supervised import file_formats
from xlflax.data.supervised.sources import beir
from xlflax.tasks import public_data, public_rankings

pytestmark = pytest.mark.slow

_LETTERS = {
  'de-DE': ('wach', 'Uhr', 'ä', '5', "l'", 'x.'),
  'ja-JP': ('午前', '今日', 'jazz', '5', 'の、', 'pm'),
}


def _massive():
  """Returns the dataset creator of MASSIVE without the `datasets` package."""
  with pytest.MonkeyPatch.context() as patch:
    datasets_module = types.ModuleType('datasets')
    datasets_module.Dataset = object
    patch.setitem(sys.modules, 'datasets', datasets_module)
    creator = scorers.load_program('massive', 'scripts', 'create_hf_dataset.py')
  return creator.DatasetCreator._build_in_mem_dicts


@pytest.mark.parametrize('locale', _LETTERS)
def test_massive_equals_the_published_loader(locale, tmp_path):
  draw = random.Random(locale)
  rows = []
  for number in range(300):
    chunks, tokens = [], []
    for _ in range(draw.randint(1, 5)):
      inside = draw.choices(_LETTERS[locale], k=draw.randint(1, 3))
      tokens += inside
      slot = draw.choice(('', '', 'time', 'date'))
      chunks.append(
        f'[{slot} : {" ".join(inside)}]' if slot else ' '.join(inside)
      )
    rows.append(
      {
        'id': str(number),
        'locale': locale,
        'partition': draw.choice(('train', 'dev', 'test')),
        'scenario': 'alarm',
        'intent': 'alarm_set',
        'utt': ' '.join(tokens),
        'annot_utt': ' '.join(chunks),
        'worker_id': '1',
      }
    )
  path = tmp_path / f'1.1/data/{locale}.jsonl'
  path.parent.mkdir(parents=True)
  lines = (json.dumps(row, ensure_ascii=False) for row in rows)
  path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
  train, dev, test, _ = _massive()(rows)
  output = tmp_path / 'out'
  public_data.convert('massive', str(tmp_path / '1.1'), str(output))
  for split, theirs in (('train', train), ('validation', dev), ('test', test)):
    blocks = (
      (output / f'slots/{locale}/{split}.conll').read_text().split('\n\n')
    )
    ours = [
      [line.split('\t') for line in block.splitlines()]
      for block in blocks
      if block.strip()
    ]
    assert len(ours) == len(theirs['id']) > 50
    for example, tokens, types_ in zip(
      ours, theirs['utt'], theirs['slots_str'], strict=True
    ):
      assert [word for word, _ in example] == tokens
      kinds = ['Other' if tag == 'O' else tag[2:] for _, tag in example]
      assert kinds == types_
    intents = (output / f'intents/{locale}/{split}.tsv').read_text()
    assert len(intents.splitlines()) == len(theirs['id'])


def _paragraphs(draw, language):
  """Returns paragraphs with partly repeated sentences."""
  paragraphs = []
  for number in range(20):
    sentences = [
      f'{language} {draw.choice("abc")} {draw.randint(0, 4)}.'
      for _ in range(draw.randint(1, 6))
    ]
    context, breaks = '', []
    for sentence in sentences:
      breaks.append([len(context), len(context) + len(sentence)])
      context += sentence + draw.choice((' ', '\n'))
    questions = [
      {
        'id': f'{number}-{i}',
        'question': f'{language}{i}?',
        'answers': [{'answer_start': draw.choice(breaks)[0] + 1, 'text': 'x'}],
      }
      for i in range(draw.randint(1, 3))
    ]
    paragraphs.append(
      {'context': context, 'sentence_breaks': breaks, 'qas': questions}
    )
  return paragraphs


def _compare_lareqa(folder, data, output):
  utils = scorers.load_program('xtreme', 'third_party', 'utils_lareqa.py')
  questions, candidates = utils.load_data(data)
  public_data.convert('lareqa', str(folder), str(output))
  held = beir.BeirDataset(directory=str(output)).load('all')
  places = {
    f'{language}_{number}': i
    for language, squad in data.items()
    for number, i in enumerate(
      range(sum(len(a['paragraphs']) for a in squad['data'])), 1
    )
  }

  def name(uid):
    context, _, index = uid.rpartition('_')
    return f'{context.split("_")[0]}-{places[context]}-{index}'

  texts = {
    name(candidate.uid): (candidate.sentence + candidate.context).replace(
      '\n', ''
    )
    for candidate in candidates.as_list()
  }
  assert {key: text.text for key, text in held.documents.items()} == texts
  question_list = questions.as_list()
  for question in question_list:
    right = {name(x.uid) for x in candidates.by_xling_id[question.xling_id]}
    assert (
      set(held.relevance[f'{question.language}-{question.xling_id}']) == right
    )
  return len(question_list)


def test_synthetic_lareqa_equals_the_published_loader(tmp_path):
  draw = random.Random(0)
  data = {
    language: {
      'data': [
        {'paragraphs': paragraphs[:9], 'title': 'a'},
        {'paragraphs': paragraphs[9:], 'title': 'b'},
      ]
    }
    for language in ('en', 'sw')
    for paragraphs in [_paragraphs(draw, language)]
  }
  folder = tmp_path / 'in'
  folder.mkdir()
  for language, squad in data.items():
    (folder / f'{language}.json').write_text(json.dumps(squad))
  assert _compare_lareqa(folder, data, tmp_path / 'out') > 50


def test_published_lareqa_equals_the_published_loader(tmp_path):
  folder = scorers.find_program('lareqa', 'xquad-r')
  data = {
    path.stem: json.loads(path.read_text('utf-8'))
    for path in sorted(folder.glob('*.json'))
  }
  assert _compare_lareqa(folder, data, tmp_path / 'out') == 13_090


def test_mewslix_texts_equal_the_published_loader():
  utils = scorers.load_program('xtreme', 'third_party', 'utils_mewslix.py')
  draw = random.Random(0)
  pieces = (
    'A',
    'strike',
    '{x}',
    'in',
    '{',
    '}',
    'the  city',
    '[1]',
    'end\nnow',
  )
  for number in range(300):
    text, spans = '', []
    for _ in range(draw.randint(1, 4)):
      sentence = ' '.join(draw.choices(pieces, k=draw.randint(2, 7))) + '.'
      spans.append({'start': len(text), 'end': len(text) + len(sentence)})
      text += sentence + draw.choice((' ', '   ', '\n', ' [note] '))
    inside = draw.choice(spans)
    start = draw.randrange(inside['start'], inside['end'] - 1)
    end = draw.randrange(start + 1, inside['end'])
    mention = {
      'example_id': str(number),
      'entity_id': 'Q1',
      'mention_span': {'start': start, 'end': end, 'text': text[start:end]},
    }
    context = {
      'document_title': '',
      'document_url': '',
      'document_id': '',
      'language': 'en',
      'text': text,
      'sentence_spans': spans,
    }
    entity = {
      'entity_id': 'Q1',
      'title': '',
      'description': text,
      'sentence_spans': spans,
      'description_language': 'en',
      'description_url': '',
    }
    contextual_mention = utils.ContextualMention.from_json(
      {'context': context, 'mention': mention}
    )
    assert public_rankings._mention_query(context, mention)['text'] == (
      utils.preprocess_mention(contextual_mention)
    )
    assert public_rankings._entity_document(entity)['text'] == (
      utils.preprocess_entity_description(utils.Entity.from_json(entity))
    )


def test_published_xcopa_is_read(tmp_path):
  folder = scorers.find_program('xcopa', 'data')
  public_data.convert('xcopa', str(folder), str(tmp_path))
  read = 0
  for path in sorted(tmp_path.glob('*/test.jsonl')):
    examples = file_formats.read_files(
      'xcopa', str(path), path.parent.name
    ).examples
    rows = [json.loads(line) for line in path.read_text('utf-8').splitlines()]
    assert len(examples) == 2 * len(rows)
    for first, second, row in zip(
      examples[::2], examples[1::2], rows, strict=True
    ):
      assert first.text == row['premise'].strip()
      assert first.paired_text.endswith(row['choice1'].strip())
      assert second.paired_text.endswith(row['choice2'].strip())
      assert [first.label, second.label].index('right') == row['label']
    read += len(rows)
  assert read == 11 * 500
