"""`ct2-transformers-converter`: the model that it writes."""

PACKAGE, REQUIRES, EQUAL = "ctranslate2", ["ctranslate2==4.8.5"], "bytes"


def read(directory, scratch):
    from pathlib import Path

    from ctranslate2.converters import TransformersConverter

    TransformersConverter(directory).convert(f"{scratch}/model")
    return {"model.bin": Path(f"{scratch}/model/model.bin").read_bytes()}
