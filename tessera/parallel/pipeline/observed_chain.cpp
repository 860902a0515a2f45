#include <tessera/parallel/pipeline/observed_chain.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/parallel/dispatch/managed.h>
#include <tessera/parallel/pipeline/recorded_forward.h>

#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tessera::parallel {
namespace {

using Forward = std::function<at::Tensor(const at::Tensor&)>;
using torch::jit::Stack;

struct Block {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;  // null: a parameter of the root itself
  std::vector<at::Tensor> tensors;
};

void add_blocks(const torch::nn::Module& module, const std::string& prefix, std::vector<Block>& blocks) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false))
    blocks.push_back({prefix + parameter.key(), nullptr, {parameter.value()}});
  for (const auto& child : module.named_children()) {
    const auto& inner = child.value();
    if (inner->as<torch::nn::ModuleListImpl>() != nullptr || inner->as<torch::nn::SequentialImpl>() != nullptr ||
        inner->as<torch::nn::ModuleDictImpl>() != nullptr) {
      add_blocks(*inner, prefix + child.key() + ".", blocks);
      continue;
    }
    std::vector<at::Tensor> tensors = inner->parameters();
    for (const at::Tensor& buffer : inner->buffers()) tensors.push_back(buffer);
    if (!tensors.empty()) blocks.push_back({prefix + child.key(), inner, std::move(tensors)});
  }
}

/// The cuts of a record: layer i is operators [begins[i], begins[i + 1]), with value enters[i] as its input.
struct Cuts {
  std::vector<LayerChain::Layer> layers;
  std::vector<std::size_t> begins, enters;
  std::vector<std::string> refused;  // reasons why some positions cannot be cut
};

/// The values that depend on parameters, exist before operator `at`, and are used at or after it.
std::vector<std::size_t> living_at(const RecordedForward& record, const std::vector<std::size_t>& written,
                                   std::size_t at) {
  std::vector<std::size_t> living;
  for (std::size_t v = 0; v < record.depends.size(); ++v)
    if (record.depends[v] && written[v] < at && record.last_used[v] >= at) living.push_back(v);
  return living;
}

/// First and last operator that uses a block's tensors. A tensor of several blocks (tied) is assigned to them in turn.
struct Range {
  std::vector<std::size_t> blocks;
  std::size_t first = 0, last = 0;
};
std::vector<Range> ranges_of(const RecordedForward& record, const std::vector<Block>& blocks,
                             std::vector<std::size_t>& unused) {
  std::map<const c10::TensorImpl*, std::vector<std::size_t>> owners;
  for (std::size_t b = 0; b < blocks.size(); ++b)
    for (const at::Tensor& tensor : blocks[b].tensors) {
      auto& all = owners[tensor.unsafeGetTensorImpl()];
      if (all.empty() || all.back() != b) all.push_back(b);
    }
  std::map<const c10::TensorImpl*, std::size_t> touched;
  std::map<std::size_t, Range> by_block;
  for (std::size_t k = 0; k < record.operators.size(); ++k)
    for (const c10::TensorImpl* tensor : record.operators[k].touches) {
      const std::vector<std::size_t>& all = owners[tensor];
      if (all.empty()) continue;
      const std::size_t block = all[std::min(touched[tensor]++, all.size() - 1)];
      by_block.try_emplace(block, Range{{block}, k, k}).first->second.last = k;
    }
  std::vector<Range> ranges;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const auto found = by_block.find(b);
    if (found == by_block.end())
      unused.push_back(b);
    else
      ranges.push_back(found->second);
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  return ranges;
}

Cuts cut_record(const RecordedForward& record, const std::vector<Block>& blocks) {
  std::vector<std::size_t> written(record.depends.size(), record.operators.size());
  for (std::size_t k = record.operators.size(); k-- > 0;) {
    if (record.operators[k].everywhere) continue;
    for (const std::size_t v : record.operators[k].writes) written[v] = k;
    for (const RecordedResult& result : record.operators[k].results)
      if (result.defined && result.argument < 0) written[result.value] = k;
  }
  const auto passable = [&](std::size_t v) {
    const RecordedOperator& maker = record.operators[record.made_by[v]];
    if (maker.everywhere) return false;
    return std::any_of(maker.results.begin(), maker.results.end(), [&](const RecordedResult& r) {
      return r.defined && r.value == v && r.argument < 0 && at::isFloatingType(r.type) && r.offset == 0;
    });
  };
  std::vector<std::size_t> unused;
  const std::vector<Range> ranges = ranges_of(record, blocks, unused);
  if (ranges.empty()) throw InputError("pipeline: forward uses no parameter of the module, so there is nothing to cut");
  Cuts cuts;
  const auto begin_layer = [&](const Range& range, std::size_t begin, std::size_t enters) {
    cuts.layers.push_back({blocks[range.blocks.front()].name, {}});
    cuts.begins.push_back(begin);
    cuts.enters.push_back(enters);
  };
  begin_layer(ranges.front(), 0, 0);
  std::size_t last = 0;
  std::string before;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    const std::string& name = blocks[range.blocks.front()].name;
    if (i > 0) {
      std::string why = concat("'", before, "' is used again after '", name, "' has begun");
      for (std::size_t at = range.first; at > last; --at) {
        const std::vector<std::size_t> living = living_at(record, written, at);
        if (living.size() == 1 && passable(living.front())) {
          begin_layer(range, at, living.front());
          why.clear();
          break;
        }
        if (at != range.first) continue;
        std::vector<std::string> makers;
        for (const std::size_t v : living) makers.push_back(record.operators[written[v]].name);
        why = concat(living.size(), " tensors pass from '", before, "' and earlier to '", name,
                     "' and later (computed by ", join(makers), ")");
      }
      if (!why.empty()) cuts.refused.push_back(why);
    }
    cuts.layers.back().modules.push_back(name);
    if (range.last >= last) last = range.last, before = name;
  }
  for (const std::size_t b : unused) cuts.layers.front().modules.push_back(blocks[b].name);
  cuts.begins.push_back(record.operators.size());
  return cuts;
}

/// A tensor of these sizes without memory; reading it is an error.
at::Tensor without_memory(const RecordedResult& like, c10::Device device) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < like.sizes.size(); ++d) elements += (like.sizes[d] - 1) * like.strides[d];
  if (std::find(like.sizes.begin(), like.sizes.end(), 0) != like.sizes.end()) elements = 0;
  auto memory = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      static_cast<std::int64_t>((static_cast<std::size_t>(like.offset + elements)) * c10::elementSize(like.type)),
      c10::DataPtr(nullptr, device), nullptr, /*resizable=*/false);
  memory->release_data_and_set_meta_custom_data_ptr_error_msg_(
      std::string("pipeline: forward reads values of a tensor that another stage computes, bypassing the operators of "
                  "LibTorch; list the module's layers (PipelineLayer)"));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(memory)),
      c10::DispatchKeySet(c10::computeDispatchKey(like.type, c10::Layout::Strided, device)),
      c10::scalarTypeToTypeMeta(like.type));
  tensor.unsafeGetTensorImpl()->set_storage_offset(like.offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes, like.strides);
  return tensor;
}

[[noreturn]] void throw_other_course(std::size_t place, const std::string& now, const std::string& before) {
  throw InputError(concat("pipeline: operator ", place, " of forward is ", now, ", but was ", before,
                          " when it was recorded; a forward whose control flow differs between calls cannot be cut "
                          "automatically: list its layers (PipelineLayer), or make it a torch::nn::Sequential"));
}

/// Runs operators [begin, end) of a forward; all others return tensors without memory.
class PartOfForward final : public OperatorWatcher {
 public:
  PartOfForward(const RecordedForward& record, std::size_t begin, std::size_t end, std::size_t enters,
                std::size_t leaves, at::Tensor entering, c10::Device device)
      : record_(record),
        begin_(begin),
        end_(end),
        enters_(enters),
        leaves_(leaves),
        entering_(std::move(entering)),
        device_(device) {}

  void called(const c10::OperatorHandle& op, Stack* stack, const std::function<void()>& run) override {
    const std::size_t k = next_++;
    const c10::FunctionSchema& schema = op.schema();
    const std::string name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
    if (k >= record_.operators.size()) throw_other_course(k, name, "the end");
    const RecordedOperator& recorded = record_.operators[k];
    if (name != recorded.name) throw_other_course(k, name, recorded.name);
    if (recorded.everywhere) return run();
    if (k < begin_ || k >= end_) return skip(schema, *stack, recorded, k);
    run();
    const std::size_t first = stack->size() - schema.returns().size();
    for (std::size_t i = 0; i < recorded.results.size(); ++i)
      if (k == record_.made_by[leaves_or_none()] && recorded.results[i].defined &&
          recorded.results[i].value == leaves_ && recorded.results[i].argument < 0)
        leaving_ = (*stack)[first + i].toTensor();
  }

  /// Call after forward, which returned `output`.
  at::Tensor end(const at::Tensor& output) const {
    if (next_ != record_.operators.size()) throw_other_course(next_, "the end", record_.operators[next_].name);
    if (end_ == record_.operators.size()) return output;
    TESSERA_CHECK(leaving_.defined(), "the tensor at the cut was not computed");
    return leaving_;
  }

 private:
  std::size_t leaves_or_none() const { return end_ == record_.operators.size() ? 0 : leaves_; }

  void skip(const c10::FunctionSchema& schema, Stack& stack, const RecordedOperator& recorded, std::size_t k) {
    const std::size_t first = stack.size() - schema.arguments().size();
    std::vector<at::Tensor> results;
    for (const RecordedResult& result : recorded.results) {
      at::Tensor& tensor = results.emplace_back();
      if (!result.defined) continue;
      if (result.argument >= 0) {
        tensor = stack[first + static_cast<std::size_t>(result.argument)].toTensor();
        if (result.is_view) tensor = tensor.as_strided(result.sizes, result.strides, result.offset);
      } else if (begin_ > 0 && result.value == enters_ && k == record_.made_by[enters_]) {
        tensor = enter(result);
      } else {
        tensor = without_memory(result, device_);
      }
    }
    torch::jit::drop(stack, schema.arguments().size());
    if (recorded.true_always) stack.emplace_back(true);
    for (at::Tensor& tensor : results) stack.emplace_back(std::move(tensor));
  }

  at::Tensor enter(const RecordedResult& result) const {
    if (entering_.sizes() != at::IntArrayRef(result.sizes) || entering_.scalar_type() != result.type)
      throw InputError(concat("pipeline: a ", c10::toString(entering_.scalar_type()), " tensor of sizes ",
                              entering_.sizes(), " arrived from the previous stage, but forward expects a ",
                              c10::toString(result.type), " of ", at::IntArrayRef(result.sizes),
                              " there: give every rank the inputs of the same micro-batch"));
    bool changed = false;
    for (std::size_t k = begin_; k < end_; ++k) {
      const auto& writes = record_.operators[k].writes;
      changed = changed || std::find(writes.begin(), writes.end(), enters_) != writes.end();
    }
    if (entering_.strides() == at::IntArrayRef(result.strides))
      return changed ? entering_.clone() : entering_;  // leaves cannot be changed in place
    // Messages are contiguous; later operators may inspect strides, and kernels are chosen by them.
    return at::empty_strided(result.sizes, result.strides, entering_.options().requires_grad(false)).copy_(entering_);
  }

  const RecordedForward& record_;
  std::size_t begin_, end_, enters_, leaves_, next_ = 0;
  at::Tensor entering_, leaving_;
  c10::Device device_;
};

class ObservedChain final : public LayerChain {
 public:
  struct Mode {
    RecordedForward record;
    Cuts cuts;
  };

  ObservedChain(torch::nn::Module& root, Forward forward, std::vector<Block> blocks, std::map<bool, Mode> modes)
      : LayerChain(root, modes.at(true).cuts.layers),
        forward_(std::move(forward)),
        blocks_(std::move(blocks)),
        modes_(std::move(modes)) {}

  at::Tensor run(std::size_t first, std::size_t past, const at::Tensor& batch, const at::Tensor& input) override {
    if (first == past) return first == 0 ? batch : input;
    const bool training = root().is_training();
    for (const auto& module : gone_)  // no longer in the tree
      if (module->is_training() != training) module->train(training);
    const RecordedForward& record = record_for(batch, training);
    const Cuts& cuts = modes_.at(training).cuts;
    const bool ends = past + 1 == cuts.begins.size();
    PartOfForward part(record, cuts.begins[first], cuts.begins[past], cuts.enters[first], ends ? 0 : cuts.enters[past],
                       input, batch.device());
    at::Tensor output;
    {
      const WatchOperators watch(part);
      output = forward_(batch);
    }
    return part.end(output);
  }

  void drop_layers(const std::vector<bool>& kept) override {
    std::set<std::string> own;
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (kept[i]) own.insert(layers()[i].modules.begin(), layers()[i].modules.end());
    for (const Block& block : blocks_)
      if (block.module != nullptr && own.count(block.name) == 0) gone_.push_back(block.module);
  }
  bool needs_batch() const override { return true; }
  std::string remark() const override {
    const auto& refused = modes_.at(true).cuts.refused;
    return refused.empty()
               ? ""
               : concat(" (no cut is possible where more than one tensor passes: ", join(refused, "; "), ")");
  }

 private:
  /// The record for inputs of these sizes: the same operators with different sizes.
  const RecordedForward& record_for(const at::Tensor& batch, bool training) {
    const auto key = std::pair(training, concat(batch.sizes(), c10::toString(batch.scalar_type())));
    const auto found = by_sizes_.find(key);
    if (found != by_sizes_.end()) return found->second;
    std::vector<at::Tensor> own;
    for (const Block& block : blocks_) own.insert(own.end(), block.tensors.begin(), block.tensors.end());
    RecordedForward record = record_quietly(forward_, batch, own);
    const auto& known = modes_.at(training).record.operators;
    for (std::size_t k = 0; k < std::max(known.size(), record.operators.size()); ++k) {
      const auto name = [k](const auto& operators) { return k < operators.size() ? operators[k].name : "the end"; };
      if (name(known) != name(record.operators) || known[k].everywhere != record.operators[k].everywhere)
        throw_other_course(k, concat(name(record.operators), " for inputs of sizes ", batch.sizes()), name(known));
    }
    constexpr std::size_t remembered = 64;
    if (by_sizes_.size() >= remembered) by_sizes_.clear();
    return by_sizes_.emplace(key, std::move(record)).first->second;
  }

 public:
  /// Leaves random states unchanged.
  static RecordedForward record_quietly(const Forward& forward, const at::Tensor& sample,
                                        const std::vector<at::Tensor>& own) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor state = generator.get_state();
    struct Back {
      at::Generator& generator;
      const at::Tensor& state;
      ~Back() { generator.set_state(state); }
    } const back{generator, state};
    return record_forward(forward, sample, own);
  }

 private:
  Forward forward_;
  std::vector<Block> blocks_;
  std::vector<std::shared_ptr<torch::nn::Module>> gone_;  // dropped, since they belong to other ranks, but still called
  std::map<bool, Mode> modes_;                            // by training
  std::map<std::pair<bool, std::string>, RecordedForward> by_sizes_;
};

/// Restores train() and eval() of every module.
class ModesOf {
 public:
  explicit ModesOf(torch::nn::Module& root) : root_(&root), root_training_(root.is_training()) {
    for (const auto& module : root.modules(/*include_self=*/false)) before_.emplace_back(module, module->is_training());
  }
  ~ModesOf() {
    root_->train(root_training_);
    for (const auto& [module, training] : before_) module->train(training);  // outer ones first
  }
  ModesOf(const ModesOf&) = delete;
  ModesOf& operator=(const ModesOf&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> before_;
  torch::nn::Module* root_;
  bool root_training_;
};

}  // namespace

std::unique_ptr<LayerChain> observe_chain(torch::nn::Module& root, Forward forward, const at::Tensor& sample) {
  if (!forward || !sample.defined())
    throw InputError(
        "pipeline: an unmodified module needs its forward, and a sample of a micro-batch's inputs to observe it");
  std::vector<Block> blocks;
  add_blocks(root, "", blocks);
  std::vector<at::Tensor> own;
  for (const Block& block : blocks) own.insert(own.end(), block.tensors.begin(), block.tensors.end());
  const bool training = root.is_training();
  std::map<bool, ObservedChain::Mode> modes;
  const ModesOf modes_before(root);
  for (const bool mode : {training, !training}) {
    if (mode != training) root.train(mode);
    RecordedForward record = ObservedChain::record_quietly(forward, sample, own);
    Cuts cuts = cut_record(record, blocks);
    modes.emplace(mode, ObservedChain::Mode{std::move(record), std::move(cuts)});
  }
  const auto names = [&](bool mode) {
    std::vector<std::string> all;
    for (const LayerChain::Layer& layer : modes.at(mode).cuts.layers) all.push_back(layer.name);
    return join(all);
  };
  if (names(true) != names(false))
    throw InputError(concat("pipeline: forward can be cut before ", names(true), " in training, but before ",
                            names(false), " in evaluation; list the module's layers (PipelineLayer)"));
  return std::make_unique<ObservedChain>(root, std::move(forward), std::move(blocks), std::move(modes));
}

}  // namespace tessera::parallel
