#!/usr/bin/env python3
"""The manual page knows what --help knows: manual_rule.py SOURCE_ROOT UNSHARD.

Every verb, every action and option of a verb, and every option after -o that --help lists is in
tools/unshard.1; groff formats the page without a warning, where it is installed."""
import os
import re
import shutil
import subprocess
import sys

ROOT, UNSHARD = sys.argv[1:3]
PAGE = os.path.join(ROOT, "tools", "unshard.1")
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "VERBS", "VIEWS", "OPTIONS", "FILES", "ENVIRONMENT", "DIAGNOSTICS",
            "EXIT STATUS", "EXAMPLES", "SEE ALSO"]


def help_of(*verb):
    return subprocess.run([UNSHARD, *verb, "--help"], check=True, capture_output=True, text=True, timeout=600).stdout


def known():
    """(where, what) of everything that --help lists."""
    for verb in dict.fromkeys(re.findall(r"^  unshard ([a-z]+) ", help_of(), re.M)):
        yield "unshard", verb
        text = help_of(verb)
        for name in re.findall(r"^  (?:-\w, )?(--[\w-]+|[a-z_-]+)[ =\n]", text, re.M):
            yield f"unshard {verb}", name
        for passed in re.findall(r"^Handed on[^:]*: (.*)$", text, re.M):
            yield from ((f"unshard {verb}", name) for name in passed.split())


def words_of_page():
    """The page as plain text: requests and font changes gone."""
    with open(PAGE, encoding="utf-8") as page:
        text = page.read()
    text = re.sub(r"\\f[A-Z]|\\c|\\&", "", text).replace("\\-", "-")
    return re.sub(r"^\.\w+ ?|\"", "", text, flags=re.M), re.findall(r'^\.SH "?([A-Z ]+)"?$', text, re.M)


def main():
    text, sections = words_of_page()
    problems = [f"{where} --help lists {name}, tools/unshard.1 does not" for where, name in dict.fromkeys(known())
                if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]
    order = [s for s in sections if s in SECTIONS]
    if order != SECTIONS:
        problems.append(f"sections are {', '.join(order)}; expected {', '.join(SECTIONS)}")
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", PAGE], capture_output=True, text=True, timeout=600)
        problems += done.stderr.splitlines()
    print("\n".join(problems) or "the manual page knows all of it")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
