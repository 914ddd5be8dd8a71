#!/usr/bin/env python3
"""Writes the drawings of docs/pictures: drawings.py [--check] [SOURCE_ROOT].

    shards.svg   which bytes of a view's file come from which shard
    views.svg    which view for which trainer
    settle.svg   a checkpoint from its save to its end

--check changes nothing and ends with 1 if a drawing is out of date, or if a text has less than WCAG's contrast of 4.5 against
what is behind it. Colours follow the reader's light or dark mode."""
import os
import re
import sys
from xml.sax.saxutils import escape

STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.code { font-family: ui-monospace, monospace; font-size: 13px }
.small { font-size: 12px; fill: #59636e } .inner { font-size: 12px }
.bold { font-weight: 600 }
rect { fill: #ffffff; stroke: #59636e; rx: 6px }
.r0 { fill: #9ecbff } .r1 { fill: #ffd8a8 } .made { fill: #e6e8eb } .good { fill: #b7ebc6 } .bad { fill: #ffc9c9 }
.part { rx: 0 }
path { fill: none; stroke: #59636e; stroke-width: 1.5 }
.tip { fill: #59636e; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 }
  rect { fill: #161b22; stroke: #9198a1 }
  .r0 { fill: #1f4b8f } .r1 { fill: #7a4a12 } .made { fill: #3d444d } .good { fill: #1c5c33 } .bad { fill: #7d2626 }
  path { stroke: #9198a1 } .tip { fill: #9198a1 }
}"""


PAGES = ("#ffffff", "#0d1117")  # what a page has behind a drawing, in light and in dark mode
LEAST_CONTRAST = 4.5


def fills(dark):
    """selector -> colour"""
    light, _, night = STYLE.partition("@media")
    return dict(re.findall(r"([.\w]+) \{[^}]*?fill: (#\w{6})", light + (night.split("{", 1)[1] if dark else "")))


def brightness(colour):
    parts = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (v / 12.92 if v <= 0.04 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    dark, bright = sorted((brightness(one), brightness(other)))
    return (bright + 0.05) / (dark + 0.05)


def pale_texts(svg):
    """(text, mode, contrast) of each that is hard to read: against the last box that it is in, or the page."""
    number = r'"([\d.]+)"'
    boxes = re.findall(rf'<rect x={number} y={number} width={number} height={number} class="([^"]*)"', svg)
    for x, y, kinds, text in re.findall(rf'<text x={number} y={number} class="([^"]*)"[^>]*>([^<]*)<', svg):
        around = [kind for left, top, width, height, kind in boxes
                  if 0 <= float(x) - float(left) <= float(width) and 0 <= float(y) - float(top) <= float(height)]
        for dark in (False, True):
            colours = fills(dark)

            def colour(element, classes):
                return next((colours[f".{c}"] for c in reversed(classes.split()) if f".{c}" in colours), colours[element])
            found = contrast(colour("text", kinds), colour("rect", around[-1]) if around else PAGES[dark])
            if found < LEAST_CONTRAST:
                yield text, "dark" if dark else "light", found


class Drawing:
    def __init__(self, width, height, title, description):
        self.lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
                      'role="img" aria-labelledby="t d">', f'<title id="t">{escape(title)}</title>',
                      f'<desc id="d">{escape(description)}</desc>', f"<style>{STYLE}\n</style>"]

    def text(self, x, y, text, kind="", anchor="start"):
        self.lines.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def box(self, x, y, width, height, *lines, kind="", text=""):
        """Lines of text in the middle of a box."""
        self.lines.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" class="{kind}"/>')
        top = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for i, line in enumerate(lines):
            code, line = line.startswith("`"), line.strip("`")
            self.text(x + width / 2, round(top + 18 * i, 1), line, "code bold" if code else text, "middle")

    def arrow(self, *points):
        """Through these points, with a tip at the last one."""
        (ax, ay), (bx, by) = points[-2:]
        self.lines.append('<path d="M' + " L".join(f"{x} {y}" for x, y in points) + '"/>')
        dx, dy = (bx > ax) - (bx < ax), (by > ay) - (by < ay)
        self.lines.append(f'<path class="tip" d="M{bx} {by} L{bx - 9 * dx - 4 * dy} {by - 9 * dy - 4 * dx} '
                          f'L{bx - 9 * dx + 4 * dy} {by - 9 * dy + 4 * dx} Z"/>')

    def svg(self):
        return "\n".join([*self.lines, "</svg>", ""])


def shards():
    d = Drawing(860, 300, "From shards to views",
                "A tensor's rows 0 to 3 are in the file of rank 0, rows 4 to 7 in that of rank 1. A file of the view weights is a "
                "header that unshard makes, then for each tensor the bytes of rank 0 and those of rank 1.")
    d.text(20, 28, "runs/llama/checkpoint-2", "code bold")
    d.text(20, 48, "what two ranks saved", "small")
    for y, name, kind in ((70, "__0_0.distcp", "r0"), (150, "__1_0.distcp", "r1")):
        d.box(20, y, 200, 56, kind=kind)
        d.text(34, y + 24, name, "code")
        d.text(34, y + 44, "rows 0-3 of each tensor" if kind == "r0" else "rows 4-7 of each tensor", "inner")
    d.box(20, 230, 200, 44, kind="made")
    d.text(34, 257, ".metadata", "code")
    d.box(310, 110, 170, 96, "the catalog", "which piece of which", "tensor is where")
    for y in (98, 178, 252):
        d.arrow((220, y), (262, y), (262, 158), (310, 158))
    d.text(395, 232, "read once, at the first look", "small", "middle")
    d.text(560, 28, "mnt/weights/llama/checkpoint-2", "code bold")
    d.text(560, 48, "model.safetensors: no byte is stored", "small")
    d.arrow((480, 158), (520, 158), (520, 92), (560, 92))
    d.arrow((480, 158), (520, 158), (520, 218), (560, 218))
    x = 560
    for width, kind, name in ((54, "made", "header"), (54, "r0", "a 0-3"), (54, "r1", "a 4-7"), (54, "r0", "b 0-3"), (54, "r1", "b 4-7")):
        d.box(x, 70, width, 44, name, kind=f"{kind} part", text="inner")
        x += width
    d.text(560, 138, "a read finds the pieces by binary search", "small")
    d.text(560, 172, "mnt/full, mnt/universal, ...", "code bold")
    x = 560
    for width, kind, name in ((72, "made", "zip, pickle"), (66, "r0", "exp_avg"), (66, "r1", "exp_avg"), (66, "made", "CRCs")):
        d.box(x, 196, width, 44, name, kind=f"{kind} part", text="inner")
        x += width
    d.text(560, 264, "the same bytes, framed for another trainer", "small")
    return d


def views():
    d = Drawing(900, 520, "Which view for which trainer",
                "To load weights: weights, or adapter for PEFT. To resume in one process: full. With FSDP and sharded state dicts: "
                "dcp. With FSDP and a full state dict: full-fsdp. With DeepSpeed: world-N if checkpoint and config are DeepSpeed's at "
                "the same stage, else universal. With veRL or EasyR1: world-N. With Megatron-Core: torch_dist.")
    d.box(20, 215, 150, 50, "You want to ...", text="bold")
    d.box(230, 60, 180, 46, "load the weights")
    d.box(230, 285, 180, 46, "resume a training", "with ...")
    d.arrow((170, 240), (200, 240), (200, 83), (230, 83))
    d.arrow((170, 240), (200, 240), (200, 308), (230, 308))
    rows = [(24, "all of them", "`weights`", 83), (74, "those that PEFT trained", "`adapter`", 83),
            (144, "one process, one device", "`full`", 308), (194, "FSDP, sharded state dict", "`dcp`", 308),
            (244, "FSDP, full state dict", "`full-fsdp`", 308), (294, "DeepSpeed, same ZeRO stage", "`world-N`", 308),
            (344, "DeepSpeed, another stage", "`universal`", 308), (394, "veRL, EasyR1", "`world-N`", 308),
            (444, "Megatron-Core", "`torch_dist`", 308)]
    for y, question, view, start in rows:
        d.box(442, y, 242, 38, question)
        d.box(700, y, 180, 38, view, kind="good")
        d.arrow((410, start), (426, start), (426, y + 19), (442, y + 19))
        d.arrow((684, y + 19), (700, y + 19))
    d.text(20, 508, "weights-bf16, -fp16, -fp32 convert. world-N: from DeepSpeed's or veRL's own checkpoints; else universal, or full.", "small")
    return d


def settle():
    d = Drawing(880, 330, "A checkpoint's life",
                "While it is saved it is hidden. When the file that is written last exists, it is ok and shown. If nothing changed for "
                "settle seconds and it is incomplete, it is damaged: listed with UNSHARD_PROBLEM.txt. A new save into the directory "
                "makes it saving again. When it is deleted, readers get ESTALE.")
    d.box(40, 110, 190, 74, "saving", "hidden from views", "that are not whole", kind="made")
    d.box(360, 30, 190, 74, "ok", "shown; latest leads", "to the newest", kind="good")
    d.box(360, 220, 190, 74, "damaged", "listed, with", "UNSHARD_PROBLEM.txt", kind="bad")
    d.box(690, 110, 150, 74, "gone", "open files: ESTALE")
    d.arrow((135, 40), (135, 110))
    d.text(20, 30, "the first file of a save appears", "small")
    d.arrow((230, 130), (290, 130), (290, 60), (360, 60))
    d.text(205, 50, "the last file is written", "small")
    d.arrow((230, 165), (290, 165), (290, 257), (360, 257))
    d.text(60, 232, "settle seconds without a change (60),", "small")
    d.text(60, 250, "and still incomplete", "small")
    d.arrow((380, 104), (380, 147), (230, 147))
    d.text(392, 140, "a second save", "small")
    d.arrow((480, 220), (480, 190), (530, 190), (530, 104))
    d.text(540, 205, "the missing files arrive", "small")
    d.arrow((550, 67), (765, 67), (765, 110))
    d.text(600, 58, "the trainer deletes it", "small")
    d.arrow((550, 257), (765, 257), (765, 184))
    d.text(20, 318, "-o settle=0 judges at once; unshard check --wait waits for the end of settling", "small")
    return d


def main():
    check = "--check" in sys.argv
    rest = [a for a in sys.argv[1:] if a != "--check"]
    root = rest[0] if rest else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    stale = 0
    for draw in (shards, views, settle):
        path = os.path.join(root, "docs", "pictures", f"{draw.__name__}.svg")
        text = draw().svg()
        for pale, mode, found in pale_texts(text):
            stale += 1
            print(f"{path}: {pale!r} has a contrast of {found:.1f} in {mode} mode")
        if check:
            with open(path, encoding="utf-8") as now:
                if now.read() != text:
                    stale += 1
                    print(f"{path} is out of date: run tests/docs/drawings.py")
        else:
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
