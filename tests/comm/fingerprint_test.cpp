#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/comm/fingerprint.h>
#include <tessera/launch/fleet/rank_list.h>

#include <rapidcheck/gtest.h>

namespace {

using namespace tessera;
using namespace tessera::comm;

RC_GTEST_PROP(Fingerprint, text_and_back, (const Fingerprint& facts)) { RC_ASSERT(from_text(to_text(facts)) == facts); }

RC_GTEST_PROP(Fingerprint, any_text_is_read_or_refused, (const std::string& text)) {
  try {
    from_text(text);
  } catch (const Error&) {
  }
}

RC_GTEST_PROP(Fingerprint, a_text_that_was_cut_is_refused, (const std::string& name, const std::string& value)) {
  const std::string text = to_text({{name, value}});
  const auto length = *rc::gen::inRange<std::size_t>(1, text.size());
  RC_ASSERT_THROWS_AS(from_text(text.substr(0, length)), Error);
}

TEST(Fingerprint, equal_ones_have_no_differences) {
  const Fingerprint facts = {{"seed", "42"}, {"model", "gpt2"}};
  EXPECT_EQ(differences({{0, facts}, {1, facts}, {5, {facts.rbegin(), facts.rend()}}}), std::nullopt);
  EXPECT_EQ(differences({{0, {}}}), std::nullopt);
}

TEST(Fingerprint, a_difference_names_the_fact_its_values_and_their_ranks) {
  const Fingerprint usual = {{"seed", "42"}, {"model", "gpt2"}, {"config", "abc"}};
  const auto text =
      differences({{0, usual}, {1, usual}, {2, usual}, {3, {{"seed", "7"}, {"config", "abc"}}}, {5, usual}});
  EXPECT_EQ(text,
            "seed is '42' on ranks 0-2, 5 but '7' on rank 3; model is 'gpt2' on ranks 0-2, 5 but not given on rank 3");
}

TEST(Fingerprint, many_differences_and_long_values_are_cut) {
  Fingerprint a, b;
  for (int i = 0; i < 20; ++i) {
    a.emplace_back(concat("fact", i), std::string(1000, 'a'));
    b.emplace_back(concat("fact", i), std::string(1000, 'b'));
  }
  const std::string text = differences({{0, a}, {1, b}}).value();
  EXPECT_LT(text.size(), 5000u);
  EXPECT_NE(text.find("and 12 more"), std::string::npos) << text;
}

TEST(Fingerprint, ranks_are_written_as_people_do) {
  EXPECT_EQ(launch::ranks_text({3}), "rank 3");
  EXPECT_EQ(launch::ranks_text({0, 1}), "ranks 0, 1");
  EXPECT_EQ(launch::ranks_text({0, 1, 2, 5, 7, 8, 9, 10}), "ranks 0-2, 5, 7-10");
}

}  // namespace
