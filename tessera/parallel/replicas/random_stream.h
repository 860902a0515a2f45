#pragma once
/// \file
/// Random numbers of one thread. LibTorch has one default generator for all CPU threads: threads that draw from it at
/// the same time get numbers that depend on which comes first.

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace tessera::parallel {

/// While it exists, random operators of the calling thread on CPU tensors that were given no generator draw from
/// `generator`; `first_use` is called once, before the first of them. They are intercepted by a dispatch key that
/// LibTorch reserves for tests and for which only operators with an argument `generator` have a kernel, so all other
/// operators cost nothing extra. Nests; destroy on the same thread.
class RandomStream {
 public:
  explicit RandomStream(at::Generator generator, std::function<void()> first_use = {});
  ~RandomStream();
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;

  /// The generator, for operators and thread_generator(); calls `first_use` on first use.
  const at::Generator& use();

 private:
  at::Generator generator_;
  std::function<void()> first_use_;
  RandomStream* before_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> key_;
};

/// The generator that operators of the calling thread use on `device`: that of the innermost stream, or the default
/// one.
at::Generator thread_generator(c10::Device device);

/// Seed of stream `index` of `key`; different streams are independent in practice.
std::uint64_t stream_seed(std::uint64_t key, std::uint64_t index);

}  // namespace tessera::parallel
