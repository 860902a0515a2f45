#include <tessera/models/block_flops.h>

namespace tessera::models {

BlockFlops plain_block_flops(std::int64_t width, std::int64_t inner, std::int64_t block_size) {
  const auto c = static_cast<double>(width);
  return {.attention = 8 * c * c,
          .scores = 4 * c * static_cast<double>(block_size),
          .mlp = 4 * c * static_cast<double>(inner)};
}

}  // namespace tessera::models
