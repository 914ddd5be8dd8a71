"""docs/troubleshooting.md has the messages that frameworks print, as they print them: make/messages.py,
make/messages_strategies.py and serving/vllm_messages.py give them the wrong thing. Some of Lightning's and DeepSpeed's are
looked for in the tests that produce them."""

import json
import os
import re
import shutil
import subprocess

import pytest

import conftest
from conftest import HERE, LONGEST_S, MAKE, ROOT
from documents import PAGES
from environments import environment

PAGE = PAGES["docs/troubleshooting.md"]
ALONE = ("transformers", "Accelerate and torch", "any program")
STRATEGIES = ("Lightning", "DeepSpeed")
ELSEWHERE = {"KeyError: 'optimizer_0'": "test_lightning.py",
             "used a DP world size of 2 but the current world size is 3": "test_lightning_deepspeed.py"}


def headings(*sections):
    """The headings below these that are a message, as code."""
    found = []
    for section in sections:
        text = PAGE.split(f"\n## From {section}\n")[1].split("\n## ")[0]
        found += re.findall(r"^### `(.*)`$", text, re.M)
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A directory with the runs `whole`, `bare`, which has no config.json, and `damaged`."""
    top = tmp_path_factory.mktemp("messages")
    for run in ("whole", "damaged"):
        shutil.copytree(ROOT / "tests/golden/run", top / "source" / run)
    shutil.copytree(ROOT / "tests/golden/run/checkpoint-2", top / "source/bare/checkpoint-2")
    (top / "source/damaged/checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp").unlink()
    return top / "source"


@pytest.fixture(scope="module")
def shown(source):
    mnt = conftest.mounted(source.parent, source)
    yield mnt
    conftest.detach(mnt)


@pytest.fixture(scope="module")
def messages(source, shown):
    """{case: what was printed, PATH in place of the path}"""
    top = source.parent
    conftest.LAUNCHER.run(MAKE / "messages.py", [top / "out", shown, source], 0, {})
    read = json.loads((top / "out").read_text())
    return {case: re.sub(rf"{top}/[\w/-]*/(?:checkpoint-2(?:/pytorch_model_fsdp_0)?|next)", "PATH", text.replace("`", ""))
            for case, text in read.items()}


@pytest.fixture(scope="module")
def of_strategies(made, tmp_path_factory):
    top, runs = tmp_path_factory.mktemp("strategies"), made("l2", "fsdp").parent
    mnt = conftest.mounted(top, runs)
    try:
        conftest.launch("messages_strategies.py", 1, top / "out", [mnt, runs])
    finally:
        conftest.detach(mnt)
    return json.loads((top / "out").read_text())


def matches(heading, text):
    return re.fullmatch(".*".join(map(re.escape, re.split(r" *\.\.\. *", heading))), text.strip(), re.S)


def each_message_has_its_entry(messages, found):
    for case, text in messages.items():
        assert any(matches(heading, text) for heading in found), f"{case}: {text}"


def each_entry_is_a_message(found, messages):
    for heading in found:
        assert any(matches(heading, text) for text in messages.values()), heading


def test_one_process(messages):
    each_message_has_its_entry(messages, headings(*ALONE))
    each_entry_is_a_message(headings(*ALONE), messages)


def test_strategies(of_strategies):
    each_message_has_its_entry(of_strategies, headings(*STRATEGIES))
    each_entry_is_a_message([h for h in headings(*STRATEGIES) if h not in ELSEWHERE], of_strategies)


@pytest.mark.parametrize("heading", ELSEWHERE)
def test_an_entry_whose_message_another_test_produces(heading):
    assert heading in headings(*STRATEGIES)
    assert heading in (HERE / ELSEWHERE[heading]).read_text()


@pytest.mark.long
def test_vllm(source, shown, tmp_path):
    done = subprocess.run([environment("vllm"), HERE / "serving/vllm_messages.py", tmp_path / "out", shown, source],
                          capture_output=True, text=True, timeout=LONGEST_S, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr[-4000:]
    messages = json.loads((tmp_path / "out").read_text())
    each_message_has_its_entry(messages, headings("vLLM"))
    each_entry_is_a_message(headings("vLLM"), messages)
