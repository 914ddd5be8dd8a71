"""Two file systems at one path, whose files have equal names, sizes, inode numbers and times."""

import os
import subprocess
import time

import conftest
import pytest
import torch
from safetensors.torch import load_file, save_file

CACHED_S = 3  # the kernel keeps names for two seconds, the daemon for one

FIXED = "20231114221320"


def image(folder, name, first, second):
    """An ext4 image of one checkpoint. All images have the same names, sizes, inode numbers and times."""
    tree = folder / f"tree-{name}"
    (tree / "run").mkdir(parents=True)
    save_file({"aa": torch.full((64,), first), "bb": torch.full((64,), second)}, tree / "run" / "model.safetensors")
    (tree / "run" / "config.json").write_text("{}")
    made = folder / f"{name}.img"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-I", "128", "-U", "11111111-1111-1111-1111-111111111111",
                    "-d", tree, made, "4M"], check=True)
    names = ("", "run", "run/model.safetensors", "run/config.json")
    sets = "".join(f"sif /{n} {time} {FIXED}\n" for n in names for time in ("ctime", "mtime", "atime", "crtime"))
    subprocess.run(["debugfs", "-w", "-f", "-", made], input=sets, text=True, check=True, capture_output=True)
    return made


@pytest.fixture
def images(tmp_path):
    """(two images, the directory where one of them can be mounted)."""
    at = tmp_path / "source" / "at"
    at.mkdir(parents=True)
    yield [image(tmp_path, "one", 1.0, 2.0), image(tmp_path, "other", 2.0, 1.0)], at
    while os.path.ismount(at):
        subprocess.run(["umount", "-l", at], check=True)


def identity(path):
    st = os.stat(path)
    return st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


def shown(mnt):
    tensors = load_file(mnt / "weights" / "at" / "run" / "model.safetensors")
    return tensors["aa"][0].item(), tensors["bb"][0].item()


def test_another_image_at_the_same_path_after_a_remount(images, mount, tmp_path):
    pair, at = images
    seen = []
    for made, want in zip(pair, ((1, 2), (2, 1))):
        subprocess.run(["mount", "-o", "loop,ro", made, at], check=True)
        seen.append(identity(at / "run" / "model.safetensors"))
        mnt = mount(at.parent, f"store={tmp_path}/store.db", changing=True)
        assert shown(mnt.path) == want
        conftest.detach(mnt.path)
        subprocess.run(["umount", "-l", at], check=True)
    assert seen[0] == seen[1]  # or the test proves nothing


def test_another_image_at_the_same_path_under_a_mount(images, mount, tmp_path, eventually):
    pair, at = images
    mnt = mount(at.parent, f"store={tmp_path}/store.db", changing=True).path
    for made, want in zip(pair, ((1, 2), (2, 1))):
        subprocess.run(["mount", "-o", "loop,ro", made, at], check=True)
        eventually(lambda: (mnt / "weights" / "at" / "run" / "model.safetensors").exists())
        time.sleep(CACHED_S)
        assert shown(mnt) == want
        subprocess.run(["umount", "-l", at], check=True)
        time.sleep(CACHED_S)
