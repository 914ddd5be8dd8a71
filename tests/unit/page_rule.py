#!/usr/bin/env python3
"""The pages that unshard makes stay small enough to be read: tools/page has fewer than 1,500 lines of JavaScript, each of at
most 150 characters. page_rule.py SOURCE_ROOT"""
import glob
import os
import sys

MOST_LINES, MOST_COLUMNS = 1499, 150

lines = []
for path in sorted(glob.glob(os.path.join(sys.argv[1], "tools", "page", "*.js"))):
    with open(path, encoding="utf-8") as script:
        lines += [(path, i, line.rstrip("\n").expandtabs(1)) for i, line in enumerate(script, 1)]
long = [f"{path}:{i}: {len(line)} characters" for path, i, line in lines if len(line) > MOST_COLUMNS]
print(*long, sep="\n", end="\n" if long else "")
print(f"{len(lines)} lines of JavaScript in tools/page, at most {MOST_LINES}")
sys.exit(not lines or len(lines) > MOST_LINES or bool(long))
