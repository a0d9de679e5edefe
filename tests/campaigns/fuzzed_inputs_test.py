"""Tests of selected cases of the fuzzed input campaign."""

import pytest

from tests.campaigns import fuzzed_inputs
from xlflax.utils import errors


def test_every_input_is_read_or_rejected():
  totals = fuzzed_inputs.run_campaign(
    cases=4 * len(fuzzed_inputs.TARGETS), seed=1
  )
  assert not totals.violations, '\n'.join(totals.violations)


@pytest.mark.parametrize(
  ('target', 'content'),
  [
    ('jsonl', b'[' * 200_000),
    ('squad', b'{"data": ' + b'[' * 200_000),
    ('jsonl', b'{"text": ' + b'9' * 5000 + b'}'),
    ('conllu', b'99999999999999999999\tw\t' + b'_\t' * 8),
    ('conll', b'\xed\xa0\x80\tX\n'),  # half of a UTF-16 surrogate pair
    ('pairs', b'a' * 10**6),
    ('dictionary', b'a' * 10**6),
    ('tsv', b'a' * 10**6),
    ('vocabulary', b'[' * 200_000),
    ('model.json', b'{"class": ' + b'9' * 5000 + b'}'),
  ],
)
def test_malformed_inputs_raise_a_short_message(target, content, tmp_path):
  name, _, read = fuzzed_inputs.TARGETS[target]
  (tmp_path / name).write_bytes(content)
  with pytest.raises(errors.XlflaxError) as error:
    read(tmp_path / name)
  assert len(str(error.value)) < 12_000


@pytest.mark.slow
def test_many_fuzzed_inputs():
  totals = fuzzed_inputs.run_campaign(cases=2000, seed=2)
  assert not totals.violations, '\n'.join(totals.violations)
  print(totals.summary())
