"""Checkpoints of Lightning Fabric (fabric.save) through the mount, loaded by Fabric itself."""

import json
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from lightning.fabric.utilities.load import _load_distributed_checkpoint

import conftest
import trees

SHARDED = ["fsdp", "mp", "fsdp-own", "mp-own", "tp"]
BESIDE = {"iter_num": 3, "hparams": {"lr": 0.01, "names": ["a", "b"]}, "mean": [0.0, 1.0, 2.0],
          "schedule": {"last": [0.1, 0.2]}}  # fabric_run.beside(), as JSON
# What three ranks load in every round: each strategy, each form. The rest, --long.
OFTEN = ("dcp-fsdp", "full-fsdp", "dcp-mp-own", "full-mp-own", "dcp-tp")


@pytest.fixture(scope="module")
def runs(made):
    return made("fb2", "fsdp").parent


def assert_equal(one, other, where=""):
    """Trees of dicts, lists and tensors: equal to the last bit, and of the same kinds."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for i, pair in enumerate(zip(one, other)):
            assert_equal(*pair, f"{where}.{i}")
    elif torch.is_tensor(one):
        assert one.dtype == other.dtype and torch.equal(one, other), where
    else:
        assert one == other, where


@pytest.mark.parametrize("case", SHARDED)
@pytest.mark.parametrize("view", ["full", "full-fsdp"])
def test_full_is_what_fabric_consolidate_writes(runs, mount, case, view):
    want = _load_distributed_checkpoint(runs / case / "run/state")
    shown = mount(runs / case) / view / "run/state.ckpt"
    got = torch.load(shown, weights_only=True)
    if case == "fsdp-own":  # torch saves 'momentum_buffer' alone of SGD's group; both have it all
        assert {"net", "average", "adam", "sgd", *BESIDE} == got.keys()
    assert_equal(got, want)


@pytest.mark.parametrize("case", SHARDED)
def test_weights_are_the_live_ones(runs, mount, case):
    live = trees.tensors(runs / case / "live.safetensors")
    own = case.endswith("own")
    m = mount(runs / case)
    file = torch.load(m / "weights/run/state.ckpt", weights_only=True)
    for key in ("net", "average") if own else ("model",):
        want = {n.split("|", 1)[1]: t for n, t in live.items() if n.startswith(f"{key}|")}
        trees.assert_same(file.pop(key), want)
        names = {f"{key}.{n}": t for n, t in want.items()} if own else want
        shown = trees.weights(m / "weights/run/state")
        trees.assert_same({n: shown[n] for n in names}, names)
    assert file.pop("mean").tolist() == BESIDE["mean"]
    assert file == {k: v for k, v in BESIDE.items() if k != "mean"}


def test_one_key_as_the_weights(runs, mount):
    live = trees.tensors(runs / "fsdp-own/live.safetensors")
    m = mount(runs / "fsdp-own", "weights_key=average")
    trees.assert_same(trees.weights(m / "weights/run/state"),
                      {n.split("|")[1]: t for n, t in live.items() if n.startswith("average|")})
    assert_equal(torch.load(m / "full/run/state.ckpt", weights_only=True),
                 _load_distributed_checkpoint(runs / "fsdp-own/run/state"))


def test_a_directory_that_is_called_as_a_file(runs, mount, copied):
    """As LitGPT does; a name of the source's own stays."""
    top = copied(runs / "fsdp")
    (top / "run/state").rename(top / "run/lit_model.pth")
    (top / "run/taken").write_text("a name of the source's own")
    shutil.copytree(top / "run/lit_model.pth", top / "run/taken.pth")
    m = mount(top)
    want = _load_distributed_checkpoint(top / "run/lit_model.pth")
    assert sorted(p.name for p in (m / "full/run").iterdir()) == ["lit_model.pth", "taken", "taken.pth"]
    assert_equal(torch.load(m / "full/run/lit_model.pth", weights_only=True), want)
    assert (m / "weights/run/lit_model.pth").is_file() and not (m / "full/run/lit_model.ckpt").exists()
    trees.assert_same(trees.weights(m / "weights/run/lit_model"), want["model"])
    trees.assert_same(trees.weights(m / "weights/run/taken.unshard"), want["model"])


def test_check_and_show(runs, made, command):
    for source in (runs, made("fz2", "z2")):
        command("check", source, "-o", "settle=0")  # which fails if anything is damaged
    shown = command("show", runs / "fsdp/run/state", "-o", "settle=0").stdout
    assert "framework   Lightning Fabric" in shown and "trainer.fit" not in shown
    views = json.loads(command("show", runs / "fsdp/run/state", "-o", "settle=0", "--json").stdout)["info"]["views"]
    assert views["full"]["usage"].startswith('fabric.load("MOUNTPOINT/full/state.ckpt", state)')
    assert views["dcp"]["usage"].startswith('fabric.load("MOUNTPOINT/dcp/state", state)')
    shown = command("show", made("fz2", "z2") / "run/state", "-o", "settle=0").stdout
    assert "framework   Lightning Fabric, DeepSpeed ZeRO stage 2" in shown


def test_an_object_in_a_models_state_dict(tmp_path, mount, command):
    """Where Fabric's single file has it is not known: dcp shows it as it is, and full says so."""
    state = {"model": {"w": torch.ones(3), "_extra_state": {"a", "b"}}}
    dcp.save(state, checkpoint_id=tmp_path / "run/state", no_dist=True)
    torch.save({"iter_num": 1}, tmp_path / "run/state/meta.pt")
    m = mount(tmp_path / "run")
    assert trees.weights(m / "weights/state").keys() == {"w"}
    assert (m / "dcp/state/.metadata").exists()
    assert not (m / "full/state.ckpt").is_file()
    assert "view dcp" in command("show", tmp_path / "run/state", "-o", "settle=0").stdout
    json_text = command("check", tmp_path / "run/state", "--json", "-o", "settle=0").stdout
    assert "damaged" not in json_text.replace('"damaged": 0', "")


# -- Fabric loads --

@pytest.fixture(scope="module")
def loaded(runs, made, chosen, tmp_path_factory):
    base = tmp_path_factory.mktemp("loaded")
    (base / "runs").mkdir()
    for case in SHARDED:
        (base / "runs" / case).symlink_to(runs / case)
    mnt, ds = base / "mnt", base / "mnt-ds"
    for path, source in ((mnt, runs), (ds, made("fz2", "z2").parent)):
        path.mkdir()
        conftest.unshard("mount", source.resolve(), path, "-o", f"settle=0,store={base}/store.db")

    def jobs():
        for case in SHARDED:
            strategy, _, own = case.partition("-")
            # Ten columns are not cut for three ranks: FSDP2 goes on there with what tensor parallelism saved.
            s, more = "mp" if strategy == "tp" else strategy, own and ":own"
            shown = {f"dcp-{case}": f"{mnt}/dcp/{case}/run/state", f"full-{case}": f"{mnt}/full/{case}/run/state.ckpt"}
            names = chosen(shown, OFTEN)
            yield from (f"load:{s}:{name}:{shown[name]}{more}" for name in names)
            if names:
                yield f"load:{s}:native-{case}:{runs}/{case}/run/state{more}"

    try:
        conftest.generated("fabric_run.py", 3, base / "3", list(jobs()))
        conftest.generated("fabric_run.py", 0, base / "0", [
            f"load:one:{case}:{mnt}/full/{case}/run/state.ckpt{':own' if case.endswith('own') else ''}" for case in SHARDED])
        conftest.generated("fabric_run.py", 3, base / "ds3", [
            f"load:z2:world:{ds}/world-3/z2/run/state", f"load:z2u:universal:{ds}/universal/z2/run/state",
            *(f"load:z2u:from-{c}:{mnt}/universal/{c}/run/state" for c in ("fsdp", "mp"))])
        yield base
    finally:
        conftest.detach(mnt)
        conftest.detach(ds)


def held(loaded, world, name):
    return trees.tensors(loaded / str(world) / f"{name}.safetensors")


@pytest.mark.parametrize("name", conftest.or_long([f"{how}-{case}" for how in ("dcp", "full") for case in SHARDED], OFTEN))
def test_fabric_goes_on_at_three_ranks(runs, loaded, name):
    how, _, case = name.partition("-")
    live = trees.tensors(runs / case / "live.safetensors")
    if how == "dcp":
        live = {n: t for n, t in live.items() if not n.startswith("average|")}
    trees.assert_same(held(loaded, 3, name), live)
    native = held(loaded, 3, f"native-{case}.after")
    after = held(loaded, 3, f"{name}.after")
    trees.assert_same({n: after[n] for n in native}, native)
    assert json.loads((loaded / "3" / f"{name}.json").read_text()) == BESIDE


@pytest.mark.parametrize("case", SHARDED)
def test_one_device_goes_on(runs, loaded, case):
    trees.assert_same(held(loaded, 0, case), trees.tensors(runs / case / "live.safetensors"))
    assert json.loads((loaded / "0" / f"{case}.json").read_text()) == BESIDE


@pytest.mark.parametrize("how", ["world", "universal"])
def test_deepspeed_goes_on_at_three_ranks(made, loaded, how):
    trees.assert_same(held(loaded, "ds3", how), trees.tensors(made("fz2", "z2") / "live.safetensors"))
    assert json.loads((loaded / "ds3" / f"{how}.json").read_text()) == BESIDE


@pytest.mark.parametrize("case", ["fsdp", "mp"])
def test_deepspeed_goes_on_from_a_sharded_directory(runs, loaded, case):
    saved = _load_distributed_checkpoint(runs / case / "run/state")
    want = {f"{n}|fp32": saved["model"][n] for n in saved["optimizer"]["state"]}
    for name, state in saved["optimizer"]["state"].items():
        want |= {f"{name}|{key}": state[key] for key in ("exp_avg", "exp_avg_sq")}
    trees.assert_same(held(loaded, "ds3", f"from-{case}"), want)
    assert json.loads((loaded / "ds3" / f"from-{case}.json").read_text()) == BESIDE
