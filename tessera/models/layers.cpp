#include <tessera/models/layers.h>

#include <ATen/CPUGeneratorImpl.h>

namespace tessera::models {

Conv1D::Conv1D(std::int64_t in, std::int64_t out) {
  weight = register_parameter("weight", at::empty({in, out}));
  bias = register_parameter("bias", at::empty({out}));
}

LayerNorm::LayerNorm(std::int64_t size, double eps) : eps(eps) {
  weight = register_parameter("weight", at::empty({size}));
  bias = register_parameter("bias", at::empty({size}));
}

Table::Table(std::int64_t rows, std::int64_t columns) {
  weight = register_parameter("weight", at::empty({rows, columns}));
}

void normal_by_name(at::Tensor& tensor, double std, std::uint64_t seed, const std::string& name) {
  std::uint64_t key = 0xcbf29ce484222325u;  // FNV-1a of the name, then the seed mixed in (splitmix64's finaliser)
  for (const char c : name) key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  key += seed * 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  const at::NoGradGuard no_grad;
  tensor.normal_(0, std, at::detail::createCPUGenerator(key ^ (key >> 31)));
}

}  // namespace tessera::models
