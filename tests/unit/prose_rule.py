#!/usr/bin/env python3
"""Checks what a test can check of the documents' prose: prose_rule.py SOURCE_ROOT.

In every document: code fences are closed, rows of a table have as many cells as its head, links to files
and to headings resolve. In those that users read also: no sentence has more than 35 words, no paragraph
more than 6 lines, and no word stands for something that docs/glossary.md has another word for, also in
ARCHITECTURE.md. The manual page keeps to the same sentences and words. Code, and what is quoted as code, is
exempt. README.md stays short, and so is each verb of docs/cli.md. Every page is two clicks away from it, and has at most 1,500 words beside what
tests/docs/generate.py writes. What CHANGELOG.md says of a version that is
not released is what it has, not what it had while it was made.

The same words in what the program says: the sentences among the string literals of lib, tools and fs."""
import glob
import os
import re
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
LONGEST = 35  # words
MOST_LINES = 6  # of a paragraph
MOST_README_LINES = 145
MOST_WORDS = 1500  # of a page, without what is generated
SCREEN_LINES = 50  # of one verb in docs/cli.md
DOCS = sorted(os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True))
FOR_USERS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"] + DOCS
MANUAL = "tools/unshard.1"
DOCUMENTS = FOR_USERS + ["ARCHITECTURE.md", "tests/bench/RESULTS.md"]

# Term (a regular expression, whole words, any case) -> what to say instead.
BETTER = {
    r"world sizes?": "number of ranks",
    r"data types?": "dtype",
    r"fp32 masters?|master (copy|copies|weights?)": "fp32 copy",
    r"(lay-?outs?) of (the )?(flat )?units|unit layouts?": "unit map",
    r"flaws?|harm(ed|ful)?": "problem",
    r"(go|goes|going|went|gone) on (from|with|in|at|wrongly)": "resume, continue",
    r"(give|gives|given|giving|hand|hands|handed) out": "show, return, convert to",
    r"cut short|torn": "truncated; interrupted (a save)",
    r"broken|corrupt(ed|ion)?": "damaged (files), invalid (JSON, config)",
    r"(made|make|makes|making) up": "supplied, assumed; computed",
    r"(can|could)(not| not)? be had": "available, not available",
    r"told (by|from|apart)|be told|is told": "find from, report",
    r"who(so)?ever|somebody|nobody": "name the actor",
    r"(is|are) said": "is reported",
    r"answers to|meets with": "has",
    r"tells?": "report, record, find from",
    r"anew": "again, from the beginning",
    r"insists? on": "needs, requires",
    r"(that|what|which) (is|are|was|were) there": "found, exists, has",
    r"stands? in": "is in",
    r"seamless(ly)?|blazing(ly)?|effortless(ly)?|powerful|simply|robust(ly)?|revolutionary": "nothing: it is praise",
}


# Literals that are no prose: SQL, and the format's own term (pickle's memo).
NO_PROSE = re.compile(r"^(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|ALTER|DROP) |\ba memo number\b")
LITERALS = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as text:
        return text.read()


def without_code(text):
    """Fenced blocks as empty lines, code spans as one word, comments gone. -> (text, fences are closed)"""
    lines, fence = [], None
    for line in text.split("\n"):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and (fence is None or line.strip() == fence):
            fence = mark.group(1) if fence is None else None
            lines.append("")
        else:
            lines.append("" if fence else line)
    text = "\n".join(lines)
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", lambda m: "CODE" + "\n" * m.group().count("\n"), text, flags=re.S)
    text = re.sub(r"<!--.*?-->", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return text, fence is None


def slug(heading):
    heading = re.sub(r"[^\w\- ]", "", re.sub(r"`|\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower())
    return heading.replace(" ", "-")


def anchors(name):
    text = read(name)
    fenced = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.S | re.M)
    found = {slug(h) for h in re.findall(r"^#+ +(.*)$", fenced, re.M)}
    return found | set(re.findall(r'<a id="([^"]+)"', text))


def linked(name):
    """The files that a page links to."""
    targets = re.findall(r"\]\((?![a-z]+:)([^)\s#]+)", without_code(read(name))[0])
    return {os.path.normpath(os.path.join(os.path.dirname(name), target)) for target in targets}


def link_problems(name, text):
    for match in re.finditer(r"\]\(([^)\s]+)\)", text):
        target = match.group(1)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        line = text.count("\n", 0, match.start()) + 1
        if not os.path.exists(os.path.join(ROOT, path)):
            yield line, f"links to {target}, which is not there"
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            yield line, f"links to {target}, and {path} has no such heading"


def table_problems(text):
    width = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = width or cells
        if cells != width or not line.rstrip().endswith("|"):
            yield number, f"a table's row with {cells - 1} cells; its head has {width - 1}"


def paragraphs(text):
    """(line, lines) of each paragraph, list item and heading; tables and code do not count."""
    start, kept = 0, []
    for number, line in enumerate(text.split("\n") + [""], 1):
        begins = re.match(r"\s*([-*]|\d+\.) |#", line)
        if not line.strip() or line.startswith("|") or begins:
            if kept:
                yield start, kept
            kept = []
        if line.strip() and not line.startswith("|"):
            start = start if kept else number
            kept.append(re.sub(r"^\s*([-*]|\d+\.|#+) ", "", line.strip()))


def sentence_problems(text):
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for line, lines in paragraphs(text):
        paragraph = " ".join(lines)
        if len(lines) > MOST_LINES:
            yield line, f"a paragraph of {len(lines)} lines (at most {MOST_LINES})"
        for sentence in re.split(r"(?<=[.!?:;])[)\"'*]*\s+(?=[A-Z*\[\"(])", paragraph):
            words = [w for w in sentence.split() if re.search(r"\w", w)]
            if len(words) > LONGEST:
                yield line, f"a sentence of {len(words)} words (at most {LONGEST}): {' '.join(words[:8])} ..."


def term_problems(text):
    for term, better in BETTER.items():
        for match in re.finditer(rf"(?<![\w-])({term})(?![\w-])", text, re.I):
            yield text.count("\n", 0, match.start()) + 1, f'"{match.group()}": say {better}'


def manual_problems():
    """The manual page, whose paragraphs end at each request that begins one."""
    text = re.sub(r"^\.nf$.*?^\.fi$", lambda m: "\n" * m.group().count("\n"), read(MANUAL).replace("\\-", "-"),
                  flags=re.S | re.M)
    yield from term_problems(text)
    text = re.sub(r"^\.TP\n.*$", "\n", text, flags=re.M)  # with its tag
    text = re.sub(r"^\.(PP|IP|SH|SS|RS|RE|TH|br)\b.*$", "", text, flags=re.M)
    text = re.sub(r"^\.\w+ ?|\\f[A-Z]|\\c|\\&|\"", "", text, flags=re.M)
    after_synopsis = text.count("\n", 0, text.index("unshard is a read-only"))
    yield from ((line, what) for line, what in sentence_problems(text) if line > after_synopsis and "a sentence" in what)


def problems(name):
    text, closed = without_code(read(name))
    if not closed:
        yield text.count("\n") + 1, "a code fence is not closed"
    yield from link_problems(name, text)
    yield from table_problems(text)
    if name in FOR_USERS:
        yield from sentence_problems(text)
    if name in FOR_USERS + ["ARCHITECTURE.md"]:
        yield from term_problems(text)


def said(name):
    """(line, text) of each string literal of a C file that has more than one word; adjacent ones are one."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), read(name), flags=re.S)
    for match in LITERALS.finditer(text):
        words = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', match.group())).replace("\\n", " ")
        if " " in words and not NO_PROSE.search(words):
            yield text.count("\n", 0, match.start()) + 1, re.sub(r"\{\??\w+[^}]*\}", "CODE", words)


def message_problems():
    for where in ("lib/**/*.[ch]", "tools/*.[ch]", "fs/*.[ch]"):
        for path in sorted(glob.glob(os.path.join(ROOT, where), recursive=True)):
            name = os.path.relpath(path, ROOT)
            for line, text in said(name):
                for _, what in term_problems(text):
                    yield f"{name}:{line}: {what}"


def glossary_problems():
    """Each word that docs/glossary.md says is not used is one that this test refuses."""
    table = read("docs/glossary.md").split("| instead of | write |")[1]
    for row in re.findall(r"^\| (`.*?) \|", table, re.M):
        for word in re.findall(r"`([^`]+)`", row):
            if not any(re.fullmatch(term, word, re.I) for term in BETTER):
                yield f'docs/glossary.md replaces "{word}", tests/unit/prose_rule.py does not'


def history_problems():
    """Nobody has an earlier build of a version that was never released."""
    line = 0
    for section in re.split(r"^(?=## )", read("CHANGELOG.md"), flags=re.M):
        if "(not released)" in section.split("\n", 1)[0]:
            for match in re.finditer(r"\b[Bb]efore, |\bno\s+longer\b|\bany\s+more\b", section):
                yield (f"CHANGELOG.md:{line + section.count(chr(10), 0, match.start()) + 1}: "
                       f'"{match.group()}" of a version that is not released: say what it has')
        line += section.count("\n")


def index_problems():
    lines = read("README.md").count("\n")
    if lines > MOST_README_LINES:
        yield f"README.md has {lines} lines (at most {MOST_README_LINES}): move something to docs/"
    for verb, text in re.findall(r"^## (\w+)\n+```text\n(.*?)^```", read("docs/cli.md"), re.S | re.M):
        if text.count("\n") > SCREEN_LINES:
            yield f"docs/cli.md: {verb} has {text.count(chr(10))} lines, more than a screen ({SCREEN_LINES})"
    near = linked("README.md")
    near |= {page for name in near if name.endswith(".md") for page in linked(name)}
    index = linked("docs/README.md")
    for page in DOCS:
        if page not in index and page != "docs/README.md":
            yield f"docs/README.md does not list {page}"
        if page not in near:
            yield f"{page} is more than two clicks from README.md"
        own = re.sub(r"<!-- generated: .*?<!-- end -->", "", read(page), flags=re.S)
        words = len(re.findall(r"\S*\w\S*", own))
        if words > MOST_WORDS:
            yield f"{page} has {words} words (at most {MOST_WORDS}): split it"


def main():
    found = 0
    for what in [*index_problems(), *history_problems(), *glossary_problems(), *message_problems()]:
        print(what)
        found += 1
    for line, what in manual_problems():
        print(f"{MANUAL}:{line}: {what}")
        found += 1
    for name in DOCUMENTS:
        for line, what in problems(name):
            print(f"{name}:{line}: {what}")
            found += 1
    print(f"{len(DOCUMENTS)} documents, {found} problems")
    return 1 if found or not DOCS else 0


if __name__ == "__main__":
    sys.exit(main())
