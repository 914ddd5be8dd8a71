"""SGLang loads models from checkpoints, on the CPU, in its own environment: sglang_loads.py TOP

TOP is what make/serving_source.py makes of one family. What SGLang holds after loading checkpoints, and after updating from
them, must be what it has from the directories that the framework itself saved, and give the same logits. Prints "equal" and
how often."""

import runpy
import sys
from array import array
from pathlib import Path

import torch

PROGRAM = runpy.run_path(str(Path(__file__).parents[1] / "programs/sglang.py"))
PROGRAM["prepare"]()

from sglang.benchmark import one_batch  # noqa: E402
from sglang.srt.configs.device_config import DeviceConfig  # noqa: E402
from sglang.srt.configs.load_config import LoadConfig  # noqa: E402
from sglang.srt.model_loader import get_model_loader  # noqa: E402
from sglang.srt.plugins import load_plugins  # noqa: E402

TOP = Path(sys.argv[1])
TOKENS = list(range(5, 25))


def loaded(runner, path, **extra):
    """By the loader that --load-format unshard gives."""
    runner.model_config.model_path = str(path)
    loader = get_model_loader(LoadConfig(load_format="unshard", model_loader_extra_config=extra), runner.model_config)
    assert type(loader).__name__ == "UnshardLoader"
    return loader.load_model(model_config=runner.model_config, device_config=DeviceConfig("cpu", 0))


def state(model):
    return {name: t.detach().clone() for of in (model.named_parameters(), model.named_buffers()) for name, t in of}


def update(runner, path, load_format):
    for t in runner.model.parameters():
        t.data.fill_(7)
    worked, message = runner.weight_updater.update_weights_from_disk(str(path), load_format)
    assert worked, message


def logits(runner):
    ids = array("q", TOKENS)
    request = one_batch.Req(rid="0", origin_input_text="", origin_input_ids=ids,
                            sampling_params=one_batch.SamplingParams(temperature=0, max_new_tokens=1))
    request.full_untruncated_fill_ids, request.logprob_start_len, request.extend_end = ids, -1, len(ids)
    found = one_batch._TorchBenchRunner(runner)
    found.clear()
    return found.extend([request])[1].clone()


def must_be(got, want):
    assert got.keys() == want.keys() and got
    assert not [name for name, t in want.items() if not torch.equal(got[name], t)]
    return 1


def main():
    load_plugins()
    runner = PROGRAM["runner_of"](TOP / "native-1")
    want = [state(runner.model)]
    answers = [logits(runner)]
    update(runner, TOP / "native-2", "auto")
    want.append(state(runner.model))
    answers.append(logits(runner))
    assert not torch.equal(*answers)
    n = 0
    for path, which in (("checkpoint-1", 0), ("latest", 1), ("checkpoint-1", 0), ("checkpoint-2", 1)):
        update(runner, TOP / "run" / path, "unshard")
        n += must_be(state(runner.model), want[which])
        assert torch.equal(logits(runner), answers[which])
    for path, which in (("checkpoint-1", 0), ("checkpoint-2", 1)):
        for extra in ({}, {"slices": True}):
            n += must_be(state(loaded(runner, TOP / "run" / path, **extra)), want[which])
    print("equal", n)


if __name__ == "__main__":
    main()
