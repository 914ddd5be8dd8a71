"""What the tests generate: name -> (script in make/, processes, cases). Several cases share a launch
because starting processes takes longer than making a tiny checkpoint."""

LAUNCHES = {
    "t2": ("trainer.py", 2, ["tied-f1-fp32", "tied-f2-bf16", "untied-f1-bf16", "untied-f2-fp32",
                             "mixtral-f2-fp32", "llava-f1-fp32"]),
    "t3": ("trainer.py", 3, ["tied-f2-fp32", "untied-f2-bf16"]),
    "t4": ("trainer.py", 4, ["tied-f1-fp32", "tied-f2-bf16", "untied-f1-bf16", "untied-f2-fp32"]),
    "a2": ("accelerate_state.py", 2, ["f1", "f2", "f1-ranks", "f2-ranks", "f1-two", "f2-two"]),
    "a3": ("accelerate_state.py", 3, ["f1", "f2", "f1-ranks", "f2-ranks"]),
    "r2": ("resume_make.py", 2, ["f1", "f2", "full", "acc"]),
    "u0": ("unsharded.py", 0, ["plain", "acc"]),
    "u2": ("unsharded.py", 2, ["full", "accfull", "f2", "accf2"]),
    "v2": ("ranks.py", 2, ["verl-f1", "verl-f1orig", "verl-f2", "verl-f2-bf16", "easyr1-f1orig",
                           "easyr1-f2", "verl-f2-llava", "verl-f2-lora", "easyr1-f1orig-tied-bf16"]),
    "v3": ("ranks.py", 3, ["verl-f1", "verl-f1orig", "verl-f1orig-st", "verl-f2", "easyr1-f1", "easyr1-f2",
                           "verl-f2-tied-bf16"]),
    "v4": ("ranks.py", 4, ["verl-f1-hsdp", "verl-f1orig", "verl-f2-hsdp", "easyr1-f1-hsdp", "verl-f2-critic"]),
    "l1": ("lightning_run.py", 1, ["save:one", "save:one:weights", "save:one-rich"]),
    "l2": ("lightning_run.py", 2, ["save:fsdp", "save:fsdp:weights", "save:mp", "save:mp:weights",
                                   "save:fsdp-rich", "save:mp-rich", "save:fsdp-published"]),
    "e2": ("deepspeed_engine.py", 2, ["z1-bf16", "z2-bf16", "z2-fp32", "z3-bf16", "z3-bf16-subgroups",
                                      "z2-bf16-roundrobin", "z1-bf16-fp32grads", "z2-bf16-aligned",
                                      "z2-bf16-elastic"]),
    "g2": ("deepspeed_engine.py", 2, ["z0-bf16", "z0-fp32", "z1-fp32-tags", "z2-fp16", "z3-fp16",
                                      "z2-bf16-nofrozen", "z3-bf16-nofrozen", "z2-bf16-numberedsteps",
                                      "z3-bf16-numberedsteps", "z2-bf16-roundrobin", "z1-bf16-pipe"]),
    "tp4": ("tensor_parallel.py", 4, ["z1-bf16-tp2", "z2-fp32-tp2", "z2-fp32-tp4", "z3-bf16-tp2"]),
    "x2": ("experts.py", 2, ["z1-bf16-ep2", "z2-fp32-ep1", "z2-bf16-ep2-mixed", "z0-bf16-ep2"]),
    "x4": ("experts.py", 4, ["z2-fp32-ep2", "z1-bf16-pp2", "z0-fp32-pp2"]),
    "ae2": ("autoep.py", 2, ["mixtral-z1-bf16-ep2", "qwen3_moe-z3-bf16-ep2", "qwen2_moe-z2-fp32-ep1",
                             "deepseek_v3-z1-bf16-ep2", "mixtral-z0-bf16-ep2"]),
    "ae4": ("autoep.py", 4, ["mixtral-z2-fp32-ep2"]),
    "h2": ("deepspeed_trainer.py", 2, ["z2-bf16", "z3-bf16", "z3-fp32", "z0-bf16", "z1-bf16-untied",
                                       "z2-fp32", "z3-bf16-gathered", "acc-z2-bf16", "acc-z3-fp32"]),
    "pf2": ("peft_run.py", 2, ["lora-f2", "lora-f1", "dora-f2", "embedding-f2", "saved-f2", "ia3-f2", "vera-f2",
                               "two-f2", "lora-acc-f1", "lora-acc-f2", "two-acc-f2"]),
    "pz2": ("peft_run.py", 2, ["lora-z2", "lora-z3", "saved-z3", "prompt-z2", "lora-acc-z2"]),
    "pe2": ("peft_elsewhere.py", 2, ["verl-f1orig", "verl-f2", "easyr1-f2", "lightning-fsdp", "lightning-mp"]),
    "fb2": ("fabric_run.py", 2, ["save:fsdp", "save:mp", "save:fsdp:own", "save:mp:own", "save:tp"]),
    "fz2": ("fabric_run.py", 2, ["save:z2"]),
    "ld2": ("lightning_deepspeed.py", 2, ["save:z2", "save:z3"]),
    "d1": ("plain_dcp.py", 1, ["nodist"]),
    "d2": ("plain_dcp.py", 2, ["fsdp1", "fsdp2", "zstd", "threads", "filepertensor", "async",
                               "nocollect", "zstd-bf16"]),
    "d3": ("plain_dcp.py", 3, ["fsdp2", "hf", "hfconsolidated"]),
    "p2": ("published.py", 2, ["fsdp", "fsdp-tied", "tp"]),
    "s2": ("subclasses.py", 2, ["float8", "float8-zstd", "adam8bit", "int8", "subclass", "subclass-zstd",
                                "conj"]),
    "o2": ("optimizers.py", 2, ["dcp-lion", "dcp-sgd", "dcp-momentum", "dcp-adagrad", "dcp-amsgrad", "dcp-schedulefree",
                                "dcp-adafactor", "dcp-muon", "z2-lion", "z2-sgd", "z2-momentum", "z2-adagrad",
                                "z2-amsgrad", "z2-adafactor"]),
    "o3": ("optimizers.py", 2, ["z3-lion", "z3-sgd", "z3-momentum", "z3-adagrad", "z3-amsgrad", "z3-adafactor",
                                "z3-schedulefree", "z2-schedulefree"]),
    "ro2": ("raw_optimizer.py", 2, ["fsdp2-groups", "fsdp2-lion", "fsdp2-sgd", "fsdp2-amsgrad", "plain-groups",
                                    "plain-adafactor", "plain-muon", "fsdp1-groups"]),
    "mc2": ("torch_dist.py", 2, ["llama-tp2", "qwen2-dp2", "mixtral-dp2", "qwen2_moe-dp2",
                                 "qwen3_moe-pp2-vpp2", "llama-biased", "gemma2-pp2", "gemma2-untied", "gemma3-tp2",
                                 "glm4-tp2", "qwen2-tp2", "qwen2-tied", "qwen2_5_vl-tp2", "qwen3_vl-tp2",
                                 "qwen3_vl_moe-ep2", "qwen3_vl_moe-dp2", "qwen3-tp2-bf16", "qwen3-by-layer",
                                 "mixtral-ep2", "qwen3_moe-dp2", "qwen3_moe-dense", "qwen3_moe-one-by-one",
                                 "deepseek_v2-pp2", "deepseek_v3-tp2", "glm4_moe-tp2", "qwen3_vl_moe-one-by-one",
                                 "gpt_oss-dp2", "gpt_oss-one-by-one"]),
    "mt2": ("torch_dist.py", 2, ["deepseek_v3-mtp-pp2", "glm4_moe-mtp-tp2", "llama-pp2-embedding"]),
    "md2": ("torch_dist.py", 2, ["qwen3_next-dp2", "qwen3_next-tp2-bf16", "qwen3_next-mtp-ep2", "qwen3_next-one-by-one",
                                 "qwen3_5_text-dp2", "qwen3_5_moe_text-tp2-bf16", "qwen3_5-pp2", "qwen3_5_moe-tp2"]),
    "md4": ("torch_dist.py", 4, ["qwen3_next-tp2-pp2"]),
    "mh2": ("torch_dist_hybrid.py", 2, ["nemotron_h-dp2", "nemotron_h-tp2-bf16", "nemotron_h-pp2", "nemotron_h-ep2",
                                        "nemotron_h-etp2"]),
    "mh4": ("torch_dist_hybrid.py", 4, ["nemotron_h-tp4", "nemotron_h-tp2-pp2", "nemotron_h-tp2-ep2-etp1",
                                        "nemotron_h-pp2-ep2"]),
    "ma2": ("torch_dist_families.py", 2, ["llama4_text-dp2", "llama4_text-tp2", "llama4_text-one-by-one", "llama4_text-etp2",
                                          "llama4-ep2-bf16", "phi3-dp2", "phi3-tp2-bf16", "phi3-one-by-one", "internvl-tp2",
                                          "internvl-pp2-bf16", "internvl_chat-tp2", "internvl_chat-by-layer",
                                          "deepseek_v2-ep2", "glm4_moe_lite-tp2", "gpt_oss-pp2-vpp2"]),
    "ma4": ("torch_dist_families.py", 4, ["llama4-tp2-pp2", "llama4_text-tp2-ep2-etp1", "internvl-tp2-pp2", "phi3-tp2-pp2",
                                          "glm4_moe_lite-pp2-ep2"]),
    "mu2": ("torch_dist.py", 2, ["llama-pp2-loss", "llama-pp2-first", "qwen3-pp2-vpp2-layout", "qwen2-cp2",
                                 "qwen3_moe-cp2-ep2", "qwen3_moe-etp2", "qwen3_moe-tp2-ep2-etp1",
                                 "qwen3_moe-etp2-one-by-one"]),
    "mc8": ("torch_dist.py", 8, ["qwen3_moe-tp2-pp2-ep2", "deepseek_v3-tp2-pp2-ep2", "qwen3_vl_moe-tp2-pp2-ep2",
                                 "gpt_oss-tp2-pp2-ep2"]),
    "mr2": ("megatron_ranks.py", 2, ["llama-tp2", "qwen2-pp2-bf16", "qwen3-tp1", "gemma3-tp2", "qwen3_moe-ep2",
                                     "qwen3_moe-tp2", "llama-pp2-vpp2", "glm4_moe-mtp-tp2", "gpt_oss-ep2"]),
    "mr8": ("megatron_ranks.py", 8, ["qwen3_moe-tp2-pp2-ep2"]),
    "mv2": ("torch_dist_vision.py", 2, ["qwen2_5_vl-tp2", "qwen2_5_vl-by-layer", "qwen3_vl-tp2", "qwen3_vl-by-layer",
                                        "qwen3_vl_moe-ep2-bf16"]),
    "mo2": ("torch_dist_optimizer.py", 2, ["llama-tp2", "llama-dp2-bf16", "qwen3_moe-ep2-bf16",
                                           "qwen3_moe-tp2-older", "qwen3_moe-one-by-one-bf16", "gpt_oss-ep2-bf16",
                                           "qwen3_moe-ep2-buckets", "llama-dp2-buckets-bf16",
                                           "qwen2-pp2-buckets-bf16"]),
    "ml2": ("megatron_loras.py", 2, ["llama-tp2", "qwen3-pp2-bf16", "canonical-tp2", "canonical-dp2-bf16", "dora-dp2",
                                     "dora-tp2", "dora-rows-tp2", "by-layer-pp2", "nemo-tp2", "experts-dp2",
                                     "grouped-dp2", "grouped-latent-pp2", "grouped-ep2", "gpt_oss-dp2",
                                     "gpt_oss-experts-dp2"]),
    "mo15": ("torch_dist_015.py", 2, ["015-llama-tp2", "015-llama-tp2-buckets", "015-llama-dp2-buckets-bf16",
                                      "015-qwen2-pp2-buckets-bf16", "015-qwen3_moe-ep2-buckets",
                                      "015-qwen3_moe-dp2-buckets-bf16", "015-llama-space-bf16",
                                      "015-llama-gathered-bf16"]),
    "mp2": ("torch_dist_parallel.py", 2, ["llama-cp2-buckets-bf16", "qwen3_moe-cp2-ep2-buckets", "llama-cp2-bf16",
                                          "llama-pp2-vpp2-buckets-bf16", "qwen3_moe-pp2-vpp2-buckets",
                                          "llama-pp2-vpp2", "llama-dp2-buckets-fp16", "llama-tp2-fp16"]),
    "mm2": ("torch_dist_parallel.py", 2, ["glm4_moe-mtp-dp2-bf16", "glm4_moe-mtp-tp2", "glm4_moe-mtp-pp2",
                                          "glm4_moe-mtp-ep2-bf16", "glm4_moe-mtp-buckets-bf16", "qwen2_5_vl-tp2",
                                          "qwen3_vl_moe-dp2-bf16", "qwen2_5_vl-buckets-bf16",
                                          "glm4_moe-mtp-pp2-moved"]),
    "ms4": ("torch_dist_model_space.py", 4, ["llama-tp2-space", "qwen3_moe-ep2-space-bf16"]),
    "br2": ("bridge_run.py", 2, ["llama", "qwen2"]),
    "ne4": ("nemo_weights.py", 4, ["llama-tp2-nemo-bf16", "qwen3_moe-ep2-nemo", "llama-tp2-nemo-gathered"]),
    "mf2": ("megatron_fsdp.py", 2, ["llama-tp2-fsdp", "qwen3_moe-ep2-fsdp", "qwen3_moe-grouped-fsdp"]),
    "mf4": ("megatron_fsdp.py", 4, ["qwen2-tp2-dp2-fsdp"]),
    "w2": ("transposed.py", 2, ["f2", "z1", "z3"]),
    "tune": ("torchtune_run.py", 0, ["full", "lora"]),
    "loras": ("torchtune_loras.py", 0, ["llama", "llama-dora", "mistral", "gemma", "qwen2"]),
    "titan": ("torchtitan_run.py", 2, ["fsdp2"]),
    "composer": ("composer_run.py", 2, ["fsdp", "plain"]),
    "ti2": ("tied_models.py", 2, ["t5-f1", "t5-z3", "bart-f2", "marian-z2", "bert-f2", "bert-z3"]),
    "programs": ("program_source.py", 2, ["llama"]),
    "d4": ("plain_dcp.py", 4, ["mesh2d"]),
}

# Further cases of what a launch shows of each kind once. They are a launch of their own, NAMEmore, for --long alone.
MORE = {
    "mc2": ["gemma-tp2", "gemma3-inside", "glm4-pp2", "mistral-pp2", "qwen2_5_vl-tied",
            "qwen2_moe-ep2", "qwen3_moe-tp2", "deepseek_v3-ep2", "gpt_oss-tp2", "gpt_oss-by-layer", "llama-pp2-vpp2",
            "qwen3_vl-pp2-bf16", "gpt_oss-ep2-bf16"],
    "mt2": ["glm4_moe-mtp2-ep2", "glm4_moe-mtp-pp2-vpp2"],
    "mo2": ["qwen2-pp2", "gpt_oss-one-by-one", "llama-tp2-buckets", "qwen3_moe-dp2-buckets-bf16",
            "qwen3_moe-one-by-one-buckets-bf16", "qwen2-tp2-bf16", "gpt_oss-ep2-buckets-bf16"],
    "ms4": ["qwen2-pp2-space-bf16"],
    "mf2": ["llama-dp2-fsdp"],
    "t3": ["tied-f1-bf16", "untied-f1-fp32", "mixtral-f1-bf16", "llava-f2-bf16"],
    "v3": ["verl-f1-bf16", "easyr1-f1orig-llava", "verl-f1orig-critic", "easyr1-f1-bf16"],
    "v4": ["verl-f1", "verl-f1orig-hsdp", "easyr1-f2-hsdp"],
    "tp4": ["z0-bf16-tp2"],
    "d3": ["fsdp1", "nocollect"],
    "d4": ["mesh2d-bf16", "fsdp2-bf16", "hf-bf16"],
    "w2": ["verl-f2", "lightning-fsdp"],
    "ti2": ["t5-f2", "t5-z2", "bart-z3", "marian-f1"],
    "pf2": ["saved-acc-f2", "embedding-acc-f2", "vera-acc-f2"],
    "pz2": ["ia3-z2", "two-z2", "prompt-acc-z2"],
    "ae4": ["mixtral-z3-bf16-ep2"],
}
LAUNCHES |= {f"{name}more": (*LAUNCHES[name][:2], more) for name, more in MORE.items()}

# More ranks, more parallelism or more cases of what another launch shows: what a test asks of these is for --long alone.
LONG_LAUNCHES = {"t4", "a3", "br2", "mc8", "mu2", "mr8", "ma2", "ma4", "md4", "mh2", "mh4", "mf4", "ml2", "mo15", "mp2", "mm2",
                 "ne4", *(f"{name}more" for name in MORE)}


def cases(*launches):
    """(launch, case) of every case of these launches, MORE included, for parametrize."""
    named = [n for name in launches for n in ([name, f"{name}more"] if name in MORE else [name])]
    return [(name, case) for name in named for case in LAUNCHES[name][2]]


OPTIMIZERS = cases("o2", "o3")
MEGATRON = cases("mc2", "mt2")
MEGATRON_OF_8, MEGATRON_SPLITS = cases("mc8"), cases("mu2")
MEGATRON_DELTA, MEGATRON_DELTA_OF_4 = cases("md2"), cases("md4")
MEGATRON_FAMILIES = cases("ma2", "ma4")
MEGATRON_HYBRID, MEGATRON_HYBRID_OF_4 = cases("mh2"), cases("mh4")
MEGATRON_VISION = cases("mv2")
MEGATRON_RANKS, MEGATRON_RANKS_OF_8 = cases("mr2"), cases("mr8")
MEGATRON_OPTIMIZERS = cases("mo2", "ms4")
MORE_MEGATRON_OPTIMIZERS = cases("mp2", "mo15")[:-1]  # the last is refused
MEGATRON_FSDP, MEGATRON_FSDP_OF_4 = cases("mf2"), cases("mf4")
NEMO = cases("ne4")
TRAINER = cases("t2", "t3", "t4")
ACCELERATE = cases("a2", "a3")
ENGINES = cases("e2")
TIED = cases("ti2")
RANKS = [(n, c) for n, c in cases("v2", "v3", "v4")
         if not any(m in c for m in ("llava", "lora", "tied", "critic"))]
RANK_MODELS = [x for x in cases("v2", "v3", "v4") if x not in RANKS]
DCP = cases("d1", "d2", "d3", "d4")
# peft 0.21 saves nothing of the model under FSDP1 and a Trainer: test_adapters.py looks at that alone.
ADAPTERS = [(n, c) for n, c in cases("pf2", "pz2") if c != "lora-f1"]
# Families that keep their in-memory names when published: the mount's file is save_pretrained's.
PLAIN_FAMILIES = [(n, c) for n, c in TRAINER if c.startswith(("tied", "untied"))]
# Families that transformers publishes under other names.
RENAMED_FAMILIES = [(n, c) for n, c in TRAINER if c.startswith(("mixtral", "llava"))]
