#include <tessera/wire/group.h>

#include <tessera/base/clock.h>
#include <tessera/wire/shm/arena.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::wire {

using launch::Op;

namespace {

// Size limit when all_reduces of a batch are fused: enough to amortize the latency without doubling the memory.
constexpr std::int64_t most_fused_bytes = std::int64_t{16} << 20;

std::byte* bytes_at(void* data) { return static_cast<std::byte*>(data); }
const std::byte* bytes_at(const void* data) { return static_cast<const std::byte*>(data); }

void copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

// A temporary buffer.
std::shared_ptr<void> buffer_of(std::int64_t bytes) {
  return std::shared_ptr<void>(new std::byte[static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))],
                               [](void* data) { delete[] static_cast<std::byte*>(data); });
}

std::int64_t bytes_of(const Request& request, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(width_of(request.dtype));
}

// Makes the finish function call `last` at its end.
void then(Work::Parts& parts, std::function<void()> last) {
  parts.finish = [first = std::move(parts.finish), last = std::move(last)] {
    if (first) first();
    last();
  };
}

bool can_fuse(const Request& a, const Request& b) {
  return a.op == Op::all_reduce && b.op == Op::all_reduce && a.dtype == b.dtype && a.reduction == b.reduction &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.label == b.label;
}

}  // namespace

Group::Group(Place place, std::shared_ptr<Transport> transport, std::shared_ptr<Journal> journal)
    : place_(std::move(place)),
      transport_(std::move(transport)),
      journal_(std::move(journal)),
      timeout_ms_(place_.timeout.count()) {}

Group::~Group() { close(); }

void Group::close() { transport_->close(); }
void Group::abort(const std::string& reason) { transport_->fail(concat("aborted: ", reason), Code::aborted); }

void Group::begin(Operation operation, Work::Parts& parts) {
  operation.entry.sequence = is_message(operation.entry.op) ? messages_++ : collectives_++;
  journal_->recorder.begin(operation.entry);
  parts.entries.push_back(operation.entry);
  parts.pendings.push_back(transport_->start(std::move(operation)));
}

// `input`, `output`: the operation's buffers, which may differ from the caller's.
void Group::add_operation(const Request& request, const void* input, void* output, std::shared_ptr<void> keep,
                          Work::Parts& parts) {
  Operation operation;
  operation.entry = entry_of(request, place_.name, place_.size);
  operation.input = bytes_at(input);
  operation.output = bytes_at(output);
  operation.part_bytes = static_cast<std::size_t>(bytes_of(request, request.count));
  operation.root = request.peer;
  operation.tag = request.tag;
  operation.timeout = request.timeout.count() > 0 ? request.timeout : std::chrono::milliseconds(timeout_ms_.load());
  operation.keep = std::move(keep);
  if (is_reduction(request.op)) {
    const Arithmetic how = arithmetic_of(request.dtype, request.reduction);
    operation.number = how.number;
    operation.fold = how.fold;
    operation.loop = how.loop;
  }
  if (request.op == Op::all_to_all) {
    for (int r = 0; r < place_.size; ++r) {
      const auto at = static_cast<std::size_t>(r);
      const auto bytes = [&](const std::vector<std::int64_t>& counts) {
        return static_cast<std::size_t>(bytes_of(request, request.uneven ? counts[at] : request.count));
      };
      operation.input_splits.push_back(bytes(request.input_counts));
      operation.output_splits.push_back(bytes(request.output_counts));
    }
    operation.part_bytes = operation.output_splits[static_cast<std::size_t>(place_.rank)];
  }
  begin(std::move(operation), parts);
}

void Group::add(const Request& request, Work::Parts& parts) {
  const void* input = request.input;
  void* output = request.output;
  std::shared_ptr<void> keep;
  const bool root = request.peer == place_.rank;
  const std::int64_t bytes = bytes_of(request, payload_elements(request, place_.size));
  const auto own_copy = [&] {  // the caller's input must not change
    keep = buffer_of(bytes);
    copy(keep.get(), input, bytes);
    input = keep.get();
  };
  switch (request.op) {
    case Op::send:
      output = const_cast<void*>(input);  // a message's data is in the operation's output
      input = nullptr;
      break;
    case Op::all_reduce:
      if (input == output || request.prescale != 1 || transport_->is_shared(input)) {
        copy(output, input, bytes);
        if (request.prescale != 1) scale(request.dtype, output, request.count, request.prescale);
        input = nullptr;
      }
      break;
    case Op::reduce:
      if (root) copy(output, input, bytes);
      if (request.prescale != 1 && !root) own_copy();
      if (request.prescale != 1) scale(request.dtype, root ? output : keep.get(), request.count, request.prescale);
      if (root) input = nullptr;
      if (!root) output = const_cast<void*>(input);  // other ranks send their input and receive nothing
      break;
    case Op::reduce_scatter:
      if (request.prescale != 1 || (output >= input && output < bytes_at(input) + bytes)) own_copy();
      if (request.prescale != 1)
        scale(request.dtype, keep.get(), payload_elements(request, place_.size), request.prescale);
      break;
    case Op::all_to_all:
      if (input == output) own_copy();
      break;
    default:
      break;
  }
  const auto mine = static_cast<std::size_t>(place_.rank);
  const bool parts_apart = request.uneven && request.op != Op::all_to_all;
  if (parts_apart) {
    // One broadcast or reduction per rank's part.
    Request part = request;
    part.op = request.op == Op::all_gather ? Op::broadcast : Op::reduce;
    part.uneven = false;
    std::int64_t at = 0;
    for (int r = 0; r < place_.size; ++r) {
      part.count = request.output_counts[static_cast<std::size_t>(r)];
      part.peer = r;
      const std::int64_t part_bytes = bytes_of(part, part.count);
      if (request.op == Op::all_gather) {
        if (r == place_.rank) copy(bytes_at(output) + at, input, part_bytes);
        add_operation(part, nullptr, bytes_at(output) + at, keep, parts);
      } else if (r == place_.rank) {
        copy(output, bytes_at(input) + at, part_bytes);
        add_operation(part, nullptr, output, keep, parts);
      } else {
        add_operation(part, bytes_at(input) + at, const_cast<std::byte*>(bytes_at(input) + at), keep, parts);
      }
      at += part_bytes;
    }
  } else {
    add_operation(request, input, output, keep, parts);
  }
  if (request.postscale != 1 && is_reduction(request.op) && (request.op != Op::reduce || root)) {
    const std::int64_t count = parts_apart ? request.output_counts[mine] : request.count;
    then(parts, [=, dtype = request.dtype, factor = request.postscale] { scale(dtype, output, count, factor); });
  }
}

void Group::add_fused(const std::vector<Request>& requests, Work::Parts& parts) {
  if (requests.size() == 1) return add(requests.front(), parts);
  Request whole = requests.front();
  whole.count = 0;
  for (const Request& request : requests) whole.count += request.count;
  std::shared_ptr<void> packed;
  const std::int64_t bytes = bytes_of(whole, whole.count);
  if (bytes > 0 && std::strcmp(transport_->name(), "shm") == 0) {  // avoids a copy by the other ranks
    packed = std::shared_ptr<void>(shm::process_arena()->allocate(static_cast<std::size_t>(bytes)),
                                   [arena = shm::process_arena()](void* data) { arena->free(data); });
  } else {
    packed = buffer_of(bytes);
  }
  std::int64_t at = 0;
  for (const Request& request : requests) {
    copy(bytes_at(packed.get()) + at, request.input, bytes_of(request, request.count));
    at += bytes_of(request, request.count);
  }
  whole.input = whole.output = packed.get();
  add(whole, parts);
  then(parts, [requests, packed] {
    std::int64_t begin = 0;
    for (const Request& request : requests) {
      copy(request.output, bytes_at(packed.get()) + begin, bytes_of(request, request.count));
      begin += bytes_of(request, request.count);
    }
  });
}

std::shared_ptr<Work> Group::finish(Work::Parts parts) {
  auto work = std::make_shared<Work>(std::move(parts), [journal = journal_, name = place_.name](const Work& ended) {
    const std::int64_t now = monotonic_ns();
    for (const launch::Entry& entry : ended.entries()) {
      const auto status = ended.code() == Code::ok ? launch::Status::done : launch::Status::failed;
      journal->recorder.finish(entry, status, 0, now - entry.start_ns);
    }
    const std::lock_guard lock(journal->mutex);
    if (journal->on_end) journal->on_end(ended, name);
  });
  const std::lock_guard lock(works_mutex_);
  if (works_.size() >= 64) {
    std::erase_if(works_, [](const auto& weak) {
      const auto other = weak.lock();
      return !other || other->ended();
    });
  }
  works_.push_back(work);
  return work;
}

std::shared_ptr<Work> Group::start(Request request) {
  wire::check(request, place_.rank, place_.size);
  const std::lock_guard lock(start_mutex_);
  Work::Parts parts;
  add(request, parts);
  return finish(std::move(parts));
}

std::shared_ptr<Work> Group::start(std::vector<Request> requests) {
  for (const Request& request : requests) wire::check(request, place_.rank, place_.size);
  const std::lock_guard lock(start_mutex_);
  Work::Parts parts;
  for (std::size_t i = 0; i < requests.size();) {
    std::vector<Request> fused{requests[i]};
    std::int64_t bytes = bytes_of(requests[i], requests[i].count);
    for (++i; i < requests.size() && can_fuse(fused.front(), requests[i]); ++i) {
      bytes += bytes_of(requests[i], requests[i].count);
      if (bytes > most_fused_bytes) break;
      fused.push_back(requests[i]);
    }
    add_fused(fused, parts);
  }
  return finish(std::move(parts));
}

std::vector<std::shared_ptr<Work>> Group::open_works() {
  const std::lock_guard lock(works_mutex_);
  std::vector<std::shared_ptr<Work>> open;
  for (const auto& weak : works_) {
    if (auto work = weak.lock(); work && !work->ended()) open.push_back(std::move(work));
  }
  return open;
}

}  // namespace tessera::wire
