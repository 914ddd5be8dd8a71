#!/usr/bin/env python3
"""Checks which calls only one file of lib makes: calls_rule.py SOURCE_ROOT.

Floating-point text: strtod and printf follow the program's locale, where 0.5 may be no number. Threads: each blocks all
signals and has its maker's processors."""
import os
import re
import sys

ROOT = sys.argv[1]
FLOAT_TEXT = re.compile(r'''
    \b(?:strto(?:f|d|ld)|atof|setlocale|localeconv|uselocale|strfrom\w+|[ef]cvt|gcvt)\s*\(
    | "(?:[^"\\%]|\\.|%%|%[^"])*? %[-+\ #0']*[\d*]*(?:\.[\d*]*)?[lL]?[aAeEfFgG]''', re.X)
ONLY = {
    os.path.join("base", "number.c"): FLOAT_TEXT,
    os.path.join("base", "thread.c"): re.compile(r"\b(?:pthread_create|thrd_create|pthread_sigmask|sched_setaffinity)\s*\("),
}
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def faults(path, call):
    with open(path, encoding="utf-8") as file:
        source = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), file.read())
    for number, line in enumerate(source.split("\n"), 1):
        found = call.search(line)
        if found:
            yield number, found.group()


def main():
    found = 0
    for folder, _, names in os.walk(os.path.join(ROOT, "lib")):
        for path in (os.path.join(folder, name) for name in names if name.endswith((".c", ".h"))):
            for owner, call in ONLY.items():
                if path.endswith(os.sep + owner):
                    continue
                for number, what in faults(path, call):
                    print(f"{path}:{number}: {what}: this belongs to lib/{owner}")
                    found += 1
    return found != 0


sys.exit(main())
