"""What was saved without sharding, resumed with it: a plain Trainer's and Accelerate's checkpoints, whose optimizers have
numbers in place of names, and those of FULL_STATE_DICT. Losses are those of the native resume, to the last digit, and
each state belongs to the parameter that torch itself gives it to."""

import json
import shutil
import subprocess
import sys

import pytest
import torch

import conftest
import trees
from test_resume_reads import FULL, SHARDED

sys.path[:0] = [str(conftest.MAKE), str(conftest.ROOT / "tests/names")]
import families  # noqa: E402
import models  # noqa: E402
import orders  # noqa: E402

STATES = ("exp_avg", "exp_avg_sq")
RUNS = {"plain": ("u0", "checkpoint-2"), "acc": ("u0", "state"), "full": ("u2", "checkpoint-2"), "accfull": ("u2", "state")}
ON_THREE = ("plain", "accfull")  # the others on three ranks, which load the same by the same code: --long
# (processes, name) of what saves and is resumed again in every round; the rest, --long.
AGAIN = {(1, "dcp-plain"), (1, "full-fsdp-acc")}


@pytest.fixture(scope="module")
def source(made, tmp_path_factory):
    """A directory with every run. Accelerate's states have no config.json: the run gets the model's."""
    base = tmp_path_factory.mktemp("unsharded")
    for case, (launch, _) in RUNS.items():
        shutil.copytree(made(launch, case) / "run", base / case)
    for case in ("acc", "accfull"):
        shutil.copy(base / "plain/checkpoint-2/config.json", base / case)
    return base


@pytest.fixture(scope="module")
def mounted(source, tmp_path_factory):
    mnt = conftest.mounted(tmp_path_factory.mktemp("mount"), source, "rng=keep")
    yield mnt
    conftest.detach(mnt)


@pytest.fixture(scope="module")
def resumed(source, mounted, tmp_path_factory, request):
    """(processes, name) -> how it went."""
    every = request.config.getoption("--long")
    base = tmp_path_factory.mktemp("resumed")

    def kind_of(world, name):
        kind = "accelerate" if "-acc" in name else "trainer"
        return kind if every or (world, name) in AGAIN else f"{kind} once"

    specs = {0: [], 1: [], 3: []}
    for case, (_, inside) in RUNS.items():
        native = (0, 0, "") if case in ("plain", "acc") else (1, 2, FULL)
        specs[native[0]].append([name := f"native-{case}", kind_of(native[0], name), str(source / case / inside), *native[1:]])
        for world in (1, 3) if every or case in ON_THREE else (1,):
            specs[world] += [[name := f"{view}-{case}", kind_of(world, name), str(mounted / view / case / inside), 2, state]
                             for view, state in (("dcp", SHARDED), ("full-fsdp", FULL))]
    results = {}
    for world, spec in specs.items():
        (base / "spec.json").write_text(json.dumps(spec))
        conftest.launch("unsharded.py", world, base / f"out-{world}", [base / "spec.json"])
        for name, result in json.loads((base / f"out-{world}").read_text()).items():
            results[world, name] = conftest.went_on(result, not every and (world, name) not in AGAIN)
    return results


@pytest.mark.parametrize("view", ["dcp", "full-fsdp"])
@pytest.mark.parametrize("case", RUNS)
def test_fsdp_resumes_as_natively(resumed, case, view):
    native = resumed[0 if case in ("plain", "acc") else 1, f"native-{case}"]
    got = resumed[1, f"{view}-{case}"]
    assert got["optimizer"] == [4.0] and len(got["loss"]) == 2
    assert got == native


@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in ON_THREE else pytest.mark.long) for c in RUNS])
def test_fsdp_resumes_on_three_ranks(resumed, case):
    """Sharded and whole files are loaded by different code of the frameworks'."""
    sharded, whole = (resumed[3, f"{view}-{case}"] for view in ("dcp", "full-fsdp"))
    assert sharded["optimizer"] == [4.0] and sharded == whole


@pytest.fixture(scope="module")
def by_deepspeed(source, mounted, tmp_path_factory):
    """OUT/native: one process, without DeepSpeed; OUT/z{1,2,3}: from universal."""
    out = tmp_path_factory.mktemp("deepspeed")
    (out / "spec.json").write_text(json.dumps([["native", "trainer", "even", str(source / "plain/checkpoint-2")]]))
    conftest.launch("plain_resume.py", 0, out, [out / "spec.json"])
    conftest.launch("deepspeed_trainer.py", 1, out,
                    [f"resume:z{stage}-fp32:even:{mounted}/universal/plain/checkpoint-2:z{stage}:universal{':mend' * (stage == 3)}"
                     for stage in (1, 2, 3)])
    return out


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_resumes_from_a_plain_trainer(by_deepspeed, stage):
    """The names are those that torch's named_parameters() had when one process loaded optimizer.pt itself. The states are the
    same bits; ZeRO adds gradients up in another order than one process does."""
    native = trees.tensors(by_deepspeed / "native.safetensors")
    want = {f"{name}|{state}": native[f"{name}|{state}"] for name in native if f"{name}|step" in native for state in STATES}
    want |= {f"{name}|fp32": native[name] for name in native if f"{name}|step" in native}
    trees.assert_same(trees.tensors(by_deepspeed / f"z{stage}/states.safetensors"), want)
    there = json.loads((by_deepspeed / "native.json").read_text())
    here = json.loads((by_deepspeed / f"z{stage}/losses.json").read_text())
    assert [here[str(step)] for step in (3, 4)] == pytest.approx(there["loss"][-2:], rel=1e-5)
    first, again = json.loads((by_deepspeed / f"z{stage}/again.json").read_text())
    assert first == again


def saved(model, optimizer, folder, **more):
    """A checkpoint as a Trainer saves it, of a model that is in memory."""
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    torch.save({"cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    torch.save({"last_epoch": 1, "_step_count": 2, "base_lrs": [1e-2] * len(optimizer.param_groups),
                "_last_lr": [1e-2] * len(optimizer.param_groups)}, folder / "scheduler.pt")
    (folder / "trainer_state.json").write_text(json.dumps(
        {"global_step": 1, "train_batch_size": 2, "logging_steps": 1, "save_steps": 1, "eval_steps": 1, "log_history": [],
         "epoch": 1.0, "max_steps": 2, "num_train_epochs": 1, **more}))


def trainers_optimizer(model, folder):
    """The optimizer that a Trainer makes for the model, with states of numbers that no other parameter has."""
    from transformers import Trainer, TrainingArguments

    made = Trainer(model=model, args=TrainingArguments(folder, use_cpu=True, report_to="none", weight_decay=0.1)).create_optimizer()
    states = {}
    for i, (name, p) in enumerate(model.named_parameters()):
        if not p.requires_grad:
            continue
        made.state[p] = {"step": torch.tensor(1.0), **{s: torch.full_like(p, i + 0.5 * k, dtype=torch.float32)
                                                      for k, s in enumerate(STATES)}}
        states[name] = float(i)
    return made, states


def tiny_models():
    known = {f[0]: f for f in families.FAMILIES}
    for name in ("llama", "qwen3", "gemma2", "gpt_oss", "mixtral", "qwen3_moe", "deepseek_v3", "llava", "jamba"):
        yield name, known[name][1], known[name][2], known[name][3]
    for name, classes, config, arguments in orders.MORE:
        for cls in classes:
            yield name, cls, config, arguments


def test_every_familys_optimizer_gets_the_names_of_its_parameters(tmp_path, mount):
    """Each parameter's states hold its own number. What is shown has the names of the model in memory, where from_pretrained
    or a Trainer put the weights: experts of one layer as one tensor."""
    import transformers

    want = {}
    for name, cls, config, arguments in tiny_models():
        torch.manual_seed(0)
        model = getattr(transformers, cls)(config(**arguments))
        optimizer, states = trainers_optimizer(model, tmp_path / "unused")
        saved(model, optimizer, tmp_path / "runs" / cls / "checkpoint-1")
        want[cls] = (states, {n: t.clone() for n, t in model.state_dict().items()})
    shown = mount(tmp_path / "runs", "store=none")
    failed = {}
    for cls, (states, weights) in want.items():
        folder = shown / "full-fsdp" / cls / "checkpoint-1"
        try:
            got = torch.load(folder / "optimizer.bin", weights_only=True)
            assert {n: float(s["exp_avg"].flatten()[0]) for n, s in got["state"].items()} == states
            assert all(float(s["exp_avg"].min()) == float(s["exp_avg"].max()) for s in got["state"].values())
            assert all(s["exp_avg"].shape == weights[n].shape for n, s in got["state"].items())
            trees.assert_same(torch.load(folder / "pytorch_model_fsdp.bin", weights_only=True), weights)
        except (AssertionError, OSError) as error:
            failed[cls] = f"{type(error).__name__}: {str(error)[:300]}"
    assert not failed


@pytest.mark.long
def test_the_table_is_that_of_the_installed_transformers():
    subprocess.run([sys.executable, conftest.ROOT / "tests/names/orders.py", "--check"], check=True)


def plain(tmp_path, change=lambda model: None, optimizer=None):
    """A checkpoint of a small llama."""
    model = models.small_llama(torch.float32)
    change(model)
    made, states = trainers_optimizer(model, tmp_path / "unused")
    saved(model, optimizer(model) if optimizer else made, tmp_path / "runs/checkpoint-1")
    return tmp_path / "runs/checkpoint-1", states


def line_of(command, checkpoint, view):
    lines = command("show", checkpoint, "-o", "settle=0,store=none").stdout.splitlines()
    return next(line for line in lines if line.strip().startswith(f"{view} "))


def test_what_does_not_follow_is_refused(command, tmp_path):
    """A frozen parameter, another number of groups, a model of an unknown type, a state of another shape: `full` stays."""
    def frozen(model):
        model.model.layers[0].self_attn.o_proj.weight.requires_grad_(False)

    def three(model):
        ps = list(model.parameters())
        return torch.optim.AdamW([{"params": ps[:2]}, {"params": ps[2:4]}, {"params": ps[4:]}])

    def unlike(model):
        made = torch.optim.AdamW(model.parameters())
        for p in model.parameters():
            made.state[p] = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(3, 5), "exp_avg_sq": torch.zeros_like(p)}
        return made

    def unknown(checkpoint):
        config = json.loads((checkpoint / "config.json").read_text())
        (checkpoint / "config.json").write_text(json.dumps(config | {"model_type": "mine"}))

    for name, change, optimizer, after, words in (
            ("frozen", frozen, None, None, "param group 0 has 7 parameters"),
            ("three", lambda m: None, three, None, "3 param groups"),
            ("unlike", lambda m: None, unlike, None, "[3, 5]"),
            ("unknown", lambda m: None, None, unknown, "model type mine")):
        checkpoint, _ = plain(tmp_path / name, change, optimizer)
        if after:
            after(checkpoint)
        for view in ("dcp", "full-fsdp", "universal"):
            line = line_of(command, checkpoint, view)
            assert "not available" in line and words in line, line
        assert "resume_from_checkpoint" in line_of(command, checkpoint, "full")
        done = command("check", checkpoint, "-o", "settle=0,store=none")
        assert "0 problems, 0 notes" in done.stdout


def test_names_that_torch_recorded_are_used(mount, tmp_path):
    """AdamW(model.named_parameters()) lists a name beside each number, in any order."""
    model = models.small_llama(torch.float32)
    pairs = list(model.named_parameters())[::-1]
    optimizer = torch.optim.AdamW(pairs)
    for i, (_, p) in enumerate(pairs):
        optimizer.state[p] = {"step": torch.tensor(1.0), "exp_avg": torch.full_like(p, i), "exp_avg_sq": torch.full_like(p, i)}
    saved(model, optimizer, tmp_path / "runs/checkpoint-1")
    (tmp_path / "runs/checkpoint-1/config.json").unlink()
    got = torch.load(mount(tmp_path / "runs", "store=none") / "full-fsdp/checkpoint-1/optimizer.bin", weights_only=True)
    assert {n: float(s["exp_avg"].flatten()[0]) for n, s in got["state"].items()} == {n: i for i, (n, _) in enumerate(pairs)}
    assert got["param_groups"][0]["params"] == [n for n, _ in pairs]


def test_a_damaged_optimizer_is_reported(command, tmp_path):
    """It was passed through unread before."""
    checkpoint, _ = plain(tmp_path)
    file = checkpoint / "optimizer.pt"
    file.write_bytes(file.read_bytes()[:-700])
    done = command("check", checkpoint, "--json", "-o", "settle=0,store=none", check=False)
    assert done.returncode == 1 and "optimizer.pt" in done.stdout


def test_an_optimizer_of_another_kind_is_passed_through(command, mount, tmp_path):
    """Objects of classes that are no tensors: unshard reads nothing of the file, and `full` shows it unchanged."""
    checkpoint, _ = plain(tmp_path)
    torch.save({"state": {0: {"exp_avg": slice(3)}}, "param_groups": [{"params": [0], "lr": 0.1}]}, checkpoint / "optimizer.pt")
    assert "0 problems, 0 notes" in command("check", checkpoint, "-o", "settle=0,store=none").stdout
    shown = mount(tmp_path / "runs", "store=none") / "full/checkpoint-1/optimizer.pt"
    assert shown.read_bytes() == (checkpoint / "optimizer.pt").read_bytes()
