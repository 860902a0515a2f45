#include <tessera/models/vision/llava.h>

#include <ATen/ATen.h>

#include <tessera/architectures/config_value.h>
#include <tessera/architectures/vision.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <array>
#include <string_view>
#include <utility>

namespace tessera::models {
using architectures::given, architectures::require_object;
namespace {

constexpr std::string_view decoder = "language_model.";

std::array<float, 3> three(const Value& json, const char* key, const std::array<float, 3>& otherwise) {
  const Value* const list = given(json, key);
  if (!list) return otherwise;
  if (!list->is_array() || list->items().size() != 3)
    throw InputError(concat(list->where().str(), ": ", key, " must be three numbers, of red, green and blue"));
  std::array<float, 3> numbers{};
  for (std::size_t i = 0; i < 3; ++i) numbers[i] = static_cast<float>(list->items()[i].as_real());
  return numbers;
}

}  // namespace

LlavaProjector::LlavaProjector(const ModelSpec& spec) : activation(activation_of(spec.vision->activation)) {
  const architectures::Vision& v = *spec.vision;
  for (std::int64_t i = 0; i < v.projections; ++i)
    maps.push_back(register_module(concat("linear_", i + 1), std::make_shared<Linear>(i == 0 ? v.hidden : spec.hidden,
                                                                                      spec.hidden, v.projector_bias)));
}

at::Tensor LlavaProjector::forward(const at::Tensor& x) {
  at::Tensor y = x;
  for (std::size_t i = 0; i + 1 < maps.size(); ++i) y = activated(activation, maps[i]->project(y, {}), maps[i]->bias);
  return maps.back()->forward(y, {});
}

Llava::Llava(const Value& hf_config, std::optional<std::uint64_t> seed) : CausalLm(hf_config) {
  hf_config_.set("architectures", Value::make_array({Value::of("LlavaForConditionalGeneration")}));
  vision_tower = register_module("vision_tower", std::make_shared<ClipVisionModel>(vision()));
  language_model = std::make_shared<Llama>(architectures::decoder_config(hf_config), seed);
  multi_modal_projector = register_module("multi_modal_projector", std::make_shared<LlavaProjector>(spec()));
  register_module("language_model", language_model);
  if (seed) initialise(*seed);
  for (at::Tensor& parameter : vision_tower->parameters()) parameter.set_requires_grad(false);
  // OpenAI's values, also CLIPImageProcessor's defaults
  input_ = {.token = vision().image_token,
            .tokens = vision().tokens(),
            .side = vision().side,
            .mean = {0.48145466F, 0.4578275F, 0.40821073F},
            .deviation = {0.26862954F, 0.26130258F, 0.27577711F}};
}

void Llava::initialise(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    const std::string& name = item.key();
    if (name.starts_with(decoder)) continue;
    const bool tower = name.starts_with("vision_tower.");
    if (item.value().dim() > 1 || name.ends_with("class_embedding"))
      normal_by_name(item.value(), tower ? vision().initializer_range : vision().projector_range, seed, name);
    else
      item.value().fill_(name.ends_with("bias") ? 0 : 1);
  }
}

at::Tensor Llava::features(const at::Tensor& pixels) {
  const at::Tensor all = vision_tower->forward(pixels, vision().blocks);
  return multi_modal_projector->forward(vision().with_class ? all : all.slice(1, 1));
}

at::Tensor Llava::hidden(const at::Tensor& ids, ForwardContext context) {
  if (context.part)
    throw InputError("context parallelism is not supported for models with image input: use --cp_size 1");
  const at::Tensor is_image = ids.eq(vision().image_token);
  const at::Tensor words = ids.masked_fill(is_image, 0);
  const at::Tensor places = is_image.flatten().nonzero().squeeze(1);
  const std::int64_t images = context.images.defined() ? context.images.size(0) : 0;
  if (context.cache && places.size(0) > 0)
    throw InputError(concat("the text to be continued has ", places.size(0), " image tokens (id ", vision().image_token,
                            "): texts with images cannot be continued; remove them"));
  if (places.size(0) != images * vision().tokens())
    throw InputError(concat("a batch has ", places.size(0), " image tokens (id ", vision().image_token, ") and ",
                            images, " images, which take ", vision().tokens(),
                            " tokens each: ", images * vision().tokens(),
                            " are needed; rows may have been truncated inside an image (--max_seq_length)"));
  if (!context.cache) {
    const std::int64_t side = vision().side;
    const at::Tensor pixels = images > 0 ? context.images.to(ids.device())
                                         : at::zeros({1, 3, side, side}, at::TensorOptions().device(ids.device()));
    const at::Tensor rows = features(pixels).flatten(0, 1);
    context.features = images > 0 ? rows : rows.slice(0, 0, 0);
    context.feature_places = places;
  }
  context.images = at::Tensor();
  if (context.runner)  // gives the decoder's blocks the names that they have in this model
    context.runner = std::make_shared<const PartRunner>(
        [runner = context.runner](const ModelPart& part, const PartFunction& function, const at::Tensor& x) {
          return (*runner)({part.kind, part.block, concat(decoder, part.name)}, function, x);
        });
  return language_model->model->forward(words, std::move(context));
}

const at::Tensor& Llava::head() const {
  const auto& m = *language_model;
  return m.lm_head ? m.lm_head->weight : m.model->embed_tokens->weight;
}

std::vector<ModelPart> Llava::parts() const {
  std::vector<ModelPart> all = language_model->parts();
  for (ModelPart& part : all) part.name = concat(decoder, part.name);
  return all;
}

void Llava::read_preprocessor(const Value& json) {
  require_object(json);
  data::ImageInput read = input_;
  read.mean = three(json, "image_mean", read.mean);
  read.deviation = three(json, "image_std", read.deviation);
  for (const float deviation : read.deviation)
    if (!(deviation > 0)) throw InputError(concat(json.at("image_std").where().str(), ": image_std must be above 0"));
  const Value* const crop = given(json, "crop_size");
  for (const char* key : {"height", "width"}) {
    const Value* const side = crop && crop->is_object() ? given(*crop, key) : crop;
    if (side && side->as_int() != read.side)
      throw InputError(concat(side->where().str(), ": crop_size ", side->as_int(), ", but the vision tower expects ",
                              read.side, " pixels per side: set it to ", read.side));
  }
  input_ = read;
}

Value Llava::preprocessor() const {
  const auto numbers = [](const std::array<float, 3>& values) {
    std::vector<Value> all;
    // enough digits to distinguish a float from its neighbours
    for (const float value : values) all.push_back(Value::of(parse_real(format_real(value, 9)).value_or(value)));
    return Value::make_array(std::move(all));
  };
  const Value side = Value::of(input_.side), yes = Value::of(true);
  return Value::make_object({{"image_processor_type", Value::of("CLIPImageProcessor")},
                             {"do_convert_rgb", yes},
                             {"do_resize", yes},
                             {"size", Value::make_object({{"shortest_edge", side}})},
                             {"resample", Value::of(std::int64_t{3})},  // bicubic
                             {"do_center_crop", yes},
                             {"crop_size", Value::make_object({{"height", side}, {"width", side}})},
                             {"do_rescale", yes},
                             {"rescale_factor", Value::of(1.0 / 255)},
                             {"do_normalize", yes},
                             {"image_mean", numbers(input_.mean)},
                             {"image_std", numbers(input_.deviation)}});
}

}  // namespace tessera::models
