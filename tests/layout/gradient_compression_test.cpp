// --grad_compression as a value: the methods, their settings, and refused texts.
#include <tessera/layout/gradient_compression.h>

#include <gtest/gtest.h>
#include <tessera/base/error.h>

namespace tessera::layout {
namespace {

TEST(GradientCompression, IsRead) {
  EXPECT_EQ(parse_gradient_compression("none").method, CompressionMethod::none);
  EXPECT_EQ(parse_gradient_compression(" bf16 ").method, CompressionMethod::bf16);
  const GradientCompression powersgd =
      parse_gradient_compression("powersgd: rank = 4 , warm_start=false,error_feedback=0,min_rate=1.5");
  EXPECT_EQ(powersgd.method, CompressionMethod::powersgd);
  EXPECT_EQ(powersgd.powersgd.rank, 4);
  EXPECT_FALSE(powersgd.powersgd.warm_start || powersgd.powersgd.error_feedback);
  EXPECT_EQ(powersgd.powersgd.min_rate, 1.5);
  EXPECT_EQ(powersgd.whole_steps(), 1000);
  EXPECT_EQ(parse_gradient_compression("topk").topk_ratio, 0.01);
  EXPECT_EQ(parse_gradient_compression("topk:ratio=1").topk_ratio, 1);
  EXPECT_EQ(parse_gradient_compression("topk:ratio=1").whole_steps(), 0);
  EXPECT_EQ(parse_gradient_compression("onebit:warmup=7").whole_steps(), 7);
}

TEST(GradientCompression, OtherWordsAreRefused) {
  for (const auto& [description, part] :
       std::vector<std::pair<std::string, std::string>>{{"", "the methods are none, fp16"},
                                                        {"powersdg", "did you mean powersgd"},
                                                        {"pf16", "did you mean fp16"},
                                                        {"fp16:rank=2", "no settings"},
                                                        {"powersgd:ranks=2", "did you mean rank"},
                                                        {"powersgd:rank=0", "at least 1"},
                                                        {"powersgd:rank=two", "'two'"},
                                                        {"powersgd:rank", "not NAME=VALUE"},
                                                        {"powersgd:rank=1,rank=2", "twice"},
                                                        {"powersgd:start=-1", "at least 0"},
                                                        {"powersgd:warm_start=maybe", "true or false"},
                                                        {"topk:ratio=0", "above 0"},
                                                        {"topk:ratio=1.5", "at most 1"},
                                                        {"topk:ratio=nan", "above 0"},
                                                        {"topk:", "settings are missing"},
                                                        {"onebit:warmup=1.5", "whole number"},
                                                        {"none:x=1", "none"}}) {
    try {
      parse_gradient_compression(description);
      ADD_FAILURE() << description << " was accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera::layout
