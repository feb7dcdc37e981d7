"""Runs over nights: the dataset, the series, and where a level changed."""
