"""Writes docs/compatibility.md from the results of a run."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
REASONS = HERE / "reasons.toml"

GROUPS = {
    "isolation": "The client's machine",
    "cuda": "CUDA programs",
    "torch": "PyTorch",
    "transformers": "transformers",
    "cupy": "CuPy",
    "jax": "JAX",
    "triton": "Triton",
    "devices": "Several devices",
    "numba": "Numba-CUDA",
    "cuda_python": "cuda-python",
    "nvml": "nvidia-smi and nvidia-ml-py",
}

HEAD = """# Compatibility

What runs unmodified through Outboard: every case twice on one machine, natively with NVIDIA's driver and through
`outboard run` with a server of the same machine, and the outputs compared. Written by `tests/compatibility/run.py page`
from the results of a run; [tests/compatibility](../tests/compatibility/README.md) says how to repeat it.

The run through Outboard has nothing of NVIDIA's driver: its `/dev` holds no device of NVIDIA's and cannot hold one, the
driver's libraries are hidden, and the cases of the group "the client's machine" show that only Outboard's libraries are
mapped. *Equal* means that both runs printed the same: checksums of all results and losses of training with the same
seeds, bit for bit; *close* that the case allows a tolerance, since the native run by itself differs from time to time.
A case passes when its runs end well and their outputs are equal or close. A sample of NVIDIA's passes when its own check
does, whatever its output is; its table says how the outputs compare.
"""


def reasons() -> dict[str, str]:
    """What people say of cases that do not pass."""
    return tomllib.loads(REASONS.read_text()) if REASONS.exists() else {}


def equal(row: dict) -> str:
    """What comparing the outputs gave."""
    if "native" not in row or not row["native"].get("ok") or not row.get("remote", {}).get("ok"):
        return "–"
    if row["result"] == "differs":
        return "**no**"
    return "close" if " ~" in row["native"]["stdout"] else "equal"


def ended(run: dict | None) -> str:
    if run is None:
        return "–"
    return f"{run['seconds']:.1f} s" if run["ok"] else f"**{run['ended']}**"


def cell(text: str) -> str:
    # Folders are of one machine.
    text = re.sub(r"(?<![\w.])/(?:[\w.+@-]+/)+", "", text)
    return " ".join(text.split()).replace("|", "\\|")


def reason(row: dict, said: dict[str, str]) -> str:
    """Why a case does not pass: what people say, else what it printed and what was refused."""
    if row["result"] == "passes":
        return said.get(row["name"], "") if row.get("native_differs") else ""
    if row["name"] in said:
        return cell(said[row["name"]])
    parts = [row.get("reason") or row.get("native_error") or row.get("error", "")]
    refused = row.get("statistics", {}).get("refused", {})
    if refused:
        parts.append("not supported: " + ", ".join(f"`{name}`" for name in refused))
    return cell("; ".join(part for part in parts if part))


def table(rows: list[dict], said: dict[str, str]) -> str:
    text = "| case | native | Outboard | outputs | |\n|---|---|---|---|---|\n"
    for row in rows:
        name = row["name"].split("/", 1)[1]
        what = f"`{name}`: {cell(row['title'])}"
        text += f"| {what} | {ended(row.get('native'))} | {ended(row.get('remote'))} | {equal(row)} | {reason(row, said)} |\n"
    return text


def counts(rows: list[dict]) -> str:
    total = Counter(row["result"] for row in rows)
    passes = total.pop("passes", 0)
    others = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    return f"{passes} of {len(rows)} pass" + (f" ({others})" if others else "")


def samples_section(results: dict, said: dict[str, str]) -> str:
    """The table of NVIDIA's samples."""
    rows = results["rows"]
    ran = [row for row in rows if row["result"] != "left out"]
    able = [row for row in ran if row["result"] != "native fails"]
    text = "\n## NVIDIA's cuda-samples\n\n"
    if results.get("release"):
        text += f"From {results['release']}. "
    text += "Each with its own check, natively and through Outboard: a sample passes when it exits with 0 and says nothing of a failure. "
    text += f"{len(rows)} samples: {len(rows) - len(ran)} left out, {len(ran) - len(able)} that do not pass natively either, "
    text += f"and of the other {len(able)}, {sum(row['result'] == 'passes' for row in able)} pass.\n\n"
    outputs = Counter(row.get("output") for row in able if row["result"] == "passes")
    text += "Outputs are compared as well, without times and rates, and decide nothing: of those that pass, "
    text += f"{outputs['same']} print the same both times, {outputs['varies']} vary (a second native run differs from the first, too), "
    text += f"and {outputs['**differs**']} differ, each shown with its first line that does.\n\n"
    text += "| sample | native | Outboard | output | |\n|---|---|---|---|---|\n"
    for row in rows:
        known = said.get(f"samples/{row['name']}") if row["result"] != "passes" else None
        why = cell(known or row.get("reason") or row.get("native_error") or row.get("error", ""))
        text += f"| {row['name']} | {ended(row.get('native'))} | {ended(row.get('remote'))} | {row.get('output', '–')} | {why} |\n"
    return text


PROGRAMS = "Debian's programs"


def programs_section(results: dict) -> str:
    """The tables of programs that recipes run."""
    said = reasons()
    rows = results["rows"]
    text = f"\n## {PROGRAMS}\n\nAs Debian 12 packages them, linked with CUDA 11.8, on "
    text += f"{', '.join(device['name'] for device in results['devices'])}: {counts(rows)}. Small libraries stand in for those of CUDA 11 and "
    text += "call those of CUDA 13, natively, too. Each recipe also checks results against what the program computes on the processor, or "
    text += "against what is known. Written by `tests/compatibility/programs.py page`.\n"
    for name, program in results["programs"].items():
        tried = [row for row in rows if row["group"] == name]
        if tried:
            text += f"\n### {program['title']}\n\n{program['about'][0].upper()}{program['about'][1:]} (`{program['package']}`).\n\n"
            text += table(tried, said)
    return text


def split(text: str) -> tuple[str, str]:
    """A page without the section of programs, and the section, which other results are for."""
    before, heading, rest = text.partition(f"\n## {PROGRAMS}\n")
    section, following, after = rest.partition("\n## ")
    return before + following + after, heading + section


def render(results: dict, samples: dict | None) -> str:
    said = reasons()
    rows = results["rows"]
    text = HEAD + "\n## In short\n\n| | |\n|---|---|\n"
    groups = [name for name in GROUPS if any(row["group"] == name for row in rows)]
    groups += sorted({row["group"] for row in rows} - set(GROUPS))
    for group in groups:
        text += f"| {GROUPS.get(group, group)} | {counts([row for row in rows if row['group'] == group])} |\n"
    if samples:
        able = [row for row in samples["rows"] if row["result"] not in ("left out", "native fails")]
        text += f"| NVIDIA's samples | {sum(row['result'] == 'passes' for row in able)} of {len(able)} that pass natively |\n"
    text += "\n## Where\n\n| | |\n|---|---|\n"
    for name, value in {**results["machine"], **results["packages"]}.items():
        text += f"| {name} | {cell(value)} |\n"
    for group in groups:
        text += f"\n## {GROUPS.get(group, group)}\n\n"
        text += table([row for row in rows if row["group"] == group], said)
    if samples:
        text += samples_section(samples, said)
    return text
