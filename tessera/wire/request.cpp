#include <tessera/launch/agent/board.h>
#include <tessera/wire/failure.h>
#include <tessera/wire/request.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>

namespace tessera::wire {

using launch::Op;

namespace {

constexpr std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max() / 4;

template <class... Parts>
[[noreturn]] void refuse(const Request& request, const Parts&... why) {
  throw Failure(Code::invalid, concat(launch::op_name(request.op), ": ", why..., "."));
}

void check_counts(const Request& request, const std::vector<std::int64_t>& counts, int size, std::int64_t width) {
  if (counts.size() != static_cast<std::size_t>(size)) refuse(request, counts.size(), " counts for ", size, " ranks");
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] < 0) refuse(request, "the count of rank ", r, " is ", counts[r]);
    if (counts[r] > (most_bytes - sum) / width) refuse(request, "the counts are more than memory can hold");
    sum += counts[r];
  }
}

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

struct Need {
  std::int64_t input = 0, output = 0;  // elements
};

Need need_of(const Request& request, int rank, int size) {
  const std::int64_t n = request.count, all = n * size;
  const bool root = request.peer == rank;
  const auto mine = static_cast<std::size_t>(rank);
  switch (request.op) {
    case Op::broadcast:
    case Op::recv:
      return {0, n};
    case Op::send:
      return {n, 0};
    case Op::reduce:
      return {n, root ? n : 0};
    case Op::all_reduce:
      return {n, n};
    case Op::scatter:
      return {root ? all : 0, n};
    case Op::gather:
      return {n, root ? all : 0};
    case Op::all_gather:
      if (request.uneven) return {request.output_counts[mine], sum_of(request.output_counts)};
      return {n, all};
    case Op::reduce_scatter:
      if (request.uneven) return {sum_of(request.output_counts), request.output_counts[mine]};
      return {all, n};
    case Op::all_to_all:
      if (request.uneven) return {sum_of(request.input_counts), sum_of(request.output_counts)};
      return {all, all};
    case Op::barrier:
      return {};
  }
  return {};
}

// Whether the smaller of the two buffers is exactly this rank's part of the larger one, in an operation that allows it:
// the input of all_gather and gather, the output of reduce_scatter and scatter.
bool is_own_part(const Request& request, int rank, std::int64_t width) {
  const bool gathers = request.op == Op::all_gather || request.op == Op::gather;
  if (!gathers && request.op != Op::reduce_scatter && request.op != Op::scatter) return false;
  const auto own = static_cast<std::ptrdiff_t>(rank);
  const std::int64_t before = request.uneven ? std::accumulate(request.output_counts.begin(),
                                                               request.output_counts.begin() + own, std::int64_t{0})
                                             : rank * request.count;
  const auto* const part = static_cast<const std::byte*>(gathers ? request.input : request.output);
  const auto* const whole = static_cast<const std::byte*>(gathers ? request.output : request.input);
  return part == whole + before * width;
}

void check_overlap(const Request& request, int rank, const Need& need, std::int64_t width) {
  const std::int64_t input_bytes = need.input * width, output_bytes = need.output * width;
  if (input_bytes == 0 || output_bytes == 0) return;
  const auto input = reinterpret_cast<std::uintptr_t>(request.input);
  const auto output = reinterpret_cast<std::uintptr_t>(request.output);
  const bool apart = input + static_cast<std::uintptr_t>(input_bytes) <= output ||
                     output + static_cast<std::uintptr_t>(output_bytes) <= input;
  if (apart || (input == output && input_bytes == output_bytes)) return;
  if (is_own_part(request, rank, width)) return;
  refuse(request, "the input (", input_bytes, " bytes) and the output (", output_bytes,
         " bytes) overlap; possible are equal pointers and sizes",
         request.op == Op::all_gather || request.op == Op::gather ? ", and this rank's part of the output as the input"
         : request.op == Op::reduce_scatter || request.op == Op::scatter
             ? ", and this rank's part of the input as the output"
             : "");
}

}  // namespace

bool is_message(Op op) { return op == Op::send || op == Op::recv; }
bool is_reduction(Op op) { return op == Op::reduce || op == Op::all_reduce || op == Op::reduce_scatter; }

void check(const Request& request, int rank, int size) {
  const auto dtype = static_cast<int>(request.dtype), reduction = static_cast<int>(request.reduction);
  if (dtype < 0 || dtype >= dtype_count) refuse(request, dtype, " is not a dtype");
  if (reduction < 0 || reduction >= reduction_count) refuse(request, reduction, " is not a reduction");
  const auto width = static_cast<std::int64_t>(width_of(request.dtype));
  if (request.count < 0) refuse(request, "the count is ", request.count);
  if (request.count > most_bytes / width / size)
    refuse(request, "the count ", request.count, " is more than memory can hold");
  if (request.timeout.count() < 0) refuse(request, "the timeout is ", request.timeout.count(), " ms");
  if (request.uneven) {
    check_counts(request, request.output_counts, size, width);
    if (request.op == Op::all_to_all) check_counts(request, request.input_counts, size, width);
  }
  const bool has_root =
      request.op == Op::broadcast || request.op == Op::reduce || request.op == Op::scatter || request.op == Op::gather;
  if (has_root && (request.peer < 0 || request.peer >= size)) {
    refuse(request, "root ", request.peer, " is not a rank of the group, which has ", size);
  }
  if (is_message(request.op)) {
    const bool any = request.op == Op::recv && request.peer == -1;
    if (!any && (request.peer < 0 || request.peer >= size)) {
      refuse(request, "rank ", request.peer, " is not a rank of the group, which has ", size);
    }
    if (request.peer == rank || size == 1) refuse(request, "a rank cannot send a message to itself");
    if (request.tag < 0) refuse(request, "the tag is ", request.tag);
  }
  if (is_reduction(request.op)) arithmetic_of(request.dtype, request.reduction);
  for (const double factor : {request.prescale, request.postscale}) {
    if (factor == 1) continue;
    if (!std::isfinite(factor)) refuse(request, "a scale is ", factor);
    if (!is_inexact(request.dtype)) refuse(request, name_of(request.dtype), " cannot be scaled");
  }
  const Need need = need_of(request, rank, size);
  if (need.input > 0 && request.input == nullptr) refuse(request, "the input is null");
  if (need.output > 0 && request.output == nullptr) refuse(request, "the output is null");
  check_overlap(request, rank, need, width);
}

std::int64_t payload_elements(const Request& request, int size) {
  switch (request.op) {
    case Op::scatter:
    case Op::gather:
      return request.count * size;
    case Op::all_gather:
    case Op::reduce_scatter:
      return request.uneven ? sum_of(request.output_counts) : request.count * size;
    case Op::all_to_all:
      return request.uneven ? sum_of(request.input_counts) : request.count * size;
    default:
      return request.count;
  }
}

launch::Entry entry_of(const Request& request, const std::string& group, int size) {
  launch::Entry entry;
  entry.op = request.op;
  entry.group_size = size;
  entry.peer = request.peer;
  entry.numel = payload_elements(request, size);
  entry.payload_bytes = entry.numel * static_cast<std::int64_t>(width_of(request.dtype));
  entry.wire_bytes = launch::wire_bytes(request.op, entry.payload_bytes, size);
  if (request.op != Op::barrier) launch::write_text(entry.dtype, name_of(request.dtype));
  if (is_reduction(request.op)) launch::write_text(entry.reduction, name_of(request.reduction));
  launch::write_text(entry.group, group);
  launch::write_text(entry.tag, request.label);
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL + (hash >> 29); };
  add(static_cast<std::uint64_t>(request.op));
  add(request.op == Op::barrier ? 0 : static_cast<std::uint64_t>(request.dtype) + 1);
  if (is_reduction(request.op)) {
    add(static_cast<std::uint64_t>(request.reduction) + 1);
    add(std::hash<double>()(request.prescale));
    add(std::hash<double>()(request.postscale));
  }
  if (request.op != Op::all_to_all) add(static_cast<std::uint64_t>(entry.numel));
  if (!is_message(request.op)) add(static_cast<std::uint64_t>(request.peer + 1));
  add(request.uneven ? 1 : 0);
  if (request.uneven && request.op != Op::all_to_all) {
    for (const std::int64_t n : request.output_counts) add(static_cast<std::uint64_t>(n));
  }
  add(std::hash<std::string_view>()(entry.tag));
  entry.fingerprint = hash;
  return entry;
}

}  // namespace tessera::wire
