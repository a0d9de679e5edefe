"""What Chromium shows of a page: whether all of it can be seen and read."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

# Runs in a frame of the page's own width: windows have a least one.
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


def is_there() -> bool:
  """Whether Chromium is installed."""
  return shutil.which('chromium') is not None


def problems(page: pathlib.Path, width: int, *, dark: bool) -> list[str]:
  """What a reader cannot see or read; [] for a good page.

  Args:
    page: the file.
    width: of the window, in pixels.
    dark: whether the reader's system is.
  """
  seen = _look(page, width, dark)
  found = [f'{one} is outside' for one in seen['outside']]
  if seen['width'] > width:
    found.append(f'the page is {seen["width"]} wide')
  contrast = abs(seen['text'] - seen['background'])
  if contrast < 0.6 or (seen['background'] < 0.5) != dark:
    found.append(f'text {seen["text"]:.2f} on {seen["background"]:.2f}')
  return [f'{page.name} at {width}, dark {dark}: {one}' for one in found]


def _look(page: pathlib.Path, width: int, dark: bool) -> dict:
  with tempfile.TemporaryDirectory() as folder:
    frame = pathlib.Path(folder) / 'frame.html'
    frame.write_text(_FRAME.format(page=page.as_uri(), width=width))
    scheme = f'--blink-settings=preferredColorScheme={0 if dark else 1}'
    shown = content(frame.as_uri(), '--allow-file-access-from-files', scheme)
  title = re.search(r'<title>(.*?)</title>', shown, re.S)
  assert title, shown[-2000:]
  return json.loads(html.unescape(title[1]))


def content(address: str, *flags: str) -> str:
  """The HTML of a page after its scripts have run.

  Args:
    address: such as that of a file, with a query where one is wanted.
    flags: of Chromium.
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
