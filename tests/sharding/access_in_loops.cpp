// Small versions of training loops as their authors write them. Only the line that wraps each module is ours.
#include <tests/sharding/access_table.h>

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>

namespace tessera::testing {
namespace {

namespace nn = torch::nn;

void note_weights(Run& run, const std::unique_ptr<Sharded>& wrapper, nn::Module& module) {
  if (wrapper)
    wrapper->visit_parameters([&](const std::string&, const at::Tensor& v) { run.notes.push_back(v.clone()); });
  else
    for (const at::Tensor& p : module.parameters()) run.notes.push_back(p.detach().clone());
}

struct GeneratorImpl : nn::Module {
  nn::ConvTranspose2d conv1{nn::ConvTranspose2dOptions(6, 8, 4).bias(false)};
  nn::BatchNorm2d norm1{8};
  nn::ConvTranspose2d conv2{nn::ConvTranspose2dOptions(8, 1, 4).stride(2).padding(1).bias(false)};
  GeneratorImpl() {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
  }
  at::Tensor forward(const at::Tensor& x) { return at::tanh(conv2(at::relu(norm1(conv1(x))))); }
};
TORCH_MODULE(Generator);

nn::Sequential make_discriminator() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 4, 4).stride(2).padding(1).bias(false)),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(4, 8, 4).stride(2).padding(1).bias(false)), nn::BatchNorm2d(8),
                        nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Conv2d(nn::Conv2dOptions(8, 1, 2).bias(false)), nn::Sigmoid());
}

/// PyTorch's C++ example dcgan. Every process gets the same images, because batch norm's statistics cover only its own
/// batch.
void dcgan(Run& run) {
  Generator generator;
  nn::Sequential discriminator = make_discriminator();
  const auto g = run.wrapper(*generator, [](ShardingOptions& o) { o.wrap = by_class({"ConvTranspose2d"}); });
  const auto d = run.wrapper(*discriminator, [](ShardingOptions& o) { o.wrap = by_class({"Conv2d"}); });
  torch::optim::Adam generator_optimizer(Run::parameters_of(g, *generator),
                                         torch::optim::AdamOptions(2e-4).betas({0.5, 0.5}));
  torch::optim::Adam discriminator_optimizer(Run::parameters_of(d, *discriminator),
                                             torch::optim::AdamOptions(5e-4).betas({0.5, 0.5}));
  at::manual_seed(9);
  for (int step = 0; step < 3; ++step) {
    // Train the discriminator with real images.
    discriminator->zero_grad();
    const at::Tensor real_images = at::randn({6, 1, 8, 8});
    const at::Tensor real_labels = at::empty({6}).uniform_(0.8, 1.0);
    const at::Tensor real_output = discriminator->forward(real_images).reshape(real_labels.sizes());
    const at::Tensor d_loss_real = at::binary_cross_entropy(real_output, real_labels);
    d_loss_real.backward();
    // Train the discriminator with fake images.
    const at::Tensor noise = at::randn({6, 6, 1, 1});
    const at::Tensor fake_images = generator->forward(noise);
    at::Tensor fake_labels = at::zeros({6});
    at::Tensor fake_output = discriminator->forward(fake_images.detach()).reshape(fake_labels.sizes());
    const at::Tensor d_loss_fake = at::binary_cross_entropy(fake_output, fake_labels);
    d_loss_fake.backward();
    discriminator_optimizer.step();
    // Train the generator.
    generator->zero_grad();
    fake_labels.fill_(1);
    fake_output = discriminator->forward(fake_images).reshape(fake_labels.sizes());
    const at::Tensor g_loss = at::binary_cross_entropy(fake_output, fake_labels);
    g_loss.backward();
    generator_optimizer.step();
    run.notes.push_back((d_loss_real + d_loss_fake).detach());
    run.notes.push_back(g_loss.detach());
  }
  note_weights(run, g, *generator);
  note_weights(run, d, *discriminator);
}

struct MnistImpl : nn::Module {
  nn::Conv2d conv1{nn::Conv2dOptions(1, 4, 3)}, conv2{nn::Conv2dOptions(4, 6, 3)};
  nn::Linear fc1{12, 10}, fc2{10, 5};
  MnistImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  at::Tensor forward(at::Tensor x) {
    x = at::relu(at::max_pool2d(conv1->forward(x), 2));
    x = at::relu(conv2->forward(x)).view({-1, 12});
    return at::log_softmax(fc2->forward(at::relu(fc1->forward(x))), 1);
  }
};
TORCH_MODULE(Mnist);

/// PyTorch's C++ example distributed/dist-mnist.
void dist_mnist(Run& run) {
  Mnist model;
  const auto sharded = run.wrapper(*model);
  torch::optim::SGD optimizer(Run::parameters_of(sharded, *model), 0.05);
  for (int step = 0; step < 4; ++step) {
    const Batch all = global_batch(step, 12 * 9);
    const at::Tensor images = all.x.reshape({12, 1, 9, 12}).narrow(3, 0, 10);
    const at::Tensor labels = at::arange(12).remainder(5);
    const Batch mine =
        run.world == nullptr ? Batch{images, labels} : part({images, labels}, run.world->rank(), run.world->size());
    model->zero_grad();
    const at::Tensor prediction = model->forward(mine.x);
    const at::Tensor loss = at::nll_loss(prediction, mine.y);
    loss.backward();
    optimizer.step();
  }
  note_weights(run, sharded, *model);
}

/// WGAN with a gradient penalty; the critic is frozen while the generator learns.
void wgan_gp(Run& run) {
  nn::Sequential generator(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 12));
  nn::Sequential critic(nn::Linear(12, 8), nn::LeakyReLU(), nn::Linear(8, 1));
  const auto g = run.wrapper(*generator), d = run.wrapper(*critic);
  // An epsilon above rounding: the gradient of the critic's last bias cancels, and Adam would turn the rounding residue
  // into steps.
  const auto options = torch::optim::AdamOptions(1e-3).betas({0.5, 0.9}).eps(1e-3);
  torch::optim::Adam optimizer_g(Run::parameters_of(g, *generator), options);
  torch::optim::Adam optimizer_d(Run::parameters_of(d, *critic), options);
  int drawn = 0;
  const auto noise = [&] { return run.batch(100 + drawn++).x; };
  for (int step = 0; step < 3; ++step) {
    for (at::Tensor p : critic->parameters()) p.set_requires_grad(true);
    for (int i = 0; i < 2; ++i) {
      optimizer_d.zero_grad();
      const at::Tensor real = run.batch(10 * step + i).x;
      const at::Tensor fake = generator->forward(noise().narrow(1, 0, 4)).detach();
      const at::Tensor alpha = noise().narrow(1, 0, 1).sigmoid();
      at::Tensor between = (alpha * real + (1 - alpha) * fake).requires_grad_();
      const at::Tensor out = critic->forward(between);
      const at::Tensor gradient = torch::autograd::grad({out}, {between}, {at::ones_like(out)}, /*retain_graph=*/true,
                                                        /*create_graph=*/true)[0];
      const at::Tensor penalty = (gradient.norm(2, 1) - 1).pow(2).mean() * 10;
      const at::Tensor loss = critic->forward(fake).mean() - critic->forward(real).mean() + penalty;
      loss.backward();
      optimizer_d.step();
    }
    for (at::Tensor p : critic->parameters()) p.set_requires_grad(false);
    optimizer_g.zero_grad();
    (-critic->forward(generator->forward(noise().narrow(1, 0, 4))).mean()).backward();
    optimizer_g.step();
  }
  note_weights(run, g, *generator);
  note_weights(run, d, *critic);
}

/// The original WGAN: the critic's weights are clamped after each of its steps, on the local parts.
void wgan_clamped(Run& run) {
  nn::Sequential generator(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 12));
  nn::Sequential critic(nn::Linear(12, 8), nn::LeakyReLU(), nn::Linear(8, 1));
  const auto g = run.wrapper(*generator), d = run.wrapper(*critic);
  torch::optim::RMSprop optimizer_g(Run::parameters_of(g, *generator), 5e-3),
      optimizer_d(Run::parameters_of(d, *critic), 5e-3);
  for (int step = 0; step < 4; ++step) {
    critic->zero_grad();
    const at::Tensor fake = generator->forward(run.batch(step + 50).x.narrow(1, 0, 4));
    (critic->forward(fake.detach()).mean() - critic->forward(run.batch(step).x).mean()).backward();
    optimizer_d.step();
    for (at::Tensor& p : Run::parameters_of(d, *critic)) p.data().clamp_(-0.1, 0.1);
    generator->zero_grad();
    (-critic->forward(fake).mean()).backward();
    optimizer_g.step();
  }
  note_weights(run, g, *generator);
  note_weights(run, d, *critic);
}

struct ActorCriticImpl : nn::Module {
  nn::Linear affine{12, 8}, action_head{8, 2}, value_head{8, 1};
  ActorCriticImpl() {
    register_module("affine", affine);
    register_module("action_head", action_head);
    register_module("value_head", value_head);
  }
  std::pair<at::Tensor, at::Tensor> forward(at::Tensor x) {
    x = at::relu(affine->forward(x));
    return {at::log_softmax(action_head->forward(x), -1), value_head->forward(x)};
  }
};
TORCH_MODULE(ActorCritic);

/// Many forwards, with their results kept for one backward; environments are divided over processes.
void actor_critic(Run& run) {
  ActorCritic model;
  const auto sharded = run.wrapper(*model);
  torch::optim::Adam optimizer(Run::parameters_of(sharded, *model), 1e-2);
  for (int episode = 0; episode < 3; ++episode) {
    std::vector<at::Tensor> log_probs, values, rewards;
    at::Tensor state = run.batch(episode).x;
    for (int t = 0; t < 4; ++t) {
      const auto [log_prob, value] = model->forward(state);
      const at::Tensor action = (state.narrow(1, 0, 1) > 0).to(at::kLong);
      log_probs.push_back(log_prob.gather(1, action));
      values.push_back(value);
      rewards.push_back(state.narrow(1, 1, 1).tanh());
      state = (state * 0.7 + action.to(at::kFloat) * 0.2).detach();
    }
    at::Tensor gain = at::zeros_like(values.back());
    at::Tensor loss = at::zeros({});
    for (int t = 3; t >= 0; --t) {
      gain = rewards[t] + 0.99 * gain;
      const at::Tensor advantage = gain - values[t].detach();
      loss = loss + (-log_probs[t] * advantage).mean() + at::smooth_l1_loss(values[t], gain);
    }
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  note_weights(run, sharded, *model);
}

/// An average of the weights, kept in a second module and evaluated.
void moving_average(Run& run) {
  nn::Sequential model(nn::Linear(12, 8), nn::Tanh(), nn::Linear(8, 5));
  nn::Sequential average(nn::Linear(12, 8), nn::Tanh(), nn::Linear(8, 5));
  const auto update = [&](double decay) {
    const at::NoGradGuard no_grad;
    const auto from = model->parameters(), to = average->parameters();
    for (std::size_t i = 0; i < to.size(); ++i) at::Tensor(to[i]).mul_(decay).add_(from[i], 1 - decay);
  };
  const auto sharded = run.wrapper(*model);
  update(0);
  torch::optim::SGD optimizer(Run::parameters_of(sharded, *model), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    const Batch mine = run.batch(step);
    model->zero_grad();
    at::mse_loss(model->forward(mine.x), mine.y).backward();
    optimizer.step();
    update(0.9);
    const at::NoGradGuard no_grad;
    average->eval();
    run.notes.push_back(average->forward(global_batch(7, 3).x));
    run.notes.push_back(model->forward(global_batch(7, 3).x));
  }
  note_weights(run, sharded, *model);
}

}  // namespace

const std::vector<Access>& accesses_in_loops() {
  static const std::vector<Access> all = {
      {"dcgan", dcgan},
      {"dist-mnist", dist_mnist},
      {"WGAN with a gradient penalty", wgan_gp},
      {"WGAN with clamped weights", wgan_clamped},
      {"actor-critic", actor_critic},
      {"a moving average in a second module", moving_average},
  };
  return all;
}

}  // namespace tessera::testing
