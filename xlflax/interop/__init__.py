"""Other programs' models, read and written."""
