// Ranks agree on the newest complete checkpoint. Here ranks are threads.

#include <tessera/checkpoint/choose.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/format/manifest/manifest.h>
#include <tests/checkpoint/examiners.h>
#include <tests/checkpoint/saved.h>

#include <ATen/ATen.h>

namespace tessera::checkpoint {
namespace {

class Choose : public ::testing::Test {
 protected:
  void save(std::int64_t step, bool model_only = false) const {
    RunState state;
    state.step = step;
    state.model_only = model_only;
    save_checkpoint(out(), {{"h.0.weight", at::randn({300, 7})}, {"h.1.weight", at::randn({5})}},
                    Value::make_object({{"model_type", Value::of("gpt2")}}), nullptr, state,
                    {{"exp_avg.h.0.weight", at::randn({300, 7})}}, 0);
  }
  const std::string& out() const { return folder_.path(); }
  std::string at_step(std::int64_t step) const { return path_join(out(), concat("checkpoint-", step)); }
  void flip(const std::string& path, std::size_t at) const {
    std::string bytes = read_file(path);
    bytes[at % bytes.size()] ^= 16;
    write_file_atomically(path, bytes);
  }
  /// The choice of all ranks, which must be the same.
  std::string choose(int ranks) const {
    const auto found = on_ranks(ranks, [&](const Ranks& here) {
      // only rank 0's list counts
      return choose_newest(here.rank == 0 ? step_folders(out()) : std::vector<StepFolder>(), here).value_or("none");
    });
    EXPECT_EQ(std::count(found.begin(), found.end(), found[0]), ranks);
    return found[0];
  }
  std::string named(int ranks, const std::string& folder) const {
    const auto found = on_ranks(ranks, [&](const Ranks& here) {
      const Finding finding = examine(folder, here);
      return finding.kind == Finding::Kind::whole ? "whole" : "error: " + named_but_not_whole(folder, finding, here);
    });
    EXPECT_EQ(std::count(found.begin(), found.end(), found[0]), ranks);
    return found[0];
  }

  TemporaryFolder folder_;
  log::Quiet quiet_{log::Level::error};  // warnings would drown the test's output
};

TEST_F(Choose, TheNewestWholeOne) {
  for (const int ranks : {1, 2, 3}) {
    EXPECT_EQ(choose(ranks), "none");
    save(9);
    save(10);
    EXPECT_EQ(choose(ranks), at_step(10)) << ranks << " ranks";
    remove_tree(at_step(9));
    remove_tree(at_step(10));
  }
}

TEST_F(Choose, ADamagedOneIsSetAsideWhateverFileItIs) {
  for (const int ranks : {1, 2, 4}) {
    save(1);
    save(2);
    for (const std::string& name : list_folder(at_step(2))) {
      SCOPED_TRACE(concat(ranks, " ranks, ", name));
      save(2);
      flip(path_join(at_step(2), name), 1234567);
      EXPECT_EQ(examine(at_step(2), {}).kind, Finding::Kind::damaged);
      EXPECT_NE(examine(at_step(2), {}).text.find(name), std::string::npos) << examine(at_step(2), {}).text;
      EXPECT_EQ(choose(ranks), at_step(1));
      EXPECT_EQ(list_folder(out()), (std::vector<std::string>{"checkpoint-1", "checkpoint-2.damaged"}));
    }
  }
  // The folder is not a checkpoint any more, so pruning does not touch it.
  EXPECT_EQ(step_folders(out()).size(), 1u);
  save(3);
  prune_step_folders(out(), 3, 1);
  EXPECT_EQ(list_folder(out()), (std::vector<std::string>{"checkpoint-2.damaged", "checkpoint-3"}));
}

TEST_F(Choose, TheDamagedTensorIsNamed) {
  save(1);
  const std::string path = path_join(at_step(1), "optimizer.safetensors");
  flip(path, read_file(path).size() - 9);
  for (const int ranks : {1, 3}) {
    const std::string text = named(ranks, at_step(1));
    for (const char* part : {"error: ", "checkpoint-1", "optimizer.safetensors", "exp_avg.h.0.weight",
                             "the same folder has no whole checkpoint"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
  EXPECT_TRUE(path_exists(at_step(1))) << "a folder that the user named is not renamed";
}

TEST_F(Choose, ForANamedDamagedOneTheNewestWholeOneIsToldOf) {
  for (const std::int64_t step : {1, 2, 3, 4}) save(step);
  flip(path_join(at_step(4), "model.safetensors"), 900);
  flip(path_join(at_step(3), "config.json"), 5);
  for (const int ranks : {1, 2}) {
    const std::string text = named(ranks, at_step(3));
    EXPECT_NE(text.find("checkpoint-3: config.json"), std::string::npos) << text;
    EXPECT_NE(text.find("the newest whole checkpoint in the same folder is " + at_step(2)), std::string::npos) << text;
  }
  EXPECT_EQ(named(2, at_step(1)), "whole");
  EXPECT_EQ(list_folder(out()).size(), 4u);
}

TEST_F(Choose, WhatIsNotDamagedIsPassedOverAndStays) {
  save(5);
  save(6, /*model_only=*/true);
  make_folders(at_step(7));  // no manifest: incomplete, or not ours
  EXPECT_EQ(choose(2), at_step(5));
  EXPECT_EQ(list_folder(out()), (std::vector<std::string>{"checkpoint-5", "checkpoint-6", "checkpoint-7"}));
  EXPECT_NE(named(2, at_step(6)).find("--save_only_model"), std::string::npos);
  EXPECT_NE(named(2, at_step(7)).find("no manifest.json"), std::string::npos);
  EXPECT_NE(named(1, at_step(8)).find("no such checkpoint folder"), std::string::npos);
}

TEST_F(Choose, AnOlderDamagedOneOfThatNameIsReplaced) {
  make_folders(path_join(out(), "checkpoint-2.damaged"));
  write_file_atomically(path_join(out(), "checkpoint-2.damaged/old.json"), "{}");
  save(2);
  flip(path_join(at_step(2), "manifest.json"), 40);
  EXPECT_EQ(choose(1), "none");
  EXPECT_FALSE(path_exists(path_join(out(), "checkpoint-2.damaged/old.json")));
  EXPECT_TRUE(path_exists(path_join(out(), "checkpoint-2.damaged/config.json")));
}

TEST_F(Choose, RanksThatSeeDifferentFoldersAreToldAndNothingIsSetAside) {
  save(1);
  const TemporaryFolder elsewhere;  // another host's folder, without the checkpoint
  const auto found = on_ranks(3, [&](const Ranks& here) {
    const std::string folder = here.rank == 2 ? path_join(elsewhere.path(), "checkpoint-1") : at_step(1);
    const Finding finding = examine(folder, here);
    EXPECT_EQ(finding.kind, Finding::Kind::not_shared);
    return finding.text.substr(finding.text.find(": "));
  });
  EXPECT_NE(found[0].find("rank 0 and rank 2 do not see the same folder"), std::string::npos) << found[0];
  EXPECT_EQ(found[0], found[2]);
  EXPECT_TRUE(path_exists(at_step(1)));
}

// Every byte of a checkpoint is assigned to a rank: a flipped bit anywhere is found, whichever rank has that share.
TEST_F(Choose, AnyFlippedBitIsFoundByEveryNumberOfRanks) {
  save(1);
  unsigned where = 1;
  for (int round = 0; round < 40; ++round) {
    const auto names = list_folder(at_step(1));
    where = where * 1664525u + 1013904223u;
    const std::string path = path_join(at_step(1), names[where % names.size()]), good = read_file(path);
    flip(path, where >> 4);
    const int ranks = 1 + round % 4;
    EXPECT_NE(named(ranks, at_step(1)), "whole") << path << " with " << ranks << " ranks";
    write_file_atomically(path, good);
    EXPECT_EQ(named(ranks, at_step(1)), "whole");
  }
}

// Loaded data are verified by the rank that loaded them, whatever each rank loads; no tensor is read twice.
TEST_F(Choose, AnExaminationKnowsWhatWasLoaded) {
  save(1);
  for (const int ranks : {1, 2, 3})
    for (const bool whole : {false, true}) {
      const auto told = on_ranks(ranks, [&](const Ranks& here) {
        Examination examination(at_step(1), here);
        load_part(at_step(1), here, examination.sums(), whole);
        const Finding finding = examination.finish();
        EXPECT_EQ(finding.kind, Finding::Kind::whole) << finding.text;
        const format::ReadSums& sums = *examination.sums();
        std::uint64_t unread = 0;
        for (std::size_t i = 0; i < sums.manifest().files.size(); ++i) {
          const format::ManifestFile& file = sums.manifest().files[i];
          if (!file.name.ends_with(".safetensors")) continue;
          EXPECT_EQ(file.digest.chunks.size(), 1u);
          const auto pieces = sums.chunk(i, 0).pieces;
          EXPECT_EQ(pieces.size(), 1u) << file.name;
          EXPECT_EQ(pieces.at(0).end, file.digest.size);
          unread += pieces.at(0).begin - format::SafetensorsFile(path_join(at_step(1), file.name)).data_begin();
        }
        EXPECT_EQ(unread, 0u);  // but headers
        return sums.told();
      });
      EXPECT_EQ(std::count(told.begin(), told.end(), told[0]), ranks);
    }
}

TEST_F(Choose, AnExaminationFindsWhatIsDamagedWhereverItLies) {
  save(1);
  for (const std::string& name : list_folder(at_step(1)))
    for (const std::size_t at : {3u, 1234567u}) {
      const std::string path = path_join(at_step(1), name), good = read_file(path);
      const auto found = on_ranks(2, [&](const Ranks& here) {
        Examination examination(at_step(1), here);
        if (here.rank == 0) flip(path, at);  // after the small files were checked
        here.gather("");
        try {
          load_part(at_step(1), here, examination.sums());
        } catch (const Error&) {  // an invalid header or index
        }
        const Finding finding = examination.finish();
        EXPECT_EQ(finding.kind, Finding::Kind::damaged) << name;
        return finding.text;
      });
      EXPECT_EQ(found[0], found[1]);
      EXPECT_NE(found[0].find(name), std::string::npos) << found[0];
      write_file_atomically(path, good);
    }
}

// A bit flipped on the way into one rank's memory is found, although the file is intact.
TEST_F(Choose, ABitThatIsWrongInMemoryOnlyIsFound) {
  save(1);
  const auto found = on_ranks(3, [&](const Ranks& here) {
    Examination examination(at_step(1), here);
    const format::ReadSums& sums = *examination.sums();
    const std::string path = path_join(at_step(1), "model.safetensors");
    std::string bytes = read_file(path);
    if (here.rank == 1) bytes[bytes.size() - 3] ^= 1;
    format::ReadRun run(examination.sums().get(), sums.file_at(path).value(), 0);
    run.take(std::as_bytes(std::span(bytes)));
    run.end();
    return examination.finish().text;
  });
  for (const std::string& text : found)
    EXPECT_NE(text.find("model.safetensors: bytes 0 to "), std::string::npos) << text;
}

TEST_F(Choose, AnExaminationOfNoCheckpointSaysSo) {
  make_folders(at_step(3));
  for (const int ranks : {1, 2}) {
    const auto found = on_ranks(ranks, [&](const Ranks& here) {
      Examination examination(at_step(3), here);
      EXPECT_EQ(examination.sums(), nullptr);
      return examination.finish().text;
    });
    EXPECT_NE(found[0].find("no manifest.json"), std::string::npos) << found[0];
  }
}

}  // namespace
}  // namespace tessera::checkpoint
