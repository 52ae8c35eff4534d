"""Jobs of transformers' architectures: a small model of each kind, one training step. Mixtures of experts are among them."""

import torch
from common import fill, gradient, job, numbers, tokens

#: Sizes of a small model, by the names that configurations give them. What a configuration does not have is left out.
_SMALL = {
    "vocab_size": 50, "hidden_size": 32, "n_embd": 32, "d_model": 32, "dim": 32, "embedding_size": 32, "emb_dim": 32, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2,
    "num_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "n_inner": 64,
    "hidden_dim": 64, "d_ff": 64, "d_inner": 64, "d_kv": 8, "d_head": 8, "head_dim": 8, "ffn_dim": 64, "ffn_hidden_size": 64, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64, "n_positions": 64,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_topk": 2,
    "shared_expert_intermediate_size": 32, "n_group": 2, "topk_group": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "rotary_dim": 4, "word_embed_proj_dim": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "image_size": 32, "patch_size": 8,
    "num_labels": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "dropout": 0.0, "attention_dropout": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0, "hidden_dropout": 0.0, "activation_dropout": 0.0, "layerdrop": 0.0, "sliding_window": 8, "num_global_key_value_heads": 2, "global_head_dim": 8,
    "mamba_d_head": 16, "mamba_n_heads": 4, "mamba_n_groups": 1, "mamba_d_state": 8, "state_size": 8, "time_step_rank": 4, "num_hidden_groups": 1, "pad_token": 0,
}

#: Language models with labels, by the type of their configuration; further options where sizes depend on each other
#: (None: the default).
_CAUSAL = {
    "bloom": {}, "codegen": {}, "cohere": {}, "cohere2": {}, "falcon": {"head_dim": None}, "gemma": {}, "gemma2": {}, "glm": {}, "glm4": {}, "gpt_bigcode": {}, "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gpt_neox": {}, "gpt_neox_japanese": {}, "gptj": {}, "granite": {}, "helium": {}, "mamba": {}, "mistral": {}, "mpt": {}, "nemotron": {}, "olmo": {}, "olmo2": {}, "olmo3": {"layer_types": ["sliding_attention", "full_attention"]},
    "openai-gpt": {}, "opt": {}, "persimmon": {}, "phi": {}, "phi3": {}, "qwen2": {}, "qwen3": {}, "smollm3": {}, "stablelm": {}, "starcoder2": {}, "xglm": {}, "biogpt": {},
    "exaone4": {}, "ernie4_5": {}, "seed_oss": {}, "arcee": {}, "apertus": {},
    # Mixtures of experts.
    "mixtral": {}, "qwen2_moe": {}, "qwen3_moe": {}, "olmoe": {}, "granitemoe": {}, "phimoe": {}, "deepseek_v2": {"num_key_value_heads": 4}, "deepseek_v3": {"num_key_value_heads": 4}, "gpt_oss": {}, "ernie4_5_moe": {}, "dots1": {"n_shared_experts": 1},
    "minimax": {"layer_types": ["full_attention", "full_attention"]},
}

#: Encoders, and encoders with decoders, that take tokens.
_MASKED = {
    "albert": {}, "bert": {}, "camembert": {}, "convbert": {}, "deberta": {}, "deberta-v2": {}, "distilbert": {}, "electra": {}, "ernie": {}, "flaubert": {}, "fnet": {}, "ibert": {}, "layoutlm": {},
    "megatron-bert": {}, "mobilebert": {}, "modernbert": {"num_hidden_layers": 2}, "mpnet": {}, "nystromformer": {}, "rembert": {}, "roberta": {}, "roformer": {}, "squeezebert": {}, "xlm-roberta": {},
}
_SEQUENCES = {"bart": {}, "blenderbot": {}, "led": {"attention_window": 4}, "m2m_100": {}, "marian": {"decoder_start_token_id": 0, "decoder_vocab_size": 50}, "mbart": {}, "mt5": {}, "pegasus": {}, "plbart": {}, "switch_transformers": {"decoder_start_token_id": 0}, "umt5": {}}

#: Classifiers of pictures.
_PICTURES = {
    "beit": {}, "convnext": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 2}, "convnextv2": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 2}, "cvt": {}, "dinov2": {},
    "mobilenet_v2": {}, "mobilevit": {"image_size": 96, "patch_size": 2}, "poolformer": {}, "pvt": {}, "regnet": {}, "resnet": {}, "segformer": {}, "swin": {"window_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "patch_size": 4, "num_layers": None, "num_hidden_layers": None, "num_attention_heads": None},
    "vit": {}, "vit_msn": {}, "ijepa": {}, "hiera": {"depths": [1, 1], "num_heads": [1, 2], "embed_dim": 16, "image_size": [32, 32], "patch_size": [7, 7], "patch_stride": [4, 4], "patch_padding": [3, 3], "query_stride": [2, 2], "masked_unit_size": [4, 4], "num_query_pool": 1},
}


def configuration(kind, options):
    """A small configuration of a type."""
    from transformers import AutoConfig

    known = AutoConfig.for_model(kind)
    wanted = {key: value for key, value in _SMALL.items() if hasattr(known, key) and not isinstance(getattr(known, key), (list, tuple, dict))}
    wanted.update(options)
    return AutoConfig.for_model(kind, **{key: value for key, value in wanted.items() if value is not None})


def train(model, inputs):
    """The output of a model and the gradients' sum of a step."""
    out = model(**inputs)
    loss = out.loss if getattr(out, "loss", None) is not None else out.logits.square().mean()
    loss.backward()
    return {"loss": loss, "logits": out.logits.detach().mean(-1), "gradients": gradient(model)}


def _job(auto, kind, options, inputs):
    def run():
        import transformers

        model = getattr(transformers, auto).from_config(configuration(kind, options))
        fill(model, 0.05, buffers=False)
        # What is dropped is random, and statistics of two pictures make deep nets chaotic.
        model.eval()
        return train(model, inputs(model.config))

    return run


def _words(config):
    ids = tokens(2, 9, vocabulary=45) + 3
    return {"input_ids": ids, "labels": ids}


def _picture(config):
    size = getattr(config, "image_size", None) or 96
    size = size if isinstance(size, int) else size[0]
    return {"pixel_values": numbers(2, 3, size, size), "labels": torch.tensor([0, 1])}


for _auto, _kinds, _inputs in (
    ("AutoModelForCausalLM", _CAUSAL, _words), ("AutoModelForMaskedLM", _MASKED, _words), ("AutoModelForSeq2SeqLM", _SEQUENCES, _words),
    ("AutoModelForImageClassification", _PICTURES, _picture),
):
    for _kind, _options in _kinds.items():
        job("architectures", _kind)(_job(_auto, _kind, _options, _inputs))
