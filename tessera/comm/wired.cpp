#include <ATen/ATen.h>

#include <tessera/comm/kernel_types.h>
#include <tessera/comm/wired.h>

#include <memory>
#include <utility>

namespace tessera::comm {

using launch::Entry;
using launch::Op;
using wire::Operation;

namespace {

std::byte* bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.data_ptr()) : nullptr;
}

}  // namespace

bool WiredBackend::can_reduce(at::ScalarType dtype) const { return number_of(dtype).has_value(); }

WiredBackend::Started WiredBackend::broadcast(at::Tensor tensor, int root) {
  return begin(make(Op::broadcast, tensor, at::Tensor(), tensor, root));
}
WiredBackend::Started WiredBackend::reduce(at::Tensor tensor, int root, Reduction op) {
  return reduction(Op::reduce, tensor, at::Tensor(), tensor, root, op);
}
WiredBackend::Started WiredBackend::all_reduce(at::Tensor tensor, Reduction op) {
  return reduction(Op::all_reduce, tensor, at::Tensor(), tensor, -1, op);
}
WiredBackend::Started WiredBackend::scatter(at::Tensor output, at::Tensor input, int root) {
  return begin(make(Op::scatter, output, input, output, root));
}
WiredBackend::Started WiredBackend::gather(at::Tensor output, at::Tensor input, int root) {
  return begin(make(Op::gather, output, input, input, root));
}
WiredBackend::Started WiredBackend::all_gather(at::Tensor output, at::Tensor input) {
  return begin(make(Op::all_gather, output, input, input, -1));
}
WiredBackend::Started WiredBackend::reduce_scatter(at::Tensor output, at::Tensor input, Reduction op) {
  return reduction(Op::reduce_scatter, output, input, output, -1, op);
}

WiredBackend::Started WiredBackend::all_to_all(at::Tensor output, at::Tensor input,
                                               std::vector<std::int64_t> output_splits,
                                               std::vector<std::int64_t> input_splits) {
  Operation operation = make(Op::all_to_all, output, input, output, -1);
  const auto width = static_cast<std::size_t>(output.element_size());
  for (const std::int64_t n : output_splits) operation.output_splits.push_back(static_cast<std::size_t>(n) * width);
  for (const std::int64_t n : input_splits) operation.input_splits.push_back(static_cast<std::size_t>(n) * width);
  return begin(std::move(operation));
}

WiredBackend::Started WiredBackend::send(at::Tensor tensor, int destination, int tag) {
  return message(Op::send, tensor, destination, tag);
}
WiredBackend::Started WiredBackend::recv(at::Tensor tensor, int source, int tag) {
  return message(Op::recv, tensor, source, tag);
}

WiredBackend::Started WiredBackend::barrier() {
  return begin(make(Op::barrier, at::Tensor(), at::Tensor(), at::Tensor(), -1));
}

// Returns the record that Group announced, or a new record if the caller uses the backend directly.
Entry WiredBackend::take_entry(Op op, const at::Tensor& part, int root, const char* reduction) {
  if (announced_ && announced_->op == op) return *std::exchange(announced_, std::nullopt);
  announced_.reset();
  Entry entry;
  entry.op = op;
  const bool message = op == Op::send || op == Op::recv;
  entry.sequence = message ? own_messages_++ : own_collectives_++;
  entry.group_size = size();
  entry.peer = root;
  if (part.defined()) {
    entry.numel = part.numel();
    entry.payload_bytes = static_cast<std::int64_t>(part.nbytes());
    launch::write_text(entry.dtype, c10::toString(part.scalar_type()));
  }
  launch::write_text(entry.reduction, reduction);
  launch::write_text(entry.group, name());
  const auto dtype = part.defined() ? static_cast<std::uint64_t>(part.scalar_type()) + 1 : 0;
  const std::uint64_t sizes = op == Op::all_to_all ? 0 : static_cast<std::uint64_t>(entry.numel);
  for (const std::uint64_t value : {static_cast<std::uint64_t>(op), dtype, sizes, static_cast<std::uint64_t>(root + 1),
                                    static_cast<std::uint64_t>(*reduction)}) {
    entry.fingerprint = (entry.fingerprint ^ value) * 0x9e3779b97f4a7c15ULL + 1;
  }
  return entry;
}

Operation WiredBackend::make(Op op, const at::Tensor& output, const at::Tensor& input, const at::Tensor& part, int root,
                             const char* reduction) {
  Operation operation;
  operation.entry = take_entry(op, part, root, reduction);
  operation.input = bytes_of(input);
  operation.output = bytes_of(output);
  operation.part_bytes = part.defined() ? part.nbytes() : 0;
  operation.root = root;
  operation.keep = std::make_shared<std::pair<at::Tensor, at::Tensor>>(output, input);
  return operation;
}

WiredBackend::Started WiredBackend::reduction(Op op, const at::Tensor& output, const at::Tensor& input,
                                              const at::Tensor& part, int root, Reduction how) {
  Operation operation = make(op, output, input, part, root, reduction_name(how));
  operation.number = number_of(part.scalar_type()).value();
  operation.fold = fold_of(how);
  return begin(std::move(operation));
}

WiredBackend::Started WiredBackend::message(Op op, const at::Tensor& tensor, int peer, int tag) {
  Operation operation = make(op, tensor, at::Tensor(), tensor, peer);
  operation.tag = tag;
  return post(std::move(operation));
}

}  // namespace tessera::comm
