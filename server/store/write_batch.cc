#include "server/store/write_batch.h"

#include <utility>

#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/time_util.h>

namespace tundish::store {
namespace {

std::int64_t Milliseconds(const google::protobuf::Timestamp& time) {
  return google::protobuf::util::TimeUtil::TimestampToMilliseconds(time);
}

}  // namespace

void WriteBatch::Add(Write write) {
  bytes_ += write.blob.size() + sizeof(Write);
  for (const std::string& text : write.texts) bytes_ += text.size();
  writes_.push_back(std::move(write));
}

void WriteBatch::PutJob(const v1::Job& job) {
  Add({Kind::kJob,
       {job.job_id(), job.spec().tenant()},
       {job.state(), Milliseconds(job.submitted())},
       job.SerializeAsString()});
}

void WriteBatch::PutProgress(const v1::JobProgress& progress) {
  Add({Kind::kProgress, {progress.job_id()}, {progress.step()}, progress.SerializeAsString()});
}

void WriteBatch::PutArrangement(const v1::Arrangement& arrangement) {
  Add({Kind::kArrangement,
       {arrangement.job_id(), arrangement.reason()},
       {arrangement.job_epoch(), arrangement.start_step()},
       arrangement.SerializeAsString()});
}

void WriteBatch::AppendUpdate(const std::string& job_id, const v1::JobUpdate& update) {
  Add({Kind::kUpdate, {job_id}, {update.seq(), update.body_case()}, update.SerializeAsString()});
}

void WriteBatch::AddRequest(const v1::RequestRecord& request) {
  Add({Kind::kRequest,
       {request.tenant(), request.request_id(), request.job_id(), request.spec_hash()},
       {},
       request.SerializeAsString()});
}

void WriteBatch::PutNode(const v1::NodeRecord& node) {
  Add({Kind::kNode, {node.node()}, {node.drained()}, node.SerializeAsString()});
}

void WriteBatch::DeleteNode(const std::string& node) {
  Add({Kind::kDeleteNode, {node}, {}, {}});
}

void WriteBatch::PutCheckpoint(const v1::CheckpointRecord& checkpoint) {
  Add({Kind::kCheckpoint,
       {checkpoint.job_id(), checkpoint.artifact().path()},
       {checkpoint.artifact().step()},
       checkpoint.SerializeAsString()});
}

void WriteBatch::DeleteCheckpoint(const std::string& job_id, std::uint32_t step) {
  Add({Kind::kDeleteCheckpoint, {job_id}, {step}, {}});
}

void WriteBatch::PutIncident(const std::string& job_id, const v1::Incident& incident) {
  Add({Kind::kIncident, {job_id}, {incident.number()}, incident.SerializeAsString()});
}

void WriteBatch::AppendAudit(const v1::AuditRecord& audit) {
  Add({Kind::kAudit,
       {audit.actor(), audit.action(), audit.subject()},
       {Milliseconds(audit.time())},
       audit.SerializeAsString()});
}

void WriteBatch::PutSetting(const std::string& kind, const std::string& name, std::string blob) {
  Add({Kind::kSetting, {kind, name}, {}, std::move(blob)});
}

void WriteBatch::DeleteSetting(const std::string& kind, const std::string& name) {
  Add({Kind::kDeleteSetting, {kind, name}, {}, {}});
}

}  // namespace tundish::store
