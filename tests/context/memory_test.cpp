// Activations of parts of a sequence take their share of the whole sequence's memory: two ranks can train a sequence
// that exceeds one rank's limit.
#include <tests/context/jobs.h>
#include <tests/parallel/allocated.h>

#include <tessera/models/overrides.h>

#include <cstdio>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t tokens = 1024, vocabulary = 97, width = 64;

std::shared_ptr<models::LanguageModel> make_long() {
  return models::make_language_model(
      models::with_overrides(models::preset("llama-tiny"),
                             concat("num_hidden_layers=3,hidden_size=", width, ",num_attention_heads=4,head_dim=16,",
                                    "num_key_value_heads=4,intermediate_size=160,vocab_size=", vocabulary,
                                    ",max_position_embeddings=", tokens, ",tie_word_embeddings=true")),
      7);
}

data::Batch long_batch() {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(5);
  data::Batch batch;
  batch.ids = batch.labels = at::randint(0, vocabulary, {2, tokens}, generator, at::TensorOptions(at::kLong));
  return batch;
}

struct Use {
  double loss = 0;
  double kept = 0;  ///< bytes from forward to backward
  double peak = 0;  ///< during forward and backward, including the parameters' gradients
};

Use use_of(models::LanguageModel& model, const data::Batch& batch) {
  Allocated allocated;
  at::Tensor loss = model.loss(batch, 1.0 / static_cast<double>(2 * (tokens - 1)));
  Use use{.loss = loss.item<double>(), .kept = static_cast<double>(allocated.now())};
  loss.backward();
  use.peak = static_cast<double>(allocated.peak());
  return use;
}

TEST(ContextMemory, is_the_share_of_the_tokens) {
  const auto model = make_long();
  const Use whole = use_of(*model, long_batch());
  const double head = 4.0 * vocabulary * width;  // the head's gradient, formed in forward, is on every rank
  for (const int ranks : {2, 4}) {
    const auto outcomes = run_ranks(ranks, [&](comm::World& world) {
      for (const ContextMethod method : {ContextMethod::p2p, ContextMethod::all_gather, ContextMethod::a2a}) {
        const ContextGroups groups = context_groups(world.group(), method);
        const auto net = make_long();
        net->set_attention(context_attention_function(groups));
        const Use part = use_of(*net, cut_batch(long_batch(), groups, net->objective()));
        // The all-to-all's result is stored twice: by heads, for the backward of attention, and by tokens.
        const double twice = method == ContextMethod::a2a ? 3 * 4.0 * 2 * tokens / ranks * width : 0;
        const double formula = (whole.kept - head) / ranks + head + twice;
        // The ring keeps as much as the all-gather; its messages are freed by a thread that is not counted.
        if (method != ContextMethod::p2p) {
          EXPECT_NEAR(part.kept / formula, 1, 0.02) << layout::context_method_name(method);
        }
        at::Tensor loss = at::full({1}, part.loss, at::kDouble);
        world.group().all_reduce(loss).wait();
        EXPECT_NEAR(loss.item<double>() / whole.loss, 1, 1e-6);
        const double limit = 0.7 * whole.peak;  // memory limit of a rank in bytes
        EXPECT_LT(part.peak, limit) << layout::context_method_name(method);
        if (world.rank() == 0)
          post(concat(layout::context_method_name(method), " on ", ranks, ": kept ", part.kept / whole.kept, ", peak ",
                      part.peak / whole.peak, " of one process's ", whole.kept / 1e6, " and ", whole.peak / 1e6,
                      " MB"));
      }
    });
    for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
  }
}

}  // namespace
