#!/usr/bin/env python3
"""Writes docs/pictures: parts of pages that `unshard show --html` made, as a browser draws them.

    tests/docs/pictures.py UNSHARD     needs chromium, chromedriver and the Python environment of tests/e2e"""

import base64
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/e2e/make")]
import sparse_dcp  # noqa: E402
from browser import Browser  # noqa: E402

WIDTH = 1100


def page(command, checkpoint, out):
    done = subprocess.run([command, "show", checkpoint, "--html", out, "-o", "settle=0,store=none"], check=False)
    assert done.returncode in (0, 1), f"{checkpoint}: exit status {done.returncode}"
    return out


def picture(browser, selector, name):
    browser.run(f"document.querySelector({selector!r}).scrollIntoView()")
    element = browser.ask("POST", "/element", {"using": "css selector", "value": selector})
    png = browser.ask("GET", f"/element/{next(iter(element.values()))}/screenshot")
    (ROOT / "docs/pictures" / name).write_bytes(base64.b64decode(png))


def main(command):
    with tempfile.TemporaryDirectory() as top:
        top = Path(top)
        sparse_dcp.write(top / "llama-70b", sparse_dcp.llama_70b(), 16, states=("exp_avg", "exp_avg_sq"), holes=True)
        damaged = shutil.copytree(ROOT / "tests/golden/run", top / "run") / "checkpoint-2"
        (damaged / "pytorch_model_fsdp_0/__1_0.distcp").unlink()
        sound = shutil.copytree(ROOT / "tests/golden/run", top / "llama")
        subprocess.run([command, "show", "llama/checkpoint-2", "--svg", ROOT / "docs/pictures/map.svg",
                        "-o", "settle=0,store=none"], check=True, cwd=sound.parent)
        browser = Browser()
        try:
            browser.ask("POST", "/window/rect", {"width": WIDTH, "height": 900})
            browser.open(page(command, top / "llama-70b", top / "page.html"))
            picture(browser, "#map", "map.png")
            browser.open(page(command, damaged, top / "page.html"))
            picture(browser, "#tensor", "tensor.png")
        finally:
            browser.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
