"""Makes tests/fixtures/llama/NAME/: small random models of the Llama family as transformers saves them, and
transformers' results for them.

    python tests/parity/make_llama_fixtures.py [NAME ...]      (torch 2.11, transformers 5; not needed by `make test`)

A folder contains config.json as transformers 5 writes it, config_v4.json (the same model in the spelling of
transformers 4, which must give the same logits), the weights (whole, or in shards with an index), expected.json and
expected.safetensors:
  ids (step 99 of tokens()) -> logits [B, T, V]; "long": also for LONG tokens, beyond the original context;
  train: mean losses and gradient norms (before clipping to 1) of 20 AdamW steps of transformers' Trainer: its decay
    rule, linear schedule with 2 steps of warm-up, labels = ids except one position;
  padded: rows of `lengths` tokens, right-padded with attention_mask, labels -100 there;
  auxiliary (mixtures of experts): the loss with output_router_logits, its balancing part before the coefficient, and
    the gradient norm;
  packed: rows of documents that begin at `starts`: position_ids from 0 in each, block-diagonal causal mask.

The reference runs in float64 (norms too, which transformers always computes in float32), so that differences in tests
come from Tessera alone. Rotary angles stay in float32, because transformers' rounding there is part of the model. The
script itself asserts that plain float32 transformers agrees.
"""
import copy, json, os, shutil, sys, tempfile

import torch
from safetensors.torch import save_file
import transformers
from transformers import (AutoModelForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, Gemma2Config,
                          Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig, GemmaForCausalLM,
                          LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          MixtralConfig, MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM, Phi3Config, Phi3ForCausalLM,
                          Qwen2Config,
                          Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM, Trainer, get_scheduler)
from transformers.models.arcee.modeling_arcee import ArceeRMSNorm
from transformers.models.cohere.modeling_cohere import CohereLayerNorm
from transformers.models.cohere2.modeling_cohere2 import Cohere2LayerNorm
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3RMSNorm
from transformers.models.ernie4_5.modeling_ernie4_5 import Ernie4_5RMSNorm
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.granite.modeling_granite import GraniteRMSNorm
from transformers.models.helium.modeling_helium import HeliumRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralRMSNorm
from transformers.models.mixtral.modeling_mixtral import MixtralRMSNorm
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm
from transformers.models.olmo3.modeling_olmo3 import Olmo3RMSNorm
from transformers.models.olmoe.modeling_olmoe import OlmoeRMSNorm
from transformers.models.phi3.modeling_phi3 import Phi3RMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRMSNorm
from transformers.models.smollm3.modeling_smollm3 import SmolLM3RMSNorm
from transformers.utils.logging import disable_progress_bar

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures", "llama")
B, T, V, STEPS = 2, 20, 97, 20
LONG = 28  # beyond the original context of the scaled RoPE variants (16), within the scaled one
PADDED = [20, 9, 14, 2]
PACKED = [[0, 7, 12], [0, 15], [0, 1, 2, 10]]

small = dict(vocab_size=V, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
wide_heads = dict(small, head_dim=16, intermediate_size=40)  # eight frequencies to scale
FIXTURES = {
    "llama": (LlamaConfig, LlamaForCausalLM, dict(small, hidden_size=48, intermediate_size=72, rms_norm_eps=1e-5)),
    "llama_biases_tied": (LlamaConfig, LlamaForCausalLM,
                          dict(small, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                               num_key_value_heads=4)),
    "llama3_rope": (LlamaConfig, LlamaForCausalLM,
                    dict(wide_heads, tie_word_embeddings=True, rope_parameters=dict(
                        rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                        original_max_position_embeddings=16))),
    "linear_rope": (LlamaConfig, LlamaForCausalLM,
                    dict(wide_heads, num_key_value_heads=1, max_position_embeddings=16,
                         rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5))),
    "dynamic_rope": (LlamaConfig, LlamaForCausalLM,
                     dict(wide_heads, max_position_embeddings=16,
                          rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0))),
    "yarn_rope": (LlamaConfig, LlamaForCausalLM,
                  dict(wide_heads, rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0,
                                                        original_max_position_embeddings=16, beta_fast=8.0,
                                                        beta_slow=1.0))),
    "mistral_window": (MistralConfig, MistralForCausalLM, dict(small, sliding_window=6, head_dim=8)),
    "qwen2_windows": (Qwen2Config, Qwen2ForCausalLM,
                      dict(small, num_hidden_layers=3, intermediate_size=40, use_sliding_window=True, sliding_window=5,
                           max_window_layers=1, rms_norm_eps=1e-6, tie_word_embeddings=True)),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, dict(wide_heads, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="default", rope_theta=1000000.0))),
    "mixtral": (MixtralConfig, MixtralForCausalLM, dict(small, intermediate_size=24, num_local_experts=6,
                                                        num_experts_per_tok=2, router_aux_loss_coef=0.05)),
    "qwen2_moe": (Qwen2MoeConfig, Qwen2MoeForCausalLM,
                  dict(small, num_hidden_layers=3, moe_intermediate_size=16, shared_expert_intermediate_size=28,
                       num_experts=8, num_experts_per_tok=3, mlp_only_layers=[1], use_sliding_window=True,
                       sliding_window=6, max_window_layers=2, router_aux_loss_coef=0.05)),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM,
                  dict(wide_heads, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True,
                       tie_word_embeddings=True, router_aux_loss_coef=0.05)),
    "qwen3_moe_sparse_step": (Qwen3MoeConfig, Qwen3MoeForCausalLM,
                              dict(wide_heads, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=4,
                                   norm_topk_prob=False, decoder_sparse_step=2)),
    "olmoe": (OlmoeConfig, OlmoeForCausalLM, dict(small, intermediate_size=16, num_experts=8, num_experts_per_tok=3,
                                                  clip_qkv=1.5, router_aux_loss_coef=0.05, pad_token_id=None)),
    "deepseek_v3": (DeepseekV3Config, DeepseekV3ForCausalLM,
                    dict(small, num_hidden_layers=3, num_key_value_heads=4, intermediate_size=40,
                         moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
                         n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=1.7, q_lora_rank=20,
                         kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=16, rms_norm_eps=1e-5)),
    "deepseek_v3_yarn": (DeepseekV3Config, DeepseekV3ForCausalLM,
                         dict(small, num_hidden_layers=2, num_key_value_heads=4, moe_intermediate_size=12,
                              n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, norm_topk_prob=False,
                              first_k_dense_replace=0, q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8,
                              qk_rope_head_dim=8, v_head_dim=20, attention_bias=True, rope_interleave=False,
                              rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, mscale=1.0,
                                                   mscale_all_dim=0.8, original_max_position_embeddings=16,
                                                   beta_fast=8.0, beta_slow=1.0))),
}
gemma = dict(wide_heads, num_hidden_layers=3, pad_token_id=None)
FIXTURES |= {
    "gemma": (GemmaConfig, GemmaForCausalLM, dict(gemma, num_hidden_layers=2, num_key_value_heads=1)),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM,
               dict(gemma, sliding_window=6, query_pre_attn_scalar=24, attn_logit_softcapping=3.0,
                    final_logit_softcapping=5.0)),
    "gemma3_text": (Gemma3TextConfig, Gemma3ForCausalLM,
                    dict(gemma, sliding_window=6, layer_types=["sliding_attention", "sliding_attention",
                                                               "full_attention"],
                         query_pre_attn_scalar=20, rope_parameters=dict(
                             full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=2.0),
                             sliding_attention=dict(rope_type="default", rope_theta=100.0)))),
    "phi3": (Phi3Config, Phi3ForCausalLM, dict(small, intermediate_size=40, sliding_window=7, pad_token_id=None,
                                               original_max_position_embeddings=64)),
    # as in Phi-4-mini: only a part of each head is rotated, and the head is tied
    "phi3_longrope": (Phi3Config, Phi3ForCausalLM,
                      dict(small, hidden_size=64, intermediate_size=40, pad_token_id=None, tie_word_embeddings=True,
                           original_max_position_embeddings=16, rope_parameters=dict(
                               rope_type="longrope", rope_theta=1000.0, partial_rotary_factor=0.75,
                               original_max_position_embeddings=16,
                               short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.4], long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 5.0]
                           ))),
}
NAMES = sorted(FIXTURES)  # the position is the seed, so new names are appended


def add(name, kind, **arguments):
    """Adds a fixture of the class {kind}ForCausalLM."""
    NAMES.append(name)
    FIXTURES[name] = (getattr(transformers, kind + "Config"), getattr(transformers, kind + "ForCausalLM"), arguments)


four = dict(small, num_hidden_layers=4, intermediate_size=24)  # the last of four layers differs
no_pad = dict(small, pad_token_id=None)
add("granite", "Granite", **small, embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.3,
    logits_scaling=2.5, tie_word_embeddings=True, attention_bias=True)
add("smollm3", "SmolLM3", **dict(four, pad_token_id=None), use_sliding_window=True, sliding_window=6)
add("arcee", "Arcee", **small, mlp_bias=True)
add("nemotron", "Nemotron", **no_pad, head_dim=16)
add("stablelm", "StableLm", **dict(small, hidden_size=64), use_qkv_bias=True)
add("stablelm_parallel", "StableLm", **dict(small, hidden_size=64, num_key_value_heads=4), use_parallel_residual=True,
    partial_rotary_factor=0.5)
add("starcoder2", "Starcoder2", **no_pad, sliding_window=6)
add("olmo", "Olmo", **no_pad, clip_qkv=1.5)
add("olmo2", "Olmo2", **no_pad)
add("olmo3", "Olmo3", **dict(four, head_dim=8, pad_token_id=None, sliding_window=6, rope_parameters=dict(
    full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, original_max_position_embeddings=16,
                        beta_fast=8.0, beta_slow=1.0),
    sliding_attention=dict(rope_type="default", rope_theta=500000.0))))
add("cohere", "Cohere", **no_pad, logit_scale=0.3, attention_bias=True)
add("cohere2", "Cohere2", **dict(four, pad_token_id=None), sliding_window=6, logit_scale=0.3)
neox = {k: v for k, v in dict(small, hidden_size=64).items() if k != "num_key_value_heads"}
add("gpt_neox", "GPTNeoX", **neox)
add("gpt_neox_serial", "GPTNeoX", **neox, use_parallel_residual=False, rotary_pct=0.5, hidden_act="gelu_fast",
    tie_word_embeddings=True)
add("phi", "Phi", **no_pad)
add("phi_norms", "Phi", **dict(no_pad, num_key_value_heads=4), qk_layernorm=True, hidden_act="gelu")
opt = {k: v for k, v in no_pad.items() if k not in ("num_key_value_heads", "intermediate_size")}
add("opt", "OPT", **opt, ffn_dim=56, dropout=0.0)
add("helium", "Helium", **no_pad, head_dim=8, attention_bias=True, mlp_bias=True)
add("ernie4_5", "Ernie4_5", **no_pad, head_dim=16, use_bias=True)
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe")  # model types
SHARDED = {"llama": "60KB"}


def tokens(step, rows=B, length=T):
    """31-bit linear congruential generator, restarted per step: x0 = step + 1; token = (x >> 8) mod V, row by row."""
    x, out = step + 1, []
    for _ in range(rows):
        row = []
        for _ in range(length):
            x = (1103515245 * x + 12345) & 0x7FFFFFFF
            row.append((x >> 8) % V)
        out.append(row)
    return torch.tensor(out)


def exact_norm(self, x):
    if x.dtype != torch.float64:
        return self.plain_forward(x)
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def exact_gemma_norm(self, x):
    if x.dtype != torch.float64:
        return self.plain_forward(x)
    return (1 + self.weight) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def exact_layer_norm(self, x):
    if x.dtype != torch.float64:
        return self.plain_forward(x)
    weight = getattr(self, "weight", None)
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, None, getattr(self, "variance_epsilon", 1e-5))


def exact_capped_attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, softcap=None, **_):
    if query.dtype != torch.float64:
        return plain_capped_attention(module, query, key, value, attention_mask, dropout, scaling, softcap)
    key, value = (modeling_gemma2.repeat_kv(x, module.num_key_value_groups) for x in (key, value))
    scores = torch.tanh(query @ key.transpose(2, 3) * scaling / softcap) * softcap
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = torch.softmax(scores, -1)  # transformers uses float32
    return (weights @ value).transpose(1, 2).contiguous(), weights


plain_capped_attention = modeling_gemma2.eager_attention_forward
modeling_gemma2.eager_attention_forward = exact_capped_attention
for kind in (GemmaRMSNorm, Gemma2RMSNorm, Gemma3RMSNorm):
    kind.plain_forward, kind.forward = kind.forward, exact_gemma_norm
for kind in (LlamaRMSNorm, MistralRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm, MixtralRMSNorm, OlmoeRMSNorm, Qwen2MoeRMSNorm,
             Qwen3MoeRMSNorm, DeepseekV3RMSNorm, Phi3RMSNorm, ArceeRMSNorm, GraniteRMSNorm, Olmo2RMSNorm,
             Olmo3RMSNorm, SmolLM3RMSNorm, HeliumRMSNorm, Ernie4_5RMSNorm):
    kind.plain_forward, kind.forward = kind.forward, exact_norm
for kind in (OlmoLayerNorm, CohereLayerNorm, Cohere2LayerNorm):
    kind.plain_forward, kind.forward = kind.forward, exact_layer_norm


def v4_spelling(config):
    """config.json in the form of transformers 4."""
    c = dict(config)
    if c["model_type"] == "opt":
        return dict(c, torch_dtype=c.pop("dtype"), transformers_version="4.46.3")
    rope = dict(c.pop("rope_parameters"))
    if "sliding_attention" in rope:  # Gemma 3, OLMo 3
        if c["model_type"] == "gemma3_text":
            c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            c["sliding_window_pattern"] = 3
        rope = dict(rope["full_attention"])
    if "partial_rotary_factor" in rope:
        c["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    c["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    if kind in ("linear", "dynamic") and "rope_local_base_freq" not in c:
        rope = {"type": kind, "factor": rope["factor"]}  # the oldest spelling
    elif kind == "longrope":
        rope = {"type": kind, "short_factor": rope["short_factor"], "long_factor": rope["long_factor"]}
    else:
        rope = {"rope_type": kind, **rope}
    c["rope_scaling"] = None if kind == "default" else rope
    if c["model_type"] == "gpt_neox":
        c["rotary_emb_base"], c["rotary_pct"] = c.pop("rope_theta"), c.pop("partial_rotary_factor")
    c["torch_dtype"] = c.pop("dtype")
    c.pop("layer_types", None)
    c["transformers_version"] = "4.46.3"
    return c


def make(name):
    config_class, model_class, arguments = FIXTURES[name]
    torch.manual_seed(NAMES.index(name) + 1)
    model = model_class(config_class(use_cache=True, dtype="float32", **arguments))
    with torch.no_grad():  # away from the initial symmetry: biases and norms that matter, sharper attention and logits
        for parameter_name, p in model.named_parameters():
            p.copy_(p * 5 if p.dim() >= 2 else p + 0.2 * torch.randn_like(p))
        for buffer_name, b in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                b.copy_(0.2 * torch.randn_like(b))
    return model


def mean_loss(model, ids, labels, **inputs):
    """Mean cross-entropy over the scored positions, in the model's dtype; must equal transformers' own loss."""
    logits = model(input_ids=ids, use_cache=False, **inputs).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1),
                                             ignore_index=-100)
    theirs = model(input_ids=ids, labels=labels, use_cache=False, **inputs).loss
    assert abs(float(theirs) / float(loss) - 1) < 1e-6, (float(theirs), float(loss))
    return loss


def norm_of(model):
    return float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def loss_and_norm(folder, dtype, ids, labels, **inputs):
    model = load(folder, dtype)
    loss = mean_loss(model, ids, labels, **inputs)
    loss.backward()
    return {"loss": float(loss.detach()), "grad_norm": norm_of(model)}


def attention_of(folder):
    """eager where scores are capped, which sdpa cannot do."""
    return "eager" if json.load(open(os.path.join(folder, "config.json")))["model_type"] == "gemma2" else "sdpa"


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                attn_implementation=attention_of(folder),
                                                experts_implementation="eager").to(dtype).train()


def train(folder, dtype):
    model = load(folder, dtype)
    decay = set(Trainer.get_decay_parameter_names(None, model))
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": [p for n, p in named if n in decay], "weight_decay": 0.1},
                                   {"params": [p for n, p in named if n not in decay], "weight_decay": 0.0}], lr=1e-3)
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=2, num_training_steps=STEPS)
    losses, norms = [], []
    for step in range(STEPS):
        ids = tokens(step)
        labels = ids.clone()
        labels[0, 5] = -100  # one position that is not scored
        loss = mean_loss(model, ids, labels)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(float(loss.detach()))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return {"losses": losses, "grad_norms": norms}


def padded(folder, dtype):
    ids = tokens(50, len(PADDED))
    mask = torch.arange(T)[None] < torch.tensor(PADDED)[:, None]
    ids = ids.where(mask, 0)
    return loss_and_norm(folder, dtype, ids, ids.where(mask, -100), attention_mask=mask.long())


def packed_inputs(config, dtype):
    """ids, labels, and the inputs that describe the documents to transformers."""
    rows = len(PACKED)
    document, position = torch.zeros(rows, T, dtype=torch.long), torch.zeros(rows, T, dtype=torch.long)
    for r, starts in enumerate(PACKED):
        for d, (begin, end) in enumerate(zip(starts, starts[1:] + [T])):
            document[r, begin:end], position[r, begin:end] = d, torch.arange(end - begin)
    ids = tokens(60, rows)
    labels = ids.where(position > 0, -100)
    i = torch.arange(T)
    full = (document[:, :, None] == document[:, None, :]) & (i[:, None] >= i[None, :])
    as_mask = lambda seen: torch.zeros(rows, 1, T, T, dtype=dtype).masked_fill(~seen[:, None], torch.finfo(dtype).min)
    mask = as_mask(full)
    if getattr(config, "sliding_window", None):
        window = as_mask(full & (i[:, None] - i[None, :] < config.sliding_window))
        one_window = config.model_type in ("mistral", "mixtral", "qwen3_moe", "phi3", "starcoder2")
        mask = window if one_window else {"full_attention": mask, "sliding_attention": window}
    elif config.model_type in ("qwen2", "qwen3", "smollm3"):
        mask = {"full_attention": mask}
    return ids, labels, dict(attention_mask=mask, position_ids=position)


def auxiliary(folder, dtype):
    """The mean cross-entropy with the routers' balancing loss."""
    model = load(folder, dtype)
    ids = tokens(70)
    result = model(input_ids=ids, labels=ids, use_cache=False, output_router_logits=True)
    result.loss.backward()
    return {"loss": float(result.loss.detach()), "balancing": float(result.aux_loss.detach()),
            "grad_norm": norm_of(model)}


def logits(folder, dtype, ids, **inputs):
    with torch.no_grad():
        return load(folder, dtype)(input_ids=ids, use_cache=False, **inputs).logits


def compute(folder, dtype):
    """All expected results, each from a freshly loaded model, since dynamic RoPE remembers past lengths."""
    config = load(folder, dtype).config
    ids, labels, documents = packed_inputs(config, dtype)
    numbers = {"train": train(folder, dtype), "padded": {"lengths": PADDED, **padded(folder, dtype)},
               "packed": {"starts": PACKED, **loss_and_norm(folder, dtype, ids, labels, **documents)}}
    if config.model_type in MIXTURES:
        numbers["auxiliary"] = auxiliary(folder, dtype)
    tensors = {"logits": logits(folder, dtype, tokens(99)), "packed_logits": logits(folder, dtype, ids, **documents)}
    rope = getattr(config, "rope_parameters", {"rope_type": "default"})  # OPT has none
    if rope.get("rope_type", "linear") != "default":  # Gemma 3 has two sets
        tensors["long_logits"] = logits(folder, dtype, tokens(98, 1, LONG))
    return numbers, tensors


def relative(a, b):
    return float((a - b).abs().max() / b.abs().max())


def check_plain_float32(name, numbers, tensors, plain):
    plain_numbers, plain_tensors = plain
    worst = max(relative(plain_tensors[k].double(), tensors[k]) for k in tensors)
    for part, keys in (("train", ("losses", "grad_norms")), ("padded", ("loss", "grad_norm")),
                       ("packed", ("loss", "grad_norm")), ("auxiliary", ("loss", "balancing", "grad_norm"))):
        for key in keys if part in numbers else ():
            a, b = torch.tensor(plain_numbers[part][key]).double(), torch.tensor(numbers[part][key]).double()
            worst = max(worst, float(((a - b) / b).abs().max()))
    print(f"{name:18s} float32 transformers differs by {worst:.1e}; losses {numbers['train']['losses'][0]:.4f} -> "
          f"{numbers['train']['losses'][-1]:.4f}, norms {numbers['train']['grad_norms'][0]:.3f} ..")
    assert worst < 1e-5, worst


def write(name):
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    make(name).save_pretrained(folder, **({"max_shard_size": SHARDED[name]} if name in SHARDED else {}))
    os.path.exists(os.path.join(folder, "generation_config.json")) and os.remove(os.path.join(folder,
                                                                                              "generation_config.json"))
    numbers, tensors = compute(folder, torch.float64)
    check_plain_float32(name, numbers, tensors, compute(folder, torch.float32))
    v4 = v4_spelling(json.load(open(os.path.join(folder, "config.json"))))
    json.dump(v4, open(os.path.join(folder, "config_v4.json"), "w"), indent=2)
    with tempfile.TemporaryDirectory() as copied:
        shutil.copytree(folder, copied, dirs_exist_ok=True)
        shutil.copy(os.path.join(folder, "config_v4.json"), os.path.join(copied, "config.json"))
        assert torch.equal(logits(copied, torch.float64, tokens(99)), tensors["logits"]), "the two spellings differ"
    json.dump(numbers, open(os.path.join(folder, "expected.json"), "w"), indent=1)
    save_file({k: v.to(torch.float32).contiguous() for k, v in tensors.items()},
              os.path.join(folder, "expected.safetensors"))


def main():
    torch.set_num_threads(1)
    disable_progress_bar()
    for name in sys.argv[1:] or FIXTURES:
        write(name)


if __name__ == "__main__":
    main()
