#include <tessera/xla/capture/draws.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/dropout.h>

#include <algorithm>

namespace tessera::xla {

at::Tensor keys(const std::vector<Draw>& draws, const std::vector<Pass>& passes) {
  std::vector<std::int32_t> low, high;
  for (const Draw& draw : draws) {
    const std::int64_t rows = draw.lines[0], tokens = draw.lines.back();
    const auto parts = static_cast<std::int64_t>(passes.size());
    TESSERA_CHECK(rows % parts == 0, rows, " rows of random numbers for ", parts, " passes");
    const std::int64_t heads = draw.lines.size() == 3 ? draw.lines[1] : 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const Pass& pass = passes[static_cast<std::size_t>(row / (rows / parts))];
      std::uint64_t key = pass.key;
      for (const std::uint64_t number : draw.numbers) key = kernels::mixed_key(key, number);
      const std::int64_t place_of_row = pass.first_row + draw.row + row % (rows / parts);
      const std::uint64_t of_row = kernels::mixed_key(key, static_cast<std::uint64_t>(place_of_row));
      for (std::int64_t head = 0; head < std::max<std::int64_t>(1, heads); ++head)
        for (std::int64_t token = 0; token < tokens; ++token) {
          const std::int64_t place = draw.token + token;
          const std::int64_t position =
              draw.positions.empty() ? place : draw.positions[static_cast<std::size_t>(place)];
          std::uint64_t line = kernels::mixed_key(of_row, static_cast<std::uint64_t>(position));
          if (heads > 0) line = kernels::mixed_key(line, static_cast<std::uint64_t>(draw.head + head));
          low.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(line)));
          high.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(line >> 32)));
        }
    }
  }
  low.insert(low.end(), high.begin(), high.end());
  return at::tensor(low, at::kInt);
}

}  // namespace tessera::xla
