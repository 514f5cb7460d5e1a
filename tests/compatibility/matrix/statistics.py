"""What the client library counted in the processes of a run: which driver functions were called, and which failed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

NOT_SUPPORTED = 801


def collect(folder: Path) -> dict:
    """Sums the files that the processes of one run wrote."""
    entered, posted, waited = 0, 0, 0
    refused: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for path in sorted(folder.glob("*.json")):
        try:
            counted = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # written by a process that was killed meanwhile
        entered += counted.get("entered", 0)
        posted += counted.get("posted", 0)
        waited += counted.get("waited", 0)
        for function, errors in counted.get("errors", {}).items():
            if errors.get("last") == NOT_SUPPORTED:
                refused[function] += errors.get("count", 0)
            else:
                failed[f"{function}={errors.get('last')}"] += errors.get("count", 0)
    return {
        "calls": entered,
        "posted": posted,
        "waited": waited,
        "refused": dict(refused.most_common(12)),
        "failed": dict(failed.most_common(12)),
    }
