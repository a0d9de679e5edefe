"""The demonstration: real sentences, no download, a report in minutes."""
