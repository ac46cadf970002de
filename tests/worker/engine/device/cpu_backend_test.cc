#include "worker/engine/device/cpu_backend.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/trainer/memory_store.h"
#include "worker/engine/device/process.h"

namespace tundish::device {
namespace {

using testing::MemoryStore;
using testing::SharedTable;

// Runs `body` as `size` ranks, a thread each; returns what they threw, "" for nothing.
std::vector<std::string> RunRanks(
    int size, const std::function<void(Communicator&, MemoryStore&, int)>& body) {
  PrepareProcess();
  const auto table = std::make_shared<SharedTable>();
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto store = c10::make_intrusive<MemoryStore>(table);
      std::unique_ptr<Communicator> group;
      try {
        GroupOptions options;
        options.name = "g";
        options.rank = rank;
        options.size = size;
        options.timeout = std::chrono::seconds(5);
        group = CpuBackend().CreateGroup(store, options);
        group->Connect();
        body(*group, *store, rank);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
      store->Close();
      if (group && !errors[static_cast<size_t>(rank)].empty()) group->Abort();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(CpuBackendTest, SumsAndSends) {
  for (const int size : {2, 3, 4}) {
    const auto errors = RunRanks(size, [&](Communicator& group, MemoryStore&, int rank) {
      at::Tensor values = at::full({1000}, rank + 1.0);
      group.AllReduceSum(values);
      EXPECT_EQ(values[999].item<float>(), size * (size + 1) / 2);
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(size)));
  }
}

TEST(CpuBackendTest, SendsAsTheFirstThingAGroupDoes) {
  for (const int64_t numel : {10, 1'000'000}) {
    const auto errors = RunRanks(3, [&](Communicator& group, MemoryStore&, int rank) {
      at::Tensor header = at::full({3}, 7, at::kLong);
      at::Tensor values = at::full({numel}, 1.5);
      if (rank == 2) {
        group.Send(header, 0);
        group.Send(values, 0);
      } else if (rank == 0) {
        header.zero_();
        values.zero_();
        group.Receive(header, 2);
        group.Receive(values, 2);
        EXPECT_EQ(header[2].item<int64_t>(), 7);
        EXPECT_EQ(values[numel - 1].item<float>(), 1.5F);
      }
      group.AllReduceSum(values);
    });
    EXPECT_EQ(errors, std::vector<std::string>(3));
  }
}

TEST(CpuBackendTest, AbortWakesTheWaitingAndThePeers) {
  std::promise<void> waiting;
  const auto start = std::chrono::steady_clock::now();
  const auto errors = RunRanks(3, [&](Communicator& group, MemoryStore& store, int rank) {
    at::Tensor values = at::zeros({8});
    group.AllReduceSum(values);
    if (rank == 2) {
      // Never joins the second sum; aborts once another rank may be in it.
      waiting.get_future().wait();
      store.Close();
      group.Abort();
      throw std::runtime_error("aborted");
    }
    if (rank == 0) waiting.set_value();
    group.AllReduceSum(values);
  });
  for (const std::string& error : errors) EXPECT_NE(error, "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
}

// Ranks form a group and use it; one of them is torn away after `after` microseconds and the others
// are stopped after times of their own. Returns how many were at work by then.
int FormAndTear(std::minstd_rand& random) {
  constexpr int kSize = 4;
  constexpr int kLongestMicroseconds = 4000;
  std::uniform_int_distribution<int> pause(0, kLongestMicroseconds);
  const auto table = std::make_shared<SharedTable>();
  std::atomic<int> worked = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    const std::chrono::microseconds after(pause(random));
    threads.emplace_back([&table, &worked, rank, after] {
      const auto store = c10::make_intrusive<MemoryStore>(table);
      GroupOptions options;
      options.name = "g";
      options.rank = rank;
      options.size = kSize;
      options.timeout = std::chrono::seconds(30);
      std::shared_ptr<Communicator> group;
      try {
        group = CpuBackend().CreateGroup(store, options);
      } catch (const std::exception&) {
        return;  // Its own end, or never: nothing was formed.
      }
      std::thread end([&] {
        // The length of a life, not a wait for a condition.
        std::this_thread::sleep_for(after);
        store->Close();
        group->Abort();
      });
      try {
        group->Connect();
        at::Tensor values = at::zeros({1000});
        ++worked;
        while (true) group->AllReduceSum(values);
      } catch (const std::exception&) {
        // Its own end, or a peer's that it met in a collective.
      }
      end.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return worked;
}

TEST(CpuBackendTest, SurvivesAnEndAtAnyMomentOfForming) {
  std::minstd_rand random(3);
  constexpr int kTimes = 120;
  int halfway = 0;
  for (int i = 0; i < kTimes; ++i) {
    const int worked = FormAndTear(random);
    halfway += worked > 0 && worked < 4 ? 1 : 0;
  }
  EXPECT_GT(halfway, 0) << "no end came while a group was half formed; the pauses do not fit";
}

TEST(CpuBackendTest, NamesAPeerThatDoesNotCome) {
  const auto store = c10::make_intrusive<MemoryStore>(std::make_shared<SharedTable>());
  GroupOptions options;
  options.name = "g";
  options.size = 2;
  options.timeout = std::chrono::milliseconds(300);
  const auto group = CpuBackend().CreateGroup(store, options);
  options.rank = 1;
  CpuBackend().CreateGroup(store, options);  // Leaves its address and goes.
  EXPECT_THROW(group->Connect(), std::exception);
}

TEST(CpuBackendTest, ReportsResidentMemory) {
  EXPECT_GT(CpuBackend().Memory().used_bytes, uint64_t{1} << 20);
}

TEST(OpenBackendTest, NamesUnknownKinds) {
  EXPECT_THROW(OpenBackend("abacus", "abacus:0"), c10::Error);
  EXPECT_EQ(OpenBackend("cpu", "cpu:3")->device(), at::Device(at::kCPU));
}

}  // namespace
}  // namespace tundish::device
