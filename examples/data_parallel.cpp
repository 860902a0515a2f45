// nn.DataParallel in C++: one process, a batch is divided between replicas of an unmodified module, for training and
// for encoding a corpus. Each replica is a group of threads (or, with several GPUs, a device).
//
//   build/examples/data_parallel [--replicas=2]

#include "user_module.h"

#include <tessera/tessera.h>
#include "run_main.h"

#include <ATen/Parallel.h>
#include <torch/optim/adamw.h>

#include <chrono>
#include <cstdio>
#include <exception>

namespace {

// Rows of numbers that increase in steps of 1 to 7: ids [B, T + 1].
at::Tensor counting(std::int64_t rows, std::int64_t length, std::int64_t vocabulary) {
  const at::Tensor start = at::randint(vocabulary, {rows, 1}), step = at::randint(1, 8, {rows, 1});
  return (start + step * at::arange(length)).remainder(vocabulary);
}

// Mean cross-entropy of the next token, computed on each replica, so that the logits are not gathered.
at::Tensor mean_loss(MyTransformerImpl& model, const at::Tensor& rows) {
  const at::Tensor logits = model.forward(rows.narrow(1, 0, rows.size(1) - 1));
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(2)}), rows.narrow(1, 1, rows.size(1) - 1).reshape(-1));
}

template <class Work>
at::Tensor timed(const char* name, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  at::Tensor result = work();
  std::printf("  %-52s %7.1f ms\n", name,
              std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  return result;
}

}  // namespace

static void example(int argc, char** argv) {
  int replicas = 2;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i], name = "--replicas=";
    if (!argument.starts_with(name) || (replicas = std::atoi(argument.c_str() + name.size())) < 1)
      throw tessera::InputError("data_parallel: '" + argument + "' is not --replicas=N with N >= 1");
  }
  at::set_num_threads(1);
  at::manual_seed(0);
  const MyConfig config{.layers = 2};
  MyTransformer model(config);
  torch::optim::AdamW optimizer(model->parameters(), 3e-3);
  tessera::DataParallel dp(model, {.replicas = replicas, .threads_per_replica = 1});

  for (int epoch = 0; epoch < 4; ++epoch) {
    double sum = 0;
    constexpr int batches = 25;
    constexpr std::int64_t rows = 30;
    for (int i = 0; i < batches; ++i) {
      const at::Tensor batch = counting(rows, 17, config.vocabulary);
      optimizer.zero_grad();
      // One loss per replica; their mean over rows is the loss of the whole batch. (PyTorch programs write
      // loss.mean().)
      const at::Tensor loss = tessera::mean_over_rows(dp.call(mean_loss, batch), rows, replicas);
      loss.backward();  // every replica's backward runs in its own thread group; gradients are added in replica order
      optimizer.step();
      sum += loss.item<double>();
    }
    std::printf("epoch %d: loss %.4f (%d replicas)\n", epoch, sum / batches, replicas);
  }

  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor corpus = counting(256, 32, config.vocabulary);
  std::printf("encoding 256 rows\n");
  const at::Tensor one = timed("one replica: model->forward(rows)", [&] { return model->forward(corpus); });
  timed("replicas made for this call",
        [&] { return tessera::DataParallel(model, {.replicas = replicas, .threads_per_replica = 1})(corpus); });
  const at::Tensor all = timed("replicas made once", [&] { return dp(corpus); });
  if (!at::allclose(one, all, 1e-5, 1e-5)) throw tessera::Error("the replicas do not agree with the module");
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
