#pragma once
/// \file
/// Local parts of parameters and of gradients: ordinary memory, always here, through which operators pass under our
/// eyes.
///
/// - A part of a gradient, of which other ranks hold the rest: most optimizers treat every element by itself. An
///   operator that mixes elements (a norm, a sum, LBFGS' dot products) would give every rank another number without a
///   word, and is refused. What an elementwise operator makes of it (grad.pow(2)) is an ordinary tensor: what is done
///   with that is not seen.
/// - A part of a parameter: whoever changes it, through data() too (which has a version counter of its own), leaves the
///   whole parameters out of date.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/dispatch/managed.h>

#include <functional>
#include <string>

namespace tessera::parallel {

class LocalParts {
 public:
  /// `memory`: [n], contiguous, plain. `watcher` outlives this; `gone`: what a part says that outlives it.
  LocalParts(const at::Tensor& memory, Materializer& watcher, std::string gone);
  LocalParts(const LocalParts&) = delete;
  LocalParts& operator=(const LocalParts&) = delete;

  /// `part`, a plain view [k] of the memory, as a tensor of its own that is watched.
  at::Tensor watched(const at::Tensor& part);

 private:
  ManagedStorage storage_;
};

/// Refuses operators that mix elements.
Materializer& refuse_mixing();

/// Calls `written` before every operator that writes.
class WriteWatcher final : public Materializer {
 public:
  explicit WriteWatcher(std::function<void()> written) : written_(std::move(written)) {}
  void enter(std::span<const std::size_t>, bool writes, const char*) override {
    if (writes) written_();
  }
  void leave(std::span<const std::size_t>) noexcept override {}

 private:
  std::function<void()> written_;
};

}  // namespace tessera::parallel
