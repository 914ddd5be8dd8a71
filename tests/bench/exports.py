"""A copy that others can load, written to disk: `unshard export` against the frameworks' own tools on the same
checkpoint, each in a process of its own. What both write is compared before it is timed."""

import shutil
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch

import checkpoints
import zero

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
import trees  # noqa: E402

RANKS = 8


class Pair(NamedTuple):
    """A tool, and the view that holds what it writes."""
    tool: str
    saved_by: str
    source: Path      # what the tool is given
    checkpoint: Path  # what export is
    view: str


def export(programs, checkpoint, view, out):
    """Until it has returned: what it wrote is on the disk then."""
    return zero.python("export_once.py", "run", programs / "unshard", "export", checkpoint, out, "--view", view, "-o",
                       "store=none,settle=0")


def by_export(programs, pair, out):
    return export(programs, pair.checkpoint, pair.view, out)


def by_tool(_, pair, out):
    """Imports excluded; what it wrote need not be on the disk yet."""
    return zero.python("export_once.py", pair.tool, pair.source, out)


WAYS = {"tool": by_tool, "export": by_export}


def states(folder):
    """name and state -> tensor of a universal checkpoint; the tool's are flat."""
    found = {str(p.relative_to(p.parents[1])): torch.load(p, mmap=True, weights_only=True)
             for state in ("fp32", "exp_avg", "exp_avg_sq") for p in folder.rglob(f"{state}.pt")}
    return {n: (t["param"] if isinstance(t, dict) else t).detach().flatten() for n, t in found.items()}


def tensors(folder):
    """What was written, as others load it."""
    whole = folder / "model.pt"
    if whole.exists():
        return torch.load(whole, mmap=True, weights_only=True)["model"]
    return states(folder) or trees.weights(folder)


def compare(programs, work, pair):
    outs = {way: work / way for way in WAYS}
    try:
        for way, out in outs.items():
            WAYS[way](programs, pair, out)
        trees.assert_same(*(tensors(out) for out in outs.values()))
    finally:
        for out in outs.values():
            shutil.rmtree(out, ignore_errors=True)


def timed(programs, work, pair, way):
    out = work / "exported"
    try:
        return WAYS[way](programs, pair, out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def row(pair, results):
    cells = []
    for key, scale, form, unit in ("seconds", 1, ".2f", "s"), ("peak_bytes", 1e6, ".0f", "MB"):
        cells += [f"{statistics.median(r[key] for r in results[way]) / scale:{form}} {unit}" for way in WAYS]
        cells.append(f"**{statistics.median(t[key] / e[key] for t, e in zip(*results.values())):.1f}x**")
    print(f"| {pair.tool} | {pair.saved_by} | `{pair.view}` | {' | '.join(cells)} |", flush=True)


def of_fsdp(work, size):
    run = work / "fsdp"
    checkpoints.write_run(run, *checkpoints.llama(size), RANKS)
    saved_by = f"FSDP, {zero.size_of(run) / 1e6:.0f} MB, {RANKS} ranks"
    return [Pair(tool, saved_by, run / "checkpoint-1/pytorch_model_fsdp_0", run / "checkpoint-1", "weights")
            for tool in ("merge_fsdp_weights", "dcp_to_torch_save")]


def of_zero(work, size):
    engine = work / "zero/z2"
    zero.save(engine.parent, int(size / 14), [2])
    saved_by = f"ZeRO-2, {zero.size_of(engine) / 1e6:.0f} MB, {zero.RANKS} ranks"
    return [Pair(tool, saved_by, engine, engine / zero.TAG, view)
            for tool, view in (("zero_to_fp32", "weights-fp32"), ("ds_to_universal", "universal"))]


def of_verl(work, size):
    ranks = work / "verl/global_step_1/actor"
    checkpoints.write_rank_files(ranks, *checkpoints.llama(size, torch.float32), RANKS)  # veRL's default dtype
    saved_by = f"veRL, {zero.size_of(ranks) / 1e6:.0f} MB, {RANKS} ranks"
    return [Pair("verl_model_merger", saved_by, ranks, ranks, "weights-bf16")]


def measure(programs, work, size, n_rounds, quick):
    """Checkpoints of about `size` bytes. Quick: one tool alone."""
    work = work / "exports"
    pairs = of_fsdp(work, size)[:1] if quick else of_fsdp(work, size) + of_zero(work, size) + of_verl(work, size)
    print("\n## Writing a copy\n")
    print(f"Medians of {n_rounds} interleaved rounds, in fresh processes, sources in the page cache; bold: the median "
          f"of the rounds' ratios. The tensors of both copies were equal. The tools' imports are excluded, and what they "
          f"wrote need not be on the disk when they end; what export wrote is synced.\n\n| tool | checkpoint | view | "
          f"tool | export | sooner | tool's peak memory | export's | less |\n|---|---|---|---:|---:|---:|---:|---:|---:|")
    for pair in pairs:
        compare(programs, work, pair)
    results = {pair: {way: [] for way in WAYS} for pair in pairs}
    for r in range(n_rounds):
        for pair in pairs:
            for way in list(WAYS)[::1 if r % 2 else -1]:
                results[pair][way].append(timed(programs, work, pair, way))
    for pair in pairs:
        row(pair, results[pair])
    shutil.rmtree(work)
