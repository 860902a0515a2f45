// Uses a Hugging Face folder in your own program: prints the most likely next tokens of a prompt.
//
//   build/examples/next_token DIR "The capital of France is"        DIR: config.json, model.safetensors, tokenizer.json
//   build/examples/next_token DIR PROMPT --logits FILE.safetensors  also writes ids [1, T] and logits [1, T, V]

#include <tessera/tessera.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/models/load.h>

int main(int argc, char** argv) try {
  if (argc != 3 && !(argc == 5 && std::string(argv[3]) == "--logits")) {
    std::fprintf(stderr, "usage: next_token DIR PROMPT [--logits FILE.safetensors]\n");
    return 2;
  }
  const auto tokenizer = tessera::text::load_tokenizer(argv[1]);
  const auto model = tessera::models::load_folder(argv[1]);
  model->eval();

  const std::vector<std::int32_t> prompt = tokenizer->encode(argv[2]);
  if (prompt.empty()) throw tessera::InputError("the prompt is empty");
  const at::NoGradGuard no_grad;
  const at::Tensor ids = at::tensor(at::ArrayRef<std::int32_t>(prompt), at::kInt).to(at::kLong).unsqueeze(0);  // [1, T]
  const at::Tensor logits = model->forward(ids);  // [1, T, V]

  // Embeddings often have more rows than there are tokens; the last rows do not represent tokens.
  const std::int64_t known = std::min<std::int64_t>(tokenizer->vocab_size(), logits.size(-1));
  const auto [probabilities, tokens] = at::softmax(logits[0][-1].narrow(0, 0, known), 0).topk(5);
  for (std::int64_t i = 0; i < 5; ++i) {
    const auto token = static_cast<std::int32_t>(tokens[i].item<std::int64_t>());
    std::printf("%5.1f %%  %s\n", 100 * probabilities[i].item<double>(), tokenizer->decode({&token, 1}).c_str());
  }
  if (argc == 5)
    tessera::format::write_safetensors(argv[4], {tessera::checkpoint::tensor_source("ids", ids),
                                                 tessera::checkpoint::tensor_source("logits", logits)});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "next_token: %s\n", error.what());
  return 1;
}
