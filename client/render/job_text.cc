#include "client/render/job_text.h"

#include <fmt/core.h>

#include "client/render/format.h"
#include "client/render/table.h"

namespace tundish::client {
namespace {

using Align = Table::Align;

std::string ClassName(const v1::Evaluation& evaluation, int index) {
  return index < evaluation.classes_size() ? Printable(evaluation.classes(index).name())
                                           : fmt::format("class {}", index);
}

std::string ClassTable(const v1::Evaluation& evaluation) {
  Table table({"class", "images", "recall", "precision"},
              {Align::kLeft, Align::kRight, Align::kRight, Align::kRight});
  for (const v1::ClassResult& result : evaluation.classes()) {
    table.AddRow({Printable(result.name()), fmt::format("{}", result.images()),
                  Percent(result.recall()), Percent(result.precision())});
  }
  return table.ToString(2);
}

std::string ConfusionTable(const v1::Evaluation& evaluation) {
  const int classes = evaluation.classes_size();
  if (classes == 0 || evaluation.confusion_size() != classes * classes) return "";
  std::vector<std::string> headings = {"truth \\ predicted"};
  for (int c = 0; c < classes; ++c) headings.push_back(ClassName(evaluation, c));
  std::vector<Align> aligns(classes + 1, Align::kRight);
  aligns[0] = Align::kLeft;
  Table table(std::move(headings), std::move(aligns));
  for (int truth = 0; truth < classes; ++truth) {
    std::vector<std::string> cells = {ClassName(evaluation, truth)};
    for (int predicted = 0; predicted < classes; ++predicted) {
      cells.push_back(fmt::format("{}", evaluation.confusion(truth * classes + predicted)));
    }
    table.AddRow(std::move(cells));
  }
  return "confusion matrix\n" + table.ToString(2);
}

std::string Incidents(const v1::Job& job) {
  if (job.incidents().empty()) return "incidents            none\n";
  std::string text = fmt::format("incidents            {}\n", job.incidents_size());
  for (const v1::Incident& incident : job.incidents()) {
    text += fmt::format("  {} {}\n", incident.number(), IncidentLine(incident));
  }
  return text;
}

std::string Times(const v1::Job& job) {
  if (!job.has_finished()) return "";
  std::string text = fmt::format("total time           {}",
                                 Duration(SecondsBetween(job.submitted(), job.finished())));
  if (job.has_started()) {
    text += fmt::format(", {} of it after the start",
                        Duration(SecondsBetween(job.started(), job.finished())));
  }
  return text + "\n";
}

std::string Artifacts(const v1::Job& job) {
  std::string text;
  for (const v1::Artifact& artifact : job.artifacts()) {
    text += fmt::format("{:<20} {} ({}, after step {})\n", artifact.kind(),
                        Printable(ArtifactPath(job, artifact)), Bytes(artifact.bytes()),
                        artifact.step());
  }
  return text;
}

std::string Ranks(const v1::Job& job) {
  if (job.ranks().empty()) return "";
  Table table({"dp", "tp", "node", "device", "pid", "phase", "step"},
              {Align::kRight, Align::kRight, Align::kLeft, Align::kLeft, Align::kRight,
               Align::kLeft, Align::kRight});
  for (const v1::RankStatus& rank : job.ranks()) {
    table.AddRow({fmt::format("{}", rank.dp()), fmt::format("{}", rank.tp()),
                  Printable(rank.node()), rank.devices().empty() ? "" : Printable(rank.devices(0)),
                  fmt::format("{}", rank.pid()), rank.phase(), fmt::format("{}", rank.step())});
  }
  return "ranks\n" + table.ToString(2);
}

std::string Data(const v1::DataReport& report) {
  std::string text = fmt::format("data                 {} training and {} validation images\n",
                                 report.train_images(), report.validation_images());
  Table table({"class", "train", "validation"}, {Align::kLeft, Align::kRight, Align::kRight});
  for (const v1::ClassCount& count : report.counts()) {
    table.AddRow({Printable(count.name()), fmt::format("{}", count.train()),
                  fmt::format("{}", count.validation())});
  }
  if (!report.counts().empty()) text += table.ToString(2);
  if (report.bad_file_count() > 0) {
    text += fmt::format("  {} unreadable files left out\n", report.bad_file_count());
    for (const v1::BadFile& bad : report.bad_files()) {
      text += fmt::format("    {}: {}\n", Printable(bad.path()), Printable(bad.reason()));
    }
  }
  if (report.duplicates_across_split() > 0) {
    text += fmt::format("  {} images occur in both training and validation\n",
                        report.duplicates_across_split());
  }
  for (const std::string& warning : report.warnings()) {
    text += fmt::format("  {}\n", Printable(warning));
  }
  return text;
}

std::string State(const v1::Job& job) {
  std::string text =
      fmt::format("state                {} ({})\n", v1::JobState_Name(job.state()), job.reason());
  if (!job.message().empty()) text += fmt::format("  {}\n", Printable(job.message()));
  return text;
}

}  // namespace

std::string ArtifactPath(const v1::Job& job, const v1::Artifact& artifact) {
  if (job.artifact_root().empty() || artifact.path().starts_with("/")) return artifact.path();
  return job.artifact_root() + "/" + artifact.path();
}

std::string EvaluationLine(const v1::Evaluation& evaluation) {
  return fmt::format("after step {}: loss {:.4f}, accuracy {}, balanced accuracy {} of {} images",
                     evaluation.step(), evaluation.loss(), Percent(evaluation.accuracy()),
                     Percent(evaluation.balanced_accuracy()), evaluation.images());
}

namespace {

std::string Replacement(const v1::Incident& incident) {
  const std::string& by = incident.replacement();
  if (by == "spare") return "; a waiting process took over";
  if (by == "cold") return "; a new process took over";
  if (by == "shrink") return fmt::format("; {} replicas went on", incident.data());
  return "";
}

}  // namespace

std::string IncidentLine(const v1::Incident& incident) {
  std::string text = fmt::format("rank dp {} tp {} on {}: {}", incident.dp(), incident.tp(),
                                 Printable(incident.node()), incident.cause());
  if (!incident.closed()) return text + "; not recovered yet";
  if (incident.replacement() == "released") {
    return text +
           fmt::format("; gave its devices back after {}; state of step {} is kept (from {})",
                       Milliseconds(incident.total_ms()), incident.cut_step(),
                       incident.restored_from());
  }
  return text + fmt::format(
                    "; detected in {}, all stopped after {}, state restored after {}, first step "
                    "after {}; total {}; went on from step {} (state from {}), {} steps lost{}",
                    Milliseconds(incident.detect_ms()), Milliseconds(incident.quiesce_ms()),
                    Milliseconds(incident.restore_ms()), Milliseconds(incident.first_step_ms()),
                    Milliseconds(incident.total_ms()), incident.cut_step(),
                    incident.restored_from(), incident.steps_lost(), Replacement(incident));
}

std::string EvaluationText(const v1::Evaluation& evaluation) {
  if (evaluation.images() == 0) return "";
  return fmt::format(
             "validation           {} images after step {}\n"
             "  loss               {:.4f}\n"
             "  accuracy           {}\n"
             "  balanced accuracy  {}\n",
             evaluation.images(), evaluation.step(), evaluation.loss(),
             Percent(evaluation.accuracy()), Percent(evaluation.balanced_accuracy())) +
         ClassTable(evaluation) + ConfusionTable(evaluation);
}

std::string ResultText(const v1::Job& job) {
  return fmt::format("job                  {} {}\n", job.job_id(), job.spec().name()) + State(job) +
         EvaluationText(job.evaluation()) + Artifacts(job) + Incidents(job) + Times(job);
}

std::string DescribeText(const v1::Job& job) {
  const v1::JobSpec& spec = job.spec();
  std::string text = fmt::format("job                  {}\nname                 {} (tenant {})\n",
                                 job.job_id(), spec.name(), spec.tenant()) +
                     State(job);
  text += fmt::format(
      "arrangement          {} tensor x {} data on {}, job epoch {}\n"
      "progress             step {} of {}, data epoch {}\n",
      spec.parallel().tensor(), spec.parallel().data(), spec.parallel().device(), job.job_epoch(),
      job.step(), job.total_steps(), job.data_epoch());
  if (job.data() > 0 && job.data() < static_cast<uint32_t>(spec.parallel().data())) {
    text += fmt::format("replicas             {} of {}, until devices are free\n", job.data(),
                        spec.parallel().data());
  }
  if (job.has_latest()) {
    text +=
        fmt::format("latest step          {}: loss {:.4f}, learning rate {:.2e}, {:.1f} images/s\n",
                    job.latest().step(), job.latest().loss(), job.latest().learning_rate(),
                    job.latest().images_per_second());
  }
  text += fmt::format("submitted            {}\nstarted              {}\nfinished             {}\n",
                      DateTime(job.submitted()), DateTime(job.started()), DateTime(job.finished()));
  text += Ranks(job);
  if (job.has_data_report()) text += Data(job.data_report());
  return text + EvaluationText(job.evaluation()) + Artifacts(job) + Incidents(job) + Times(job);
}

}  // namespace tundish::client
