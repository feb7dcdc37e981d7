"""Environments on disk: resolved, locked, installed, found again."""
