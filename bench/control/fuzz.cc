#include "bench/control/fuzz.h"

#include <atomic>
#include <csignal>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include <fmt/core.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "bench/control/daemon.h"
#include "bench/control/submit_load.h"
#include "tundish/v1/job_service.grpc.pb.h"
#include "tundish/v1/node.grpc.pb.h"

namespace tundish::bench {
namespace {

using Clock = std::chrono::steady_clock;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using google::protobuf::Reflection;

constexpr std::chrono::milliseconds kCallLimit{500};

/// Makes messages nobody would send.
class Generator {
 public:
  Generator(unsigned seed, std::vector<std::string> known)
      : random_(seed), known_(std::move(known)) {}

  unsigned Below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }

  /// A serialized request: random fields, sometimes with bits turned, sometimes noise alone.
  std::string Bytes(const google::protobuf::Descriptor* type, bool register_first) {
    if (Below(8) == 0) return Noise(Below(4096));
    std::unique_ptr<Message> message(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
    Fill(*message, 0);
    if (register_first) Introduce(*message);
    std::string bytes = message->SerializePartialAsString();
    if (Below(4) == 0) {
      for (unsigned i = 0; i < 1 + Below(8) && !bytes.empty(); ++i) {
        bytes[random_() % bytes.size()] ^= static_cast<char>(1 << Below(8));
      }
    }
    if (Below(16) == 0) bytes.resize(bytes.size() / 2);
    return bytes;
  }

 private:
  /// Gets past the first check of an agent's stream, so that what follows is looked at.
  void Introduce(Message& message) {
    auto* agent = dynamic_cast<v1::AgentMessage*>(&message);
    if (agent == nullptr) return;
    agent->set_node("fuzz-" + std::to_string(Below(4)));
    agent->set_incarnation("I" + std::to_string(Below(2)));
    if (Below(2) == 0) agent->mutable_register_()->set_version("0.1.0");
  }

  std::string Noise(size_t size) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random_());
    return bytes;
  }

  std::string Text(bool utf8) {
    switch (Below(10)) {
      case 0:
        return "";
      case 1:
        return std::string(1 + Below(200'000), 'x');
      case 2:
        return utf8 ? "\xc3\xa4\xf0\x9f\x98\x80\n\t\x01" : Noise(64);
      case 3:
        return "../../../etc/passwd";
      case 4:
        return "/";
      default:
        return known_[Below(static_cast<unsigned>(known_.size()))];
    }
  }

  template <class Number>
  Number Extreme() {
    switch (Below(6)) {
      case 0:
        return std::numeric_limits<Number>::max();
      case 1:
        return std::numeric_limits<Number>::lowest();
      case 2:
        return 0;
      case 3:
        return static_cast<Number>(random_());
      default:
        return static_cast<Number>(Below(10));
    }
  }

  double ExtremeReal() {
    constexpr double kValues[] = {0,
                                  -1,
                                  1e-300,
                                  1e300,
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(),
                                  0.5};
    return kValues[Below(std::size(kValues))];
  }

  void Fill(Message& message, int depth) {
    const auto* type = message.GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      if (field->containing_oneof() != nullptr && Below(3) != 0) continue;
      if (Below(5) == 0) continue;
      const unsigned count = !field->is_repeated() ? 1 : Below(20) == 0 ? 2000 : Below(4);
      for (unsigned n = 0; n < count; ++n) Set(message, field, depth);
    }
  }

  void Set(Message& message, const FieldDescriptor* field, int depth) {
    const Reflection& r = *message.GetReflection();
    const bool many = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        if (depth > 5) return;
        Message* inner = many ? r.AddMessage(&message, field) : r.MutableMessage(&message, field);
        // Long lists of full messages would only be large.
        return many && Below(4) != 0 ? void() : Fill(*inner, depth + 1);
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string text = Text(field->type() == FieldDescriptor::TYPE_STRING);
        return many ? r.AddString(&message, field, text) : r.SetString(&message, field, text);
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const int value = Below(4) == 0 ? 12345 : static_cast<int>(Below(6));
        return many ? r.AddEnumValue(&message, field, value)
                    : r.SetEnumValue(&message, field, value);
      }
#define TUNDISH_SCALAR(kind, Name, value) \
  case FieldDescriptor::CPPTYPE_##kind:   \
    return many ? r.Add##Name(&message, field, value) : r.Set##Name(&message, field, value)
        TUNDISH_SCALAR(INT32, Int32, Extreme<int32_t>());
        TUNDISH_SCALAR(INT64, Int64, Extreme<int64_t>());
        TUNDISH_SCALAR(UINT32, UInt32, Extreme<uint32_t>());
        TUNDISH_SCALAR(UINT64, UInt64, Extreme<uint64_t>());
        TUNDISH_SCALAR(DOUBLE, Double, ExtremeReal());
        TUNDISH_SCALAR(FLOAT, Float, static_cast<float>(ExtremeReal()));
        TUNDISH_SCALAR(BOOL, Bool, Below(2) == 0);
#undef TUNDISH_SCALAR
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::string> known_;
};

/// One call of any kind: writes its messages, takes whatever comes, ends by itself at the limit.
class Call : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(grpc::GenericStub& stub, const std::string& method, std::vector<std::string> messages)
      : messages_(std::move(messages)) {
    context_.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    StartRead(&incoming_);
    WriteNext();
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (ok) StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) WriteNext();
  }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    done_.notify_all();
  }
  grpc::Status Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }

 private:
  void WriteNext() {
    if (next_ == messages_.size()) return StartWritesDone();
    const grpc::Slice slice(messages_[next_++]);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&outgoing_);
  }

  grpc::ClientContext context_;
  const std::vector<std::string> messages_;
  size_t next_ = 0;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<grpc::Status> status_;
};

std::vector<const MethodDescriptor*> Methods() {
  std::vector<const MethodDescriptor*> methods;
  for (const char* name :
       {"tundish.v1.JobService", "tundish.v1.ClusterService", "tundish.v1.NodeService"}) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    for (int i = 0; i < service->method_count(); ++i) methods.push_back(service->method(i));
  }
  return methods;
}

struct Tally {
  std::mutex mutex;
  std::map<std::string, std::map<int, uint64_t>> codes;
  std::vector<std::string> violations;
};

/// What a handler says that failed, or a server that is not there. A request that cannot be parsed
/// is INTERNAL too, by gRPC.
bool Wrong(const grpc::Status& status) {
  const bool unparsed = status.error_code() == grpc::StatusCode::INTERNAL &&
                        status.error_message().find("handler") == std::string::npos;
  return status.error_code() == grpc::StatusCode::UNKNOWN ||
         (status.error_code() == grpc::StatusCode::INTERNAL && !unparsed);
}

void FuzzThread(const std::string& address, unsigned seed, std::vector<std::string> known,
                Clock::time_point end, Tally& tally) {
  Generator generator(seed, std::move(known));
  grpc::GenericStub stub(OwnChannel(address));
  const std::vector<const MethodDescriptor*> methods = Methods();
  while (Clock::now() < end) {
    const MethodDescriptor* method = methods[generator.Below(methods.size())];
    std::vector<std::string> messages;
    const unsigned count = method->client_streaming() ? 1 + generator.Below(6) : 1;
    for (unsigned i = 0; i < count; ++i) {
      messages.push_back(generator.Bytes(method->input_type(), method->client_streaming()));
    }
    Call call(stub, fmt::format("/{}/{}", method->service()->full_name(), method->name()),
              std::move(messages));
    const grpc::Status status = call.Wait();
    const std::lock_guard lock(tally.mutex);
    ++tally.codes[method->name()][status.error_code()];
    if (Wrong(status)) {
      tally.violations.push_back(fmt::format("{}: code {}: {}", method->name(),
                                             static_cast<int>(status.error_code()),
                                             status.error_message()));
    }
  }
}

/// A plain submission is answered.
std::string Submit(const std::string& address, const std::string& request_id) {
  const auto stub = v1::JobService::NewStub(OwnChannel(address));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::SubmitJobRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = SmallSpec(1);
  v1::SubmitJobResponse response;
  const grpc::Status status = stub->SubmitJob(&context, request, &response);
  // A node that the fuzzing registered may offer too few devices: that is an answer too.
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) return "refused";
  if (!status.ok()) {
    fmt::print("submit {}: code {} \"{}\"\n", request_id, static_cast<int>(status.error_code()),
               status.error_message());
  }
  return response.job_id();
}

bool Knows(const std::string& address, const std::string& job) {
  const auto stub = v1::JobService::NewStub(OwnChannel(address));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::GetJobRequest request;
  request.set_job_id(job);
  v1::Job found;
  return !job.empty() && stub->GetJob(&context, request, &found).ok();
}

}  // namespace

int FuzzRpcs(const FuzzOptions& options) {
  constexpr int kThreads = 8;
  const ScratchFolder scratch(options.scratch);
  Daemon daemon(options.tundishd, scratch.path());
  daemon.Start();
  const std::string job = Submit(daemon.address(), "before");
  Tally tally;
  std::vector<std::thread> threads;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.seconds));
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(FuzzThread, daemon.address(), options.seed * 1000 + i,
                         std::vector<std::string>{job, job.substr(0, 8), "default", "fuzz-0",
                                                  "fuzz-1", "before", "weekly", "k"},
                         end, std::ref(tally));
  }
  for (std::thread& thread : threads) thread.join();
  const Daemon::Usage usage = daemon.ReadUsage();
  if (Submit(daemon.address(), "after").empty()) tally.violations.push_back("it answers no more");
  if (usage.peak_mib > options.most_mib) {
    tally.violations.push_back(
        fmt::format("{:.0f} MiB were used, at most {:.0f} may", usage.peak_mib, options.most_mib));
  }
  daemon.End(SIGTERM);
  daemon.Start();
  if (Submit(daemon.address(), "restarted").empty() || !Knows(daemon.address(), job)) {
    tally.violations.push_back("it cannot load what it wrote");
  }
  uint64_t calls = 0;
  for (const auto& [method, codes] : tally.codes) {
    std::string text;
    for (const auto& [code, count] : codes) {
      text += fmt::format(" {}:{}", code, count);
      calls += count;
    }
    fmt::print("{:<18}{}\n", method, text);
  }
  fmt::print("fuzz         {} calls, peak {:.0f} MiB, {} violations\n", calls, usage.peak_mib,
             tally.violations.size());
  for (size_t i = 0; i < std::min<size_t>(tally.violations.size(), 20); ++i) {
    fmt::print("VIOLATION {}\n", tally.violations[i]);
  }
  return tally.violations.empty() ? 0 : 1;
}

}  // namespace tundish::bench
