"""llama.cpp's package: `SafetensorsLocal` maps the file, and `GGUFWriter` writes its tensors."""

PACKAGE, EQUAL = "gguf", "bytes"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "gguf==0.19.0", "requests==2.34.2", "urllib3==2.8.0"]


def read(directory, scratch):
    from pathlib import Path

    import numpy
    from gguf import GGUFReader, GGUFWriter
    from gguf.utility import SafetensorsLocal

    writer = GGUFWriter(f"{scratch}/model.gguf", "llama")
    with SafetensorsLocal(Path(directory) / "model.safetensors") as model:
        for name, tensor in model.items():
            writer.add_tensor(name, numpy.array(tensor.mmap_bytes()).view("<f4").reshape(tensor.shape))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return {t.name: numpy.array(t.data) for t in GGUFReader(f"{scratch}/model.gguf").tensors}
