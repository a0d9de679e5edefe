"""Tests of every analysis of an imported XLM-R model."""

import json

import jax
import pytest
import sentencepiece

from xlflax import cli
from xlflax.cli import analyze

# Eight words per language. Words with the same index are translations.
_WORDS = {
  'en': 'the a dog cat sees loves house water'.split(),
  'hi': 'वह एक कुत्ता बिल्ली देखता चाहता घर पानी'.split(),
  'ar': 'ال واحد كلب قط يرى يحب بيت ماء'.split(),
}
_TAGS = ['DET', 'DET', 'NOUN', 'NOUN', 'VERB', 'VERB', 'NOUN', 'NOUN']


def _numbers(i):
  return [i % 2, 2 + i // 2 % 2, 4 + i // 4 % 2, i % 2, 6 + (i + i // 3) % 2]


def _lines(language, count=40):
  return [
    ' '.join(_WORDS[language][n] for n in _numbers(i)) + f' {i}'
    for i in range(count)
  ]


def _write(path, lines):
  path.write_text(''.join(f'{line}\n' for line in lines), encoding='utf-8')
  return path


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Directory with text files and the imported runs `encoder` and `tagger`."""
  transformers = pytest.importorskip('transformers')
  root = tmp_path_factory.mktemp('imported')
  for language in _WORDS:
    _write(root / f'text.{language}', _lines(language))
  _write(root / 'all', [line for x in _WORDS for line in _lines(x)])
  for name, rows in (
    ('train', slice(None, None, 2)),
    ('test', slice(1, None, 2)),
  ):
    _write(
      root / f'en-hi.{name}',
      [
        f'{a}\t{b}'
        for a, b in zip(_WORDS['en'][rows], _WORDS['hi'][rows], strict=True)
      ],
    )
  _write(root / 'gold', [' '.join(f'{n}-{n}' for n in range(5))] * 40)
  _write(
    root / 'en.conllu',
    [
      '\n'.join(
        '\t'.join(
          [str(n), _WORDS['en'][word], '_', _TAGS[word], *'____', '_', '_']
        )
        for n, word in enumerate(_numbers(i), 1)
      )
      + '\n'
      for i in range(10)
    ],
  )
  sentencepiece.SentencePieceTrainer.train(
    input=str(root / 'all'),
    model_prefix=str(root / 'm'),
    vocab_size=150,
    model_type='bpe',
    minloglevel=2,
    num_threads=1,
  )
  size = sentencepiece.SentencePieceProcessor(
    model_file=str(root / 'm.model')
  ).get_piece_size()
  config = transformers.XLMRobertaConfig(
    vocab_size=size + 2,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    type_vocab_size=1,
    max_position_embeddings=34,
    initializer_range=0.3,
    id2label=dict(enumerate(('DET', 'NOUN', 'VERB'))),
  )
  for name, kind in (
    ('encoder', transformers.XLMRobertaModel),
    ('tagger', transformers.XLMRobertaForTokenClassification),
  ):
    kind(config).save_pretrained(root / 'hf' / name)
    (root / 'hf' / name / 'sentencepiece.bpe.model').write_bytes(
      (root / 'm.model').read_bytes()
    )
    assert (
      cli.main(
        [
          'convert',
          'from-hf',
          str(root / 'hf' / name),
          '--languages=en,hi,ar',
          f'--output={root / name}',
        ]
      )
      == 0
    )
  return root


@pytest.fixture(autouse=True)
def _one_device(monkeypatch):
  """Uses one device, because eight only cost time here."""
  monkeypatch.setattr(jax, 'device_count', lambda: 1)


def _texts(folder, *languages):
  return [f'--text={x}={folder / f"text.{x}"}' for x in languages]


def _flags(kind, folder, output):
  """Returns the flags of an analysis and the expected values per column."""
  encoder, tagger = f'--model_dir={folder / "encoder"}', folder / 'tagger'
  text = f'{folder / "text.en"},{folder / "text.hi"}'
  links = f'--gold_alignments=en-hi={text},{folder / "gold"}'
  if kind == 'cka':
    return [encoder, *_texts(folder, *_WORDS)], {
      'first_layer': {0, 1, 2},
      'pair': {'en-hi', 'en-ar'},
      'series': {'encoder', 'random encoder'},
    }
  if kind == 'sentence-retrieval':
    text = [f'--test={x}={folder / f"text.{x}"}' for x in _WORDS]
    return [
      encoder,
      *text,
      *(argument.replace('test', 'train', 1) for argument in text),
    ], {'layer': {0, 1, 2}, 'mapping': {'none', 'procrustes'}}
  if kind == 'lexicon-induction':
    return [
      encoder,
      *_texts(folder, 'en', 'hi'),
      *(f'--{x}=en-hi={folder / f"en-hi.{x}"}' for x in ('train', 'test')),
    ], {'layer': {0, 1, 2}, 'score': {'cosine', 'csls'}}
  if kind == 'alignment':
    return [encoder, links, '--max_sentences=12'], {
      'layer': {0, 1, 2},
      'method': {'argmax', 'transport', 'mutual_transport'},
    }
  if kind == 'procrustes':
    return [
      f'--models=maps={folder / "encoder"},{tagger}',
      *_texts(folder, 'hi', 'en'),
      '--pivot=hi',
    ], {'layer': {0, 1, 2}}
  if kind == 'transfer':
    assert _run('procrustes', folder, output / 'maps') == 0
    (saved,) = (output / 'maps').glob('*.layer2.npz')
    return [
      f'--head_model={tagger}',
      f'--target_model={folder / "encoder"}',
      f'--alignment_map={saved}',
      f'--test=en={folder / "en.conllu"}',
    ], {'series': {'mapped', 'without a map', 'source model'}, 'layer': {2}}
  raise KeyError(kind)


def _run(kind, folder, output):
  common = ['--batch_size=16', '--compilation_cache=']
  return cli.main(
    [
      'analyze',
      kind,
      f'--output={output}',
      *common,
      *_flags(kind, folder, output)[0],
    ]
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  'kind',
  sorted({*analyze.SUBCOMMANDS} - {'learning-curves', 'transfer-matrix'}),
)
def test_analysis_of_imported_models_writes_a_report(folder, tmp_path, kind):
  assert _run(kind, folder, tmp_path / 'out') == 0
  rows = json.loads((tmp_path / 'out' / 'analysis.json').read_text())['rows']
  for column, expected in _flags(kind, folder, tmp_path / 'again')[1].items():
    assert {row[column] for row in rows} - {None} == expected
  assert (tmp_path / 'out' / 'report.html').exists()
  assert list((tmp_path / 'out').glob('*.png'))


@pytest.mark.slow
def test_maps_change_word_alignments_of_two_models(folder, tmp_path):
  maps, plain = tmp_path / 'maps', tmp_path / 'plain'
  series = f'--models=two={folder / "encoder"},{folder / "tagger"}'
  common = ['--batch_size=16', '--compilation_cache=', series]
  assert (
    cli.main(
      [
        'analyze',
        'procrustes',
        f'--output={maps}',
        *common,
        *_texts(folder, 'en', 'hi'),
      ]
    )
    == 0
  )
  links = f'--gold_alignments=en-hi={folder / "text.en"},{folder / "text.hi"},{folder / "gold"}'
  accuracies = {}
  for name, more in (('plain', []), ('mapped', [f'--maps={maps}'])):
    assert (
      cli.main(
        [
          'analyze',
          'alignment',
          f'--output={tmp_path / name}',
          *common,
          links,
          '--max_sentences=12',
          *more,
        ]
      )
      == 0
    )
    accuracies[name] = [
      row['aer']
      for row in json.loads((tmp_path / name / 'analysis.json').read_text())[
        'rows'
      ]
    ]
  assert plain.exists() and accuracies['plain'] != accuracies['mapped']
  assert len(accuracies['plain']) == 9
