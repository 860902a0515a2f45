// A model that is constructed without memory and then cut has the same parts, and never more than one whole parameter
// in memory.
#include <tests/parallel/allocated.h>
#include <tests/tensor/families.h>

#include <tessera/models/load.h>
#include <tessera/models/tensor_plans.h>
#include <tessera/parallel/deferred/deferred.h>

#include <algorithm>

namespace {

using namespace tessera;
using namespace tessera::testing;

TEST(TensorDeferred, parts_have_the_bits_of_whole_models_that_are_cut) {
  for (const Family& each : families())
    run_ranks(2, [&](comm::World&) {
      const auto whole = make(each, at::kFloat);
      const TensorParallel cut(*whole, {.plan = whole->tensor_plan()});
      std::shared_ptr<models::LanguageModel> later;
      double bytes = 0, largest = 0, peak = 0;
      {
        const Allocated allocated;
        {
          const parallel::DeferredScope scope;
          later = models::build(parse_json(each.config, each.name), 11);
        }
        for (const auto& item : later->named_parameters()) EXPECT_TRUE(parallel::is_deferred(item.value()));
        for (const at::Tensor& p : later->parameters()) largest = std::max(largest, static_cast<double>(p.numel() * 4));
        const TensorParallel parts(*later, {.plan = later->tensor_plan()});
        EXPECT_EQ(parts.parameters().size(), cut.parameters().size());
        models::fill_parameters(*later, nullptr);
        peak = static_cast<double>(allocated.peak());
      }
      const auto wanted = whole->named_parameters();
      for (const auto& item : later->named_parameters()) {
        bytes += static_cast<double>(item.value().nbytes());
        EXPECT_TRUE(at::equal(item.value().detach().clone(), wanted[item.key()].detach().clone())) << item.key();
      }
      EXPECT_LE(peak, bytes + 2.2 * largest) << each.name;  // a parameter and its initializer's scratch memory
    });
}

}  // namespace
