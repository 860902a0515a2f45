#include <tessera/parallel/pipeline/recorded_forward.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <tessera/base/error.h>
#include <tessera/parallel/dispatch/managed.h>

#include <algorithm>
#include <utility>

namespace tessera::parallel {
namespace {

using torch::jit::Stack;

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage()
             ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()
             : nullptr;
}

bool are_one(const at::Tensor& a, const at::Tensor& b) {
  return memory_of(a) != nullptr && memory_of(a) == memory_of(b) && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.storage_offset() == b.storage_offset();
}

class Recorder final : public OperatorWatcher {
 public:
  explicit Recorder(const std::vector<at::Tensor>& own) {
    for (const at::Tensor& tensor : own) {
      const auto* const memory = memory_of(tensor);
      if (memory == nullptr) continue;
      auto& there = own_[memory];
      if (std::find(there.begin(), there.end(), tensor.unsafeGetTensorImpl()) == there.end())
        there.push_back(tensor.unsafeGetTensorImpl());
    }
  }

  void called(const c10::OperatorHandle& op, Stack* stack, const std::function<void()>& run) override {
    const c10::FunctionSchema& schema = op.schema();
    const std::size_t first = stack->size() - schema.arguments().size();
    RecordedOperator now;
    now.name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
    std::vector<at::Tensor> arguments(schema.arguments().size());  // arguments that are single tensors, as given
    bool depends = op.hasTag(at::Tag::nondeterministic_seeded), by_mask = false;
    const auto look = [&](const at::Tensor& tensor, bool write) {
      at::Tensor used = tensor;
      const auto* const memory = memory_of(tensor);
      if (memory == nullptr) return used;
      by_mask = by_mask || tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
      if (const auto own = own_.find(memory); own != own_.end()) {
        for (const c10::TensorImpl* impl : own->second) now.touches.push_back(impl);
        depends = true;
        used = stand_in(tensor, write);
      } else if (const auto known = values_.find(memory); known != values_.end()) {
        (write ? now.writes : now.reads).push_back(known->second);
        depends = depends || record_.depends[known->second];
      }
      return used;
    };
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = (*stack)[first + i];
      const auto* const alias = schema.arguments()[i].alias_info();
      const bool write = alias != nullptr && alias->isWrite();
      if (value.isTensor()) {
        arguments[i] = value.toTensor();
        value = look(arguments[i], write);
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> tensors = value.toTensorVector();
        for (at::Tensor& tensor : tensors) tensor = look(tensor, write);
        value = std::move(tensors);
      } else if (value.isList()) {
        for (const c10::IValue& element : value.toListRef())
          if (element.isTensor()) (void)look(element.toTensor(), write);
      }
    }
    now.everywhere = !depends;
    // torch::nn::MultiheadAttention checks for self-attention this way.
    now.true_always = schema.name() == "aten::equal" && are_one(arguments[0], arguments[1]);
    if (depends && !now.true_always) refuse_values(op, now.name, by_mask);
    const std::size_t self = record_.operators.size();
    run();
    const std::size_t result = stack->size() - schema.returns().size();
    for (std::size_t i = 0; i < schema.returns().size(); ++i) {
      c10::IValue& value = (*stack)[result + i];
      if (!value.isTensor()) {
        if (depends && !now.true_always) refuse(now.name, "returns values other than tensors");
        continue;
      }
      now.results.push_back(result_of(value, arguments, depends, self));
    }
    for (const std::size_t written : now.writes)
      if (depends) record_.depends[written] = true;
    for (const auto* const used : {&now.reads, &now.writes})
      for (const std::size_t value : *used) record_.last_used[value] = self;
    record_.operators.push_back(std::move(now));
  }

  RecordedForward end(const at::Tensor& output) {
    const auto known = values_.find(memory_of(output));
    if (known == values_.end() || !record_.depends[known->second])
      throw InputError("pipeline: the output of forward does not depend on any parameter, so there is nothing to cut");
    record_.last_used[known->second] = record_.operators.size();
    return std::move(record_);
  }

 private:
  [[noreturn]] static void refuse(const std::string& name, const char* what) {
    throw InputError(
        concat("pipeline: forward calls ", name, " on a tensor that depends on parameters; this operator ", what,
               "; a forward whose control flow depends on values cannot be cut automatically: list its layers "
               "(PipelineLayer), or make it a torch::nn::Sequential"));
  }
  static void refuse_values(const c10::OperatorHandle& op, const std::string& name, bool by_mask) {
    if (op.hasTag(at::Tag::data_dependent_output)) refuse(name, "reads its values");
    const bool indexed = op.schema().name() == "aten::index" && !by_mask;
    if (op.hasTag(at::Tag::dynamic_output_shape) && !indexed)
      refuse(name, "returns a number of elements that depends on values");
  }

  /// Zeros in place of a parameter, which may be deferred.
  at::Tensor stand_in(const at::Tensor& tensor, bool write) {
    constexpr std::int64_t small = 1 << 16;
    const auto options = at::TensorOptions(tensor.scalar_type()).device(tensor.device());
    at::Tensor zeros = write || tensor.numel() <= small ? at::zeros(tensor.sizes(), options)
                                                        : at::zeros({1}, options).expand(tensor.sizes());
    stand_ins_[memory_of(zeros)] = tensor;
    hold_address(zeros);
    return zeros;
  }

  /// Keeps the address from being used by another storage; the data may be freed.
  void hold_address(const at::Tensor& tensor) { held_.push_back(tensor.storage().getWeakStorageImpl()); }

  RecordedResult result_of(c10::IValue& value, const std::vector<at::Tensor>& arguments, bool depends,
                           std::size_t self) {
    at::Tensor tensor = value.toTensor();
    RecordedResult result;
    const auto* memory = memory_of(tensor);
    if (const auto replaced = stand_ins_.find(memory); replaced != stand_ins_.end()) {
      value = tensor = replaced->second;
      memory = memory_of(tensor);
    }
    if (memory == nullptr) return result;
    for (std::size_t i = 0; i < arguments.size() && result.argument < 0; ++i)
      if (arguments[i].defined() && memory_of(arguments[i]) == memory) {
        result.argument = static_cast<int>(i);
        result.is_view = !arguments[i].is_same(tensor);
      }
    for (std::size_t i = 0; i < arguments.size(); ++i)  // prefer the argument itself
      if (arguments[i].defined() && arguments[i].is_same(tensor))
        result.argument = static_cast<int>(i), result.is_view = false;
    result.defined = true;
    result.sizes = tensor.sizes().vec();
    result.strides = tensor.strides().vec();
    result.offset = tensor.storage_offset();
    result.type = tensor.scalar_type();
    if (own_.count(memory) != 0) return result;
    const auto [known, is_new] = values_.try_emplace(memory, record_.depends.size());
    if (is_new) {
      record_.depends.push_back(depends);
      record_.made_by.push_back(self);
      record_.last_used.push_back(self);
      hold_address(tensor);
    }
    result.value = known->second;
    return result;
  }

  RecordedForward record_;
  std::unordered_map<const c10::StorageImpl*, std::vector<const c10::TensorImpl*>> own_;
  std::unordered_map<const c10::StorageImpl*, std::size_t> values_;
  std::unordered_map<const c10::StorageImpl*, at::Tensor> stand_ins_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> held_;
};

}  // namespace

RecordedForward record_forward(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& sample,
                               const std::vector<at::Tensor>& own) {
  const at::NoGradGuard no_grad;
  Recorder recorder(own);
  at::Tensor output;
  {
    const WatchOperators watch(recorder);
    output = forward(sample);
  }
  if (!output.defined()) throw InputError("pipeline: forward returned no tensor");
  return recorder.end(output);
}

}  // namespace tessera::parallel
