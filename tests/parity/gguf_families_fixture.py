"""Makes tests/fixtures/gguf/families: small GGUF files of mixtures of experts, Gemma and Phi-3, and their logits.

    python tests/parity/gguf_families_fixture.py tests/fixtures/gguf/families

NAME.gguf          written by gguf-py, with the names in its own table of Hugging Face's tensors and the layout of
                   llama.cpp's convert_hf_to_gguf.py: experts stacked, llama's q and k interleaved, 1 added to Gemma's
                   norms
NAME.safetensors   logits of transformers' model on the ids of tokens(99), in double precision

If transformers' own GGUF import supports the architecture, its tensors must equal the model's. Needs torch,
transformers, safetensors, gguf (gguf-py).
"""
import os, re, sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig,
                          GemmaForCausalLM, MixtralConfig, MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM,
                          Phi3Config, Phi3ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_llama_fixtures import V, tokens

A = gguf.MODEL_ARCH
small = dict(vocab_size=V, hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=None)
experts = dict(small, num_experts=4, num_experts_per_tok=2)
gemma = dict(small, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=16)
FAMILIES = {
    "mixtral": (A.LLAMA, MixtralConfig, MixtralForCausalLM,
                dict(small, num_local_experts=4, num_experts_per_tok=2, rope_parameters=dict(
                    rope_type="default", rope_theta=5000.0))),
    "qwen2_moe": (A.QWEN2MOE, Qwen2MoeConfig, Qwen2MoeForCausalLM,
                  dict(experts, moe_intermediate_size=16, shared_expert_intermediate_size=20)),
    "qwen3_moe": (A.QWEN3MOE, Qwen3MoeConfig, Qwen3MoeForCausalLM,
                  dict(experts, moe_intermediate_size=16, head_dim=12, norm_topk_prob=True)),
    "olmoe": (A.OLMOE, OlmoeConfig, OlmoeForCausalLM, experts),
    "gemma": (A.GEMMA, GemmaConfig, GemmaForCausalLM, gemma),
    "gemma2": (A.GEMMA2, Gemma2Config, Gemma2ForCausalLM,
               dict(gemma, num_hidden_layers=2, sliding_window=6, query_pre_attn_scalar=8, attn_logit_softcapping=3.0,
                    final_logit_softcapping=5.0)),
    "gemma3_text": (A.GEMMA3, Gemma3TextConfig, Gemma3ForCausalLM,
                    dict(gemma, num_hidden_layers=7, sliding_window=6, query_pre_attn_scalar=8, rope_parameters=dict(
                        full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=2.0),
                        sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "phi3": (A.PHI3, Phi3Config, Phi3ForCausalLM, dict(small, sliding_window=7, original_max_position_embeddings=64)),
    "phi3_longrope": (A.PHI3, Phi3Config, Phi3ForCausalLM,
                      dict(small, tie_word_embeddings=True, original_max_position_embeddings=16, rope_parameters=dict(
                          rope_type="longrope", rope_theta=1000.0, partial_rotary_factor=0.5,
                          original_max_position_embeddings=16, short_factor=[1.0, 1.25], long_factor=[1.5, 4.0]))),
}
IMPORTED = ("qwen2_moe", "qwen3_moe", "gemma2", "gemma3_text", "phi3", "phi3_longrope")  # by transformers


def interleaved(weights, heads):
    """Interleaves rows i and i + D/2 of each head."""
    return weights.reshape(heads, 2, -1, weights.shape[-1]).swapaxes(1, 2).reshape(weights.shape)


def stored(name, model):
    """GGUF's tensors of a model by Hugging Face's names, with experts stacked and gate and up separate."""
    c = model.config
    for hf, weight in model.state_dict().items():
        w = weight.numpy()
        if hf == "lm_head.weight" and c.tie_word_embeddings:
            continue
        if hf.endswith("experts.gate_up_proj"):
            gate, up = np.split(w, 2, axis=1)
            yield hf.replace("gate_up_proj", "gate_proj.weight"), gate
            yield hf.replace("gate_up_proj", "up_proj.weight"), up
            continue
        if hf.endswith("experts.down_proj"):
            hf += ".weight"
        if name == "mixtral" and ".self_attn.q_proj" in hf:
            w = interleaved(w, c.num_attention_heads)
        if name == "mixtral" and ".self_attn.k_proj" in hf:
            w = interleaved(w, c.num_key_value_heads)
        if name.startswith("gemma") and hf.endswith("norm.weight"):
            w = w + np.float32(1)
        if hf.endswith("shared_expert_gate.weight"):
            w = w[0]
        yield hf, w


def write_settings(writer, c):
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    head = getattr(c, "head_dim", None)
    if head:
        writer.add_key_length(head)
        writer.add_value_length(head)
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if c.model_type == "phi3":
        turned = int(c.hidden_size // c.num_attention_heads * rope.get("partial_rotary_factor", 1))
        writer.add_rope_dimension_count(turned)
        writer.add_rope_scaling_orig_ctx_len(c.original_max_position_embeddings)
        for kind in ("long", "short") if rope["rope_type"] == "longrope" else ():
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if getattr(c, "sliding_window", None):
        writer.add_sliding_window(c.sliding_window)
    if c.model_type == "gemma2":
        writer.add_attn_logit_softcapping(c.attn_logit_softcapping)
        writer.add_final_logit_softcapping(c.final_logit_softcapping)
    count = getattr(c, "num_local_experts", None) or getattr(c, "num_experts", None)
    if count:
        writer.add_expert_count(count)
        writer.add_expert_used_count(c.num_experts_per_tok)
    if c.model_type in ("qwen2_moe", "qwen3_moe"):
        writer.add_expert_feed_forward_length(c.moe_intermediate_size)
    if c.model_type == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)


def make(name, folder):
    architecture, config_class, model_class, arguments = FAMILIES[name]
    torch.manual_seed(sorted(FAMILIES).index(name) + 1)
    attention = "eager" if name == "gemma2" else "sdpa"
    model = model_class._from_config(config_class(**arguments), attn_implementation=attention,
                                     experts_implementation="eager").eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p * 5 if p.dim() >= 2 else p + 0.2 * torch.randn_like(p))
    path = os.path.join(folder, name + ".gguf")
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    write_settings(writer, model.config)
    names = gguf.get_tensor_name_map(architecture, model.config.num_hidden_layers)
    for hf, w in stored(name, model):
        hf = re.sub(r"mlp\.experts\.(gate|up|down)_proj", r"mlp.experts.\1_proj", hf)
        ours = names.get_name(hf, try_suffixes=(".weight", ".bias"))
        assert ours, hf
        writer.add_tensor(ours, np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if name in IMPORTED:
        theirs = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
        for hf, weight in model.state_dict().items():
            if hf in theirs:
                assert torch.allclose(theirs[hf].reshape(weight.shape), weight, rtol=0, atol=2e-7), hf
        missing = set(model.state_dict()) - set(theirs) - {"lm_head.weight"}
        assert not missing, missing
    with torch.no_grad():
        logits = model.double()(input_ids=tokens(99), use_cache=False).logits
    save_file({"logits": logits.float().contiguous()}, os.path.join(folder, name + ".safetensors"))
    print(name, os.path.getsize(path), "bytes", "as transformers imports it" if name in IMPORTED else "")


def main(folder):
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    for name in FAMILIES:
        make(name, folder)


main(sys.argv[1])
