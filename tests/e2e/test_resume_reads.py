"""The table of lib/files/resume_reads.c: each thing that a trainer reads is removed, and the trainer resumes. What `unshard
check --for` says of the same directory is compared with how that went."""

import json
import shutil
import sys

import pytest

import conftest

sys.path.insert(0, str(conftest.ROOT / "tests/docs"))
import generate  # noqa: E402

ROWS = [r for r in generate.resume_rows(str(conftest.ROOT)) if r["tested"]]
SHARDED, FULL = "SHARDED_STATE_DICT", "FULL_STATE_DICT"
# trainer, view -> what has the form of that view by itself: launch, case, directory; how it is resumed.
NATIVE = {
    ("Trainer", "full"): ("u0", "plain", "checkpoint-2", 0, "trainer", 0, ""),
    ("Trainer", "full-fsdp"): ("u2", "full", "checkpoint-2", 2, "trainer", 2, FULL),
    ("Trainer", "dcp"): ("u2", "f2", "checkpoint-2", 2, "trainer", 2, SHARDED),
    ("Accelerate", "full"): ("u0", "acc", "state", 0, "accelerate", 0, ""),
    ("Accelerate", "full-fsdp"): ("u2", "accfull", "state", 2, "accelerate", 2, FULL),
    ("Accelerate", "dcp"): ("u2", "accf2", "state", 2, "accelerate", 2, SHARDED),
}
CASES = [(r["trainer"], v, r["files"], r["part"], r["absent"], r["effect"]) for r in ROWS for v in r["views"]]
IDS = [f"{trainer}-{view}-{files}" for trainer, view, files, *_ in CASES]
ALSO = {"model.safetensors": ["model.safetensors"], "pytorch_model_fsdp.bin": ["pytorch_model_fsdp.bin", "model.safetensors"]}
GLOB = {"rng_state_RANK.pth": "rng_state_*.pth", "random_states_RANK.pkl": "random_states_*.pkl",
        "custom_checkpoint_N.pkl": "custom_checkpoint_*.pkl"}


def name_of(trainer, view, files):
    return f"{trainer}-{view}-{files}"


@pytest.fixture(scope="module")
def resumed(made, tmp_path_factory):
    """name -> (the directory, how it went); the names without files are those of whole checkpoints, resumed twice."""
    base = tmp_path_factory.mktemp("reads")
    where, specs = {}, {0: [], 1: [], 2: []}

    def add(name, trainer, view, files=None, part="RANDOM_STATES"):
        launch, case, inside, world, kind, fsdp, state = NATIVE[trainer, view]
        if part != "RANDOM_STATES":
            world = min(world, 1)  # rank 0 may fail alone: the others would wait for it
        run = base / name.replace(" ", "_")
        shutil.copytree(made(launch, case) / "run" / inside, run / inside)
        for one in ALSO.get(files, [GLOB.get(files, files)] if files else []):
            for path in (run / inside).glob(one):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        where[name] = run / inside
        kind = "registered" if files == "custom_checkpoint_N.pkl" and not world else f"dropping {kind} once"
        specs[world].append([name, kind, str(run / inside), fsdp, state])

    for trainer, view in NATIVE:
        add(f"{trainer}-{view}", trainer, view)
        add(f"{trainer}-{view} again", trainer, view)
    for trainer, view, files, part, *_ in CASES:
        add(name_of(trainer, view, files), trainer, view, files, part)
    results = {}
    for world, spec in specs.items():
        (base / "spec.json").write_text(json.dumps(spec))
        conftest.launch("unsharded.py", world, base / f"out-{world}", [base / "spec.json"])
        results |= json.loads((base / f"out-{world}").read_text())
    return {name: (where[name], result) for name, result in results.items()}


@pytest.mark.parametrize("trainer,view", NATIVE)
def test_a_whole_checkpoint_resumes_in_one_way(resumed, command, trainer, view):
    """With dropout: the losses depend on the random states that were restored."""
    where, result = resumed[f"{trainer}-{view}"]
    assert not isinstance(result, str), result
    assert result["optimizer"] == [4.0] and result == resumed[f"{trainer}-{view} again"][1]
    done = command("check", where, "--for", view, "--json", "-o", "settle=0,store=none", check=False)
    assert [f for f in json.loads(done.stdout)["findings"] if f["check"] == "resume"] == []
    assert done.returncode == 0


@pytest.mark.parametrize("trainer,view,files,part,absent,effect", CASES, ids=IDS)
def test_what_a_trainer_does_without(resumed, command, trainer, view, files, part, absent, effect):
    where, result = resumed[name_of(trainer, view, files)]
    whole = resumed[f"{trainer}-{view}"][1]
    if files == "custom_checkpoint_N.pkl" and view != "full":
        assert not isinstance(result, str)  # the script registers what there is: see the view full
    elif absent == "FATAL" or "fails with" in effect:
        assert isinstance(result, str), result
        error = next((e for e in ("FileNotFoundError", "ValueError", "RuntimeError", ".metadata") if e in effect))
        assert error in result
    elif part == "RANDOM_STATES":
        assert not isinstance(result, str), result
        assert result["optimizer"] == whole["optimizer"] and result["learning_rate"] == whole["learning_rate"]
        assert result["loss"] != whole["loss"]
    else:
        assert not isinstance(result, str), result
        assert result["optimizer"] == [2.0] and result["learning_rate"] != whole["learning_rate"]


@pytest.mark.parametrize("trainer,view,files,part,absent,effect", CASES, ids=IDS)
def test_check_says_so(resumed, command, trainer, view, files, part, absent, effect):
    done = command("check", resumed[name_of(trainer, view, files)][0], "--for", view, "--json", "-o",
                   "settle=0,store=none", check=False)
    found = json.loads(done.stdout)["findings"]
    if absent == "UNSEEN":
        return  # no file records that the run had it
    assert done.returncode == 1, found
    texts = " ".join(f["text"] for f in found)
    if part in ("OPTIMIZER", "SCHEDULER", "RANDOM_STATES"):
        assert files in [f["found"] for f in found if f["id"] == "resume_misses"] or "cannot show" in texts
        assert effect in texts or "cannot show" in texts


@pytest.mark.parametrize("trainer,view,files,part,absent,effect", CASES, ids=IDS)
def test_show_has_what_is_restored(resumed, command, trainer, view, files, part, absent, effect):
    """Of a whole checkpoint everything that the trainer reads, without one thing all others."""
    def reads(where):
        done = command("show", where, "--json", "-o", "settle=0,store=none", check=False)
        if done.returncode == 2:
            return {}  # without weights it is no checkpoint
        shown = json.loads(done.stdout)["info"]["views"][view]
        return {r["files"]: (r["found"], r["without"]) for r in shown.get("resume", []) if r["trainer"] == trainer}
    whole = reads(resumed[f"{trainer}-{view}"][0])
    assert whole and all(found for found, _ in whole.values())
    without = reads(resumed[name_of(trainer, view, files)][0])
    if absent == "UNSEEN":
        assert files not in without
    elif without:  # the view is shown
        assert whole[files][1] == effect
        absent_files = [f for f, (found, _) in without.items() if not found]
        assert absent_files == ([] if part == "TRAINER_STATE" else [files])  # the mount makes a trainer_state.json
    else:
        assert part in ("WEIGHTS", "OPTIMIZER")


def test_neither_optimizer_nor_scheduler(command, made, copied):
    """Each alone was reported; both together start from the beginning in the same silence. save_only_model leaves out the random
    states, too: that is a note."""
    run = copied(made("u0", "plain") / "run", "run")
    for name in ("optimizer.pt", "scheduler.pt"):
        (run / "checkpoint-2" / name).unlink()
    done = command("check", run, "--json", "-o", "settle=0,store=none", check=False)
    assert done.returncode == 1
    assert [f["id"] for f in json.loads(done.stdout)["findings"]] == ["both_missing"]
    shown = command("show", run / "checkpoint-2", "-o", "settle=0,store=none").stdout
    assert "for a resume from the view full, checkpoint-2 has no optimizer.pt and no scheduler.pt: the Trainer starts the " \
           "optimizer and the scheduler from the beginning, without a message" in shown
    (run / "checkpoint-2/rng_state.pth").unlink()
    done = command("check", run, "--json", "-o", "settle=0,store=none")
    assert [f["id"] for f in json.loads(done.stdout)["findings"]] == ["saved_model_only"]
    done = command("check", run / "checkpoint-2", "--for", "full", "-o", "settle=0,store=none", check=False)
    assert done.returncode == 1 and "each process keeps the random states that it has" in done.stdout


@pytest.mark.parametrize("view", ["weights", "weights-bf16", "adapter", "nothing"])
def test_views_that_no_training_resumes_from(command, made, view):
    done = command("check", made("u0", "plain") / "run", "--for", view, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert "full" in done.stderr
