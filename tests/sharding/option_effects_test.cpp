// Every field of ShardingOptions under every strategy has an observable effect or is refused with the reason. A cell
// fails if the option did nothing.
#include <tests/sharding/job.h>

#include <torch/optim/sgd.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>

#include <cstring>
#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;
using Strategies = std::vector<std::string>;

const Strategies every = {"ddp", "zero1", "zero2", "shard_grad_op", "zero3", "hybrid_shard", "hybrid_shard_zero2"};
const Strategies dividing = {"zero1", "zero2", "shard_grad_op", "zero3", "hybrid_shard", "hybrid_shard_zero2"};
const Strategies with_units = {"shard_grad_op", "zero3", "hybrid_shard", "hybrid_shard_zero2"};
const Strategies resharding = {"zero3", "hybrid_shard"};
const Strategies in_buckets = {"ddp", "zero1", "zero2"};

bool contains(const Strategies& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Six layers, a buffer, and a parameter that the loss leaves unused on request.
struct Stack : Model {
  std::vector<torch::nn::Linear> layers;
  at::Tensor offset, spare;
  std::function<void(const std::string&)> mark = [](const std::string&) {};

  explicit Stack(bool with_spare) {
    for (int i = 0; i < 6; ++i)
      layers.push_back(register_module(concat("layer", i), torch::nn::Linear(i == 0 ? 12 : 16, i == 5 ? 5 : 16)));
    offset = register_buffer("offset", at::full({1}, 0.1f));
    if (with_spare) spare = register_parameter("spare", at::ones({3}));
  }
  at::Tensor forward(at::Tensor x) override {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      x = at::tanh(layers[i]->forward(x));
      mark(concat("forward ", i));
      x.register_hook([this, i](const at::Tensor& g) {
        mark(concat("backward ", i));
        return g;
      });
    }
    return x + offset.to(x.scalar_type());
  }
};

enum class Scene { plain, unused_parameter, not_finite };

/// Observable results of a short training run.
struct Trace {
  std::string error;   ///< error of the last step, or of allocating optimizer state
  std::string values;  ///< bytes of all gradients and weights, and their norms
  std::string wire;    ///< every collective: operation, type, reduction, group, bytes, tag
  std::string events;  ///< layers between which a collective was started, and waited for
  std::string layout;  ///< units, buckets, ranks, memory
};

Trace observe(comm::World& world, ShardingOptions options, Scene scene) {
  at::manual_seed(11);
  Stack module(scene == Scene::unused_parameter);
  Trace trace;
  const auto seen = comm::recorder().last();
  const std::uint64_t first = seen.empty() ? 0 : seen.back().id + 1;
  const auto mine = [&] {
    std::vector<comm::Entry> entries;
    for (const comm::Entry& e : comm::recorder().last())
      if (e.id >= first) entries.push_back(e);
    return entries;
  };
  Sharded sharded(module, std::move(options));
  module.mark = [&](const std::string& where) {
    std::size_t done = 0;
    const auto entries = mine();
    for (const comm::Entry& e : entries) done += e.status == comm::Status::done;
    trace.events += concat(where, ": ", entries.size(), " started, ", done, " waited for\n");
  };
  torch::optim::SGD optimizer(sharded.parameters(), 0.05);
  try {
    if (const auto allocate = sharded.state_allocator()) {
      (void)allocate({4}, at::TensorOptions(at::kFloat));
      trace.layout += "optimizer state is offloaded\n";
    }
    for (int step = 0; step < 3; ++step) {
      sharded.zero_grad();
      at::Tensor loss = mean_loss(module, part(global_batch(step, 8), world.rank(), world.size()));
      if (scene == Scene::not_finite && world.rank() == world.size() - 1) loss = loss * std::nan("");
      loss.backward();
      module.mark("end of backward");
      trace.values += concat(sharded.clip_grad_norm(0), "\n");
      optimizer.step();
    }
  } catch (const Error& error) {
    trace.error = error.what();
  }
  for (const comm::Entry& e : mine())
    trace.wire += concat(static_cast<int>(e.op), " ", e.dtype, " ", e.reduction, " ", e.group, " ", e.group_size, " ",
                         e.payload_bytes, " ", e.tag, "\n");
  const auto add_bytes = [&](const at::Tensor& t) {
    const at::Tensor flat = t.detach().contiguous();
    trace.values.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  };
  for (const ShardedParameter& p : sharded.named_parameters())
    if (p.local.grad().defined()) add_bytes(sharded.gather_like(p, p.local.grad()));
  sharded.visit_parameters([&](const std::string&, const at::Tensor& value) { add_bytes(value); });
  for (const ShardingUnit& unit : sharded.units())
    trace.layout += concat("unit ", unit.name, " ", unit.numel, " ", unit.shard_bytes, " ", unit.present_bytes, "\n");
  for (const auto& bucket : sharded.buckets()) trace.layout += concat("bucket ", join(bucket), "\n");
  trace.layout += concat(sharded.shard_ranks(), " x ", sharded.replicate_ranks(), " ranks, offset is ",
                         c10::toString(module.offset.scalar_type()), ", ", sharded.memory().offloaded, " offloaded\n");
  return trace;
}

/// One field. Under `strategies` it changes that `aspect` of the trace; under all others it is refused.
struct Row {
  const char* option;
  std::function<void(ShardingOptions&)> edit;
  std::string Trace::* aspect;
  Strategies strategies = every;
  Scene scene = Scene::plain;
  std::function<void(ShardingOptions&)> both = [](ShardingOptions&) {};  ///< with and without the option
  int ranks = 2;
};

const std::vector<Row>& rows() {
  using O = ShardingOptions;
  static const std::vector<Row> all = {
      {"group", [](O& o) { o.group = world().new_group({0, 1}, "chosen"); }, &Trace::wire},
      {"shard_group_size", [](O& o) { o.shard_group_size = o.strategy == Strategy::ddp ? 2 : 1; }, &Trace::layout,
       dividing},
      {"shard_group_size", [](O& o) { o.shard_group_size = 2; }, &Trace::layout, dividing, Scene::plain,
       [](O& o) { o.shard_group_size = 1; }},
      {"wrap", [](O& o) { o.wrap = by_class({"Linear"}); }, &Trace::layout, every, Scene::plain,
       [](O& o) { o.wrap = {}, o.first_bucket_mb = 1, o.bucket_mb = 25; }},
      {"wrap", [](O& o) { o.wrap = by_class({"Linear"}), o.wrap.ignored_modules = {"layer2"}; }, &Trace::layout,
       with_units},
      {"param_dtype", [](O& o) { o.param_dtype = at::kBFloat16; }, &Trace::values},
      {"reduce_dtype", [](O& o) { o.reduce_dtype = at::kBFloat16; }, &Trace::wire},
      {"buffer_dtype", [](O& o) { o.buffer_dtype = at::kHalf; }, &Trace::layout},
      {"reduction", [](O& o) { o.reduction = comm::Reduction::sum; }, &Trace::values},
      // The partial quotients become denormal on the wire and lose digits there.
      {"gradient_predivide_factor", [](O& o) { o.gradient_predivide_factor = 1e37; }, &Trace::values},
      {"gradient_predivide_factor", [](O& o) { o.gradient_predivide_factor = 1e37; }, &Trace::values, every,
       Scene::plain, [](O& o) { o.reduction = comm::Reduction::sum; }},
      {"logical_shards", [](O& o) { o.logical_shards = 2; }, &Trace::wire},
      {"find_unused_parameters", [](O& o) { o.find_unused_parameters = true; }, &Trace::error, every,
       Scene::unused_parameter},
      {"data_dependent", [](O& o) { o.data_dependent = true; }, &Trace::error, every, Scene::unused_parameter},
      {"data_dependent", [](O& o) { o.data_dependent = true; }, &Trace::events},
      {"forward_prefetch", [](O& o) { o.forward_prefetch = false; }, &Trace::events, dividing},
      {"backward_prefetch", [](O& o) { o.backward_prefetch = layout::BackwardPrefetch::none; }, &Trace::events,
       resharding},
      {"backward_prefetch", [](O& o) { o.backward_prefetch = layout::BackwardPrefetch::post; }, &Trace::events,
       resharding},
      {"limit_all_gathers", [](O& o) { o.limit_all_gathers = false; }, &Trace::events, dividing},
      {"reshard_after_forward", [](O& o) { o.reshard_after_forward = !row_of(o.strategy).reshard_after_forward; },
       &Trace::events, with_units},
      {"reshard_root", [](O& o) { o.reshard_root = true; }, &Trace::events, resharding, Scene::plain,
       [](O& o) { o.wrap = {.kind = layout::WrapPolicy::Kind::by_name, .names = {"layer1", "layer2", "layer3"}}; }},
      {"overlap_comm", [](O& o) { o.overlap_comm = false; }, &Trace::events},
      {"persistence_threshold", [](O& o) { o.persistence_threshold = 64; }, &Trace::layout, with_units},
      {"first_bucket_mb", [](O& o) { o.first_bucket_mb = 1e-5; }, &Trace::layout, in_buckets, Scene::plain,
       [](O& o) { o.first_bucket_mb = 1, o.bucket_mb = 25; }},
      {"bucket_mb", [](O& o) { o.bucket_mb = 1e-5; }, &Trace::layout, in_buckets, Scene::plain,
       [](O& o) { o.bucket_mb = 25; }},
      {"sync_module_states", [](O& o) { o.sync_module_states = false; }, &Trace::wire},
      {"broadcast_buffers", [](O& o) { o.broadcast_buffers = false; }, &Trace::wire},
      {"offload", [](O& o) { o.offload = Offload::optimizer; }, &Trace::layout},
      {"offload", [](O& o) { o.offload = Offload::params; }, &Trace::layout, with_units},
      {"offload", [](O& o) { o.offload = Offload::all; }, &Trace::layout, with_units},
      {"offload_folder", [](O& o) { o.offload_folder = "/no/such/folder"; }, &Trace::error, every, Scene::plain,
       [](O& o) { o.offload = Offload::optimizer; }},
      {"offload_folder", [](O& o) { o.offload_folder = "/no/such/folder"; }, &Trace::error, {}},
      {"compression", [](O& o) { o.compression = parallel::make_compression("fp16"); }, &Trace::wire},
      {"check_finite", [](O& o) { o.check_finite = false; }, &Trace::error, every, Scene::not_finite},
      {"load",
       [](O& o) {
         o.load = [](const std::string&, at::IntArrayRef, std::int64_t, at::Tensor piece) {
           piece.fill_(0.25);
           return true;
         };
       },
       &Trace::values},
      // The hook must not change its input; here it does, to prove that it saw the reduced tensor.
      {"before_reduction", [](O& o) { o.before_reduction = [](const at::Tensor& flat) { flat.mul_(2); }; },
       &Trace::values},
      {"stages", [](O& o) { o.stages = world().new_group({0, 1}, "stages"); }, &Trace::values},
      {"held_by_earlier_stage",
       [](O& o) {
         if (o.stages.rank() > 0)
           for (int i = 0; i < 6; ++i) o.held_by_earlier_stage.push_back(concat("layer", i, ".weight"));
       },
       &Trace::values, every, Scene::plain, [](O& o) { o.stages = world().new_group({0, 1}, "stages"); }},
      {"shared_by_experts",
       [](O& o) {
         o.shared_by_experts = {world().new_group({0, 1}, "expert replicas"),
                                [](const std::string& name) { return name.ends_with("weight"); }};
       },
       &Trace::values, every, Scene::plain, [](O& o) { o.reduction = comm::Reduction::sum; }},
      {"reshard_alone", [](O& o) { o.reshard_alone = true; }, &Trace::layout, every, Scene::plain, [](O&) {}, 1},
  };
  return all;
}

/// Adding a field without a row does not compile, or fails in covers_every_field.
std::size_t fields_of_the_options() {
  const auto& [strategy, group, shard_group_size, wrap, param_dtype, reduce_dtype, buffer_dtype, reduction, predivide,
               logical_shards, find_unused, data_dependent, forward_prefetch, backward_prefetch, limit_all_gathers,
               reshard_after_forward, reshard_root, overlap_comm, persistence_threshold, first_bucket_mb, bucket_mb,
               sync_module_states, broadcast_buffers, offload, offload_folder, compression, check_finite,
               before_reduction, load, stages, held_by_earlier_stage, shared_by_experts, reshard_alone] =
      ShardingOptions{};
  return 33;
}

TEST(OptionEffects, covers_every_field) {
  std::set<std::string> named;
  for (const Row& row : rows()) named.insert(row.option);
  EXPECT_EQ(named.size() + 1, fields_of_the_options()) << "the strategy is the other dimension of the table";
}

class OptionEffects : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Strategy, OptionEffects, ::testing::ValuesIn(every));

TEST_P(OptionEffects, acts_or_is_refused) {
  const std::string strategy = GetParam();
  for (const int ranks : {1, 2})
    run_ranks(
        ranks,
        [&](comm::World& world) {
          for (const Row& row : rows()) {
            if (row.ranks != ranks) continue;
            ShardingOptions options{.strategy = strategy};
            if (contains(row.strategies, strategy)) {
              if (contains(in_buckets, strategy))
                options.first_bucket_mb = options.bucket_mb = 1e-5;  // every parameter is a bucket of its own
              else
                options.wrap = by_class({"Linear"});
              row.both(options);
              try {
                const std::string without = observe(world, options, row.scene).*row.aspect;
                row.edit(options);
                const std::string with = observe(world, options, row.scene).*row.aspect;
                EXPECT_NE(with, without) << row.option << " did nothing under " << strategy;
              } catch (const std::exception& error) {
                ADD_FAILURE() << row.option << " under " << strategy << ": " << error.what();
              }
              continue;
            }
            row.edit(options);
            Stack module(false);
            try {
              const Sharded sharded(module, options);
              ADD_FAILURE() << row.option << " was accepted under " << strategy << ", where it has no use";
            } catch (const InputError& error) {
              const std::string text = error.what();
              EXPECT_NE(text.find(row.option), std::string::npos) << text;
              EXPECT_NE(text.find("; "), std::string::npos) << "no remedy: " << text;
              const bool any_strategy = row.strategies.empty();
              EXPECT_TRUE(any_strategy || text.find("'" + strategy + "'") != std::string::npos) << text;
            }
          }
        },
        120);
}

}  // namespace
