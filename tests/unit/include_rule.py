#!/usr/bin/env python3
"""Checks ARCHITECTURE.md's include rule by reading #include lines: include_rule.py SOURCE_ROOT.

Also: the rooms are those that are built; no two files need each other but a header and its own .c; file names are
unique in lib/ outside families, formats and views, there is no file that could hold anything (utils,
common, helpers), and formats and views include none of their own kind."""
import os
import re
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')

BELOW = {
    "base": set(),
    "object": {"base"},
    "io": {"base", "object"},
    "wire": {"base", "io"},
    "model": {"base", "io", "wire"},
}
NOUNS = {"base", "io", "wire", "model"}
BELOW.update({folder: NOUNS for folder in ("engine", "store", "names")})
BELOW["verify"] = NOUNS | {"engine"}
BELOW["whole"] = NOUNS | {"names"}
BELOW["seal"] = NOUNS | {"store"}
BELOW["files"] = NOUNS | {"names"}
FAMILIES = {"dcp", "zero", "ranks"}  # one folder, one framework's shards; they never see each other
BELOW.update({folder: NOUNS | {"names", "files"} for folder in FAMILIES})
BELOW["megatron"] = BELOW["dcp"] | {"dcp"}  # its shards are a DCP directory's
FAMILIES.add("megatron")
BELOW["parallel"] = NOUNS  # how a model was cut before a family cut it again
for folder in ("zero", "megatron"):
    BELOW[folder] = BELOW[folder] | {"parallel"}
BELOW.update({folder: NOUNS | {"names", "files"} | FAMILIES for folder in ("formats", "views")})
BELOW["facts"] = NOUNS | {"engine", "store", "names", "files", "megatron"}
BELOW["examine"] = NOUNS | {"store", "facts", "formats"}
BELOW["api"] = set(BELOW)
BELOW["session"] = set(BELOW)
BELOW["paths"] = set(BELOW)
BELOW["out"] = {"base", "io"}  # what is written: for rooms above the paths, which alone write
ABOVE = ("scan", "meta", "warm", "tensors", "check", "repair", "export", "sealing")  # each sees session and paths, none another
BELOW.update({folder: set(BELOW) for folder in ABOVE})
BELOW["diff"] = BELOW["tensors"] | {"tensors"}  # two lists of tensors
BELOW["measure"] = BELOW["tensors"] | {"tensors"}  # one list of tensors
BELOW["device"] = {"base", "api", "model", "tensors"}  # where a tensor's bytes come from is not its concern
# What a room shows to others; the rest is for itself and for the rooms named here.
SHOWS = {
    "engine": ({"engine.h", "places.h", "cast.h", "widen.h", "streams.h", "behind.h", "extents.h"}, {"verify"}),
    "verify": ({"verify.h"}, set()),
    "store": ({"store.h", "store_link.h", "catalog_memo.h", "shared_memo.h", "memo_file.h"}, set()),
}
MADE = {"store/sources_hash.h"}  # by CMake
PUBLIC = "unshard.h"
PUBLISHES = ("api", "session", "paths", "device", "diff", "measure") + ABOVE
ALONE = {"formats": "format.h", "views": "view.h"}  # one file, one thing: all they share is this
VAGUE = re.compile(r"(^|_)(utils?|common|helpers?|misc)\.[ch]$")


def sources(folder):
    for where, _, names in os.walk(os.path.join(ROOT, folder)):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(where, name), ROOT)


def includes(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            found = INCLUDE.match(line)
            if found:
                yield number, found.group(1)


def own_thing(stem, other):
    """formats/zero.c may have formats/zero_names.h for itself."""
    return os.path.splitext(os.path.basename(other))[0].startswith(stem)


def lib_problem(path, included):
    folder = path.split(os.sep)[1]
    if folder == PUBLIC:
        return None if "/" not in included else "unshard.h must stand alone"
    if included == PUBLIC:
        return None if folder in PUBLISHES else "only " + ", ".join(PUBLISHES) + " define unshard.h's functions"
    if "/" not in included:
        return "includes in lib are written relative to lib"
    target = included.split("/")[0]
    if included not in MADE and not os.path.exists(os.path.join(ROOT, "lib", included)):
        return "there is no such file in lib"
    if folder not in BELOW or target not in BELOW:
        return "a folder that ARCHITECTURE.md does not know"
    if target == folder and folder == "zero" and "/read/" in path and "/write/" in included:
        return "what reads ZeRO's files sees nothing of what writes them"
    if target == folder and folder == "zero" and path.count(os.sep) == 2 and included.count("/") == 2:
        return "the arithmetic of both sees neither reading nor writing"
    if target == folder:
        if folder in ALONE and os.path.basename(included) != ALONE[folder]:
            stem = os.path.splitext(os.path.basename(path))[0].split("_")[0]
            return None if own_thing(stem, included) else f"{folder} never see each other"
        return None
    shown, friends = SHOWS.get(target, ({os.path.basename(included)}, set()))
    if os.path.basename(included) not in shown and folder not in friends:
        return f"{target} keeps this header to itself"
    return None if target in BELOW[folder] else f"{folder} may not see {target}"


def rooms_problem():
    """The folders of lib, what CMake builds, and what the rule speaks of are the same."""
    lib = os.path.join(ROOT, "lib")
    with open(os.path.join(lib, "CMakeLists.txt"), encoding="utf-8") as text:
        built = re.search(r"set\(layers ([^)]*)\)", text.read()).group(1).split()
    folders = {name for name in os.listdir(lib) if os.path.isdir(os.path.join(lib, name))}
    for name in sorted((folders ^ set(built)) | (folders ^ set(BELOW))):
        yield f"lib/{name}: not at once a folder, a layer in lib/CMakeLists.txt and known to the rule"


def circles():
    """Units (a .c and its .h) that include each other, directly or by way of others."""
    needs = {}
    for path in sources("lib"):
        unit = os.path.splitext(os.path.relpath(path, "lib"))[0]
        needs.setdefault(unit, set()).update(os.path.splitext(i)[0] for _, i in includes(path) if "/" in i)
    for unit in needs:
        seen, todo = set(), [other for other in needs[unit] if other != unit]
        while todo:
            other = todo.pop()
            if other not in seen:
                seen.add(other)
                todo.extend(needs.get(other, ()))
        if unit in seen:
            yield f"lib/{unit}: needs itself by way of other files"


def outside_problem(path, included):
    folder = path.split(os.sep)[0]
    if included == PUBLIC or (folder == "tools" and included in ("fs.h", "fs/fs.h")):
        return None
    beside = os.path.join(ROOT, os.path.dirname(path), included)
    return None if os.path.exists(beside) else f"{folder} sees unshard.h only"


def problems():
    yield from rooms_problem()
    yield from circles()
    for folder, rule in (("lib", lib_problem), ("fs", outside_problem), ("tools", outside_problem)):
        for path in sources(folder):
            if VAGUE.search(os.path.basename(path)):
                yield f"{path}: a name that says nothing"
            for number, included in includes(path):
                problem = rule(path, included)
                if problem:
                    yield f'{path}:{number}: "{included}": {problem}'
    seen = {}
    for path in sources("lib"):
        name = os.path.basename(path)
        if path.split(os.sep)[1] in set(ALONE) | FAMILIES:
            continue  # the folder is part of the name: formats/dcp.c, views/dcp.c, zero/names.c
        if name in seen:
            yield f"{path}: {seen[name]} has the same name"
        seen[name] = path


def main():
    n_files = sum(1 for folder in ("lib", "fs", "tools") for _ in sources(folder))
    found = list(problems())
    for line in found:
        print(line)
    print(f"{n_files} files, {len(found)} problems")
    return 1 if found or n_files < 20 else 0


sys.exit(main())
