"""Reports on the scores of models: tables, HTML pages and figures."""
