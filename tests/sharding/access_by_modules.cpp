#include <tests/sharding/access_table.h>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include <sstream>

namespace tessera::testing {
namespace {

using torch::optim::SGD;
using torch::optim::SGDOptions;

const std::string replaced = "was replaced";
const std::string whole_parameter = "would change a whole parameter";

void train_plainly(Run& run) {
  SGD optimizer(run.parameters(), SGDOptions(0.1).momentum(0.9));
  train(run, optimizer);
}

/// `first` calls `act` before the module is wrapped and trained; `then` calls it between two training runs.
std::function<void(Run&)> first(std::function<void(Run&)> act) {
  return [act = std::move(act)](Run& run) {
    act(run);
    run.wrap();
    train_plainly(run);
  };
}
std::function<void(Run&)> then(std::function<void(Run&)> act) {
  return [act = std::move(act)](Run& run) {
    run.wrap();
    train_plainly(run);
    act(run);
    train_plainly(run);
  };
}

std::vector<Access> values() {
  using torch::nn::utils::parameters_to_vector;
  using torch::nn::utils::vector_to_parameters;
  return {
      {"parameters_to_vector of module->parameters()",
       then([](Run& run) { run.notes.push_back(parameters_to_vector(run.net->parameters()).detach().clone()); })},
      {"vector_to_parameters into module->parameters()", then([](Run& run) {
         const at::Tensor all = parameters_to_vector(run.net->parameters()).detach() * 0.5;
         vector_to_parameters(all, run.net->parameters());
       }),
       "", replaced},
      {"vector_to_parameters, then restore()",
       [](Run& run) {
         run.wrap();
         const at::Tensor all = parameters_to_vector(run.net->parameters()).detach() * 0.5;
         vector_to_parameters(all, run.net->parameters());
         if (run.sharded) run.sharded->restore();
         run.sharded.reset();
       },
       "", replaced},
      {"vector_to_parameters into sharded.parameters()", then([](Run& run) {
         const at::Tensor all = parameters_to_vector(run.parameters()).detach() * 0.5;
         vector_to_parameters(all, run.parameters());
       }),
       "", "the memory of this rank's part"},
      {"set_data() with the same values on every rank",
       then([](Run& run) { at::Tensor(run.net->scale).set_data(run.net->scale.detach() * 0.5); }), "", replaced},
      {"set_data() that depends on the rank's data",
       [](Run& run) {
         run.wrap();
         train_plainly(run);
         at::Tensor(run.net->scale).set_data(at::ones({5}) * run.batch(0).x[0][0].item<float>());
         train_plainly(run);
       },
       "replaced", replaced},
      {"initialisation that depends on the rank's data, by data()",
       [](Run& run) {
         run.wrap();
         run.net->scale.data().copy_(run.batch(0).x.std().expand({5}));
         train_plainly(run);
       },
       "scale", whole_parameter},
      {"a parameter changed in place under NoGradGuard", then([](Run& run) {
         const at::NoGradGuard no_grad;
         run.net->first->weight.mul_(0.9);
       }),
       "", whole_parameter},
      {"a parameter changed in an unsharded scope", then([](Run& run) {
         std::optional<Sharded::Unsharded> scope;
         if (run.sharded) scope.emplace(*run.sharded, Sharded::UnshardedOptions{.write_back = true});
         const at::NoGradGuard no_grad;
         run.net->first->weight.mul_(0.9);
       })},
      {"local parts changed in place", then([](Run& run) {
         for (const at::Tensor& p : run.parameters()) p.data().mul_(0.9);
       })},
      {"WGAN's clamp on sharded.parameters()", then([](Run& run) {
         for (const at::Tensor& p : run.parameters()) p.data().clamp_(-0.1, 0.1);
       })},
      {"WGAN's clamp on module->parameters()", then([](Run& run) {
         for (const at::Tensor& p : run.net->parameters()) p.data().clamp_(-0.1, 0.1);
       }),
       "", whole_parameter},
      {"norms of parameters", then([](Run& run) {
         for (const at::Tensor& p : run.net->parameters()) run.notes.push_back(p.norm().detach());
       })},
      {"a penalty on the norm of parameters in the loss",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         for (int step = 0; step < 3; ++step) {
           optimizer.zero_grad();
           at::Tensor loss = run.loss(step);
           for (const at::Tensor& p : run.net->parameters()) loss = loss + 0.01 * p.square().sum();
           loss.backward();
           optimizer.step();
         }
       }},
      {"data_ptr()",
       then([](Run& run) { run.notes.push_back(at::full({}, run.net->first->weight.data_ptr<float>()[3])); }), "",
       "currently not in memory"},
      {"data_ptr() in an unsharded scope", then([](Run& run) {
         std::optional<Sharded::Unsharded> scope;
         if (run.sharded) scope.emplace(*run.sharded, Sharded::UnshardedOptions{});
         run.notes.push_back(at::full({}, run.net->first->weight.data_ptr<float>()[3]));
       })},
  };
}

std::vector<Access> averages() {
  return {
      {"EMA of sharded.parameters()",
       [](Run& run) {
         run.wrap();
         std::vector<at::Tensor> average;
         for (const at::Tensor& p : run.parameters()) average.push_back(p.detach().clone());
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         train(run, optimizer, [&](int) {
           const at::NoGradGuard no_grad;
           for (std::size_t i = 0; i < average.size(); ++i) average[i].mul_(0.9).add_(run.parameters()[i], 0.1);
         });
         for (std::size_t i = 0; i < average.size(); ++i) run.notes.push_back(run.whole(i, average[i]));
       }},
      {"EMA of module->parameters()",
       [](Run& run) {
         run.wrap();
         std::vector<at::Tensor> average;
         for (const at::Tensor& p : run.net->parameters()) average.push_back(p.detach().clone());
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         train(run, optimizer, [&](int) {
           const at::NoGradGuard no_grad;
           for (std::size_t i = 0; i < average.size(); ++i) average[i].mul_(0.9).add_(run.net->parameters()[i], 0.1);
         });
         run.notes = average;
       }},
      {"a target network, copied",
       [](Run& run) {
         NetImpl target;
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         train(run, optimizer, [&](int) {
           const at::NoGradGuard no_grad;
           const auto from = run.net->parameters(), to = target.parameters();
           for (std::size_t i = 0; i < to.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
           run.notes.push_back(target.forward(global_batch(5, 4).x));
         });
       }},
      {"averages copied into the module by copy_()", then([](Run& run) {
         const at::NoGradGuard no_grad;
         for (at::Tensor p : run.net->parameters()) p.copy_(at::ones_like(p) * 0.1);
       }),
       "", whole_parameter},
      {"averages put back by load_parameters()", then([](Run& run) {
         const auto of = [&](const std::string& name) { return at::full_like(run.net->named_parameters()[name], 0.1); };
         const at::NoGradGuard no_grad;
         if (run.sharded) return run.sharded->load_parameters(of);
         for (auto& p : run.net->named_parameters()) p.value().copy_(of(p.key()));
       })},
  };
}

std::string saved(torch::nn::Module& module) {
  std::ostringstream stream;
  torch::serialize::OutputArchive archive;
  module.save(archive);
  archive.save_to(stream);
  return stream.str();
}
void load(torch::nn::Module& module, const std::string& bytes) {
  std::istringstream stream(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  module.load(archive);
}

std::vector<Access> modules() {
  return {
      {"apply() that looks", then([](Run& run) {
         int count = 0;
         run.net->apply([&](torch::nn::Module&) { ++count; });
         run.notes.push_back(at::full({}, count));
       })},
      {"apply() that initialises, before wrapping", first([](Run& run) {
         const at::NoGradGuard no_grad;
         run.net->apply([](torch::nn::Module& m) {
           if (auto* linear = m.as<torch::nn::Linear>()) linear->weight.normal_(0, 0.02);
         });
       })},
      {"apply() that initialises, after wrapping",
       [](Run& run) {
         run.wrap();
         const at::NoGradGuard no_grad;
         run.net->apply([](torch::nn::Module& m) {
           if (auto* linear = m.as<torch::nn::Linear>()) linear->weight.normal_(0, 0.02);
         });
         const at::AutoGradMode grad(true);
         train_plainly(run);
       },
       "", whole_parameter},
      {"to() what it is", then([](Run& run) { run.net->to(at::kFloat), run.net->to(at::kCPU); })},
      {"to() another type after wrapping",
       [](Run& run) {
         run.wrap();
         run.net->to(at::kDouble);
         run.net->forward(run.batch(0).x.to(at::kDouble)).sum().backward();
       },
       "when the module was wrapped", replaced},
      {"clone()", then([](Run& run) {
         const auto copy = std::dynamic_pointer_cast<NetImpl>(run.net->clone());
         for (const at::Tensor& p : copy->parameters()) run.notes.push_back(p.detach());
       })},
      {"train() and eval()", then([](Run& run) {
         run.net->eval();
         {
           const at::NoGradGuard no_grad;
           run.notes.push_back(run.net->forward(global_batch(5, 4).x));
         }
         run.net->train();
       })},
      {"module.save()", then([](Run& run) { run.notes.push_back(at::full({}, saved(*run.net).size())); }), "",
       "currently not in memory"},
      {"module.save() in an unsharded scope", then([](Run& run) {
         std::string bytes;
         {
           std::optional<Sharded::Unsharded> scope;
           if (run.sharded) scope.emplace(*run.sharded, Sharded::UnshardedOptions{});
           bytes = saved(*run.net);
         }
         NetImpl copy;
         load(copy, bytes);
         for (const at::Tensor& p : copy.parameters()) run.notes.push_back(p.detach());
       })},
      {"clone().save()", then([](Run& run) {
         NetImpl copy;
         load(copy, saved(*run.net->clone()));
         for (const at::Tensor& p : copy.parameters()) run.notes.push_back(p.detach());
       })},
      {"module.load() before wrapping", first([](Run& run) {
         NetImpl other;
         load(*run.net, saved(other));
       })},
      {"module.load() after wrapping", then([](Run& run) {
         NetImpl other;
         load(*run.net, saved(other));
       }),
       "", "load_parameters()"},
      {"an optimizer saved and loaded",
       [](Run& run) {
         run.wrap();
         torch::optim::Adam before(run.parameters(), torch::optim::AdamOptions(1e-2));
         train(run, before);
         std::ostringstream stream;
         torch::serialize::OutputArchive out;
         before.save(out);
         out.save_to(stream);
         std::istringstream back(stream.str());
         torch::serialize::InputArchive in;
         in.load_from(back);
         torch::optim::Adam after(run.parameters(), torch::optim::AdamOptions(1e-2));
         after.load(in);
         train(run, after);
       }},
      {"restore() and ordinary training",
       [](Run& run) {
         run.wrap();
         train_plainly(run);
         if (run.sharded) run.sharded->restore();
         run.sharded.reset();
         run.notes.push_back(run.net->forward(global_batch(5, 4).x).detach());
         const Batch all = global_batch(0, 12);
         run.net->zero_grad();
         (run.net->forward(all.x) - all.y).square().mean().backward();
         run.notes.push_back(run.net->scale.grad().clone());
       }},
  };
}

std::vector<Access> freezing() {
  return {
      {"frozen before wrapping", first([](Run& run) { run.net->first->weight.requires_grad_(false); })},
      {"frozen after wrapping", then([](Run& run) { run.net->scale.requires_grad_(false); }), "no gradient to"},
      {"frozen after wrapping, with find_unused_parameters",
       [](Run& run) {
         run.wrap([](ShardingOptions& o) { o.find_unused_parameters = true; });
         train_plainly(run);
         run.net->scale.requires_grad_(false);
         train_plainly(run);
       }},
      {"unfrozen after wrapping",
       [](Run& run) {
         run.net->scale.requires_grad_(false);
         run.wrap();
         run.net->scale.requires_grad_(true);
         train_plainly(run);
       },
       "was frozen when the module was wrapped"},
      {"requires_grad off for an evaluation", then([](Run& run) {
         for (at::Tensor p : run.net->parameters()) p.requires_grad_(false);
         run.notes.push_back(run.net->forward(global_batch(5, 4).x));
         for (at::Tensor p : run.net->parameters()) p.requires_grad_(true);
       })},
      {"a parameter that no loss uses",
       [](Run& run) {
         run.wrap();
         run.net->forward(run.batch(0).x);
         run.net->first->forward(run.batch(0).x).sum().backward();
       },
       "no gradient to"},
  };
}

std::vector<Access> hooks_and_late() {
  return {
      {"a hook on a parameter, before wrapping",
       first([](Run& run) { run.net->scale.register_hook([](const at::Tensor& g) { return g * 2; }); })},
      {"a hook on a parameter, after wrapping",
       then([](Run& run) { run.net->first->weight.register_hook([](const at::Tensor& g) { return g * 2; }); })},
      {"a hook on an activation", first([](Run& run) {
         run.net->in_forward = [](const at::Tensor& h) {
           h.register_hook([](const at::Tensor& g) { return g * 2; });
           return h;
         };
       })},
      {"register_parameter after wrapping",
       [](Run& run) {
         run.wrap();
         const at::Tensor late = run.net->register_parameter("late", at::ones({8}));
         run.net->in_forward = [late](const at::Tensor& h) { return h * late; };
         train_plainly(run);
       },
       "'late' was registered after the module was wrapped"},
      {"a layer made in the first forward",
       [](Run& run) {
         run.wrap();
         torch::nn::Linear made{nullptr};
         run.net->in_forward = [&](const at::Tensor& h) {
           if (made.is_empty()) made = run.net->register_module("made", torch::nn::Linear(8, 8));
           return made->forward(h);
         };
         train_plainly(run);
       },
       "'made.weight' was registered after the module was wrapped"},
      {"a layer made in a forward before wrapping", first([](Run& run) {
         auto made = std::make_shared<torch::nn::Linear>(nullptr);
         run.net->in_forward = [made, &run](const at::Tensor& h) {
           if (made->is_empty()) *made = run.net->register_module("made", torch::nn::Linear(8, 8));
           return (*made)->forward(h);
         };
         const at::NoGradGuard no_grad;
         run.loss(0);
       })},
      {"replace_module after wrapping",
       [](Run& run) {
         run.wrap();
         run.net->second = run.net->replace_module("second", torch::nn::Linear(8, 5));
         train_plainly(run);
       },
       "was registered after the module was wrapped"},
      {"a buffer registered after wrapping", then([](Run& run) {
         const at::Tensor offset = run.net->register_buffer("offset", at::full({8}, 0.1));
         run.net->in_forward = [offset](const at::Tensor& h) { return h + offset; };
       })},
      {"a frozen parameter registered after wrapping", then([](Run& run) {
         const at::Tensor late = run.net->register_parameter("late", at::full({8}, 0.5), /*requires_grad=*/false);
         run.net->in_forward = [late](const at::Tensor& h) { return h * late; };
       })},
      {"sparse gradients",
       [](Run& run) {
         auto table =
             run.net->register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 8).sparse(true)));
         run.net->in_forward = [table](const at::Tensor& h) mutable {
           return h + table->forward(at::arange(h.size(0)).remainder(4));
         };
         run.wrap();
         train_plainly(run);
       },
       "is sparse"},
      {"a complex parameter",
       [](Run& run) {
         run.net->register_parameter("phase", at::ones({3}, at::kComplexFloat));
         run.wrap();
       },
       "ComplexFloat"},
  };
}

std::vector<Access> sharing() {
  return {
      {"two wrapped modules in one loss",
       [](Run& run) {
         auto other = std::make_shared<NetImpl>();
         run.wrap();
         const auto second = run.wrapper(*other);
         SGD a(run.parameters(), SGDOptions(0.1)), b(Run::parameters_of(second, *other), SGDOptions(0.1));
         for (int step = 0; step < 3; ++step) {
           run.net->zero_grad();
           other->zero_grad();
           const Batch mine = run.batch(step);
           (run.net->forward(mine.x) * other->forward(mine.x) - mine.y).square().mean().backward();
           a.step();
           b.step();
         }
       }},
      {"two wrapped modules that share a layer",
       [](Run& run) {
         auto other = std::make_shared<NetImpl>();
         other->first = other->replace_module("first", run.net->first);
         run.wrap();
         const auto second = run.wrapper(*other);
       },
       "already wrapped"},
      {"one module wrapped twice",
       [](Run& run) {
         run.wrap();
         const auto second = run.wrapper(*run.net);
       },
       "already wrapped"},
      {"a weight under two names",
       first([](Run& run) { run.net->register_parameter("tied", run.net->second->weight); })},
      {"a module under two names", first([](Run& run) {
         run.net->register_module("again", run.net->first);
         run.net->in_forward = [&run](const at::Tensor& h) {
           return at::tanh(run.net->first->forward(at::cat({h, h.narrow(1, 0, 4)}, 1)));
         };
       })},
      {"a view of a parameter, made in forward", first([](Run& run) {
         run.net->in_forward = [&run](const at::Tensor& h) {
           return h.matmul(run.net->second->weight.t()).sum(1, true) + h;
         };
       })},
      {"a view of a parameter, stored in the constructor",
       [](Run& run) {
         const at::Tensor stored = run.net->second->weight.t();
         run.net->in_forward = [stored](const at::Tensor& h) { return h.matmul(stored).sum(1, true) + h; };
         run.wrap();
         train_plainly(run);
       },
       "", "there is a view of parameter 'second.weight'"},
      {"detach() in forward", first([](Run& run) {
         run.net->in_forward = [&run](const at::Tensor& h) { return h * run.net->scale.detach().sum(); };
       })},
      {"a module that lives on after its wrapper, without restore()",
       [](Run& run) {
         run.wrap();
         const at::Tensor y = run.net->forward(global_batch(5, 4).x).detach();
         run.sharded.reset();
         if (run.world == nullptr || run.strategy == "ddp") return;
         const at::Tensor after = run.net->forward(global_batch(5, 4).x).detach();
         if (after.isnan().all().item<bool>()) throw Error("NaN, which is no value");
       },
       "", "NaN, which is no value"},
  };
}

}  // namespace

const std::vector<Access>& accesses_by_modules() {
  static const std::vector<Access> all = [] {
    std::vector<Access> rows;
    for (auto& some : {values(), averages(), modules(), freezing(), hooks_and_late(), sharing()})
      rows.insert(rows.end(), some.begin(), some.end());
    return rows;
  }();
  return all;
}

}  // namespace tessera::testing
