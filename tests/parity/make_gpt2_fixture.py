"""Makes tests/fixtures/gpt2_tiny/: a small random GPT-2 as transformers saves it, and transformers' results for it.

    python make_gpt2_fixture.py            (torch 2.11, transformers; not needed by `make test`)

expected.json: ids [B][T]; logits of those ids; mean losses and gradient norms (before clipping) of 20 AdamW steps, each
on its own ids from the generator of tokens(). One thread, fp32. batches.json: loss and gradient norm of right-padded
rows (attention_mask, labels -100) and of packed rows (positions from 0 in each document, block-diagonal causal mask),
in float64.

    python make_gpt2_fixture.py batches       writes batches.json alone, for the existing model
"""
import json, os, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures", "gpt2_tiny")
B, T, V, STEPS = 3, 16, 97, 20
PADDED = [16, 7, 2]
PACKED = [[0, 5, 12], [0, 1, 9], [0]]


def tokens(step):
    """31-bit linear congruential generator, restarted per step: x0 = step + 1; token = (x >> 8) mod V, row by row."""
    x, rows = step + 1, []
    for _ in range(B):
        row = []
        for _ in range(T):
            x = (1103515245 * x + 12345) & 0x7FFFFFFF
            row.append((x >> 8) % V)
        rows.append(row)
    return rows


def loss_and_norm(ids, labels, **inputs):
    model = GPT2LMHeadModel.from_pretrained(OUT).double().train()
    logits = model(input_ids=ids, **inputs).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1),
                                             ignore_index=-100)
    loss.backward()
    return {"loss": float(loss.detach()),
            "grad_norm": float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))}


def batches():
    ids = torch.tensor(tokens(50))
    mask = torch.arange(T)[None] < torch.tensor(PADDED)[:, None]
    ids = ids.where(mask, 0)
    padded = loss_and_norm(ids, ids.where(mask, -100), attention_mask=mask.long())
    document, position = torch.zeros(B, T, dtype=torch.long), torch.zeros(B, T, dtype=torch.long)
    for r, starts in enumerate(PACKED):
        for d, (begin, end) in enumerate(zip(starts, starts[1:] + [T])):
            document[r, begin:end], position[r, begin:end] = d, torch.arange(end - begin)
    ids = torch.tensor(tokens(60))
    seen = (document[:, :, None] == document[:, None, :]) & torch.ones(T, T, dtype=torch.bool).tril()
    additive = torch.zeros(B, 1, T, T, dtype=torch.float64).masked_fill(~seen[:, None], torch.finfo(torch.float64).min)
    packed = loss_and_norm(ids, ids.where(position > 0, -100), attention_mask=additive, position_ids=position)
    json.dump({"padded": {"lengths": PADDED, **padded}, "packed": {"starts": PACKED, **packed}},
              open(os.path.join(OUT, "batches.json"), "w"), indent=1)


def main():
    torch.set_num_threads(1)
    if sys.argv[1:] == ["batches"]:
        return batches()
    torch.manual_seed(7)
    config = GPT2Config(n_layer=2, n_embd=32, n_head=4, n_positions=T, vocab_size=V, resid_pdrop=0.0, embd_pdrop=0.0,
                        attn_pdrop=0.0, bos_token_id=V - 1, eos_token_id=V - 1, use_cache=False)
    model = GPT2LMHeadModel(config).train()
    with torch.no_grad():  # away from the initial symmetry: biases and norms that matter, sharper logits
        for name, p in model.named_parameters():
            if name.endswith("bias") or "ln_" in name:
                p.add_(0.1 * torch.randn_like(p))
            elif p.dim() == 2:
                p.mul_(4.0)
    model.save_pretrained(OUT)
    ids = torch.tensor(tokens(99))
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    decay = [p for n, p in model.named_parameters() if not n.endswith("bias") and "ln_" not in n]
    plain = [p for n, p in model.named_parameters() if n.endswith("bias") or "ln_" in n]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    losses, norms = [], []
    for step in range(STEPS):
        batch = torch.tensor(tokens(step))
        batch_labels = batch.clone()
        batch_labels[0, 5] = -100  # one position that is not scored
        loss = model(input_ids=batch, labels=batch_labels).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(float(loss.detach()))
        optimizer.step()
    json.dump({"ids": ids.tolist(), "logits": [[[float(f"{x:.8g}") for x in t] for t in r] for r in logits.tolist()],
               "losses": losses, "grad_norms": norms}, open(os.path.join(OUT, "expected.json"), "w"))
    batches()


main()
