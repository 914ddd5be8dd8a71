#!/usr/bin/env python3
"""The manual page knows what --help knows: manual_rule.py SOURCE_ROOT UNSHARD.

Every verb is in tools/unshard.1, with all its options and actions and no others, in SYNOPSIS and in VERBS. Every
option after -o is in OPTIONS, with the verbs whose help lists it. groff formats the page without a warning, where it
is installed."""
import os
import re
import shutil
import subprocess
import sys

ROOT, UNSHARD = sys.argv[1:3]
PAGE = os.path.join(ROOT, "tools", "unshard.1")
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "VERBS", "VIEWS", "OPTIONS", "FILES", "ENVIRONMENT", "DIAGNOSTICS",
            "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
LONG = r"(?<![\w-])--[a-z][\w-]*"


def help_of(*verb):
    return subprocess.run([UNSHARD, *verb, "--help"], check=True, capture_output=True, text=True, timeout=600).stdout


def verbs():
    return list(dict.fromkeys(re.findall(r"^  unshard ([a-z]+)(?: |$)", help_of(), re.M)))


def plain(text):
    """Requests, quotes and font changes gone."""
    text = re.sub(r"\\f[A-Z]|\\c|\\&", "", text).replace("\\-", "-")
    return re.sub(r"^\.\w+ ?|\"", "", text, flags=re.M)


def sections():
    with open(PAGE, encoding="utf-8") as page:
        parts = re.split(r'^\.SH "?([A-Z ]+?)"?$', page.read(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def verb_parts(text):
    """{verb: its part of VERBS, plain}. What a verb takes is indented below it."""
    parts, depth, verb = {}, 0, None
    for line in text.split("\n.PP\nAll verbs:")[0].split("\n"):
        depth += line.startswith(".RS") - line.startswith(".RE")
        begins = re.match(r'\.BI "?([a-z]+) ', line)
        verb = begins.group(1) if begins and not depth else verb
        parts[verb] = parts.get(verb, "") + plain(line) + "\n"
    return parts


def synopsis_of(page, verb):
    lines = [re.sub(r"\s+", " ", plain(line)).strip() for line in re.split(r"^\.br$", page["SYNOPSIS"], flags=re.M)]
    return " ".join(line for line in lines if line.startswith(f"unshard {verb} "))


def verb_problems(page):
    for verb in verbs():
        text = help_of(verb).split("\nOptions after -o")[0]
        own = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.M)) - {"--help"}
        short = set(re.findall(r"^  (-\w)", text, re.M)) - {"-h"}
        actions = set(re.findall(r"^  ([a-z][\w-]*)(?= )", text, re.M))
        synopsis, part = synopsis_of(page, verb), verb_parts(page["VERBS"])[verb]
        for name in sorted(own | short | actions):
            one = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
            if not re.search(one, part):
                yield f"VERBS does not list {name} of {verb}"
            long_of_short = re.search(rf"^  (-\w), {re.escape(name)}\b", text, re.M)
            if not re.search(one, synopsis) and not (long_of_short and long_of_short.group(1) in synopsis):
                yield f"SYNOPSIS does not list {name} of {verb}"
        for name in sorted(set(re.findall(LONG, synopsis)) - own):
            yield f"SYNOPSIS lists {name}, unshard {verb} --help does not"


def option_problems(page):
    """Options after -o: {name: verbs} as the help has it, and as the page has it."""
    helped, paged, taking = {}, {}, []
    for verb in verbs():
        after_o = help_of(verb).partition("\nOptions after -o")[2]
        taking += [verb] if after_o else []
        for name in re.findall(r"^  ([a-z_]+)(?==\S|  )", after_o, re.M):
            helped.setdefault(name, []).append(verb)
        for name in re.findall(r"Handed on[^:]*: (.*)$", after_o, re.M):
            for passed in name.split():
                if not re.search(rf"(?<![\w]){passed}(?![\w])", plain(page["OPTIONS"])):
                    yield f"OPTIONS does not list {passed}, which {verb} hands on"
    for entry in re.split(r"^\.TP$|^\.PP$|^\.SS", page["OPTIONS"], flags=re.M)[1:]:
        name, used = re.match(r"\s*([a-z_]+)", plain(entry)), re.search(r"^\[(.*)\]$", entry, re.M)
        if name and used:
            paged[name.group(1)] = taking if used.group(1) == "all" else used.group(1).split(", ")
    for name in sorted(set(helped) | set(paged)):
        if set(helped.get(name, [])) != set(paged.get(name, [])):
            yield f"OPTIONS: {name} is used by {paged.get(name)}; --help lists it for {helped.get(name)}"


def main():
    page = sections()
    problems = [*verb_problems(page), *option_problems(page)]
    order = [s for s in page if s in SECTIONS]
    if order != SECTIONS:
        problems.append(f"sections are {', '.join(order)}; expected {', '.join(SECTIONS)}")
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", PAGE], capture_output=True, text=True, timeout=600)
        problems += done.stderr.splitlines()
    print("\n".join(problems) or "the manual page knows all of it")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
