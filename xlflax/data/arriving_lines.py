"""Lines of a stream as they come."""

import queue
import threading
from collections.abc import Iterator
from typing import BinaryIO


def chunks(source: BinaryIO, count: int) -> Iterator[list[bytes]]:
  """The lines that are there, at least one and at most `count` at a time.

  A thread reads ahead, so that a line that is typed comes at once and lines
  of a fast source come many at a time.

  Args:
    source: of lines; what reading it raises is raised after the last line.
    count: lines of a chunk at most.
  """
  lines: queue.Queue = queue.Queue(maxsize=4 * count)

  def read():
    try:
      for line in source:
        lines.put(line)
      lines.put(None)
    except Exception as error:  # raised below
      lines.put(error)

  threading.Thread(target=read, daemon=True).start()
  last = None
  while True:
    chunk = [lines.get()]
    while len(chunk) < count and isinstance(chunk[-1], bytes):
      try:
        chunk.append(lines.get_nowait())
      except queue.Empty:
        break
    if not isinstance(chunk[-1], bytes):
      last = chunk.pop()
      if chunk:
        yield chunk
      if last is not None:
        raise last
      return
    yield chunk
