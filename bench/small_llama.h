#pragma once
/// \file
/// Shared by the benches of a small Llama: options, model, rows, and the clock. The Python counterpart:
/// bench/small_llama.py.

#include <tessera/comm/world.h>
#include <tessera/models/load.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace small_llama {

/// Names start with "--".
using Numbers = std::map<std::string, std::int64_t>;
using Words = std::map<std::string, std::string>;

/// Parses "--name value" pairs into `numbers` (and `words`), which contain the known options with their defaults; for
/// an unknown option, prints an error and returns false.
inline bool read_options(int argc, char** argv, Numbers& numbers, Words* words = nullptr) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (words != nullptr && words->contains(argv[i]))
      (*words)[argv[i]] = argv[i + 1];
    else if (numbers.contains(argv[i]))
      numbers[argv[i]] = std::stoll(argv[i + 1]);
    else
      return std::fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[i]), false;
  }
  return true;
}

/// The config.json of a Llama with --layers --d --heads --kv --intermediate --vocab --T; `tied`: the head shares the
/// embeddings.
inline tessera::Value config(const Numbers& a, bool tied = false) {
  using tessera::Value;
  Value config = tessera::models::preset("llama-tiny");
  for (const auto& [option, key] : {std::pair("--layers", "num_hidden_layers"),
                                    {"--d", "hidden_size"},
                                    {"--heads", "num_attention_heads"},
                                    {"--kv", "num_key_value_heads"},
                                    {"--intermediate", "intermediate_size"},
                                    {"--vocab", "vocab_size"},
                                    {"--T", "max_position_embeddings"}})
    config.set(key, Value::of(a.at(option)));
  config.set("head_dim", Value::of(a.at("--d") / a.at("--heads")));
  config.set("tie_word_embeddings", Value::of(tied));
  return config;
}

/// The rows of a step, int64 [b, t]: a 31-bit linear congruential generator, restarted per step.
inline at::Tensor rows(std::int64_t step, std::int64_t b, std::int64_t t, std::int64_t vocabulary) {
  const at::Tensor ids = at::empty({b * t}, at::kLong);
  std::int64_t x = step + 1;
  for (std::int64_t i = 0; i < b * t; ++i) {
    x = (1103515245 * x + 12345) & 0x7FFFFFFF;
    ids.data_ptr<std::int64_t>()[i] = (x >> 8) % vocabulary;
  }
  return ids.view({b, t});
}

/// CPU time of this process so far, including all threads.
inline double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline constexpr std::int64_t warm_up = 2;  ///< warm-up steps, which are not counted

/// Trains --steps steps of --B x --T tokens of --vocab. `train` runs one step on the given rows and returns its loss
/// (rank 0's is shown). Rank 0 prints one JSON line: tokens/s of the median step, CPU seconds of a step of all ranks,
/// the last loss, and `more`, further JSON members. Collective.
inline void measure_training(tessera::comm::World& world, const Numbers& a,
                             const std::function<double(const at::Tensor& ids)>& train, const std::string& more = "") {
  std::vector<double> wall;
  double cpu = 0, loss = 0;
  for (std::int64_t step = 0; step < a.at("--steps") + warm_up; ++step) {
    const at::Tensor ids = rows(step, a.at("--B"), a.at("--T"), a.at("--vocab"));
    world.group().barrier().wait();
    if (step == warm_up) cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    loss = train(ids);
    if (step < warm_up) continue;
    wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  at::Tensor all = at::full({1}, cpu_seconds() - cpu, at::kDouble);
  world.group().all_reduce(all).wait();
  if (world.rank() == 0)
    std::printf("{\"tok_s\": %.1f, \"cpu_s\": %.4f, \"loss\": %.7f%s}\n",
                static_cast<double>(a.at("--B") * a.at("--T")) / median(wall),
                all.item<double>() / static_cast<double>(a.at("--steps")), loss,
                more.empty() ? "" : (", " + more).c_str());
}

}  // namespace small_llama
