#!/usr/bin/env python3
"""Keeps riddles out of comments: words_rule.py SOURCE_ROOT.

Code is not "who", and does not "tell" or "say"; a comment has its subject first, and words that each have one meaning.
This is of the comments of lib, fs and tools; prose_rule.py does the same for documents and sentences that users read."""
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


def comment_words(text):
    for comment in re.finditer(r"/\*.*?\*/", text, re.S):
        for word, better in BETTER.items():
            for match in re.finditer(rf"(?<![\w-])({word})(?![\w-])", comment.group(), re.I):
                line = text.count("\n", 0, comment.start() + match.start()) + 1
                yield line, f'"{" ".join(match.group().split())}": write {better}'


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    n_files = n_bad = 0
    for where in ("lib/**/*.[ch]", "fs/*.[ch]", "tools/*.[ch]"):
        for path in sorted(glob.glob(os.path.join(root, where), recursive=True)):
            n_files += 1
            with open(path, encoding="utf-8") as text:
                for line, what in comment_words(text.read()):
                    n_bad += 1
                    print(f"{os.path.relpath(path, root)}:{line}: {what}")
    print(f"{n_files} files, {n_bad} such words in comments")
    return 1 if n_bad or not n_files else 0


if __name__ == "__main__":
    sys.exit(main())
