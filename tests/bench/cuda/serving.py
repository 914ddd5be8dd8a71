"""vLLM on a GPU loads checkpoints from their shards; each case in a process of its own, and one line for each.

TOP has the directories that tests/e2e/make/serving_source.py makes: in each, checkpoints and what save_pretrained wrote of the
same weights. What vLLM holds in the GPU's memory after loading shards must be what it holds after loading save_pretrained's
directory, bit for bit, and its engine must answer alike. The exit status is 0 if no case failed. With --device cpu the
cases that need a GPU are named and not run."""

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

os.environ.update(VLLM_USE_FLASHINFER_SAMPLER="0",  # whose package may be missing
                  VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")

PROGRAM = Path(__file__).parents[2] / "e2e/programs/vllm.py"
EXPECTED = """| case | expected |
|---|---|
| `whole`, `slices` of 2 and 4 ranks | each parameter and buffer has the bits of the native load |
| `fp8` | the same, scales too: vLLM quantizes whole tensors as they come |
| `reloads` | nine of nine have the bits of the native load |
| `engine` | the tokens of the native engine after loading, after a reload, and after sleep level 2 |
| `engine`, `graphs` | the same with CUDA graphs: a reload leaves the addresses that the graphs have |
"""
ONLINE = "fp8_per_tensor"  # vLLM's name of the quantization of weights that come in 16 bits
PROMPTS = [list(range(5, 25)), [7, 11, 13], list(range(200, 100, -3))]
RELOADS = [({}, ("latest", "checkpoint-1", None)), ({"slices": True}, ("latest", "checkpoint-1", None)),
           ({"enable_weights_track": True, "threads": 1}, ("latest", "checkpoint-1", None))]


# -- what vLLM holds --

class Models:
    """Of one family, as vLLM loads them on a device."""

    def __init__(self, top, family, device):
        self.folder, self.device = top / family, device
        self.program = runpy.run_path(str(PROGRAM))
        self.kernels = self.program["prepare"]() if device == "cpu" else None  # kept: they go with it
        self.scratch = tempfile.mkdtemp()
        from vllm.plugins import load_general_plugins
        load_general_plugins()

    def load(self, model, load_format, size=1, quantization=None, **extra):
        return self.program["loaded"](self.folder / model, self.folder / "run", load_format, self.scratch, size,
                                      device=self.device, quantization=quantization, **extra)

    def must_be_native(self, rank=0, size=1, **how):
        quantization = how.pop("quantization", None)
        rank_is(rank, size)
        want = self.load("native-1", "auto", size, quantization)[1]
        return must_be(self.load("run/checkpoint-1", "unshard", size, quantization, **how)[1], state(want))


def rank_is(rank, size):
    """Layers are built as this rank of a group builds them. No other ranks exist: nothing is sent."""
    from vllm.distributed import parallel_state
    for group in (parallel_state._TP, parallel_state._EP):
        if group is not None:
            group.rank_in_group, group.world_size = rank, size


def bits(tensor):
    import torch
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()


def state(model):
    return {name: (t.dtype, t.shape, bits(t)) for of in (model.named_parameters(), model.named_buffers()) for name, t in of}


def must_be(model, want):
    import torch
    got = state(model)
    assert got.keys() == want.keys() and got, sorted(got.keys() ^ want.keys())
    other = [name for name, (dtype, shape, of) in want.items()
             if got[name][:2] != (dtype, shape) or not torch.equal(got[name][2], of)]
    assert not other, f"other values: {other}"
    return f"{len(got)} tensors"


def whole(models):
    return models.must_be_native()


def slices(models, size):
    models.load("native-1", "auto")  # makes the group of this process, as one rank
    found = [models.must_be_native(rank, size, slices=True) for rank in range(size)]
    return f"{found[0]} in each of {size} ranks"


def fp8(models):
    import torch
    want = models.load("native-1", "auto", quantization=ONLINE)[1]
    assert torch.float8_e4m3fn in {t.dtype for t in want.parameters()}, "vLLM did not quantize"
    return f"{models.must_be_native(quantization=ONLINE)}; as slices {models.must_be_native(quantization=ONLINE, slices=True)}"


def reloads(models):
    from vllm.model_executor.model_loader.reload.inplace import reload_weights
    wants = {path: state(models.load(native, "auto")[1]) for path, native in (("checkpoint-1", "native-1"), ("latest", "native-2"))}
    n = 0
    for extra, paths in RELOADS:
        config, model = models.load("run/checkpoint-1", "unshard", **extra)
        want = wants["checkpoint-1"]
        for path in paths:
            for t in model.parameters():  # as sleep level 2 leaves them
                t.data.fill_(7)
            reload_weights(config, model, None, path and str(models.folder / "run" / path), True)
            want = wants.get(path, want)
            must_be(model, want)
            n += 1
    return f"{n} reloads"


# -- what its engine answers --

def engine(folder, model, load_format, graphs):
    from vllm import LLM
    text_alone = {"limit_mm_per_prompt": {"image": 0, "video": 0}} if "vl" in folder.name else {}
    return LLM(model=str(folder / model), hf_config_path=str(folder / "run"), skip_tokenizer_init=True, dtype="bfloat16",
               load_format=load_format, enforce_eager=not graphs, enable_sleep_mode=True, enable_prefix_caching=False,
               gpu_memory_utilization=0.3, max_model_len=128, max_num_seqs=8, seed=0,
               **text_alone)


def answers(llm):
    """Tokens."""
    from vllm import SamplingParams
    done = llm.generate([{"prompt_token_ids": p} for p in PROMPTS],
                        SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False), use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in done]


def native_answers(folder, graphs):
    """By an engine of its own for each, in a process of its own: an engine leaves memory behind."""
    found = []
    for model in ("native-1", "native-2"):
        done = subprocess.run([sys.executable, __file__, folder, "--answers", model, *(["--graphs"] if graphs else [])],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{model}: {last_line(done.stderr)}"
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert found[0] != found[1], "both weights give the same answers"
    return found


def by_engine(folder, graphs):
    first, second = native_answers(folder, graphs)
    llm = engine(folder, "run/checkpoint-1", "unshard", graphs)

    def reload(name):
        llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder / "run" / name)})

    must_answer(llm, first, "loading")
    for name, want in (("latest", second), ("checkpoint-1", first)):
        reload(name)
        must_answer(llm, want, f"a reload of {name}")
    for name, want in (("checkpoint-2", second), ("checkpoint-1", first)):
        llm.sleep(level=2)
        llm.wake_up(tags=["weights"])
        reload(name)
        llm.wake_up(tags=["kv_cache"])
        must_answer(llm, want, f"sleep level 2 and {name}")
    return "after loading, 2 reloads, and 2 times sleep level 2"


def must_answer(llm, want, after):
    assert answers(llm) == want, f"other answers after {after}"


# -- cases --

def cases(top):
    """{name: (whether it needs a GPU, what to do)}. Imports nothing of vLLM."""
    found = {}
    for family in sorted(p.name for p in top.iterdir() if (p / "native-1").is_dir()):
        def with_models(work, *args, family=family):
            return lambda device: work(Models(top, family, device), *args)

        found |= {f"whole {family}": (False, with_models(whole)), f"slices {family} 2": (False, with_models(slices, 2)),
                  f"slices {family} 4": (False, with_models(slices, 4)), f"fp8 {family}": (True, with_models(fp8)),
                  f"reloads {family}": (False, with_models(reloads)),
                  f"engine {family}": (True, lambda _, family=family: by_engine(top / family, False)),
                  f"engine {family} graphs": (True, lambda _, family=family: by_engine(top / family, True))}
    return found


def last_line(text):
    return (text.strip().splitlines() or ["nothing was printed"])[-1]


def run_here(work, device):
    """In this process, whose last line says how it ended."""
    try:
        print("ok", work(device), flush=True)
    except Exception as e:  # pylint: disable=broad-except
        traceback.print_exc()
        print("FAILED", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)
    os._exit(0)  # an engine's threads may be left


def run_apart(args, name):
    """-> "ok" or "FAILED", and what it found."""
    try:
        done = subprocess.run([sys.executable, __file__, args.top, "--device", args.device, "--here", name],
                              capture_output=True, text=True, timeout=args.seconds, check=False)
    except subprocess.TimeoutExpired:
        return "FAILED", f"not over after {args.seconds} s"
    state_of, _, told = last_line(done.stdout).partition(" ")
    if state_of not in ("ok", "FAILED"):
        return "FAILED", f"status {done.returncode}: {last_line(done.stderr)}"
    if state_of == "FAILED":
        sys.stderr.write(done.stderr[-4000:])
    return state_of, told


def arguments():
    parser = argparse.ArgumentParser(prog="serving.py", description=__doc__)
    parser.add_argument("top", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", help='such as "engine mixtral"; default: all')
    parser.add_argument("--list", action="store_true", help="print the names of cases")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=300, help="for each case")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--answers", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--graphs", action="store_true", help=argparse.SUPPRESS)
    return parser, parser.parse_intermixed_args()


def main():
    parser, args = arguments()
    if args.answers:
        print(json.dumps(answers(engine(args.top, args.answers, "auto", args.graphs))), flush=True)
        os._exit(0)
    known = cases(args.top)
    if unknown := [name for name in args.cases if name not in known]:
        parser.error(f"no such case: {', '.join(unknown)}; known: {', '.join(known)}")
    if args.list:
        print("\n".join(known))
        return
    if args.here:
        run_here(known[args.cases[0]][1], args.device)
    print(f"Expected:\n\n{EXPECTED}", flush=True)
    n = {"ok": 0, "FAILED": 0, "not run": 0}
    for name in args.cases or known:
        state_of, told = ("not run", "it needs a GPU") if args.device == "cpu" and known[name][0] else run_apart(args, name)
        n[state_of] += 1
        print(f"{state_of:7} {name}: {told}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in n.items()))
    sys.exit(bool(n["FAILED"]))


main()
