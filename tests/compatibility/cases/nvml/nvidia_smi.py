#: title = "nvidia-smi: queries, listing and the table"
import os
import re
import subprocess
import sys

from compat import check, show

smi = os.environ.get("COMPAT_NVIDIA_SMI")
if not smi:
    sys.exit("FAILED: there is no nvidia-smi")


def ask(*options):
    done = subprocess.run([smi, *options], capture_output=True, text=True, check=False, timeout=50)
    if done.returncode != 0:
        sys.exit(f"FAILED: nvidia-smi {' '.join(options)}: exit {done.returncode}: {(done.stdout + done.stderr).strip()[:300]}")
    return done.stdout


FIELDS = "index name uuid pci.bus_id memory.total driver_version compute_cap power.max_limit clocks.max.sm clocks.max.memory compute_mode persistence_mode mig.mode.current vbios_version"
for field in FIELDS.split():
    show(field, ask(f"--query-gpu={field}", "--format=csv,noheader").strip())
show("list", ask("-L").strip())
table = ask()
check("the table has the device", "MiB /" in table and re.search(r"NVIDIA-SMI\s+\d+", table))
check("details", "Product Name" in ask("-q"))
ask("--query-compute-apps=pid,used_memory", "--format=csv,noheader")
check("topology", "GPU0" in ask("topo", "-m"))
