#!/usr/bin/env python3
"""The help of a verb lists the options that the verb takes, and no others: help_rule.py UNSHARD [--each-verb-once].

Every option that the help of any verb lists is given to every verb, followed by --help: a verb that takes it
prints its help, a verb that does not ends with an error. The usage line names every long option too. These are
thousands of processes: under sanitizers (--each-verb-once) each verb prints its help and refuses one option, but where
UNSHARD_LONG is set (tests/run --long)."""
import os
import re
import subprocess
import sys

UNSHARD = sys.argv[1]
VALUES = {"VIEW": "weights", "KEY": "model", "PREFIX": "model.", "DIR": ".", "[RUN=]DIR": ".", "SIZE": "1GiB", "SECONDS": "1",
          "FILE|none": "none", "KEY=VALUE": "train_batch_size=1", "N": "1", "N:N...": "4:5", "KIB": "1", "US": "1", "FILE": "none"}


def run(*arguments):
    return subprocess.run([UNSHARD, *arguments], capture_output=True, text=True, timeout=600)


def help_of(*verb):
    done = run(*verb, "--help")
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed(text):
    """-> ({short and long options}, {option after -o: its value as the help shows it})"""
    own, _, after_o = text.partition("\nOptions after -o")
    own = re.findall(r"^  ((?:-\w, )?(?:-\w|--[\w-]+))(?=[ \[\n])", own, re.M)
    return ({name for names in own for name in names.split(", ")},
            {name: value[1:] for name, value in re.findall(r"^  ([a-z_]+)(=\S+|)(?= |$)", after_o, re.M)})


def takes(verb, option):
    """With no value, and with one: an option that needs a value would take --help for it."""
    ways = [[option]] + [[f"{option}=none"]] * option.startswith("--")
    return any(run(verb, *way, "--help").stdout.startswith("usage:") for way in ways)


def takes_after_o(verb, option, value):
    given = VALUES.get(value, value.split("|")[0])
    return run(verb, "-o", f"{option}={given}" if value else option, "--help").stdout.startswith("usage:")


def verbs_of(text):
    return list(dict.fromkeys(re.findall(r"^  unshard ([a-z]+)(?: |$)", text, re.M)))


def problems():
    verbs = verbs_of(help_of())
    texts = {verb: help_of(verb) for verb in verbs}
    help_lists = {verb: listed(texts[verb]) for verb in verbs}
    every = set().union(*(own for own, _ in help_lists.values())) - {"-o"}
    after_o = {name: value for _, names in help_lists.values() for name, value in names.items()}
    assert len(every) >= 15 and len(after_o) >= 20, "the help is not understood"
    for verb in verbs:
        own, names = help_lists[verb]
        for option in sorted(every):
            if option not in own and any(name.startswith(option) for name in own):
                continue  # getopt takes it for the longer one
            if takes(verb, option) != (option in own):
                yield f"unshard {verb} {'does not take' if option in own else 'takes'} {option}, its help says otherwise"
            if option in own and option.startswith("--") and option not in ("--help", "--foreground", "--lazy", "--force") \
                    and option not in texts[verb].split("\n\n")[0]:
                yield f"unshard {verb}: the usage line does not name {option}"
        for option, value in sorted(after_o.items()):
            if takes_after_o(verb, option, value) != (option in names):
                yield f"unshard {verb} {'does not take' if option in names else 'takes'} -o {option}, its help says otherwise"


def problems_of_each_verb():
    for verb in verbs_of(help_of()):
        own, _ = listed(help_of(verb))
        if "--help" not in own:
            yield f"the help of unshard {verb} is not understood"
        if takes(verb, "--no-such-option"):
            yield f"unshard {verb} takes --no-such-option"


def main():
    quick = "--each-verb-once" in sys.argv and "UNSHARD_LONG" not in os.environ
    found = list(problems_of_each_verb() if quick else problems())
    print("\n".join(found) or "each verb's help lists what the verb takes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
