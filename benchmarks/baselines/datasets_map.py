"""Tokenization of text files with Hugging Face `datasets` and `tokenizers`."""

import argparse
import sys


def load_fast_tokenizer(model: str):
  """Loads a SentencePiece model as a tokenizer of the `tokenizers` library."""
  import sentencepiece.sentencepiece_model_pb2 as model_format
  import tokenizers
  import transformers

  sys.modules['sentencepiece_model_pb2'] = model_format
  tokenizer = tokenizers.SentencePieceUnigramTokenizer.from_spm(model)
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizer._tokenizer
  )


def main(arguments: list[str] | None = None) -> None:
  """Writes the token IDs of texts to `--output` and prints the token count."""
  import datasets

  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
    '--model', required=True, help='SentencePiece model file.'
  )
  parser.add_argument('--output', required=True, help='Output directory.')
  parser.add_argument(
    '--num_proc', type=int, default=2, help='Number of processes.'
  )
  parser.add_argument('texts', nargs='+', help='Text files to tokenize.')
  args = parser.parse_args(arguments)
  tokenizer = load_fast_tokenizer(args.model)
  text = datasets.load_dataset(
    'text', data_files=args.texts, cache_dir=args.output, split='train'
  )

  def tokenize(batch):
    encoding = tokenizer(
      batch['text'],
      add_special_tokens=False,
      return_attention_mask=False,
      return_token_type_ids=False,
    )
    return {'input_ids': encoding['input_ids']}

  tokens = text.map(
    tokenize, batched=True, num_proc=args.num_proc, remove_columns=['text']
  )
  column = tokens.data.column('input_ids')
  print(sum(len(chunk.values) for chunk in column.chunks))


if __name__ == '__main__':
  main()
