#include <tessera/nn/device/random_lines.h>

#include <ATen/ATen.h>
#include <tessera/nn/device/send.h>

namespace tessera::nn {
namespace {

at::Tensor sent(std::span<const std::int64_t> numbers, c10::Device device) {
  if (numbers.empty()) return {};
  at::Tensor here = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), here.mutable_data_ptr<std::int64_t>());
  return send(here, device);
}

const std::int64_t* pointer_to(const at::Tensor& numbers) {
  return numbers.defined() ? numbers.const_data_ptr<std::int64_t>() : nullptr;
}

}  // namespace

DeviceLines device_lines(const RandomPlace& place, std::int64_t rows, std::int64_t heads, std::int64_t tokens,
                         std::int64_t columns, std::span<const std::int64_t> column_positions, c10::Device device) {
  std::span<const std::int64_t> positions;
  if (place.tokens) {
    positions =
        std::span(*place.tokens).subspan(static_cast<std::size_t>(place.token), static_cast<std::size_t>(tokens));
  }
  DeviceLines found{.lines = {.rows = rows,
                              .heads = heads,
                              .tokens = tokens,
                              .columns = columns,
                              .key = place.key,
                              .row = place.row,
                              .head = place.head,
                              .token = place.token,
                              .column = place.column},
                    .positions = sent(positions, device),
                    .column_positions = sent(column_positions, device)};
  found.lines.positions = pointer_to(found.positions);
  found.lines.column_positions = pointer_to(found.column_positions);
  return found;
}

}  // namespace tessera::nn
