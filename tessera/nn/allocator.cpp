#include <tessera/nn/allocator.h>

#include <malloc.h>

namespace tessera::nn {

void keep_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // as an unsigned size: never
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace tessera::nn
