"""From rows to verdicts, findings and the decision. Pure, apart from what reads a run's folder."""
