// Delivers whole parameters to the ranks that write them (Sharded::gather_to_owners): for any assignment of owners, the
// owners get every element, in order, and no data travels that the owner already has.
#include <tests/sharding/job.h>

#include <tessera/comm/recorder.h>
#include <tessera/layout/owners.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

/// Parameters of one element and of several messages (1 MiB); some are on all ranks.
struct Mixed : torch::nn::Module {
  torch::nn::Linear wide{register_module("wide", torch::nn::Linear(1100, 700))};  // 3 MB
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({7})))};
  torch::nn::Linear narrow{register_module("narrow", torch::nn::Linear(129, 1))};
  at::Tensor single = register_parameter("single", at::full({}, 5.0));
};

double sent_bytes() {
  double sum = 0;
  for (const comm::OpTotals& row : comm::recorder().totals())
    if (row.op == comm::Op::send) sum += static_cast<double>(row.payload_bytes);
  return sum;
}

/// Expects that `owners` get the same values as gathering gives; returns the bytes that all ranks sent.
double expect_delivered(comm::World& world, const Sharded& sharded, const std::vector<int>& owners) {
  const std::vector<ShardedParameter>& parameters = sharded.named_parameters();
  std::vector<at::Tensor> found(parameters.size());
  std::vector<std::size_t> order;
  const double before = sent_bytes();
  sharded.gather_to_owners(owners, [&](std::size_t i, std::int64_t begin, const at::Tensor& piece) {
    EXPECT_EQ(owners[i], world.rank());
    if (!found[i].defined()) {
      found[i] = at::empty({0});
      order.push_back(i);
    }
    EXPECT_EQ(order.back(), i) << "parameters arrive one after the other";
    EXPECT_EQ(found[i].numel(), begin) << "in ascending order";
    found[i] = at::cat({found[i], piece});
  });
  const at::Tensor sent = at::full({1}, sent_bytes() - before);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor whole = sharded.gather_like(parameters[i], parameters[i].local.detach());
    EXPECT_EQ(found[i].defined(), owners[i] == world.rank()) << parameters[i].name;
    if (found[i].defined()) {
      EXPECT_TRUE(at::equal(found[i], whole.view({-1}))) << parameters[i].name;
    }
  }
  std::vector<std::size_t> expected;
  for (const std::size_t i : sharded.gather_order())
    if (owners[i] == world.rank()) expected.push_back(i);
  EXPECT_EQ(order, expected);
  world.group().all_reduce(sent).wait();
  return sent.item<double>();
}

void expect_true_holders(comm::World& world, const Sharded& sharded, const std::vector<int>& holders) {
  const int own = world.rank() % sharded.shard_ranks();
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const ShardedParameter& p = sharded.named_parameters()[i];
    const std::int64_t numel = c10::multiply_integers(p.shape);
    if (p.divided) {
      EXPECT_EQ(holders[i] == own, p.local.numel() == numel) << p.name;
    } else {
      EXPECT_EQ(holders[i], -1) << p.name;
    }
  }
}

void check(comm::World& world, const char* backend) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(concat(form.name, " on ", world.size(), " ranks, ", backend));
    at::manual_seed(3);
    Mixed module;
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    for (int r = 0; r < world.size(); ++r) all[static_cast<std::size_t>(r)] = r;
    const comm::Group group = world.new_group(all, concat("for ", form.name), backend);
    Sharded sharded(module, fitted({.strategy = form.strategy,
                                    .group = group,
                                    .shard_group_size = form.group(world.size()),
                                    .wrap = by_class({"Linear"})}));
    const auto& parameters = sharded.named_parameters();
    const std::vector<int> holders = sharded.whole_holders();
    expect_true_holders(world, sharded, holders);
    // each rank owns all; assigned round-robin; as a checkpoint assigns them
    for (int owner = 0; owner < world.size(); ++owner)
      expect_delivered(world, sharded, std::vector<int>(parameters.size(), owner));
    std::vector<int> turns;
    for (std::size_t i = 0; i < parameters.size(); ++i) turns.push_back(static_cast<int>(i) % world.size());
    expect_delivered(world, sharded, turns);
    std::vector<std::int64_t> bytes;
    for (const ShardedParameter& p : parameters) bytes.push_back(4 * c10::multiply_integers(p.shape));
    const std::vector<int> owners = layout::assign_owners(bytes, world.size(), holders);
    const double moved = expect_delivered(world, sharded, owners);
    // Upper bound: all bytes of the divided tensors that no rank holds whole (the owner's own part is not sent).
    double most = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].divided && holders[i] < 0) most += static_cast<double>(bytes[i]);
    EXPECT_LE(moved, most);
  }
}

TEST(Deliver, owners_get_every_element_whoever_they_are) {
  for (const int ranks : {1, 2, 3, 4})
    for (const char* backend : {"shm", "gloo"})
      if (ranks > 1 || backend == std::string("shm"))
        run_ranks(ranks, [&](comm::World& world) { check(world, ranks > 1 ? backend : ""); });
}

}  // namespace
