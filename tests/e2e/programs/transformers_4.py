"""`AutoModelForCausalLM.from_pretrained` of the last release 4, one forward pass."""

PACKAGE, EQUAL = "transformers", "logits"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "huggingface_hub==0.36.2", "requests==2.34.2",
            "tokenizers==0.22.2", "transformers==4.57.6", "urllib3==2.8.0"]


def logits(model):
    import torch

    ids = torch.arange(12).reshape(2, 6) + 3
    with torch.no_grad():
        return {"logits": model(input_ids=ids).logits}


def read(directory, scratch):
    from transformers import AutoModelForCausalLM

    return logits(AutoModelForCausalLM.from_pretrained(directory))
