#!/usr/bin/env python3
"""Writes docs/pictures/terminal.svg: what these commands print on a terminal.

    tests/docs/terminal.py [--check] UNSHARD     needs transformers

--check changes nothing and ends with 1 if a command prints something else than what is drawn. The home directory is drawn
as ~. What libraries of Python print to standard error is not drawn."""
import difflib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
DRAWN = ROOT / "docs/pictures/terminal.svg"
COLUMNS, ROWS = 88, 50
COMMANDS = (
    "unshard ls runs",
    "unshard mount runs mnt -o log=mount.log",
    "ls mnt/weights/llama/latest mnt/full/llama/latest",
    "python -c 'from transformers import AutoModelForCausalLM as M\n"
    'print(M.from_pretrained("mnt/weights/llama/latest").dtype)\'',
    "cp -r runs/llama damaged",
    "truncate -s 1000 damaged/checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp",
    "unshard check damaged -o settle=0",
    "unshard umount mnt",
)
CHARACTER, LINE, GAP, MARGIN, STEP_S = 7.9, 18, 7, 12, 1.2
STYLE = """
rect { fill: #f6f8fa; stroke: #d1d9e0 }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }
.command { font-weight: 600 } .prompt { fill: #59636e } .problem { fill: #c62828; font-weight: 600 }
@keyframes appear { from { opacity: 0.25 } to { opacity: 1 } }
g { animation: appear 0.1s both }
@media (prefers-reduced-motion: reduce), print { g { animation: none } }
@media (prefers-color-scheme: dark) {
  rect { fill: #0d1117; stroke: #3d444d }
  text { fill: #e6edf3 } .prompt { fill: #9198a1 } .problem { fill: #ff7b72 }
}"""


def printed(command, home, unshard):
    """By a command whose output is a terminal."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / ".local/state"), "TERM": "xterm", "LC_ALL": "C.UTF-8",
                   "PATH": f"{unshard.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in ("COLUMNS", "LS_COLORS", "NO_COLOR"):
        environment.pop(name, None)
    running = subprocess.Popen(["bash", "-c", command], cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=end,
                               stderr=subprocess.DEVNULL if command.startswith("python") else end)
    os.close(end)
    got = b""
    try:
        while part := os.read(terminal, 65536):
            got += part
    except OSError:  # the last process has closed its end
        pass
    os.close(terminal)
    if running.wait() not in (0, 1):
        sys.exit(f"{command} ended with {running.returncode}: {got.decode()}")
    return got.decode().replace("\r\n", "\n").replace(str(home), "~").expandtabs().strip("\n")


def record(unshard):
    """[(command, what it prints)]"""
    with tempfile.TemporaryDirectory(dir="/tmp") as top:  # of the same length each time: lines are wrapped by it
        home = Path(top)
        shutil.copytree(ROOT / "tests/golden/run", home / "runs/llama")
        (home / "mnt").mkdir()
        try:
            return [(command, printed(command, home, unshard)) for command in COMMANDS]
        finally:
            subprocess.run([unshard, "umount", home / "mnt"], capture_output=True, check=False)


def span(text, kind):
    return f'<tspan class="{kind}">{escape(text)}</tspan>' if kind else escape(text)


def coloured(line):
    """A line with the terminal's codes for bold red and for the end of it."""
    parts = re.split(r"\x1b\[([\d;]*)m", line)
    kinds = ["", *({"1;31": "problem"}.get(code, "") for code in parts[1::2])]
    return "".join(span(text, kind) for text, kind in zip(parts[::2], kinds) if text)


def svg(steps):
    shown, y = [], MARGIN
    for number, (command, output) in enumerate(steps):
        lines = [span(sign, "prompt") + span(line, "command") for sign, line in zip(("$ ", *["> "] * 9), command.split("\n"))]
        lines += [coloured(line) for line in output.split("\n")] if output else []
        y += GAP
        shown.append(f'<g style="animation-delay: {number * STEP_S:.1f}s">')
        for line in lines:
            y += LINE
            if line:
                shown.append(f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{line}</text>')
        shown.append("</g>")
    width, height = round(COLUMNS * CHARACTER) + 2 * MARGIN, y + MARGIN
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
                      'role="img" aria-labelledby="t">', '<title id="t">A run is listed, mounted, loaded and checked</title>',
                      f"<style>{STYLE}\n</style>", f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
                      *shown, "</svg>", ""])


def main():
    now = svg(record(Path(sys.argv[-1]).resolve()))
    if "--check" not in sys.argv:
        DRAWN.write_text(now)
        return 0
    differences = list(difflib.unified_diff(DRAWN.read_text().split("\n"), now.split("\n"), "drawn", "printed", lineterm=""))
    print("\n".join(differences))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
