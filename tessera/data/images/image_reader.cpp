#include <tessera/data/images/image_reader.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/image/plugin.h>
#include <tessera/image/prepare.h>
#include <tessera/nn/parallel_for.h>

namespace tessera::data {

ImageReader::ImageReader(const ImageInput& input, bool pad) : input_(input), pad_(pad) {
  TESSERA_CHECK(input.side >= 1 && input.tokens >= 1, input.tokens, " tokens of an image of side ", input.side);
  image::image_plugin();
}

at::Tensor ImageReader::operator()(const std::vector<std::string>& files) const {
  const auto count = static_cast<std::int64_t>(files.size()), numbers = 3 * input_.side * input_.side;
  at::Tensor pixels = at::empty({count, 3, input_.side, input_.side}, at::kFloat);
  const image::Preparation how{input_.side, input_.mean, input_.deviation, pad_};
  auto* out = pixels.mutable_data_ptr<float>();
  nn::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::string& file = files[static_cast<std::size_t>(i)];
      image::prepare(image::read_image(file), how, file,
                     std::span(out + i * numbers, static_cast<std::size_t>(numbers)));
    }
  });
  return pixels;
}

}  // namespace tessera::data
