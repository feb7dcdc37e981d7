"""Documented regressions run good side against bad, and other people's kernel suites."""
