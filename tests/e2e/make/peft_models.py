"""A small llama with PEFT's adapters: one configuration for each method that the tests know."""

import peft
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import models

QV = ["q_proj", "v_proj"]
CONFIG = {
    "lora": lambda: peft.LoraConfig(r=3, target_modules=QV, task_type="CAUSAL_LM"),
    "dora": lambda: peft.LoraConfig(r=3, target_modules=QV, use_dora=True, task_type="CAUSAL_LM"),
    "embedding": lambda: peft.LoraConfig(r=3, target_modules=["embed_tokens", "q_proj"], task_type="CAUSAL_LM"),
    "saved": lambda: peft.LoraConfig(r=3, target_modules=QV, modules_to_save=["lm_head"], task_type="CAUSAL_LM"),
    "ia3": lambda: peft.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"],
                                  feedforward_modules=["down_proj"], task_type="CAUSAL_LM"),
    "vera": lambda: peft.VeraConfig(r=4, target_modules=["q_proj", "o_proj"], task_type="CAUSAL_LM"),
    "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=5, task_type="CAUSAL_LM"),
}


def base():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=models.VOCAB, hidden_size=24, intermediate_size=50, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0))


def adapted(method):
    """"two": LoRA under two names, of which the second is trained."""
    model = base()
    torch.manual_seed(1)
    if method != "two":
        return peft.get_peft_model(model, CONFIG[method]())
    model = peft.get_peft_model(model, CONFIG["lora"](), adapter_name="first")
    model.add_adapter("second", CONFIG["dora"]())
    model.set_adapter("second")
    return model
