"""Tests of the tables and runs of the study of recipes."""

import pathlib

from studies.recipes import conditions, study, table

_ROOT = pathlib.Path(__file__).parents[2]
_RESULTS = _ROOT / 'studies/recipes/results.json'


def _rows(text: str) -> list[str]:
  return [line for line in text.splitlines() if line.startswith('| `')]


def test_published_tables_follow_from_recorded_results(capsys):
  table.print_losses(str(_RESULTS))
  table.print_loss_curves(str(_RESULTS))
  rows = _rows(capsys.readouterr().out)
  published = _rows((_ROOT / 'docs/recipes.md').read_text(encoding='utf-8'))
  assert len(rows) > 40
  assert set(rows) <= set(published)


def test_conditions_train_on_the_declared_number_of_tokens(
  monkeypatch, tmp_path
):
  commands = []

  def record(*words, cores, log):
    commands.append(words)
    return 1.0

  monkeypatch.setattr(study, 'run_xlflax', record)
  monkeypatch.setattr(study, '_read_curve', lambda _: [])
  monkeypatch.setattr(study, '_read_measures', lambda _: {})
  runs = study.Study(tmp_path, '0')
  for condition in conditions.CONDITIONS:
    commands.clear()
    result = runs.run_condition(condition, 1, {})
    (train,) = [command for command in commands if command[0] == 'train']
    flags = dict(word.split('=', 1) for word in train if '=' in word)
    assert (
      result['tokens']
      == condition.tokens
      == int(flags['--gin.TRAIN_STEPS'])
      * int(flags['--gin.BATCH_SIZE'])
      * int(flags['--gin.LENGTH'])
    )
