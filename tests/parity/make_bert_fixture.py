"""Makes tests/fixtures/bert_tiny/ and bert_classifier/: small random BERTs as transformers saves them, and
transformers' results for them.

    python make_bert_fixture.py            (torch 2.11, transformers; not needed by `make test`)

bert_tiny contains a masked language model, the tokenizer of tests/fixtures/text/wordpiece, and sentence-transformers'
modules (mean pooling, normalised). expected.json: ids, types, lengths (rows are padded), labels; hidden states; the
first logits of each position; loss and gradient norm; embeddings of texts; losses and norms of AdamW steps. One thread;
fp64 for gradients.
"""
import json, os, shutil
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
LENGTHS, T, V, STEPS, SHOWN = [11, 4, 7], 11, 600, 6, 5
TEXTS = ["In the beginning God created the heaven and the earth.", "Don't panic!", "",
         "caf\u00e9 na\u00efve \u4e2d\u6587 [MASK] x", "And the earth was without form, and void; and darkness was "
                                                       "upon the face of the deep. And the Spirit of God moved upon "
                                                       "the "
         "face of the waters. And God said, Let there be light: and there was light."]


def config(**more):
    return BertConfig(vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
                      max_position_embeddings=48, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                      initializer_range=0.3, **more)


def numbers(seed, count, bound):
    """31-bit linear congruential generator: x0 = seed + 1; (x >> 8) mod bound."""
    x, out = seed + 1, []
    for _ in range(count):
        x = (1103515245 * x + 12345) & 0x7FFFFFFF
        out.append((x >> 8) % bound)
    return out


def batch(seed):
    ids = torch.tensor(numbers(seed, 3 * T, V)).view(3, T)
    types = torch.tensor(numbers(seed + 1000, 3 * T, 2)).view(3, T)
    mask = torch.arange(T)[None] < torch.tensor(LENGTHS)[:, None]
    scored = (torch.tensor(numbers(seed + 2000, 3 * T, 3)).view(3, T) == 0) & mask
    ids, types = ids.where(mask, 0), types.where(mask, 0)
    return ids, types, mask, ids.where(scored, -100)


def norm(model):
    return float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def randomise_small(model):
    """Biases, norms and the padding row are initially constant; random values reveal mistakes with them."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.1)


def embeddings(folder, model):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    out = {"texts": TEXTS, "mean": [], "cls": []}
    for text in TEXTS:
        encoded = tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
        hidden = model.bert(**encoded).last_hidden_state[0]
        out["mean"].append(torch.nn.functional.normalize(hidden.mean(0), dim=0).tolist())
        out["cls"].append(torch.nn.functional.normalize(hidden[0], dim=0).tolist())
    return out


def masked_lm():
    folder = os.path.join(FIXTURES, "bert_tiny")
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    torch.manual_seed(1)
    model = BertForMaskedLM(config()).eval()
    randomise_small(model)
    model.save_pretrained(folder)
    shutil.copy(os.path.join(FIXTURES, "text", "wordpiece", "uncased.json"), os.path.join(folder, "tokenizer.json"))
    write = lambda name, value: json.dump(value, open(os.path.join(folder, name), "w"))
    write("tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 48})
    write("modules.json", [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                           {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                           {"idx": 2, "name": "2", "path": "2_Normalize",
                            "type": "sentence_transformers.models.Normalize"}])
    write("1_Pooling/config.json",
          {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
                                    "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False})
    write("sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})
    ids, types, mask, labels = batch(5)
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask.long()}
    expected = {"ids": ids.tolist(), "types": types.tolist(), "lengths": LENGTHS, "labels": labels.tolist()}
    with torch.no_grad():
        expected["hidden"] = model.bert(**inputs).last_hidden_state.tolist()
        expected["logits"] = model(**inputs).logits[:, :, :SHOWN].tolist()
        expected["embeddings"] = embeddings(folder, model)
    exact = BertForMaskedLM.from_pretrained(folder).double()
    loss = exact(**inputs, labels=labels).loss
    loss.backward()
    expected |= {"loss": float(loss), "grad_norm": norm(exact)}
    trained = BertForMaskedLM.from_pretrained(folder).train()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, weight_decay=0.0)
    expected["steps"] = []
    for step in range(STEPS):
        ids, types, mask, labels = batch(100 + step)
        loss = trained(input_ids=ids, token_type_ids=types, attention_mask=mask.long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        expected["steps"].append({"ids": ids.tolist(), "types": types.tolist(), "labels": labels.tolist(),
                                  "loss": float(loss), "grad_norm": norm(trained)})
        optimizer.step()
    write("expected.json", expected)


def classifier():
    folder = os.path.join(FIXTURES, "bert_classifier")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(2)
    small = config(num_labels=3, id2label={0: "low", 1: "middle", 2: "high"},
                   label2id={"low": 0, "middle": 1, "high": 2})
    small.vocab_size, small.num_hidden_layers = 60, 1
    model = BertForSequenceClassification(small).eval()
    randomise_small(model)
    model.save_pretrained(folder)
    ids, types, mask, _ = batch(9)
    ids = ids % 60
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask.long()}
    labels = torch.tensor([2, 0, 1])
    exact = BertForSequenceClassification.from_pretrained(folder).double()
    result = exact(**inputs, labels=labels)
    result.loss.backward()
    json.dump({"ids": ids.tolist(), "types": types.tolist(), "lengths": LENGTHS, "labels": labels.tolist(),
               "logits": result.logits.tolist(), "loss": float(result.loss), "grad_norm": norm(exact)},
              open(os.path.join(folder, "expected.json"), "w"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    masked_lm()
    classifier()
