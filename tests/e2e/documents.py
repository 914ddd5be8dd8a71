"""The console blocks of the documents: what they say of themselves, their commands, and what these print."""

import re

from conftest import ROOT

FENCE = re.compile(r"(?:<!-- ([^>]*?) -->\n)?^```(\w+)\n(.*?)^```$", re.S | re.M)
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text()
         for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]}


def commands(block):
    """[(command, [line of output])] of a console block: "$ " begins a command, "> " continues it."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
        else:
            found[-1][1].append(line)
    return found


def narrow(text):
    """Columns are as wide as the paths of this machine."""
    return re.sub(r"(?<=\S) {2,}", " ", text)


def as_pattern(lines):
    """"..." stands for any text within a line, and alone for any number of lines."""
    return "".join("(?:.*\n)*?" if line == "..." else
                   ".*".join(map(re.escape, narrow(line).split("..."))) + "\n" for line in lines)


def run_blocks(page):
    return [step for how, _, block in FENCE.findall(page) if how == "run" for step in commands(block)]


def files(page):
    """{name: text} of the blocks that are a file: <!-- file: NAME -->."""
    return {how[6:]: block for how, _, block in FENCE.findall(page) if how.startswith("file: ")}


def script(steps):
    """For bash. Each command's exit status stands behind what it prints."""
    return "".join(f"{command}\nprintf '\\n<<%d>>\\n' $?\n" for command, _ in steps)


def must_print_what_is_shown(name, steps, printed):
    """printed: by the script of these steps."""
    parts = re.split(r"\n<<(\d+)>>\n", printed)
    assert len(parts) == 2 * len(steps) + 1, printed[-4000:]
    for (command, shown), output, status in zip(steps, parts[::2], parts[1::2]):
        output = f"{output}\n".removeprefix("\n") if output.strip("\n") else ""
        output = re.sub(r"\n+\Z", "\n", output)
        assert status == "0", f"{name}: {command}: status {status}\n{output[-4000:]}"
        assert re.fullmatch(as_pattern(shown), narrow(output)), f"{name}: {command} printed\n{output[-4000:]}"
