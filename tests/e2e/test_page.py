"""`unshard show --html` and --svg: they say what `show --json` says, and no more can run in a page than its own script."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
import zipfile

import pytest
import safetensors.torch
import torch

from browser import Browser
from conftest import HERE, ROOT, UNSHARD, unshard
from test_names import as_loaded, build, saved_sharded

sys.path.insert(0, str(HERE / "make"))
import sparse_dcp  # noqa: E402

GOLDEN = ROOT / "tests/golden"
SAMPLES = ["run/checkpoint-2", "ranks/fsdp2", "ranks/orig", "zero/z2_w3/global_step2", "zero/z3_w2/global_step2",
           "zero/z2_w3/global_step2_universal", "rank_files/torch2.1.2", "dcp/megatron/iter_0000010"]
HOSTILE = ['</script><script>window.hurt = 1</script>', '<img src=x onerror="window.hurt = 1">.weight', "<!--<script>.weight",
           "a'\"`${window.hurt = 1}.weight"]
OPTIONS = ("-o", "settle=0,store=none")


def data_of(page):
    """What the page's script is given."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def page_of(command, checkpoint, *options):
    done = command("show", checkpoint, "--html", "-", *OPTIONS, *options, check=False)
    return done.stdout


def measured(command):
    """What a program writes, its seconds of processor time, and the most memory that it had, in bytes."""
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE)
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 or (command[0] == UNSHARD and process.returncode == 1), command
    return out.decode(), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def described(command, checkpoint):
    return json.loads(command("show", checkpoint, "--json", *OPTIONS, check=False).stdout)


def copy_of(name, tmp_path):
    """Of a checkpoint with the run around it, which no other test has mounted: the lines to write name a mount."""
    run = (GOLDEN / name).parent
    return shutil.copytree(run, tmp_path / run.name) / (GOLDEN / name).name


def placed(piece):
    """rank, file, where: as a piece of --json says it."""
    where = piece.get("box") or piece["range"]
    return piece["rank"], piece["file"], *[n for v in where.values() for n in (v if isinstance(v, list) else [v])]


@pytest.fixture
def hostile(tmp_path):
    folder = tmp_path / "hostile"
    folder.mkdir()
    safetensors.torch.save_file({name: torch.zeros(4, 4) for name in HOSTILE}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_has_what_json_has(command, name, tmp_path):
    path = copy_of(name, tmp_path)
    want = described(command, path)
    data = data_of(page_of(command, path))
    assert data["info"] == want["info"] and data["path"] == str(path)
    files, layouts = data["map"]["files"], data["map"]["layouts"]
    assert len(data["map"]["tensors"]) == len(want["tensors"]) > 0
    for found, tensor in zip(data["map"]["tensors"], want["tensors"]):
        for key in ("name", "key", "role", "state", "dtype", "shape"):
            assert found[key] == tensor[key]
        assert found["alias_of"] == tensor.get("alias_of")
        assert found["size"] == getattr(torch, tensor["dtype"]).itemsize
        pieces = [] if found["layout"] is None else layouts[found["layout"]]
        assert [(None if rank < 0 else rank, files[file]["path"], *where) for rank, file, *where in pieces] == \
            [placed(piece) for piece in tensor["pieces"]]
    assert len({json.dumps(layout) for layout in layouts}) == len(layouts)


def bytes_of(tensor):
    return tensor.contiguous().numpy().tobytes()


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen2_5_vl"])
def test_the_page_has_the_published_names(command, tmp_path, family):
    """Of each tensor that save_pretrained calls otherwise, or cuts: how many it makes of it, the first and the last. That they
    are parts of it is seen by their bytes, which are random."""
    model = as_loaded(build(family))
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "want")
    held, published = model.state_dict(), safetensors.torch.load_file(tmp_path / "want/model.safetensors")
    data = data_of(page_of(command, tmp_path / "src/ckpt"))
    names = {data["map"]["tensors"][i]["name"]: made for i, *made in data["names"]}
    kept = held.keys() - names.keys()
    assert {t["name"] for t in data["map"]["tensors"]} == held.keys() and kept <= published.keys()
    assert bool(names) == (family != "llama") and len(kept) + sum(n for n, *_ in names.values()) == len(published)
    for name, (n, *ends) in names.items():
        assert n * published[ends[0]].numel() == held[name].numel() and (n > 1) == (ends[0] != ends[1])
        for end in ends:
            assert end not in kept and bytes_of(published[end]) in bytes_of(held[name])


def test_the_page_has_the_training(command):
    state = json.loads(data_of(page_of(command, GOLDEN / "run/checkpoint-2"))["training"])
    assert state == json.loads((GOLDEN / "run/checkpoint-2/trainer_state.json").read_text())


def test_the_page_has_the_lines_of_a_mount(command, mount, tmp_path):
    checkpoint = copy_of("run/checkpoint-2", tmp_path)
    m = mount(checkpoint.parent)
    usage = data_of(page_of(command, checkpoint))["info"]["views"]["weights"]["usage"]
    assert f'"{m.path}/weights/checkpoint-2"' in usage


def test_names_cannot_become_markup(command, hostile):
    page = page_of(command, hostile)
    plain = page_of(command, GOLDEN / "run/checkpoint-2")
    for mark in ("<script", "</script", "<!--", "<img"):
        assert page.count(mark) == plain.count(mark)
    assert sorted(t["name"] for t in data_of(page)["map"]["tensors"]) == sorted(HOSTILE)


def test_the_page_needs_no_network(command):
    page = page_of(command, GOLDEN / "run/checkpoint-2")
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)


def test_the_file_is_whole_or_not_there(command, tmp_path):
    checkpoint = shutil.copytree(GOLDEN / "run", tmp_path / "run") / "checkpoint-2"
    out = tmp_path / "page.html"
    command("show", checkpoint, "--html", out, *OPTIONS)
    assert out.stat().st_mode & 0o777 == 0o666 & ~os.umask(os.umask(0o022))
    want = out.read_bytes()
    command("show", checkpoint, "--html", out, *OPTIONS)
    assert out.read_bytes() == want
    done = command("show", checkpoint, "--html", tmp_path / "none/page.html", *OPTIONS, check=False)
    assert "none/page.html: No such file or directory" in done.stderr
    before = sorted(p.name for p in checkpoint.iterdir())
    done = command("show", checkpoint, "--html", checkpoint / "page.html", *OPTIONS, check=False)
    assert f"page.html is in {checkpoint} itself" in done.stderr
    assert sorted(p.name for p in checkpoint.iterdir()) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "run"]


def test_a_damaged_checkpoint_has_a_page(command, tmp_path):
    checkpoint = shutil.copytree(GOLDEN / "run", tmp_path / "run") / "checkpoint-2"
    (checkpoint / "optimizer_0/__1_0.distcp").unlink()
    data = data_of(command("show", checkpoint, "--html", "-", *OPTIONS, check=False).stdout)
    assert [f["path"] for f in data["map"]["files"] if f["missing"]] == ["checkpoint-2/optimizer_0/__1_0.distcp"]
    assert data["info"]["problems"][0]["file"] == "checkpoint-2/optimizer_0/__1_0.distcp"
    other = shutil.copytree(GOLDEN / "dcp/ranks/ckpt", tmp_path / "ckpt")
    (other / ".metadata").write_bytes(b"no metadata")
    done = command("show", other, "--html", "-", *OPTIONS, check=False)
    assert done.returncode == 1 and data_of(done.stdout)["info"]["problems"]
    assert data_of(done.stdout)["map"].get("tensors", []) == []


def test_a_run_has_a_page(command, tmp_path):
    run = shutil.copytree(GOLDEN / "run", tmp_path / "run")
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-3")
    (run / "checkpoint-3/optimizer_0/__1_0.distcp").unlink()
    done = command("show", run, "--html", "-", *OPTIONS, check=False)
    listed = json.loads(command("ls", run, "--json", *OPTIONS, check=False).stdout)
    data = data_of(done.stdout)
    assert done.returncode == 1 and [row["path"] for row in data["run"]] == ["checkpoint-2", "checkpoint-3"]
    for row, want in zip(data["run"], listed):
        assert (row["step"], row["world_size"], row["bytes"], row["state"]) == \
            (want["step"], want["world_size"], want["size_bytes"], want["state"])
    assert json.loads(data["training"]) == json.loads((run / "checkpoint-2/trainer_state.json").read_text())
    done = command("show", ROOT / "docs", "--html", "-", *OPTIONS, check=False)
    assert done.returncode == 2 and "is not a checkpoint, and none is below it" in done.stderr


def test_a_page_of_70b_on_32_ranks_is_small(command, tmp_path):
    sparse_dcp.write(tmp_path / "src/ckpt", sparse_dcp.llama_70b(), 32, states=("exp_avg", "exp_avg_sq"), holes=True)
    done, seconds, _ = measured([UNSHARD, "show", tmp_path / "src/ckpt", "--html", "-", *OPTIONS])
    data = data_of(done)
    assert len(done) < 650_000 and len(data["map"]["tensors"]) == 3 * 723
    assert len(data["map"]["layouts"]) < 20
    assert seconds < 2, "processor time"


# -- other numbers of ranks --

WORLDS = ["zero/z2_w3/global_step2", "zero/z3_w2/global_step2", "rank_files/torch2.1.2", "ranks/fsdp2"]


@pytest.mark.parametrize("name", WORLDS)
def test_another_number_of_ranks_is_that_of_the_views_files(command, name, tmp_path):
    """What the page says of each file of world-3 is what the file itself has, record by record."""
    page = data_of(page_of(command, GOLDEN / name, "--world", "3,70"))
    assert [w["world"] for w in page["worlds"]] == [3, 70]
    command("export", GOLDEN / name, tmp_path / "out", "--view", "world-3", *OPTIONS)
    view = page["worlds"][0]["map"]
    assert sorted(f["path"] for f in view["files"]) == \
        sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file())
    held = {}
    for file in view["files"]:
        path = tmp_path / "out" / file["path"]
        assert path.stat().st_size == file["bytes"]
        if file["list"] is None:
            continue
        pairs = view["lists"][file["list"]]
        for tensor, n in zip(pairs[::2], pairs[1::2]):
            assert tensor >= -1
            held[tensor] = held.get(tensor, 0) + n
        with zipfile.ZipFile(path) as records:
            sizes = [r.file_size for r in records.infolist() if "/data/" in r.filename]
        if "_world_size_" in file["path"]:  # besides, the numbers of the mesh's ranks
            assert sorted(sizes) == sorted([*pairs[1::2], 3 * 4])
        else:
            assert sum(sizes) == sum(pairs[1::2])
    ends = [re.findall(r"rank_(\d+)", f["path"])[0] for f in page["worlds"][1]["map"]["files"] if f["list"] is not None]
    assert len(set(ends)) == 70 if "rank_files" in name or "fsdp2" in name else len(set(ends)) > 60
    for i, tensor in enumerate(page["map"]["tensors"]):  # a sharded tensor is whole, once
        if tensor["layout"] is not None and tensor["role"] in ("master", "exp_avg", "exp_avg_sq"):
            assert held[i] == math.prod(tensor["shape"]) * tensor["size"], tensor["name"]


def test_a_view_that_cannot_show_another_number_says_why(command, tmp_path):
    worlds = data_of(page_of(command, GOLDEN / "run/checkpoint-2", "--world", "4"))["worlds"]
    assert worlds == [{"world": 4, "why": "checkpoint-2 is not a DeepSpeed ZeRO checkpoint"}]
    for wrong in ("0", "65537", "2,", "-1", "2 3", "x"):
        done = command("show", GOLDEN / "run/checkpoint-2", "--html", tmp_path / "x", "--world", wrong, *OPTIONS, check=False)
        assert done.returncode == 2 and "--world" in done.stderr and not list(tmp_path.iterdir()), wrong
    done = command("show", GOLDEN / "run/checkpoint-2", "--world", "2", *OPTIONS, check=False)
    assert done.returncode == 2 and "--html" in done.stderr


# -- two checkpoints --

def two_models(tmp_path):
    """With experts, layers past nine, what only one has, another shape, a NaN, and hostile names."""
    generator = torch.Generator().manual_seed(5)
    for name in ("a", "b"):
        tensors = {"model.norm.weight": torch.ones(4), **{n: torch.zeros(2, 2) for n in HOSTILE}}
        for layer in (0, 2, 10):
            for module in ("self_attn.q_proj.weight", "mlp.experts.0.w1.weight", "mlp.experts.1.w1.weight"):
                tensors[f"model.layers.{layer}.{module}"] = torch.randn(6, 4, generator=generator)
        tensors["only." + name] = torch.ones(1)
        tensors["shape"] = torch.zeros(2, 3 if name == "a" else 4)
        if name == "b":
            tensors["model.layers.2.self_attn.q_proj.weight"][0, 0] = math.nan
        (tmp_path / name).mkdir()
        safetensors.torch.save_file(tensors, tmp_path / name / "model.safetensors")
        (tmp_path / name / "config.json").write_text(json.dumps({"name": name}))
    return tmp_path / "a", tmp_path / "b"


def relative(figures):
    if figures["not_finite_changed"]:
        return math.inf
    return figures["norm_difference"] / figures["norm_a"] if figures["changed"] else -1


@pytest.mark.parametrize("optimizer", [False, True])
def test_the_page_of_two_has_what_diff_has(command, optimizer, tmp_path):
    if optimizer:
        a = shutil.copytree(GOLDEN / "run", tmp_path / "run") / "checkpoint-2"
        b = shutil.copytree(a, tmp_path / "run/checkpoint-3")
        options = ("--optimizer", *OPTIONS)
    else:
        a, b = two_models(tmp_path)
        options = OPTIONS
    page = command("diff", a, b, "--html", "-", *options, check=False)
    done = command("diff", a, b, "--json", "--all", *options, check=False)
    assert page.returncode == done.returncode == 1
    assert data_of(page.stdout)["diff"] == json.loads(done.stdout)
    refused = command("diff", a, b, "--html", b / "page.html", *options, check=False)
    assert refused.returncode == 2 and "itself: name a file elsewhere" in refused.stderr and not (b / "page.html").exists()
    both = command("diff", a, b, "--html", tmp_path / "x.html", "--json", *options, check=False)
    assert both.returncode == 2 and not (tmp_path / "x.html").exists()


# -- one picture --

SVG = "{http://www.w3.org/2000/svg}"


def svg_of(command, checkpoint):
    return xml.etree.ElementTree.fromstring(command("show", checkpoint, "--svg", "-", *OPTIONS, check=False).stdout)


def bars_of(svg):
    """[(first rank, last rank, {(kind, part): bytes}, right end)]"""
    bars = {}
    for path in svg.iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is None:
            continue
        who, kind, part, n = re.fullmatch(r"(.*?): (.*), (weights|optimizer), (\d+) bytes", title.text).groups()
        row = bars.setdefault(who, [{}, 0])
        row[0][kind, part] = int(n)
        row[1] = max([row[1], *map(float, re.findall(r"H([\d.]+)v", path.get("d")))])
    for who, (held, end) in bars.items():
        ranks = [int(n) for n in re.findall(r"\d+", who)] or [None]
        yield ranks[0], ranks[-1], held, end


def held_by_rank(tensors):
    held = {}
    for tensor in tensors:
        size = getattr(torch, tensor["dtype"]).itemsize
        part = "weights" if tensor["role"] in ("weight", "buffer") else "optimizer"
        for piece in tensor["pieces"]:
            n = math.prod(piece["box"]["len"]) if "box" in piece else piece["range"]["count"]
            key = piece["rank"], part
            held[key] = held.get(key, 0) + n * size
    return held


@pytest.mark.parametrize("name", SAMPLES)
def test_a_picture_has_each_ranks_bytes(command, name):
    want = held_by_rank(described(command, GOLDEN / name)["tensors"])
    found, ends = {}, {}
    for first, last, held, end in bars_of(svg_of(command, GOLDEN / name)):
        for rank in range(first, last + 1) if first is not None else [None]:
            for (_, part), n in held.items():
                found[rank, part] = found.get((rank, part), 0) + n
            ends[rank] = end
    assert found == want
    sums = {rank: sum(n for (r, _), n in want.items() if r == rank) for rank in ends}
    scale = max(ends.values()) - 118
    for rank, end in ends.items():
        assert abs(end - 118 - scale * sums[rank] / max(sums.values())) <= 0.2


def test_a_picture_shows_what_is_missing(command, tmp_path):
    checkpoint = shutil.copytree(GOLDEN / "run", tmp_path / "run") / "checkpoint-2"
    before = {(f, k): n for f, _, held, _ in bars_of(svg_of(command, checkpoint)) for k, n in held.items()}
    assert not any(kind.startswith("missing") for _, (kind, _) in before)
    (checkpoint / "optimizer_0/__1_0.distcp").unlink()
    svg = svg_of(command, checkpoint)
    after = {(f, k): n for f, _, held, _ in bars_of(svg) for k, n in held.items()}
    assert after[1, ("missing, or named by a problem", "optimizer")] == \
        sum(n for (f, (_, part)), n in before.items() if f == 1 and part == "optimizer")
    assert "missing: checkpoint-2/optimizer_0/__1_0.distcp" in [t.text for t in svg.iter(f"{SVG}text")]


@pytest.mark.parametrize("layers", [4, pytest.param(80, marks=pytest.mark.long)])
def test_a_picture_of_512_ranks_is_small(command, layers, tmp_path):
    shapes = sparse_dcp.llama(8192, 28672, layers)
    sparse_dcp.write(tmp_path / "src/ckpt", shapes, 512, states=("exp_avg", "exp_avg_sq"))
    done = command("show", tmp_path / "src/ckpt", "--svg", "-", *OPTIONS, check=False)
    assert len(done.stdout) < 100_000
    bars = [(first, last) for first, last, *_ in bars_of(xml.etree.ElementTree.fromstring(done.stdout))]
    assert len(bars) < 5 and [r for first, last in bars for r in range(first, last + 1)] == list(range(512))


def test_a_picture_is_safe(command, hostile, tmp_path):
    odd = hostile.rename(tmp_path / "<script>&'\x01\"")
    svg = svg_of(command, odd)
    assert svg.find(f"{SVG}title").text.endswith("/<script>&'?\"") and not list(svg.iter(f"{SVG}script"))
    done = command("show", GOLDEN, "--svg", "-", *OPTIONS, check=False)
    assert done.returncode == 2 and "is not a checkpoint: --svg draws one" in done.stderr


# -- in a browser --

@pytest.fixture(scope="module")
def browser():
    b = Browser()
    yield b
    b.end()


OPEN_THE_TREE = """for (let i = 0; i < 50; i++) document.querySelectorAll('#modules details:not([open])').forEach((d) => {
    d.open = true; d.dispatchEvent(new Event('toggle')); })"""


def opened(browser, command, checkpoint, tmp_path):
    out = tmp_path / "page.html"
    command("show", checkpoint, "--html", out, *OPTIONS, check=False)
    browser.console()
    browser.open(out)
    return described(command, checkpoint)


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLES)
def test_a_browser_shows_the_numbers(browser, command, name, tmp_path):
    want = opened(browser, command, copy_of(name, tmp_path), tmp_path)
    assert browser.console() == []
    facts = dict(browser.run("return [...document.querySelectorAll('header .facts div')].map((d) => "
                             "[d.querySelector('span').textContent, d.querySelector('b').textContent])"))
    info = want["info"]
    assert facts["weights"].startswith(f"{info['weights']:,} tensor") and facts["on disk"].startswith(f"{info['files'] - info['files_borrowed']:,} file")
    for key, label in (("step", "step"), ("world_size", "ranks")):
        assert facts.get(label) == (None if info[key] is None else str(info[key]))
    lines = browser.run("return [...document.querySelectorAll('#load .card code')].map((c) => c.textContent)")
    ok = {v["usage"] for v in info["views"].values() if v["state"] == "ok"}
    assert lines and set(lines) <= ok
    reads = [(name, i, r) for name, v in info["views"].items() if v["state"] == "ok" for i, r in enumerate(v.get("resume", []))]
    columns = [k for k in ("trainer", "files") if any(r[k] for _, _, r in reads)]
    resumes = browser.run("return [...document.querySelectorAll('#resume tbody tr')].map((r) => "
                          "[...r.cells].map((c) => c.textContent))")
    assert resumes == [[*([] if i else [name]), *([r["trainer"] or ""] if "trainer" in columns else []), r["part"],
                        *([r["files"] or ""] if "files" in columns else []), "restored" if r["found"] else
                        "absent: " + "; ".join(r[k] for k in ("without", "unshard") if r[k])] for name, i, r in reads]
    held = {}
    for tensor in want["tensors"]:
        size = getattr(torch, tensor["dtype"]).itemsize
        for piece in tensor["pieces"]:
            n = math.prod(piece["box"]["len"]) if "box" in piece else piece["range"]["count"]
            held[piece["rank"]] = held.get(piece["rank"], 0) + n * size
    shown = browser.run("return [...document.querySelectorAll('#map tbody tr')].map((r) => "
                        "[r.cells[0].textContent, Number(r.cells[2].textContent.replaceAll(',', ''))])")
    assert dict(shown) == {"no rank known" if rank is None else f"rank {rank}": n for rank, n in held.items()}


@pytest.mark.long
def test_a_browser_shows_each_damaged_file(browser, command, tmp_path):
    """One that is missing, and one that is truncated, of three ranks: both are red, both are named."""
    run = shutil.copytree(GOLDEN / "older/accelerate0.29.3-torch2.2.2_f1_sh_w3/run", tmp_path / "run")
    (run / "ckpt/pytorch_model_fsdp_0/__1_0.distcp").unlink()
    os.truncate(run / "ckpt/pytorch_model_fsdp_0/__2_0.distcp", 10)
    opened(browser, command, run / "ckpt", tmp_path)
    assert browser.run("return document.querySelector('section').id") == "problems"
    wrong = browser.run("return [...document.querySelectorAll('#problems .problem b')].map((b) => b.parentNode.querySelector('code').textContent)")
    assert wrong == ["shard_missing", "shard_cut"]
    files = browser.run("return [...document.querySelectorAll('#tensor tbody tr')].map((r) => r.cells[3].textContent)")
    at = "ckpt/pytorch_model_fsdp_0"
    assert files == [f"{at}/__0_0.distcp", f"{at}/__1_0.distcp (missing)", f"{at}/__2_0.distcp (truncated)"]
    red = browser.run("""const c = document.querySelector('#map canvas'), context = c.getContext('2d');
        const column = context.getImageData(108, 0, 1, c.height).data;
        return [0, 1, 2].map((i) => [...column.slice(4 * (7 + i * 24), 4 * (8 + i * 24))].join())""")
    assert red[0] != "208,0,0,255" and red[1:] == ["208,0,0,255"] * 2
    assert browser.console() == []


@pytest.mark.long
def test_keys_alone_reach_every_tensor(browser, command, tmp_path):
    want = opened(browser, command, GOLDEN / "run/checkpoint-2", tmp_path)
    for _ in range(80):
        if browser.run("return document.activeElement.tagName") == "CANVAS":
            break
        browser.press("Tab")
    assert browser.run("return document.activeElement.tagName") == "CANVAS"
    names = [t["name"] for t in want["tensors"] if t["role"] == "weight"]
    said = []
    for _ in names:
        browser.press("ArrowRight")
        said.append(browser.run("return document.querySelector('[aria-live]').textContent"))
    assert [text.split(": ")[1].split(",")[0] for text in said] == names
    browser.press("Enter")
    assert browser.run("return document.activeElement.textContent") == names[-1]
    rows = browser.run("return [...document.querySelectorAll('#tensor tbody tr')].map((r) => r.cells[3].textContent)")
    assert rows == [piece["file"] for t in want["tensors"] if t["name"] == names[-1] and t["role"] == "weight"
                    for piece in t["pieces"]]
    assert browser.console() == []


@pytest.mark.long
def test_a_browser_shows_each_name_beside_the_others(browser, command, tmp_path):
    """The name in memory, the published one, and what the trainer called it."""
    saved_sharded(as_loaded(build("mixtral")), tmp_path / "src")
    opened(browser, command, tmp_path / "src/ckpt", tmp_path)
    browser.run(OPEN_THE_TREE)
    leaves = browser.run("return [...document.querySelectorAll('#modules .leaf')].map((e) => e.textContent)")
    data = data_of((tmp_path / "page.html").read_text())
    names = {data["map"]["tensors"][i]["name"]: made for i, *made in data["names"]}
    experts = [n for n in names if n.startswith("model.layers.0.") and "experts" in n]
    assert len(experts) == 2
    for name in experts:
        n, first, last = names[name]
        leaf, = (text for text in leaves if first in text)
        assert leaf.startswith(name.split(".")[-1]) and f"published as {first} to {last} ({n})" in leaf
        assert leaf.endswith(f"{n})") and "saved as" not in leaf  # which is said once, of all
        browser.run(f"const f = document.querySelector('#modules input'); f.value = {json.dumps(last)};"
                    "f.dispatchEvent(new Event('input')); document.querySelector('#modules .tools + .tree .leaf').click()")
        assert browser.run("return document.querySelector('#tensor h3').textContent") == name
        panel = browser.run("return document.querySelector('#tensor').textContent")
        assert f"published as {first} to {last} ({n})" in panel and f"saved as model.{name}" in panel
    norm, = (text for text in leaves if text.startswith("norm.weight"))
    assert "published as" not in norm
    assert "saved each name with model. in front" in browser.run("return document.querySelector('#modules').textContent")
    assert browser.console() == []


@pytest.mark.long
def test_a_browser_shows_hostile_names_as_text(browser, command, hostile, tmp_path):
    opened(browser, command, hostile, tmp_path)
    browser.run(OPEN_THE_TREE)
    for i in range(len(HOSTILE)):
        browser.run(f"document.querySelectorAll('#modules .leaf')[{i}].click()")
    assert browser.run("return window.hurt === undefined && document.querySelectorAll('img').length === 0")
    assert browser.run("return document.querySelector('#tensor h3').textContent") in HOSTILE
    assert browser.console() == []


@pytest.mark.long
def test_a_browser_shows_a_run(browser, command, tmp_path):
    command("show", GOLDEN, "--html", tmp_path / "page.html", *OPTIONS, check=False)
    browser.console()
    browser.open(tmp_path / "page.html")
    rows = browser.run("return [...document.querySelectorAll('#checkpoints tbody tr')].map((r) => "
                       "[[...r.cells[0].childNodes].map((n) => n.textContent).join('|'), r.cells[6].textContent])")
    listed = json.loads(command("ls", GOLDEN, "--json", *OPTIONS, check=False).stdout)
    assert rows == [["|".join(filter(None, [row["path"], row["problem"]])), row["state"]] for row in listed]
    assert {"ok", "damaged"} <= {state for _, state in rows}
    assert browser.console() == []


@pytest.mark.long
def test_a_page_of_runs_marks_the_checkpoints_of_one(browser, command, tmp_path):
    """That whose curves are drawn: a line for each of its checkpoints, a red one for what is damaged, none for another run's."""
    for run, steps in (("a", (2, 4, 6)), ("b", (3,))):
        for step in steps:
            at = shutil.copytree(GOLDEN / "run/checkpoint-2", tmp_path / f"runs/{run}/checkpoint-{step}")
            log = [{"step": n, "loss": 1 / n} for n in range(1, step + 1)]
            (at / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": log}))
    (tmp_path / "runs/a/checkpoint-4/pytorch_model_fsdp_0/__1_0.distcp").unlink()
    browser.console()
    command("show", tmp_path / "runs", "--html", tmp_path / "page.html", *OPTIONS, check=False)
    browser.open(tmp_path / "page.html")
    assert browser.run("return document.querySelector('#training .name').textContent") == "a/checkpoint-6"
    marks = browser.run("return [...document.querySelectorAll('#training .mark')].map((m) => "
                        "[parseFloat(m.getAttribute('d').split(' ')[1]), m.classList.contains('bad')])")
    assert marks == [[60.0, False], [180.0, True], [300.0, False]]
    assert browser.console() == []


@pytest.mark.long
def test_a_browser_shows_other_numbers_of_ranks(browser, command, tmp_path):
    command("show", GOLDEN / "zero/z2_w3/global_step2", "--html", tmp_path / "page.html", "--world", "2,5", *OPTIONS)
    browser.console()
    browser.open(tmp_path / "page.html")
    tables = browser.run("return [...document.querySelectorAll('#worlds figure')].map((f) => [f.querySelector('b').textContent,"
                         " [...f.querySelectorAll('tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))])")
    assert [title for title, _ in tables] == ["as saved", "world-2", "world-5"]
    worlds = data_of((tmp_path / "page.html").read_text())["worlds"]
    for (_, rows), world in zip(tables[1:], worlds):
        want = {}
        for file in world["map"]["files"]:
            if file["list"] is not None:
                rank = re.search(r"zero_pp_rank_(\d+)", file["path"])
                who = f"rank {rank[1]}" if rank else file["path"]
                want[who] = want.get(who, 0) + sum(world["map"]["lists"][file["list"]][1::2])
        assert {who: int(n.replace(",", "")) for who, n in rows} == want
    assert browser.console() == []


@pytest.mark.long
def test_a_browser_shows_two_models(browser, command, tmp_path):
    a, b = two_models(tmp_path)
    command("diff", a, b, "--html", tmp_path / "page.html", *OPTIONS, check=False)
    browser.console()
    browser.open(tmp_path / "page.html")
    diff = data_of((tmp_path / "page.html").read_text())["diff"]
    tables = browser.run("return [...document.querySelectorAll('.heatmap')].map((t) => [...t.rows].map((r) => "
                         "[...r.cells].map((c) => c.textContent)))")
    by_name = {t["name"]: t for t in diff["tensors"]}

    def shown(text):
        return {"=": -1, "∞": math.inf}.get(text) or float(text)

    layers, alone, experts = tables
    assert [row[0] for row in layers[1:]] == ["model.layers.0", "model.layers.2", "model.layers.10"]
    q = layers[0].index("self_attn.q_proj.weight")
    for row in layers[1:]:
        want = relative(by_name[f"{row[0]}.self_attn.q_proj.weight"])
        assert shown(row[q]) == pytest.approx(want, rel=0.06)
        parts = [by_name[f"{row[0]}.mlp.experts.{e}.w1.weight"] for e in (0, 1)]
        want = math.hypot(*[p["norm_difference"] for p in parts]) / math.hypot(*[p["norm_a"] for p in parts])
        assert shown(row[layers[0].index("mlp.experts.*.w1.weight")]) == pytest.approx(want, rel=0.06)
    assert {row[0]: row[1] for row in alone[1:]} == {"model.norm.weight": "=", "shape": "shape", "only.a": "only in A",
                                                     "only.b": "only in B", **dict.fromkeys(HOSTILE, "=")}
    assert experts[0] == ["layer", "0", "1"] and [r[0] for r in experts[1:]] == [f"model.layers.{n}.mlp.experts" for n in (0, 2, 10)]
    for row in experts[1:]:
        for e in (0, 1):
            want = relative(next(x for x in diff["experts"] if x["name"] == f"{row[0]}.{e}"))
            assert shown(row[1 + e]) == pytest.approx(want, rel=0.06)
    largest = browser.run("return [...document.querySelectorAll('#largest tbody tr')].map((r) => r.cells[0].textContent)")
    assert set(largest) == {t["name"] for t in diff["tensors"] if t["kind"] != "equal"}
    assert set(largest[:4]) == {"model.layers.2.self_attn.q_proj.weight", "only.a", "only.b", "shape"}
    assert browser.run("return window.hurt === undefined && document.querySelectorAll('img').length === 0")
    assert browser.console() == []


@pytest.mark.long
def test_a_browser_colours_param_groups(browser, command, tmp_path):
    want = opened(browser, command, GOLDEN / "zero/z2_w3/global_step2", tmp_path)
    groups = sorted({t["group"] for t in data_of((tmp_path / "page.html").read_text())["map"]["tensors"] if t["group"] >= 0})
    assert len(groups) == 2 and want["info"]["weights"]
    picture = "return document.querySelector('#map canvas').toDataURL()"
    legend = "return [...document.querySelectorAll('#map .legend span')].map((s) => s.textContent)"
    toggle = "[...document.querySelectorAll('#map button')].find((b) => b.textContent === 'param groups as colours').click();"
    browser.run(toggle + toggle)  # the first drawing was made before the page had its width
    before = browser.run(picture), browser.run(legend)
    browser.run(toggle)
    assert browser.run(legend) == [*[f"param group {g}" for g in groups], "in no param group"]
    assert browser.run(picture) != before[0]
    browser.run(toggle)
    assert (browser.run(picture), browser.run(legend)) == before
    assert browser.console() == []


@pytest.mark.long
def test_a_browser_shows_values(browser, command, tmp_path):
    checkpoint = GOLDEN / "zero/z2_w3/global_step2"
    command("show", checkpoint, "--html", tmp_path / "page.html", "--values", *OPTIONS)
    want = json.loads(command("show", checkpoint, "--values", "--json", *OPTIONS).stdout)["values"]
    browser.console()
    browser.open(tmp_path / "page.html")
    assert data_of((tmp_path / "page.html").read_text())["values"] == want
    facts = dict(browser.run("return [...document.querySelectorAll('#values .facts div')].map((d) => "
                             "[d.querySelector('span').textContent, d.querySelector('b').textContent])"))
    assert facts["elements read"] == f"{sum(v['elements'] for v in want):,}"
    kinds = list(dict.fromkeys(v["state"] or v["role"] for v in want))
    for button in browser.run("return [...document.querySelectorAll('#values button')].map((b) => b.textContent)"):
        browser.run(f"[...document.querySelectorAll('#values button')].find((b) => b.textContent === {json.dumps(button)}).click()")
        rows = browser.run("return [...document.querySelector('#values .heatmap').rows].map((r) => [...r.cells].map((c) => c.textContent))")
        if button == "root mean square":
            assert rows[0] == ["layer", *kinds] and rows[1][0] == "(no layer)"
            for kind, text in zip(kinds, rows[1][1:]):
                of = [v for v in want if (v["state"] or v["role"]) == kind]
                value = math.sqrt(sum(v["norm"] ** 2 for v in of) / sum(v["elements"] for v in of))
                assert float(text) == pytest.approx(value, rel=0.06)
    update = math.sqrt(sum(v["update_norm"] ** 2 for v in want if v["update_norm"] is not None))
    weight = math.sqrt(sum(v["norm"] ** 2 for v in want if v["role"] == "master"))
    assert float(rows[1][1]) == pytest.approx(update / weight, rel=0.06)
    assert browser.console() == []


@pytest.mark.long
def test_a_browser_draws_70b_at_once(browser, command, tmp_path):
    sparse_dcp.write(tmp_path / "src/ckpt", sparse_dcp.llama_70b(), 512, states=("exp_avg", "exp_avg_sq"), holes=True)
    opened(browser, command, tmp_path / "src/ckpt", tmp_path)
    assert (tmp_path / "page.html").stat().st_size < 5_000_000
    assert browser.run("return document.querySelectorAll('#map tbody tr').length") == 512
    assert browser.run("const c = document.querySelector('#map canvas'); const p = c.getContext('2d').getImageData("
                       "c.width / 2, 10, 1, 1).data; return p[3]") == 255
    assert browser.console() == []


@pytest.mark.long
def test_405b_on_512_ranks_with_its_optimizer(browser, tmp_path):
    """1.7 million pieces. Page, time and memory against those of torch, which only reads the metadata; scrolling and zooming
    against a page of two ranks and twelve tensors, in processor time."""
    made = tmp_path / "src/ckpt"
    program = ("import sys; sys.path.insert(0, sys.argv[1]); import sparse_dcp;"
               "sparse_dcp.write(sys.argv[2], sparse_dcp.llama_405b(), 512, states=('exp_avg', 'exp_avg_sq'), holes=True)")
    subprocess.run([sys.executable, "-c", program, HERE / "make", made], check=True)
    read = "import sys; from torch.distributed.checkpoint import FileSystemReader as R; len(sys.argv) > 1 and R(sys.argv[1]).read_metadata()"
    _, nothing_s, nothing_bytes = measured([sys.executable, "-c", read])
    _, torch_s, torch_bytes = measured([sys.executable, "-c", read, made])
    _, seconds, memory = measured([UNSHARD, "show", made, "--html", tmp_path / "page.html", *OPTIONS])
    assert (tmp_path / "page.html").stat().st_size < min(1_050_000, (made / ".metadata").stat().st_size / 100)
    assert seconds < torch_s - nothing_s and memory < torch_bytes - nothing_bytes
    large = frames_of(browser, tmp_path / "page.html")
    assert browser.run("return document.querySelectorAll('#map tbody tr').length") == 512
    unshard("show", GOLDEN / "run/checkpoint-2", "--html", tmp_path / "small.html", *OPTIONS)
    small = frames_of(browser, tmp_path / "small.html")
    for what, s in large.items():
        assert s < 1 / 60 and s < 8 * max(small[what], 0.001), f"{what}: {s * 1000:.1f} ms a frame, {small[what] * 1000:.1f} ms on a small page"
    print(f"{seconds:.1f} s and {memory / 1e6:.0f} MB; torch {torch_s - nothing_s:.1f} s and {(torch_bytes - nothing_bytes) / 1e6:.0f} MB;",
          {what: f"{s * 1000:.1f} ms" for what, s in large.items()})
    assert browser.console() == []


def frames_of(browser, page):
    """Processor time for each frame while the bars of all ranks are scrolled, and zoomed to a millionth and back."""
    browser.sized(1280)
    browser.console()
    browser.open(page)
    press(browser, "everything")
    if browser.run("return [...document.querySelectorAll('#map button')].some((b) => b.textContent === 'ranks that are alike as one' &&"
                   " b.getAttribute('aria-pressed') === 'true')"):
        press(browser, "ranks that are alike as one")
    x, y, _ = middle_of_map(browser)
    scroll = {"x": x, "y": y, "speed": 3000}
    return {"scrolling": browser.frames(lambda: browser.tool("Input.synthesizeScrollGesture", yDistance=-3000, **scroll)),
            "zooming": browser.frames(lambda: [wheel(browser, x, y, by) for by in [-100] * 20 + [100] * 20])}


def press(browser, text):
    browser.run(f"[...document.querySelectorAll('#map button')].find((b) => b.textContent === {json.dumps(text)}).click()")


def middle_of_map(browser):
    """x, y, width of the bars"""
    browser.run("document.querySelector('#map').scrollIntoView()")
    left, top, width, height = browser.run("const r = document.querySelector('.map').getBoundingClientRect();"
                                           "return [r.left, r.top, r.width, r.height]")
    return left + width / 2, top + height / 2, width


def wheel(browser, x, y, by):
    """With Ctrl."""
    browser.tool("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by, modifiers=2)


@pytest.mark.long
def test_bars_are_zoomed_and_moved(browser, command, tmp_path):
    """By wheel and keys, what is under the pointer stays there; dragged, it moves along."""
    browser.sized(1280)
    opened(browser, command, GOLDEN / "run/checkpoint-2", tmp_path)
    x, y, width = middle_of_map(browser)
    move = {"type": "mouseMoved", "y": y}

    def under(at):
        browser.tool("Input.dispatchMouseEvent", x=at, **move)
        return browser.run("return document.querySelector('.tip').textContent.split(',')[0]")

    def seen():
        """The two bytes that are the ends of what is seen, of how many."""
        browser.run("return new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")
        text = browser.run("return document.querySelector('#map .tools .quiet').textContent")
        units = {"B": 1, "kB": 1000}
        return [float(n) * units[u] for n, u in re.findall(r"([\d.]+) (k?B)", text)]

    before = under(x)
    assert before.startswith("rank 1: ") and seen() == []
    wheel(browser, x, y, -400)
    assert under(x) == before
    low, high, whole = seen()
    assert (high - low) / whole == pytest.approx(1 / 4, rel=0.05)
    browser.tool("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
    for at in range(0, 101, 20):
        browser.tool("Input.dispatchMouseEvent", x=x + at, button="left", buttons=1, **move)
    browser.tool("Input.dispatchMouseEvent", type="mouseReleased", x=x + 100, y=y, button="left", clickCount=1)
    assert under(x + 100) == before
    assert seen()[0] == pytest.approx(low - 100 * (high - low) / (width - 112), abs=110)  # as printed, to 0.1 kB
    press(browser, "whole")
    assert seen() == []
    browser.run("document.querySelector('#map canvas').focus()")
    browser.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": [
        {"type": kind, "value": "+"} for kind in ("keyDown", "keyUp")]}]})
    low, high, whole = seen()
    assert (high - low) / whole == pytest.approx(1 / 2, rel=0.05) and browser.console() == []


@pytest.mark.long
def test_ranks_that_are_alike_are_one_bar(browser, command, tmp_path):
    sparse_dcp.write(tmp_path / "src/ckpt", {"a.weight": (131, 8), "b.weight": (66, 4)}, 66, holes=True)
    opened(browser, command, tmp_path / "src/ckpt", tmp_path)
    rows = "return document.querySelector('#map .tall').clientHeight"
    folded = browser.run(rows)
    browser.run("document.querySelector('#map canvas').focus()")
    browser.press("ArrowRight")
    said = "return document.querySelector('[aria-live]').textContent"
    assert browser.run(said).startswith("ranks 0 to 64: a.weight, 32 B of")
    browser.press("ArrowDown")
    assert browser.run(said).startswith("rank 65: a.weight, 16 B of")
    press(browser, "ranks that are alike as one")
    assert (browser.run(rows) - 4) / (folded - 4) == 66 / 2 and browser.console() == []


# Of every element that has a text of its own and is seen: contrast of the text with what is behind it.
CONTRASTS = """
const light = (c) => c.slice(0, 3).map((v) => (v > 10 ? ((v / 255 + 0.055) / 1.055) ** 2.4 : v / 255 / 12.92))
    .reduce((n, v, i) => n + v * [0.2126, 0.7152, 0.0722][i], 0.05);
const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
const behind = (e) => { const c = numbers(getComputedStyle(e).backgroundColor); return c[3] === 0 ? behind(e.parentElement) : c; };
return [...document.querySelectorAll("body *:not(script)")].filter((e) => e.getClientRects().length
    && [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim())).map((e) => {
    const two = [light(numbers(getComputedStyle(e).color)), light(behind(e))];
    return [Math.max(...two) / Math.min(...two), e.textContent.slice(0, 40)];
});"""


@pytest.mark.long
def test_every_page_fits_its_window_and_can_be_read(browser, command, tmp_path):
    """On a telephone and a desk, in light and dark: nothing is wider than the window, and texts have WCAG's contrast of 4.5."""
    damaged = shutil.copytree(GOLDEN / "run", tmp_path / "run")
    (damaged / "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp").unlink()
    a, b = tmp_path / "a", tmp_path / "b"
    for folder, far in ((a, 0), (b, 1)):  # changes from a millionth to all of it
        folder.mkdir()
        layers = {f"model.layers.{i}.w": torch.ones(4) + far * 10 ** (-i / 5) for i in range(31)}
        safetensors.torch.save_file(layers | {"model.layers.31.w": torch.full((4,), math.nan if far else 1.0)}, folder / "model.safetensors")
    command("diff", a, b, "--html", tmp_path / "diff.html", *OPTIONS, check=False)
    for name, *options in ((GOLDEN / "zero/z2_w3/global_step2", "--values", "--world", "2,5"), (damaged,), (damaged / "checkpoint-2",),
                           (GOLDEN / "run/checkpoint-2", "--values")):
        command("show", name, "--html", tmp_path / f"{len(list(tmp_path.glob('*.html')))}.html", *options, *OPTIONS, check=False)
    for page in tmp_path.glob("*.html"):
        for width in (390, 1280):
            browser.sized(width)
            browser.open(page)
            assert browser.run("return document.documentElement.scrollWidth") <= width, page.name
            for scheme in ("light", "dark"):
                browser.media("", prefers_color_scheme=scheme)
                texts = browser.run(CONTRASTS)
                assert len(texts) > 20 and [t for t in texts if t[0] < 4.5] == [], (page.name, scheme)
    browser.media("")
    assert browser.console() == []


# -- the structure in a few lines --

def pasted(browser):
    """The lines, as the button copies them."""
    return browser.run("return document.querySelector('#fingerprint pre').textContent").split("\n")


def named(folder, names):
    folder.mkdir()
    safetensors.torch.save_file({name: torch.zeros(2, 3) for name in names}, folder / "model.safetensors")
    return folder


FEW = ["model.norm.weight", *(f"model.layers.{i}.up.weight" for i in range(4))]
NAMES = {"5": FEW, "300": [f"model.layers.{i // 10}.m{i % 10}.weight" for i in range(300)],
         "23000": [f"block{i % 50}.m{i // 50 % 23}.part{i // 1150}.weight" for i in range(23000)],
         "odd": [f"{'long' * 500}{i}\n\u2028\rline.{i}.weight" for i in range(30)]}


@pytest.mark.long
@pytest.mark.parametrize("names", NAMES)
def test_what_is_pasted_is_short(browser, command, names, tmp_path):
    """Whatever the checkpoint: 12 lines of 200 characters at most, and nothing that is only of this machine."""
    opened(browser, command, named(tmp_path / "here", NAMES[names]), tmp_path)
    lines = pasted(browser)
    assert 8 <= len(lines) <= 12 and max(map(len, lines)) <= 200, lines
    assert f"{len(NAMES[names]):,} tensors, {6 * len(NAMES[names]):,} elements" in lines[3] and "here" not in "\n".join(lines)
    page = tmp_path / "page.html"
    many = json.dumps([{"id": f"made_up_{i % 40}", "text": "x", "severity": "problem"} for i in range(4000)])
    page.write_text(re.sub(r'"problems":\[.*?\]', lambda _: f'"problems":{many}', page.read_text(), count=1, flags=re.DOTALL))
    browser.open(page)
    last = pasted(browser)[-1]
    assert last.startswith("problems   made_up_0 ×100, ") and last.endswith(" and 34 more") and len(last) <= 200
    assert browser.console() == []


@pytest.mark.long
def test_what_is_pasted_names_the_structure(browser, command, tmp_path):
    """Equal structures have the same number; another name, shape or dtype has another."""
    seen = []
    for i, changed in enumerate(({}, {}, {"x": torch.zeros(1)}, {FEW[0]: torch.zeros(3, 2)}, {FEW[0]: torch.zeros(2, 3).half()})):
        folder = tmp_path / str(i)
        folder.mkdir()
        safetensors.torch.save_file({name: torch.full((2, 3), float(i)) for name in FEW} | changed, folder / "model.safetensors")
        opened(browser, command, folder, tmp_path)
        seen.append(re.search(r"structure ([0-9a-f]{16})$", pasted(browser)[0])[1])
    assert seen[0] == seen[1] and len(set(seen)) == 4


# -- on paper --

SHOWN = """return [...document.querySelectorAll(%s)].filter((e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden')
    .map((e) => e.textContent)"""


def shown(browser, selector):
    """The texts of those elements that are seen."""
    return browser.run(SHOWN % json.dumps(selector))


@pytest.mark.long
@pytest.mark.parametrize("name", ["run/checkpoint-2", "zero/z2_w3/global_step2"])
def test_paper_has_no_controls_and_all_that_was_folded(browser, command, name, tmp_path):
    want = described(command, GOLDEN / name)
    command("show", GOLDEN / name, "--html", tmp_path / "page.html", "--values", *OPTIONS, check=False)
    browser.console()
    browser.open(tmp_path / "page.html")
    controls = "nav, button, input, .tools, .screen"
    assert len(shown(browser, controls)) > 10
    before = browser.run("return document.querySelectorAll('details[open]').length")
    browser.run("window.seen = null; addEventListener('beforeprint', () => { const root = document.documentElement; window.seen = {"
                "closed: document.querySelectorAll('details:not([open])').length, printing: root.classList.contains('printing'),"
                "leaves: [...document.querySelectorAll('#modules .leaf .row > .name')].map((e) => e.textContent)}; })")
    assert browser.print().startswith(b"%PDF-")
    seen = browser.run("return window.seen")
    names = [t["name"] for t in want["tensors"] if t["role"] in ("weight", "buffer")]
    assert seen["closed"] == 0 and seen["printing"] and {n.split(".")[-1] for n in names} == {n.split(".")[-1] for n in seen["leaves"]}
    assert all(any(n.endswith(leaf) for n in names) for leaf in seen["leaves"])
    assert browser.run("return document.querySelectorAll('details[open]').length") == before
    assert browser.run("return !document.documentElement.classList.contains('printing')")
    browser.media("print")
    try:
        assert shown(browser, controls) == []
        assert len(shown(browser, "h1, h2, .card, canvas, .heatmap, .chart")) > 10
        assert browser.run("return [...document.querySelectorAll('.map, .wideTable')].every((e) => getComputedStyle(e).overflow ==="
                           " 'visible' && e.scrollHeight <= e.clientHeight + 1)")
    finally:
        browser.media("")
    assert browser.console() == []


@pytest.mark.long
def test_paper_is_white_in_the_dark(browser, command, tmp_path):
    """The colours of texts and canvases are those of a light page while it is printed."""
    opened(browser, command, GOLDEN / "run/checkpoint-2", tmp_path)
    paper = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    picture = "return document.querySelector('#map canvas').toDataURL()"
    events = "dispatchEvent(new Event('%s'));"
    browser.media("", prefers_color_scheme="light")
    try:
        browser.run("dispatchEvent(new Event('resize'))")
        light = browser.run(paper), browser.run(picture)
        browser.media("", prefers_color_scheme="dark")
        browser.run("dispatchEvent(new Event('resize'))")
        dark = browser.run(paper), browser.run(picture)
        assert light[0] != dark[0] and light[1] != dark[1]
        browser.run(events % "beforeprint")
        assert (browser.run(paper), browser.run(picture)) == light
        browser.run(events % "afterprint")
        assert (browser.run(paper), browser.run(picture)) == dark
    finally:
        browser.media("")


@pytest.mark.long
def test_paper_has_a_large_tree_as_far_as_it_is_read(browser, command, tmp_path):
    opened(browser, command, named(tmp_path / "large", NAMES["23000"]), tmp_path)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    count = "return document.querySelectorAll('#modules details[open]').length"
    assert 100 < browser.run(count) <= 402
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(count) == 1
