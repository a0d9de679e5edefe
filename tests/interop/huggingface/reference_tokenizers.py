"""Tokenizers of transformers, trained on a few lines."""

import json

import sentencepiece as spm
import tokenizers
import transformers
from tokenizers import trainers

LINES = [
  'The cat sat on the mat.',
  'the dog ate 1,234 apples in 2021!',
  'Die Würde des Menschen ist unantastbar.',
  'ein Mensch, ein Wort',
  'L’homme est né libre ; c’est vrai.',
  'Все люди рождаются свободными',
  '人人生而自由，在尊严和权利上一律平等。',
  'يولد جميع الناس أحرارًا',
  'すべての人間は、生まれながらにして自由',
  'मनुष्य जन्म से स्वतन्त्र',
  'ไทยไม่เว้นวรรค',
] * 4


def bert(folder, **options):
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(unk_token='[UNK]')
  )
  tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
    lowercase=options.get('do_lower_case', True)
  )
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  tokenizer.train_from_iterator(
    LINES,
    trainers.WordPieceTrainer(
      vocab_size=300,
      special_tokens=['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'],
      show_progress=False,
    ),
  )
  pieces = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
  (folder / 'vocab.txt').write_text('\n'.join(p for p, _ in pieces) + '\n')
  (folder / 'tokenizer_config.json').write_text(json.dumps(options))
  return transformers.BertTokenizer.from_pretrained(folder, **options)


def roberta(folder):
  tokenizer = tokenizers.ByteLevelBPETokenizer()
  tokenizer.train_from_iterator(
    LINES,
    vocab_size=400,
    min_frequency=1,
    show_progress=False,
    special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>'],
  )
  tokenizer.save_model(str(folder))
  return transformers.RobertaTokenizer.from_pretrained(folder)


def sentencepiece(folder, name, **options):
  (folder / 'text').write_text('\n'.join(LINES))
  spm.SentencePieceTrainer.train(
    input=str(folder / 'text'),
    model_prefix=str(folder / 'm'),
    minloglevel=2,
    hard_vocab_limit=False,
    num_threads=1,
    **{'vocab_size': 260} | options,
  )
  (folder / 'm.model').rename(folder / name)
  return spm.SentencePieceProcessor(model_file=str(folder / name))


def xlmr(folder):
  sentencepiece(folder, 'sentencepiece.bpe.model')
  return transformers.XLMRobertaTokenizer.from_pretrained(folder)


def mt5(folder):
  sentencepiece(folder, 'spiece.model', pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
  return transformers.T5Tokenizer.from_pretrained(folder, extra_ids=100)


def mbart(folder):
  sentencepiece(folder, 'sentencepiece.bpe.model')
  return transformers.MBartTokenizer.from_pretrained(folder)
