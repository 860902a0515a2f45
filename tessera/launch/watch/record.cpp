#include <tessera/launch/watch/record.h>

#include <tessera/base/text.h>

namespace tessera::launch {

const char* op_name(Op op) {
  static constexpr const char* names[op_count] = {"broadcast", "reduce",     "all_reduce",     "scatter",
                                                  "gather",    "all_gather", "reduce_scatter", "all_to_all",
                                                  "send",      "recv",       "barrier"};
  return names[static_cast<int>(op)];
}

std::int64_t wire_bytes(Op op, std::int64_t payload_bytes, int group_size) {
  if (group_size <= 1) return 0;
  const double share = static_cast<double>(group_size - 1) / group_size;
  switch (op) {
    case Op::all_reduce:
      return static_cast<std::int64_t>(2 * share * static_cast<double>(payload_bytes));
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::scatter:
    case Op::gather:
    case Op::all_to_all:
      return static_cast<std::int64_t>(share * static_cast<double>(payload_bytes));
    case Op::broadcast:
    case Op::reduce:
    case Op::send:
      return payload_bytes;
    case Op::recv:
    case Op::barrier:
      return 0;
  }
  return 0;
}

std::string_view axis_of(std::string_view group) {
  const std::size_t end = group.find_last_not_of("0123456789");
  const bool numbered = end != std::string_view::npos && end > 0 && end + 1 < group.size() && group[end] == ' ';
  return numbered ? group.substr(0, end) : group;
}

bool repair(Entry& entry) {
  if (static_cast<int>(entry.op) >= op_count || entry.status > Status::failed) return false;
  entry.reduction[sizeof entry.reduction - 1] = entry.dtype[sizeof entry.dtype - 1] = 0;
  entry.group[sizeof entry.group - 1] = entry.tag[sizeof entry.tag - 1] = 0;
  return true;
}

std::string details(const Entry& entry) {
  std::string text;
  const auto add = [&](const auto&... parts) { text += concat(text.empty() ? "" : ", ", parts...); };
  if (entry.dtype[0] != 0) add(entry.numel, " x ", entry.dtype);
  if (entry.reduction[0] != 0) add(entry.reduction);
  if (entry.peer >= 0) {
    add(entry.op == Op::send ? "to rank " : entry.op == Op::recv ? "from rank " : "root ", entry.peer);
  }
  if (entry.tag[0] != 0) add("tag '", entry.tag, "'");
  return text;
}

std::string describe(const Entry& entry) {
  const std::string more = details(entry);
  return concat(op_name(entry.op), " #", entry.sequence, " of group '", entry.group, "' (", entry.group_size,
                entry.group_size == 1 ? " rank" : " ranks", more.empty() ? "" : ", ", more, ")");
}

}  // namespace tessera::launch
