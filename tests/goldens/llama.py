"""Hugging Face's answers for Llama: logits, gradients and greedy generation of tiny models.

    python tests/goldens/llama.py            # regenerate data/nn/llama.safetensors
    python tests/goldens/llama.py --check    # compare with the committed data; exit 1 on a difference

Needs `transformers` (pip) beside PyTorch; without it `--check` says so and passes, as PyTorch alone has no Llama.
Weights are hashed (`models.hashed`), stream i for the i-th parameter, times 0.3; norms get 1 + 0.3 times the hash. `__metadata__` has `cases`: a
JSON array of `{"name", "config"}`; the tensors of a case are `NAME.tokens`, `NAME.logits`, `NAME.generated`, and `NAME.grad.PARAMETER` of the sum
of the logits times the hash of stream 1000.
"""

import json
import sys
from pathlib import Path

import safetensors.torch
import torch

import models

FILE = Path(__file__).parent / "data" / "nn" / "llama.safetensors"
SMALL = dict(vocab_size=31, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32)
LONG = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8)
CASES = {
    "plain": {},
    "grouped": dict(num_key_value_heads=2, rope_theta=500000.0, rms_norm_eps=1e-5),
    "long": dict(num_key_value_heads=1, head_dim=6, rope_scaling=LONG, attention_bias=True),
    "tied": dict(tie_word_embeddings=True, rope_scaling=dict(rope_type="linear", factor=2.0), mlp_bias=True),
}


def answers():
    from transformers import LlamaConfig, LlamaForCausalLM

    tensors, cases = {}, []
    for number, (name, extra) in enumerate(CASES.items()):
        config = SMALL | extra
        model = LlamaForCausalLM(LlamaConfig(**config, attn_implementation="eager", use_cache=True, bos_token_id=None, eos_token_id=None)).eval()
        with torch.no_grad():
            for i, (parameter, values) in enumerate(model.named_parameters()):
                values.copy_(models.hashed(i, tuple(values.shape)) * 0.3 + ("norm" in parameter))
        tokens = models.tokens(100 + number, (2, 7), SMALL["vocab_size"])
        logits = model(tokens).logits
        (logits * models.hashed(1000, tuple(logits.shape))).sum().backward()
        generated = model.generate(tokens, max_new_tokens=8, do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(tokens))
        tensors |= {f"{name}.tokens": tokens, f"{name}.logits": logits.detach(), f"{name}.generated": generated}
        tensors |= {f"{name}.grad.{key}": p.grad for key, p in model.named_parameters()}
        cases.append({"name": name, "config": config})
    return tensors, {"cases": json.dumps(cases)}


def main():
    check = "--check" in sys.argv
    try:
        tensors, metadata = answers()
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(0 if check else 1)
    if not check:
        safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, FILE, metadata)
        return
    committed = safetensors.torch.load_file(FILE)
    assert committed.keys() == tensors.keys(), committed.keys() ^ tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(committed[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


main()
