#!/usr/bin/env python3
"""Builds the code interpreter's template with E2B's own SDK, on a server that E2B_API_URL names.

The base has the packages of requirements.txt in /opt/code-interpreter/site: scripts/code-interpreter-rootfs.sh
makes one, and `dsec template import` brings it to the server.
"""

import argparse
from pathlib import Path

from e2b import Template, wait_for_url

here = Path(__file__).resolve().parent
to = "/opt/code-interpreter"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--base", required=True, help="template that has the packages")
parser.add_argument("name", nargs="?", default="code-interpreter-v1", help="what the SDKs ask for by default")
args = parser.parse_args()

template = (
    Template(file_context_path=here)
    .from_template(args.base)
    .set_user("root")
    .copy(["server.py", "kernels.py", "results.py", "startup.py", "charts.py"], to + "/")
    .copy("kernels", to + "/jupyter/kernels")
    .set_user("user")
    .set_workdir("/home/user")
    # matplotlib looks for fonts at its first import: once, now, instead of in every sandbox.
    .run_cmd(f"PYTHONPATH={to}/site python3 -c 'import matplotlib.pyplot'")
    # The variables are the server's alone: commands in a sandbox shall not find its packages.
    .set_start_cmd(f"PYTHONPATH={to}/site JUPYTER_PATH={to}/jupyter exec python3 {to}/server.py", wait_for_url("http://127.0.0.1:49999/health", 200))
)
# pandas and matplotlib beside the kernels want more than the default.
info = Template.build(template, args.name, cpu_count=2, memory_mb=1024, on_build_logs=lambda line: print(line.message))
print(f"{args.name}: {info.template_id}")
