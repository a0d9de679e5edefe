"""Mistakes in the flags of `xlflax label`."""

from xlflax import cli


def test_an_input_without_a_language(capsys, tmp_path):
  assert (
    cli.main(
      ['label', '--model_dir=run', '--input=text.txt', f'--output={tmp_path}']
    )
    == 2
  )
  assert 'An input is named wrongly' in capsys.readouterr().err
