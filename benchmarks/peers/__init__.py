"""The same work in other libraries."""
