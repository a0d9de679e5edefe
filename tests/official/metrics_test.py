"""Compares metrics with the official scorers on random and unusual predictions."""

import ast
import contextlib
import io
import json
import math
import random
import subprocess
import sys

import pytest
from seqeval.metrics import f1_score
from sklearn import metrics

from tests.official import scorers
from xlflax.data.supervised import (
  file_formats,
  labeled_examples,
  xtreme_submission,
)
from xlflax.data.supervised.sources import xtreme_tasks
from xlflax.evaluation.metrics import (
  alignment_error_rate,
  clas,
  embedding_metrics,
  mining_metrics,
  parsing_metrics,
  qa_metrics,
  tagging_metrics,
  translation_metrics,
)

pytestmark = pytest.mark.slow

_TAGS = (
  'ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM '
  'VERB X'
).split()
_PIECES = (
  'the a An der una الكتاب 中国人 猫 der-die U.S. “quoted” ¡no! I’m 3,5 % ß İ ﬁ '
  '। é é ال cái của και the,the a.b x'
).split()


def _text(draw: random.Random) -> str:
  return draw.choice(['', ' ', '  ']).join(
    draw.choices(_PIECES, k=draw.randint(0, 6))
  ) + draw.choice(['', ' ', '.', '\u2003'])


@pytest.fixture(scope='module')
def xtreme():
  root = scorers.find_program('xtreme')
  return scorers.load_program(
    'xtreme',
    'evaluate.py',
    extra_folders=(root, scorers.find_program('seqeval')),
  )


def _sentences(draw, tags):
  sizes = [draw.randint(1, 12) for _ in range(30)]
  return [[draw.choices(tags, k=size) for size in sizes] for _ in range(2)]


def test_intent_and_slot_scores_equal_massive():
  file = scorers.find_program('massive', 'src/massive/utils/training_utils.py')
  # Other functions require the package of MASSIVE.
  function_names = ('convert_to_bio', 'eval_preds')
  tree = ast.parse(file.read_text())
  tree.body = [
    node for node in tree.body if getattr(node, 'name', '') in function_names
  ]
  names = {'sqrt': math.sqrt, 'f1_score': f1_score, 'sklm': metrics}
  exec(compile(tree, str(file), 'exec'), names)
  draw = random.Random(1)
  tags = ['O', 'O', 'B-a', 'I-a', 'B-b', 'I-b']
  for _ in range(50):
    sides = [
      [(draw.choice('xy'), row) for row in side]
      for side in _sentences(draw, tags)
    ]
    sides[1] = [draw.choice(pair) for pair in zip(*sides, strict=True)]
    types = [
      [[tag[2:] or 'Other' for tag in row] for _, row in side] for side in sides
    ]
    intents = [[intent for intent, _ in side] for side in sides]
    theirs = names['eval_preds'](intents[1], intents[0], types[1], types[0])
    gold, predicted = (
      [tagging_metrics.join_neighboring_entities(tags) for _, tags in side]
      for side in sides
    )
    right = [
      a == b and c == d
      for a, b, c, d in zip(*intents, gold, predicted, strict=True)
    ]
    assert sum(right) / len(right) == pytest.approx(theirs['ex_match_acc'])
    assert tagging_metrics.entity_scores(
      gold, predicted
    ).overall.f1 == pytest.approx(theirs['slot_micro_f1'])


def test_tagging_scores_equal_xtreme(xtreme):
  draw = random.Random(0)
  entities = ['O', *(f'{m}-{k}' for m in 'BI' for k in ('PER', 'LOC', 'ORG'))]
  for _ in range(150):
    for tags, score in (
      (draw.sample(_TAGS, 5), tagging_metrics.run_scores),
      (entities, tagging_metrics.entity_scores),
    ):
      gold, predicted = _sentences(draw, tags)
      expected = xtreme.f1(gold, predicted)
      ours = score(gold, predicted).overall
      for name in ('f1', 'precision', 'recall'):
        assert 100 * getattr(ours, name) == pytest.approx(
          expected[name], abs=1e-9
        )


@pytest.mark.parametrize('version', xtreme_tasks.VERSIONS)
def test_languages_equal_xtreme(xtreme, version):
  official = xtreme.XTREME_VERSIONS_LANG_DICT[version]
  ours = {n: t.languages for n, t in xtreme_tasks.VERSIONS[version].items()}
  if version == xtreme_tasks.XTREME_R:
    ours |= {n: languages for n, (_, languages) in xtreme_tasks.RANKED.items()}
    assert official['lareqa'] == []
    del ours['lareqa']
  assert {name: sorted(codes) for name, codes in ours.items()} == {
    name: sorted(codes) for name, codes in official.items() if codes
  }


def _rankings(draw):
  """Returns ranked documents and relevant documents by query."""
  names = [f'd{i}' for i in range(40)]
  queries = [f'q{i}' for i in range(20)]
  rankings = {q: draw.sample(names, draw.randint(1, 40)) for q in queries}
  return rankings, {q: draw.sample(names, draw.randint(1, 15)) for q in queries}


def test_submitted_entity_rankings_equal_xtreme(xtreme):
  draw = random.Random(8)
  for _ in range(50):
    rankings, gold = _rankings(draw)
    run = ''.join(
      f'{query} Q0 {name} {rank} 0.5 x\n'
      for query, names in rankings.items()
      for rank, name in enumerate(names, 1)
    )
    expected = xtreme.mewslix_map20(
      {query: names[:1] for query, names in gold.items()},
      json.loads(xtreme_submission.entities_json(run)),
    )
    ours = [
      embedding_metrics.reciprocal_rank(rankings[query], {names[0]: 1.0})
      for query, names in gold.items()
    ]
    assert 100 * sum(ours) / len(ours) == pytest.approx(expected['map@20'])


def test_lareqa_average_precision_equals_xtreme():
  official = scorers.load_program('xtreme', 'third_party', 'utils_lareqa.py')
  draw = random.Random(9)
  for _ in range(50):
    rankings, gold = _rankings(draw)
    for query, names in gold.items():
      assert embedding_metrics.precision_at_hits(
        rankings[query], dict.fromkeys(names, 1.0)
      ) == pytest.approx(
        official.average_precision_at_k(names, rankings[query], 20)
      )


def test_mining_scores_equal_xtreme(xtreme):
  draw = random.Random(1)
  for _ in range(1000):
    gold, mined = (
      {
        (f'de-{draw.randint(0, 9)}', f'en-{draw.randint(0, 9)}')
        for _ in range(draw.randint(1, 20))
      }
      for _ in range(2)
    )
    expected = xtreme.bucc_f1(*(list(map('\t'.join, x)) for x in (gold, mined)))
    ours = mining_metrics.mining_scores(mined, gold)
    for name in ('f1', 'precision', 'recall'):
      assert 100 * getattr(ours, name) == pytest.approx(expected[name])


def _questions(draw, *, unanswerable=False):
  gold = {
    str(i): [_text(draw) or 'x' for _ in range(draw.randint(1, 3))]
    for i in range(40)
  }
  if unanswerable:
    gold |= {str(i): [] for i in range(40, 60)}
  predictions = {
    key: draw.choice([_text(draw), *answers]) for key, answers in gold.items()
  }
  data = [
    {
      'paragraphs': [
        {
          'qas': [
            {'id': key, 'answers': [{'text': answer} for answer in answers]}
            for key, answers in gold.items()
          ]
        }
      ]
    }
  ]
  return gold, predictions, data


def _same(ours, expected, exact='exact_match'):
  assert 100 * ours.f1.value == pytest.approx(expected['f1'], abs=1e-9)
  assert 100 * ours.exact_match.value == pytest.approx(
    expected[exact], abs=1e-9
  )


def test_answer_scores_equal_squad_and_mlqa(xtreme):
  draw = random.Random(2)
  official = scorers.load_program('MLQA', 'mlqa_evaluation_v1.py')
  for _ in range(40):
    gold, predicted, data = _questions(draw)
    _same(
      qa_metrics.answer_scores(gold, predicted),
      xtreme.squad_em_f1(data, predicted),
    )
    for language in qa_metrics._ARTICLES:
      ours = qa_metrics.answer_scores(
        gold, predicted, rules='mlqa', language=language
      )
      _same(ours, xtreme.mlqa_em_f1(data, predicted, language))
      _same(ours, official.evaluate(data, predicted, language))


def test_unanswerable_question_scores_equal_squad_v2():
  draw = random.Random(3)
  official = scorers.load_program('SQuAD-explorer', 'evaluate-v2.0.py')
  for _ in range(100):
    gold, predicted, data = _questions(draw, unanswerable=True)
    exact, f1 = official.get_raw_scores(data, predicted)
    ours = qa_metrics.answer_scores(
      {key: answers or [''] for key, answers in gold.items()},
      predicted,
      rules='squad_v2',
    )
    _same(ours, official.make_eval_dict(exact, f1), 'exact')


def _tree(draw, count):
  """Returns the heads of a random tree."""
  order = draw.sample(range(1, count + 1), count)
  heads = {order[0]: 0}
  for position, word in enumerate(order[1:], 1):
    heads[word] = draw.choice(order[:position])
  return tuple(heads[word] for word in range(1, count + 1))


def _parsed(draw, count, name):
  relations = [*clas.CONTENT, *clas.FUNCTIONAL, 'punct']
  heads = _tree(draw, count)
  features = ['_', 'Case=Nom', 'Case=Nom|Number=Sing', 'Odd=Yes|Tense=Past']
  first = draw.randint(1, count)
  return labeled_examples.ParsedSentence(
    id=name,
    language='en',
    words=tuple(draw.choice(['w', 'Ab', 'c d', '猫']) for _ in range(count)),
    tags=tuple(draw.choices(_TAGS, k=count)),
    lemmas=tuple(draw.choices(['w', 'x', '_'], k=count)),
    features=tuple(draw.choices(features, k=count)),
    heads=heads,
    relations=tuple(
      'root'
      if head == 0
      else draw.choice(relations) + draw.choice(['', ':poss'])
      for head in heads
    ),
    multiwords=(f'{first}-{first + 1} zum',) if first < count else (),
  )


def test_parsing_scores_equal_conll_2018(tmp_path):
  official = scorers.load_program(
    'conll2018', 'evaluation_script', 'conll18_ud_eval.py'
  )
  draw = random.Random(4)
  for _ in range(400):
    gold = [_parsed(draw, draw.randint(1, 9), str(i)) for i in range(8)]
    other = [_parsed(draw, len(g.words), g.id) for g in gold]
    path = tmp_path / 'gold.conllu'
    path.write_text(gold[0].write_predictions(gold, gold), encoding='utf-8')
    read = file_formats.read_files('conllu', str(path), 'en').examples
    assert read == gold
    texts = [tree[0].write_predictions(gold, tree) for tree in (gold, other)]
    expected = official.evaluate(
      *(official.load_conllu(io.StringIO(text)) for text in texts)
    )
    predicted = gold[0].read_predictions(gold, texts[1])
    attached = parsing_metrics.attachment_scores(gold, predicted)
    content = clas.content_word_scores(gold, predicted)
    for name, ours in (
      ('LAS', attached.las),
      ('UAS', attached.uas),
      ('CLAS', content.clas),
      ('MLAS', content.mlas),
      ('BLEX', content.blex),
    ):
      assert ours.value == pytest.approx(expected[name].f1, abs=1e-12), name


def test_scores_of_predicted_morphology_equal_conll_2018():
  """Predicted tags, features and lemmas differ from the gold trees."""
  official = scorers.load_program(
    'conll2018', 'evaluation_script', 'conll18_ud_eval.py'
  )
  draw = random.Random(5)
  for _ in range(400):
    gold = [_parsed(draw, draw.randint(2, 9), str(i)) for i in range(8)]
    predicted = []
    for tree in gold:
      other = _parsed(draw, len(tree.words), tree.id)
      keep = draw.random() < 0.5
      predicted.append(
        labeled_examples.ParsedSentence(
          **vars(other)
          | {'words': tree.words, 'multiwords': tree.multiwords}
          | ({'heads': tree.heads, 'relations': tree.relations} if keep else {})
        )
      )
    expected = official.evaluate(
      *(
        official.load_conllu(
          io.StringIO(trees[0].write_predictions(trees, trees))
        )
        for trees in (gold, predicted)
      )
    )
    ours = clas.content_word_scores(gold, predicted)
    for name in ('clas', 'mlas', 'blex'):
      assert getattr(ours, name).value == pytest.approx(
        expected[name.upper()].f1, abs=1e-12
      )


def test_word_alignment_scores_equal_awesome_align():
  official = scorers.load_program('awesome-align', 'tools', 'aer.py')
  draw = random.Random(6)

  def links(min_links):
    return {
      (draw.randint(0, 5), draw.randint(0, 5))
      for _ in range(draw.randint(min_links, 8))
    }

  for _ in range(1000):
    sure = [links(1) for _ in range(5)]
    possible = [links_of_sentence | links(0) for links_of_sentence in sure]
    predicted = [links(1) for _ in range(5)]
    precision, recall, error, *_ = official.calculate_metrics(
      sure, possible, predicted, -1.0
    )
    ours = alignment_error_rate.alignment_scores(
      [
        alignment_error_rate.GoldLinks(*pair)
        for pair in zip(sure, possible, strict=True)
      ],
      predicted,
    )
    assert (ours.precision, ours.recall, ours.error_rate) == pytest.approx(
      (precision, recall, error)
    )


@pytest.mark.parametrize('language', ['de', 'ja', 'zh'])
def test_translation_scores_equal_sacrebleu(tmp_path, language):
  draw = random.Random(7)
  references = [_text(draw).strip() or 'x' for _ in range(2000)]
  hypotheses = [draw.choice([_text(draw).strip(), r]) for r in references]
  ours = translation_metrics.bleu(
    hypotheses, [references], target_language=language
  )
  for name, lines in (('ref', references), ('sys', hypotheses)):
    (tmp_path / name).write_text('\n'.join(lines) + '\n', encoding='utf-8')
  tokenizer = ours.signature.split('tok:')[1].split('|')[0]
  command = ['ref', '-i', 'sys', '-m', 'bleu', 'chrf', '-w', '12']
  done = subprocess.run(
    [sys.executable, '-m', 'sacrebleu', *command, '-tok', tokenizer],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=True,
  )
  bleu, chrf = (score['score'] for score in json.loads(done.stdout))
  assert ours.value == pytest.approx(bleu, abs=1e-9)
  assert translation_metrics.chrf(
    hypotheses, [references]
  ).value == pytest.approx(chrf, abs=1e-9)


def test_scorers_print_nothing(xtreme):
  """The modules of the scorers do not remain imported."""
  with contextlib.redirect_stdout(io.StringIO()) as printed:
    assert xtreme.accuracy(['a'], ['a']) == {'accuracy': 100}
  assert printed.getvalue() == ''
  assert 'third_party' not in sys.modules
