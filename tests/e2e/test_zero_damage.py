"""DeepSpeed checkpoints that are damaged: every view that needs what is lost is refused with one sentence,
`unshard check` says the same one and exits with 1, and what can be served still is, the right bytes.

Each case is a private copy of a run of an engine at 2 ranks (stage 2 or 3), and all are in one mount."""

import os
import shutil
import subprocess

import pytest
import torch

import conftest
import trees

TAG = "global_step3"
MODEL = "mp_rank_00_model_states.pt"
STATE = "optimizer_state_dict"
# What needs the optimizer: of a stage 3 that holds no weights, everything.
RESUME = ("full", "full-fsdp", "universal", "dcp", "world-2", "world-3")
WEIGHTS = ("weights", "weights-bf16", "weights-fp32")
ROUNDED = ("weights", "weights-bf16")


def model(rank):
    return f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"


def optim(rank, prefix="bf16_"):
    return f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


# -- what is done to a tag's directory --

def lost(*names):
    return lambda tag: [(tag / n).unlink() for n in names]


def cut_by(name, n_bytes):
    return lambda tag: os.truncate(tag / name, (tag / name).stat().st_size - n_bytes)


def emptied(name):
    return lambda tag: os.truncate(tag / name, 0)


def zeroed(name):
    return lambda tag: (tag / name).write_bytes(bytes((tag / name).stat().st_size))


def renamed(*pairs):
    def rename(tag):
        for old, _ in pairs:
            (tag / old).rename(tag / f"{old}.old")
        for old, new in pairs:
            (tag / f"{old}.old").rename(tag / new)
    return rename


def swapped(a, b):
    return renamed((a, b), (b, a))


def rewritten(name, change):
    """Saved again by torch, with something else in it."""
    def rewrite(tag):
        import deepspeed  # noqa: F401: the files name its classes

        saved = torch.load(tag / name, weights_only=False)
        change(saved)
        torch.save(saved, tag / name)
    return rewrite


def both(one, other):
    def do(tag):
        one(tag)
        other(tag)
    return do


def another_shape(saved):
    saved["param_shapes"][0]["blocks.0.up.weight"] = torch.Size([18, 12])


def flat_groups(saved):
    held = saved[STATE]
    return held.get("single_partition_of_fp32_groups") or held["fp32_flat_groups"]


def shorter(saved):
    flat_groups(saved)[0] = flat_groups(saved)[0].detach()[:-8].clone()


def halves(saved):
    flat_groups(saved)[0] = flat_groups(saved)[0].detach().half()


def half_moments(saved):
    state = saved[STATE]["base_optimizer_state"]["state"][0]
    state["exp_avg"] = state["exp_avg"].half()


def one_number(saved):
    state = saved[STATE]["base_optimizer_state"]["state"][0]
    state["exp_avg"] = state["exp_avg"][0].clone()


def of_version(saved):
    saved["ds_version"] = "0.14.5"


def of_another_save(saved):
    """What is in it is not looked at: the shard of another step has the same sizes."""
    held = saved[STATE]
    for state in (held.get("base_optimizer_state") or held["optimizer_state_dict"])["state"].values():
        state["step"] = state["step"] + 4


def of_three_ranks(saved):
    count = saved[STATE]["partition_count"]
    saved[STATE]["partition_count"] = [3] * len(count) if isinstance(count, list) else 3


def stateless(saved):
    held = saved[STATE]
    (held.get("base_optimizer_state") or held["optimizer_state_dict"])["state"].clear()


def without_a_moment(saved):
    for state in saved[STATE]["base_optimizer_state"]["state"].values():
        del state["exp_avg_sq"]


def stage_3s(tag):
    shutil.copy(tag.parents[2] / "stage-3" / "run" / TAG / optim(1), tag)


# -- sentences --

IS_MISSING = ("{} (data-parallel rank {}) is missing: expected the optimizer's shards of 2 ranks, found 1; "
              "copy it back from the training machine")
IS_CUT = "{}: truncated, or not a zip archive: no end record was found in its {} bytes"
WAS_RENAMED = ("{}: the file was saved as {}: it was renamed, or is another rank's; copy the right one back "
               "from the training machine")
ADDS_UP = ("group 0: param_shapes of {} add up to {} elements, but the partitions of {} ranks to {}: the "
           "files are damaged or of different checkpoints")
HAS_ELEMENTS = ("{}: the fp32 partition of group 0, rank {}, has {} elements; expected {} of the {} that "
                "param_shapes of {} add up to over {} ranks: the files are damaged or of different "
                "checkpoints")
IS_OF_TYPE = ("{}: {} of group 0, rank 1, is float16; expected float32 as in the other ranks' files: the "
              "files are of different checkpoints")
HAS_NO_STATE = ("{}: the optimizer's {} of group 0, rank {}, is missing; other ranks' files have it: the "
                "file is damaged or of another checkpoint")
NO_MODEL = ("no model file was found (mp_rank_00_model_states.pt, or one for each rank): only a model file records "
            "which parameters the optimizer's shards hold")
NO_SLICES = ("{} (data-parallel rank {}) is missing: expected a model file of each of 2 ranks, which hold "
             "slices of the frozen parameters; copy it back from the training machine")
CUT_FOR = ("{}: stage {}, 2 param groups, sharded over {} ranks; another rank's file has stage 1, 2 param groups, "
           "sharded over 2 ranks: the files are of different checkpoints")
OF_VERSION = ("{} was saved by DeepSpeed 0.14.5, another rank's file by {}: the files are of different "
              "checkpoints")
OF_TWO_SAVES = ("{}: the optimizer's step of group 0 is 7 here, but 3 in {}: the files are of two saves; copy this save's files "
                "again from the training machine, or resume from the checkpoint before it")
NO_SHARDS = ("no optimizer shards (zero_pp_rank_*_mp_rank_00_optim_states.pt) were found for the parameters that {1} "
             "lists: the save did not finish, or the shards were not copied")

# name -> (stage, damage, views that are served, what they are served without, the sentence)
CASES = {
    "a-rank-is-lost": (2, lost(optim(1)), ROUNDED, IS_MISSING, optim(1), 1),
    "the-first-rank-is-lost": (2, lost(optim(0)), ROUNDED, IS_MISSING, optim(0), 0),
    "all-ranks-are-lost": (2, lost(optim(0), optim(1)), WEIGHTS, NO_SHARDS, "", MODEL),
    "the-model-is-lost": (2, lost(MODEL), (), NO_MODEL, ""),
    "a-shard-is-cut": (2, cut_by(optim(1), 100), ROUNDED, IS_CUT, optim(1), "SIZE"),
    "a-shard-is-cut-in-half": (2, cut_by(optim(0), 6000), ROUNDED, IS_CUT, optim(0), "SIZE"),
    "a-shard-is-empty": (2, emptied(optim(1)), ROUNDED, IS_CUT, optim(1), "SIZE"),
    "a-shard-is-zeros": (2, zeroed(optim(1)), ROUNDED, IS_CUT, optim(1), "SIZE"),
    "the-model-is-cut": (2, cut_by(MODEL, 100), (), IS_CUT, MODEL, "SIZE"),
    "shapes-do-not-fit": (2, rewritten(MODEL, another_shape), ROUNDED, ADDS_UP, MODEL, 1272, 2, 1260),
    "a-part-is-short": (2, rewritten(optim(0), shorter), ROUNDED, ADDS_UP, MODEL, 1260, 2, 1252),
    "a-rank-of-halves": (2, rewritten(optim(1), halves), ROUNDED, IS_OF_TYPE, optim(1),
                         "the fp32 partition"),
    "moments-of-halves": (2, rewritten(optim(1), half_moments), WEIGHTS, IS_OF_TYPE, optim(1),
                          "exp_avg"),
    "a-moment-is-one-number": (2, rewritten(optim(1), one_number), WEIGHTS,
                               HAS_ELEMENTS.replace("the fp32 partition", "exp_avg"), optim(1), 1, 1, 630,
                               1260, MODEL, 2),
    "a-rank-of-another-version": (2, rewritten(optim(1), of_version), ROUNDED, OF_VERSION, optim(1),
                                  "VERSION"),
    "a-rank-of-another-save": (2, rewritten(optim(1), of_another_save), ROUNDED, OF_TWO_SAVES, optim(1), optim(0)),
    "a-rank-cut-for-three": (2, rewritten(optim(1), of_three_ranks), ROUNDED, CUT_FOR, optim(1), 1, 3),
    "all-cut-for-three": (2, both(rewritten(optim(0), of_three_ranks),
                                  rewritten(optim(1), of_three_ranks)), ROUNDED,
                          IS_MISSING.replace("2 ranks, found 1", "3 ranks, found 2"), optim(2), 2),
    "a-rank-of-stage-3": (2, stage_3s, ROUNDED, CUT_FOR, optim(1), 3, 2),
    "ranks-are-swapped": (2, swapped(optim(0), optim(1)), ROUNDED, WAS_RENAMED, optim(0), optim(1)),
    "a-rank-is-renamed": (2, renamed((optim(1), optim(2))), ROUNDED, WAS_RENAMED, optim(2), optim(1)),
    "a-rank-without-states": (2, rewritten(optim(1), stateless), WEIGHTS, HAS_NO_STATE, optim(1), "step",
                              1),
    "the-first-without-states": (2, rewritten(optim(0), stateless), WEIGHTS, HAS_NO_STATE, optim(0),
                                 "step", 0),
    "a-moment-is-lost": (2, rewritten(optim(1), without_a_moment), WEIGHTS, HAS_NO_STATE, optim(1),
                         "exp_avg_sq", 1),
    "3-a-rank-is-lost": (3, lost(optim(1)), (), IS_MISSING, optim(1), 1),
    "3-a-model-is-lost": (3, lost(model(1)), ("universal",), NO_SLICES, model(1), 1),
    "3-the-first-model-is-lost": (3, lost(model(0)), ("universal",), NO_SLICES, model(0), 0),
    "3-all-models-are-lost": (3, lost(model(0), model(1)), (), NO_MODEL, ""),
    "3-a-shard-is-cut": (3, cut_by(optim(0), 100), (), IS_CUT, optim(0), "SIZE"),
    "3-a-model-is-cut": (3, cut_by(model(1), 4000), ("universal",), IS_CUT, model(1), "SIZE"),
    "3-a-model-is-empty": (3, emptied(model(1)), ("universal",), IS_CUT, model(1), "SIZE"),
    "3-shapes-do-not-fit": (3, rewritten(model(0), another_shape), (), HAS_ELEMENTS, optim(0), 0, 630,
                            636, 636, model(0), 2),
    "3-a-part-is-short": (3, rewritten(optim(1), shorter), (), HAS_ELEMENTS, optim(1), 1, 622, 630, 630,
                          model(0), 2),
    "3-a-rank-of-halves": (3, rewritten(optim(1), halves), (), IS_OF_TYPE, optim(1),
                           "the fp32 partition"),
    "3-a-rank-of-another-version": (3, rewritten(optim(1), of_version), (), OF_VERSION, optim(1),
                                    "VERSION"),
    "3-a-rank-of-another-save": (3, rewritten(optim(1), of_another_save), (), OF_TWO_SAVES, optim(1), optim(0)),
    "3-all-cut-for-three": (3, both(rewritten(optim(0), of_three_ranks),
                                    rewritten(optim(1), of_three_ranks)), (),
                            IS_MISSING.replace("2 ranks, found 1", "3 ranks, found 2"), optim(2), 2),
    "3-ranks-are-swapped": (3, swapped(optim(0), optim(1)), (), WAS_RENAMED, optim(0), optim(1)),
    "3-models-are-swapped": (3, swapped(model(0), model(1)), (), WAS_RENAMED, model(0), model(1)),
    "3-a-rank-is-renamed": (3, renamed((optim(1), optim(2))), (), WAS_RENAMED, optim(2), optim(1)),
    "3-a-rank-without-states": (3, rewritten(optim(1), stateless), WEIGHTS, HAS_NO_STATE, optim(1),
                                "step", 1),
}


@pytest.fixture(scope="module")
def damaged(made, tmp_path_factory):
    """(directory of the copies, its mount)."""
    base = tmp_path_factory.mktemp("damage")
    source, mnt = base / "source", base / "mnt"
    for stage in (2, 3):
        shutil.copytree(made("e2", f"z{stage}-bf16"), source / f"stage-{stage}")
    for name, (stage, damage, *_) in CASES.items():
        shutil.copytree(source / f"stage-{stage}", source / name)
        damage(source / name / "run" / TAG)
    mnt.mkdir()
    before = trees.fingerprint(source)
    conftest.unshard("mount", source, mnt, "-o", "settle=0,store=none")
    yield source, mnt
    conftest.detach(mnt)
    assert trees.fingerprint(source) == before, "the source was changed"


def sentence(source, name):
    """With what only the files themselves tell filled in."""
    from deepspeed import __version__

    _, _, _, text, file, *rest = CASES[name]
    run = source / name / "run"
    size = (run / TAG / file).stat().st_size if "SIZE" in rest else None
    filled = {"SIZE": size, "VERSION": __version__}
    return text.format(file, *(filled.get(r, r) for r in rest))


def told(folder):
    """The sentence of a view that is refused."""
    assert os.listdir(folder) == ["UNSHARD_PROBLEM.txt"]
    return (folder / "UNSHARD_PROBLEM.txt").read_text().split("\n\n")[1]


@pytest.mark.parametrize("name", CASES)
def test_what_needs_it_is_refused_with_one_sentence(damaged, name):
    source, mnt = damaged
    for view in (*WEIGHTS, *RESUME):
        folder = mnt / view / name / "run" / TAG
        if view in CASES[name][2]:
            assert "UNSHARD_PROBLEM.txt" not in os.listdir(folder), view
        elif folder.exists():  # a form that this cannot be said to have is not listed either
            assert told(folder) == sentence(source, name), view
        else:
            assert view in ("dcp", "world-2", "world-3"), view


@pytest.mark.parametrize("name", CASES)
def test_check_says_the_same(damaged, command, name):
    source, _ = damaged
    done = command("check", source, check=False)
    assert done.returncode == 1
    assert sentence(source, name) in done.stdout.replace("source/", "")


@pytest.mark.parametrize("name", CASES)
def test_what_can_be_served_is_right(damaged, name):
    source, mnt = damaged
    live = trees.tensors(source / name / "live.safetensors")
    states = trees.tensors(source / name / "states.safetensors")
    exact = {n: states.get(f"{'emb.weight' if n == 'head.weight' else n}|fp32", t)
             for n, t in live.items()}
    if name == "all-ranks-are-lost":
        exact = live  # there are no masters to be had
    want = {"weights": live, "weights-bf16": {n: bf16(t) for n, t in exact.items()},
            "weights-fp32": {n: t.float() if t.is_floating_point() else t for n, t in exact.items()}}
    for view in set(WEIGHTS) & set(CASES[name][2]):
        trees.assert_same(trees.weights(mnt / view / name / "run" / TAG), want[view])
    if "universal" in CASES[name][2]:  # it holds no frozen parameters
        zero = mnt / "universal" / name / "run" / TAG / TAG / "zero"
        for key, t in states.items():
            param, state = key.split("|")
            got = torch.load(zero / param / f"{state}.pt", weights_only=True)["param"]
            trees.assert_same({key: got}, {key: t})


def bf16(tensor):
    return tensor.bfloat16() if tensor.is_floating_point() else tensor


def test_the_undamaged_ones_are_sound(damaged, command):
    source, _ = damaged
    for stage in (2, 3):
        command("check", source / f"stage-{stage}")


# -- universal directories --

ZERO = "zero/emb.weight"
UNIVERSAL = {
    "a-state-is-lost": (lost(f"{ZERO}/exp_avg.pt"), WEIGHTS,
                        f"{ZERO}/exp_avg.pt is missing, and other parameters have such a file"),
    "a-master-is-lost": (lost(f"{ZERO}/fp32.pt"), ROUNDED, f"{ZERO}/fp32.pt is missing"),
    "a-parameter-is-lost": (lambda tag: shutil.rmtree(tag / ZERO), ROUNDED,
                            f"{ZERO} is missing, and {MODEL} lists it"),
    "a-master-is-cut": (cut_by(f"{ZERO}/fp32.pt", 50), ROUNDED,
                        f"{ZERO}/fp32.pt: truncated, or not a zip archive: no end record was found in its "),
    "a-master-is-anothers": (
        lambda tag: shutil.copy(tag / "zero/blocks.0.up.weight/fp32.pt", tag / ZERO), ROUNDED,
        f"{ZERO}/fp32.pt: the tensor has shape [17, 12]; expected [37, 12]"),
    "the-groups-are-lost": (lost("zero/optimizer_state.pt"), WEIGHTS,
                            "zero/optimizer_state.pt: the file is missing; copy it back"),
}


@pytest.fixture(scope="module")
def universal(made, tmp_path_factory):
    """(copies of a universal directory, their mount): the mount's own form of a stage 2, which is what
    ds_to_universal makes of it (test_deepspeed.py)."""
    base = tmp_path_factory.mktemp("universal")
    source, mnt, own = base / "source", base / "mnt", base / "own"
    mnt.mkdir()
    own.mkdir()
    conftest.unshard("mount", made("e2", "z2-bf16") / "run", own, "-o", "settle=0,store=none")
    try:
        for name, (damage, *_) in UNIVERSAL.items():
            shutil.copytree(own / "universal" / TAG, source / name)
            (source / name / TAG / MODEL).unlink()  # of the view: without weights
            shutil.copy(made("e2", "z2-bf16") / "run" / TAG / MODEL, source / name / TAG)
            damage(source / name / TAG)
    finally:
        conftest.detach(own)
    conftest.unshard("mount", source, mnt, "-o", "settle=0,store=none")
    yield source, mnt
    conftest.detach(mnt)


@pytest.mark.parametrize("name", UNIVERSAL)
def test_a_damaged_universal_directory(universal, made, command, name):
    source, mnt = universal
    _, served, text = UNIVERSAL[name]
    text = text.format(*[f"{name}/{TAG}"] * text.count("{}"))
    for view in (*WEIGHTS, "full", "universal"):
        folder = mnt / view / name / TAG
        if view in served:
            assert "model.safetensors" in os.listdir(folder), view
        else:
            assert told(folder).startswith(text), view
    live = trees.tensors(made("e2", "z2-bf16") / "live.safetensors")
    trees.assert_same(trees.weights(mnt / "weights" / name / TAG), live)
    done = command("check", source, check=False)
    assert done.returncode == 1 and text in done.stdout.replace("source/", "")


# -- what is not supported --

def test_tensor_parallel_slices_are_refused(made, copied, mount, command):
    source = copied(made("e2", "z2-bf16") / "run")

    def slices(saved):
        saved["checkpoint_parallel_dimensions"] = {"pp_degree": 1, "tp_degree": 2}

    rewritten(MODEL, slices)(source / TAG)
    for name in (MODEL, optim(0), optim(1)):
        import deepspeed  # noqa: F401: the files name its classes

        torch.save(torch.load(source / TAG / name, weights_only=False),
                   source / TAG / name.replace("mp_rank_00", "mp_rank_01"))
    text = (f"{TAG} holds tensor-parallel slices of 2 model-parallel ranks, and does not record how each parameter "
            "was split: this is not supported")
    assert text in command("check", source, check=False).stdout
    m = mount(source)
    assert told(m / "weights" / TAG) == text
    for view in ("full", "universal", "dcp"):
        assert not (m / view / TAG).exists() or told(m / view / TAG) == text


# -- the file that names the tag --

def test_latest_names_what_is_not_there(made, copied, mount, command):
    source = copied(made("e2", "z2-bf16") / "run")
    (source / "latest").write_text("global_step9")
    text = ("latest names global_step9, and no such tag exists: DeepSpeed finds no checkpoint "
            "to resume from; copy that tag back from the training machine, or write global_step3 "
            "into the file")
    done = command("check", source, check=False)
    assert done.returncode == 1 and text in done.stdout
    m = mount(source)
    folder = m / "weights" / TAG
    assert text in (folder / ".unshard/problems.txt").read_text()
    trees.assert_same(trees.weights(folder), trees.tensors(made("e2", "z2-bf16") / "live.safetensors"))


def test_a_trainers_latest_names_what_is_not_there(made, copied, mount, command):
    source = copied(made("h2", "z2-bf16") / "run")
    (source / "checkpoint-2/latest").write_text("global_step9")
    text = "latest names global_step9, and no such tag exists: DeepSpeed finds no checkpoint"
    done = command("check", source, check=False)
    assert done.returncode == 1 and text in done.stdout
    m = mount(source)
    for view in ("weights", "full", "universal"):
        assert text in (m / view / "checkpoint-2/.unshard/problems.txt").read_text()
