// Records one step of a third-party module (user_module.h, which is unaware of this library) for the planner.
//
//   build/examples/record_step recorded.json
//   build/tessera plan --model recorded.json --gpus 8xH100 --global_batch 256

#include "run_main.h"
#include "user_module.h"

#include <tessera/base/text.h>
#include <tessera/tessera.h>

#include <cstdio>
#include <exception>

static void example(int argc, char** argv) {
  if (argc != 2) throw tessera::InputError("record_step: expected the file to write, such as recorded.json");
  const MyConfig config;
  MyTransformer net(config);
  constexpr std::int64_t rows = 4, tokens = 16;
  const at::Tensor ids = at::randint(config.vocabulary, {rows, tokens + 1}, at::kLong);
  const auto step = tessera::record_step(*net, {.rows = rows, .row_tokens = tokens}, [&] {
    const at::Tensor logits = net->forward(ids.narrow(1, 0, tokens));
    at::cross_entropy_loss(logits.reshape({-1, config.vocabulary}), ids.narrow(1, 1, tokens).reshape({-1})).backward();
  });
  tessera::write_recorded(step, argv[1]);
  std::printf("%s: %zu layers, %s parameters, %s FLOP, %s bytes saved for backward, %zu operators\n", step.name.c_str(),
              step.layers.size(), tessera::format_count(step.parameters()).c_str(),
              tessera::format_count(step.flop()).c_str(), tessera::format_count(step.saved_bytes()).c_str(),
              step.calls.size());
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
