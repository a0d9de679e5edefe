"""VECO's tables 2 to 5 on synthetic data in the publishers' formats."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import sacrebleu

from studies.synthetic import __main__ as synthetic
from tests.end_to_end import conftest as end_to_end
from tests.papers import table_runs
from xlflax import cli
from xlflax.data.supervised.sources import xtreme

pytestmark = pytest.mark.slow

# The synthetic language is written as German, and as Russian in TyDiQA, which
# does not contain German.
_CODES = {'en': 'en', 'de': table_runs.SYNTHETIC_LANGUAGE}
_SPLITS = ('train', 'dev', 'test')
_TINY = ('--gin.LENGTH=48', '--gin.MAX_EXAMPLES=24')
_ZERO_SHOT = ('xnli', 'pawsx', 'pos', 'ner', 'xquad', 'tydiqa')
_PLUG_IN = ('pos_plug_in', 'xquad_plug_in')


def _translated_languages(task: str) -> list[str]:
  """Returns the languages into which XTREME's data of a task is translated."""
  languages = xtreme.find_xtreme_task(task).languages
  return [language for language in languages if language != 'en']


def _write_sentence_pairs(toy: pathlib.Path, data: pathlib.Path) -> None:
  """Writes XNLI and PAWS-X with labels of the test sets."""
  for task, family in (('xnli', 'nli'), ('pawsx', 'paraphrase')):
    for language, code in _CODES.items():
      for split in _SPLITS:
        table_runs.copy_file(
          toy / f'{family}/{split}.{code}.tsv',
          data / f'{task}/{split}-{language}.tsv',
        )


def _write_words(toy: pathlib.Path, data: pathlib.Path) -> None:
  """Writes POS and NER, and the files of plug-in fine-tuning on POS.

  The pseudo-labels are the labels of the synthetic translation, and the English
  translation of the German test set is the English test set.
  """
  for task, family, extension, column in (
    ('udpos', 'pos', 'conllu', 3),
    ('panx', 'ner', 'iob2', 2),
  ):
    for language, code in _CODES.items():
      for split in _SPLITS:
        lines = table_runs.word_labels(
          toy / f'{family}/{split}.{code}.{extension}', label_column=column
        )
        table_runs.write_lines(data / f'{task}/{split}-{language}.tsv', lines)
  for code in _translated_languages('udpos'):
    for split, language, target in (
      ('train', 'de', f'pseudo_labels/pos/{code}.conll'),
      ('test', 'en', f'translated_tests/pos/{code}.conll'),
    ):
      table_runs.copy_file(
        data / f'udpos/{split}-{language}.tsv', data / target
      )


def _write_questions(toy: pathlib.Path, data: pathlib.Path) -> None:
  """Writes SQuAD, XQuAD, MLQA and TyDiQA, and XTREME's translations."""
  for source, target in (
    ('train.en', 'squad/train-v1.1'),
    ('dev.en', 'squad/dev-v1.1'),
    ('test.en', 'xquad/xquad.en'),
    ('test.aa', 'xquad/xquad.de'),
    ('test.en', 'mlqa/MLQA_V1/test/test-context-en-question-en'),
    ('test.aa', 'mlqa/MLQA_V1/test/test-context-de-question-de'),
    ('train.en', 'tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train'),
    ('test.en', 'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.en.dev'),
    ('test.aa', 'tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.ru.dev'),
  ):
    table_runs.copy_file(toy / f'qa/{source}.json', data / f'{target}.json')
  for task, source, target in (
    ('xquad', 'train.aa', 'SQuAD/translate-train/squad.translate.train.en-{}'),
    ('xquad', 'test.en', 'XQuAD/translate-test/xquad.translate.test.{}-en'),
    ('mlqa', 'test.en', 'MLQA/translate-test/mlqa.translate.test.{}-en'),
  ):
    for code in _translated_languages(task):
      table_runs.copy_file(
        toy / f'qa/{source}.json',
        data / f'xtreme_translations/{target.format(code)}.json',
      )


def _write_retrieval(toy: pathlib.Path, data: pathlib.Path) -> None:
  """Writes BUCC and Tatoeba, whose English sentences are sorted."""
  for split in ('dev', 'test'):
    for part, code in (*_CODES.items(), ('gold', 'gold')):
      lines = table_runs.read_lines(toy / f'bucc/aa-en.{split}.{code}')
      table_runs.write_lines(
        data / f'bucc2018/de-en.{split}.{part}',
        [line.replace('aa-', 'de-') for line in lines],
      )
  sentences, english = (
    table_runs.read_lines(toy / f'tatoeba/test.aa-en.{code}')
    for code in ('aa', 'en')
  )
  order = sorted(range(len(english)), key=english.__getitem__)
  table_runs.write_lines(data / 'tatoeba/de-en.de', sentences)
  table_runs.write_lines(
    data / 'tatoeba/de-en.en', [english[index] for index in order]
  )
  table_runs.write_lines(data / 'tatoeba/de-en.gold', map(str, order))


def _write_translation(toy: pathlib.Path, data: pathlib.Path) -> None:
  """Writes the pairs of WMT14 en-de and of IWSLT14 de-en."""
  for split, folder in (('train', ''), ('dev', 'valid/'), ('test', 'test/')):
    lines = table_runs.read_lines(toy / f'translation/{split}.en-aa.tsv')
    table_runs.write_lines(data / f'wmt14/{folder}parallel/en-de.tsv', lines)
    table_runs.write_lines(
      data / f'small/iwslt14/{folder}parallel/de-en.tsv',
      ['\t'.join(reversed(line.split('\t'))) for line in lines],
    )


@pytest.fixture(scope='module')
def work(tmp_path_factory) -> pathlib.Path:
  """Data in the publishers' formats, and a pretrained run."""
  root = tmp_path_factory.mktemp('veco')
  toy, data = root / 'toy', root / 'data'
  arguments = [
    f'--output={toy}',
    f'--languages={",".join(_CODES.values())}',
    '--sentences=200',
    '--examples=60',
    '--held_out=30',
  ]
  assert not synthetic.main(arguments)
  for write in (
    _write_sentence_pairs,
    _write_words,
    _write_questions,
    _write_retrieval,
    _write_translation,
  ):
    write(toy, data)
  shutil.copytree(data / 'xnli', data / 'small/xnli')
  vocabulary_flags = ['--size=400', '--character_coverage=1', '--languages=de']
  assert not cli.main(
    [
      'vocab',
      f'--corpus={toy}/corpus',
      f'--output={root}/vocabulary',
      *vocabulary_flags,
    ]
  )
  assert not cli.main(
    [
      'train',
      *end_to_end.TINY_MLM,
      f'--corpus={toy}/corpus',
      f'--vocabulary={root}/vocabulary',
      f'--model_dir={root}/pretrained',
      '--gin.EncoderConfig.cross_attention=True',
      '--gin.EncoderConfig.max_position_embeddings=64',
      '--gin.TRAIN_STEPS=6',
    ]
  )
  return root


def _grid_file(root: pathlib.Path, tasks, *axes: str) -> str:
  """Writes a gin file with a small grid for the tasks of a suite."""
  lines = ['from __gin__ import dynamic_registration']
  lines.append('from xlflax.suites import suite_config')
  for task in tasks:
    lines.append(f'{task}/suite_config.SuiteTask.grid = {axes!r}')
    if task.startswith(('xquad', 'tydiqa')):
      lines.append(
        f"{task}/suite_config.SuiteTask.bindings = ('DOC_STRIDE=16',)"
      )
  path = root / f'grid_{"_".join(tasks)}.gin'
  table_runs.write_lines(path, lines)
  return f'--gin_file={path}'


def _best_setting(grid: pathlib.Path) -> pathlib.Path:
  """Returns the trial with the best score on the dev sets."""
  trials = json.loads((grid / 'grid.json').read_text())['trials']
  best = np.argmax([trial['value'] for trial in trials])
  return grid / 'trials' / trials[best]['directory']


def _mean(folder: pathlib.Path, task: str, metric: str, *parts: str) -> float:
  """Returns the mean score over the parts of a test set, in points."""
  scores = [
    table_runs.read_scores(folder, task, f'{metric}/{part}') for part in parts
  ]
  assert np.shape(scores) == (len(parts), 1)
  return 100 * float(np.mean(scores))


def _check_column(table, row: str, column: str, expected: float) -> None:
  """Checks a measured score and its difference from the published score."""
  line = table[row, column]
  assert float(line['measured']) == pytest.approx(expected)
  difference = expected - float(line['published'])
  assert float(line['differences']) == pytest.approx(difference)


@pytest.fixture(scope='module')
def table_2(work) -> pathlib.Path:
  """Output of table 2: the zero-shot row, and a part of the plug-in row."""
  runs = table_runs.copy_runs(
    work / 'pretrained', work / 'runs/veco', 'large_phase2'
  )
  tasks = [*_ZERO_SHOT, 'mlqa', 'bucc', 'tatoeba', *_PLUG_IN, 'mlqa_plug_in']
  return table_runs.evaluate_suite(
    'papers/veco/table2',
    work / 'data',
    runs,
    work / 'out/table2',
    f'--tasks={",".join(tasks)}',
    _grid_file(
      work, ['xnli'], 'LEARNING_RATE=1e-6,3e-3', 'EPOCHS=10', 'BATCH_SIZE=8'
    ),
    _grid_file(
      work,
      [*_ZERO_SHOT[1:], *_PLUG_IN],
      'LEARNING_RATE=3e-3',
      'EPOCHS=1',
      'BATCH_SIZE=8',
    ),
    '--gin.EVAL_STEPS=15',
    *_TINY,
  )


def test_table_2_selects_by_the_mean_over_languages(table_2):
  """The best of two settings on the dev sets of both languages is tested."""
  [folder] = table_2.glob('large_phase2@*')
  grid = folder / 'xnli'
  trials = json.loads((grid / 'grid.json').read_text())['trials']
  for trial in trials:
    scores = [
      [record['eval'][f'dev/accuracy/{code}'] for code in _CODES]
      for record in map(
        json.loads,
        table_runs.read_lines(
          grid / 'trials' / trial['directory'] / 'metrics.jsonl'
        ),
      )
      if 'dev/accuracy/de' in record.get('eval', {})
    ]
    assert trial['value'] == pytest.approx(np.mean(scores, axis=1).max())
  assert len({trial['value'] for trial in trials}) == len(trials) == 2
  expected = _mean(_best_setting(grid), 'xnli', 'accuracy', 'en', 'de')
  _check_column(table_runs.read_table(table_2), 'veco_out', 'XNLI', expected)


def test_table_2_averages_nine_tasks(table_2):
  """F1 and exact match of a task count as one score."""
  [folder] = table_2.glob('large_phase2@*')
  models = {task: _best_setting(folder / task) for task in _ZERO_SHOT}
  expected = {
    'PAWS-X': _mean(models['pawsx'], 'pawsx', 'accuracy', 'en', 'de'),
    'POS': _mean(models['pos'], 'pos', 'f1', 'en', 'de'),
    'NER': _mean(models['ner'], 'ner', 'f1', 'en', 'de'),
    'XQuAD F1': _mean(models['xquad'], 'xquad', 'f1', 'en', 'de'),
    'XQuAD EM': _mean(models['xquad'], 'xquad', 'exact_match', 'en', 'de'),
    'MLQA F1': _mean(models['xquad'], 'mlqa', 'f1', 'en', 'de'),
    'MLQA EM': _mean(models['xquad'], 'mlqa', 'exact_match', 'en', 'de'),
    'TyDiQA F1': _mean(models['tydiqa'], 'tydiqa', 'f1', 'en', 'ru'),
    'TyDiQA EM': _mean(models['tydiqa'], 'tydiqa', 'exact_match', 'en', 'ru'),
  }
  table = table_runs.read_table(table_2)
  for column, score in expected.items():
    _check_column(table, 'veco_out', column, score)
  measured = {
    column: float(line['measured'])
    for (row, column), line in table.items()
    if row == 'veco_out'
  }
  tasks = [measured[name] for name in ('XNLI', 'PAWS-X', 'POS', 'NER')] + [
    measured[name] for name in ('BUCC', 'Tatoeba')
  ]
  tasks += [
    np.mean([measured[f'{name} F1'], measured[f'{name} EM']])
    for name in ('XQuAD', 'MLQA', 'TyDiQA')
  ]
  _check_column(table, 'veco_out', 'Avg', float(np.mean(tasks)))


def test_table_2_measures_the_plug_in_row_on_translated_test_sets(table_2):
  """MLQA is tested with the plug-in models of XQuAD, without an average."""
  [folder] = table_2.glob('large_phase2@*')
  questions = _best_setting(folder / 'xquad_plug_in')
  table = table_runs.read_table(table_2)
  for column, model, task, metric in (
    ('POS', _best_setting(folder / 'pos_plug_in'), 'pos', 'f1'),
    ('XQuAD F1', questions, 'xquad', 'f1'),
    ('MLQA EM', questions, 'mlqa', 'exact_match'),
  ):
    expected = _mean(model, task, metric, 'en', 'de')
    _check_column(table, 'veco_in_all', column, expected)
  assert table['veco_in_all', 'Avg']['measured'] == ''


@pytest.fixture(scope='module')
def translation_run(work) -> pathlib.Path:
  """A run that translates between the two languages in both directions."""
  directory = work / 'translation'
  assert not cli.main(
    [
      'train',
      '--gin_file=pretrain/translation.gin',
      '--gin_file=models/tiny_transformer.gin',
      '--gin.EncoderDecoderConfig.hidden_dim=32',
      '--gin.EncoderDecoderConfig.mlp_dim=64',
      f'--corpus={work}/data/wmt14',
      f'--vocabulary={work}/vocabulary',
      f'--model_dir={directory}',
      "--gin.DECODER_START='bos'",
      "--gin.sides/dataset_config.PairOptions.order='random'",
      '--gin.SIDE_LENGTH=32',
      '--gin.BATCH_SIZE=16',
      '--gin.TRAIN_STEPS=60',
      '--gin.WARMUP_STEPS=5',
      '--gin.LEARNING_RATE=3e-3',
      '--gin.CheckpointOptions.save_interval_steps=20',
    ]
  )
  return directory


def _keep_checkpoint(run: pathlib.Path, step: int) -> None:
  """Removes all checkpoints of a run except one."""
  for path in (run / 'checkpoints').iterdir():
    if path.name.isdigit() and int(path.name) != step:
      shutil.rmtree(path)


def _translate(run: pathlib.Path, pair: str, lines: list[str]) -> float:
  """Returns sacreBLEU of the translations of `xlflax translate`."""
  source, target = pair.split('-')
  sources, references = zip(*(line.split('\t') for line in lines), strict=True)
  table_runs.write_lines(run / 'source.txt', sources)
  assert not cli.main(
    [
      'translate',
      f'--model_dir={run}',
      f'--source={source}',
      f'--target={target}',
      f'--input={run}/source.txt',
      f'--output={run}/target.txt',
      '--beam_size=5',
    ]
  )
  hypotheses = table_runs.read_lines(run / 'target.txt')
  return sacrebleu.corpus_bleu(hypotheses, [list(references)]).score


def test_tables_3_and_4_contain_bleu_of_translate(work, translation_run):
  """Scores are those of `xlflax translate`, and changes refer to other rows."""
  runs = work / 'runs/wmt14'
  names = {
    'wmt14_en_de_random': 20,
    'wmt14_en_de_veco': 60,
    'shallow_random_3': 40,
  }
  table_runs.copy_runs(translation_run, runs, *names)
  scores = {}
  lines = table_runs.read_lines(work / 'data/wmt14/test/parallel/en-de.tsv')
  for name, step in names.items():
    _keep_checkpoint(runs / name, step)
    scores[name] = _translate(runs / name, 'en-de', lines)
  assert scores['wmt14_en_de_random'] != scores['wmt14_en_de_veco']
  tables = {}
  for number in (3, 4):
    output = table_runs.evaluate_suite(
      f'papers/veco/table{number}',
      work / 'data/wmt14',
      str(runs),
      work / f'out/table{number}',
      '--tasks=translation_en_de',
    )
    tables[number] = table_runs.read_table(output)
  random, veco = scores['wmt14_en_de_random'], scores['wmt14_en_de_veco']
  _check_column(tables[3], 'random', 'en-de sacreBLEU', random)
  _check_column(tables[3], 'veco', 'en-de sacreBLEU', veco)
  line = tables[3]['veco', 'en-de sacreBLEU']
  assert float(line['measured_changes']) == pytest.approx(veco - random)
  assert float(line['published_changes']) == pytest.approx(30.6 - 27.8)
  assert tables[3]['veco', 'en-fr BLEU']['measured'] == ''
  _check_column(tables[4], 'random_3', 'sacreBLEU', scores['shallow_random_3'])
  _check_column(tables[4], 'full_24', 'sacreBLEU', veco)


def test_table_5_combines_pretraining_and_translation_runs(
  work, translation_run
):
  """A row combines a pretrained run and the run that translates."""
  runs = work / 'runs/small'
  table_runs.copy_runs(work / 'pretrained', runs, 'small_mlm')
  table_runs.copy_runs(translation_run, runs, 'iwslt14_small_mlm')
  output = table_runs.evaluate_suite(
    'papers/veco/table5',
    work / 'data/small',
    str(runs),
    work / 'out/table5',
    _grid_file(
      work, ['xnli'], 'LEARNING_RATE=3e-3', 'EPOCHS=2', 'BATCH_SIZE=8'
    ),
    '--gin.EVAL_STEPS=10',
    *_TINY,
  )
  table = table_runs.read_table(output)
  [folder] = output.glob('small_mlm@*')
  accuracy = _mean(
    _best_setting(folder / 'xnli'), 'xnli', 'accuracy', 'en', 'de'
  )
  _check_column(table, 'xlm_mono', 'XNLI', accuracy)
  [folder] = output.glob('iwslt14_small_mlm@*')
  [bleu] = [
    json.loads(path.read_text())['metrics']['tokenized_bleu/de-en']
    for path in folder.rglob('*.json')
    if 'tokenized_bleu/de-en' in path.read_text()
  ]
  _check_column(table, 'xlm_mono', 'IWSLT', bleu)
  assert table['veco_mono', 'XNLI']['measured'] == ''
