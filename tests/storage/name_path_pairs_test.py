import pytest

from xlflax import cli
from xlflax.analysis import model_refs
from xlflax.storage import name_path_pairs


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
  """Directories whose names contain the characters that flags use."""
  for name in ('runs/mlm', 'ft/trials/SEED=0', 'LR=1', 'a@7', 'b@home/corpus'):
    (tmp_path / name).mkdir(parents=True)
  monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('MLM=runs/mlm', ('MLM', 'runs/mlm')),
    ('MLM + TLM=runs/mlm', ('MLM + TLM', 'runs/mlm')),
    ('runs/mlm', ('', 'runs/mlm')),
    ('ft/trials/SEED=0', ('', 'ft/trials/SEED=0')),
    ('ft/trials/SEED=1', ('', 'ft/trials/SEED=1')),
    ('LR=1', ('', 'LR=1')),
    ('x=LR=1', ('x', 'LR=1')),
    ('x=ft/trials/SEED=0', ('x', 'ft/trials/SEED=0')),
    ('rate=0.1=runs/mlm', ('rate=0.1', 'runs/mlm')),
    ('x=missing', ('x', 'missing')),
    ('x=gs://bucket/a=b', ('x', 'gs://bucket/a=b')),
    ('gs://bucket/a=b', ('', 'gs://bucket/a=b')),
    ('=x', ('', '=x')),
    ('x=', ('x', '')),
    ('a\0=b', ('a\0', 'b')),
  ],
)
def test_names_are_split_from_paths(text, expected):
  assert name_path_pairs.split_name(text) == expected


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('fr=a/fr.txt,sw=b/sw.txt', True),
    ('fr=fr.txt, zh_Hans=zh.txt', True),
    ('fr=x,sw=runs/mlm', True),
    ('en-fr=a.en,a.fr,en-sw=b.en,b.sw', True),
    ('en-fr=a.en,a.fr', False),
    ('fr=data/split=train,version=2', False),
    ('x=de,fr=1', False),
  ],
)
def test_lists_of_several_languages_are_recognized(text, expected, tmp_path):
  (tmp_path / 'de,fr=1').mkdir()
  assert name_path_pairs.contains_several(text) == expected


@pytest.mark.parametrize(
  ('text', 'expected'),
  [
    ('corpus@valid', ('corpus', 'valid')),
    ('corpus', ('corpus', '')),
    ('a@7', ('a@7', '')),
    ('a@7@8', ('a@7', '8')),
    ('b@home/corpus', ('b@home/corpus', '')),
    ('b@home/corpus@valid', ('b@home/corpus', 'valid')),
    ('@x', ('@x', '')),
  ],
)
def test_suffixes_are_split_from_paths(text, expected):
  assert name_path_pairs.split_end(text) == expected


def test_model_references_are_parsed():
  assert model_refs.ModelRef.parse('a@7') == model_refs.ModelRef('a@7')
  assert model_refs.ModelRef.parse('runs/mlm@7') == model_refs.ModelRef(
    'runs/mlm', 7
  )
  series = model_refs.ModelSeries.parse('x=ft/trials/SEED=0')
  assert (series.name, series.first) == ('x', 'ft/trials/SEED=0')


def test_report_accepts_an_equals_sign_in_a_path(tmp_path):
  folder = tmp_path / 'ft/trials/SEED=0'
  line = '{"step": 1, "train": {"loss": 1.5}}\n'
  (folder / 'metrics.jsonl').write_text(line)
  assert cli.main(['report', 'ft/trials/SEED=0', '--output=out']) == 0
  assert 'SEED=0' in (tmp_path / 'out' / 'report.html').read_text()
