"""What somebody expected of a change before the run, and what the run said."""
