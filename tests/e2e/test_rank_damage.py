"""Damage to veRL's and EasyR1's per-rank files, one case each: `unshard check` says in exactly these
sentences what is wrong; views that need what is broken hold the same sentence in UNSHARD_PROBLEM.txt;
those that do not serve the live tensors bit for bit.

All cases are made below one directory, which is checked once and mounted once."""

import json
import os
import re
import shutil
import tempfile
from collections import OrderedDict, namedtuple
from pathlib import Path

import pytest
import torch

import trees
from conftest import detach, unshard
from damage import cut, edit, flip, local, name_of, rewrap, rezip, swap

ACTOR = "run/global_step_2/actor"
VERL_TRACKER = "../../latest_checkpointed_iteration.txt"
EASY_TRACKER = "../../checkpoint_tracker.json"
PROBLEM_FILE = "UNSHARD_PROBLEM.txt"
RAN = Path(tempfile.gettempdir()) / f"unshard-test-ran-{os.getpid()}"

# base: the checkpoint that is damaged (launch, case). damage: called with its directory. found: what
# check says; {M1} and {O1} its rank 1's model and optimizer files, {m1} and {o1}
# their bare names, {X1} and {x1} those of extra_state. serves: the views that still serve it whole.
Case = namedtuple("Case", "base damage found serves")

WEIGHTS = ("weights",)
ALL = ("weights", "full-fsdp")
NOTHING = ()

AGAIN = "; copy the file again from the training machine"
OR_BEFORE = AGAIN + ", or resume from the checkpoint before it"
ONE_DTYPE = ("; --repair OUT writes a copy with one dtype for all ranks where most of them agree; or copy the "
             "file again from the training machine, or resume from the checkpoint before it")
BACK = "; copy it back from the training machine"
RENAMED = (": the mount shows the right data, a trainer that resumes from these files would load "
           "another rank's; rename the files back, or copy them again from the training machine")
SAVED_AS = "{{O{0}}}: the file was saved as {{o{1}}}: it was renamed, or is another rank's" + AGAIN
TWO_SAVES = (": the files are of two saves; copy this save's files again from the training "
             "machine, or resume from the checkpoint before it")


def model(a, rank):
    return next(a.glob(f"model_world_size_*_rank_{rank}.pt"))


def optim(a, rank):
    return next(a.glob(f"optim_world_size_*_rank_{rank}.pt"))


def extra(a, rank):
    return next(a.glob(f"extra_state_world_size_*_rank_{rank}.pt"))


def on_model(rank, change):
    return lambda a: edit(model(a, rank), change)


def on_optim(rank, change):
    return lambda a: edit(optim(a, rank), change)


def on_extra(rank, change):
    return lambda a: edit(extra(a, rank), change)


def on_all(kind, change):
    def damage(a):
        for path in sorted(a.glob(f"{kind}_world_size_*.pt")):
            edit(path, change)
    return damage


def problem(text):
    return "problem", text


def note(text):
    return "note", text


VERL = ("v3", "verl-f2")
EASY = ("v2", "easyr1-f2")
HSDP = ("v4", "verl-f2-hsdp")
FLAT = ("v2", "verl-f1")
ORIG = ("v3", "verl-f1orig")
ST = ("v3", "verl-f1orig-st")
CASES = {}


def case(name, base, damage, found, serves):
    assert name not in CASES
    CASES[name] = Case(base, damage, found, serves)


def bf16(tensor):
    return tensor.bfloat16()


class Far:
    """A tensor whose rows lie a million elements apart, in a storage that is not as large."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        t = self.tensor
        storage = torch.storage.TypedStorage(wrap_storage=t.untyped_storage(), dtype=t.dtype,
                                             _internal=True)
        return torch._utils._rebuild_tensor_v2, (storage, 0, tuple(t.shape), (10 ** 6, 1), False,
                                                 OrderedDict())


def set_state(state, number, key, change):
    state["state"][number][key] = change(state["state"][number][key])


def rename_world(a, world):
    for path in sorted(a.glob("*_world_size_*.pt")):
        kind, rank = path.name.split("_world_size_")[0], int(path.stem.split("_")[-1])
        path.rename(a / name_of(kind, world, rank))
        if rank == 0:
            for more in range(2, world):
                shutil.copy(a / name_of(kind, world, 0), a / name_of(kind, world, more))


def mesh(world):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh("cpu", list(range(world)), mesh_dim_names=("fsdp",), _init_backend=False)


def move(tensor, coordinate):
    tensor._spec.mesh._coordinate_on_dim = [coordinate]


def replicated(tensor):
    from torch.distributed.tensor import Replicate

    return rewrap(tensor, lambda t: torch.zeros(tensor.shape), placements=[Replicate()])


def partial(state):
    from torch.distributed.tensor import Partial

    t = state["emb.weight"]
    return rewrap(t, lambda p: torch.zeros(t.shape), placements=[Partial()])


def shift(tensor, rows):
    """A ShardedTensor's own shard said to lie elsewhere."""
    tensor.local_shards()[0].metadata.shard_offsets[0] += rows


class Runs:
    """What a pickle may do when it is loaded as pickles are."""

    def __reduce__(self):
        return os.system, (f"touch {RAN}",)


def swap_states(state):
    s = state["state"]
    s[0], s[3] = s[3], s[0]


def split_group(state):
    group = state["param_groups"][0]
    state["param_groups"] = [dict(group, params=group["params"][:4]),
                             dict(group, params=group["params"][4:])]


def short_group(state):
    state["param_groups"][0]["params"].pop()
    state["state"].pop(len(state["param_groups"][0]["params"]), None)


def short_first(state):
    first = state["state"][min(state["state"])]
    for key in ("exp_avg", "exp_avg_sq"):
        first[key] = first[key][:-1].clone()


def lengthen(state):
    for key in ("exp_avg", "exp_avg_sq"):
        set_state(state, 0, key, lambda t: torch.cat([t, torch.ones(50)]))


# -- the twelve damages that were first seen --

case("optimizer state of another type than declared", EASY,
     on_optim(1, lambda s: local(s["state"]["layers.0.weight"]["exp_avg"], bf16)),
     [problem("{O1}: dtype mismatch in state.layers.0.weight.exp_avg: declared float32, stored "
              "bfloat16" + ONE_DTYPE)],
     WEIGHTS)
case("flat optimizer state of another type", FLAT,
     on_optim(1, lambda s: set_state(s, 1, "exp_avg", bf16)),
     [problem("{O1}: dtype mismatch in state.1.exp_avg: bfloat16 here, float32 in {o0}" + ONE_DTYPE)],
     WEIGHTS)
case("flat optimizer state of another size", FLAT,
     on_optim(1, lambda s: set_state(s, 0, "exp_avg", lambda t: t[:-7].clone())),
     [problem("{O1}: state.0.exp_avg has 285 elements, but state.0.exp_avg_sq has"
              " 292: all states of one parameter have the same length" + OR_BEFORE)],
     WEIGHTS)
case("weight of another type than declared", VERL,
     on_model(1, lambda s: local(s["emb.weight"], bf16)),
     [problem("{M1}: dtype mismatch in emb.weight: declared float32, stored bfloat16" + ONE_DTYPE)],
     NOTHING)
case("a row short", VERL, on_model(1, lambda s: local(s["emb.weight"], lambda t: t[:-1])),
     [problem("{M1}: emb.weight: this rank holds a piece of shape [4, 10]; expected [5, 10]" + AGAIN)],
     NOTHING)
case("a name missing", VERL, on_model(1, lambda s: s.pop("emb.weight")),
     [problem("{M1}: emb.weight is missing, and {m0} has it" + OR_BEFORE)],
     NOTHING)
case("a rank missing", ("v4", "verl-f1orig"), lambda a: model(a, 2).unlink(),
     [problem("{M2} is missing: it holds rank 2's pieces" + BACK)],
     NOTHING)
case("a file of another world", EASY,
     lambda a: shutil.copy(model(a, 0), a / name_of("model", 3, 0)),
     [problem("files of saves on different numbers of ranks are mixed: 2 (complete) and 3 (1 of 3 "
              "model files); no file says which save is current; move the files of the other "
              "saves away, or let --repair OUT write a copy of the one that is complete")],
     NOTHING)
case("cut", EASY, lambda a: cut(model(a, 1), 7000),
     [problem("{M1}: truncated, or not a zip archive: no end record was found in its 7000 bytes" + AGAIN)],
     NOTHING)
case("empty", EASY, lambda a: cut(model(a, 1), 0),
     [problem("{M1}: the file is empty" + AGAIN)],
     NOTHING)
case("swapped", EASY, lambda a: (swap(model(a, 0), model(a, 1)), swap(optim(a, 0), optim(a, 1))),
     [problem("{M0} is named rank 0, but its content is rank 1's (1 other file likewise)" + RENAMED),
      problem("{O0} is named rank 0, but its content is rank 1's (1 other file likewise)" + RENAMED)],
     ALL)
case("a bit of the description flipped", EASY, lambda a: flip(model(a, 1), "data.pkl"),
     [problem("{M1}: zip: record model_world_size_2_rank_1/data.pkl is damaged: CRC ..., expected "
              "..." + AGAIN)],
     NOTHING)

# -- whole files --

case("sound", VERL, lambda a: None, [], ALL)
case("the first missing", VERL, lambda a: model(a, 0).unlink(),
     [problem("{M0} is missing: it holds rank 0's pieces" + BACK)],
     NOTHING)
case("the last missing", VERL, lambda a: model(a, 2).unlink(),
     [problem("{M2} is missing: it holds rank 2's pieces" + BACK)],
     NOTHING)
case("two missing", VERL, lambda a: [model(a, r).unlink() for r in (1, 2)],
     [problem("{M1} and 1 more file are missing: they hold the pieces of ranks 1, 2; copy them "
              "back from the training machine")],
     NOTHING)
case("a replica missing", HSDP, lambda a: [f(a, 3).unlink() for f in (model, optim)],
     [problem("{M3} is missing: it holds rank 3's pieces (unshard reads the copies that other "
              "ranks hold)" + BACK),
      problem("{O3} is missing: it holds rank 3's pieces (unshard reads the copies that other "
              "ranks hold)" + BACK)],
     ALL)
case("a replica cut", HSDP, lambda a: cut(model(a, 1), 5000),
     [problem("{M1}: truncated, or not a zip archive: no end record was found in its 5000 bytes "
              "(unshard reads the copies that other ranks hold)" + AGAIN)],
     ALL)
case("both replicas missing", HSDP, lambda a: [model(a, r).unlink() for r in (1, 3)],
     [problem("{M1} and 1 more file are missing: they hold the pieces of ranks 1, 3; copy them "
              "back from the training machine")],
     NOTHING)
case("optimizer: one missing", VERL, lambda a: optim(a, 1).unlink(),
     [problem("{O1} is missing: it holds rank 1's pieces" + BACK)],
     WEIGHTS)
case("optimizer: cut", VERL, lambda a: cut(optim(a, 0), 9000),
     [problem("{O0}: truncated, or not a zip archive: no end record was found in its 9000 bytes" + AGAIN)],
     WEIGHTS)
case("optimizer: empty", VERL, lambda a: cut(optim(a, 2), 0),
     [problem("{O2}: the file is empty" + AGAIN)],
     WEIGHTS)
case("optimizer: no torch file", VERL, lambda a: optim(a, 1).write_text("not a zip\n" * 300),
     [problem("{O1}: truncated, or not a zip archive: no end record was found in its 3000 bytes" + AGAIN)],
     WEIGHTS)
case("optimizer: a zip without description", VERL,
     lambda a: rezip(optim(a, 1), lambda z: z.pop("data.pkl")),
     [problem("{O1}: it has no data.pkl: torch.save did not write it" + AGAIN)],
     WEIGHTS)
case("optimizer: an empty description", VERL,
     lambda a: rezip(optim(a, 1), lambda z: z.update({"data.pkl": b""})),
     [problem("{O1}: pickle is empty" + AGAIN)],
     WEIGHTS)
case("optimizer: an unknown opcode", VERL,
     lambda a: rezip(optim(a, 1), lambda z: z.update({"data.pkl": b"\x80\x02\xff."})),
     [problem("{O1}: pickle opcode 0xff at byte 2 is not known" + AGAIN)],
     WEIGHTS)
case("optimizer: a state dict of the model", VERL, lambda a: shutil.copy(model(a, 1), optim(a, 1)),
     [problem("{O1}: the file holds no optimizer state dict" + AGAIN)],
     WEIGHTS)
case("extra state: one missing", VERL, lambda a: extra(a, 2).unlink(),
     [problem("{X2} is missing: it holds rank 2's pieces" + BACK)],
     ALL)
case("extra state: all missing", VERL, lambda a: [extra(a, r).unlink() for r in range(3)], [], ALL)
case("extra state: cut", VERL, lambda a: cut(extra(a, 1), 900),
     [problem("{X1}: truncated, or not a zip archive: no end record was found in its 900 bytes" + AGAIN)],
     ALL)
case("extra state: no scheduler", VERL, on_extra(1, lambda s: s.pop("lr_scheduler")),
     [problem("{X1}: the file has no \"lr_scheduler\", which is restored from there" + AGAIN)],
     ALL)
case("extra state: of another step", VERL,
     on_extra(1, lambda s: s["lr_scheduler"].update(last_epoch=7)),
     [problem("{X1}: last_epoch of the learning rate scheduler is 7 here, but 1 in {x0}" + TWO_SAVES)],
     ALL)
case("extra state: a scheduler only there", VERL, on_extra(1, lambda s: s.update(lr_scheduler=None)),
     [problem("{X1}: it has no learning rate scheduler, and {x0} has one" + TWO_SAVES)],
     ALL)

# -- worlds and names --

case("config of another world", VERL,
     lambda a: (a / "fsdp_config.json").write_text('{"world_size": 4}'),
     [problem("fsdp_config.json records 4 ranks, but the files are of 3 (complete) ranks: copy the missing "
              "files back from the training machine")],
     NOTHING)
case("config that is none", VERL, lambda a: (a / "fsdp_config.json").write_text("{"),
     [problem("fsdp_config.json is not a JSON object: unshard takes the number of ranks from the names of the ranks' "
              "files; copy it again from the training machine: veRL's model merger needs it")],
     ALL)
case("config without a world", VERL, lambda a: (a / "fsdp_config.json").write_text("{}"),
     [problem("fsdp_config.json has no world_size above 0: unshard takes the number of ranks from the names of the "
              "ranks' files; copy it again from the training machine: veRL's model merger needs it")],
     ALL)
case("a file of another world, and a config", VERL,
     lambda a: shutil.copy(model(a, 0), a / name_of("model", 2, 0)),
     [note("files of saves on different numbers of ranks are mixed: 2 (1 of 2 model files) and 3 "
           "(complete); those of 3 ranks are read, as fsdp_config.json records")],
     ALL)
case("two whole worlds", EASY,
     lambda a: [shutil.copy(f(a, 0), a / name_of(k, 1, 0)) for k, f in
                (("model", model), ("optim", optim), ("extra_state", extra))],
     [problem("files of saves on different numbers of ranks are mixed: 1 (complete) and 2 "
              "(complete); no file says which save is current; move the files of the other saves "
              "away, or let --repair OUT write a copy of the one that is complete")],
     NOTHING)
case("named for a larger world", EASY, lambda a: rename_world(a, 4),
     [problem("the model was saved by 2 ranks, but its files are named for 4: rename them as they "
              "were, or copy them again from the training machine")],
     NOTHING)
case("optimizer: swapped", VERL, lambda a: swap(optim(a, 0), optim(a, 2)),
     [problem("{O0} is named rank 0, but its content is rank 2's (1 other file likewise)" + RENAMED)],
     ALL)
case("parts of flattened parameters: swapped", ORIG,
     lambda a: (swap(model(a, 0), model(a, 1)), swap(optim(a, 0), optim(a, 1))),
     [problem("{M0} is named rank 0, but its content is rank 1's (1 other file likewise)" + RENAMED),
      problem(SAVED_AS.format(0, 1)), problem(SAVED_AS.format(1, 0))],
     WEIGHTS)
case("parts of flattened parameters: only the model's swapped", ORIG, lambda a: swap(model(a, 0), model(a, 1)),
     [problem("{M0} is named rank 0, but its content is rank 1's (1 other file likewise)" + RENAMED),
      problem("the model's files record other ranks than their names say, so the order of "
              "the ranks' pieces of the optimizer is not known; rename them back, or copy them "
              "again from the training machine")],
     WEIGHTS)
case("parts of flattened parameters: only the optimizer's swapped", ORIG, lambda a: swap(optim(a, 0), optim(a, 1)),
     [problem(SAVED_AS.format(0, 1)), problem(SAVED_AS.format(1, 0))], WEIGHTS)
case("flat units: only the optimizer's swapped", FLAT, lambda a: swap(optim(a, 0), optim(a, 1)),
     [problem(SAVED_AS.format(0, 1)), problem(SAVED_AS.format(1, 0))], WEIGHTS)
case("one file twice", EASY, lambda a: shutil.copy(model(a, 0), model(a, 1)),
     [problem("{M1} was written by rank 0, as {m0} was: rank 1's own file is missing" + BACK)],
     NOTHING)
case("a replica's file twice", HSDP, lambda a: shutil.copy(model(a, 1), model(a, 3)),
     [problem("{M3} was written by rank 1, as {m1} was: rank 3's own file is missing" + BACK)],
     ALL)
case("one file under the next rank's name", VERL, lambda a: model(a, 0).replace(model(a, 1)),
     [problem("{M0} is missing: it holds rank 0's pieces" + BACK),
      problem("{M1} is named rank 1, but its content is rank 0's" + RENAMED)],
     NOTHING)

# -- trackers of the run --

case("tracker: a step that is missing", VERL, lambda a: (a / VERL_TRACKER).write_text("6"),
     [problem("latest_checkpointed_iteration.txt of run names step 6, and global_step_6 does not exist: veRL would "
              "start from the beginning; copy the directory back, or set "
              "it to 2, the newest step that exists, if that one is whole")],
     ALL)
case("tracker: empty", VERL, lambda a: (a / VERL_TRACKER).write_text(""),
     [problem("latest_checkpointed_iteration.txt of run is empty: veRL fails when it looks "
              "there for the last checkpoint; set it to 2, the newest step that exists, if "
              "that one is whole"),
      note("all files of actor that were found are complete, but the file that is written last "
           "was not found (with veRL latest_checkpointed_iteration.txt, with Accelerate the last "
           "random_states_N.pkl); if the save may have been interrupted, resume from the "
           "checkpoint before it")],
     ALL)
case("tracker: no number", VERL, lambda a: (a / VERL_TRACKER).write_text("global_step_2"),
     [problem("latest_checkpointed_iteration.txt of run holds \"global_step_2\" instead of a "
              "step's number: veRL fails when it looks there for the last checkpoint; set it "
              "to 2, the newest step that exists, if that one is whole"),
      note("all files of actor that were found are complete, but the file that is written last "
           "was not found (with veRL latest_checkpointed_iteration.txt, with Accelerate the last "
           "random_states_N.pkl); if the save may have been interrupted, resume from the "
           "checkpoint before it")],
     ALL)
case("tracker: of an earlier step", VERL, lambda a: (a / VERL_TRACKER).write_text("1"),
     [problem("latest_checkpointed_iteration.txt of run names step 1, and global_step_1 does not exist: veRL would "
              "start from the beginning; copy the directory back, or set "
              "it to 2, the newest step that exists, if that one is whole"),
      note("all files of actor that were found are complete, but the file that is written last "
           "was not found (with veRL latest_checkpointed_iteration.txt, with Accelerate the last "
           "random_states_N.pkl); if the save may have been interrupted, resume from the "
           "checkpoint before it")],
     ALL)
case("tracker: none", VERL, lambda a: (a / VERL_TRACKER).unlink(),
     [note("all files of actor that were found are complete, but the file that is written last "
           "was not found (with veRL latest_checkpointed_iteration.txt, with Accelerate the last "
           "random_states_N.pkl); if the save may have been interrupted, resume from the "
           "checkpoint before it")],
     ALL)
case("EasyR1's tracker: a step that is missing", EASY,
     lambda a: (a / EASY_TRACKER).write_text('{"last_global_step": 4}'),
     [problem("checkpoint_tracker.json of run names step 4, and global_step_4 does not exist: EasyR1 would start "
              "from the beginning; copy the directory back, or set it to 2, the "
              "newest step that exists, if that one is whole")],
     ALL)
case("EasyR1's tracker: cut", EASY, lambda a: (a / EASY_TRACKER).write_text('{"last_gl'),
     [problem("checkpoint_tracker.json of run is not JSON: EasyR1 fails when it looks there "
              "for the last checkpoint; set it to 2, the newest step that exists, if that "
              "one is whole"),
      note("all files of actor that were found are complete, but the file that is written last "
           "was not found (with veRL latest_checkpointed_iteration.txt, with Accelerate the last "
           "random_states_N.pkl); if the save may have been interrupted, resume from the "
           "checkpoint before it")],
     ALL)
case("EasyR1's tracker: without a step", EASY,
     lambda a: (a / EASY_TRACKER).write_text('{"best_global_step": 2}'),
     [problem("checkpoint_tracker.json of run has no number as last_global_step: EasyR1 fails"
              " when it looks there for the last checkpoint; set it to 2, the newest step "
              "that exists, if that one is whole"),
      note("all files of actor that were found are complete, but the file that is written last "
           "was not found (with veRL latest_checkpointed_iteration.txt, with Accelerate the last "
           "random_states_N.pkl); if the save may have been interrupted, resume from the "
           "checkpoint before it")],
     ALL)

# -- tensors --

case("weight of another type", VERL,
     on_model(2, lambda s: s.update({"emb.weight": rewrap(s["emb.weight"], bf16)})),
     [problem("{M2}: dtype mismatch in emb.weight: bfloat16 here, float32 in {m0}" + ONE_DTYPE)],
     NOTHING)
case("all weights of another type", VERL,
     on_model(1, lambda s: s.update({k: rewrap(v, bf16) for k, v in s.items()
                                     if hasattr(v, "_local_tensor")})),
     [problem("{M1}: dtype mismatch in one_row: bfloat16 here, float32 in {m0} (and 13 more of "
              "its tensors)" + ONE_DTYPE)],
     NOTHING)
case("buffer of another type", VERL,
     on_model(1, lambda s: s.update({"norm.running_mean": s["norm.running_mean"].bfloat16()})),
     [problem("{M1}: dtype mismatch in norm.running_mean: bfloat16 here, float32 in {m0}" + ONE_DTYPE)],
     NOTHING)
case("another global shape", VERL,
     on_model(1, lambda s: s.update({"emb.weight": rewrap(s["emb.weight"], shape=(15, 10))})),
     [problem("{M1}: emb.weight is a sharded tensor of shape [15, 10] here, but a sharded one of "
              "shape [13, 10] in {m0}" + OR_BEFORE)],
     NOTHING)
case("sharded on one rank, plain on another", VERL,
     on_model(1, lambda s: s.update({"tiny": s["tiny"]._local_tensor.clone()})),
     [problem("{M1}: tiny is a plain tensor of shape [1] here, but a sharded one of shape [2] in "
              "{m0}" + OR_BEFORE)],
     NOTHING)
case("a name on one rank only", VERL,
     on_model(1, lambda s: s.update({"extra.weight": s["emb.weight"]})),
     [problem("{M1}: extra.weight is in this file, but not in {m0}" + OR_BEFORE)],
     NOTHING)
case("a buffer missing", VERL, on_model(1, lambda s: s.pop("norm.running_mean")),
     [problem("{M1}: norm.running_mean is missing, and {m0} has it" + OR_BEFORE)],
     ALL)
case("names missing on two ranks", VERL,
     lambda a: [edit(model(a, r), lambda s: (s.pop("emb.weight"), s.pop("conv.weight")))
                for r in (0, 1)],
     [problem("{M2}: emb.weight is in this file, but not in {m0} (and 1 more of its tensors)" + OR_BEFORE)],
     NOTHING)
case("a name missing on a replica", HSDP, on_model(3, lambda s: s.pop("emb.weight")),
     [problem("{M3}: emb.weight is missing, and {m0} has it" + OR_BEFORE)],
     ALL)
case("another mesh", VERL,
     on_model(1, lambda s: s.update({"emb.weight": rewrap(s["emb.weight"], mesh=mesh(2))})),
     [problem("{M1}: emb.weight is sharded over a device mesh of shape [2] here, of shape [3] in {m0}" + OR_BEFORE)],
     NOTHING)
case("another place in the mesh", VERL, on_model(1, lambda s: move(s["emb.weight"], 0)),
     [problem("{M1}: one_row: this rank holds a piece of shape [0, 10]; expected [1, 10]" + AGAIN)],
     NOTHING)
case("replicated on one rank", VERL,
     on_model(1, lambda s: s.update({"tiny": replicated(s["tiny"])})),
     [problem("tiny: two shards hold the same elements (from element 0 on): one of {M0}, one of "
              "{M1}; copy the files again from the training machine, or resume from the "
              "checkpoint before it")],
     NOTHING)
case("replicas that differ", HSDP,
     on_model(3, lambda s: local(s["layers.0.weight"], lambda t: t + 1)),
     [problem("{M3}: layers.0.weight differs here from the copy of the same elements in {m1}; "
              "move the file of the wrong rank away, and unshard reads the other copy")],
     NOTHING)
case("buffers that differ", VERL, on_model(1, lambda s: s["norm.running_mean"].add_(1)),
     [note("norm.running_mean differs between ranks; it is taken from {M0}, not {m1}")],
     ALL)
case("parts without a place", VERL, on_model(1, lambda s: s.update({"emb.weight": partial(s)})),
     [note("{M1}: emb.weight: a DTensor with the placement "
           "torch.distributed.tensor.placement_types.Partial, which does not record where its data are")],
     NOTHING)
case("a storage too small", VERL,
     lambda a: rezip(model(a, 1), lambda z: z.update({"data/0": z["data/0"][:-8]})),
     [problem("{M1}: one_row: the record data/0 has 32 bytes; expected 10 elements of"
              " 4 bytes" + AGAIN)],
     NOTHING)
case("a storage missing", VERL, lambda a: rezip(model(a, 1), lambda z: z.pop("data/0")),
     [problem("{M1}: one_row: the record data/0 is missing" + AGAIN)],
     NOTHING)
case("strides out of the storage", VERL, on_model(1, lambda s: local(s["emb.weight"], Far)),
     [problem("{M1}: emb.weight: a tensor reaches past the end of its storage data/4 "
              "of 200 bytes" + AGAIN)],
     NOTHING)
case("a tensor of an unknown class", VERL,
     lambda a: rezip(model(a, 1), lambda z: z.update({"data.pkl": z["data.pkl"].replace(
         b"torch._tensor\n_rebuild_from_type_v2", b"torch._tensor\n_rebuild_from_type_v9")})),
     [problem("{M1}: one_row: it is not a tensor of a kind that unshard knows, but "
              "torch._tensor._rebuild_from_type_v9 (and 13 more of its tensors)" + AGAIN)],
     NOTHING)
case("code instead of a tensor", VERL, on_model(1, lambda s: s.update({"tiny": Runs()})),
     [problem("{M1}: tiny: it is not a tensor of a kind that unshard knows, but posix.system" + AGAIN)],
     NOTHING)
case("ShardedTensor: a row short", ST,
     on_model(1, lambda s: local(s["emb.weight"], lambda t: t[:-1])),
     [problem("{M1}: emb.weight: this rank holds a piece of shape [4, 10]; expected [5, 10]" + AGAIN)],
     NOTHING)
case("ShardedTensor: another type", ST,
     on_model(1, lambda s: local(s["emb.weight"], bf16)),
     [problem("{M1}: dtype mismatch in emb.weight: declared float32, stored bfloat16" + ONE_DTYPE)],
     NOTHING)
case("ShardedTensor: shards that overlap", ST,
     on_model(1, lambda s: shift(s["emb.weight"], -1)),
     [note("the optimizer numbers 13 parameters, the model has 14: no file records which parameters are numbered"),
      problem("emb.weight: two shards hold the same elements (from row 4 on): one of {M0}, one of "
              "{M1}; copy the files again from the training machine, or resume from the "
              "checkpoint before it")],
     NOTHING)

# -- the optimizer --

case("optimizer: type of one moment", VERL,
     on_all("optim", lambda s: s["state"][0].update(exp_avg_sq=rewrap(s["state"][0]["exp_avg_sq"],
                                                                      bf16))),
     [problem("exp_avg of one_row is float32, but its exp_avg_sq is bfloat16: an optimizer keeps "
              "both in one dtype; resume from the checkpoint before it")],
     WEIGHTS)
case("optimizer: types of all second moments", VERL,
     on_all("optim", lambda s: [v.update(exp_avg_sq=rewrap(v["exp_avg_sq"], bf16))
                                for v in s["state"].values()]),
     [problem("exp_avg of one_row is float32, but its exp_avg_sq is bfloat16 (and 11 more "
              "parameters are like it): an optimizer keeps both in one dtype; resume from the "
              "checkpoint before it")],
     WEIGHTS)
case("optimizer: type between ranks", VERL,
     on_optim(1, lambda s: s["state"][0].update(exp_avg=rewrap(s["state"][0]["exp_avg"], bf16))),
     [problem("{O1}: dtype mismatch in state.0.exp_avg: bfloat16 here, float32 in {o0}" + ONE_DTYPE)],
     WEIGHTS)
case("optimizer: all of another type", VERL,
     on_optim(1, lambda s: [v.update(exp_avg=rewrap(v["exp_avg"], bf16), exp_avg_sq=rewrap(
         v["exp_avg_sq"], bf16)) for v in s["state"].values()]),
     [problem("{O1}: dtype mismatch in state.0.exp_avg: bfloat16 here, float32 in {o0} (and 23 "
              "more of its tensors)" + ONE_DTYPE)],
     WEIGHTS)
case("optimizer: a rank of another step", VERL,
     on_optim(1, lambda s: [v["step"].add_(4) for v in s["state"].values()]),
     [problem("{O1}: state.0.step is 7 here, but 3 in {o0} (and 11 more of its tensors)" + TWO_SAVES)],
     WEIGHTS)
case("optimizer: another learning rate", VERL,
     on_optim(1, lambda s: s["param_groups"][0].update(lr=0.5)),
     [problem("{O1}: lr of param group 0 is 0.5 here, but 0.01 in {o0}" + TWO_SAVES)],
     WEIGHTS)
case("optimizer: other betas", EASY,
     on_optim(1, lambda s: s["param_groups"][0].update(betas=(0.9, 0.95))),
     [problem("{O1}: betas of param group 0 is (0.9, 0.95) here, but (0.9, 0.999) in {o0}" + TWO_SAVES)],
     WEIGHTS)
case("optimizer: a group more", EASY, on_optim(1, split_group),
     [problem("{O1}: the number of param groups is 2 here, but 1 in {o0}" + AGAIN)],
     WEIGHTS)
case("optimizer: a number missing", VERL, on_optim(1, lambda s: s["state"].pop(3)),
     [problem("{O1}: state.3.exp_avg is missing, and {o0} has it (and 1 more of its tensors)" + OR_BEFORE)],
     WEIGHTS)
case("optimizer: a number missing whose part is empty", VERL,
     on_optim(1, lambda s: s["state"].pop(0)),
     [problem("{O1}: state.0.exp_avg is missing, and {o0} has it (and 1 more of its tensors)" + OR_BEFORE)],
     ALL)
case("optimizer: a name missing", EASY, on_optim(1, lambda s: s["state"].pop("emb.weight")),
     [problem("{O1}: state.emb.weight.exp_avg is missing, and {o0} has it (and 1 more of its "
              "tensors)" + OR_BEFORE)],
     WEIGHTS)
case("optimizer: a moment missing", EASY,
     on_optim(0, lambda s: s["state"]["emb.weight"].pop("exp_avg_sq")),
     [problem("{O0}: state.emb.weight.exp_avg_sq is missing, and {o1} has it" + OR_BEFORE)],
     WEIGHTS)
case("optimizer: in another order", VERL, on_all("optim", swap_states),
     [problem("optimizer state state.0.exp_avg has shape [13, 10]; expected [1, 10], that of "
              "one_row, which is the parameter of that number in the model's order")],
     WEIGHTS)
case("optimizer: two groups of numbers", VERL, on_all("optim", split_group),
     [note("{O0}: the optimizer numbers its parameters over 2 param groups, and no file says "
           "which parameter is in which group")],
     WEIGHTS)
case("optimizer: fewer parameters", VERL, on_all("optim", short_group),
     [note("the optimizer numbers 12 parameters, the model has 13: no file records which parameters are numbered")],
     WEIGHTS)
case("optimizer: fewer parameters on a rank", VERL, on_optim(1, short_group),
     [problem("{O1}: the optimizer's number of parameters is 12 here, but 13 in the first rank's file" + AGAIN)],
     WEIGHTS)
case("optimizer: a state behind the group's end", VERL,
     on_optim(1, lambda s: s["state"].update({99: s["state"].pop(0)})),
     [problem("{O1}: the optimizer holds a state of parameter number 99; expected a number "
              "below 13, the number of parameters in its param group" + AGAIN)],
     WEIGHTS)
case("optimizer: a state of unknown class", VERL,
     on_all("optim", lambda s: s["state"][0].update(exp_avg=Runs())),
     [note("{O0}: state.0.exp_avg: it is not a tensor of a kind that unshard knows, but posix.system")],
     WEIGHTS)
case("parts of flattened parameters: one short", ORIG, on_optim(1, short_first),
     [problem("the ranks' pieces of optimizer state state.4.exp_avg have 99 elements together; "
              "expected 100, those of layers.0.weight, which is parameter 4 in the model's order; "
              "copy the ranks' files again from the training machine, or resume from the "
              "checkpoint before it")],
     WEIGHTS)
case("parts of flattened parameters: one missing", ORIG,
     on_optim(1, lambda s: s["state"].pop(min(s["state"]))),
     [problem("the ranks' pieces of optimizer state state.4.exp_avg have 63 elements together; "
              "expected 100, those of layers.0.weight, which is parameter 4 in the model's order; "
              "copy the ranks' files again from the training machine, or resume from the "
              "checkpoint before it")],
     WEIGHTS)
case("parts of flattened parameters: a moment missing", ORIG,
     on_optim(0, lambda s: s["state"][0].pop("exp_avg_sq")),
     [problem("the optimizer has exp_avg of one_row and no exp_avg_sq; resume from the checkpoint "
              "before it")],
     WEIGHTS)
case("parts of flattened parameters: another type", ORIG,
     on_optim(1, lambda s: [set_state(s, 4, k, bf16) for k in ("exp_avg", "exp_avg_sq")]),
     [problem("{O1}: dtype mismatch in state.4.exp_avg: bfloat16 here, float32 in {o0}" + ONE_DTYPE)],
     WEIGHTS)
case("flat units: one short", FLAT, on_optim(1, short_first),
     [problem("{O1}: state.0.exp_avg has 291 elements here, but 292 in {o0}: flat units are "
              "padded to the same length on all ranks" + OR_BEFORE)],
     WEIGHTS)
case("flat units: one missing on a rank", FLAT, on_optim(1, lambda s: s["state"].pop(0)),
     [problem("rank 1's file has no piece of the flat unit's state.0.exp_avg, which {o0} has" + OR_BEFORE)],
     WEIGHTS)
case("flat units: more than parameters and padding", FLAT, on_all("optim", lengthen),
     [problem("the optimizer's 3 flat units have 904 elements on all ranks together; expected 804 "
              "to 807, the model's parameters and their padding: the model's files and the optimizer's do not belong "
              "together; resume from the checkpoint before it")],
     WEIGHTS)
case("flat units: less than the parameters", FLAT, on_all("optim", short_first),
     [problem("the optimizer's 3 flat units have 802 elements on all ranks together; expected 804 "
              "to 807, the model's parameters and their padding: the model's files and the optimizer's do not belong "
              "together; resume from the checkpoint before it")],
     WEIGHTS)
case("optimizer: replicas that differ", HSDP,
     on_optim(2, lambda s: local(s["state"][0]["exp_avg"], lambda t: t + 1)),
     [problem("{O2}: state.0.exp_avg differs here from the copy of the same elements in {o0}; "
              "move the file of the wrong rank away, and unshard reads the other copy")],
     WEIGHTS)


def places(name, base, top):
    world = int(base[0][1:])
    where = f"{top}{name}/{ACTOR}"
    out = {"A": where}
    for rank in range(world):
        for letter, kind in (("m", "model"), ("o", "optim"), ("x", "extra_state")):
            out[f"{letter}{rank}"] = name_of(kind, world, rank)
            out[f"{letter.upper()}{rank}"] = name_of(kind, world, rank)
    return out


def without_crcs(text):
    return re.sub(r"CRC [0-9a-f]{8}, expected [0-9a-f]{8}", "CRC ..., expected ...", text)


class Shown:
    """All cases below one source, what check found in them, and a mount of it."""

    def __init__(self, made, top):
        self.source, self.mnt = top / "source", top / "mnt"
        self.live = {}
        for name, c in CASES.items():
            shutil.copytree(made(*c.base) / "run", self.source / name / "run")
            self.live[name] = made(*c.base) / "live"
            c.damage(self.source / name / ACTOR)
        self.before = trees.fingerprint(self.source)
        done = unshard("check", self.source, "--json", "-o", "settle=0", check=False)
        self.status = done.returncode
        self.findings = json.loads(done.stdout)["findings"]
        self.mnt.mkdir()
        unshard("mount", self.source, self.mnt, "-o", "settle=0")

    def found(self, name):
        top = f"source/{name}/"
        return [(f["severity"], without_crcs(f["text"])) for f in self.findings
                if f["path"].startswith(top)]


@pytest.fixture(scope="module")
def shown(made, tmp_path_factory):
    it = Shown(made, tmp_path_factory.mktemp("damage"))
    yield it
    detach(it.mnt)
    assert trees.fingerprint(it.source) == it.before, "the source was changed"


def test_problems_are_the_exit_status_and_notes_are_not(shown):
    assert shown.status == 1
    for name, c in CASES.items():
        if name in ("sound", "a file of another world, and a config", "a row short"):
            done = unshard("check", shown.source / name, "-o", "settle=0", check=False)
            assert done.returncode == any(severity == "problem" for severity, _ in c.found)


def moments(path):
    state = torch.load(path, weights_only=True)
    return {f"{n} {k}": t for n, s in state["state"].items() for k, t in s.items()}


@pytest.mark.parametrize("name", CASES)
def test_exactly_this_is_found(shown, name):
    at = places(name, CASES[name].base, "source/")
    want = [(severity, text.format(**at)) for severity, text in CASES[name].found]
    assert shown.found(name) == want


@pytest.mark.parametrize("name", CASES)
def test_what_is_whole_is_served_and_the_rest_says_why(shown, name):
    c = CASES[name]
    at = places(name, c.base, "")
    sentences = [text.format(**at) for _, text in c.found]
    for view in ALL:
        folder = shown.mnt / view / name / ACTOR
        if view in c.serves:
            assert not (folder / PROBLEM_FILE).exists()
        elif folder.exists():
            assert [p.name for p in folder.iterdir()] == [PROBLEM_FILE]
            told = (folder / PROBLEM_FILE).read_text().split("\n")[2]
            assert without_crcs(told) in sentences
    if "weights" in c.serves:
        trees.assert_same(trees.weights(shown.mnt / "weights" / name / ACTOR),
                          trees.tensors(shown.live[name] / "model.safetensors"))
    if "full-fsdp" in c.serves:
        trees.assert_same(moments(shown.mnt / "full-fsdp" / name / ACTOR / "optimizer.bin"),
                          trees.tensors(shown.live[name] / "optim.safetensors"))
    assert not RAN.exists(), "a pickle was executed"


def test_what_was_not_saved_is_not_missed(made, mount, copied, command):
    """veRL saves what checkpoint.save_contents says."""
    top = copied(made(*VERL))
    for path in (top / ACTOR).glob("optim_*"):
        path.unlink()
    assert command("check", top / "run", "-o", "settle=0").returncode == 0
    mounted = mount(top / "run", "settle=0")
    full = mounted / "full-fsdp/global_step_2/actor"
    assert [p.name for p in full.iterdir()] == ["pytorch_model_fsdp.bin"]


def test_a_bit_of_a_tensor_flipped_is_found_by_reading_it(made, copied, command):
    """The twelfth of the damages that were first seen: torch.load does not notice it."""
    top = copied(made(*EASY))
    flip(model(top / ACTOR, 1), "data/4")
    assert command("check", top / "run", "-o", "settle=0").returncode == 0
    done = command("check", top / "run", "--deep", "--json", "-o", "settle=0", check=False)
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["findings"]
    assert (found["check"], found["severity"]) == ("crc", "problem")
    assert found["text"].startswith(
        "global_step_2/actor/model_world_size_2_rank_1.pt (rank 1): record model_world_size_2_rank_1/data/4 of "
        "tensor emb.weight, ")
    assert "it was damaged after it was saved; copy it back" in found["text"]
