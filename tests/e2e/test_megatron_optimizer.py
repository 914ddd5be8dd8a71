"""The optimizer of Megatron-Core's torch_dist directories, and what resumes from it. make/torch_dist_optimizer.py trains
and saves with megatron-core (make/torch_dist_model_space.py with an older one); what the ranks had in memory is converted
by mbridge. make/torch_dist_resume.py is DeepSpeed, make/torch_dist_trainer.py a Trainer with FSDP or DeepSpeed."""

import dataclasses
import io
import json
import pickle
import shutil

import pytest
import torch
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Trainer, TrainerCallback,
                          TrainerControl, TrainerState, TrainingArguments, get_scheduler)

import conftest
import trees
from launches import (MEGATRON, MEGATRON_FSDP, MEGATRON_FSDP_OF_4, MEGATRON_OPTIMIZERS, MEGATRON_VISION,
                      MORE_MEGATRON_OPTIMIZERS, NEMO)

STEP = "iter_0000002"
SHARDS = {"ne4": "model--step=2/weights"}  # a launch -> where it has them, if that is another directory
STATES = ("exp_avg", "exp_avg_sq")
MAX_LR = 1e-2  # of make/torch_dist_optimizer.py
ALL = MEGATRON_OPTIMIZERS + MEGATRON_FSDP + [
    pytest.param(*c, marks=pytest.mark.long) for c in MORE_MEGATRON_OPTIMIZERS + MEGATRON_FSDP_OF_4 + NEMO]


def case_of(param):
    return (getattr(param, "values", param))[1]


BUCKETS = [c for c in ALL if "buckets" in case_of(c)]
# What resumes: the stage of ZeRO, the launch, the case.
RESUMED = {"tied-z2": (2, "mo2", "llama-dp2-bf16"), "moe-z3": (3, "mo2", "qwen3_moe-ep2-bf16"),
           "space-z2": (2, "ms4", "llama-tp2-space"), "fsdp-z2": (2, "mf2", "qwen3_moe-ep2-fsdp")}
MORE_RESUMED = {"llama-z1": (1, "mo2", "llama-tp2"), "qwen2-z3": (3, "mo2", "qwen2-tp2-bf16"),
                "moe-z2": (2, "mo2", "qwen3_moe-ep2-bf16"), "one-by-one-z3": (3, "mo2", "qwen3_moe-one-by-one-bf16"),
                "gpt_oss-z1": (1, "mo2", "gpt_oss-ep2-bf16"), "space-moe-z3": (3, "ms4", "qwen3_moe-ep2-space-bf16"),
                "space-pp-z1": (1, "ms4", "qwen2-pp2-space-bf16"), "nemo-z2": (2, "ne4", "llama-tp2-nemo-bf16"),
                "nemo-moe-z3": (3, "ne4", "qwen3_moe-ep2-nemo")}


def shown(made, mount, launch, case, options=""):
    """The case's folder, and what gives the directory of a view."""
    folder = made(launch, case)
    mounted = mount(folder / "run", f"model={folder}/hf{options}")
    return folder, lambda view: mounted / view / SHARDS.get(launch, STEP)


def model_of(folder):
    """transformers itself puts experts together, as a model has them in memory."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, experts_implementation="eager")


def live(folder, state):
    return {n: p.detach() for n, p in model_of(folder / "live" / state).named_parameters()}


def saved(path):
    return torch.load(path, weights_only=True)


def values_of(folder):
    """Published name -> values of the param group that the parameter was in."""
    return json.loads((folder / "live/groups.json").read_text())


def groups_of(folder):
    """Names in memory by the param groups of the run, with and without weight decay. What is no published name is of
    experts, which have it."""
    model, values = model_of(folder / "hf"), values_of(folder)
    names = [n for n, _ in model.named_parameters()]
    without = [n for n in names if n in values and not values[n]["weight_decay"]]
    decay = Trainer.get_decay_parameter_names(None, model)
    if not folder.name.endswith("older"):  # a Trainer deals them out in the same way, but for sinks
        assert [n for n in without if not n.endswith(".sinks")] == [n for n in names if n not in decay]
    return [[n for n in names if n not in without], without]


@pytest.mark.parametrize("launch,case", ALL)
def test_weights_fp32_are_the_optimizers_own_copies(made, mount, launch, case):
    folder, view = shown(made, mount, launch, case)
    trees.assert_same(trees.weights(view("weights-fp32")), trees.weights(folder / "live/param"))


@pytest.mark.parametrize("launch,case", ALL)
def test_full_has_what_the_run_had_in_memory(made, mount, launch, case):
    folder, view = shown(made, mount, launch, case)
    trees.assert_same(trees.weights(view("full")), live(folder, "param"))
    optimizer = saved(view("full") / "optimizer.pt")
    names = [n for group in groups_of(folder) for n in group]
    want = {state: live(folder, state) for state in STATES}
    assert list(optimizer["state"]) == list(range(len(names)))
    for number, name in enumerate(names):
        trees.assert_same(optimizer["state"][number], {"step": torch.tensor(2.0)} | {s: want[s][name] for s in STATES})


@pytest.mark.parametrize("launch,case", ALL)
def test_param_groups_have_the_values_of_each_parameter(made, mount, launch, case):
    folder, view = shown(made, mount, launch, case)
    values = values_of(folder)
    groups = saved(view("full-fsdp") / "optimizer.bin")["param_groups"]
    assert [g["params"] for g in groups] == groups_of(folder)
    for group in groups:
        of_group = [v for n, v in values.items() if n in group["params"]]
        has = {k: list(group[k]) if k == "betas" else group[k] for k in ("lr", "betas", "eps", "weight_decay")}
        assert of_group and all(v == has for v in of_group)


@pytest.mark.parametrize("launch,case", ALL)
def test_full_fsdp_has_the_same_by_name(made, mount, launch, case):
    folder, view = shown(made, mount, launch, case)
    want = live(folder, "param")
    trees.assert_same(saved(view("full-fsdp") / "pytorch_model_fsdp.bin"), want | tied(folder, want))
    optimizer = saved(view("full-fsdp") / "optimizer.bin")
    for state in STATES:
        trees.assert_same({n: s[state] for n, s in optimizer["state"].items()}, live(folder, state))


def tied(folder, tensors):
    """The second name of tied embeddings."""
    is_tied = AutoConfig.from_pretrained(folder / "hf").tie_word_embeddings
    return {"lm_head.weight": tensors["model.embed_tokens.weight"]} if is_tied else {}


def stepped(model, optimizer):
    for p in model.parameters():  # how torch adds depends on where a tensor begins in memory, in a file's pages too
        p.data = p.data.clone()
    ids = torch.arange(9)[None] % 17
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    return {n: p.detach() for n, p in model.named_parameters()}


@pytest.mark.parametrize("launch,case", ALL)
def test_torchs_optimizer_goes_on_from_full_as_from_the_live_state(made, mount, launch, case):
    folder, view = shown(made, mount, launch, case)
    got, want = model_of(view("full")), model_of(folder / "live/param")
    optimizers = []
    for model in (got, want):
        named = dict(model.named_parameters())
        optimizers.append(torch.optim.AdamW([{"params": [named[n] for n in names]} for names in groups_of(folder)]))
    optimizers[0].load_state_dict(saved(view("full") / "optimizer.pt"))
    values, states = values_of(folder), {s: live(folder, s) for s in STATES}
    for group, name in zip(optimizers[1].param_groups, ("model.embed_tokens.weight", "model.norm.weight")):
        group.update(values[name])
    for name, p in want.named_parameters():
        optimizers[1].state[p] = {"step": torch.tensor(2.0)} | {s: t[name].clone() for s, t in states.items()}
    trees.assert_same(stepped(got, optimizers[0]), stepped(want, optimizers[1]))


def test_torch_refuses_groups_of_a_trainer_that_are_not_megatrons(made, mount):
    """The Trainer of transformers decays the sinks of gpt_oss."""
    folder, view = shown(made, mount, "mo2", "gpt_oss-ep2-bf16")
    model = model_of(view("full"))
    decay = Trainer.get_decay_parameter_names(None, model)
    groups = [[p for n, p in model.named_parameters() if (n in decay) == with_decay] for with_decay in (True, False)]
    with pytest.raises(ValueError, match="doesn't match the size"):
        torch.optim.AdamW([{"params": g} for g in groups]).load_state_dict(saved(view("full") / "optimizer.pt"))
    assert "refuses optimizer.pt" in (view("full") / ".unshard/problems.txt").read_text()


LAST = 4  # the steps of a Trainer that resumes


class Seen(TrainerCallback):
    """What a Trainer holds when it has resumed."""

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        self.step, self.held = state.global_step, held(model, getattr(optimizer, "optimizer", optimizer))


def held(model, optimizer):
    """"STATE|PARAMETER" -> tensor"""
    out = {f"param|{n}": p.detach().clone() for n, p in model.named_parameters()}
    for name, p in model.named_parameters():
        out |= {f"{state}|{name}": t.clone() for state, t in optimizer.state[p].items()}
    return out


def trained(folder, checkpoint, where, rows=2):
    """(what it resumed with, what it ended with, its log) of a Trainer; all but its schedule is the checkpoint's."""
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder / "hf"), dtype=torch.float32,
                                             experts_implementation="eager")
    data = [{"input_ids": torch.arange(i, i + 9) % 17, "labels": torch.arange(i, i + 9) % 17} for i in range(2 * LAST)]
    arguments = TrainingArguments(where, use_cpu=True, max_steps=LAST, per_device_train_batch_size=rows, seed=7,
                                  learning_rate=1.0, weight_decay=0.0, adam_epsilon=0.1, lr_scheduler_type="cosine",
                                  warmup_steps=1, report_to="none", disable_tqdm=True)
    seen = Seen()
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[seen])
    trainer.train(resume_from_checkpoint=checkpoint)
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    log = [{k: e[k] for k in ("step", "loss", "grad_norm", "learning_rate")} for e in trainer.state.log_history
           if "loss" in e]
    return seen, held(model, optimizer), log


def of_torch(folder, where):
    """The checkpoint that a Trainer and torch make of what the run had in memory."""
    where.mkdir()
    model, values = model_of(folder / "live/param"), values_of(folder)
    named = dict(model.named_parameters())
    save_file({n: p.detach() for n, p in named.items()}, where / "model.safetensors", metadata={"format": "pt"})
    optimizer = torch.optim.AdamW([{"params": [named[n] for n in names], "lr": MAX_LR} for names in groups_of(folder)])
    schedule = get_scheduler("cosine", optimizer, num_warmup_steps=1, num_training_steps=LAST)
    for _ in range(2):
        optimizer.step()
        schedule.step()
    for group, name in zip(optimizer.param_groups, ("model.embed_tokens.weight", "model.norm.weight")):
        group.update(values[name])
    states = {s: live(folder, s) for s in STATES}
    for name, p in named.items():
        optimizer.state[p] = {"step": torch.tensor(2.0)} | {s: t[name] for s, t in states.items()}
    torch.save(optimizer.state_dict(), where / "optimizer.pt")
    rates = {"_last_lr": [group["lr"] for group in optimizer.param_groups]}
    torch.save(schedule.state_dict() | rates, where / "scheduler.pt")
    TrainerState(global_step=2, max_steps=LAST, logging_steps=1, save_steps=1, eval_steps=500,
                 train_batch_size=2, stateful_callbacks=[TrainerControl()]).save_to_json(where / "trainer_state.json")
    return where


@pytest.mark.parametrize("launch,case", [("mo2", "llama-dp2-bf16"), ("mo2", "qwen3_moe-ep2-bf16"),
                                         ("ms4", "qwen3_moe-ep2-space-bf16"), ("mo2", "qwen2-pp2-buckets-bf16"),
                                         ("mf2", "llama-dp2-fsdp"),
                                         *(pytest.param(*c, marks=pytest.mark.long) for c in NEMO)])
def test_a_trainer_resumes_from_full(made, mount, tmp_path, launch, case):
    folder, view = shown(made, mount, launch, case, ",fact=logging_steps=1,fact=save_steps=1")
    seen, end, log = trained(folder, view("full"), tmp_path / "out")
    want = {f"{s}|{n}": t for s in ("param", *STATES) for n, t in live(folder, s).items()}
    assert seen.step == 2
    trees.assert_same(seen.held, want | {f"step|{n}": torch.tensor(2.0) for n in live(folder, "param")})

    _, want_end, want_log = trained(folder, of_torch(folder, tmp_path / "torch"), tmp_path / "torch-out")
    assert [e["step"] for e in log] == [3, 4] and log == want_log
    trees.assert_same(end, want_end)

    # A Trainer saves experts under other names than it loads them (test_renamed.py).
    again, end_again, log_again = trained(folder, mount(tmp_path / "out") / "full/checkpoint-3", tmp_path / "again")
    assert again.step == 3 and log_again[-1] == log[-1]
    trees.assert_same(end_again, end)


# A Trainer with FSDP on two ranks, or with DeepSpeed on one: how (make/torch_dist_trainer.py), the launch, the case. With
# DeepSpeed on CPU accelerate counts one process, however many there are: each takes the same rows, also without a resume.
# "two" is on two ranks, and trains as one process does with half the rows.
TRAINERS = {"fsdp": ("fsdp", "mo2", "llama-dp2-bf16"), "z2": ("2", "mo2", "llama-dp2-bf16")}
MORE_TRAINERS = {"moe-fsdp": ("fsdp", "mo2", "qwen3_moe-ep2-bf16"), "moe-z1": ("1", "mo2", "qwen3_moe-ep2-bf16"),
                 "dtensor-fsdp": ("fsdp", "mf2", "llama-dp2-fsdp"), "z2-two": ("2", "mo2", "llama-dp2-bf16"),
                 "nemo-fsdp": ("fsdp", "ne4", "llama-tp2-nemo-bf16"), "nemo-z2": ("2", "ne4", "llama-tp2-nemo-bf16"),
                 "nemo-moe-z1": ("1", "ne4", "qwen3_moe-ep2-nemo")}


def launched_as(load):
    name, how, *_ = load.split(":")
    return "fsdp" if how == "fsdp" else "two" if name.endswith("-two") else "one"


@pytest.fixture(scope="module")
def trainers(made, request, tmp_path_factory):
    base, mounts, loads = tmp_path_factory.mktemp("trainers"), [], []
    chosen = TRAINERS | (MORE_TRAINERS if request.config.getoption("--long") else {})
    for name, (how, launch, case) in chosen.items():
        folder = made(launch, case)
        options = f"model={folder}/hf,fact=logging_steps=1,fact=save_steps=1"
        mounts.append(conftest.mounted(tmp_path_factory.mktemp(name), folder / "run", options))
        view = "full-fsdp" if how == "fsdp" else "universal"
        loads.append(f"{name}:{how}:{folder}:{mounts[-1]}/{view}/{SHARDS.get(launch, STEP)}")
    for ranks, chosen in ((2, "fsdp"), (1, "one"), (2, "two")):
        of_launch = [one for one in loads if launched_as(one) == chosen]
        if of_launch:
            conftest.launch("torch_dist_trainer.py", ranks, base, of_launch)
    yield base
    for mnt in mounts:
        conftest.detach(mnt)


@pytest.mark.parametrize("name", [*TRAINERS, *(pytest.param(n, marks=pytest.mark.long) for n in MORE_TRAINERS)])
def test_a_trainer_with_fsdp_or_deepspeed_resumes_at_the_step_and_rate(made, trainers, tmp_path, name):
    """As a Trainer without either does from what torch saves of the run's memory."""
    folder = made(*(TRAINERS | MORE_TRAINERS)[name][1:])
    told = json.loads((trainers / name / "told.json").read_text())
    rows = 1 if name.endswith("-two") else 2
    want = trained(folder, of_torch(folder, tmp_path / "torch"), tmp_path / "torch-out", rows)
    saved_rates = saved(tmp_path / "torch/scheduler.pt")["_last_lr"]
    assert told["step"] == 2 and told["rates"] == saved_rates and saved_rates != [MAX_LR] * 2
    at_begin = trees.tensors(trainers / name / "held.safetensors")
    for state, file in (("fp32", "param"), ("exp_avg", "exp_avg"), ("exp_avg_sq", "exp_avg_sq")):
        got = {k.removesuffix("|" + state): t for k, t in at_begin.items() if k.endswith("|" + state)}
        trees.assert_same(got, live(folder, file))
    log = [e for e in told["log"] if "loss" in e]
    assert [(e["step"], e["learning_rate"]) for e in log] == [(e["step"], e["learning_rate"]) for e in want[2]]
    for key in ("loss", "grad_norm"):
        assert [e[key] for e in log] == pytest.approx([e[key] for e in want[2]], rel=1e-5)
    end = trees.tensors(trainers / name / "end.safetensors")
    for key, tensor in want[1].items():
        state, name_of = key.split("|")
        if state != "step":
            got = end[f"{name_of}|{'fp32' if state == 'param' else state}"]
            torch.testing.assert_close(got, tensor, rtol=1e-4, atol=1e-6, msg=lambda m: f"{key}: {m}")
            assert not torch.equal(got, at_begin[f"{name_of}|{'fp32' if state == 'param' else state}"]), key


def test_what_is_made_for_a_trainer_is_said(made, mount, command, tmp_path):
    folder = made("mo2", "llama-tp2")
    full = mount(folder / "run", f"model={folder}/hf") / "full" / STEP
    assert trees.listing(full) == ["common.pt", "config.json", "generation_config.json", "metadata.json",
                                   "model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"]
    problems = (full / ".unshard/problems.txt").read_text()
    assert "scheduler.pt is made of max_lr and lr" in problems and "a Trainer that resumes uses" in problems
    files = json.loads((full / ".unshard/provenance.json").read_text())["files"]
    assert "Megatron-Core's param groups" in files["scheduler.pt"]["origin"]
    assert "synthesised" in files["trainer_state.json"]["origin"]
    run = shutil.copytree(folder / "run", tmp_path / "run")
    shutil.copy(folder / "hf/config.json", run)
    said = command("show", run / STEP).stdout
    assert "trainer.train(resume_from_checkpoint=" in said and "scheduler.pt is made of max_lr and lr" in said


@pytest.mark.parametrize("launch,case", ALL)
def test_universal_has_what_the_run_had_in_memory(made, mount, launch, case):
    folder, view = shown(made, mount, launch, case)
    zero = view("universal") / "global_step2/zero"
    for file, state in (("fp32", "param"), ("exp_avg", "exp_avg"), ("exp_avg_sq", "exp_avg_sq")):
        got = {p.name: saved(p / f"{file}.pt")["param"] for p in zero.iterdir() if p.is_dir()}
        want = live(folder, state)
        trees.assert_same(got, want | tied(folder, want))
    assert torch.equal(saved(zero / "model.norm.weight/step.pt"), torch.tensor(2.0))


@pytest.mark.parametrize("launch,case", [c for c in MEGATRON if "-mtp" in c[1]])
def test_layers_for_multi_token_prediction_are_not_resumed(made, mount, launch, case):
    folder = made(launch, case)
    mounted = mount(folder / "run", f"model={folder}/hf")
    for view in ("full", "full-fsdp"):
        assert "layers for multi-token prediction (mtp.layers)" in (mounted / view / STEP / "UNSHARD_PROBLEM.txt").read_text()


@pytest.mark.parametrize("launch,case", [c for c in MEGATRON + MEGATRON_VISION if "-mtp" not in c[1]])
def test_parameters_have_the_order_of_the_model_in_memory(made, mount, launch, case):
    """An optimizer of torch's numbers them in this order."""
    folder = made(launch, case)
    config = AutoConfig.from_pretrained(folder / "hf")
    with torch.device("meta"):
        model = (AutoModelForImageTextToText if "_vl" in case else AutoModelForCausalLM).from_config(config)
    want = [n for n, _ in model.named_parameters()]
    m = mount(folder / "run", f"model={folder}/hf")
    got = saved(m / "full-fsdp" / STEP / "pytorch_model_fsdp.bin")
    assert [n for n in got if n in want] == want
    assert {n: t.shape for n, t in got.items()} == {n: t.shape for n, t in model.state_dict().items()}


@pytest.fixture(scope="module")
def resumed(made, request, tmp_path_factory):
    """NAME/{loaded,stepped,wanted}.safetensors of each that DeepSpeed resumed."""
    base, mounts, loads = tmp_path_factory.mktemp("resumed"), [], []
    chosen = RESUMED | (MORE_RESUMED if request.config.getoption("--long") else {})
    for name, (stage, launch, case) in chosen.items():
        folder = made(launch, case)
        mounts.append(conftest.mounted(tmp_path_factory.mktemp(name), folder / "run", f"model={folder}/hf"))
        loads.append(f"{name}:{stage}:{folder}:{mounts[-1]}/universal/{SHARDS.get(launch, STEP)}")
    conftest.launch("torch_dist_resume.py", 2, base, loads)
    yield base
    for mnt in mounts:
        conftest.detach(mnt)


@pytest.mark.parametrize("name", [*RESUMED, *(pytest.param(n, marks=pytest.mark.long) for n in MORE_RESUMED)])
def test_deepspeed_resumes_from_universal(made, resumed, name):
    folder = made(*(RESUMED | MORE_RESUMED)[name][1:])
    loaded = trees.tensors(resumed / name / "loaded.safetensors")
    for held, state in (("fp32", "param"), ("exp_avg", "exp_avg"), ("exp_avg_sq", "exp_avg_sq")):
        got = {k.removesuffix("|" + held): t for k, t in loaded.items() if k.endswith("|" + held)}
        trees.assert_same(got, live(folder, state))
    want = trees.tensors(resumed / name / "wanted.safetensors")
    got = trees.tensors(resumed / name / "stepped.safetensors")
    assert sorted(got) == sorted(want)
    for key, t in want.items():
        torch.testing.assert_close(got[key], t, rtol=1e-5, atol=1e-7, msg=lambda m: f"{key}: {m}")
        assert not torch.equal(loaded[key], got[key]), key


VIEWS_OF_OPTIMIZER = ("full", "full-fsdp", "universal", "weights-fp32")


def changed(folder, where, change):
    """A copy of the run; `change` gets the content of each tensor's item by (key, offset), and returns what is written
    in its place, or None."""
    run = shutil.copytree(folder / "run", where)
    metadata = pickle.loads((run / STEP / ".metadata").read_bytes())
    for index, info in metadata.storage_data.items():
        if index.offset is None:
            continue
        with open(run / STEP / info.relative_path, "r+b") as f:
            f.seek(info.offset)
            tensor = torch.load(io.BytesIO(f.read(info.length)), weights_only=True)
            new = change(index.fqn, tuple(index.offset), tensor)
            if new is None:
                continue
            f.seek(info.offset)
            f.write(torch_bytes(new, info.length))
    return run


def torch_bytes(tensor, length):
    out = io.BytesIO()
    torch.save(tensor, out)
    assert len(out.getvalue()) == length
    return out.getvalue()


@pytest.mark.parametrize("launch,case", BUCKETS)
def test_the_proof_of_names_is_shown_and_read_once(made, mount, tmp_path, launch, case):
    folder = made(launch, case)
    options = f"model={folder}/hf,store={tmp_path}/store"
    for again in (False, True):
        mounted = mount(folder / "run", options)
        notes = json.loads((mounted / "universal" / STEP / ".unshard/provenance.json").read_text())["notes"]
        assert any("were proven" in n and "equal the weights bit for bit" in n for n in notes)
        read = json.loads((mounted / ".unshard/stats.json").read_text())["source_read_bytes"]
        masters = sum(t.nbytes for t in trees.weights(folder / "live/param").values())
        assert (read < masters) == again


def test_a_bucket_whose_copy_is_not_the_weight_is_refused_by_name(made, mount, tmp_path):
    """One element of the second pipeline rank's copy of tied embeddings, which is the second of equal ones."""
    folder, hit = made("mo2", "qwen2-pp2-buckets-bf16"), []

    def change(key, offset, tensor):
        if "dp_group_idx_1" in key and key.endswith("bucket_idx_0.param") and offset == (0,):
            hit.append(key)
            tensor[7] += 1
            return tensor

    mounted = mount(changed(folder, tmp_path / "run", change), f"model={folder}/hf")
    assert len(hit) == 1
    for view in VIEWS_OF_OPTIMIZER:
        said = told(mounted, view)
        assert "the fp32 copy" in said and "of embedding.word_embeddings.weight, rounded" in said
        assert "at element 7" in said
    assert (mounted / "weights" / STEP / "model.safetensors").exists()


@pytest.mark.parametrize("view", ["full", "weights-fp32"])
def test_parameters_that_are_equal_in_all_layers_prove_nothing_about_each_other(made, mount, tmp_path, view):
    folder = made("mo2", "qwen3_moe-ep2-buckets")

    def change(key, offset, tensor):
        """Norms of queries and of keys as they begin."""
        is_bucket = key.endswith("bucket_idx_0.param") and tensor.numel() == 6
        return torch.ones_like(tensor) if is_bucket or "k_layernorm" in key or "q_layernorm" in key else None

    mounted = mount(changed(folder, tmp_path / "run", change), f"model={folder}/hf")
    said = told(mounted, view)
    assert "q_layernorm.weight" in said and "k_layernorm.weight" in said and "have equal weights everywhere" in said


def renamed(metadata, old, new):
    """In the metadata, which alone has names."""
    described = {k.replace(old, new): v for k, v in metadata.state_dict_metadata.items()}
    stored = {dataclasses.replace(k, fqn=k.fqn.replace(old, new)): v for k, v in metadata.storage_data.items()}
    return dataclasses.replace(metadata, state_dict_metadata=described, storage_data=stored)


@pytest.mark.parametrize("old,new,said", [
    ("mlp.linear_fc2.weight", "mlp.another.weight", "does not know where decoder.layers.mlp.another.weight is"),
    ("self_attention.linear_proj.weight", "mlp.router.weight", "would end within a chunk"),
])
def test_what_the_rules_do_not_place_is_refused_by_name(made, mount, command, tmp_path, old, new, said):
    folder = made("mo2", "qwen2-pp2-buckets-bf16")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    metadata = renamed(pickle.loads((run / STEP / ".metadata").read_bytes()), old, new)
    (run / STEP / ".metadata").write_bytes(pickle.dumps(metadata))
    assert said in command("show", run / STEP).stdout
    mounted = mount(run)
    assert not (mounted / "full" / STEP).exists()


def test_an_optimizer_that_one_rank_gathered_is_refused_by_the_objects_name(made, mount, command, tmp_path):
    run = shutil.copytree(made("mo2", "llama-tp2") / "run", tmp_path / "run")
    key = "optimizer.distributed.dp_group_idx_0.param_state/shard_0_1"
    metadata = renamed(pickle.loads((run / STEP / ".metadata").read_bytes()),
                       "decoder.layers.mlp.linear_fc1._extra_state/shard_0_2", key)
    assert key in metadata.state_dict_metadata
    (run / STEP / ".metadata").write_bytes(pickle.dumps(metadata))
    gathered_is_refused(mount(run), command("check", run, check=False).stdout)


@pytest.mark.long
def test_an_optimizer_that_megatron_gathered_is_refused(made, mount, command):
    run = made("mo15", "015-llama-gathered-bf16") / "run"
    gathered_is_refused(mount(run), command("check", run, check=False).stdout)


def gathered_is_refused(mounted, said):
    assert "dp_zero_gather_scatter" in said and "optimizer.distributed.dp_group_idx_0.param_state/shard_0_1" in said
    for view in ("full", "full-fsdp", "universal", "torch_dist"):
        assert not (mounted / view / STEP).exists()
    assert (mounted / "weights" / STEP / "model.safetensors").exists() and (mounted / "dcp" / STEP / ".metadata").exists()


def told(mounted, view="full"):
    shown = mounted / view / STEP
    assert trees.listing(shown) == ["UNSHARD_PROBLEM.txt"]
    return (shown / "UNSHARD_PROBLEM.txt").read_text()


@pytest.mark.parametrize("view", ["full", "full-fsdp", "universal"])
def test_without_a_config_and_of_another_family_nothing_is_resumed(made, mount, command, tmp_path, view):
    run = made("mo2", "llama-tp2") / "run"
    assert "config.json is missing; mount with -o model=DIR" in told(mount(run), view)
    assert "config.json is missing" in command("show", run / STEP).stdout and " ok" in command("ls", run).stdout
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox"}')
    said = told(mount(run, f"model={tmp_path}"), view)
    assert "does not know the names that Hugging Face publishes for model type gpt_neox" in said


def test_a_config_of_another_model_is_refused_by_the_tensors_name(made, mount, tmp_path):
    folder = made("mo2", "llama-tp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"intermediate_size": 20}))
    for view in ("full", "universal"):
        assert "decoder.layers.mlp.linear_fc1.weight has the shape" in told(mount(run), view)


def test_a_state_that_is_not_made_of_its_parameter_is_refused_by_name(made, mount, tmp_path):
    """Of the form fully_sharded_model_space: the shape of the parameter is divided by another number of ranks."""
    folder = made("ms4", "llama-tp2-space")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    metadata = pickle.loads((run / STEP / ".metadata").read_bytes())
    state = "optimizer.state.exp_avg.decoder.layers.self_attention.linear_proj.weight"
    described = metadata.state_dict_metadata[state]
    described.size = torch.Size([described.size[0], 2, *described.size[2:]])
    (run / STEP / ".metadata").write_bytes(pickle.dumps(metadata))
    mounted = mount(run, f"model={folder}/hf")
    for view in ("full", "full-fsdp", "universal"):
        said = told(mounted, view)
        assert f"'{state}' has the shape [1, 2, 2, 192]" in said and "its parameter's, [1, 16, 24]" in said
    assert (mounted / "weights" / STEP / "model.safetensors").exists()


def differ(groups):
    groups[1]["lr"] = 1e-5


def without_steps(groups):
    for group in groups:
        del group["step"]


@pytest.mark.parametrize("change,said", [
    (differ, "its param groups differ in lr, and which parameters are in which was not saved"),
    (without_steps, "the number of steps of its optimizer was not saved"),
])
def test_what_param_groups_do_not_say_is_not_made_up(made, mount, tmp_path, change, said):
    folder = made("mo2", "llama-tp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    common = torch.load(run / STEP / "common.pt", weights_only=False)
    change(common["optimizer"]["optimizer"]["param_groups"])
    torch.save(common, run / STEP / "common.pt")
    mounted = mount(run, f"model={folder}/hf")
    assert said in told(mounted) and said in told(mounted, "universal")
    assert (mounted / "weights" / STEP / "model.safetensors").exists()


def test_a_truncated_file_of_param_groups_is_named(made, mount, command, tmp_path):
    folder = made("mo2", "llama-tp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    with open(run / STEP / "common.pt", "r+b") as f:
        f.truncate(500)
    mounted = mount(run, f"model={folder}/hf")
    assert "common.pt" in told(mounted) and "common.pt" in command("check", run, check=False).stdout
    assert (mounted / "weights" / STEP / "model.safetensors").exists()
