"""Links to sections, and messages quoted in the guides."""

import ast
import pathlib
import re

_ROOT = pathlib.Path(__file__).parents[2]


def _text(path: str) -> str:
  return (_ROOT / path).read_text('utf-8')


def _anchors(path: str) -> set[str]:
  """Returns the anchors that links to a page may use."""
  headings = re.findall(r'^#+ (.+)$', _text(path), re.M)
  slugs = (
    re.sub(r'[^\w\s-]', '', heading.lower()).strip() for heading in headings
  )
  return {re.sub(r'[\s-]+', '-', slug) for slug in slugs}


def test_the_questions_are_linked_from_the_front_page():
  assert '(docs/questions.md)' in _text('README.md')


def _source() -> str:
  """All strings of the package, neighbours joined; values in them are …."""
  sources = []
  for path in (_ROOT / 'xlflax').rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text('utf-8'))):
      if isinstance(node, ast.Constant) and isinstance(node.value, str):
        sources.append(node.value)
      elif isinstance(node, ast.JoinedStr):
        sources.append(
          ''.join(
            part.value if isinstance(part, ast.Constant) else '…'
            for part in node.values
          )
        )
  return re.sub(r'%[.\d]*[sdf]', '…', '\n'.join(sources))


def test_the_messages_of_the_page_are_those_of_the_code():
  text = _text('docs/trouble.md')
  items = re.findall(r'^- (`.+?`):', text, re.M)
  messages = [m for item in items for m in re.findall(r'`([^`]+)`', item)]
  assert len(messages) > 20
  source = _source()
  missing = [
    message
    for message in messages
    if message.replace('GPU', '…').replace('120', '…') not in source
  ]
  assert not missing


def test_messages_point_to_paragraphs_that_are_there():
  links = re.findall(r'(docs/\w+\.md)#([\w-]+)', _source())
  assert links
  for page, anchor in links:
    assert anchor in _anchors(page), (page, anchor)
