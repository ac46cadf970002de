// What `tundish up` sees of a daemon: started under the name tundishd it serves gRPC and /readyz,
// under the name tundish-agent it makes its node known to that coordinator (by the one call the
// fake has for it). A file NAME.fail beside the program makes it end with an error as a real one
// does.
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/client/fake_coordinator.h"

namespace {

namespace fs = std::filesystem;

int ListenHttp(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, 8) != 0) {
    return -1;
  }
  return fd;
}

int PortOf(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

/// Serves until a signal; returns it.
int Serve(int signals, int http) {
  for (;;) {
    pollfd events[2] = {{signals, POLLIN, 0}, {http, POLLIN, 0}};
    poll(events, 2, -1);
    if (events[0].revents != 0) {
      signalfd_siginfo info{};
      (void)!read(signals, &info, sizeof info);
      return static_cast<int>(info.ssi_signo);
    }
    if (events[1].revents != 0) {
      const int connection = accept(http, nullptr, nullptr);
      char request[1024];
      (void)!read(connection, request, sizeof request);
      const char response[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
      (void)!write(connection, response, sizeof response - 1);
      close(connection);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);

  const fs::path self = argv[0];
  const std::string name = self.filename();
  std::map<std::string, std::string> options;
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  if (fs::exists(self.string() + ".fail")) {
    std::fprintf(stderr,
                 "starting\nerror: %s cannot go on\nRun with --help for more information.\n\n",
                 name.c_str());
    return 4;
  }
  std::ofstream(self.string() + ".ran") << getpid();
  int number = 0;
  if (name == "tundish-agent") {
    const auto stub = tundish::v1::ClusterService::NewStub(
        grpc::CreateChannel(options["--coordinator"], grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    tundish::v1::DrainNodeRequest request;
    tundish::v1::DrainNodeResponse response;
    request.set_node(options["--node"]);
    stub->DrainNode(&context, request, &response);
    number = Serve(signals, -1);
  } else {
    tundish::client::FakeState state;
    tundish::client::FakeCoordinator coordinator(state, PortOf(options["--listen"]));
    number = Serve(signals, ListenHttp(PortOf(options["--http"])));
  }
  std::ofstream(self.string() + ".signal") << number;
  return 0;
}
