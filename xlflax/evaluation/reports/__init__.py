"""Reports on model scores: tables, HTML pages and figures."""
