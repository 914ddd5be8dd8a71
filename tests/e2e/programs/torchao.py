"""`from_pretrained` with `TorchAoConfig`, int8 weights, one forward pass."""

PACKAGE, REQUIRES, EQUAL = "torchao", [], "logits"


def logits(model):
    import torch

    ids = torch.arange(12).reshape(2, 6) + 3
    with torch.no_grad():
        return {"logits": model(input_ids=ids).logits}


def read(directory, scratch):
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import AutoModelForCausalLM, TorchAoConfig

    return logits(AutoModelForCausalLM.from_pretrained(
        directory, quantization_config=TorchAoConfig(Int8WeightOnlyConfig())))
