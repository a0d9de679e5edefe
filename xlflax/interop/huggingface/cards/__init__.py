"""Reading and writing of model cards."""
