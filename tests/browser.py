"""Display checks of pages in Chromium: visible and readable content."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

# Runs in a frame of the page's width, because windows have a minimum width.
_FRAME = """<!doctype html><body style="margin:0"><iframe id="page"
src="{page}" style="border:0;width:{width}px;height:3000px"></iframe>
<script>
const bright = (color) => color.match(/[0-9.]+/g).slice(0, 3)
  .reduce((sum, part) => sum + Number(part) / 765, 0);
page.onload = () => {{
  const found = page.contentDocument, view = page.contentWindow;
  const scrolls = (one) => one && (
    /auto|scroll/.test(view.getComputedStyle(one).overflowX) ||
    scrolls(one.parentElement));
  const outside = [...found.body.querySelectorAll('*')].filter((one) =>
    one.getBoundingClientRect().right > {width} + 1 && !scrolls(one));
  const style = view.getComputedStyle(found.body);
  document.title = JSON.stringify({{
    outside: outside.map((one) => one.outerHTML.slice(0, 80)),
    width: found.documentElement.scrollWidth,
    text: bright(style.color), background: bright(style.backgroundColor),
  }});
}};
</script>"""


def is_installed() -> bool:
  """Returns whether Chromium is installed."""
  return shutil.which('chromium') is not None


def find_problems(page: pathlib.Path, width: int, *, dark: bool) -> list[str]:
  """Returns the display problems of a page; [] for a valid page.

  Args:
    page: HTML file.
    width: Window width in pixels.
    dark: Whether to use the dark theme.
  """
  measurements = _look(page, width, dark)
  descriptions = [
    f'{description} is outside' for description in measurements['outside']
  ]
  if measurements['width'] > width:
    descriptions.append(f'the page is {measurements["width"]} wide')
  contrast = abs(measurements['text'] - measurements['background'])
  if contrast < 0.6 or (measurements['background'] < 0.5) != dark:
    descriptions.append(
      f'text {measurements["text"]:.2f} on {measurements["background"]:.2f}'
    )
  return [
    f'{page.name} at {width}, dark {dark}: {description}'
    for description in descriptions
  ]


def _look(page: pathlib.Path, width: int, dark: bool) -> dict:
  with tempfile.TemporaryDirectory() as folder:
    frame = pathlib.Path(folder) / 'frame.html'
    frame.write_text(_FRAME.format(page=page.as_uri(), width=width))
    scheme = f'--blink-settings=preferredColorScheme={0 if dark else 1}'
    page_source = render_page(
      frame.as_uri(), '--allow-file-access-from-files', scheme
    )
  title = re.search(r'<title>(.*?)</title>', page_source, re.S)
  assert title, page_source[-2000:]
  return json.loads(html.unescape(title[1]))


def render_page(address: str, *flags: str) -> str:
  """Returns the HTML of a page after its scripts have run.

  Args:
    address: Address of the page, such as a file URL with an optional query.
    flags: Command-line flags of Chromium.
  """
  with tempfile.TemporaryDirectory() as profile:
    return subprocess.run(
      [
        'chromium', '--headless=new', '--no-sandbox', '--disable-gpu',
        '--hide-scrollbars', '--virtual-time-budget=20000',
        f'--user-data-dir={profile}', '--window-size=1300,3000', *flags,
        '--dump-dom', address,
      ],
      capture_output=True,
      text=True,
      check=True,
    ).stdout  # fmt: skip
