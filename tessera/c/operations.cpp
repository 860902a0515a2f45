#include <tessera/c/handles.h>

#include <map>
#include <utility>

namespace tessera::c {

using wire::Code;
using wire::Failure;

namespace {

// This thread's open batches, by group.
thread_local std::map<tessera_group, std::vector<wire::Request>> batches;

void apply(const tessera_call* call, wire::Request& request) {
  if (call == nullptr) return;
  if (call->size != sizeof(tessera_call)) {
    throw Failure(Code::invalid, concat("call.size is ", call->size, " instead of ", sizeof(tessera_call), "."));
  }
  request.timeout = std::chrono::milliseconds(call->timeout_ms);
  if (call->prescale != 0) request.prescale = call->prescale;
  if (call->postscale != 0) request.postscale = call->postscale;
  if (!wire::is_reduction(request.op) && (request.prescale != 1 || request.postscale != 1)) {
    throw Failure(Code::invalid, concat(launch::op_name(request.op), ": only reductions have scales."));
  }
  request.label = text_or(call->label);
}

}  // namespace

void deliver(std::shared_ptr<wire::Work> started, tessera_work* work, std::int32_t* from) {
  if (work != nullptr) {
    *work = handles().works.add(std::make_shared<WorkHandle>(WorkHandle{std::move(started)}));
    return;
  }
  started->wait_until(wire::Clock::time_point::max());
  if (started->code() != Code::ok) throw Failure(started->code(), started->error());
  if (from != nullptr) *from = started->source();
}

void run(tessera_group group, wire::Request request, const tessera_call* call, tessera_work* work, std::int32_t* from) {
  const auto found = handles().groups.find(group);
  apply(call, request);
  const auto batch = batches.find(group);
  if (batch == batches.end()) return deliver(found->group->start(std::move(request)), work, from);
  if (work != nullptr) throw Failure(Code::invalid, "an operation in a batch has no work handle; pass NULL.");
  if (from != nullptr) throw Failure(Code::invalid, "a recv in a batch cannot report its source; pass NULL.");
  wire::check(request, found->group->rank(), found->group->size());
  batch->second.push_back(std::move(request));
}

namespace {

wire::Request make(launch::Op op, const void* input, void* output, int64_t count, tessera_dtype dtype, int peer = -1) {
  wire::Request request;
  request.op = op;
  request.input = input;
  request.output = output;
  request.count = count;
  request.dtype = static_cast<wire::Dtype>(dtype);
  request.peer = peer;
  return request;
}

wire::Request make(launch::Op op, const void* input, void* output, int64_t count, tessera_dtype dtype, tessera_op fold,
                   int peer) {
  wire::Request request = make(op, input, output, count, dtype, peer);
  request.reduction = static_cast<wire::Reduction>(fold);
  return request;
}

// Reads the caller's array of one count per rank.
std::vector<std::int64_t> counts_of(tessera_group group, const int64_t* counts, const char* name) {
  const auto size = handles().groups.find(group)->group->size();
  given(counts, name);
  return {counts, counts + size};
}

}  // namespace
}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;
using launch::Op;

extern "C" {

tessera_status tessera_all_reduce(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, tessera_op op, const tessera_call* call, tessera_work* work) {
  return guarded([&] { run(group, make(Op::all_reduce, input, output, count, dtype, op, -1), call, work); });
}

tessera_status tessera_reduce(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                              tessera_op op, int32_t root, const tessera_call* call, tessera_work* work) {
  return guarded([&] { run(group, make(Op::reduce, input, output, count, dtype, op, root), call, work); });
}

tessera_status tessera_broadcast(tessera_group group, void* data, int64_t count, tessera_dtype dtype, int32_t root,
                                 const tessera_call* call, tessera_work* work) {
  return guarded([&] { run(group, make(Op::broadcast, nullptr, data, count, dtype, root), call, work); });
}

tessera_status tessera_all_gather(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, const tessera_call* call, tessera_work* work) {
  return guarded([&] { run(group, make(Op::all_gather, input, output, count, dtype), call, work); });
}

tessera_status tessera_all_gather_v(tessera_group group, const void* input, void* output, const int64_t* counts,
                                    tessera_dtype dtype, const tessera_call* call, tessera_work* work) {
  return guarded([&] {
    wire::Request request = make(Op::all_gather, input, output, 0, dtype);
    request.uneven = true;
    request.output_counts = counts_of(group, counts, "counts");
    run(group, std::move(request), call, work);
  });
}

tessera_status tessera_gather(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                              int32_t root, const tessera_call* call, tessera_work* work) {
  return guarded([&] { run(group, make(Op::gather, input, output, count, dtype, root), call, work); });
}

tessera_status tessera_scatter(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                               int32_t root, const tessera_call* call, tessera_work* work) {
  return guarded([&] { run(group, make(Op::scatter, input, output, count, dtype, root), call, work); });
}

tessera_status tessera_reduce_scatter(tessera_group group, const void* input, void* output, int64_t count,
                                      tessera_dtype dtype, tessera_op op, const tessera_call* call,
                                      tessera_work* work) {
  return guarded([&] { run(group, make(Op::reduce_scatter, input, output, count, dtype, op, -1), call, work); });
}

tessera_status tessera_reduce_scatter_v(tessera_group group, const void* input, void* output, const int64_t* counts,
                                        tessera_dtype dtype, tessera_op op, const tessera_call* call,
                                        tessera_work* work) {
  return guarded([&] {
    wire::Request request = make(Op::reduce_scatter, input, output, 0, dtype, op, -1);
    request.uneven = true;
    request.output_counts = counts_of(group, counts, "counts");
    run(group, std::move(request), call, work);
  });
}

tessera_status tessera_all_to_all(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, const tessera_call* call, tessera_work* work) {
  return guarded([&] { run(group, make(Op::all_to_all, input, output, count, dtype), call, work); });
}

tessera_status tessera_all_to_all_v(tessera_group group, const void* input, const int64_t* input_counts, void* output,
                                    const int64_t* output_counts, tessera_dtype dtype, const tessera_call* call,
                                    tessera_work* work) {
  return guarded([&] {
    wire::Request request = make(Op::all_to_all, input, output, 0, dtype);
    request.uneven = true;
    request.input_counts = counts_of(group, input_counts, "input_counts");
    request.output_counts = counts_of(group, output_counts, "output_counts");
    run(group, std::move(request), call, work);
  });
}

tessera_status tessera_barrier(tessera_group group, const tessera_call* call, tessera_work* work) {
  return guarded([&] { run(group, wire::Request{}, call, work); });
}

tessera_status tessera_send(tessera_group group, const void* data, int64_t count, tessera_dtype dtype,
                            int32_t destination, int32_t tag, const tessera_call* call, tessera_work* work) {
  return guarded([&] {
    wire::Request request = make(Op::send, data, nullptr, count, dtype, destination);
    request.tag = tag;
    run(group, std::move(request), call, work);
  });
}

tessera_status tessera_recv(tessera_group group, void* data, int64_t count, tessera_dtype dtype, int32_t source,
                            int32_t tag, int32_t* from, const tessera_call* call, tessera_work* work) {
  return guarded([&] {
    wire::Request request = make(Op::recv, nullptr, data, count, dtype, source);
    request.tag = tag;
    run(group, std::move(request), call, work, from);
  });
}

tessera_status tessera_batch_begin(tessera_group group) {
  return guarded([&] {
    handles().groups.find(group);
    if (!batches.try_emplace(group).second) {
      throw wire::Failure(wire::Code::invalid, "this thread has already begun a batch in this group.");
    }
  });
}

tessera_status tessera_batch_end(tessera_group group, tessera_work* work) {
  return guarded([&] {
    const auto batch = batches.find(group);
    if (batch == batches.end()) {
      handles().groups.find(group);
      throw wire::Failure(wire::Code::invalid, "this thread has not begun a batch in this group.");
    }
    std::vector<wire::Request> requests = std::move(batch->second);
    batches.erase(batch);
    deliver(handles().groups.find(group)->group->start(std::move(requests)), work, nullptr);
  });
}

}  // extern "C"
