"""Tests of links to sections and of messages quoted in the guides."""

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


def test_readme_links_to_the_questions():
  assert '(docs/questions.md)' in _text('README.md')


def _package_strings() -> str:
  """Returns all strings of the package, joined, with … for formatted values."""
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


def test_quoted_messages_exist_in_the_code():
  text = _text('docs/trouble.md')
  items = re.findall(r'^- (`.+?`):', text, re.M)
  messages = [m for item in items for m in re.findall(r'`([^`]+)`', item)]
  assert len(messages) > 20
  source = _package_strings()
  missing = [
    message
    for message in messages
    if message.replace('GPU', '…').replace('120', '…') not in source
  ]
  assert not missing


def test_links_in_messages_point_to_existing_sections():
  links = re.findall(r'(docs/\w+\.md)#([\w-]+)', _package_strings())
  assert links
  for page, anchor in links:
    assert anchor in _anchors(page), (page, anchor)
