/// Storage, dispatch key and fallback: identity, access, units, writes.

#include "managed_materializer.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tessera/nn/materialized.h>

#include <tests/error_of.h>

#include <functional>
#include <string>
#include <vector>

namespace {

using managed_test::DroppingMaterializer;
using managed_test::same_bits;
using tessera::parallel::is_managed;
using tessera::parallel::managed_key;
using tessera::parallel::managed_storage;
using tessera::parallel::ManagedStorage;
using tessera::testing::error_of;

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

TEST(Managed, adopting_keeps_identity_grad_hooks_and_gives_the_key) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({3, 4}), expected = w.detach().clone();
  int hooked = 0;
  w.register_hook([&](const at::Tensor& g) { return ++hooked, g; });
  at::TensorImpl* const identity = w.unsafeGetTensorImpl();
  EXPECT_FALSE(is_managed(w));
  materializer.manage(std::vector<at::Tensor>{w});
  EXPECT_EQ(w.unsafeGetTensorImpl(), identity);
  EXPECT_TRUE(is_managed(w) && w.requires_grad() && w.is_leaf());
  EXPECT_EQ(managed_storage(w), &materializer.storage(0));
  EXPECT_TRUE(materializer.storage(0).owns(w));
  (w * w).sum().backward();
  EXPECT_EQ(hooked, 1);
  EXPECT_TRUE(same_bits(w.grad(), expected * 2));
  EXPECT_FALSE(is_managed(w.grad()));
  ManagedStorage::abandon(w, expected);
  EXPECT_FALSE(is_managed(w) || materializer.storage(0).owns(w));
  EXPECT_TRUE(w.requires_grad());
  EXPECT_TRUE(same_bits(w.detach(), expected));
  EXPECT_EQ(managed_storage(w), nullptr);
}

TEST(Managed, what_inherits_the_key_and_what_does_not) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4, 4});
  materializer.manage(std::vector<at::Tensor>{w});
  const std::vector<at::Tensor> views = {w.t(),
                                         w.detach(),
                                         w.view({2, 8}),
                                         w.alias(),
                                         w[1],
                                         w.narrow(0, 1, 2),
                                         w.select(1, 0),
                                         w.unsqueeze(0),
                                         w.expand({2, 4, 4}),
                                         w.reshape({16}),
                                         w.variable_data(),
                                         w.data(),
                                         w.to(at::kFloat),
                                         w.contiguous(),
                                         w.chunk(2)[1],
                                         w.diagonal()};
  for (std::size_t i = 0; i < views.size(); ++i) EXPECT_TRUE(is_managed(views[i])) << i;
  EXPECT_TRUE(materializer.entries.empty()) << materializer.entries.front().op;
  const std::vector<at::Tensor> copies = {
      w.clone(), at::empty_like(w), at::zeros_like(w), w.to(at::kDouble), w.t().reshape({16}), w + 1, w.new_empty({2})};
  for (std::size_t i = 0; i < copies.size(); ++i) EXPECT_FALSE(is_managed(copies[i])) << i;
  EXPECT_TRUE(materializer.all_left());
}

TEST(Managed, looking_at_metadata_does_not_enter) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4, 6});
  const auto version = w._version();
  materializer.manage(std::vector<at::Tensor>{w});
  EXPECT_EQ(w.sizes(), at::IntArrayRef({4, 6}));
  EXPECT_EQ(at::size(w, 1), 6);
  EXPECT_TRUE(w.is_contiguous() && w.is_floating_point() && at::is_floating_point(w));
  EXPECT_EQ(w._version(), version);
  EXPECT_EQ(at::result_type(w, at::ones({1}, at::kDouble)), at::kDouble);
  EXPECT_EQ(w.storage().nbytes(), 64 * 4u);
  EXPECT_EQ(w.numel(), 24);
  const at::Tensor detached = w.detach();
  detached.requires_grad_(false);
  EXPECT_TRUE(materializer.entries.empty()) << materializer.entries.front().op;
}

TEST(Managed, raw_access_to_absent_memory_says_what_is_wrong) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4});
  const std::size_t u = materializer.manage(std::vector<at::Tensor>{w});
  const std::vector<std::function<void()>> accesses = {
      [&] { (void)w.data_ptr(); },
      [&] { (void)w.data_ptr<float>(); },
      [&] { (void)w.const_data_ptr<float>(); },
      [&] { (void)w.mutable_data_ptr(); },
      [&] { (void)w.accessor<float, 1>(); },
      [&] { (void)w.storage().data(); },
      [&] { (void)w.storage().mutable_data(); },
      [&] { (void)w.storage().data_ptr(); },
      [&] { (void)w.narrow(0, 1, 2).data_ptr(); },
      [&] { (void)w.detach().data_ptr(); },
  };
  for (int round = 0; round < 2; ++round) {  // absent at the start, and absent again after detach()
    for (std::size_t i = 0; i < accesses.size(); ++i)
      EXPECT_NE(error_of<std::exception>(accesses[i]).find("a parameter of unit 0 is absent"), std::string::npos)
          << i << ": " << error_of<std::exception>(accesses[i]);
    materializer.storage(u).attach(materializer.home(u));
    for (std::size_t i = 0; i < accesses.size(); ++i) EXPECT_EQ(error_of<std::exception>(accesses[i]), "") << i;
    EXPECT_EQ(w.data_ptr(), materializer.home(u).data_ptr());
    EXPECT_TRUE(materializer.storage(u).detach().is_same(materializer.home(u)));
  }
  EXPECT_NE(error_of<std::exception>([&] { w.detach().resize_({1000}); }), "");
  EXPECT_EQ(w.sum().item<float>(), materializer.home(u).sum().item<float>());
}

TEST(Managed, operators_of_every_kind_see_the_values) {
  using Operator = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<std::pair<const char*, Operator>> operators = {
      {"item", [](const at::Tensor& w) { return at::scalar_tensor(w[1][2].item<float>()); }},
      {"is_nonzero", [](const at::Tensor& w) { return at::scalar_tensor(w[0][0].is_nonzero()); }},
      {"equal", [](const at::Tensor& w) { return at::scalar_tensor(w.equal(w.t())); }},
      {"another dtype's view", [](const at::Tensor& w) { return w.view(at::kInt) + 1; }},
      {"view of a view", [](const at::Tensor& w) { return w.t().narrow(0, 1, 2).unsqueeze(0) * 2; }},
      {"_neg_view", [](const at::Tensor& w) { return at::_neg_view(w) + 1; }},
      {"as_strided", [](const at::Tensor& w) { return at::as_strided(w, {2, 2}, {4, 1}, 1) + 1; }},
      {"split", [](const at::Tensor& w) { return w.split(2)[1] + w.unbind()[0]; }},
      {"contiguous of t", [](const at::Tensor& w) { return w.t().contiguous(); }},
      {"reshape that copies", [](const at::Tensor& w) { return w.t().reshape({-1}); }},
      {"to", [](const at::Tensor& w) { return w.to(at::kDouble); }},
      {"clone", [](const at::Tensor& w) { return w.clone(); }},
      {"sparse", [](const at::Tensor& w) { return w.to_sparse().to_dense(); }},
      {"mkldnn", [](const at::Tensor& w) { return w.to_mkldnn().to_dense(); }},
      {"quantized", [](const at::Tensor& w) { return at::quantize_per_tensor(w, 0.1, 0, at::kQInt8).dequantize(); }},
      {"foreach", [](const at::Tensor& w) { return at::_foreach_add({w, w.t()}, 1)[1]; }},
      {"einsum", [](const at::Tensor& w) { return at::einsum("ij,jk->ik", {w, w}); }},
      {"stack", [](const at::Tensor& w) { return at::stack({w, w.t()}); }},
      {"where", [](const at::Tensor& w) { return at::where(w > 0, w, w.t()); }},
      {"masked_select", [](const at::Tensor& w) { return w.masked_select(w > 0); }},
      {"index", [](const at::Tensor& w) { return w.index({at::tensor({1, 2})}); }},
      {"svd", [](const at::Tensor& w) { return std::get<1>(at::linalg_svd(w)); }},
      {"dropout in eval", [](const at::Tensor& w) { return at::dropout(w, 0.5, false) + 1; }},
      {"copy_ from it", [](const at::Tensor& w) { return at::zeros({4, 4}).copy_(w); }},
      {"sort", [](const at::Tensor& w) { return std::get<0>(w.sort()); }},
      {"is_pinned", [](const at::Tensor& w) { return at::scalar_tensor(w.is_pinned()); }},
  };
  const at::NoGradGuard no_grad;
  for (const auto& [name, run] : operators) {
    DroppingMaterializer materializer;
    const at::Tensor w = at::randn({4, 4}), expected = run(w.clone());
    materializer.manage(std::vector<at::Tensor>{w});
    const at::Tensor got = run(w);
    EXPECT_FALSE(materializer.entries.empty()) << name;
    EXPECT_TRUE(same_bits(got, expected)) << name;
    EXPECT_TRUE(materializer.all_left()) << name;
  }
}

TEST(Managed, attach_and_detach_reject_what_does_not_fit) {
  DroppingMaterializer materializer;
  const std::size_t u = materializer.manage(std::vector<at::Tensor>{leaf({4})});
  ManagedStorage& storage = materializer.storage(u);
  EXPECT_THROW(storage.detach(), tessera::Error);
  EXPECT_THROW(storage.attach(at::zeros({63})), tessera::Error);
  EXPECT_THROW(storage.attach(at::zeros({64}, at::kDouble)), tessera::Error);
  EXPECT_THROW(storage.attach(at::zeros({128}).slice(0, 0, 128, 2)), tessera::Error);
  EXPECT_THROW(storage.adopt(leaf({4}), 61, {4}, {1}), tessera::Error);
  EXPECT_THROW(storage.adopt(leaf({4}) * 2, 0, {4}, {1}), tessera::Error);
  storage.attach(at::zeros({64}));
  EXPECT_THROW(storage.attach(at::zeros({64})), tessera::Error);
  (void)storage.detach();
}

TEST(Managed, another_dtype_and_shape_replace_the_gradient_accumulator) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4, 4});
  at::Tensor loss = (w * w).sum();  // keeps w's fp32 AccumulateGrad alive
  const std::size_t u = materializer.manage(std::vector<at::Tensor>{w}, at::kBFloat16);
  EXPECT_EQ(w.scalar_type(), at::kBFloat16);
  (w * w).sum().backward();
  EXPECT_EQ(w.grad().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(same_bits(w.grad(), materializer.value(w) * 2));
  w.mutable_grad().reset();

  const at::Tensor v = leaf({4, 4});
  const at::Tensor kept = (v * v).sum();
  ManagedStorage storage(materializer, u + 1, 16, at::kFloat, at::kCPU, "absent");
  storage.adopt(v, 0, {16}, {1});
  storage.attach(at::ones({16}));
  storage.buffer().fill_(3);
  v.view({4, 4}).detach();
  EXPECT_EQ(v.sizes(), at::IntArrayRef({16}));
}

TEST(Managed, all_units_of_an_operator_come_together_ascending_and_once) {
  DroppingMaterializer materializer;
  const at::Tensor a = leaf({2, 2}), b = leaf({2, 2}), c = leaf({2, 2});
  const at::Tensor sum = a.detach() + c.detach() + b.detach();
  materializer.manage(std::vector<at::Tensor>{a});
  materializer.manage(std::vector<at::Tensor>{b});
  materializer.manage(std::vector<at::Tensor>{c});
  const at::NoGradGuard no_grad;
  (void)at::addmm(c, b, a);
  ASSERT_EQ(materializer.entries.size(), 1u);
  EXPECT_EQ(materializer.entries[0].units, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(materializer.entries[0].op, "aten::addmm");
  EXPECT_FALSE(materializer.entries[0].writes);
  (void)at::cat({c, a, c.t(), a});
  EXPECT_EQ(materializer.entries.back().units, (std::vector<std::size_t>{0, 2}));
  (void)at::index(b, {at::tensor({1, 0}), c10::optional<at::Tensor>(at::tensor({0, 1}))});
  EXPECT_EQ(materializer.entries.back().units, (std::vector<std::size_t>{1}));
  EXPECT_TRUE(at::equal(a + c + b, sum));
  EXPECT_TRUE(materializer.all_left());
}

RC_GTEST_PROP(Managed, any_list_of_parameters_is_entered_as_a_sorted_set, ()) {
  const std::size_t count = *rc::gen::inRange<std::size_t>(1, 12);
  DroppingMaterializer materializer;
  std::vector<at::Tensor> parameters;
  for (std::size_t i = 0; i < count; ++i) {
    parameters.push_back(leaf({2}));
    materializer.manage(std::vector<at::Tensor>{parameters.back()});
  }
  const auto picks =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, count)));
  std::vector<at::Tensor> tensors, values;
  for (const std::size_t i : picks) {
    tensors.push_back(parameters[i]);
    values.push_back(materializer.value(parameters[i]));
  }
  const at::Tensor got = at::cat(tensors);
  const std::set<std::size_t> expected(picks.begin(), picks.end());
  RC_ASSERT(materializer.entries.size() == 1u);
  RC_ASSERT(materializer.entries[0].units == std::vector<std::size_t>(expected.begin(), expected.end()));
  RC_ASSERT(same_bits(got.detach(), at::cat(values)));
  RC_ASSERT(materializer.all_left());
}

TEST(Managed, each_materializer_hears_of_its_own_units) {
  DroppingMaterializer first, second;
  const at::Tensor a = leaf({3}), b = leaf({3}), expected = (a * b).detach();
  first.manage(std::vector<at::Tensor>{a});
  second.manage(std::vector<at::Tensor>{b});
  EXPECT_TRUE(same_bits((b * a).detach(), expected));
  EXPECT_EQ(first.entries.size(), 1u);
  EXPECT_EQ(second.entries.size(), 1u);
  first.refuse = true;  // whichever materializer runs first, nothing stays pinned
  EXPECT_THROW((void)(b * a), tessera::Error);
  first.refuse = false, second.refuse = true;
  EXPECT_THROW((void)(b * a), tessera::Error);
  EXPECT_TRUE(first.all_left() && second.all_left());
}

TEST(Managed, an_operator_that_throws_leaves) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({3, 4});
  materializer.manage(std::vector<at::Tensor>{w});
  EXPECT_ANY_THROW((void)at::mm(w, at::ones({3, 3})));
  EXPECT_EQ(materializer.entries.size(), 1u);
  EXPECT_TRUE(materializer.all_left());
  materializer.refuse = true;
  EXPECT_THROW((void)at::mm(w, at::ones({4, 3})), tessera::Error);
  EXPECT_TRUE(materializer.all_left());
}

TEST(Managed, writes_are_told) {
  const std::vector<std::pair<const char*, std::function<void(at::Tensor&)>>> writers = {
      {"add_", [](at::Tensor& w) { w.add_(1); }},
      {"mul_", [](at::Tensor& w) { w.mul_(2); }},
      {"zero_", [](at::Tensor& w) { w.zero_(); }},
      {"normal_", [](at::Tensor& w) { w.normal_(); }},
      {"copy_", [](at::Tensor& w) { w.copy_(at::ones({4, 4})); }},
      {"view copy_", [](at::Tensor& w) { w[1].copy_(at::ones({4})); }},
      {"index_put_", [](at::Tensor& w) { w.index_put_({at::tensor({1})}, at::ones({4})); }},
      {"out", [](at::Tensor& w) { at::mm_out(w, at::ones({4, 4}), at::ones({4, 4})); }},
      {"foreach", [](at::Tensor& w) { at::_foreach_mul_(at::TensorList{w}, 0.5); }},
      {"detach", [](at::Tensor& w) { w.detach().sub_(1); }},
      {"like out", [](at::Tensor& w) { at::ones_like_out(w, at::zeros({4, 4})); }},
  };
  for (const auto& [name, write] : writers) {
    DroppingMaterializer materializer;
    at::Tensor w = leaf({4, 4}), twin = w.detach().clone();
    materializer.manage(std::vector<at::Tensor>{w});
    const at::NoGradGuard no_grad;
    EXPECT_THROW(write(w), tessera::Error) << name;
    EXPECT_TRUE(materializer.entries.back().writes) << name;
    EXPECT_TRUE(materializer.all_left()) << name;
    EXPECT_TRUE(same_bits(materializer.value(w), twin)) << name;
    materializer.writes_allowed = true;
    at::manual_seed(3);
    write(w);
    at::manual_seed(3);
    write(twin);
    EXPECT_TRUE(same_bits(materializer.value(w), twin)) << name;
  }
  // Reading a parameter in order to write elsewhere is not a write.
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4});
  materializer.manage(std::vector<at::Tensor>{w});
  const at::NoGradGuard no_grad;
  at::Tensor target = at::zeros({4});
  target.copy_(w);
  at::mul_out(target, w, w);
  for (const auto& entry : materializer.entries) EXPECT_FALSE(entry.writes) << entry.op;
}

TEST(Managed, operators_of_other_libraries_are_entered_whatever_they_return) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4, 4});
  materializer.manage(std::vector<at::Tensor>{w});
  // Registered after the key; the second operator returns an alias of its input, but also reads it.
  torch::Library library(torch::Library::DEF, "tessera_managed_test", std::nullopt, __FILE__, __LINE__);
  library.def("first(Tensor w) -> float",
              [](const at::Tensor& w) { return static_cast<double>(*w.const_data_ptr<float>()); });
  library.def("checked(Tensor(a) w) -> Tensor(a)", [](const at::Tensor& w) {
    EXPECT_FALSE(std::isnan(*w.const_data_ptr<float>()));
    return w.alias();
  });
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto first = dispatcher.findSchemaOrThrow("tessera_managed_test::first", "").typed<double(const at::Tensor&)>();
  const auto checked =
      dispatcher.findSchemaOrThrow("tessera_managed_test::checked", "").typed<at::Tensor(const at::Tensor&)>();
  EXPECT_EQ(static_cast<float>(first.call(w)), materializer.value(w)[0][0].item<float>());
  EXPECT_EQ(materializer.entries.back().op, "tessera_managed_test::first");
  EXPECT_TRUE(is_managed(checked.call(w)));
  EXPECT_EQ(materializer.entries.back().op, "tessera_managed_test::checked");
  EXPECT_TRUE(materializer.all_left());
}

TEST(Managed, stored_views_stay_views_and_are_counted) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({3, 4}), x = at::randn({3, 3});
  const std::size_t u = materializer.manage(std::vector<at::Tensor>{w});
  EXPECT_EQ(materializer.storage(u).foreign_uses(), 0u);
  {
    const at::Tensor stored = w.t();
    EXPECT_EQ(materializer.storage(u).foreign_uses(), 1u);
    EXPECT_TRUE(same_bits(at::mm(stored, x).detach(), at::mm(materializer.value(w).t(), x)));
  }
  EXPECT_EQ(materializer.storage(u).foreign_uses(), 0u);
  ManagedStorage::abandon(w, at::ones({3, 4}));
  EXPECT_EQ(materializer.storage(u).foreign_uses(), 0u);
}

TEST(Managed, views_that_a_constructor_stored_are_found) {
  const at::Tensor w = leaf({3, 4}), flat = at::randn({8});
  const std::vector<at::Tensor> parameters = {w, flat.narrow(0, 0, 4).set_requires_grad(true),
                                              flat.narrow(0, 4, 4).set_requires_grad(true), w};
  EXPECT_EQ(tessera::parallel::stored_views(w, parameters), 0u);
  const at::Tensor stored = w.t();
  EXPECT_EQ(tessera::parallel::stored_views(w, parameters), 1u);
  EXPECT_EQ(tessera::parallel::stored_views(parameters[1], parameters), 1u);  // flat itself
}

TEST(Managed, replaced_memory_is_noticed) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({3, 4}), v = leaf({3, 4});
  const std::size_t u = materializer.manage(std::vector<at::Tensor>{w});
  EXPECT_FALSE(materializer.storage(u).owns(v));
  at::Tensor(w).set_data(at::ones({3, 4}));
  EXPECT_FALSE(materializer.storage(u).owns(w));
  EXPECT_EQ(managed_storage(w), nullptr);
  EXPECT_EQ(w.sum().item<float>(), 12);
}

TEST(Managed, an_alias_that_outlives_the_storage_says_so) {
  at::Tensor alias;
  {
    DroppingMaterializer materializer;
    const at::Tensor w = leaf({3});
    materializer.manage(std::vector<at::Tensor>{w});
    alias = w.detach();
  }
  EXPECT_EQ(managed_storage(alias), nullptr);
  EXPECT_NE(error_of<std::exception>([&] { (void)(alias + 1); }).find("destroyed"), std::string::npos);
  EXPECT_NE(error_of<std::exception>([&] { (void)alias.data_ptr(); }).find("destroyed"), std::string::npos);
}

TEST(Managed, present_brings_parameters_for_raw_pointers) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4}), v = leaf({4}), plain = at::ones({4}), undefined;
  materializer.manage(std::vector<at::Tensor>{w});
  materializer.manage(std::vector<at::Tensor>{v});
  {
    const tessera::parallel::Materialized materialized({plain, v, w, undefined, w});
    EXPECT_EQ(materializer.entries.back().units, (std::vector<std::size_t>{0, 1}));
    EXPECT_EQ(w.data_ptr<float>()[2], materializer.value(w)[2].item<float>());
    (void)(w + v);
    EXPECT_EQ(v.data_ptr<float>()[0], materializer.value(v)[0].item<float>());
  }
  EXPECT_TRUE(materializer.all_left());
  {
    const tessera::nn::Materialized materialized({&plain, &undefined, nullptr, &w});
    EXPECT_EQ(w.data_ptr<float>()[2], materializer.value(w)[2].item<float>());
  }
  EXPECT_TRUE(materializer.all_left());
  const std::size_t before = materializer.entries.size();
  {
    const tessera::nn::Materialized materialized({&plain, &undefined});
  }
  EXPECT_EQ(materializer.entries.size(), before);
}

/// y = x w, by operators, with the weight saved. Records its inputs.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w) {
    EXPECT_TRUE(is_managed(w) && is_managed(w.t()));
    ctx->save_for_backward({x, w, w.t()});
    return x.mm(w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& g) {
    const auto saved = ctx->get_saved_variables();
    EXPECT_TRUE(is_managed(saved[1]) && is_managed(saved[2]));
    return {g[0].mm(saved[2]), saved[0].t().mm(g[0])};
  }
};

TEST(Managed, the_key_survives_saving_in_a_custom_function) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4, 5}), x = leaf({3, 4});
  x.mm(w).sin().sum().backward();
  const at::Tensor dw = w.grad(), dx = x.grad();
  w.mutable_grad() = at::Tensor(), x.mutable_grad() = at::Tensor();
  materializer.manage(std::vector<at::Tensor>{w});
  Product::apply(x, w).sin().sum().backward();
  EXPECT_TRUE(same_bits(w.grad(), dw) && same_bits(x.grad(), dx));
}

TEST(Managed, other_inputs_are_cast_when_asked) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4, 5}), x = leaf({3, 5}), g = leaf({5}), b = leaf({5});
  const std::size_t u = materializer.manage(std::vector<at::Tensor>{w, g, b}, at::kBFloat16);
  EXPECT_ANY_THROW((void)at::linear(x, w));  // as in any bf16 module
  materializer.storage(u).cast_inputs(true);
  const at::Tensor y = at::linear(x, w);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(same_bits(y.detach(), at::linear(x.detach().to(at::kBFloat16), materializer.value(w))));
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(w.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::layer_norm(x, {5}, g, b).scalar_type(), at::kBFloat16);
  EXPECT_EQ((x * g).scalar_type(), at::kFloat);  // promotes
  EXPECT_EQ(at::mm(x, w.t()).scalar_type(), at::kBFloat16);
  EXPECT_ANY_THROW({
    const at::NoGradGuard no_grad;
    at::Tensor out = at::empty({3, 4});
    at::mm_out(out, x.detach(), w.detach().t());
  });
  EXPECT_TRUE(materializer.all_left());
}

TEST(Managed, operators_on_other_tensors_do_not_pass) {
  DroppingMaterializer materializer;
  const at::Tensor w = leaf({4, 4});
  materializer.manage(std::vector<at::Tensor>{w});
  const at::Tensor y = at::mm(at::randn({4, 4}), w);
  const std::size_t before = materializer.entries.size();
  (void)(y * 2 + at::ones({4, 4})).sum();
  EXPECT_EQ(materializer.entries.size(), before);
}

}  // namespace
