"""Reading and writing of tensor files."""
