"""Makes tests/golden/run anew, the run that ships for tools/quickstart and for tests without the
frameworks: the last checkpoint of a Trainer with FSDP2 on two ranks, config and tokenizer beside it.

    python golden_run.py
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parents[1] / "golden/run"
WORDS = ["<pad>", "<s>", "</s>", "<unk>"] + [f"w{i}" for i in range(4, 101)]


def tokenizer():
    words = models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>")
    made = Tokenizer(words)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>",
                                   eos_token="</s>", unk_token="<unk>")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                        "--nproc_per_node=2", HERE / "trainer.py", out, "small-f2-bf16"], check=True)
        made = Path(out) / "small-f2-bf16"
        shutil.rmtree(GOLDEN, ignore_errors=True)
        shutil.copytree(made / "run", GOLDEN, ignore=shutil.ignore_patterns("checkpoint-1"))
        shutil.copy(made / "pretrained-2/generation_config.json", GOLDEN)
        shutil.copy(made / "pretrained-2/model.safetensors",
                    GOLDEN.with_name("run.model.safetensors"))
    tokenizer().save_pretrained(GOLDEN)
