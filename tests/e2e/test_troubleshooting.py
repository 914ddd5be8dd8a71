"""docs/troubleshooting.md has the messages that frameworks print, as they print them: make/messages.py gives them the wrong
thing. Those of Lightning and DeepSpeed are looked for in the tests that produce them."""

import json
import re
import shutil

import pytest

import conftest
from conftest import HERE, MAKE, ROOT
from documents import PAGES

PAGE = PAGES["docs/troubleshooting.md"]
PRODUCED = ("transformers", "Accelerate and torch", "any program")
ELSEWHERE = ("test_lightning.py", "test_lightning_deepspeed.py")


def headings(*sections):
    """The headings below these that are a message, as code."""
    found = []
    for section in sections:
        text = PAGE.split(f"\n## From {section}\n")[1].split("\n## ")[0]
        found += re.findall(r"^### `(.*)`$", text, re.M)
    return found


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """{case: what was printed, PATH in place of the path}"""
    top = tmp_path_factory.mktemp("messages")
    for run in ("whole", "damaged"):
        shutil.copytree(ROOT / "tests/golden/run", top / "source" / run)
    shutil.copytree(ROOT / "tests/golden/run/checkpoint-2", top / "source/bare/checkpoint-2")
    (top / "source/damaged/checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp").unlink()
    mnt = conftest.mounted(top, top / "source")
    try:
        conftest.LAUNCHER.run(MAKE / "messages.py", [top / "out", mnt, top / "source"], 0, {})
    finally:
        conftest.detach(mnt)
    read = json.loads((top / "out").read_text())
    return {case: re.sub(rf"{top}/[\w/-]*/(?:checkpoint-2(?:/pytorch_model_fsdp_0)?|next)", "PATH", text.replace("`", ""))
            for case, text in read.items()}


def pattern(heading):
    return ".*".join(map(re.escape, re.split(r" *\.\.\. *", heading)))


def test_each_message_has_its_entry(messages):
    found = headings(*PRODUCED)
    for case, text in messages.items():
        assert any(re.fullmatch(pattern(heading), text.strip(), re.S) for heading in found), f"{case}: {text}"


def test_each_entry_is_a_message(messages):
    for heading in headings(*PRODUCED):
        assert any(re.fullmatch(pattern(heading), text.strip(), re.S) for text in messages.values()), heading


def test_the_other_entries_are_messages_of_other_tests():
    tests = "".join((HERE / name).read_text() for name in ELSEWHERE)
    found = headings("Lightning and DeepSpeed")
    assert len(found) == 2
    for heading in found:
        assert heading in tests, heading
