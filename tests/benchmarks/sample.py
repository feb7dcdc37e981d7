"""The recorded sample judged anew: its verdicts by today's rules, and the list of findings that a person judges.

Run after the sample was recorded again, or after a rule changed:

    PYTHONPATH=.:tests python -P tests/benchmarks/sample.py

It rewrites ``matrix/data/sample/verdicts.parquet`` and ``tests/data/sample_findings.json``. A finding that a person
judged keeps that judgement as long as it reads the same; a new one is marked, and ``tests/test_sample.py`` fails
until somebody has looked at the figures and put a reason in its place.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from sample_findings import LIST, OPEN, judged_again, listed, read_list

from matrix.judging.findings import findings
from matrix.resources import sample_folder
from matrix.storage.store import write_verdicts


def main() -> None:
    run = judged_again()
    write_verdicts(sample_folder(), run.verdicts)
    known = {replace(one, why=OPEN): one.why for one in read_list()} if LIST.exists() else {}
    rows = [replace(one, why=known.get(one, OPEN)) for one in listed(findings(run.verdicts))]
    LIST.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(rows)} findings, {sum(row.why == OPEN for row in rows)} of them to be judged by a person: {LIST}")


if __name__ == "__main__":
    main()
