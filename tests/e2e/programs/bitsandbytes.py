"""`from_pretrained` with `BitsAndBytesConfig`, int8 weights, on the CPU, one forward pass."""

PACKAGE, REQUIRES, EQUAL = "bitsandbytes", ["bitsandbytes==0.50.2"], "logits"


def logits(model):
    import torch

    ids = torch.arange(12).reshape(2, 6) + 3
    with torch.no_grad():
        return {"logits": model(input_ids=ids).logits}


def read(directory, scratch):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    how = BitsAndBytesConfig(load_in_8bit=True)
    return logits(AutoModelForCausalLM.from_pretrained(directory, quantization_config=how, device_map="cpu"))
