"""Makes tests/fixtures/llava_tiny/: a small random LlavaForConditionalGeneration as transformers saves it, and
transformers' results for it.

    python tests/parity/make_llava_fixture.py      (torch 2.11, transformers 5; not needed by `make test`)

expected.safetensors (float32 roundings of numbers computed in float64): ids, labels [B, T], pixels [N, 3, S, S],
logits [B, T, V], the mean loss, and the gradients of all parameters except the tower's, as grad.NAME with the names
in model.safetensors. The first row has two images, the second one, the third none.
"""
import os

import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "llava_tiny")
T, V, TOKEN, SIDE, K = 20, 67, 66, 8, 4

torch.manual_seed(3)
config = LlavaConfig(
    vision_config=CLIPVisionConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2,
                                   image_size=SIDE, patch_size=4),
    text_config=LlamaConfig(vocab_size=V, hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32),
    image_token_index=TOKEN, image_seq_length=K)
model = LlavaForConditionalGeneration(config)
with torch.no_grad():
    for p in model.parameters():  # larger than the usual initialization, including biases and norms
        p.add_(torch.randn_like(p) * 0.1)
os.makedirs(OUT, exist_ok=True)
model.save_pretrained(OUT)
model = model.double().eval()
for name, p in model.named_parameters():
    if "vision_tower" in name:
        p.requires_grad_(False)

ids = torch.randint(0, TOKEN, (3, T))
ids[0, 2:2 + K] = ids[0, 9:9 + K] = ids[1, 0:K] = TOKEN
labels = ids.masked_fill(ids == TOKEN, -100)
labels[:, :7] = -100
pixels = torch.randn(3, 3, SIDE, SIDE)
out = model(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels.double(), labels=labels)
out.loss.backward()

saved = load_file(os.path.join(OUT, "model.safetensors"))
expected = {"ids": ids, "labels": labels, "pixels": pixels, "logits": out.logits.detach().float(),
            "loss": out.loss.detach().float().reshape(1)}
def in_file(name):  # transformers renames parameters when it saves
    for candidate in (name, name.replace("model.language_model.", "language_model.model."),
                      name.replace("lm_head", "language_model.lm_head"), name.removeprefix("model.")):
        if candidate in saved:
            return candidate
    raise KeyError(name)
for name, p in model.named_parameters():
    if p.grad is not None:
        expected["grad." + in_file(name)] = p.grad.float().contiguous()
save_file({k: v.contiguous() for k, v in expected.items()}, os.path.join(OUT, "expected.safetensors"))
print("transformers", transformers.__version__, "loss", float(out.loss), *sorted(saved)[:6], "...")
