"""Small versions of the files that the documented commands read.

The files have the names in the documentation. They hold synthetic languages
with labeled data of every task, and runs of two steps.
"""

import functools
import gzip
import json
import pathlib
import shlex
import shutil

from studies.synthetic import __main__ as synthetic
from tests.data.supervised import xtreme_files
from xlflax import cli, data
from xlflax.data.tokenizers import base_vocabulary

# Small models by the names in the commands.
_SIZE = """
include 'models/encoder.gin'

from xlflax.models import encoder_config as model_config

model_config.EncoderConfig.num_layers = 2
model_config.EncoderConfig.hidden_dim = 16
model_config.EncoderConfig.mlp_dim = 32
model_config.EncoderConfig.num_heads = 2
model_config.EncoderConfig.max_position_embeddings = 64
"""
_TRANSFORMER = """
include 'models/tiny_transformer.gin'

from xlflax.models import encoder_decoder_config

encoder_decoder_config.EncoderDecoderConfig.hidden_dim = 16
encoder_decoder_config.EncoderDecoderConfig.mlp_dim = 32
encoder_decoder_config.EncoderDecoderConfig.max_position_embeddings = 64
"""
_GIN = 'from __gin__ import dynamic_registration\n'
MODELS = {
  'models/small.gin': _GIN + _SIZE,
  'models/base.gin': _GIN + _SIZE,
  'models/transformer_base.gin': _GIN + _TRANSFORMER,
}
_ROOT = pathlib.Path(__file__).parents[2]
_LANGUAGES = ('en', 'fr', 'de', 'ru', 'zh', 'ja', 'es', 'ur', 'sw')
_TATOEBA = {'fr': 'fra', 'ru': 'rus', 'de': 'deu', 'zh': 'cmn'}
# Mapping from names in the documentation to files of `toy`.
_FILES = {
  'en-train.conllu': 'trees/train.en.conllu',
  'en-dev.conllu': 'trees/dev.en.conllu',
  'fr-test.conllu': 'trees/test.fr.conllu',
  'fr_gsd-ud-test.conllu': 'trees/test.fr.conllu',
  'fr.iob2': 'ner/test.fr.iob2',
  'xnli/dev-fr.tsv': 'nli/test.fr.tsv',
  'xnli/dev-ur.tsv': 'nli/test.ur.tsv',
  'dev-en.tsv': 'paraphrase/dev.en.tsv',
  'dev-fr.tsv': 'paraphrase/dev.fr.tsv',
  'xquad.es.json': 'qa/test.es.json',
  'dev-context-es-question-en.json': 'qa/dev.es-en.json',
  'copa/train.en.jsonl': 'choices/train.en.jsonl',
  'xcopa/test.sw.jsonl': 'choices/test.sw.jsonl',
  'fr-en.test.fr': 'bucc/fr-en.test.fr',
  'fr-en.test.en': 'bucc/fr-en.test.en',
  'fr-en.test.gold': 'bucc/fr-en.test.gold',
  'parallel.fr': 'tatoeba/test.fr-en.fr',
  'parallel.en': 'tatoeba/test.fr-en.en',
  'flores200/devtest/fra_Latn.devtest': 'tatoeba/test.fr-en.fr',
  'flores200/devtest/eng_Latn.devtest': 'tatoeba/test.fr-en.en',
  'ud-treebanks-v2.5/UD_French-GSD/fr_gsd-ud-dev.conllu': (
    'trees/dev.fr.conllu'
  ),
  'verses.tsv': 'corpus/parallel/en-fr.tsv',
  'en-fr.tsv': 'corpus/parallel/en-fr.tsv',
  'test.en': 'tatoeba/test.fr-en.en',
  'Tanzil.en-sw.en': 'tatoeba/test.sw-en.en',
  'Tanzil.en-sw.sw': 'tatoeba/test.sw-en.sw',
  **{
    f'bible.en-{code}.tsv': f'corpus/parallel/en-{code}.tsv'
    for code in ('fr', 'de', 'ru', 'zh')
  },
  **{f'verses.{code}': f'corpus/mono/{code}.txt' for code in _LANGUAGES[:4]},
  'muse/en-de.txt': 'dictionaries/en-de.train.txt',
}
_TUNED = {  # Mapping from runs to (gin file, training file, further flags).
  'pos': ('tagging', 'trees/train.en.conllu', ()),
  'ner': ('tagging', 'ner/train.en.iob2', ("--gin.FORMAT='uner'",)),
  'parsing': ('parsing', 'trees/train.en.conllu', ()),
  'nli': ('classification', 'nli/train.en.tsv', ()),
  'squad': ('question_answering', 'qa/train.en.json', ()),
}
TRAINING = '--gin.TRAIN_STEPS=2 --gin.WARMUP_STEPS=1'
MONO = f'{TRAINING} --gin.BATCH_SIZE=8 --gin.LENGTH=32'
PAIRS = f'{MONO} --gin.PAIR_BATCH_SIZE=8 --gin.PAIR_LENGTH=48'
SIDES = f'{TRAINING} --gin.BATCH_SIZE=8 --gin.SIDE_LENGTH=32'
T5X = (
  '--gin.TRAIN_STEPS=2 --gin.BATCH_SIZE=8 --gin.train.eval_period=2 '
  '--gin.train.eval_steps=1 --gin.utils.SaveCheckpointConfig.period=2'
)
TUNING = '--gin.EPOCHS=1 --gin.BATCH_SIZE=8 --gin.LENGTH=48'


class World:
  """Directory whose files, folders and runs are created on first use."""

  def __init__(self, root: pathlib.Path):
    self.root = root
    self.toy = root / 'toy'
    if not self.toy.exists():
      arguments = [
        f'--output={self.toy}',
        f'--languages={",".join(_LANGUAGES)}',
        '--sentences=300',
        '--examples=24',
        '--held_out=16',
        *(f'--change={code}.word_order=svo' for code in _LANGUAGES),
      ]
      assert not synthetic.main(arguments)
    for name, text in MODELS.items():
      _write(root / name, text)

  def path(self, name: str) -> pathlib.Path:
    """Returns the path of a file, folder or run, which the first call creates."""
    path = self._create(name)
    assert path.exists(), name
    return path

  @functools.cache  # noqa: B019
  def _create(self, name: str) -> pathlib.Path:
    if name in MODELS or name == 'toy':
      return self.root / name
    if name in ('docs', 'examples'):
      return _ROOT / name
    if name in _FILES:
      return self.toy / _FILES[name]
    if name == 'models/lora_mlm':
      return self._peft_folder()
    if name.startswith('runs/'):
      return self._run(name.removeprefix('runs/').partition('/')[0])
    first = name.split('/')[0].split('.')[0].replace('-', '_')
    maker = getattr(self, f'_make_{first}')
    path = self.root / 'made' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
      maker(path)
    return path

  def _run(self, name: str) -> pathlib.Path:
    path = self.root / 'runs' / name
    if path.exists():
      return path
    if name == 'en_ja':
      return self._train_translation(path)
    if name in _TUNED:
      return self._tune(path)
    path = self.root / 'runs/encoder'  # All others are copies of it.
    if not path.exists():
      self.run(
        'train --gin_file=pretrain/mlm_tlm.gin '
        f'--gin_file={self.root}/models/small.gin --model_dir={path} '
        f'{self._inputs} {PAIRS}'
      )
    if name == 'encoder':
      return path
    shutil.copytree(path, self.root / 'runs' / name)
    return self.root / 'runs' / name

  @property
  def _inputs(self) -> str:
    vocabulary, corpus = self.path('vocab'), self.path('corpus')
    return f'--corpus={corpus} --vocabulary={vocabulary}'

  def _peft_folder(self) -> pathlib.Path:
    """Writes a LoRA adapter of `runs/encoder` in the format of PEFT."""
    path, run = self.root / 'peft', self.root / 'runs/lora'
    if not path.exists():
      self.run(
        'train --gin_file=pretrain/mlm.gin --gin_file=adapters/lora.gin '
        f'--corpus={self.path("corpus")} --model_dir={run} {MONO} '
        f'--gin.INIT_FROM="\'{self.path("runs/encoder")}\'"'
      )
      self.run(f'convert to-peft {run} --output={path}')
    return path

  def _train_translation(self, path: pathlib.Path) -> pathlib.Path:
    """Trains a translation model with a checkpoint at each step."""
    self.run(
      'train --gin_file=pretrain/translation.gin '
      f'--gin_file={self.root}/models/transformer_base.gin '
      f'--model_dir={path} {self._inputs} {SIDES} '
      '--gin.PARALLEL="\'corpus.parallel.en_ja\'" --gin.TRAIN_STEPS=10 '
      '--gin.checkpoints.CheckpointOptions.save_interval_steps=1 '
      '--gin.checkpoints.CheckpointOptions.max_to_keep=10'
    )
    return path

  def _tune(self, path: pathlib.Path) -> pathlib.Path:
    kind, file, flags = _TUNED[path.name]
    files = json.dumps({'en': str(self.toy / file)})
    self.run(
      f'train --gin_file=finetune/{kind}.gin --model_dir={path}',
      f'--gin.INIT_FROM={self.path("runs/encoder")!s}',
      f'--gin.TRAIN_FILES={files}',
      *flags,
      *TUNING.split(),
    )
    return path

  def run(self, line: str, *arguments: str) -> None:
    """Runs `xlflax LINE ARGUMENTS`."""
    call = [*shlex.split(line), *arguments]
    assert cli.main(call) == 0, call

  # The method `_make_PREFIX` creates the files and folders `PREFIX…`.

  def _make_corpus(self, path: pathlib.Path) -> None:
    shutil.copytree(self.toy / 'corpus', path)

  _make_raw = _make_corpus

  def _make_dump(self, path: pathlib.Path) -> None:
    """Writes web pages with markup, and invalid records."""
    corpus = data.Corpus(self.toy / 'corpus')
    lines = [line.text for line in corpus.monolingual('en')][:60]
    records = [
      {'text': f'<p>{first}</p>\n<script>x();</script>\n{second}'}
      for first, second in zip(lines[::2], lines[1::2], strict=True)
    ]
    (path / 'mono').mkdir(parents=True)
    (path / 'mono/en.jsonl').write_text(
      '\n'.join(map(json.dumps, [*records, {'text': None}])) + '\n{"text": "cu'
    )

  def _make_vocab(self, path: pathlib.Path) -> None:
    data.train_vocabulary(
      data.Corpus(self.toy / 'corpus'),
      path,
      size=1500,
      model_type='bpe',  # Only complete words have embeddings.
      character_coverage=1.0,
      num_threads=1,
    )

  _make_vocabulary = _make_vocab

  def _make_cache(self, path: pathlib.Path) -> None:
    self.run(f'cache {self._inputs} --output={path}')

  def _make_jaen(self, path: pathlib.Path) -> None:
    """Writes reversed en-ja word alignments with first index 1."""
    name = 'alignment/test.en-ja' + ('.txt', '.gold')[path.suffix == '.gold']
    lines = (self.toy / name).read_text('utf-8').splitlines()
    mark = ' ||| '
    if path.suffix == '.gold':
      lines = [' '.join(map(_reverse_link, line.split())) for line in lines]
      mark = '\0'
    turned = [mark.join(line.split(mark)[::-1]) for line in lines]
    _write(path, '\n'.join(turned) + '\n')

  def _make_simalign_sample(self, path: pathlib.Path) -> None:
    text = (self.toy / 'alignment/test.en-de.txt').read_text('utf-8')
    column = (
      ('eng.txt', 'deu.txt').index(path.name.removeprefix('sample_'))
      if (path.suffix == '.txt')
      else None
    )
    if column is None:
      shutil.copy(self.toy / 'alignment/test.en-de.gold', path)
      return
    lines = [line.split(' ||| ')[column] for line in text.splitlines()]
    _write(path, '\n'.join(lines) + '\n')

  def _make_paws(self, path: pathlib.Path) -> None:
    rows = (self.toy / 'paraphrase/dev.en.tsv').read_text('utf-8').splitlines()
    _write(path, ''.join('\t'.join(r.split('\t')[:2]) + '\n' for r in rows))

  def _make_sts_train(self, path: pathlib.Path) -> None:
    """Writes sentence pairs and the number of words that they share."""
    rows = (self.toy / 'paraphrase/dev.en.tsv').read_text('utf-8').splitlines()
    pairs = [row.split('\t')[:2] for row in rows]
    shared = [len(set(a.split()) & set(b.split())) for a, b in pairs]
    lines = [
      f'{a}\t{b}\t{n}.0' for (a, b), n in zip(pairs, shared, strict=True)
    ]
    _write(path, '\n'.join(lines) + '\n')

  _make_sts_test = _make_sts_test_de = _make_sts_train

  def _make_dictionary(self, path: pathlib.Path) -> None:
    """Writes a dictionary such as `freedict/en-fr.train.tsv`."""
    pair, part, _ = path.name.split('.')
    turned = not pair.startswith('en-')
    name = '-'.join(pair.split('-')[::-1]) if turned else pair
    file = self.toy / f'dictionaries/{name}.{part}.txt'
    rows = [line.split() for line in file.read_text('utf-8').splitlines()]
    step = -1 if turned else 1
    _write(path, ''.join('\t'.join(row[::step]) + '\n' for row in rows))

  _make_freedict = _make_openrussian = _make_dictionary

  def _make_panlex(self, path: pathlib.Path) -> None:
    file = self.toy / 'dictionaries/en-fr.train.txt'
    _write(path, file.read_text('utf-8').replace(' ', '\t'))

  def _make_xtreme(self, path: pathlib.Path) -> None:
    xtreme_files.write(path)

  _make_download = _make_xtreme

  def _make_tatoeba(self, path: pathlib.Path) -> None:
    for code, name in _TATOEBA.items():
      pair = f'{path}/tatoeba.{name}-eng'
      for side, code_in_file in ((code, name), ('en', 'eng')):
        text = (self.toy / f'tatoeba/test.{code}-en.{side}').read_text('utf-8')
        _write(pathlib.Path(f'{pair}.{code_in_file}'), text)

  _make_data = _make_tatoeba

  def _make_texts(self, path: pathlib.Path) -> None:
    lines = (self.toy / 'corpus/mono/de.txt').read_text('utf-8').splitlines()
    _write(path, ''.join(json.dumps({'text': x}) + '\n' for x in lines))

  def _make_mt5(self, path: pathlib.Path) -> None:
    """Writes a small T5 v1.1 checkpoint of T5X and a small mT5 tokenizer."""
    from tests.interop.t5x import written_checkpoints

    path.mkdir()
    vocabulary = self.path('vocab') / base_vocabulary.MODEL_FILE
    shutil.copy(vocabulary, path / 'spiece.model')
    written_checkpoints.save_checkpoint(
      written_checkpoints.make_model('v1.1', 1600),
      path,
      orbax=True,
      step=1_000_000,
    )

  def _make_QED(self, path: pathlib.Path) -> None:  # noqa: N802
    pairs = (self.toy / 'corpus/parallel/en-sw.tsv').read_bytes()
    path.write_bytes(gzip.compress(pairs))

  def _make_models(self, path: pathlib.Path) -> None:
    """Writes a small XLM-R model as `models/xlm-roberta-base`."""
    self._hugging_face(path)

  _make_xlm_roberta_base = _make_models

  def _hugging_face(self, path: pathlib.Path) -> None:
    import transformers

    from tests.interop.huggingface import reference_tokenizers

    path.mkdir(parents=True)
    tokenizer = reference_tokenizers.xlmr(path)
    tokenizer.save_pretrained(path)
    config = transformers.XLMRobertaConfig(
      vocab_size=len(tokenizer),
      hidden_size=16,
      num_hidden_layers=8,
      num_attention_heads=2,
      intermediate_size=16,
      max_position_embeddings=66,
      type_vocab_size=1,
    )
    transformers.XLMRobertaForMaskedLM(config).save_pretrained(path)


def _reverse_link(link: str) -> str:
  """Returns a reversed link with first index 1; '0-1' becomes '2-1'."""
  sign = '-' if '-' in link else 'p'
  first, second = link.split(sign)
  return f'{int(second) + 1}{sign}{int(first) + 1}'


def _write(path: pathlib.Path, text: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding='utf-8')
