"""Tests of rejected options of `xlflax predict`."""

import pytest

from tests.errors import raises_error
from xlflax import cli
from xlflax.utils import errors


@pytest.mark.parametrize(
  ('arguments', 'mentions'),
  [
    (['--input=text.txt'], 'text.txt'),
    (['--input=fr=fr.txt,sw=sw.txt'], ('fr=fr.txt,sw=sw.txt', '--input')),
    (['--input=en=en.txt', '--label_scheme=words'], 'words'),
    (['--input=en=en.txt', '--max_seq_length=0'], '--max_seq_length'),
  ],
)
def test_invalid_options_are_rejected(arguments, mentions, tmp_path):
  common = ['--model_dir=run', f'--output={tmp_path}']
  with raises_error(errors.ConfigError, mentions=mentions):
    cli.parse('predict', [*common, *arguments])()


def test_missing_text_file_is_not_described_as_labeled(tmp_path):
  path = tmp_path / 'missing.fr'
  arguments = ['--model_dir=run', f'--output={tmp_path}', f'--input=fr={path}']
  with raises_error(errors.CorpusError, got=str(path)) as error:
    cli.parse('predict', arguments)()
  assert 'labeled' not in error.value.what
