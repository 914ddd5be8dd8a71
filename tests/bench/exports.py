"""A copy that others can load, written to disk: `unshard export` against the frameworks' own tools on the same
checkpoint, each in a process of its own."""

import shutil
import statistics

import checkpoints
import zero

RANKS = 8
# What the tool writes, and the view that holds the same.
OF_FSDP = {"merge_fsdp_weights": "weights", "dcp_to_torch_save": "weights"}
OF_ZERO = {"zero_to_fp32": "weights-fp32", "ds_to_universal": "universal"}


def by_export(programs, source, view, out):
    """Until it has returned: what it wrote is on the disk then."""
    return zero.python("export_once.py", "run", programs / "unshard", "export", source, out, "--view", view, "-o",
                       "store=none,settle=0")


def by_tool(tool, source, out):
    """Imports excluded; what it wrote need not be on the disk yet."""
    if tool in OF_ZERO:
        return zero.python("zero_once.py", "convert", tool, source, out)
    return zero.python("export_once.py", tool, source, out)


def timed(work, make):
    out = work / "exported"
    try:
        return make(out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def row(label, results, tool):
    seconds, peak = (statistics.median(r[key] for r in results) for key in ("seconds", "peak_bytes"))
    times = (statistics.median(t[key] / r[key] for t, r in zip(tool, results)) for key in ("seconds", "peak_bytes"))
    sooner, less = (f", **{n:.1f}x {word}**" if tool is not results else "" for n, word in zip(times, ("sooner", "less")))
    print(f"| {label} | {seconds:.2f} s{sooner} | {peak / 1e6:.0f} MB{less} |", flush=True)


def compare(programs, work, source, checkpoint, pairs, n_rounds):
    """source: what the tool is given; checkpoint: what unshard is."""
    for tool, view in pairs.items():
        results = {"tool": [], "export": []}
        for r in range(n_rounds):
            for way in ("tool", "export") if r % 2 else ("export", "tool"):
                make = (lambda out: by_tool(tool, source, out)) if way == "tool" else \
                    lambda out: by_export(programs, checkpoint, view, out)
                results[way].append(timed(work, make))
        row(tool, results["tool"], results["tool"])
        row(f"`unshard export --view {view}`", results["export"], results["tool"])


def head(what):
    print(f"\n{what}:\n\n| | until it is written | peak memory |\n|---|---:|---:|", flush=True)


def measure(programs, work, size, n_rounds):
    print("\n## Writing a copy\n")
    print(f"Medians of {n_rounds} interleaved rounds, in fresh processes, sources in the page cache; bold: the median "
          f"of the rounds' ratios. The tools' imports are excluded, and what they wrote need not be on the disk when "
          f"they end; what export wrote is synced.")
    config, tensors = checkpoints.llama(size)
    run = work / "export-fsdp"
    checkpoints.write_run(run, config, tensors, RANKS)
    head(f"FSDP, {sum(t.nbytes for t in tensors.values()) / 1e6:.0f} MB from {RANKS} ranks")
    del tensors
    compare(programs, work, run / "checkpoint-1/pytorch_model_fsdp_0", run / "checkpoint-1", OF_FSDP, n_rounds)
    shutil.rmtree(run)
    zero.save(work / "export-zero", int(size / 14), [2])
    run = work / "export-zero/z2"
    head(f"DeepSpeed ZeRO stage 2, {zero.size_of(run) / 1e6:.0f} MB from {zero.RANKS} ranks")
    compare(programs, work, run, run / zero.TAG, OF_ZERO, n_rounds)
    shutil.rmtree(work / "export-zero")
