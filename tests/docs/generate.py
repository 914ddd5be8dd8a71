#!/usr/bin/env python3
"""Writes the tables of docs/ that the code defines: generate.py [--check] [--unshard COMMAND] [SOURCE_ROOT].

A table stands between <!-- generated: NAME --> and <!-- end --> in its page:

    findings   lib/model/finding_kinds.h, one row per id
    rules      lib/check/setting_rules.c, settings of a training's configuration
    views      lib/views/*.c
    formats    lib/formats/*.c
    example    tests/c/list_tensors.c
    resume     lib/files/resume_reads.c, what a trainer reads when it resumes
    loaders    tests/bench/RESULTS.md, a load through the mount against a consolidated file
    exports    tests/bench/RESULTS.md, `unshard export` against the frameworks' tools
    writers    tests/e2e/writers.py and writers.json, what wrote the checkpoints of the tests
    trainers   tests/e2e/programs/results.json, programs that train in those tests
    readers    the same file, programs that read the mount
    untested   tests/e2e/programs/untested.json, programs without a test
    measured   which views `unshard show` says the checkpoints in tests/golden have (needs --unshard)
    verbs      what `unshard VERB --help` prints, without the options after -o, which are one table (needs --unshard)

A number that was measured stands between <!-- figure: NAME --> and <!-- end --> in its line, and is one of FIGURES. One of
COUNTED is how many rows a table of the code has.

--check changes nothing and ends with 1 if a page is out of date."""
import argparse
import glob
import json
import os
import re
import subprocess
import sys

STRING = re.compile(r'"((?:[^"\\]|\\.)*)"|(\w+)')

# What tests/golden holds: directory -> what saved it.
SAMPLES = {
    "run/checkpoint-2": "Trainer, FSDP2 with `SHARDED_STATE_DICT`, torch 2.13, transformers 5.23",
    "older/transformers4.46.3-torch2.4.1_f1_sh_w2/run/ckpt": "Trainer, FSDP1, torch 2.4.1, transformers 4.46.3; optimizer not kept",
    "older/accelerate0.29.3-torch2.2.2_f1_sh_w3/run/ckpt": "Accelerate, FSDP1, torch 2.2.2, accelerate 0.29.3; optimizer not kept",
    "older/torch2.2.2_fsdp1st_w2_bf16_dcp/run/ckpt": "`torch.distributed.checkpoint`, FSDP1, torch 2.2.2; optimizer not kept",
    "older/torch2.4.1_fsdp2_w2_fp32_dcp/run/ckpt": "`torch.distributed.checkpoint`, FSDP2, torch 2.4.1; optimizer not kept",
    "dcp/zstd/ckpt": "`torch.distributed.checkpoint`, zstd, torch 2.13",
    "dcp/torch2.2.2_lightning/ckpt": "Lightning 2.2.0, FSDPStrategy, sharded, torch 2.2.2",
    "dcp/megatron/iter_0000010": "megatron-core 0.16.1, `torch_dist`",
    "ranks/fsdp2": "one file per rank, FSDP2 (DTensors), torch 2.13",
    "ranks/orig": "one file per rank, FSDP1 with `use_orig_params=True`, torch 2.13",
    "rank_files/torch2.0.1": "one file per rank, ShardedTensors, torch 2.0.1; no optimizer",
    "rank_files/torch2.1.2": "one file per rank, DTensors, torch 2.1.2; no optimizer",
    "zero/z0_w1/global_step2": "DeepSpeed engine, stage 0",
    "zero/z1_bf16_optimizer_w2/global_step2": "DeepSpeed engine, stage 1, BF16_Optimizer",
    "zero/z2_w3/global_step2": "DeepSpeed engine, stage 2",
    "zero/z3_w2/global_step2": "DeepSpeed engine, stage 3",
    "zero/z2_w3/global_step2_universal": "ds_to_universal, from stage 2",
}

# Name -> section of tests/bench/RESULTS.md, how the row begins, the cell's number, what of it.
FIGURES = {
    "merge": ("Writing a copy", ["merge_fsdp_weights"], 3, "(.*)"),
    "export": ("Writing a copy", ["merge_fsdp_weights"], 4, "(.*)"),
    "export_sooner": ("Writing a copy", ["merge_fsdp_weights"], 5, r"\*\*(.*)x\*\*"),
    "ready": ("Loading 984 MB saved by 8 ranks", ["mount + safetensors.torch.load_file"], 2, "(.*)"),
    "merge_writes": ("Loading 984 MB saved by 8 ranks", ["merge_fsdp_weights + safetensors"], 4, "(.*)"),
    "store_writes": ("Loading 984 MB saved by 8 ranks", ["mount with a new metadata store + safetensors"], 4, "(.*)"),
    "items_70b": ("Metadata at scale", ["70B, 32 ranks"], 0, r"([\d,]+) items"),
    "sooner": ("Results", ["at least 4x sooner than merging"], 1, r"gave ([\d.]+)x"),
    "sooner_busy": ("Results", ["at least 4x sooner than merging"], 1, r"^([\d.]+)x"),
    "warm": ("A row for each loader, 984 MB", ["from_pretrained", "page cache"], 4, r"\*\*(.*)\*\*"),
    "cold": ("A row for each loader, 984 MB", ["from_pretrained", "disk"], 4, r"\*\*(.*)\*\*"),
    "cold_short": ("A row for each loader, 984 MB", ["disk"], 3, r"\*\*(.*)\*\*"),
    "server": ("Results", ["at least 90 %"], 1, r"^(\d+ to \d+ %)"),
    "memory_70b": ("Memory and first byte of a 70B on 32 ranks, and of its first layers", ["80"], 5, r"^(\d+ MB)"),
    "first_70b": ("Memory and first byte of a 70B on 32 ranks, and of its first layers", ["80"], 3, "(.*)"),
    "first_405b": ("Metadata at scale", ["405B, 512 ranks", "none"], 2, "^([^;]*)"),
    "memory_405b": ("Metadata at scale", ["405B, 512 ranks", "none"], 5, r"^(\d+ MB)"),
    "times_405b": ("Metadata at scale", ["405B, 512 ranks", "none"], 5, r"([\d.]+) times"),
    "memory_671b": ("Metadata at scale", ["671B", "none"], 5, "(.*)"),
    "slow_file": ("Storage that takes 8 ms for every read", ["128 KiB", "1"], 2, "(.*)"),
    "requests_again": ("Requests to a file system behind a network", ["`ls weights/` once more"], 1, "(.*)"),
    "requests_source": ("Requests to a file system behind a network", ["`ls -lR` of the source", "5"], 1, "(.*)"),
    "nodes_list": ("Nodes that load one checkpoint", ["10 ms", "64", "nothing"], 3, r"^(\d+)"),
    "nodes_list_memos": ("Nodes that load one checkpoint", ["10 ms", "64", "memos"], 3, r"^(\d+)"),
    "nodes_load": ("Nodes that load one checkpoint", ["10 ms", "64", "nothing"], 5, r"^(\d+)"),
    "nodes_load_memos": ("Nodes that load one checkpoint", ["10 ms", "64", "memos"], 5, r"^(\d+)"),
    "nodes_again": ("Nodes that load one checkpoint", ["10 ms", "64", "memos"], 8, r"^(\d+)"),
    "merged_16": ("The function that adds a LoRA", ["16", "bf16"], 3, "(.*)"),
    "merged_256": ("The function that adds a LoRA", ["256", "bf16"], 3, "(.*)"),
    "merged_16_fp32": ("The function that adds a LoRA", ["16", "fp32"], 3, "(.*)"),
    "merged_256_fp32": ("The function that adds a LoRA", ["256", "fp32"], 3, "(.*)"),
    "values_f32": ("Values", ["float32", "`unshard"], 2, "(.*)"),
    "values_bf16": ("Values", ["bfloat16", "`unshard"], 2, "(.*)"),
    "page_70b": ("The page of a checkpoint", ["70B"], 3, "(.*)"),
    "page_405b": ("The page of a checkpoint", ["405B"], 3, "(.*)"),
    "beside_file": ("N processes beside each other", ["fastsafetensors", "8"], 3, "(.*)"),
    "beside_mount": ("N processes beside each other", ["fastsafetensors", "8"], 5, "(.*)"),
    "slow_mount": ("Storage that takes 8 ms for every read", ["128 KiB", "1"], 3, "(.*)"),
}


def read(root, *path):
    with open(os.path.join(root, *path), encoding="utf-8") as text:
        return text.read()


def c_string(source, macros):
    """The value of adjacent C strings and of macros that are such strings."""
    return "".join(macros[name] if name else json.loads(f'"{text}"') for text, name in STRING.findall(source))


def c_macros(source):
    macros = {"NULL": ""}
    for name, value in re.findall(r'^#define (\w+)[ \t]+((?:"(?:[^"\\\n]|\\.)*"|[A-Z_]+|[ \t])+)$',
                                  source.replace("\\\n", " "), re.M):
        macros[name] = c_string(value, macros)
    return macros


def field(entry, name, macros):
    """.name = STRING ..., up to the next field; None where there is none."""
    found = re.search(rf'\.{name}\s*=\s*((?:"(?:[^"\\]|\\.)*"|[\w-]+)(?:\s*(?:"(?:[^"\\]|\\.)*"|[A-Z_]+))*)', entry)
    return found and c_string(found.group(1), macros)


def plain(template):
    """A sentence's template (model/finding.h) as somebody reads it: {file} is FILE, {n|file|files} is files, of
    [A|B] it is A. What is added where more is alike, or copies exist, is left out."""
    tokens = re.findall(r"\{[^}]*\}|[][|]|[^][{|]+", template)

    def sequence(ends):
        out, optional = "", False
        while tokens and tokens[0] not in ends:
            token = tokens.pop(0)
            if token == "[":
                alternatives = [sequence("|]")]
                while tokens.pop(0) == "|":
                    alternatives.append(sequence("|]"))
                text, left_out = alternatives[0]
                out += text if not left_out else alternatives[1][0] if len(alternatives) > 1 else ""
            elif token.startswith("{"):
                name, *forms = token[1:-1].split("|")
                optional = optional or name in ("more", "?more", "?copies")
                out += forms[1] if forms else "" if name.startswith("?") else name.split(".")[0].upper()
            else:
                out += token
        return out, optional

    return sequence("")[0]


def quoted(text):
    return "`` " + text.replace("|", "\\|") + " ``" if "`" in text else "`" + text.replace("|", "\\|") + "`"


def findings(root):
    macros = c_macros(read(root, "lib", "model", "finding_words.c"))
    table = read(root, "lib", "model", "finding_kinds.h")
    lines = []
    for part in re.split(r'^SECTION\("', table, flags=re.M)[1:]:
        title, rows = part.split('")', 1)
        lines += ["", f"### {title[0].upper()}{title[1:]}", "", "| id | message | what to do | reported as |",
                  "|---|---|---|---|"]
        for name, code, words in re.findall(r'^KIND\(\w+, (\w+), (\w+),\s+((?:"(?:[^"\\]|\\.)*"|[^")])+)\)$', rows, re.M):
            words = ".sentence = " + words
            severity = {"NOTE": ", note", "NOT_YET": ", not judged", "OUTSIDE": ", not judged"}.get(code, "")
            check = field(words, "check", macros) or {"NOTE": "note", "UNKNOWN": "not_supported"}.get(code, "damaged")
            advice = field(words, "help", macros) or field(words, "advice", macros)
            if advice is None:
                advice = macros["COPY_BACK"] + macros["OR_BEFORE"] if code == "INCOMPLETE" else ""
            advice = re.sub(r"^[:;.] ", "", advice)
            severity = "" if check == "note" else severity
            lines.append(f'| <a id="{name}"></a>`{name}` | {quoted(plain(field(words, "sentence", macros)))} | '
                         f'{plain(advice).replace("|", chr(92) + "|") if advice else "-"} | `{check}`{severity} |')
    return lines[1:]


def rules(root):
    source = read(root, "lib", "check", "setting_rules.c")
    source = source[source.index("uns_setting_rules[] = {"):]
    lines = ["| id | decided by the version of | message |", "|---|---|---|"]
    for entry in re.findall(r'\{ (\.name = .*?) \}(?:,\n|;)', source, re.S):
        needs = re.search(r"\.needs = UNS_(\w+)", entry)
        name = field(entry, "name", {})
        lines.append(f'| <a id="{name}"></a>`{name}` | {needs.group(1).lower() if needs else "-"} | '
                     f'{quoted(field(entry, "sentence", {}))} |')
    return lines


def rows_of(root, folder, kind):
    """(file name, source, fields of a uns_<kind>) of each one that a file in lib/<folder> defines."""
    for name in sorted(os.listdir(os.path.join(root, "lib", folder))):
        source = read(root, "lib", folder, name) if name.endswith(".c") else ""
        for table in re.findall(rf"const struct uns_{kind} uns_{kind}_\w+ = \{{(.*?)\n\}};", source, re.S):
            yield name, source, table


def views(root):
    lines = ["| view | names in a listing | waits for the end of a save | shows config and tokenizer | shows trainer_state.json | a Lightning checkpoint is |",
             "|---|---|---|---|---|---|"]
    forms = {"UNS_FORM_FILE": "one file", "UNS_FORM_BOTH": "a file and a directory", None: "a directory"}
    for _, source, table in rows_of(root, "views", "view"):
        name = field(table, "name", {})
        own = re.search(r"listed\[\] = \{(.*?)\}", source)  # else view.h's: the bare name
        listed = re.findall(r'"(\w*)"', own.group(1)) if own else [""]
        form = re.search(r"\.form = (\w+)", table)
        names = ", ".join(f"`{name}-{x}`" if x else f"`{name}`" for x in listed) or "none: open it by name"
        has = ["yes" if f".{x} = true" in table else "-" for x in ("needs_finished", "needs_companions", "needs_training")]
        placeholder = field(table, "placeholder", {})
        parameter = f"-{placeholder}" if placeholder and not listed else ""
        lines.append(f"| `{name}{parameter}` | {names} | {' | '.join(has)} | {forms[form and form.group(1)]} |")
    return lines


def formats(root):
    lines, of_file = [], {}
    for name, source, table in rows_of(root, "formats", "format"):
        of_file.setdefault((name, source), []).append(f"`{field(table, 'name', {})}`")
    for (name, source), formats_of_file in of_file.items():
        top = re.match(r"/\*(.*?)\*/", source, re.S).group(1)
        sketch = [line[5:].rstrip() for line in top.split("\n") if line.startswith(" *   ")]
        lines += ["", f"### {', '.join(formats_of_file)}", "", f"Defined in [lib/formats/{name}](../lib/formats/{name}).",
                  ""]
        if sketch:
            lines += ["```text", *sketch, "```"]
    return lines[1:]


def measured(root, unshard):
    golden = os.path.join(root, "tests", "golden")
    lines, columns = [], None
    for where, what in SAMPLES.items():
        shown = subprocess.run([unshard, "show", os.path.join(golden, where), "--json", "-o", "store=none,settle=0"],
                               check=True, capture_output=True, text=True, timeout=600)
        info = json.loads(shown.stdout)["info"]
        if columns is None:
            columns = [v for v in info["views"] if not v.startswith("weights-")]
            lines += ["| sample | format | " + " | ".join(f"`{v}`" for v in columns) + " |",
                      "|---" * (len(columns) + 2) + "|"]
        states = ["yes" if info["views"][v]["state"] in ("ok", "available") else "-" for v in columns]
        lines.append(f"| {what} | `{info['format']}` | {' | '.join(states)} |")
    return lines


def resume_rows(root):
    """The rows of lib/files/resume_reads.c: trainer, views (a list), files, absent, effect, supplied, tested."""
    source = read(root, "lib", "files", "resume_reads.c")
    macros = c_macros(source)
    rows = []
    for row in re.findall(r"^\t\{ (.*?) \},$", source[source.index("} rows[] = {"):], re.M | re.S):
        fields = [f.strip() for f in re.findall(r'((?:"(?:[^"\\]|\\.)*"|[^,"])+)(?:,|$)', row)]
        text = {i: c_string(fields[i], macros) for i in (0, 2, 4, 6, 7)}
        rows.append({"trainer": text[0], "views": text[2].split(), "part": fields[3], "files": text[4],
                     "absent": fields[5], "effect": text[6], "supplied": text[7], "tested": fields[8] == "true"})
    return rows


def resume(root):
    lines = ["| trainer | view | reads | without it | unshard |", "|---|---|---|---|---|"]
    for row in resume_rows(root):
        views = ", ".join(f"`{v if v != 'world' else 'world-N'}`" for v in row["views"])
        files = "model and optimizer" if row["files"] == "global_stepN" and row["part"] == "WEIGHTS" else row["files"]
        lines.append(f"| {row['trainer']} | {views} | `{files}`{'' if row['tested'] else ' *'} | {row['effect']} | "
                     f"{row['supplied'] or '-'} |")
    return lines


def rows(root, section):
    """The cells of each row of a section of RESULTS.md; the first section is named after the page."""
    for part in re.split(r"^##? ", read(root, "tests", "bench", "RESULTS.md"), flags=re.M):
        if part.partition("\n")[0] == section:
            return [[cell.strip() for cell in line.strip("|").split("|")]
                    for line in part.split("\n") if line.startswith("|")]
    sys.exit(f"tests/bench/RESULTS.md has no section {section}")


COUNTED = {"renamed_families": ("lib/names/published_table.c", "uns_published_table"),
           "megatron_families": ("lib/megatron/table.c", "uns_megatron_table")}


def counted(root, path, table):
    body = re.search(rf"{table}\[\] = \{{\n(.*?)^\}};", read(root, *path.split("/")), re.S | re.M).group(1)
    return str(len(re.findall(r'^\t(?:\w+\(|\{ )"', body, re.M)))


def figure(root, name):
    if name in COUNTED:
        return counted(root, *COUNTED[name])
    if name not in FIGURES:
        sys.exit(f"{name} is no figure of tests/docs/generate.py")
    section, begins, cell, pattern = FIGURES[name]
    for row in rows(root, section):
        if all(value.startswith(start) for value, start in zip(row, begins)):
            return re.search(pattern, row[cell]).group(1).strip()
    sys.exit(f"tests/bench/RESULTS.md has no row {begins} in {section}")


def with_text(root, text):
    """The pages that have it."""
    found = glob.glob("*.md", root_dir=root) + glob.glob("docs/**/*.md", root_dir=root, recursive=True)
    return [path for path in sorted(found) if text in read(root, path)]


def with_figures(root, page):
    return re.sub(r"(<!-- figure: (\w+) -->).*?(<!-- end -->)",
                  lambda m: m.group(1) + figure(root, m.group(2)) + m.group(3), page)


def loaders(root):
    return ["| loader | from | the file | the mount | the mount takes |", "|---|---|---:|---:|---:|",
            *(f"| {r[0]} | {r[1]} | {r[2]} | {r[4].split(',')[0]} | {r[4].split('**')[1]} times as long |"
              for r in rows(root, "A row for each loader, 984 MB") if len(r) == 8 and "**" in r[4])]


CLIENTS = {"juicefs": "JuiceFS", "moosefs": "MooseFS", "cephfs": "CephFS (ceph-fuse)", "glusterfs": "GlusterFS",
           "rclone": "rclone over the web", "rclone-cached": "rclone over the web, `--vfs-cache-mode full`",
           "rclone-s3": "rclone over S3"}


def clients(root):
    """Of rows as tests/bench/run storage prints them, those without a limit of the network."""
    return ["| file system | `reads=` | the client alone | least FUSE server / alone | view / alone | view / least FUSE server "
            "| s/GB, alone | s/GB, least FUSE server | s/GB, the view |", "|---|---|" + "---:|" * 7,
            *(f"| {' | '.join([CLIENTS.get(r[0], r[0]), f'`{r[2]}`', *r[3:]]).replace('**', '')} |"
              for r in rows(root, "Clients of distributed file systems") if len(r) == 10 and r[1] == "-")]


def slow_network(root):
    return ["| file system | the client alone | the view | median ratio (least to most) | s/GB, the client alone | s/GB, the view |",
            "|---|---:|---:|---:|---:|---:|",
            *(f"| {' | '.join(r)} |" for r in rows(root, "Clients of distributed file systems") if len(r) == 6 and "MB/s" in r[1])]


def requests(root):
    of_kept = rows(root, "Requests to a file system behind a network")
    end = next(i for i, r in enumerate(of_kept) if i and r == of_kept[0])
    return ["| what | requests |", "|---|---:|", *(f"| {r[0]} | {r[1]} |" for r in of_kept[2:end])]


def exports(root):
    return ["| tool | checkpoint | view | tool | export | sooner |", "|---|---|---|---:|---:|---:|",
            *(f"| `{r[0]}` | {r[1]} | {r[2]} | {r[3]} | {r[4]} | {r[5].strip('*')} |"
              for r in rows(root, "Writing a copy") if "**" in r[5])]


def untested(root):
    rows = json.loads(read(root, "tests", "e2e", "programs", "untested.json"))
    return ["| program | reason |", "|---|---|", *(f"| {r['program']} | {r['reason']} |" for r in rows)]


def program_rows(root, trains):
    """A program with source() or rank() wrote the checkpoint too that it reads."""
    results = json.loads(read(root, "tests", "e2e", "programs", "results.json"))
    return [f"| [{r['package']}](../tests/e2e/programs/{name}.py) | {r['version']} | {r['does']} | {r['equal']} |"
            for name, r in sorted(results.items())
            if bool(re.search(r"^def (source|rank)\(", read(root, "tests", "e2e", "programs", f"{name}.py"), re.M)) == trains]


def readers(root):
    return ["| program | version | what it does | equal |", "|---|---|---|---|", *program_rows(root, False)]


def trainers(root):
    return ["| program | version | what it does | equal |", "|---|---|---|---|", *program_rows(root, True)]


def writers(root):
    sys.path.insert(0, os.path.join(root, "tests", "e2e"))
    from writers import KINDS, WRITERS, files_of

    results = json.loads(read(root, "tests", "e2e", "writers.json"))
    lines = ["| written by | versions | equal in bytes | logits | resumed | tests |", "|---|---|---:|---:|---:|---|"]
    for row in WRITERS:
        if row["does"] not in results:
            sys.exit(f"tests/e2e/writers.json has no row {row['does']}")
        found = results[row["does"]]
        tests = ", ".join(f"[{name}](../tests/e2e/{name})" for name in files_of(row))
        passed = " | ".join(str(found.get(kind, "-")) for kind in KINDS)
        lines.append(f"| {row['does']} | {found['versions']} | {passed} | {tests} |")
    return lines


def help_of(unshard, *verb):
    return subprocess.run([unshard, *verb, "--help"], check=True, capture_output=True, text=True, timeout=600).stdout


def verbs(unshard):
    """The text of each verb up to its options after -o. Those are the same for all verbs: one table."""
    lines, options = [], {}
    names = list(dict.fromkeys(re.findall(r"^  unshard ([a-z]+)(?: |$)", help_of(unshard), re.M)))
    for verb in names:
        own, _, after_o = help_of(unshard, verb).partition("\nOptions after -o")
        lines += ["", f"## {verb}", "", "```text", *own.strip("\n").split("\n"), "```"]
        for name, text in re.findall(r"^  (\w+(?:=\S+)?)(?: +|\n {20,})(\S.*(?:\n {20,}\S.*)*)", after_o, re.M):
            options.setdefault((name, " ".join(text.split())), []).append(verb)
    lines += ["", "## Options after -o", "", "| option | what it does | verbs |", "|---|---|---|"]
    lines += [f"| {quoted(name)} | {text.replace('|', chr(92) + '|')} | {', '.join(takers)} |"
              for (name, text), takers in options.items()]
    return lines[1:]


def example(root):
    return ["```c", *read(root, "tests", "c", "list_tensors.c").rstrip("\n").split("\n"), "```"]


def filled(page, name, lines):
    """The page with the table put in; None where it has no place for it."""
    place = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)", re.S)
    return place.sub(lambda m: m.group(1) + "\n" + "\n".join(lines).strip("\n") + "\n\n" + m.group(2), page) \
        if place.search(page) else None


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("root", nargs="?", default=os.path.join(here, "..", ".."))
    args.add_argument("--check", action="store_true")
    args.add_argument("--unshard")
    args = args.parse_args()
    pages = {"docs/findings.md": {"findings": findings(args.root), "rules": rules(args.root)},
             "docs/views.md": {"views": views(args.root)},
             "docs/formats.md": {"formats": formats(args.root)},
             "docs/library.md": {"example": example(args.root)},
             "docs/resume.md": {"resume": resume(args.root)},
             "docs/performance.md": {"loaders": loaders(args.root), "exports": exports(args.root)},
             "docs/compatibility.md": {"writers": writers(args.root), "trainers": trainers(args.root),
                                       "readers": readers(args.root), "untested": untested(args.root)},
             "docs/clusters.md": {"clients": clients(args.root), "slow_network": slow_network(args.root),
                                  "requests": requests(args.root)}}
    pages |= {path: {} for path in with_text(args.root, "<!-- figure: ") if path not in pages}
    if args.unshard:
        pages["docs/compatibility.md"]["measured"] = measured(args.root, args.unshard)
        pages["docs/cli.md"] = {"verbs": verbs(args.unshard)}
    stale = 0
    for path, tables in pages.items():
        page = read(args.root, path)
        now = with_figures(args.root, page)
        for name, lines in tables.items():
            for group in sorted(set(re.findall(r" \| (`\w+`)(?:, [a-z ]+)? \|$", "\n".join(lines), re.M))) if name == "findings" else []:
                if group not in read(args.root, "docs/findings.md").split("<!-- generated")[0]:
                    sys.exit(f"docs/findings.md does not say what is reported as {group}")
            now = filled(now, name, lines)
            if now is None:
                sys.exit(f"{path} has no place for the table {name}")
        if now != page:
            stale += 1
            if args.check:
                print(f"{path} is out of date: run tests/docs/generate.py --unshard build/dev/bin/unshard")
            else:
                with open(os.path.join(args.root, path), "w", encoding="utf-8") as out:
                    out.write(now)
                print(f"{path} written")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
