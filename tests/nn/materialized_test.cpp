#include <tessera/nn/materialized.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>

namespace {

using tessera::nn::Materialized;
using tessera::nn::pointer;

/// A tensor with the key and without memory.
at::Tensor keyed() {
  const at::Tensor plain = at::empty({0});
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(plain.storage()), c10::DispatchKeySet({c10::DispatchKey::CPU, tessera::nn::managed_key}),
      plain.dtype());
}

struct Seen {
  int entered = 0, left = 0;
  std::size_t tensors = 0;
  bool throws = false;
};
Seen& seen() {
  static Seen s;
  return s;
}

// A single test, because hooks are set once per process.
TEST(Materialized, asks_the_hooks_when_a_tensor_has_the_key) {
  const at::Tensor plain = at::ones({2}), undefined, with_key = keyed();
  {
    const Materialized nothing({&plain, &undefined, nullptr, pointer(std::optional<at::Tensor>())});
  }
  EXPECT_THROW(Materialized({&with_key}), tessera::Error);  // no hook can provide it

  tessera::nn::set_materialize_hooks({[](const at::Tensor* const* tensors, std::size_t count) -> void* {
                                        for (std::size_t i = 0; i < count; ++i)
                                          seen().tensors += tensors[i] != nullptr ? 1 : 0;
                                        if (seen().throws) throw tessera::Error("not now");
                                        return ++seen().entered == 1 ? nullptr : &seen();
                                      },
                                      [](void*) noexcept { ++seen().left; }});
  {
    const Materialized nothing({&plain, &undefined});
  }
  EXPECT_EQ(seen().entered, 0);
  {
    const Materialized declined({&plain, nullptr, &with_key});
  }  // the hook returns no token
  EXPECT_EQ(seen().entered, 1);
  EXPECT_EQ(seen().tensors, 2u);
  EXPECT_EQ(seen().left, 0);
  {
    const std::optional<at::Tensor> maybe = with_key;
    const Materialized here({pointer(maybe)});
    EXPECT_EQ(seen().entered, 2);
    EXPECT_EQ(seen().left, 0);
  }
  EXPECT_EQ(seen().left, 1);
  seen().throws = true;
  EXPECT_THROW(Materialized({&with_key}), tessera::Error);
  EXPECT_EQ(seen().left, 1);
}

}  // namespace
