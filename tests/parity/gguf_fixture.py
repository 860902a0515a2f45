"""Makes tests/fixtures/gguf: small GGUF files and their expected conversions.

    python tests/parity/gguf_fixture.py tests/fixtures/gguf

quants.gguf              one tensor per element type, of random blocks; quants.safetensors: gguf-py's dequantisation
llama_tiny.gguf          a whole Llama with mixed types and a byte-level BPE vocabulary;
llama_tiny.safetensors   the result of transformers' own GGUF import

Needs torch, transformers, safetensors, gguf (gguf-py).
"""

import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

QUANTS = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K]
# Byte offsets of the f16 scales in a block.
SCALES = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208]}


def random_blocks(kind, rows, columns, rng):
    """Random bytes of any bit pattern, with finite scales, some of them negative or subnormal."""
    if kind == T.F32:
        return rng.standard_normal((rows, columns)).astype(np.float32)
    if kind == T.F16:
        values = rng.standard_normal((rows, columns)).astype(np.float16)
        values[0, :4] = [0.0, -0.0, 6e-8, -3e-5]
        return values
    if kind == T.BF16:
        return (rng.standard_normal((rows, columns)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scales = rng.standard_normal((rows, columns // elements)).astype(np.float16)
        scales[0, 0] = 3e-7
        blocks[:, :, at : at + 2] = scales.view(np.uint8).reshape(rows, columns // elements, 2)
    return blocks.reshape(rows, -1)


def write_quants(folder):
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(folder / "quants.gguf", "none")
    expected = {}
    for kind in QUANTS:
        blocks = random_blocks(kind, 2, 256, rng)
        if kind == T.BF16:
            blocks = blocks.view(np.uint8)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        expected[kind.name] = np.ascontiguousarray(gguf.dequantize(blocks, kind).reshape(2, 256).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, folder / "quants.safetensors")


def permute(weight, heads):
    """Hugging Face's half-split rows to GGUF's interleaved ones (llama.cpp, convert_hf_to_gguf.py)."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def byte_alphabet():
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return bytes_to_unicode()


def add_vocabulary(writer):
    alphabet = byte_alphabet()
    merges = [("t", "h"), ("th", "e"), (alphabet[32], "the"), ("i", "n"), ("1", "2")]
    tokens = ["<|endoftext|>", "<|im_start|>",
              "<|im_end|>"] + [alphabet[b] for b in range(256)] + [a + b for a, b in merges]
    types = [3, 3, 3] + [1] * (len(tokens) - 3)
    tokens += ["<note>", f"[PAD{len(tokens) + 1}]"]
    types += [4, 5]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(m) for m in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% "
                             "endfor %}")
    return len(tokens)


def write_llama(folder):
    rng = np.random.default_rng(2)
    hidden, inner, layers, heads, kv_heads, head_dim = 32, 32, 2, 4, 2, 8
    path = folder / "llama_tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(50000.0)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    vocab = add_vocabulary(writer)
    writer.add_vocab_size(vocab)

    def add(name, shape, kind, heads=None):
        weight = (0.1 * rng.standard_normal(shape)).astype(np.float32)
        if heads:
            weight = permute(weight, heads)
        writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)

    add("token_embd.weight", (vocab, hidden), T.Q8_0)
    add("output_norm.weight", (hidden,), T.F32)
    for i in range(layers):
        b = f"blk.{i}."
        add(b + "attn_norm.weight", (hidden,), T.F32)
        add(b + "ffn_norm.weight", (hidden,), T.F32)
        add(b + "attn_q.weight", (heads * head_dim, hidden), T.Q4_1, heads)
        add(b + "attn_k.weight", (kv_heads * head_dim, hidden), T.Q5_1, kv_heads)
        add(b + "attn_v.weight", (kv_heads * head_dim, hidden), T.F16)
        add(b + "attn_output.weight", (hidden, heads * head_dim), T.BF16)
        add(b + "ffn_gate.weight", (inner, hidden), T.Q4_0)
        add(b + "ffn_up.weight", (inner, hidden), T.Q5_0)
        add(b + "ffn_down.weight", (hidden, inner), T.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=path.name, dtype=torch.float32)
    state = {k: v.numpy() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(state, folder / "llama_tiny.safetensors")


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    write_quants(out)
    write_llama(out)
