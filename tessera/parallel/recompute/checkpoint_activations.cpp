#include <tessera/parallel/recompute/checkpoint_activations.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <tessera/base/error.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/recompute/checkpoint_environment.h>

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>

// Terms. Forward: a region executes under ForwardPolicy, which keeps nothing: the k-th tensor that its operations save
// becomes number k of the region's record. Backward asks for one number; the region runs again under AgainPolicy, whose
// k-th saved tensor is the value of number k; those still needed are rebuilt, returned and then dropped. Parameters are
// not counted in either run. Rebuilt tensors belong to the backward (its graph task) that asked for them: two backward
// passes of one graph do not share theirs.

namespace tessera::parallel {
namespace {

std::atomic<std::int64_t> regions{0}, dropped{0}, recomputed{0};

/// Thrown to leave the region once everything needed is rebuilt. A std::exception, because autograd's worker loop
/// handles no other exceptions.
struct Enough final : std::exception {
  const char* what() const noexcept override { return "the end of a recomputation (let this exception pass)"; }
};

struct Description {
  c10::DimVector sizes;
  at::ScalarType dtype;
  c10::Device device;

  explicit Description(const at::Tensor& t) : sizes(t.sizes()), dtype(t.scalar_type()), device(t.device()) {}
  bool operator==(const Description&) const = default;
  std::string text() const { return concat(c10::toString(dtype), " [", c10::Join(", ", sizes), "] on ", device.str()); }
};

/// An input: parameters are kept unchanged, other tensors through the policies around the region.
struct Input {
  explicit Input(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (is_parameter(tensor))
      parameter.emplace(tensor);
    else
      saved = SavedTensor(tensor);
  }
  at::Tensor get() const { return parameter ? parameter->get() : saved.unpack(); }

  std::optional<Versioned> parameter;
  SavedTensor saved;
};

/// The record of one execution of a region. Owned by the operations that saved something in it.
class Record : public std::enable_shared_from_this<Record> {
 public:
  Record(const CheckpointOptions& options, std::function<void(std::span<const at::Tensor>)> again,
         const std::vector<at::Tensor>& inputs)
      : options_(options),
        again_(std::move(again)),
        environment_(Environment::capture(inputs, options.preserve_random)) {
    inputs_.reserve(inputs.size());
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
  }

  ~Record();

  std::size_t add(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    saved_.push_back({Description(tensor), true});
    ++dropped;
    return saved_.size() - 1;
  }
  void release(std::size_t number) {
    std::vector<Versioned> freed;  // freed outside of the lock, because freeing a tensor may run arbitrary code
    const std::lock_guard lock(mutex_);
    saved_[number].alive = false;
    for (auto& [backward, tensors] : rebuilt_)
      if (const auto place = tensors.find(number); place != tensors.end()) {
        freed.push_back(std::move(place->second));
        tensors.erase(place);
      }
  }
  void end() { environment_.end(); }

  at::Tensor get(std::size_t number);
  /// Stores `tensor` as number `number` of the current recomputation for `backward`.
  void rebuild(int backward, std::size_t number, const at::Tensor& tensor);

  /// One past the last number that is still needed and not rebuilt for `backward`; 0 when nothing is needed.
  std::size_t needed(int backward);

 private:
  struct Saved {
    Description description;
    bool alive;
  };
  bool take(int backward, std::size_t number, Versioned& tensor);
  void recompute(int backward);
  void forget(int backward);

  const CheckpointOptions options_;
  const std::function<void(std::span<const at::Tensor>)> again_;
  std::vector<Input> inputs_;
  Environment environment_;

  std::recursive_mutex recomputing_;  ///< one recomputation at a time; recursive, because a region may
                                      ///< itself run a backward
  std::mutex mutex_;                  ///< guards the members below; never held while tensors are computed
  std::vector<Saved> saved_;
  std::map<int, std::map<std::size_t, Versioned>> rebuilt_;  ///< by backward, number
};

class Dropped final : public PackedTensor {
 public:
  Dropped(std::shared_ptr<Record> record, std::size_t number) : record_(std::move(record)), number_(number) {}
  ~Dropped() override { record_->release(number_); }
  at::Tensor unpack() override { return record_->get(number_); }

 private:
  std::shared_ptr<Record> record_;
  std::size_t number_;
};

class ForwardPolicy final : public SavedTensorPolicy {
 public:
  explicit ForwardPolicy(std::shared_ptr<Record> record) : record_(std::move(record)) {}
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    return std::make_unique<Dropped>(record_, record_->add(tensor));
  }

 private:
  std::shared_ptr<Record> record_;
};

/// Keeps tensors unchanged for the recomputed graph itself, in which a region may call backward.
class AgainPolicy final : public SavedTensorPolicy {
 public:
  AgainPolicy(Record& record, int backward, std::size_t needed, bool early_stop)
      : record_(record), backward_(backward), needed_(needed), early_stop_(early_stop) {}

  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    class Kept final : public PackedTensor {
     public:
      explicit Kept(const at::Tensor& tensor) : tensor_(tensor) {}
      at::Tensor unpack() override { return tensor_.get(); }

     private:
      Versioned tensor_;
    };
    if (count_ < needed_ || !early_stop_) record_.rebuild(backward_, count_, tensor);
    ++count_;
    if (early_stop_ && count_ >= needed_ && !std::exchange(enough_, true)) throw Enough();
    return std::make_unique<Kept>(tensor);
  }
  std::size_t count() const { return count_; }
  bool enough() const { return enough_; }

 private:
  Record& record_;
  const int backward_;
  const std::size_t needed_;
  const bool early_stop_;
  std::size_t count_ = 0;
  bool enough_ = false;
};

/// The inputs may be the last owners of the graph before this region, with the record of the region before it, and so
/// on: records destroyed as a consequence only queue their inputs, so that a chain of thousands does not recurse.
Record::~Record() {
  static thread_local std::vector<std::vector<Input>>* queue = nullptr;
  if (queue != nullptr) {
    queue->push_back(std::move(inputs_));
    return;
  }
  std::vector<std::vector<Input>> waiting;
  waiting.push_back(std::move(inputs_));
  queue = &waiting;
  while (!waiting.empty()) {
    const std::vector<Input> next = std::move(waiting.back());
    waiting.pop_back();
  }
  queue = nullptr;
}

at::Tensor Record::get(std::size_t number) {
  const int backward = current_backward();
  Versioned tensor;
  if (take(backward, number, tensor)) return tensor.get();
  {
    const std::lock_guard lock(recomputing_);
    if (!take(backward, number, tensor)) {
      recompute(backward);
      TESSERA_CHECK(take(backward, number, tensor), options_.name, ": saved tensor ", number, " was not rebuilt");
    }
    if (backward == -1) forget(backward);  // the saved tensor is read outside of any backward
  }
  return tensor.get();
}

bool Record::take(int backward, std::size_t number, Versioned& tensor) {
  const std::lock_guard lock(mutex_);
  const auto mine = rebuilt_.find(backward);
  if (mine == rebuilt_.end()) return false;
  const auto place = mine->second.find(number);
  if (place == mine->second.end()) return false;
  tensor = std::move(place->second);
  mine->second.erase(place);
  return true;
}

std::size_t Record::needed(int backward) {
  const std::lock_guard lock(mutex_);
  const auto mine = rebuilt_.find(backward);
  for (std::size_t number = saved_.size(); number-- > 0;)
    if (saved_[number].alive && (mine == rebuilt_.end() || !mine->second.contains(number))) return number + 1;
  return 0;
}

void Record::rebuild(int backward, std::size_t number, const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (number >= saved_.size()) return;  // reported at the end, when the total number is known
  const Description now(tensor);
  if (!(now == saved_[number].description))
    throw Error(concat(options_.name, ": the recomputation differs from the forward pass: tensor ", number,
                       " that autograd saves is ", now.text(), ", but it was ", saved_[number].description.text(),
                       "; the function must run the same operations each time (same branches, same module mode, inputs "
                       "not changed in place)"));
  if (saved_[number].alive) rebuilt_[backward].try_emplace(number, tensor);
}

void Record::recompute(int backward) {
  ++recomputed;
  const std::size_t count = needed(backward);
  std::vector<at::Tensor> inputs;
  inputs.reserve(inputs_.size());
  for (const Input& input : inputs_) inputs.push_back(input.get());
  if (backward != -1) {
    // Tensors that this backward does not use (a part of the graph under retain_graph) are dropped when it ends.
    const std::lock_guard lock(mutex_);
    if (!rebuilt_.contains(backward))
      at_end_of_current_backward([self = weak_from_this(), backward] {
        if (const auto record = self.lock()) record->forget(backward);
      });
    rebuilt_[backward];
  }

  const auto policy = std::make_shared<AgainPolicy>(*this, backward, count, options_.early_stop);
  try {
    const SavedTensors scope(policy);
    const Environment::Restored restored(environment_);
    again_(inputs);
  } catch (...) {
    if (!policy->enough()) throw;  // otherwise it was Enough, possibly rethrown as another exception by the function
  }
  std::size_t expected;
  {
    const std::lock_guard lock(mutex_);
    expected = options_.early_stop ? count : saved_.size();
  }
  if (policy->count() < expected || (!options_.early_stop && policy->count() != expected))
    throw Error(concat(options_.name, ": the recomputation differs from the forward pass: autograd saves ",
                       policy->count(), " tensors in it, but ", options_.early_stop ? "at least " : "", expected,
                       " in the forward pass; the function must run the same operations each time (same branches, same "
                       "module mode, inputs not changed in place)"));
}

void Record::forget(int backward) {
  std::map<std::size_t, Versioned> freed;
  const std::lock_guard lock(mutex_);
  if (const auto place = rebuilt_.find(backward); place != rebuilt_.end()) {
    freed = std::move(place->second);
    rebuilt_.erase(place);
  }
}

}  // namespace

struct CheckpointScope::Impl {
  std::shared_ptr<Record> record;
  SavedTensors scope;
  int exceptions = std::uncaught_exceptions();
};

CheckpointScope::CheckpointScope(const CheckpointOptions& options, std::vector<at::Tensor> inputs,
                                 std::function<void(std::span<const at::Tensor>)> again) {
  if (!c10::GradMode::is_enabled() || c10::InferenceMode::is_enabled()) return;
  ++regions;
  auto record = std::make_shared<Record>(options, std::move(again), inputs);
  impl_.reset(new Impl{record, SavedTensors(std::make_shared<ForwardPolicy>(record))});
}

CheckpointScope::~CheckpointScope() {
  // After an exception the record ends with the operations that still refer to it.
  if (impl_ && std::uncaught_exceptions() == impl_->exceptions) impl_->record->end();
}

CheckpointCounts checkpoint_counts() { return {.regions = regions, .dropped = dropped, .recomputed = recomputed}; }

}  // namespace tessera::parallel
