"""llama.cpp's `convert_hf_to_gguf.py`, which the source archive of this package contains."""

PACKAGE, EQUAL = "llama-cpp-python", "bytes"
SOURCE = ["llama-cpp-python==0.3.36", "vendor/llama.cpp"]
REQUIRES = ["sentencepiece==0.2.3"]


def write_tokenizer(folder, n_tokens):
    """One that the script takes for a Llama's: BPE that falls back to bytes."""
    import json

    from tokenizers import Tokenizer, decoders, models, normalizers

    special = ["<unk>", "<s>", "</s>"]
    vocabulary = [*special, *(f"<0x{i:02X}>" for i in range(256)), "▁"]
    vocabulary = [*vocabulary, *(f"w{i}" for i in range(n_tokens - len(vocabulary)))][:n_tokens]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, [], unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(special)
    made.save(f"{folder}/tokenizer.json")
    names = dict(zip(("unk_token", "bos_token", "eos_token"), special))
    with open(f"{folder}/tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **names}, f)


def converter():
    """Its folder, on sys.path as if the script had been started."""
    import sys
    from pathlib import Path

    folder = Path(sys.prefix, "source")
    sys.path[:0] = [str(folder), str(folder / "gguf-py")]
    return folder


def convert(directory, out):
    import runpy
    import sys

    sys.argv = ["convert_hf_to_gguf.py", str(directory), "--outfile", str(out), "--outtype", "auto", "--model-name", "llama"]
    runpy.run_path(str(converter() / sys.argv[0]), run_name="__main__")


def read(directory, scratch):
    import json
    from pathlib import Path

    for file in Path(directory).iterdir():
        if "token" not in file.name:
            Path(scratch, file.name).symlink_to(file.resolve())
    write_tokenizer(scratch, json.loads(Path(directory, "config.json").read_text())["vocab_size"])
    convert(scratch, f"{scratch}/model.gguf")

    from gguf import GGUFReader
    return {t.name: t.data for t in GGUFReader(f"{scratch}/model.gguf").tensors}
