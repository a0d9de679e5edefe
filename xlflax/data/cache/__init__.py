"""Token caches: file format, writer, reader and loader."""
