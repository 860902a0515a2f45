#include <tessera/base/error.h>
#include <tessera/wire/shm/collective.h>
#include <tessera/wire/shm/pipeline.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera::wire::shm {

using launch::Op;

namespace {

// gives(): whether a rank contributes; gives_parts(): whether it gives each rank a different part.
bool gives(Op op, int rank, int root) {
  switch (op) {
    case Op::broadcast:
    case Op::scatter:
      return rank == root;
    case Op::reduce:
    case Op::gather:
      return rank != root;
    case Op::barrier:
      return false;
    default:
      return true;
  }
}
bool takes(Op op, int rank, int root) {
  switch (op) {
    case Op::broadcast:
    case Op::scatter:
      return rank != root;
    case Op::reduce:
    case Op::gather:
      return rank == root;
    case Op::barrier:
      return false;
    default:
      return true;
  }
}
bool gives_parts(Op op) { return op == Op::scatter || op == Op::reduce_scatter || op == Op::all_to_all; }

const std::byte* given(const Operation& operation) {
  return operation.input != nullptr ? operation.input : operation.output;
}

std::size_t given_bytes(const Operation& operation, int ranks) {
  if (operation.entry.op == Op::all_to_all) {
    return std::accumulate(operation.input_splits.begin(), operation.input_splits.end(), std::size_t{0});
  }
  return operation.part_bytes * (gives_parts(operation.entry.op) ? static_cast<std::size_t>(ranks) : 1);
}

// A large all_reduce writes its results over the staged input, unless the input must keep its values.
bool results_are_staged(const Operation& operation) {
  return operation.accumulates && operation.entry.op == Op::all_reduce;
}

// Output bytes per input byte.
std::size_t widening(const Operation& operation) {
  const bool half = operation.number == kernels::Number::bf16 || operation.number == kernels::Number::fp16;
  return operation.accumulates && half ? 2 : 1;
}

// If every rank folds everything, R times as many bytes are read, which pays off only while waiting costs more.
constexpr std::size_t one_shot_work = 256 << 10;

std::size_t inline_limit(Op op, int ranks) {
  if (op != Op::all_reduce) return inline_bytes;
  return std::min(inline_bytes, one_shot_work / static_cast<std::size_t>(ranks));
}

std::size_t round_up_to(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

void copy(void* to, const void* from, std::size_t bytes, bool stream) {
  if (to == from || bytes == 0) return;
  if (stream) {
    kernels::stream_copy(to, from, static_cast<std::int64_t>(bytes));
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

bool is_one_shot(const Operation& operation, int ranks) {
  // all_to_all: other ranks may give more, which is known only after they have published.
  return given_bytes(operation, ranks) <= inline_limit(operation.entry.op, ranks);
}

bool Collectives::can_publish(std::uint64_t number) const {
  for (int r = 0; r < communicator_.size(); ++r) {
    if (communicator_.control(r).finished.load() + slot_count <= number) return false;
  }
  return true;
}

void Collectives::wait_to_publish(const Operation& operation, std::uint64_t number) const {
  for (int r = 0; r < communicator_.size(); ++r) {
    if (r == communicator_.rank()) continue;
    communicator_.await_pulse(r, {operation.entry, "to finish earlier collectives", operation.timeout},
                              [&] { return communicator_.control(r).finished.load() + slot_count > number; });
  }
}

void Collectives::publish(const Operation& operation, std::uint64_t number) {
  const Op op = operation.entry.op;
  Control& control = communicator_.control();
  Slot& slot = control.slots[number % slot_count];
  slot.fingerprint = operation.entry.fingerprint;
  slot.sequence = operation.entry.sequence;
  slot.part_bytes = op == Op::all_to_all ? 0 : operation.part_bytes;
  slot.produced.store(0, std::memory_order_relaxed);
  slot.reduced.store(0, std::memory_order_relaxed);
  slot.consumed.store(0, std::memory_order_relaxed);
  slot.entry = operation.entry;
  slot.source = Source::none;
  std::copy(operation.input_splits.begin(), operation.input_splits.end(), slot.splits);
  if (gives(op, communicator_.rank(), operation.root)) {
    const std::byte* data = given(operation);
    slot.bytes = given_bytes(operation, communicator_.size());
    if (slot.bytes <= inline_limit(op, communicator_.size())) {
      std::byte* copied = inline_data(control, number);
      copy(copied, data, slot.bytes, slot.bytes >= 1024);
      slot.source = Source::whole;
      slot.offset = communicator_.segment().offset(copied);
    } else {
      const auto offset = communicator_.segment().offset_in_arena(data, slot.bytes);
      slot.source = offset && !results_are_staged(operation) ? Source::whole : Source::staged;
      slot.offset = offset.value_or(0);
    }
  }
  publish_stores();  // also orders the caller's stores into the arena
  slot.posted.store(number + 1, std::memory_order_release);
  control.pulse.ring();
}

bool Collectives::ready(const Operation& operation, std::uint64_t number) const {
  for (int r = 0; r < communicator_.size(); ++r) {
    const Slot& slot = communicator_.control(r).slots[number % slot_count];
    if (slot.posted.load(std::memory_order_acquire) <= number) return false;
    if (slot.source == Source::staged) return false;
  }
  return is_one_shot(operation, communicator_.size());
}

// One collective in progress: every rank's contribution, and the geometry of the steps.
struct Collectives::Run {
  Communicator& communicator;
  const Operation& operation;
  const std::uint64_t number;
  const Op op = operation.entry.op;
  const int me = communicator.rank(), ranks = communicator.size();
  const std::size_t n = operation.part_bytes, wider = widening(operation);
  std::vector<Slot*> slots{};
  std::vector<std::byte*> bases{};  // address of each rank's input; null: none
  bool any_staged = false;
  std::size_t step_bytes = 0;  // bytes per step, of the whole tensor or of each part
  std::uint32_t steps = 0;

  Slot& slot(int r) const { return *slots[static_cast<std::size_t>(r)]; }

  void wait_for_all(const std::atomic<bool>& starter_blocked) {
    const Communicator::Wait wait{operation.entry, "to start it", operation.timeout, &starter_blocked};
    for (int r = 0; r < ranks; ++r) {
      Slot& theirs = communicator.control(r).slots[number % slot_count];
      slots.push_back(&theirs);
      if (r == me) continue;
      communicator.await_pulse(r, wait, [&] { return theirs.posted.load(std::memory_order_acquire) > number; });
      compare(r, theirs);
    }
  }

  [[noreturn]] void differ(int r, const Slot& theirs, const std::string& how) const {
    throw Failure(Code::mismatch, concat("the ranks started different operations: ", communicator.member_text(me), " ",
                                         launch::describe(operation.entry), ", ", communicator.member_text(r), " ",
                                         launch::describe(launch::Entry(theirs.entry)), how));
  }

  void compare(int r, const Slot& theirs) const {
    const bool size_counts = op != Op::all_to_all;
    if (theirs.fingerprint != operation.entry.fingerprint || (size_counts && theirs.part_bytes != n)) {
      differ(r, theirs, "");
    }
    if (theirs.sequence != operation.entry.sequence) {
      differ(r, theirs, ": one of them started an operation of no elements that the other did not");
    }
    if (op == Op::all_to_all) {
      const std::uint64_t expected = operation.output_splits[static_cast<std::size_t>(r)], given = theirs.splits[me];
      if (expected != given) {
        differ(r, theirs, concat(": it sends this rank ", given, " bytes, this rank expects ", expected));
      }
    }
  }

  void look_at_sources() {
    std::size_t longest = op == Op::all_to_all ? 0 : n;
    for (int r = 0; r < ranks; ++r) {
      const Slot& theirs = slot(r);
      std::byte* base = nullptr;
      if (theirs.source == Source::whole) base = communicator.at(r, theirs.offset, theirs.bytes);
      if (theirs.source == Source::staged) base = staging(communicator.control(r));
      any_staged = any_staged || theirs.source == Source::staged;
      bases.push_back(base);
      if (op != Op::all_to_all) continue;
      std::size_t sum = 0;
      for (int q = 0; q < ranks; ++q) {
        longest = std::max<std::size_t>(longest, theirs.splits[q]);
        sum += theirs.splits[q];
      }
      TESSERA_CHECK(sum == theirs.bytes, communicator.member_text(r), ": splits of ", sum, " bytes for ", theirs.bytes);
    }
    // Wider results are stored after their chunk's inputs and need at most as many bytes, because there are at least
    // two ranks.
    const std::size_t whole_chunk = results_are_staged(operation) ? chunk_bytes / wider : chunk_bytes;
    step_bytes = !any_staged ? longest : gives_parts(op) ? part_chunk() : whole_chunk;
    steps = longest == 0 ? 0 : static_cast<std::uint32_t>((longest + step_bytes - 1) / step_bytes);
  }

  std::size_t part_chunk() const { return chunk_bytes / static_cast<std::size_t>(ranks) / 4096 * 4096; }

  std::size_t part_size(int from, int to) const { return op == Op::all_to_all ? slot(from).splits[to] : n; }
  std::size_t part_begin(int from, int to) const {
    if (op != Op::all_to_all) return n * static_cast<std::size_t>(to);
    return std::accumulate(slot(from).splits, slot(from).splits + to, std::size_t{0});
  }

  // Rank r's bytes of step k (parts: the part for this rank).
  std::byte* at(int r, std::uint32_t k) const {
    const std::size_t begin = gives_parts(op) ? part_begin(r, me) : 0;
    if (r == me) return const_cast<std::byte*>(given(operation)) + begin + k * step_bytes;
    std::byte* base = bases[static_cast<std::size_t>(r)];
    if (slot(r).source == Source::whole) return base + begin + k * step_bytes;
    return base + k % staging_depth * chunk_bytes + (gives_parts(op) ? static_cast<std::size_t>(me) * step_bytes : 0);
  }
  std::size_t length(std::size_t whole, std::uint32_t k) const {
    return std::min(whole, (k + 1) * step_bytes) - std::min(whole, k * step_bytes);
  }

  // all_reduce: rank q's slice of a chunk.
  struct Slice {
    std::size_t begin, bytes;
  };
  Slice slice(int q, std::size_t chunk) const {
    const std::size_t width =
        round_up_to((chunk + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks), 64);
    const std::size_t begin = std::min(chunk, static_cast<std::size_t>(q) * width);
    return {begin, std::min(chunk, begin + width) - begin};
  }

  void fold(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, std::size_t bytes,
            bool stream) const {
    if (operation.loop != nullptr) {
      operation.loop(inputs.data(), static_cast<int>(inputs.size()), outputs.data(), static_cast<int>(outputs.size()),
                     bytes);
      return;
    }
    kernels::Reduce what;
    what.number = operation.number;
    what.fold = operation.fold;
    what.inputs = inputs.data();
    what.input_count = static_cast<int>(inputs.size());
    what.outputs = outputs.data();
    what.output_count = static_cast<int>(outputs.size());
    what.stream = stream;
    if (operation.accumulates) what.start = outputs.front();
    what.fp32_output = wider != 1;
    kernels::reduce(what, static_cast<std::int64_t>(bytes) / kernels::size_of(operation.number));
  }

  bool is_large(std::size_t bytes) const { return bytes >= static_cast<std::size_t>(kernels::stream_bytes); }

  void fold_step(std::uint32_t k) const {
    std::vector<const void*> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(at(r, k));
    const bool stream = op != Op::reduce && !operation.accumulates && is_large(n);  // the input is still in the cache
    fold(inputs, {operation.output + wider * k * step_bytes}, length(n, k), stream);
  }

  void copy_step(std::uint32_t k) const {
    const bool to_parts = op == Op::gather || op == Op::all_gather || op == Op::all_to_all;
    const bool stream = is_large(to_parts ? n * static_cast<std::size_t>(ranks) : n);
    std::size_t begin = 0;
    for (int r = 0; r < ranks; ++r) {
      const std::size_t bytes = op == Op::all_to_all ? part_size(r, me) : n;
      if (gives(op, r, operation.root) || (to_parts && r == me)) {
        copy(operation.output + begin + k * step_bytes, at(r, k), length(bytes, k), stream);
      }
      if (to_parts) begin += bytes;
    }
  }

  void stage_step(std::uint32_t k) const {
    std::byte* to = staging(communicator.control()) + k % staging_depth * chunk_bytes;
    const std::byte* from = given(operation);
    if (!gives_parts(op)) {
      const std::size_t bytes = length(n, k);
      const Slice own = op == Op::all_reduce ? slice(me, bytes) : Slice{bytes, 0};  // no rank reads this rank's own
                                                                                    // slice here
      copy(to, from + k * step_bytes, own.begin, true);
      const std::size_t after = own.begin + own.bytes;
      copy(to + after, from + k * step_bytes + after, bytes - after, true);
      return;
    }
    for (int q = 0; q < ranks; ++q) {
      if (q == me) continue;
      copy(to + static_cast<std::size_t>(q) * step_bytes, from + part_begin(me, q) + k * step_bytes,
           length(part_size(me, q), k), true);
    }
  }

  // Address of rank r's result for its slice of chunk k.
  std::byte* result(int r, std::uint32_t k, const Slice& slice) const {
    if (slot(r).source != Source::staged) return at(r, k) + slice.begin;  // in its input
    return staging(communicator.control(r)) + k % staging_depth * chunk_bytes + (wider == 1 ? slice.begin : step_bytes);
  }

  // The two phases of a chunked all_reduce.
  void reduce_slice(std::uint32_t k) const {
    const Slice own = slice(me, length(n, k));
    if (own.bytes == 0) return;
    std::vector<const void*> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(at(r, k) + own.begin);
    std::vector<void*> outputs{operation.output + wider * (k * step_bytes + own.begin)};
    if (slot(me).source == Source::staged) outputs.push_back(result(me, k, own));
    fold(inputs, outputs, own.bytes, true);
  }
  void take_slices(std::uint32_t k) const {
    for (int r = 0; r < ranks; ++r) {
      const Slice theirs = slice(r, length(n, k));
      if (r == me) continue;
      copy(operation.output + wider * (k * step_bytes + theirs.begin), result(r, k, theirs), wider * theirs.bytes,
           false);
    }
  }

  // All tensors are in the arena: no staging, and each result is written once, to its destination.
  void all_reduce_in_place() const {
    const Slice own = slice(me, n);
    if (own.bytes == 0) return;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (int r = 0; r < ranks; ++r) {
      inputs.push_back(at(r, 0) + own.begin);
      outputs.push_back(at(r, 0) + own.begin);
    }
    fold(inputs, outputs, own.bytes, is_large(n));
  }
};

void Collectives::run(const Operation& operation, std::uint64_t number, const std::atomic<bool>& starter_blocked) {
  Run run{communicator_, operation, number};
  run.wait_for_all(starter_blocked);
  run.look_at_sources();
  const Op op = operation.entry.op;
  const int me = communicator_.rank(), ranks = communicator_.size();
  const bool reduces = op == Op::reduce || op == Op::all_reduce || op == Op::reduce_scatter;
  const bool small = is_one_shot(operation, ranks) && !run.any_staged;
  const bool others_use_my_memory = run.slot(me).source == Source::whole && !small;

  if (op == Op::scatter && me == operation.root) {
    copy(operation.output, operation.input + run.part_begin(me, me), run.n, run.is_large(run.n));
  }
  if (!run.any_staged) {
    if (op == Op::all_reduce && !small) {
      run.all_reduce_in_place();
    } else if (run.steps > 0 && takes(op, me, operation.root)) {
      reduces ? run.fold_step(0) : run.copy_step(0);
    }
  } else {
    const bool staged = run.slot(me).source == Source::staged;
    if (staged) {
      for (int r = 0; r < ranks; ++r) {
        if (r == me) continue;
        communicator_.await_pulse(r, {operation.entry, "to finish the collective before it", operation.timeout},
                                  [&] { return communicator_.control(r).finished.load() >= staging_free_after_; });
      }
      staging_free_after_ = number + 1;
    }
    Pipeline pipeline(communicator_, operation, number, run.steps);
    if (staged) pipeline.produce = [&](std::uint32_t k) { run.stage_step(k); };
    if (op == Op::all_reduce) {
      pipeline.reduce = [&](std::uint32_t k) { run.reduce_slice(k); };
      pipeline.take = [&](std::uint32_t k) { run.take_slices(k); };
    } else if (takes(op, me, operation.root)) {
      pipeline.take = [&](std::uint32_t k) { reduces ? run.fold_step(k) : run.copy_step(k); };
    }
    for (int r = 0; r < ranks; ++r) {
      if (r == me) continue;
      if (run.slot(r).source == Source::staged) pipeline.producers.push_back(r);
      if (takes(op, r, operation.root)) pipeline.takers.push_back(r);
    }
    pipeline.run();
  }
  // A rank whose memory was read waits for this one, unless it has failed: its caller may then have overwritten it.
  for (int r = 0; r < run.ranks && !small; ++r) {
    if (r != me && run.slot(r).source == Source::whole) communicator_.throw_if_failed(r);
  }
  publish_stores();
  Control& control = communicator_.control();
  control.finished.store(number + 1);
  control.pulse.ring();
  if (!others_use_my_memory) return;
  for (int r = 0; r < ranks; ++r) {
    if (r == me) continue;
    communicator_.await_pulse(r, {operation.entry, "to finish it", operation.timeout},
                              [&] { return communicator_.control(r).finished.load() > number; });
  }
}

}  // namespace tessera::wire::shm
