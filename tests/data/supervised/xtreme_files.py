"""A tiny version of the folder that XTREME's download script writes."""

import json
import pathlib


def questions(*names: str, answer: str = '') -> str:
  return json.dumps(
    {
      'version': '1',
      'data': [
        {
          'paragraphs': [
            {
              'context': 'kissa istuu',
              'qas': [
                {
                  'id': name,
                  'question': 'kuka?',
                  'answers': [{'text': answer, 'answer_start': 0}],
                }
                for name in names
              ],
            }
          ]
        }
      ],
    }
  )


FILES = {
  # The csv module ends lines with a carriage return and a line feed.
  'xnli/train-en.tsv': 'a\tb\tneutral\r\n"c ""d"""\te\tentailment\r\n',
  'xnli/dev-en.tsv': 'a\tb\tcontradiction\r\n',
  'xnli/dev-ur.tsv': 'ایک\tدو\tneutral\r\n',
  'xnli/test-en.tsv': 'a\tb\r\n',
  'xnli/test-ur.tsv': 'ایک\tدو\r\nتین\tچار\r\n',
  'pawsx/train-en.tsv': 'a\tb\t0\r\n',
  'pawsx/test-ko.tsv': '하나\t둘\r\n',
  'udpos/train-en.tsv': 'a\tDET\ncat\tNOUN\n\nhi\tINTJ\n',
  'udpos/dev-en.tsv': 'a\tDET\n',
  'udpos/test-yo.tsv': 'ẹ\nkáàárọ̀\n\nbẹ́ẹ̀ni\n',
  'panx/train-en.tsv': 'Bonn\tB-LOC\n',
  'panx/test-my.tsv': 'ရန်ကုန်\n',
  'squad/train-v1.1.json': questions('s1', answer='kissa'),
  'squad/dev-v1.1.json': questions('s2', answer='kissa'),
  'xquad/xquad.th.json': questions('x1', 'x2'),
  'mlqa/MLQA_V1/test/test-context-hi-question-hi.json': questions('m1'),
  'mlqa/MLQA_V1/test/test-context-hi-question-en.json': questions('m1'),
  'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json': questions(
    '1', '1', answer='kissa'
  ),
  'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.fi.dev.json': questions(
    'finnish-7'
  ),
  'bucc2018/ru-en.dev.ru': 'ru-1\tда\n',
  'bucc2018/ru-en.dev.en': 'en-1\tyes\n',
  'bucc2018/ru-en.dev.gold': 'ru-1\ten-1\n',
  'bucc2018/ru-en.test.ru': 'ru-1\tда\nru-2\tнет\n',
  'bucc2018/ru-en.test.en': 'en-1\tno\nen-2\tyes\n',
  'tatoeba/ka-en.ka': 'კი\nარა\n',
  'tatoeba/ka-en.en': 'No.\nYes.\n',
}


def write(folder: pathlib.Path) -> str:
  """Writes the folder and returns its path."""
  for name, text in FILES.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
  return str(folder)
