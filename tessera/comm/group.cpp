// Every collective of every backend passes through this file to be validated, numbered, fingerprinted and recorded.
#include <ATen/ATen.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/hash.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/blocked.h>
#include <tessera/comm/cause.h>
#include <tessera/comm/group.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/watch.h>

#include <exception>
#include <mutex>
#include <numeric>

namespace tessera::comm {

Pending::~Pending() = default;

Backend::Backend(std::string name, std::string kind, int rank, int size, c10::Device device)
    : name_(std::move(name)), kind_(std::move(kind)), rank_(rank), size_(size), device_(device) {
  if (const layout::BackendRow* row = layout::find_backend(kind_)) capabilities_ = row->capabilities;
}
Backend::~Backend() = default;
void Backend::announce(const launch::Entry&) {}
void Backend::abort(const std::string&) {}

std::shared_ptr<Backend> Backend::host() {
  if (make_host_) {
    host_ = make_host_();
    make_host_ = {};  // reset only after success, so that a call after a failure also fails
  }
  return host_;
}

const char* reduction_name(Reduction op) {
  switch (op) {
    case Reduction::sum:
      return "sum";
    case Reduction::mean:
      return "mean";
    case Reduction::min:
      return "min";
    case Reduction::max:
      return "max";
    case Reduction::product:
      return "product";
  }
  return "?";
}

namespace {

std::string dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(dtype);
  }
}

std::string rank_text(const Backend& backend) {
  return concat("group '", backend.name(), "' (", backend.kind(), ", rank ", backend.rank(), " of ", backend.size(),
                ")");
}

// Hashes everything that must agree between ranks.
class Fingerprint {
 public:
  Fingerprint& add(std::string_view bytes) {
    hash_ = fnv1a("\xff", fnv1a(bytes, hash_));  // separator, so that "ab","c" differs from "a","bc"
    return *this;
  }
  Fingerprint& add(std::int64_t value) { return add({reinterpret_cast<const char*>(&value), sizeof value}); }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = fnv1a("");
};

// Builds the error of a failed collective, most useful facts first. If a peer started a different collective, the
// transport sees only a broken connection, so the ranks' records are compared first. If that yields no reason, the
// group is aborted: otherwise, if the caller caught the error, ranks that wait for this one would hang forever.
Error failure(Backend& backend, const Entry& entry, const std::exception& error) {
  const double seconds = seconds_since(entry.start_ns);
  std::string cause = cause_text(error);
  const auto reason = backend.capabilities().names_causes ? stop_requested() : explain_failure(entry);
  if (reason && cause.find(*reason) == std::string::npos) cause = concat(*reason, "\n  Transport error: ", cause);
  const std::string place = launch::read_text(heartbeat().slot().place);
  std::string text = concat(describe(entry), " failed on rank ", backend.rank(), " (", place, place.empty() ? "" : "; ",
                            backend.kind(), ") after ", format_real(seconds, 3), " s: ", cause);
  if (!reason) {
    const std::string what = text;
    if (!backend.capabilities().names_causes) {
      text +=
          "\n  Usual causes: a peer died or hangs, or the ranks started different collectives; the rank that failed "
          "first reports more.";
    }
    heartbeat().fail(text);  // report it before other ranks fail because of it
    backend.abort(what);
  }
  text += "\n  Last collectives of this process:";
  for (const Entry& e : recorder().last(6)) {
    const char* status = e.status == Status::done ? "done" : e.status == Status::failed ? "failed" : "not finished";
    text += concat("\n    ", describe(e), ": ", status);
  }
  return Error(text);
}

// Records the bytes that the backend moved, if it reports them.
void take_moved_bytes(const Entry& entry) {
  if (const std::int64_t bytes = take_moved(); bytes >= 0) recorder().moved(entry, bytes);
}

// Records the end of a collective and adds its description to errors.
class Recorded final : public Pending {
 public:
  Recorded(std::shared_ptr<Backend> backend, std::shared_ptr<Pending> inner, const Entry& entry, std::int64_t moved)
      : backend_(std::move(backend)), inner_(std::move(inner)), entry_(entry), moved_(moved) {}

  void wait() override {
    const std::lock_guard lock(mutex_);
    if (finished_) {
      if (failure_) std::rethrow_exception(failure_);
      return;
    }
    const std::int64_t begin = monotonic_ns();
    try {
      const Blocked here(entry_.id, begin);
      inner_->wait();
      const std::int64_t end = monotonic_ns();
      recorder().finish(entry_, Status::done, end - begin, end - entry_.start_ns);
      if (moved_ >= 0) report_moved(moved_);
      take_moved_bytes(entry_);
    } catch (const std::exception& error) {
      const std::int64_t end = monotonic_ns();
      recorder().finish(entry_, Status::failed, end - begin, end - entry_.start_ns);
      take_moved();
      failure_ = std::make_exception_ptr(failure(*backend_, entry_, error));
    }
    inner_.reset();
    finished_ = true;
    if (failure_) std::rethrow_exception(failure_);
  }

  bool done() override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;  // another thread is blocked in wait()
    return finished_ || inner_->done();
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Pending> inner_;
  Entry entry_;
  std::int64_t moved_;  // bytes that the backend reported as moved when it started; -1: none reported
  bool finished_ = false;
  std::exception_ptr failure_;
};

// Checks and records one call.
class Call {
 public:
  Call(const std::shared_ptr<Backend>& backend, Op op) : backend_(backend), op_(op) {
    if (!backend) {
      throw InputError(
          concat(op_name(op), " on an empty Group: this rank is not a member of it, or it was never created."));
    }
  }

  template <class... Parts>
  [[noreturn]] void reject(const Parts&... parts) const {
    throw InputError(concat(op_name(op_), " on ", rank_text(*backend_), ": ", parts...));
  }

  Call& tensor(const at::Tensor& tensor, const char* role) {
    if (!tensor.defined()) reject("the ", role, " is undefined; give a tensor.");
    if (tensor.layout() != at::kStrided) reject("the ", role, " is not a dense tensor.");
    if (!tensor.is_contiguous()) {
      reject("the ", role, " of shape ", tensor.sizes(), " with strides ", tensor.strides(),
             " is not contiguous; pass tensor.contiguous().");
    }
    if (tensor.device() != backend_->device()) {
      reject("the ", role, " is on ", tensor.device(), ", the group's device is ", backend_->device(), ".");
    }
    if (dtype_ && *dtype_ != tensor.scalar_type()) {
      reject("the ", role, " is ", dtype_name(tensor.scalar_type()), ", the other tensor is ", dtype_name(*dtype_),
             ".");
    }
    dtype_ = tensor.scalar_type();
    numel_ = std::max(numel_, tensor.numel());
    return *this;
  }

  // The larger tensor must have R times as many elements as the smaller one.
  Call& parts(const at::Tensor& whole, const char* whole_role, const at::Tensor& part, const char* part_role) {
    if (whole.numel() != part.numel() * backend_->size()) {
      reject("the ", whole_role, " has ", whole.numel(), " elements; the rule is ranks x the ", part_role,
             "'s elements = ", backend_->size(), " x ", part.numel(), " = ", backend_->size() * part.numel(), ".");
    }
    return *this;
  }

  /// For uneven parts: sets how many elements this rank sends to others.
  Call& sends(std::int64_t elements) {
    sent_ = elements;
    return *this;
  }

  Call& root(int root) {
    if (root < 0 || root >= backend_->size()) {
      reject("root ", root, " is out of range; ranks of this group are 0..", backend_->size() - 1, ".");
    }
    peer_ = root;
    return *this;
  }

  Call& peer(int peer, int tag) {
    if (peer < 0 || peer >= backend_->size()) {
      reject("peer ", peer, " is out of range; ranks of this group are 0..", backend_->size() - 1, ".");
    }
    if (peer == backend_->rank()) reject("peer ", peer, " is this rank itself; copy the tensor instead.");
    if (tag < 0) reject("tag ", tag, " is negative; tags count from 0.");
    peer_ = peer;
    return *this;
  }

  Call& reduction(Reduction op) {
    if (!backend_->can_reduce(*dtype_)) {
      reject(dtype_name(*dtype_),
             " tensors cannot be reduced; use a floating-point type, int32, int64, int8 or uint8.");
    }
    if (op == Reduction::mean && !at::isFloatingType(*dtype_)) {
      reject("the mean of ", dtype_name(*dtype_), " tensors is not an integer; use sum, or a floating-point type.");
    }
    reduction_ = reduction_name(op);
    return *this;
  }

  // An accumulator has the input's dtype, except fp32 for bf16/fp16 inputs.
  Call& accumulation(const at::Tensor& accumulator, const at::Tensor& input) {
    tensor(input, "input").reduction(Reduction::sum);
    const bool half = *dtype_ == at::kHalf || *dtype_ == at::kBFloat16;
    const at::ScalarType input_dtype = *dtype_;
    dtype_.reset();
    tensor(accumulator, "accumulator");
    if (*dtype_ != (half ? at::kFloat : input_dtype)) {
      reject("the accumulator is ", dtype_name(*dtype_), " for an input that is ", dtype_name(input_dtype),
             "; it must be ", half ? "float32: sums of halves are not rounded between calls." : "the same.");
    }
    dtype_ = input_dtype;
    reduction_ = "fold";
    return *this;
  }

  std::int64_t numel() const { return numel_; }
  const Backend& backend() const { return *backend_; }

  // Numbers and records the call, runs `begin` (skipped if there is nothing to move) and wraps its result.
  template <class Begin>
  Work start(const Begin& begin, bool nothing_to_move) {
    if (const auto reason = stop_requested()) {
      throw Error(concat(op_name(op_), " on ", rank_text(*backend_), " was not started: ", *reason));
    }
    Entry entry = make_entry();
    entry.start_ns = monotonic_ns();
    recorder().begin(entry);
    std::shared_ptr<Pending> pending;
    take_moved();  // discards the count of operations outside any Group
    try {
      // Collectives write like the raw memory writes that most transports perform: no autograd, no version bumps.
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      const Blocked here(entry.id, entry.start_ns);
      if (!nothing_to_move) {
        backend_->announce(entry);
        pending = begin();
      }
    } catch (const std::exception& error) {
      const std::int64_t waited = monotonic_ns() - entry.start_ns;
      recorder().finish(entry, Status::failed, waited, waited);
      throw failure(*backend_, entry, error);
    }
    const std::int64_t waited = monotonic_ns() - entry.start_ns;
    if (!pending) {
      recorder().finish(entry, Status::done, waited, waited);
      take_moved_bytes(entry);
      return Work();
    }
    recorder().blocked(entry, waited);
    return Work(std::make_shared<Recorded>(backend_, std::move(pending), entry, take_moved()));
  }

 private:
  Entry make_entry() const {
    Entry entry;
    const bool collective = op_ != Op::send && op_ != Op::recv;
    entry.sequence = backend_->take_sequence(collective);
    entry.op = op_;
    entry.numel = numel_;
    entry.payload_bytes = dtype_ ? numel_ * static_cast<std::int64_t>(c10::elementSize(*dtype_)) : 0;
    entry.wire_bytes = sent_ ? *sent_ * static_cast<std::int64_t>(c10::elementSize(*dtype_))
                             : wire_bytes(op_, entry.payload_bytes, backend_->size());
    entry.group_id = backend_->group_id();
    entry.group_size = backend_->size();
    entry.peer = peer_;
    launch::write_text(entry.reduction, reduction_);
    if (dtype_) launch::write_text(entry.dtype, dtype_name(*dtype_));
    launch::write_text(entry.group, backend_->name());
    launch::write_text(entry.tag, Tag::current());
    // In scatter and gather, ranks other than the root see only their own part, and all_to_all may be uneven.
    const bool same_numel = op_ != Op::scatter && op_ != Op::gather && op_ != Op::all_to_all;
    entry.fingerprint = Fingerprint()
                            .add(op_name(op_))
                            .add(entry.dtype)
                            .add(same_numel ? numel_ : 0)
                            .add(collective ? peer_ : -1)
                            .add(reduction_)
                            .add(backend_->name())
                            .add(backend_->size())
                            .add(collective ? std::string_view(Tag::current()) : "")
                            .value();
    if (collective) entry.chain = backend_->extend_chain(entry.fingerprint);
    return entry;
  }

  const std::shared_ptr<Backend>& backend_;
  Op op_;
  std::optional<at::ScalarType> dtype_;
  std::int64_t numel_ = 0;
  std::int32_t peer_ = -1;
  const char* reduction_ = "";
  std::optional<std::int64_t> sent_;
};

// Converts rows per peer to elements per peer and checks them against the tensor.
std::vector<std::int64_t> element_splits(const Call& call, const at::Tensor& tensor,
                                         const std::vector<std::int64_t>& rows, const char* role) {
  const int size = call.backend().size();
  if (rows.empty()) {
    if (tensor.numel() % size != 0) {
      call.reject("the ", role, " has ", tensor.numel(), " elements, not divisible by ", size, " ranks; give splits.");
    }
    return std::vector<std::int64_t>(static_cast<std::size_t>(size), tensor.numel() / size);
  }
  if (rows.size() != static_cast<std::size_t>(size)) {
    call.reject("there are ", rows.size(), " ", role, " splits for ", size, " ranks.");
  }
  if (tensor.dim() == 0) call.reject("the ", role, " has no dimension to split; reshape it to one.");
  for (const std::int64_t n : rows) {
    if (n < 0) call.reject("an ", role, " split is negative: ", n, ".");
  }
  const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  if (total != tensor.size(0)) {
    call.reject("the ", role, " splits add up to ", total, ", dimension 0 of the ", role, " is ", tensor.size(0), ".");
  }
  const std::int64_t row = total == 0 ? 0 : tensor.numel() / total;
  std::vector<std::int64_t> elements(rows);
  for (std::int64_t& n : elements) n *= row;
  return elements;
}

}  // namespace

void Work::wait() {
  if (!pending_) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  pending_->wait();
}
bool Work::done() const { return !pending_ || pending_->done(); }

namespace {
const Backend& member(const std::shared_ptr<Backend>& backend) {
  if (!backend) throw InputError("An empty Group was used: this rank is not a member of it, or it was never created.");
  return *backend;
}
}  // namespace

int Group::rank() const { return member(backend_).rank(); }
int Group::size() const { return member(backend_).size(); }
const std::string& Group::name() const { return member(backend_).name(); }
const std::string& Group::backend() const { return member(backend_).kind(); }
const Capabilities& Group::capabilities() const { return member(backend_).capabilities(); }
c10::Device Group::device() const { return member(backend_).device(); }

Group Group::host() const {
  if (device().is_cpu()) return *this;
  const std::shared_ptr<Backend> host = backend_->host();
  return host ? Group(host) : *this;
}

Work Group::broadcast(at::Tensor tensor, int root) const {
  Call call(backend_, Op::broadcast);
  call.tensor(tensor, "tensor").root(root);
  return call.start([&] { return backend_->broadcast(tensor, root); }, call.numel() == 0);
}

Work Group::reduce(at::Tensor tensor, int root, Reduction op) const {
  Call call(backend_, Op::reduce);
  call.tensor(tensor, "tensor").root(root).reduction(op);
  return call.start([&] { return backend_->reduce(tensor, root, op); }, call.numel() == 0);
}

Work Group::all_reduce(at::Tensor tensor, Reduction op) const {
  Call call(backend_, Op::all_reduce);
  call.tensor(tensor, "tensor").reduction(op);
  return call.start([&] { return backend_->all_reduce(tensor, op); }, call.numel() == 0);
}

Work Group::scatter(at::Tensor output, at::Tensor input, int root) const {
  Call call(backend_, Op::scatter);
  call.tensor(output, "output").root(root);
  if (root == backend_->rank()) call.tensor(input, "input").parts(input, "input", output, "output");
  return call.start([&] { return backend_->scatter(output, input, root); }, output.numel() == 0);
}

Work Group::gather(at::Tensor output, at::Tensor input, int root) const {
  Call call(backend_, Op::gather);
  call.tensor(input, "input").root(root);
  if (root == backend_->rank()) call.tensor(output, "output").parts(output, "output", input, "input");
  return call.start([&] { return backend_->gather(output, input, root); }, input.numel() == 0);
}

Work Group::all_gather(at::Tensor output, at::Tensor input) const {
  Call call(backend_, Op::all_gather);
  call.tensor(output, "output").tensor(input, "input").parts(output, "output", input, "input");
  return call.start([&] { return backend_->all_gather(output, input); }, call.numel() == 0);
}

Work Group::reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) const {
  Call call(backend_, Op::reduce_scatter);
  call.tensor(output, "output").tensor(input, "input").parts(input, "input", output, "output").reduction(op);
  return call.start([&] { return backend_->reduce_scatter(output, input, op); }, call.numel() == 0);
}

Work Group::accumulate(at::Tensor accumulator, at::Tensor input) const {
  Call call(backend_, Op::all_reduce);
  call.accumulation(accumulator, input);
  if (accumulator.numel() != input.numel())
    call.reject("the accumulator has ", accumulator.numel(), " elements, the input ", input.numel(), ".");
  return call.start([&] { return backend_->accumulate(accumulator, input); }, call.numel() == 0);
}

Work Group::accumulate_scatter(at::Tensor accumulator, at::Tensor input) const {
  Call call(backend_, Op::reduce_scatter);
  call.accumulation(accumulator, input).parts(input, "input", accumulator, "accumulator");
  return call.start([&] { return backend_->accumulate_scatter(accumulator, input); }, call.numel() == 0);
}

Work Group::all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_splits,
                       std::vector<std::int64_t> input_splits) const {
  Call call(backend_, Op::all_to_all);
  call.tensor(output, "output").tensor(input, "input");
  auto to = element_splits(call, output, output_splits, "output");
  auto from = element_splits(call, input, input_splits, "input");
  const auto self = static_cast<std::size_t>(backend_->rank());
  if (to[self] != from[self]) {
    call.reject("this rank sends itself ", from[self], " elements but expects ", to[self], "; the splits disagree.");
  }
  call.sends(input.numel() - from[self]);
  // With splits, a rank that moves nothing must still take part: its peers cannot know that it moves nothing.
  const bool nothing = call.numel() == 0 && output_splits.empty() && input_splits.empty();
  return call.start([&] { return backend_->all_to_all(output, input, std::move(to), std::move(from)); }, nothing);
}

Work Group::send(at::Tensor tensor, int destination, int tag) const {
  Call call(backend_, Op::send);
  call.tensor(tensor, "tensor").peer(destination, tag);
  return call.start([&] { return backend_->send(tensor, destination, tag); }, call.numel() == 0);
}

Work Group::recv(at::Tensor tensor, int source, int tag) const {
  Call call(backend_, Op::recv);
  call.tensor(tensor, "tensor").peer(source, tag);
  return call.start([&] { return backend_->recv(tensor, source, tag); }, call.numel() == 0);
}

Work Group::barrier() const {
  Call call(backend_, Op::barrier);
  return call.start([&] { return backend_->barrier(); }, false);
}

}  // namespace tessera::comm
