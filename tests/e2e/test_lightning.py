"""Lightning's sharded checkpoints through the mount, with Lightning itself."""

import json
import os
import re
import sys
import tempfile

import pytest
import torch

import conftest
import trees

sys.path.insert(0, str(conftest.MAKE))
LAUNCH = "l2"
# (processes, name) of what saves and is resumed again in every round; what --long alone resumes of two processes, the same in
# another combination; of three, what is resumed at all.
AGAIN = {(0, "full-fsdp"), (0, "full-rich"), (2, "full"), (2, "dcp"), (2, "rich-full"), (2, "mp-dcp"), (2, "weights"),
         (3, "dcp")}
RARELY_ON_TWO = ("rich-full-to-full", "mp-rich-native", "mp-rich-full", "weights-to-full")
OFTEN_ON_THREE = ("native", "dcp", "mp-native", "mp-dcp")


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


@pytest.mark.parametrize("case", ["fsdp", "mp", "fsdp-rich", "mp-rich", "fsdp-weights"])
def test_load_from_checkpoint(runs, mount, case):
    from lightning_net import Module

    live = trees.tensors(runs / case / "live.safetensors")
    mounted = mount(runs / case)
    last = sorted(os.listdir(mounted / "full/run"))[-1]
    for view in ("weights", "full"):
        module = Module.load_from_checkpoint(mounted / view / "run" / last, weights_only=True)
        trees.assert_same(dict(module.state_dict()), live)
        assert module.hparams.hidden == 10 and module.hparams.rich == case.endswith("rich")


def test_load_from_checkpoint_by_name_alone(runs, mount, copied, monkeypatch):
    """As Lightning names files, and relative to where the process is."""
    from lightning_net import Module

    top = copied(runs / "fsdp")
    (top / "run/step=3.ckpt").rename(top / "run/epoch=0-step=3.ckpt")
    mounted = mount(top)
    for view in ("weights", "full", "full-fsdp"):
        monkeypatch.chdir(mounted / view / "run")
        module = Module.load_from_checkpoint("epoch=0-step=3.ckpt", weights_only=True)
        trees.assert_same(dict(module.state_dict()), trees.tensors(top / "live.safetensors"))


@pytest.mark.parametrize("how", ["beside", "option"])
def test_a_published_model_inside(runs, mount, copied, tmp_path, how):
    """The module's own prefix stripped, with a config from where one is: transformers loads it."""
    import models
    from transformers import AutoModelForCausalLM

    top = copied(runs / "fsdp-published")
    config = models.llama(torch.float32, tie=True).config
    config.save_pretrained(top / "run" if how == "beside" else tmp_path / "base")
    options = [] if how == "beside" else [f"model={tmp_path / 'base'}"]
    folder = mount(top, "strip=model.", *options) / "weights/run/step=3"
    assert {"config.json", "model.safetensors"} <= set(os.listdir(folder))
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    live = trees.tensors(top / "live.safetensors")
    for name, tensor in model.state_dict().items():
        trees.assert_same({name: tensor}, {name: live[f"model.{name}"]})


def test_the_documents_name_what_is_there(runs, mount):
    """Its lines for Lightning, with a run and a checkpoint put in. (That they resume: below.)"""
    mounted = mount(runs)
    lines = re.findall(r'`(?:trainer\.fit|MyModule)[^`]*"mnt/(.*?)/RUN/X\.ckpt"\)`',
                       (conftest.ROOT / "docs/resume.md").read_text())
    assert sorted(lines) == ["dcp", "full", "full-fsdp", "universal", "weights", "world-3"]
    for view in set(lines) - {"world-3"}:  # DeepSpeed's: test_lightning_deepspeed.py
        assert (mounted / view / "fsdp/run/step=2.ckpt").is_dir() == (view in ("dcp", "universal"))


# -- training goes on --

def one_device_file(directory, root, path, optimizers=1):
    """The file that a Trainer on one device would have saved, put together by torch alone."""
    file = torch.load(directory / "meta.pt", weights_only=True)
    file["state_dict"] = saved(directory, root)
    file["optimizer_states"] = []
    for i in range(optimizers):
        state = saved(directory, f"optimizer_{i}")
        number = {n: k for k, n in enumerate(state["param_groups"][0]["params"])}
        state["state"] = {number[n]: s for n, s in state["state"].items()}
        state["param_groups"][0]["params"] = list(number.values())
        file["optimizer_states"].append(state)
    file.setdefault("lr_schedulers", [])
    torch.save(file, path)


def without_optimizers(directory, path):
    """What FSDPStrategy takes for a checkpoint without optimizers, put together by torch alone."""
    file = torch.load(directory / "meta.pt", weights_only=True)
    file["state_dict"] = saved(directory, "model")
    file["lr_schedulers"] = []
    torch.save(file, path)


class Results:
    """NAME.{safetensors,json,txt} of every job, by number of processes (0: without torchrun)."""

    def __init__(self, base):
        self.base = base

    def weights(self, world, name):
        return (self.base / str(world) / f"{name}.safetensors").read_bytes()

    def restored(self, world, name):
        return json.loads((self.base / str(world) / f"{name}.json").read_text())

    def error(self, world, name):
        return (self.base / str(world) / f"{name}.txt").read_text()

    def assert_alike(self, world, *names):
        for name in names[1:]:
            assert self.restored(world, name) == self.restored(world, names[0]), name
            assert self.weights(world, name) == self.weights(world, names[0]), name


STEP, RICH = "run/step=2.ckpt", "run/step=4.ckpt"  # after the second batch of three


def on_one_device(runs, mnt, made):
    one_device_file(runs / "fsdp" / STEP, "model", made / "fsdp.ckpt")
    one_device_file(runs / "mp" / STEP, "state_dict", made / "mp.ckpt")
    one_device_file(runs / "fsdp-rich" / RICH, "model", made / "rich.ckpt", optimizers=2)
    one_device_file(runs / "fsdp-weights" / STEP, "model", made / "weights.ckpt", optimizers=0)
    return [f"resume:one:fsdp:{made}/fsdp.ckpt", f"resume:one:full-fsdp:{mnt}/full/fsdp/{STEP}",
            f"resume:one:mp:{made}/mp.ckpt", f"resume:one:full-mp:{mnt}/full/mp/{STEP}",
            f"resume:one-rich:rich:{made}/rich.ckpt",
            f"resume:one-rich:full-rich:{mnt}/full/fsdp-rich/{RICH}",
            f"resume:one:weights:{made}/weights.ckpt",
            f"resume:one:full-weights:{mnt}/full/fsdp-weights/{STEP}",
            f"resume:one:full-mp-weights:{mnt}/full/mp-weights/{STEP}",
            f"fail:one:only-weights:{mnt}/weights/fsdp-weights/{STEP}",
            f"fail:one:directory:{runs}/fsdp-weights/{STEP}"]


def on_two(runs, mnt, made):
    without_optimizers(runs / "fsdp-weights" / STEP, made / "stateless.ckpt")
    return [f"resume:fsdp:native:{runs}/fsdp/{STEP}", f"resume:fsdp:full:{mnt}/full/fsdp/{STEP}",
            f"resume:fsdpfull:full-to-full:{mnt}/full/fsdp/{STEP}",
            f"resume:fsdp:full-fsdp:{mnt}/full-fsdp/fsdp/{STEP}",
            f"resume:fsdp:dcp:{mnt}/dcp/fsdp/{STEP}",
            f"resume:fsdp-rich:rich-native:{runs}/fsdp-rich/{RICH}",
            f"resume:fsdp-rich:rich-full:{mnt}/full/fsdp-rich/{RICH}",
            f"resume:fsdpfull-rich:rich-full-to-full:{mnt}/full/fsdp-rich/{RICH}",
            f"resume:mp:mp-native:{runs}/mp/{STEP}", f"resume:mp:mp-full:{mnt}/full/mp/{STEP}",
            f"resume:mp:mp-dcp:{mnt}/dcp/mp/{STEP}",
            f"resume:mp-rich:mp-rich-native:{runs}/mp-rich/{RICH}",
            f"resume:mp-rich:mp-rich-full:{mnt}/full/mp-rich/{RICH}",
            f"resume:fsdp:weights-native:{made}/stateless.ckpt",
            f"resume:fsdp:weights:{mnt}/full-fsdp/fsdp-weights/{STEP}",
            f"resume:fsdpfull:weights-to-full:{mnt}/full-fsdp/fsdp-weights/{STEP}",
            f"fail:fsdp:directory:{runs}/fsdp-weights/{STEP}",
            f"fail:fsdpfull:directory-full:{runs}/fsdp-weights/{STEP}",
            f"fail:mp:directory-mp:{runs}/mp-weights/{STEP}",
            f"fail:fsdp:only-weights:{mnt}/weights/fsdp-weights/{STEP}",
            f"fail:mp:only-weights-mp:{mnt}/weights/mp-weights/{STEP}",
            f"fail:mp:full-fsdp-mp:{mnt}/full-fsdp/mp-weights/{STEP}"]


def on_three(runs, mnt, made):
    return [f"resume:fsdp-rich:native:{runs}/fsdp-rich/{RICH}",
            f"resume:fsdp-rich:dcp:{mnt}/dcp/fsdp-rich/{RICH}",
            f"resume:fsdp-rich:full:{mnt}/full/fsdp-rich/{RICH}",
            f"resume:mp:mp-native:{runs}/mp/{STEP}", f"resume:mp:mp-dcp:{mnt}/dcp/mp/{STEP}",
            f"resume:mp:mp-full:{mnt}/full/mp/{STEP}"]


@pytest.fixture(scope="module")
def resumed(made, request, chosen, tmp_path_factory):
    """Every resume first, few launches for many; each test looks at some."""
    every = request.config.getoption("--long")
    runs, base = made(LAUNCH, "fsdp").parent, tmp_path_factory.mktemp("lightning")
    mnt, files = base / "mnt", base / "files"
    mnt.mkdir()
    files.mkdir()
    before = trees.fingerprint(runs)
    conftest.unshard("mount", runs, mnt, "-o", f"settle=0,store={base}/store.db")

    def resume(world, jobs, often=None):
        named = {job.split(":")[2]: job for job in jobs}
        if world == 2:
            often = [n for n in named if n not in RARELY_ON_TWO]
        conftest.generated("lightning_run.py", world, base / str(world), [
            named[n] if every or (world, n) in AGAIN else named[n].replace("resume:", "once:", 1)
            for n in chosen(named, often or named)])

    try:
        resume(0, on_one_device(runs, mnt, files))
        resume(2, on_two(runs, mnt, files))
        resume(3, on_three(runs, mnt, files), OFTEN_ON_THREE)
        yield Results(base)
    finally:
        conftest.detach(mnt)
    assert trees.fingerprint(runs) == before, "the source was changed"


def test_the_oracle_tells_what_was_restored(resumed):
    """Steps, learning rates, callbacks and loops are those of the second batch, not of a fresh start."""
    for name, step, steps, lr in (("native", 2, [[2.0]], 0.0081),
                                  ("rich-native", 4, [[2.0], []], 0.0081)):
        seen = resumed.restored(2, name)
        assert (seen["step"], seen["steps"]) == (step, steps)
        assert seen["groups"][0][0]["lr"] == pytest.approx(lr)
        assert "'batches': 2" in seen["callbacks"] and f"step={step}.ckpt" in seen["callbacks"]
        assert seen["loops"]["epoch_loop.batch_progress"]["total"]["ready"] == 2
    fresh = resumed.restored(2, "weights-native")
    assert (fresh["step"], fresh["steps"], fresh["groups"][0][0]["lr"]) == (2, [[]], 0.01)


@pytest.mark.parametrize("case", ["fsdp", "mp", "rich"])
def test_one_device_goes_on(resumed, case):
    resumed.assert_alike(0, case, f"full-{case}")


def test_fsdp_goes_on(resumed):
    """From the file and the directory, with state_dict_type sharded and full."""
    resumed.assert_alike(2, "native", "full", "full-to-full", "full-fsdp", "dcp")


@pytest.mark.parametrize("name", conftest.or_long(["rich-full", "rich-full-to-full"], ["rich-full"]))
def test_fsdp_goes_on_with_two_optimizers_tied_weights_and_mixed_precision(resumed, name):
    resumed.assert_alike(2, "rich-native", name)


def test_model_parallel_goes_on(resumed):
    resumed.assert_alike(2, "mp-native", "mp-full", "mp-dcp")


@pytest.mark.long
def test_model_parallel_goes_on_with_two_optimizers_tied_weights_and_mixed_precision(resumed):
    resumed.assert_alike(2, "mp-rich-native", "mp-rich-full")


@pytest.mark.parametrize("name", conftest.or_long(["dcp", "full", "mp-dcp", "mp-full"], OFTEN_ON_THREE))
def test_another_number_of_ranks_goes_on(resumed, name):
    resumed.assert_alike(3, "mp-native" if name.startswith("mp") else "native", name)


# -- weights only --

def test_how_weights_only_fails_natively(resumed):
    """The three ways in which users meet it."""
    for world, name, sentence in (
            (2, "directory", "KeyError: 'optimizer_0'"), (2, "directory-full", "KeyError: 'optimizer_0'"),
            (2, "only-weights", "checkpoint contains only the model"),
            (2, "only-weights-mp", "KeyError: 'optimizer_states'"),
            (0, "only-weights", "checkpoint contains only the model")):
        assert sentence in resumed.error(world, name), (world, name)
    assert "optimizer_0.state.net.emb.weight.step" in resumed.error(2, "directory-mp")
    assert "directory" in resumed.error(0, "directory")


def test_weights_only_goes_on_with_fresh_optimizers(resumed):
    resumed.assert_alike(0, "weights", "full-weights")
    resumed.assert_alike(2, "weights-native", "weights")
    for world, name, native in ((0, "full-weights", "full-fsdp"), (2, "weights", "native")):
        seen, whole = resumed.restored(world, name), resumed.restored(world, native)
        assert (seen["step"], seen["epoch"], seen["steps"]) == (2, 0, [[]])
        assert seen["loops"] == whole["loops"]
        assert resumed.weights(world, name) != resumed.weights(world, native)
    assert resumed.restored(0, "full-mp-weights")["step"] == 2


@pytest.mark.long
def test_weights_only_goes_on_in_the_full_form(resumed):
    resumed.assert_alike(2, "weights-native", "weights-to-full")


def test_what_weights_only_lacks_is_said(runs, mount, command, resumed):
    mounted = mount(runs / "fsdp-weights")
    for view in ("full", "full-fsdp"):
        told = mounted / view / "run/step=2/.unshard"
        origin = json.loads((told / "provenance.json").read_text())["files"]["step=2.ckpt"]["origin"]
        assert "empty ones are synthesised" in origin
        assert "ModelParallelStrategy needs the saved states and resumes from neither" in \
            (told / "problems.txt").read_text()
    # As it says: there is nothing that this strategy would take.
    assert resumed.error(2, "full-fsdp-mp") == "KeyError: 'optimizer_states'"
    done = command("check", runs / "fsdp-weights", "-o", "settle=0")
    assert "note        step=1.ckpt was saved with save_weights_only" in done.stdout
    assert "[saved_weights_only] holds for 2 more of run: step=2.ckpt, step=3.ckpt" in done.stdout


def test_a_single_file_is_passed_through(resumed, mount):
    """What a Trainer on one device saved is what it is, in every view that training resumes from; weights
    shows its weights alone."""
    source = resumed.base / "files"
    mounted = mount(source)
    for view in ("full", "full-fsdp", "dcp"):
        assert (mounted / view / "fsdp.ckpt").read_bytes() == (source / "fsdp.ckpt").read_bytes()
    shown = torch.load(mounted / "weights/fsdp.ckpt", weights_only=True)
    saved = torch.load(source / "fsdp.ckpt", weights_only=True)
    assert "optimizer_states" not in shown and list(shown["state_dict"]) == list(saved["state_dict"])
    for name, tensor in saved["state_dict"].items():
        assert torch.equal(shown["state_dict"][name], tensor)
