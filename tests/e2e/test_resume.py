"""Training resumed through the mount: as the native sharded resume goes on, to the last digit. One run of each kind that
resumed saves, and is resumed again from what it saved; with --long, every one.

All runs are made first, few launches for many cases (`resumed`); each test then looks at one of them.
FSDP1's own sharded resume on CPU restores the optimizer wrongly: what FSDP1 saved is compared with
FSDP2's sharded loading of the same files."""

import json
import re
import shlex
import shutil

import pytest

import conftest
import trees

SHARDED, FULL = "SHARDED_STATE_DICT", "FULL_STATE_DICT"
CKPT = "checkpoint-2"
# (world, name) of what --long alone resumes: the same of another run, form or number of processes.
RARELY = {(0, "f1-trainer_state"), (0, "full-trainer_state"), (0, "f2-empty"), (1, "fsdp-f2-trainer_state"),
          (1, "fsdp1-fsdp-f2"), (1, "fsdp-acc"), (3, "dcp-f2-trainer_state"), (3, "native-f1"), (3, "dcp-f1"),
          (3, "native-acc"), (3, "dcp-acc")}
# What saves and is resumed again in every round: each view and trainer, other numbers of processes, made files.
AGAIN = {(0, "f1"), (0, "f2-trainer_state"), (0, "counting"), (0, "acc"), (1, "dcp-f2"), (1, "fsdp-f2"),
         (1, "fsdp1-fsdp-f1"), (1, "dcp-acc"), (3, "dcp-f2")}


def or_long(world, name, *values):
    return pytest.param(*values, marks=pytest.mark.long if (world, name) in RARELY else [])


class Runs:
    """The mounted tree, and what came of each resume: results[(world, name)]; world 0 = no group of processes."""

    def __init__(self, base, source, mnt, every):
        self.base, self.source, self.mnt, self.results = base, source, mnt, {}
        self.every = every

    def launch(self, world, spec):
        spec = [[name, kind + " once" * self.is_once(world, name, kind), *where] for name, kind, *where in spec
                if self.every or (world, name) not in RARELY]
        out, file = self.base / f"out-{world}-{len(self.results)}", self.base / "spec.json"
        file.write_text(json.dumps([[*map(lambda v: v if v is None or isinstance(v, int) else str(v),
                                          one)] for one in spec]))
        conftest.launch("resume_run.py", world, out, [file])
        for name, result in json.loads(out.read_text()).items():
            self.results[world, name] = result

    def is_once(self, world, name, kind="trainer"):
        return not self.every and (world, name) not in AGAIN and kind != "cadences"

    def __call__(self, world, name):
        result = self.results[world, name]
        assert not isinstance(result, str), f"{name} at world size {world}: {result}"
        # FSDP1's own sharded form again (see above): what these save restores wrongly as well.
        saved_wrongly = name.startswith(("fsdp1-native", "fsdp1-dcp"))
        return result if saved_wrongly else conftest.went_on(result, self.is_once(world, name))


def without(source, run, *names):
    """A copy of a run whose checkpoint-2 lacks these files."""
    made = source / f"{run}-{'-'.join(n.split('.')[0] for n in names)}"
    shutil.copytree(source / run, made)
    for name in names:
        victim = made / CKPT / name
        shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    return made


@pytest.fixture(scope="module")
def resumed(made, tmp_path_factory, request):
    base = tmp_path_factory.mktemp("resume")
    source, mnt, told = base / "runs", base / "mnt", base / "told"
    for folder in (source, mnt, told):
        folder.mkdir()
    for run in ("f1", "f2", "full", "acc"):
        shutil.copytree(made("r2", run) / "run", source / run)
    for run in ("f1", "f2", "full"):
        without(source, run, "trainer_state.json")
    for name in ("scheduler.pt", "optimizer_0", "rng_state_0.pth", "rng_state_1.pth"):
        without(source, "f2", name)
    shutil.copytree(source / "f2", source / "f2-empty")
    (source / f"f2-empty/{CKPT}/trainer_state.json").write_text("")
    shutil.copytree(source / "f2", source / "f2-cut")
    state = source / f"f2-cut/{CKPT}/trainer_state.json"
    state.write_text(state.read_text()[:300])
    shutil.copytree(source / "f2", source / "f2-alone")
    shutil.rmtree(source / "f2-alone/checkpoint-4")
    (source / f"f2-alone/{CKPT}/trainer_state.json").unlink()

    runs = Runs(base, source, mnt, request.config.getoption("--long"))
    runs.launch(0, [["plain-saved", "trainer", None, 0, "", source / "plain"],
                    ["native", "trainer", source / "plain" / CKPT, 0, ""],
                    ["counting-saved", "counting", None, 0, "", source / "counting"]])
    for run in ("plain", "counting"):
        shutil.copytree(source / run, source / f"{run}-stateless")
        (source / f"{run}-stateless/{CKPT}/trainer_state.json").unlink()
    before = trees.fingerprint(source)
    conftest.unshard("mount", source, mnt, "-o", "settle=0,store=none")
    conftest.unshard("mount", source, told, "-o", f"settle=0,store={base}/store.db")
    try:
        tell(told / "full/f2-alone" / CKPT, base / "store.db")
        resume_all(runs, source, mnt, told)
        yield runs
    finally:
        conftest.detach(mnt)
        conftest.detach(told)
    assert trees.fingerprint(source) == before, "the source was changed"


def tell(checkpoint, store):
    """Does what problems.txt says."""
    line = re.search(r"`unshard (meta set [^`]*)`", problems(checkpoint))[1]
    known = line.replace("train_batch_size=N", "train_batch_size=2").replace("=N", "=1")
    conftest.unshard(*shlex.split(known), "--store", store)
    conftest.eventually(lambda: json.loads((checkpoint / "trainer_state.json").read_text())
                        ["logging_steps"] == 1)


def resume_all(runs, source, mnt, told):
    runs.launch(0, [
        *[[run, "trainer", mnt / "full" / run / CKPT, 0, ""]
          for run in ("f1", "f2", "full", "plain", "f1-trainer_state", "f2-trainer_state", "f2-empty",
                      "f2-cut", "f2-alone", "full-trainer_state", "plain-stateless",
                      "f2-rng_state_0", "f2-scheduler", "f2-optimizer_0")],
        ["counting", "counting", mnt / "full/counting-stateless" / CKPT, 0, ""],
        ["native-counting", "counting", source / "counting" / CKPT, 0, ""],
        ["untold", "cadences", mnt / "full/f2-alone" / CKPT, 0, ""],
        ["told", "cadences", told / "full/f2-alone" / CKPT, 0, ""],
        ["acc", "accelerate", mnt / "full/acc/state", 0, ""]])
    stateful = ("f1", "f2", "f2-trainer_state")
    runs.launch(1, [
        *[[f"native-{run}", "trainer", source / run / CKPT, 2, SHARDED] for run in ("f1", "f2")],
        *[[f"dcp-{run}", "trainer", mnt / "dcp" / run / CKPT, 2, SHARDED] for run in stateful],
        *[[f"fsdp-{run}", "trainer", mnt / "full-fsdp" / run / CKPT, 2, FULL]
          for run in (*stateful, "full")],
        ["native-full", "trainer", source / "full" / CKPT, 2, FULL],
        ["told", "cadences", told / "dcp/f2-alone" / CKPT, 2, SHARDED],
        ["fsdp1-native-f1", "trainer", source / "f1" / CKPT, 1, SHARDED],
        ["fsdp1-dcp-f1", "trainer", mnt / "dcp/f1" / CKPT, 1, SHARDED],
        ["fsdp1-fsdp-f1", "trainer", mnt / "full-fsdp/f1" / CKPT, 1, FULL],
        ["fsdp1-fsdp-f2", "trainer", mnt / "full-fsdp/f2" / CKPT, 1, FULL],
        ["native-acc", "accelerate", source / "acc/state", 2, SHARDED],
        ["dcp-acc", "accelerate", mnt / "dcp/acc/state", 2, SHARDED],
        ["fsdp-acc", "accelerate", mnt / "full-fsdp/acc/state", 2, FULL]])
    runs.launch(3, [
        ["native-f2", "trainer", source / "f2" / CKPT, 2, SHARDED],
        ["dcp-f2", "trainer", mnt / "dcp/f2" / CKPT, 2, SHARDED],
        ["dcp-f2-trainer_state", "trainer", mnt / "dcp/f2-trainer_state" / CKPT, 2, SHARDED],
        ["fsdp-f2", "trainer", mnt / "full-fsdp/f2" / CKPT, 2, FULL],
        ["native-f1", "trainer", source / "f1" / CKPT, 2, SHARDED],
        ["dcp-f1", "trainer", mnt / "dcp/f1" / CKPT, 2, SHARDED],
        ["native-acc", "accelerate", source / "acc/state", 2, SHARDED],
        ["dcp-acc", "accelerate", mnt / "dcp/acc/state", 2, SHARDED]])


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def problems(folder):
    return (folder / ".unshard/problems.txt").read_text()


def provenance(folder):
    return json.loads((folder / ".unshard/provenance.json").read_text())


# -- what goes on --

def test_the_oracle_tells_a_lost_optimizer(resumed):
    """Without optimizer and scheduler the very first losses and rates are others."""
    native, lost = resumed(1, "native-f2"), resumed(0, "f2-scheduler")
    assert native["step"] == lost["step"] == 4
    assert native["optimizer"] == [4.0] and lost["optimizer"] == [2.0]
    assert native["learning_rate"] != lost["learning_rate"]
    assert native["loss"] != lost["loss"]


@pytest.mark.parametrize("run", ["f1", "f2", "full"])
def test_a_plain_trainer_goes_on_from_full(resumed, run):
    assert resumed(0, run) == resumed(1, f"native-{run}")


@pytest.mark.parametrize("view", ["dcp", "fsdp"])
@pytest.mark.parametrize("run", ["f1", "f2"])
def test_fsdp2_goes_on_at_one_process(resumed, view, run):
    assert resumed(1, f"{view}-{run}") == resumed(1, f"native-{run}")


def test_fsdp2_goes_on_from_its_own_full_form(resumed):
    assert resumed(1, "fsdp-full") == resumed(1, "native-full")


@pytest.mark.parametrize("run", [or_long(3, f"dcp-{run}", run) for run in ("f1", "f2")])
def test_fsdp2_goes_on_at_three_processes(resumed, run):
    assert resumed(3, f"dcp-{run}") == resumed(3, f"native-{run}")


def test_the_full_form_goes_on_at_three_processes(resumed):
    assert resumed(3, "fsdp-f2") == resumed(3, "native-f2")


def test_fsdp1_goes_on_from_dcp_as_natively(resumed):
    assert resumed(1, "fsdp1-dcp-f1") == resumed(1, "fsdp1-native-f1")


@pytest.mark.parametrize("run", [or_long(1, f"fsdp1-fsdp-{run}", run) for run in ("f1", "f2")])
def test_fsdp1_goes_on_from_the_full_form(resumed, run):
    """Where its own sharded resume does not: compared with FSDP2's."""
    assert resumed(1, f"fsdp1-fsdp-{run}") == resumed(1, f"native-{run}")


@pytest.mark.parametrize("world,view", [or_long(world, f"{view}-acc", world, view)
                                        for world, view in ((1, "dcp"), (1, "fsdp"), (3, "dcp"))])
def test_accelerate_goes_on(resumed, world, view):
    assert resumed(world, f"{view}-acc") == resumed(world, "native-acc")


def test_accelerate_without_fsdp_goes_on(resumed):
    assert resumed(0, "acc") == resumed(1, "native-acc")


@pytest.mark.parametrize("run", ["plain", "plain-stateless"])
def test_a_plain_run_goes_on(resumed, run):
    assert resumed(0, run)["loss"] == resumed(0, "native")["loss"]
    assert resumed(0, run) == resumed(0, "native")


# -- with one file of the native checkpoint gone --

@pytest.mark.parametrize("world,name,run", [or_long(world, name, world, name, run) for world, name, run in (
    (0, "f1-trainer_state", "f1"), (0, "f2-trainer_state", "f2"), (0, "full-trainer_state", "full"),
    (0, "f2-empty", "f2"), (0, "f2-cut", "f2"), (1, "dcp-f2-trainer_state", "f2"),
    (1, "fsdp-f2-trainer_state", "f2"), (3, "dcp-f2-trainer_state", "f2"))])
def test_trainer_state_is_made_anew(resumed, world, name, run):
    """History included: the part of the later checkpoint's that lies before this one."""
    assert resumed(world, name) == resumed(world or 1, f"native-{run}")


def test_trainer_state_without_any_sibling(resumed):
    """The step is known, the rest assumed and said so; only what is logged when may be another."""
    got, native = resumed(0, "f2-alone"), resumed(1, "native-f2")
    assert got["step"] == native["step"] and got["optimizer"] == native["optimizer"]
    text = problems(resumed.mnt / "full/f2-alone" / CKPT)
    for key in ("train_batch_size", "logging_steps", "eval_steps", "save_steps"):
        assert f"{key} = " in text and f"fact={key}=" in text
    origin = provenance(resumed.mnt / "full/f2-alone" / CKPT)["files"]["trainer_state.json"]["origin"]
    assert "train_batch_size assumed" in origin and "global_step from the directory's name" in origin


def test_callbacks_with_a_state_are_looked_up_at_the_next_save(resumed):
    """Their names and arguments are those that a neighbour tells."""
    assert resumed(0, "counting") == resumed(0, "native-counting")
    folder = resumed.mnt / "full/counting-stateless" / CKPT
    made = json.loads((folder / "trainer_state.json").read_text())["stateful_callbacks"]
    assert set(made) == {"Counting", "TrainerControl"}
    assert made["Counting"] == {"args": {"by": 1}, "attributes": {}}
    assert 'the callback "Counting" has the arguments' in problems(folder)


def test_cadences_that_nothing_tells(resumed):
    """They are assumed, and override the arguments; the line that problems.txt gives cures that."""
    assert resumed.results[0, "untold"] == {"logged": [], "saved": ["checkpoint-4"]}
    for world in (0, 1):
        assert resumed.results[world, "told"] == {"logged": [3, 4],
                                                  "saved": ["checkpoint-3", "checkpoint-4"]}


def test_what_is_made_up_is_said(resumed, command):
    """In problems.txt, provenance.json and at `unshard show`."""
    folder, words = resumed.mnt / "full/f2-alone" / CKPT, "epoch = 0.0, log_history = [], max_steps = 0"
    assert f"assumed, because no file or fact records them: {words}" in problems(folder)
    assert f"assumed, because no file or fact records them: {words}" in \
        provenance(folder)["files"]["trainer_state.json"]["origin"]
    shown = command("show", resumed.source / "f2-alone" / CKPT, "-o", "settle=0,store=none").stdout
    assert shown.count(f"assumed, because no file or fact records them: {words}") == 1
    for value in ("eval_steps = 500", "train_batch_size = 8", "stateful_callbacks = ", *words.split(", ")[::2]):
        assert problems(folder).count(value) == shown.count(value) == 1, value
    assert f"`unshard meta set {resumed.source}/f2-alone/{CKPT} eval_steps=N logging_steps=N" in shown
    whole = problems(resumed.mnt / "full/f2-trainer_state" / CKPT)
    assert "assumed, because no file or fact records them: total_flos = 0." in whole


def test_old_versions_are_told_by_the_arguments(resumed, copied, mount):
    """transformers 4.40 refuses stateful_callbacks; its TrainingArguments have no word about them either."""
    import torch

    run = copied(resumed.source / "plain-stateless")
    shutil.rmtree(run / "checkpoint-4")
    file = run / CKPT / "training_args.bin"
    arguments = torch.load(file, weights_only=False)
    m = mount(run, "store=none", changing=True)
    state = m / "full" / CKPT / "trainer_state.json"
    assert "TrainerControl" in json.loads(state.read_text())["stateful_callbacks"]
    assert "4.40" not in problems(m / "full" / CKPT)
    del arguments.restore_callback_states_from_checkpoint
    torch.save(arguments, file)
    conftest.eventually(lambda: "stateful_callbacks" not in json.loads(state.read_text()))


def test_the_made_state_is_the_lost_one(resumed):
    """But for what a later checkpoint cannot tell."""
    lost = json.loads((resumed.source / "f2" / CKPT / "trainer_state.json").read_text())
    made = json.loads((resumed.mnt / "full/f2-trainer_state" / CKPT / "trainer_state.json").read_text())
    unknown = {"best_global_step", "total_flos"}
    assert set(lost) - set(made) == {"best_global_step"}
    assert made == {k: v for k, v in lost.items() if k not in unknown} | {"total_flos": 0}


def test_the_made_state_is_written_as_the_trainer_writes_it(resumed):
    from transformers import TrainerState

    path = resumed.mnt / "full/f2-trainer_state" / CKPT / "trainer_state.json"
    text = path.read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    assert TrainerState.load_from_json(str(path)).global_step == 2


@pytest.mark.parametrize("view", ["full", "full-fsdp"])
def test_optimizer_and_scheduler_both_or_neither(resumed, view):
    for run in ("f2-scheduler", "f2-optimizer_0"):
        folder = resumed.mnt / view / run / CKPT
        assert not [n for n in names(folder) if n.startswith(("optimizer", "scheduler"))]
        assert "is hidden" in problems(folder)


def test_a_lost_optimizer_begins_anew_as_natively(resumed):
    assert resumed(0, "f2-optimizer_0") == resumed(0, "f2-scheduler")


def test_random_states_are_not_needed(resumed):
    assert resumed(0, "f2-rng_state_0") == resumed(1, "native-f2")
    assert "rng_state.pth" not in names(resumed.mnt / "full/f2-rng_state_0" / CKPT)
    assert "rng_state.pth" in names(resumed.mnt / "full/f2-rng_state_1" / CKPT)


# -- what is listed --

def test_what_full_lists(resumed):
    assert names(resumed.mnt / "full/f2" / CKPT) == [
        "model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt", "trainer_state.json"]
    origin = provenance(resumed.mnt / "full/f2" / CKPT)["files"]["rng_state.pth"]
    assert "rank 0" in origin["origin"] and origin["from"].endswith("rng_state_0.pth")


def test_what_full_fsdp_lists(resumed):
    assert names(resumed.mnt / "full-fsdp/f2" / CKPT) == [
        "optimizer.bin", "pytorch_model_fsdp.bin", "rng_state_0.pth", "rng_state_1.pth",
        "scheduler.pt", "trainer_state.json"]


@pytest.mark.parametrize("run", ["f1", "f2", "full", "plain", "f2-trainer_state"])
def test_full_has_nothing_that_a_plain_trainer_refuses(resumed, run):
    folder = resumed.mnt / "full" / run / CKPT
    assert not (folder / "pytorch_model_fsdp.bin").exists()
    assert not (folder / "pytorch_model_fsdp_0").exists()
    assert not (folder / "optimizer_0").exists()
    assert not [p for p in folder.iterdir()
                if p.is_dir() and ("optimizer" in p.name or "pytorch_model_fsdp" in p.name)]
    assert not [n for n in names(folder) if n.startswith("pytorch_model_fsdp")]


def test_a_plain_run_is_passed_through(resumed):
    for name in names(resumed.source / "plain" / CKPT):
        assert (resumed.mnt / "full/plain" / CKPT / name).read_bytes() == (
            resumed.source / "plain" / CKPT / name).read_bytes(), name


def test_a_plain_optimizer_has_no_fsdp_form(resumed, command):
    assert not (resumed.mnt / "full-fsdp/plain" / CKPT).exists()
    text = command("show", resumed.source / "plain" / CKPT, "--json", "-o", "store=none").stdout
    assert "numbers in place of names" in text and "model.extra_buf" in text


def test_random_states_can_be_hidden(resumed, mount):
    m = mount(resumed.source, "rng=hide", "store=none")
    for view in ("full", "full-fsdp", "dcp"):
        assert not [n for n in names(m / view / "f2" / CKPT) if n.startswith("rng")]
        assert not [n for n in names(m / view / "acc/state") if n.startswith("random")]


# -- facts --

def test_facts_by_option(resumed, mount):
    m = mount(resumed.source, "fact=train_batch_size=2", "fact=logging_steps=1", "store=none")
    folder = m / "full/f2-alone" / CKPT
    made = json.loads((folder / "trainer_state.json").read_text())
    assert made["train_batch_size"] == 2 and made["logging_steps"] == 1
    assert "train_batch_size = " not in problems(folder) and "save_steps = " in problems(folder)


def test_facts_from_the_store(resumed, mount, command, tmp_path):
    store = f"store={tmp_path / 'store.db'}"
    command("meta", "set", resumed.source / "f2-alone", "train_batch_size=16", "--store",
            tmp_path / "store.db")
    m = mount(resumed.source, store, "fact=save_steps=7")
    made = json.loads((m / "full/f2-alone" / CKPT / "trainer_state.json").read_text())
    assert made["train_batch_size"] == 16 and made["save_steps"] == 7


@pytest.mark.parametrize("fact,words", [
    ("train_batch_size=2.5", "an integer"), ("no_such_key=1", "not a key"),
    ("global_step", "KEY=VALUE"), ("logging_steps=0", "a positive number"),
    ("log_history=5", "a list"), ("epoch=x", "JSON")])
def test_a_wrong_fact_is_refused(made, mnt, command, fact, words):
    done = command("mount", made("r2", "f2") / "run", mnt, "-o", f"fact={fact},store=none",
                   check=False)
    assert done.returncode == 2 and words in done.stderr and fact.split("=")[0] in done.stderr


def test_a_disagreement_is_said(made, copied, mount):
    run = copied(made("r2", "f2") / "run")
    (run / CKPT).rename(run / "checkpoint-3")
    (run / "checkpoint-3/trainer_state.json").unlink()
    m = mount(run, "store=none")
    folder = m / "full/checkpoint-3"
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 3
    text = problems(folder)
    assert "by scheduler.pt (last_epoch) it is 2" in text and "by the optimizer's step it is 2" in text


def test_a_siblings_change_shows(made, copied, mount, eventually):
    run = copied(made("r2", "f2") / "run")
    (run / CKPT / "trainer_state.json").unlink()
    m = mount(run, "store=none", changing=True)
    path = m / "full" / CKPT / "trainer_state.json"
    assert json.loads(path.read_text())["train_batch_size"] == 2
    sibling = run / "checkpoint-4/trainer_state.json"
    state = json.loads(sibling.read_text())
    sibling.write_text(json.dumps(state | {"train_batch_size": 9}))
    eventually(lambda: json.loads(path.read_text())["train_batch_size"] == 9)
    sibling.unlink()
    eventually(lambda: json.loads(path.read_text())["train_batch_size"] == 8)
