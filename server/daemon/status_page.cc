#include "server/daemon/status_page.h"

#include <fmt/format.h>

namespace tundish::daemon {
namespace {

std::string Escape(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string NodeRow(const v1::NodeStatus& node) {
  int used = 0;
  for (const v1::DeviceStatus& device : node.devices()) used += !device.job_id().empty();
  return fmt::format("<tr><td>{}</td><td>{}</td><td>{} of {}</td></tr>\n", Escape(node.node()),
                     Escape(node.state()), used, node.devices_size());
}

std::string JobRow(const v1::Job& job) {
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{} / {}</td><td>{:.4f}</td><td>{:.1f}</td>"
      "<td>{}</td></tr>\n",
      Escape(job.job_id()), Escape(job.spec().name()), v1::JobState_Name(job.state()), job.step(),
      job.total_steps(), job.latest().loss(), job.latest().images_per_second(),
      Escape(job.message()));
}

}  // namespace

std::string StatusPage(const v1::ListJobsResponse& jobs, const v1::ListNodesResponse& nodes) {
  std::string page =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Tundish</title>"
      "<style>body{font:15px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
      "td,th{border:1px solid #ccc;padding:.3em .6em;text-align:left}</style>"
      "<h1>Tundish</h1>\n<h2>Nodes</h2><table><tr><th>node</th><th>state</th><th>devices used</th>"
      "</tr>\n";
  for (const v1::NodeStatus& node : nodes.nodes()) page += NodeRow(node);
  page +=
      "</table>\n<h2>Jobs</h2><table><tr><th>id</th><th>name</th><th>state</th><th>step</th>"
      "<th>loss</th><th>images/s</th><th>why</th></tr>\n";
  for (const v1::Job& job : jobs.jobs()) page += JobRow(job);
  return page + "</table></html>\n";
}

}  // namespace tundish::daemon
