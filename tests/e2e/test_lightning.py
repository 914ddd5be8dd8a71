"""Lightning's sharded checkpoints through the mount, with Lightning itself."""

import json
import os
import subprocess
import sys
import tempfile

import pytest
import torch

import conftest
import trees

sys.path.insert(0, str(conftest.MAKE))
LAUNCH = "l2"


@pytest.fixture
def runs(made):
    """The directory that holds fsdp/, fsdp-weights/ and mp/."""
    return made(LAUNCH, "fsdp").parent


def loaded(path):
    torch.load(path, weights_only=True, mmap=True)
    return torch.load(path, weights_only=True)


def saved(directory, root):
    """The tensors below a root of a sharded directory, by torch's own converter."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    with tempfile.TemporaryDirectory() as scratch:
        dcp_to_torch_save(directory, f"{scratch}/whole")
        return torch.load(f"{scratch}/whole", weights_only=False).get(root)


def test_names(runs, mount):
    mounted = mount(runs)
    steps = [f"step={i}.ckpt" for i in (1, 2, 3)]
    for view in ("full", "full-fsdp"):
        assert sorted(p.name for p in (mounted / view / "fsdp/run").iterdir()) == steps
        assert all((mounted / view / "fsdp/run" / s).is_file() for s in steps)
    shown = mounted / "weights/fsdp/run"
    assert sorted(p.name for p in shown.iterdir()) == sorted(steps + [s[:-5] for s in steps])
    assert (shown / "step=2.ckpt").is_file() and (shown / "step=2").is_dir()
    assert (mounted / "dcp/fsdp/run/step=2.ckpt/meta.pt").is_file()
    assert not (mounted / "full/fsdp/run/step=4.ckpt").exists()
    assert not (mounted / "full/fsdp/run/step=2.ckpt.ckpt").exists()


@pytest.mark.parametrize("case, root", [("fsdp", "model"), ("fsdp-weights", "model"),
                                        ("mp", "state_dict")])
def test_one_file_holds_what_the_directory_holds(runs, mount, copied, case, root):
    top = copied(runs / case)
    source = top / "run/step=3.ckpt"
    mounted = mount(top)
    meta = torch.load(source / "meta.pt", weights_only=True)
    weights = saved(source, root)
    trees.assert_same(weights, trees.tensors(top / "live.safetensors"))
    optimizer = saved(source, "optimizer_0")
    for view in ("full", "full-fsdp", "weights"):
        file = loaded(mounted / view / "run/step=3.ckpt")
        trees.assert_same(file.pop("state_dict"), weights)
        states = file.pop("optimizer_states", None)
        if view == "weights":
            assert states is None
        elif optimizer:
            assert len(states) == 1
            assert states[0]["state"].keys() == optimizer["state"].keys()
            for name, state in states[0]["state"].items():
                trees.assert_same(state, optimizer["state"][name])
            assert states[0]["param_groups"] == optimizer["param_groups"]
        else:
            assert states == ([] if view == "full" else None)
            assert file.pop("lr_schedulers") == []
        assert repr(file) == repr(meta)
    trees.assert_same(trees.weights(mounted / "weights/run/step=3"), weights)


def test_a_directory_without_ckpt_in_its_name(runs, mount, copied):
    top = copied(runs / "fsdp")
    (top / "run/step=3.ckpt").rename(top / "run/last")
    (top / "run/step=2").mkdir()
    (top / "run/step=1").write_text("a name of the source's own")
    mounted = mount(top)
    assert loaded(mounted / "full/run/last.ckpt")["global_step"] == 3
    assert "last" not in os.listdir(mounted / "full/run")
    shown = mounted / "weights/run"
    assert (shown / "last").is_dir() and (shown / "last.ckpt").is_file()
    assert (shown / "step=2").is_dir() and not os.listdir(shown / "step=2")
    assert trees.weights(shown / "step=2.unshard") and (shown / "step=2.ckpt").is_file()
    assert (shown / "step=1").read_text() == "a name of the source's own"


def test_the_checkpoint_itself_as_source(runs, mount):
    mounted = mount(runs / "fsdp/run/step=3.ckpt")
    assert loaded(mounted / "full/checkpoint.ckpt")["global_step"] == 3
    assert trees.weights(mounted / "weights")


def test_strip_takes_a_prefix_off_the_safetensors_names(runs, mount):
    live = trees.tensors(runs / "fsdp/live.safetensors")
    mounted = mount(runs / "fsdp", "strip=net.")
    trees.assert_same(trees.weights(mounted / "weights/run/step=3"),
                      {n.removeprefix("net."): t for n, t in live.items()})
    trees.assert_same(loaded(mounted / "weights/run/step=3.ckpt")["state_dict"], live)


def test_cast_weights(runs, mount):
    file = loaded(mount(runs / "fsdp") / "weights-bf16/run/step=3.ckpt")
    for name, tensor in trees.tensors(runs / "fsdp/live.safetensors").items():
        want = tensor.bfloat16() if tensor.is_floating_point() else tensor
        assert torch.equal(file["state_dict"][name], want), name


def test_damage_is_a_directory_with_a_sentence(runs, mount, copied):
    top = copied(runs / "fsdp")
    for name in ("step=1.ckpt", "step=2.ckpt"):
        shard = top / "run" / name / "__1_0.distcp"
        shard.write_bytes(shard.read_bytes()[:1000])
    (top / "run/step=3.ckpt/meta.pt").write_bytes(b"no zip")
    mounted = mount(top)
    for view, name in (("full", "step=1.ckpt"), ("weights", "step=1.ckpt"), ("weights", "step=1"),
                       ("full", "step=3.ckpt")):
        problem = mounted / view / "run" / name / "UNSHARD_PROBLEM.txt"
        assert "step=" in problem.read_text()
    assert trees.weights(mounted / "weights/run/step=3")


def test_objects_in_the_hyper_parameters_stay(runs, mount, copied):
    from argparse import Namespace

    top = copied(runs / "fsdp")
    meta = top / "run/step=3.ckpt/meta.pt"
    state = torch.load(meta, weights_only=True)
    state["hyper_parameters"]["args"] = Namespace(lr=0.5)
    torch.save(state, meta)
    mounted = mount(top)
    file = torch.load(mounted / "full/run/step=3.ckpt", weights_only=False)
    assert file["hyper_parameters"]["args"] == Namespace(lr=0.5)
    trees.assert_same(file["state_dict"], trees.tensors(top / "live.safetensors"))
    notes = json.loads((mounted / "full/run/step=3/.unshard/provenance.json").read_text())["notes"]
    assert "argparse.Namespace" in notes[0] and "weights_only=False" in notes[0]


def test_load_from_checkpoint(runs, mount):
    from lightning_net import Module

    live = trees.tensors(runs / "fsdp/live.safetensors")
    mounted = mount(runs / "fsdp")
    for view in ("weights", "full"):
        module = Module.load_from_checkpoint(mounted / view / "run/step=3.ckpt", weights_only=True)
        trees.assert_same(dict(module.state_dict()), live)
        assert module.hparams.hidden == 10


def jobs(out, *names):
    done = subprocess.run([sys.executable, str(conftest.MAKE / "lightning_run.py"), str(out), *names],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-8000:]


def one_device_file(directory, path):
    """The file that a Trainer on one device would have saved, put together by torch alone."""
    file = torch.load(directory / "meta.pt", weights_only=True)
    file["state_dict"] = saved(directory, "model")
    state = saved(directory, "optimizer_0")
    number = {n: i for i, n in enumerate(state["param_groups"][0]["params"])}
    state["state"] = {number[n]: s for n, s in state["state"].items()}
    state["param_groups"][0]["params"] = list(number.values())
    file["optimizer_states"] = [state]
    torch.save(file, path)


def test_resume_on_one_device(runs, mount, copied, tmp_path):
    top = copied(runs)
    one_device_file(top / "fsdp/run/step=2.ckpt", tmp_path / "native.ckpt")
    full = mount(top) / "full"
    jobs(tmp_path / "out", f"resume:one:native:{tmp_path / 'native.ckpt'}",
         f"resume:one:full:{full / 'fsdp/run/step=2.ckpt'}",
         f"resume:one:weights:{full / 'fsdp-weights/run/step=2.ckpt'}")
    got = {n: trees.tensors(tmp_path / "out" / f"{n}.safetensors")
           for n in ("native", "full", "weights")}
    trees.assert_same(got["full"], got["native"])
    # The moments start anew: the same training, other weights.
    assert not torch.equal(got["weights"]["net.emb.weight"], got["native"]["net.emb.weight"])


def test_resume_with_fsdp(runs, mount, tmp_path):
    """From the file into every sharded strategy, and from the directory natively: the same bytes."""
    mounted = mount(runs)
    step, out = "run/step=2.ckpt", tmp_path / "out"
    conftest.torchrun("lightning_run.py", 2, out, [
        f"resume:fsdp:native:{runs / 'fsdp' / step}",
        f"resume:fsdp:sharded:{mounted / 'full/fsdp' / step}",
        f"resume:fsdpfull:whole:{mounted / 'full/fsdp' / step}",
        f"resume:fsdp:named:{mounted / 'full-fsdp/fsdp' / step}",
        f"resume:fsdp:weights:{mounted / 'full-fsdp/fsdp-weights' / step}",
        f"resume:mp:mp-native:{runs / 'mp' / step}",
        f"resume:mp:mp:{mounted / 'full/mp' / step}"])
    got = {p.stem: p.read_bytes() for p in out.iterdir()}
    assert got["sharded"] == got["whole"] == got["named"] == got["native"]
    assert got["mp"] == got["mp-native"]
    assert got["weights"] != got["native"]
    assert trees.tensors(out / "weights.safetensors").keys() == \
        trees.tensors(out / "native.safetensors").keys()


def test_what_fails_natively(runs, tmp_path):
    """The failure that full-fsdp/ takes away: a directory of weights only does not resume."""
    with pytest.raises(pytest.fail.Exception, match="optimizer_0"):
        conftest.torchrun("lightning_run.py", 2, tmp_path,
                          [f"resume:fsdp:native:{runs / 'fsdp-weights/run/step=2.ckpt'}"])
