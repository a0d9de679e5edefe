"""What MkDocs does to the pages of the site.

Pages that lie outside of `docs/` (`OUTSIDE`) join the site, and links among the
pages are rewritten, so that the same link works on GitHub and on the site. The
pages of the API reference are made from the modules that are there.
"""

import ast
import pathlib
import posixpath
import re
import subprocess
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).parents[2]

# File of the repository -> page of the site.
OUTSIDE = {
  'ARCHITECTURE.md': 'architecture.md',
  'CHANGELOG.md': 'changelog.md',
  'CONTRIBUTING.md': 'contributing.md',
  'README.md': 'index.md',
  'benchmarks/README.md': 'benchmarks.md',
  'launch/README.md': 'from_one_to_many.md',
}

_LINK = re.compile(r'(\]\()([^)\s#]+)((?:#[^)\s]*)?\))')


# Rooms whose modules are no API: flags of the command line, one application.
_NOT_API = ('cli', 'commands', 'demo')

_LINK = re.compile(r'\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)')


def on_config(config):
  """Has each page say which version and commit it describes."""
  version = re.search(
    r"__version__ = '(.+)'", (ROOT / 'xlflax/__init__.py').read_text('utf-8')
  )
  assert version
  commit = subprocess.run(
    ['git', 'rev-parse', '--short', 'HEAD'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  ).stdout.strip()
  config['copyright'] = f'xlflax {version[1]}' + (
    f', commit {commit}' if commit else ''
  )
  return config


def on_files(files, config):
  """Adds the pages from outside and the API reference."""
  from mkdocs.structure.files import File

  for path, page in OUTSIDE.items():
    text = (ROOT / path).read_text(encoding='utf-8')
    text = rewrite_links(text, path, page)
    files.append(File.generated(config, page, content=text))
  for page, text in api_pages().items():
    files.append(File.generated(config, page, content=text))
  return files


def on_page_markdown(markdown, page, config, files):
  """Rewrites the links of a page that lies in `docs/`."""
  uri = page.file.src_uri
  if (ROOT / 'docs' / uri).exists():
    return rewrite_links(markdown, f'docs/{uri}', uri)
  return markdown


def rewrite_links(text: str, source: str, page: str) -> str:
  """Turns links between files of the repository into links of the site.

  The text of a link to a file that is not on the site stays without the link.
  A link to a file that does not exist stays: a strict build refuses it.

  Args:
    text: Markdown.
    source: its path in the repository, such as 'launch/README.md'.
    page: its path on the site, such as 'from_one_to_many.md'.
  """

  def rewrite(match: re.Match) -> str:
    label, target, anchor = match.groups(default='')
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if '://' in target or not (ROOT / path).exists():
      return match.group()
    if path not in OUTSIDE and not path.startswith('docs/'):
      return label
    path = OUTSIDE.get(path, path.removeprefix('docs/'))
    path = posixpath.relpath(path, posixpath.dirname(page) or '.')
    return f'[{label}]({path}{anchor})'

  return _LINK.sub(rewrite, text)


def api_pages() -> dict[str, str]:
  """Page -> Markdown of the API reference, a page for each room."""
  package = ROOT / 'xlflax'
  rooms = sorted(
    path.parent.name
    for path in package.glob('*/__init__.py')
    if path.parent.name not in _NOT_API
  )
  pages = {
    'reference/index.md': _overview(rooms),
    'reference/top_level.md': _reference(package, package.glob('*.py')),
  }
  for room in rooms:
    folder = package / room
    pages[f'reference/{room}.md'] = _reference(folder, folder.rglob('*.py'))
  return pages


def _overview(rooms: list[str]) -> str:
  lines = [
    '# API reference',
    '',
    'Public names are imported from their room: '
    '`from xlflax.models import Encoder`. The order of the rooms, and what each '
    'may import, is in the [map](../architecture.md).',
    '',
    '| room | holds |',
    '| --- | --- |',
    '| [`xlflax`](top_level.md) | a run as an object, and small modules |',
  ]
  for room in rooms:
    summary = ast.get_docstring(_package(ROOT / 'xlflax' / room)) or ''
    summary = ' '.join(summary.split('\n\n')[0].split())
    lines.append(f'| [`xlflax.{room}`]({room}.md) | {summary} |')
  return '\n'.join(lines)


def _reference(folder: pathlib.Path, files: Iterable[pathlib.Path]) -> str:
  """A page with the public names of a room, then its modules."""
  title = '.'.join(folder.relative_to(ROOT).parts)
  modules = sorted(
    '.'.join(path.relative_to(ROOT).with_suffix('').parts)
    for path in files
    if not path.name.startswith('_')
  )
  parts = [f'# {title}']
  if links := _public_names(folder):
    parts.append(f'Public names of `{title}`: {", ".join(links)}.')
  return '\n\n'.join([*parts, *(f'::: {module}' for module in modules)])


def _public_names(folder: pathlib.Path) -> list[str]:
  """Links to the public names of a package, which it imports lazily."""
  return sorted(
    f'[`{alias.name}`][{node.module}.{alias.name}]'
    for block in _package(folder).body
    if isinstance(block, ast.With)
    for node in block.body
    if isinstance(node, ast.ImportFrom) and node.module != 'xlflax'
    for alias in node.names
  )


def _package(folder: pathlib.Path) -> ast.Module:
  return ast.parse((folder / '__init__.py').read_text(encoding='utf-8'))
