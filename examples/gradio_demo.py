"""Web page that finds the sentences nearest to a query in several languages.

    pip install gradio
    python examples/gradio_demo.py --model_dir=runs/mlm \
        --texts en=test.en fr=test.fr

The page is served at http://127.0.0.1:7860 and can only be opened on the same
machine.
"""

import argparse
import pathlib

import numpy as np

import xlflax

# Maximum number of sentences of each file.
MAX_LINES = 1000


class SentenceSearch:
  """Search over sentences in several languages by cosine similarity.

  Args:
    run: Run of an encoder, as returned by `xlflax.load_run`.
    sentences: Pairs of a language and a sentence.
  """

  def __init__(self, run: xlflax.Run, sentences: list[tuple[str, str]]):
    self.run = run
    self.sentences = sentences
    self.vectors = self._encode(
      [sentence for _, sentence in sentences],
      [language for language, _ in sentences],
    )

  def _encode(self, texts: list[str], languages: list[str]) -> np.ndarray:
    """Returns normalized embeddings of shape [texts, hidden]."""
    has_languages = bool(self.run.vocabulary.spec.languages)
    vectors = self.run.encode(
      texts, languages=languages if has_languages else None
    )
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

  def search(self, query: str, language: str, k: int = 10) -> list[list]:
    """Returns the sentences nearest to a query.

    Args:
      query: Text to search for.
      language: Language of the query.
      k: Number of sentences to return.

    Returns:
      Sentence, language and cosine similarity of each result, sorted by
      decreasing similarity.
    """
    scores = self.vectors @ self._encode([query], [language])[0]
    return [
      [self.sentences[i][1], self.sentences[i][0], float(scores[i])]
      for i in np.argsort(-scores)[:k]
    ]


def read_sentences(texts: list[str]) -> list[tuple[str, str]]:
  """Reads the first `MAX_LINES` sentences of each file.

  Args:
    texts: Command-line arguments in the form `language=file`.

  Returns:
    Pairs of a language and a sentence.
  """
  sentences = []
  for text in texts:
    language, _, file = text.partition('=')
    lines = pathlib.Path(file).read_text(encoding='utf-8').splitlines()
    stripped = [line.strip() for line in lines if line.strip()]
    sentences += [(language, line) for line in stripped[:MAX_LINES]]
  return sentences


def main() -> None:
  """Parses the command line and serves the page until it is interrupted."""
  import gradio

  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
    '--model_dir', required=True, help='Model directory of an encoder.'
  )
  parser.add_argument(
    '--texts',
    nargs='+',
    required=True,
    metavar='LANGUAGE=FILE',
    help='Files with one sentence per line.',
  )
  parser.add_argument(
    '--port', type=int, default=7860, help='Port of the web server.'
  )
  args = parser.parse_args()
  sentences = read_sentences(args.texts)
  search = SentenceSearch(xlflax.load_run(args.model_dir), sentences)
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
