#pragma once
/// \file
/// Random numbers of one thread. LibTorch has one default generator for all threads of the CPU: threads that draw from
/// it at the same time get numbers that depend on who came first.

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace tessera::parallel {

/// While it lives, operators of the calling thread on CPU tensors that draw and were given no generator draw from
/// `generator`; before the first of them `first_use` is called, once. They are found by a dispatch key that LibTorch
/// leaves to tests, for which only operators with an argument `generator` have a kernel: all others cost what they did.
/// Nests; destroy on the same thread.
class RandomStream {
 public:
  explicit RandomStream(at::Generator generator, std::function<void()> first_use = {});
  ~RandomStream();
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;

  /// For operators and thread_generator().
  const at::Generator& use();

 private:
  at::Generator generator_;
  std::function<void()> first_use_;
  RandomStream* before_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> key_;
};

/// What operators of the calling thread draw from on `device`: the innermost stream, or the default generator.
at::Generator thread_generator(c10::Device device);

/// Stream `index` of `key`; different streams share no numbers in practice.
std::uint64_t stream_seed(std::uint64_t key, std::uint64_t index);

}  // namespace tessera::parallel
