"""`AutoModelForCausalLM.from_pretrained`, one forward pass."""

PACKAGE, REQUIRES, EQUAL = "transformers", [], "logits"


def logits(model):
    import torch

    ids = torch.arange(12).reshape(2, 6) + 3
    with torch.no_grad():
        return {"logits": model(input_ids=ids).logits}


def read(directory, scratch):
    from transformers import AutoModelForCausalLM

    return logits(AutoModelForCausalLM.from_pretrained(directory))
