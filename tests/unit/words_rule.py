#!/usr/bin/env python3
"""Keeps riddles out of comments: words_rule.py SOURCE_ROOT [--counts].

Code is not "who", and does not "tell" or "say"; a comment has its subject first, and words that each have one meaning.
Comments of lib, fs and tools are counted; prose_rule.py does the same for documents and sentences that users read.

ALLOWED is how many of these words a folder may still have, if any. The numbers only shrink: lower them when you rewrite
comments. --counts prints the present ones."""
import collections
import glob
import os
import re
import sys

# Word (a regular expression, whole words, any case) -> what to write instead.
BETTER = {
    r"who|whom|who(so)?ever|somebody|nobody": "name the function, the reader or the user",
    r"tells?|told|telling": "reports, records, passes",
    r"says?|said|saying": "reports, records, has, decides",
    r"(give|gives|given|giving|hand|hands|handed) out": "returns, supplies",
    r"(make|makes|made|making) up": "computes, supplies",
    r"stands?|stood": "is, is in, means",
    r"(goes|go|went|gone) on": "continues, resumes",
    r"anew": "again, new",
    r"be had": "available",
    r"meets?": "visits, finds",
    r"(that|what|which) (is|are|was|were) there": "that exists",
}
ALLOWED = {
    "fs": 40,
    "lib": 6,
    "lib/api": 3,
    "lib/check": 6,
    "lib/device": 1,
    "lib/export": 3,
    "lib/io": 1,
    "lib/meta": 1,
    "lib/out": 3,
    "lib/paths": 23,
    "lib/session": 32,
    "lib/store": 1,
    "lib/verify": 1,
    "tools": 4,
}


def comment_words(text):
    for comment in re.finditer(r"/\*.*?\*/", text, re.S):
        for word, better in BETTER.items():
            for match in re.finditer(rf"(?<![\w-])({word})(?![\w-])", comment.group(), re.I):
                line = text.count("\n", 0, comment.start() + match.start()) + 1
                yield line, f'"{" ".join(match.group().split())}": write {better}'


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    found = collections.defaultdict(list)
    for where in ("lib/**/*.[ch]", "fs/*.[ch]", "tools/*.[ch]"):
        for path in sorted(glob.glob(os.path.join(root, where), recursive=True)):
            name = os.path.relpath(path, root)
            with open(path, encoding="utf-8") as text:
                found["/".join(os.path.dirname(name).split("/")[:2])] += [(name, *where) for where in comment_words(text.read())]
    if "--counts" in sys.argv:
        for room, words in sorted(found.items()):
            if words:
                print(f'    "{room}": {len(words)},')
        return 0
    bad = {room: words for room, words in found.items() if len(words) > ALLOWED.get(room, 0)}
    for room, words in bad.items():
        for name, line, what in words:
            print(f"{name}:{line}: {what}")
        print(f"{room}: {len(words)} such words in comments; at most {ALLOWED.get(room, 0)}")
    print(f"{len(found)} rooms, {len(bad)} with too many")
    return 1 if bad or not found else 0


if __name__ == "__main__":
    sys.exit(main())
