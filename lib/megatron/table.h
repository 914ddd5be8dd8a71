/* How the names and shapes that Hugging Face publishes follow from those of Megatron-Core's checkpoints, as data: a
 * model's family is a list of rows. Read by megatron/names.c alone. */
#ifndef UNS_MEGATRON_TABLE_H
#define UNS_MEGATRON_TABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Numbers of a model: from config.json, or computed from such numbers (megatron/sizes.c). */
enum uns_megatron_size {
	UNS_MG_NONE, /* there is no such dimension */
	UNS_MG_ONE,
	UNS_MG_VOCAB,
	UNS_MG_LAYERS,
	UNS_MG_MTP_LAYERS, /* behind them, for multi-token prediction */
	UNS_MG_HIDDEN,
	UNS_MG_TWO_HIDDEN,
	UNS_MG_HEADS,
	UNS_MG_GROUPS, /* of heads that share one key and value */
	UNS_MG_HEAD,   /* a head's width */
	UNS_MG_QUERY,  /* all heads' widths */
	UNS_MG_KEY,    /* all groups' */
	UNS_MG_FFN,
	UNS_MG_GATE_AND_UP, /* in one tensor */
	UNS_MG_DENSE_FFN, /* of layers without experts, where FFN is that of experts */
	UNS_MG_QUERY_KEYS_VALUES, /* rows of queries, keys and values in one tensor */
	UNS_MG_KEYS_VALUES,
	UNS_MG_EXPERTS,
	UNS_MG_EXPERT_FFN,
	UNS_MG_EXPERT_GATE_AND_UP,
	UNS_MG_EXPERT_LATENT, /* the width that experts work in, if it is not the model's */
	UNS_MG_EXPERT_IN, /* the width that experts work in */
	UNS_MG_SHARED, /* experts that process every token */
	UNS_MG_SHARED_FFN,
	UNS_MG_SHARED_FFNS, /* of all of them */
	UNS_MG_DENSE_LAYERS, /* the first layers, which have no experts */
	UNS_MG_SPARSE_STEP,  /* every n-th layer has experts */
	/* Multi-latent attention: ranks, widths of heads with and without position, and sums of these. */
	UNS_MG_Q_RANK,
	UNS_MG_KV_RANK,
	UNS_MG_NOPE,
	UNS_MG_ROPE,
	UNS_MG_VALUE,
	UNS_MG_QUERIES,
	UNS_MG_KV_DOWN,
	UNS_MG_KV_UP,
	UNS_MG_VALUES,
	/* Gated delta nets: widths and numbers of heads, and all heads' widths. */
	UNS_MG_LINEAR_KEY_HEAD,
	UNS_MG_LINEAR_VALUE_HEAD,
	UNS_MG_LINEAR_KEY_HEADS,
	UNS_MG_LINEAR_VALUE_HEADS,
	UNS_MG_LINEAR_KEY,
	UNS_MG_LINEAR_VALUE,
	UNS_MG_KERNEL, /* positions that the convolution in front of them covers */
	/* Mamba layers: widths and numbers of heads, all heads' widths; groups of heads, their states, and all groups'.
	 */
	UNS_MG_MAMBA_HEAD,
	UNS_MG_MAMBA_HEADS,
	UNS_MG_MAMBA_INNER,
	UNS_MG_MAMBA_GROUPS,
	UNS_MG_MAMBA_STATE,
	UNS_MG_MAMBA_STATES,
	UNS_MG_MAMBA_KERNEL,
	/* Of the vision model. */
	UNS_MG_VISION_LAYERS,
	UNS_MG_VISION_HIDDEN,
	UNS_MG_VISION_HEADS,
	UNS_MG_VISION_KEYS_VALUES,
	UNS_MG_VISION_QKV,
	UNS_MG_VISION_FFN,
	UNS_MG_VISION_OUT, /* the width of what the language model gets */
	UNS_MG_VISION_PROJECTED, /* the width that its patches have when they are merged */
	UNS_MG_VISION_ADAPTED, /* ... and the width that comes from them */
	UNS_MG_VISION_FEATURES, /* ... and what the language model's width is made of */
	UNS_MG_POSITIONS,
	UNS_MG_PATCHES_AND_ONE, /* of an image, and one for all of it */
	UNS_MG_PATCH_AREA,
	UNS_MG_PATCH_VALUES, /* of all channels */
	UNS_MG_CHANNELS,
	UNS_MG_FRAMES, /* that one patch covers */
	UNS_MG_PATCH,
	UNS_MG_MERGE, /* patches that are merged, in each direction */
	UNS_MG_MERGE_AREA,
	UNS_MG_MERGED, /* the widths of patches that are merged */
	UNS_MG_DEEPSTACK, /* how many of the vision model's layers the language model sees besides the last */
	UNS_MG_N_SIZES,
	/* Several dimensions, each with its number (megatron/sizes.c). */
	UNS_MG_PATCHES = UNS_MG_N_SIZES,
	UNS_MG_CONVOLUTION,
	UNS_MG_MAMBA_CONVOLUTION,
	UNS_MG_FLAT_PATCHES, /* of one image: no frames */
	UNS_MG_ONE_OF_VISION,
	UNS_MG_EACH_PATCH,
};

/* What a row is for. */
enum uns_megatron_when {
	UNS_MG_ALWAYS,
	UNS_MG_UNTIED, /* head and embedding are two tensors */
	UNS_MG_DENSE, /* layers without experts */
	UNS_MG_SPARSE, /* layers with experts */
	UNS_MG_ATTENTION_BIAS, /* config.json's attention_bias */
	UNS_MG_MLP_BIAS, /* ... mlp_bias */
	UNS_MG_QK_NORM, /* ... use_qk_norm */
	UNS_MG_LOW_RANK_Q, /* ... q_lora_rank is a number */
	UNS_MG_FULL_RANK_Q, /* ... is none */
	UNS_MG_LINEAR, /* layers whose attention is a gated delta net */
	UNS_MG_FULL, /* layers with softmax attention */
	UNS_MG_FULL_BIAS, /* ... and attention_bias */
	UNS_MG_LATENT_EXPERTS, /* layers with experts that work in a width of their own */
	UNS_MG_VISION_BIAS, /* vision_config's attention_bias or qkv_bias */
	UNS_MG_VISION_QK_NORM, /* ... use_qk_norm or qk_normalization */
	UNS_MG_VISION_CENTRED, /* ... norm_type is layer_norm, whose norms have biases */
	/* Of a hybrid model, each of whose layers is one thing: */
	UNS_MG_MAMBA,
	UNS_MG_MAMBA_BIAS, /* ... with config.json's use_conv_bias */
	UNS_MG_ATTENTION_ALONE,
	UNS_MG_MLP_ALONE,
};

/* How the elements of a published matrix are stored. */
enum uns_megatron_order {
	UNS_MG_AS_STORED,
	UNS_MG_TRANSPOSED,
	UNS_MG_ALTERNATING, /* transposed, and gate and up, which are stored one below the other, alternate */
	UNS_MG_BY_HEAD, /* rows with the same `from` and `to`: their parts alternate with each head */
	UNS_MG_JOINED, /* the published tensor consists of the stored tensors of all such rows with the same `to` */
	UNS_MG_MINUS_ONE, /* each element is stored minus one */
	UNS_MG_APART, /* rows with the same `from` and `to`: each part's shares one below the other, then the next
			 part's */
};

/* One published tensor. If rows of one list have the same `from`, the stored tensor consists of their tensors, one
 * below the other. If rows have the same `to`, the tensor may be in any of their `from`. If rows have both, the tensor
 * is their equal parts, one below the other. */
struct uns_megatron_rule {
	/* '*' is the layer, '#' the expert. In a stored name each is a number between dots, or is left out: then the
	 * tensor has a dimension in front with all layers or experts. So has the published tensor if only `from` has
	 * '#'. */
	const char *from, *to;
	/* Of the published tensor, without a dimension of experts; columns NONE: a vector; PATCHES: more dimensions. */
	enum uns_megatron_size rows, columns;
	enum uns_megatron_when when;
	/* How often the parts follow each other in the stored rows, or in the published ones if these are JOINED; each
	 * time an equal share of each part. */
	enum uns_megatron_size repeats;
	enum uns_megatron_order order; /* TRANSPOSED, ALTERNATING, MINUS_ONE: only where repeats is ONE */
	const char *rest; /* where the second half of the stored rows is, if `from` has the first half only */
};

/* Of a family with a vision model: where the language model's tensors are, and the vision model's. */
struct uns_megatron_vision {
	const char *stored_in; /* in front of the language model's stored names */
	const char *published_in; /* in place of "model." at the beginning of its published ones */
	/* In front of the vision model's layers, of each layer, behind them, and of each that the language model sees
	 * besides the last (NULL = of none). */
	const struct uns_megatron_rule *first, *layer, *last, *deepstack;
};

/* How layers for multi-token prediction are published. */
struct uns_megatron_mtp {
	const struct uns_megatron_rule *once, *layer; /* for all, and in front of the rows of any layer; NULL = none */
	const char *published_in; /* in place of "model." in names of the layers; NULL = they are behind the others */
};

struct uns_megatron_family {
	const char *model_type;
	/* Lists that end with from == NULL, in the order of the model's own state dict. Those of layers are applied to
	 * one layer after the other. None = those of the language model's own family (config.json's text model). */
	const struct uns_megatron_rule *layer[4];
	const struct uns_megatron_vision *vision; /* NULL = there is none */
	const struct uns_megatron_mtp *mtp; /* NULL = layers for multi-token prediction are refused */
	/* In place of uns_megatron_first and uns_megatron_last; NULL = these. */
	const struct uns_megatron_rule *first, *last;
	bool adds_one; /* its norms multiply by their weights plus one, as Megatron's do with apply_layernorm_1p */
};

/* Where the layers are, in stored names; and the layer that is inside of one for multi-token prediction, which newer
 * versions call by another name. */
#define UNS_MEGATRON_LAYER           "decoder.layers.*."
#define UNS_MEGATRON_MTP             "mtp.layers.*."
#define UNS_MEGATRON_MTP_LAYER       UNS_MEGATRON_MTP "transformer_layer."
#define UNS_MEGATRON_MTP_MODEL_LAYER UNS_MEGATRON_MTP "mtp_model_layer."

extern const struct uns_megatron_rule uns_megatron_first[], uns_megatron_last[]; /* before and after the layers */
extern const struct uns_megatron_family uns_megatron_table[]; /* sorted by model_type (strcmp) */
extern const size_t uns_n_megatron_table;

#endif
