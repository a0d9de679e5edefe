"""Web page that finds the nearest sentences of a query, in every language.

    pip install gradio
    python examples/gradio_demo.py --model_dir=runs/mlm \
        --texts en=test.en fr=test.fr

The page opens at http://127.0.0.1:7860 and is reachable from this machine only.
"""

import argparse
import pathlib

import numpy as np

import xlflax

MAX_LINES = 1000  # per file


class SentenceSearch:
  """Cosine search among the sentences of several languages."""

  def __init__(self, run: xlflax.Run, sentences: list[tuple[str, str]]):
    """Encodes the sentences.

    Args:
      run: Run of an encoder, as `xlflax.open_run` returns it.
      sentences: (language, sentence) pairs.
    """
    self.run = run
    self.sentences = sentences
    self.vectors = self._encode(
      [sentence for _, sentence in sentences],
      [language for language, _ in sentences],
    )

  def _encode(self, texts: list[str], languages: list[str]) -> np.ndarray:
    """Returns unit vectors of shape [texts, hidden]."""
    has_languages = bool(self.run.vocabulary.spec.languages)
    vectors = self.run.encode(
      texts, languages=languages if has_languages else None
    )
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

  def search(self, query: str, language: str, k: int = 10) -> list[list]:
    """Returns [sentence, language, cosine] of the k nearest sentences."""
    scores = self.vectors @ self._encode([query], [language])[0]
    return [
      [self.sentences[i][1], self.sentences[i][0], float(scores[i])]
      for i in np.argsort(-scores)[:k]
    ]


def read_sentences(texts: list[str]) -> list[tuple[str, str]]:
  """Reads the first lines of `language=file` arguments."""
  sentences = []
  for text in texts:
    language, _, file = text.partition('=')
    lines = pathlib.Path(file).read_text(encoding='utf-8').splitlines()
    stripped = [line.strip() for line in lines if line.strip()]
    sentences += [(language, line) for line in stripped[:MAX_LINES]]
  return sentences


def main() -> None:
  """Parses the command line and runs the web page until Ctrl-C."""
  import gradio

  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--model_dir', required=True, help='Run of an encoder.')
  parser.add_argument(
    '--texts',
    nargs='+',
    required=True,
    metavar='LANGUAGE=FILE',
    help='Files with one sentence per line.',
  )
  parser.add_argument('--port', type=int, default=7860)
  args = parser.parse_args()
  sentences = read_sentences(args.texts)
  search = SentenceSearch(xlflax.open_run(args.model_dir), sentences)
  languages = sorted({language for language, _ in sentences})
  page = gradio.Interface(
    search.search,
    inputs=[
      gradio.Textbox(label='Sentence'),
      gradio.Dropdown(languages, value=languages[0], label='Language'),
    ],
    outputs=gradio.Dataframe(headers=['sentence', 'language', 'cosine']),
    title=f'Nearest sentences: {args.model_dir}',
    flagging_mode='never',
  )
  page.launch(server_port=args.port)


if __name__ == '__main__':
  main()
