#!/usr/bin/env python3
"""docs/json.md names every key that --json prints: json_rule.py SOURCE_ROOT UNSHARD."""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT, UNSHARD = sys.argv[1:3]
GOLDEN = os.path.join(ROOT, "tests", "golden")
NAMES = {"views", "files"}  # objects whose keys are names of views and of files
COMMANDS = [["ls", GOLDEN], ["show", f"{GOLDEN}/run/checkpoint-2"], ["show", f"{GOLDEN}/ranks/orig"],
            ["show", f"{GOLDEN}/dcp/megatron/iter_0000010"], ["check", f"{GOLDEN}/zero/other"],
            ["check", f"{GOLDEN}/run", "--deep"],
            ["check", "--config", f"{GOLDEN}/check/sharded_save_only_model.bad.json"],
            ["check", f"{GOLDEN}/run", "--repair", f"{GOLDEN}/no-such-directory"],
            ["diff", f"{GOLDEN}/ranks/orig", f"{GOLDEN}/ranks/fsdp2"],
            ["diff", f"{GOLDEN}/run/checkpoint-2", f"{GOLDEN}/zero/z3_w2/global_step2", "--all"],
            ["explain"], ["seal", f"{GOLDEN}/run", "--seals", os.path.join(tempfile.mkdtemp(), "seals")],
            ["export", f"{GOLDEN}/ranks/fsdp2", f"{GOLDEN}/no-such-directory", "--view", "dcp"]]


def keys(value, within=""):
    if isinstance(value, list):
        for one in value:
            yield from keys(one, within)
    elif isinstance(value, dict):
        for name, one in value.items():
            if within not in NAMES:
                yield name
            yield from keys(one, name)


def printed(command):
    options = [] if "--config" in command or "explain" in command else ["-o", "store=none,settle=0"]
    done = subprocess.run([UNSHARD, *command, "--json", *options], capture_output=True, text=True, timeout=600)
    if done.returncode > 1:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    with open(os.path.join(ROOT, "docs", "json.md"), encoding="utf-8") as page:
        known = set(re.findall(r"`(\w+)`", page.read()))
    missing = {key: command for command in COMMANDS for key in keys(printed(command)) if key not in known}
    for key, command in sorted(missing.items()):
        print(f"docs/json.md does not name {key}, which `unshard {command[0]}` prints")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
