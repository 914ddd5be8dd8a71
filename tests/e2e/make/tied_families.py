"""Models of transformers in which several names share one tensor, and not only lm_head: name -> (class, configuration).
No dimension equals another that it could be taken for."""

import transformers as T

SEQUENCES = {"vocab_size": 40, "d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "max_position_embeddings": 16,
             "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SPEECH = SEQUENCES | {"max_source_positions": 16, "max_target_positions": 16}
T5 = {"vocab_size": 40, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 2}
BERT = {"vocab_size": 40, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
NARROW = BERT | {"embedding_size": 6}
PROPHET = {"vocab_size": 40, "hidden_size": 8, "num_encoder_layers": 2, "num_decoder_layers": 2,
           "num_encoder_attention_heads": 2, "num_decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12}
APART = {"decoder_vocab_size": 44, "share_encoder_decoder_embeddings": False}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}

FAMILIES = {
    "t5": (T.T5ForConditionalGeneration, T.T5Config, T5),
    "t5_encoder": (T.T5EncoderModel, T.T5Config, T5),
    "t5_untied": (T.T5ForConditionalGeneration, T.T5Config, T5 | {"tie_word_embeddings": False}),
    "mt5": (T.MT5ForConditionalGeneration, T.MT5Config, T5),
    "longt5": (T.LongT5ForConditionalGeneration, T.LongT5Config, T5),
    "switch_transformers": (T.SwitchTransformersForConditionalGeneration, T.SwitchTransformersConfig,
                            T5 | {"num_experts": 2}),
    "bart": (T.BartForConditionalGeneration, T.BartConfig, SEQUENCES),
    "bart_decoder": (T.BartForCausalLM, T.BartConfig, SEQUENCES),
    "bart_classifier": (T.BartForSequenceClassification, T.BartConfig, SEQUENCES),
    "bart_untied": (T.BartForConditionalGeneration, T.BartConfig, SEQUENCES | {"tie_word_embeddings": False}),
    "mbart": (T.MBartForConditionalGeneration, T.MBartConfig, SEQUENCES),
    "marian": (T.MarianMTModel, T.MarianConfig, SEQUENCES | {"decoder_vocab_size": 40}),
    "marian_apart": (T.MarianMTModel, T.MarianConfig, SEQUENCES | APART),
    "marian_untied": (T.MarianMTModel, T.MarianConfig, SEQUENCES | {"tie_word_embeddings": False}),
    "pegasus": (T.PegasusForConditionalGeneration, T.PegasusConfig, SEQUENCES),
    "blenderbot": (T.BlenderbotForConditionalGeneration, T.BlenderbotConfig, SEQUENCES),
    "led": (T.LEDForConditionalGeneration, T.LEDConfig, SEQUENCES | {"attention_window": 4}),
    "prophetnet": (T.ProphetNetForConditionalGeneration, T.ProphetNetConfig, PROPHET),
    "whisper": (T.WhisperForConditionalGeneration, T.WhisperConfig, SPEECH),
    "bert": (T.BertForMaskedLM, T.BertConfig, BERT),
    "roberta": (T.RobertaForMaskedLM, T.RobertaConfig, BERT),
    "distilbert": (T.DistilBertForMaskedLM, T.DistilBertConfig,
                   {"vocab_size": 40, "dim": 8, "hidden_dim": 12, "n_layers": 2, "n_heads": 2}),
    "albert": (T.AlbertForMaskedLM, T.AlbertConfig, NARROW),
    "electra": (T.ElectraForMaskedLM, T.ElectraConfig, NARROW),
    "deberta-v2": (T.DebertaV2ForMaskedLM, T.DebertaV2Config, BERT),
    "mpnet": (T.MPNetForMaskedLM, T.MPNetConfig, BERT),
    "modernbert": (T.ModernBertForMaskedLM, T.ModernBertConfig, BERT | IDS),
    "xlnet": (T.XLNetLMHeadModel, T.XLNetConfig, {"vocab_size": 40, "d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 12}),
    "ctrl": (T.CTRLLMHeadModel, T.CTRLConfig,
             {"vocab_size": 40, "n_embd": 8, "dff": 12, "n_layer": 2, "n_head": 2, "n_positions": 16}),
    "biogpt": (T.BioGptForCausalLM, T.BioGptConfig, BERT),
    "openai-gpt": (T.OpenAIGPTLMHeadModel, T.OpenAIGPTConfig,
                   {"vocab_size": 40, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}),
    "xlm": (T.XLMWithLMHeadModel, T.XLMConfig, {"vocab_size": 40, "emb_dim": 8, "n_layers": 2, "n_heads": 2}),
}


def build(name):
    """With random weights."""
    cls, config, arguments = FAMILIES[name]
    return cls(config(**arguments))
