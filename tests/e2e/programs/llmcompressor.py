"""`oneshot` with a `QuantizationModifier` (FP8_DYNAMIC): the tensors that it writes."""

PACKAGE, EQUAL = "llmcompressor", "bytes"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "compressed-tensors==0.20.0", "datasets==5.2.0",
            "dill==0.4.1", "llmcompressor==0.14.0.1", "loguru==0.7.3", "multiprocess==0.70.19", "pandas==3.1.1",
            "pillow==13.0.0", "pyarrow==26.0.1", "python-dateutil==4.0.0", "pytz==2026.6", "requests==2.34.2",
            "six==1.17.0", "tzdata==2026.6", "urllib3==2.8.0", "xxhash==4.1.0"]


def read(directory, scratch):
    from pathlib import Path

    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from safetensors.torch import load_file

    oneshot(model=directory, output_dir=scratch,
            recipe=QuantizationModifier(targets="Linear", scheme="FP8_DYNAMIC", ignore=["lm_head"]))
    tensors = {k: v for f in Path(scratch).glob("*.safetensors") for k, v in load_file(f).items()}
    assert any(k.endswith("weight_scale") for k in tensors)
    return tensors
