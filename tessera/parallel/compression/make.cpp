#include <tessera/base/error.h>
#include <tessera/parallel/compression/half.h>
#include <tessera/parallel/compression/onebit.h>
#include <tessera/parallel/compression/powersgd.h>
#include <tessera/parallel/compression/topk.h>

namespace tessera::parallel {

std::shared_ptr<Compression> make_compression(const layout::GradientCompression& asked) {
  switch (asked.method) {
    case layout::CompressionMethod::none:
      return nullptr;
    case layout::CompressionMethod::fp16:
      return std::make_shared<HalfCompression>(at::kHalf);
    case layout::CompressionMethod::bf16:
      return std::make_shared<HalfCompression>(at::kBFloat16);
    case layout::CompressionMethod::powersgd:
      return std::make_shared<PowerSgdCompression>(asked.powersgd);
    case layout::CompressionMethod::topk:
      return std::make_shared<TopKCompression>(asked.topk_ratio);
    case layout::CompressionMethod::onebit:
      return std::make_shared<OneBitCompression>(asked.onebit_warmup);
  }
  throw Error("unknown method of gradient compression");
}

std::shared_ptr<Compression> make_compression(std::string_view description) {
  return make_compression(layout::parse_gradient_compression(description));
}

}  // namespace tessera::parallel
