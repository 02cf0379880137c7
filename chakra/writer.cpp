// SPDX-License-Identifier: MIT
#include "chakra/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include "chakra/et_def.pb.h"
#include "chakra/utf8.h"
#include "sim/errors.h"

namespace trainyard::chakra {

namespace {

namespace io = google::protobuf::io;

/// Writes beside the target and renames, so that readers never see half a file.
void write_atomically(const std::string& path,
                      const std::function<bool(io::ZeroCopyOutputStream*)>& write) {
  const std::string temporary = path + ".tmp" + std::to_string(::getpid());
  const auto fail = [&](const char* what, int error) {
    std::remove(temporary.c_str());
    throw UserError(SourcePos{path, 0}, std::string(what) + ": " + std::strerror(error),
                    "check the folder and the free space");
  };
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail("cannot create the file", errno);
  bool written = false;
  int error = 0;
  {
    io::FileOutputStream file(fd);
    try {
      written = write(&file) && file.Flush();
    } catch (...) {
      file.Close();
      std::remove(temporary.c_str());
      throw;
    }
    error = file.GetErrno();
    if (!file.Close()) {
      written = false;
      if (error == 0) error = file.GetErrno();
    }
  }
  if (!written) fail("cannot write the file", error != 0 ? error : EIO);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot write the file", errno);
}

proto::AttributeProto* add(proto::Node& message, const char* name) {
  proto::AttributeProto* attr = message.add_attr();
  attr->set_name(name);
  return attr;
}

void add_int64(proto::Node& message, const char* name, const std::optional<int64_t>& value) {
  if (value) add(message, name)->set_int64_val(*value);
}

/// int32 as the feeder expects it, unless the value needs more.
void add_int32(proto::Node& message, const char* name, const std::optional<int64_t>& value) {
  if (!value) return;
  if (*value < std::numeric_limits<int32_t>::min() ||
      *value > std::numeric_limits<int32_t>::max()) {
    add_int64(message, name, value);
  } else {
    add(message, name)->set_int32_val(static_cast<int32_t>(*value));
  }
}

void fill(const std::string& path, const Node& node, proto::Node& message) {
  const auto text = [&](const std::string& value, const char* what) -> const std::string& {
    if (!is_utf8(value)) {
      throw UserError(SourcePos{path, 0},
                      "node " + std::to_string(node.id) + ": " + what + " is not UTF-8",
                      "proto3 strings have to be; rename it");
    }
    return value;
  };
  message.Clear();
  message.set_id(node.id);
  message.set_name(text(node.name, "the name"));
  message.set_type(static_cast<proto::NodeType>(node.type));
  message.mutable_ctrl_deps()->Add(node.ctrl_deps.begin(), node.ctrl_deps.end());
  message.mutable_data_deps()->Add(node.data_deps.begin(), node.data_deps.end());
  message.set_duration_micros(node.duration_us);
  if (!node.inputs.empty()) {
    message.mutable_inputs()->set_values(text(node.inputs, "the list of inputs"));
  }
  add(message, "is_cpu_op")->set_bool_val(node.is_cpu_op);
  add_int64(message, "num_ops", node.num_ops);
  if (node.tensor_size) {
    if (*node.tensor_size < 0) {
      throw UserError(SourcePos{path, 0},
                      "node " + std::to_string(node.id) + ": tensor_size is negative");
    }
    add(message, "tensor_size")->set_uint64_val(static_cast<uint64_t>(*node.tensor_size));
  }
  add_int64(message, "comm_type", node.comm_type);
  add_int64(message, "comm_size", node.comm_size);
  add_int32(message, "comm_src", node.comm_src);
  add_int32(message, "comm_dst", node.comm_dst);
  add_int32(message, "comm_tag", node.comm_tag);
  if (node.pg_name) add(message, "pg_name")->set_string_val(text(*node.pg_name, "pg_name"));
  add_int64(message, "stream", node.stream);
  add_int64(message, "tid", node.tid);
}

template <typename MessageType>
bool put(io::ZeroCopyOutputStream* out, const MessageType& message) {
  // A stream per record, as CodedOutputStream counts its bytes in int.
  io::CodedOutputStream coded(out);
  const size_t size = message.ByteSizeLong();
  if (size > static_cast<size_t>(std::numeric_limits<int>::max())) return false;
  coded.WriteVarint32(static_cast<uint32_t>(size));
  message.SerializeWithCachedSizes(&coded);
  return !coded.HadError();
}

bool put_trace(const std::string& path, io::ZeroCopyOutputStream* out, const RankTrace& trace) {
  proto::GlobalMetadata metadata;
  metadata.set_version(trace.version.empty() ? "0.0.4" : trace.version);
  if (!put(out, metadata)) return false;
  proto::Node message;
  for (const Node& node : trace.nodes) {
    fill(path, node, message);
    if (!put(out, message)) return false;
  }
  return true;
}

}  // namespace

void write_rank(const std::string& path, const RankTrace& trace) {
  write_atomically(path, [&](io::ZeroCopyOutputStream* file) {
    if (!path.ends_with(".gz")) return put_trace(path, file, trace);
    io::GzipOutputStream gzip(file);
    return put_trace(path, &gzip, trace) && gzip.Close();
  });
}

void write_group_file(const std::string& path, const std::vector<ProcessGroup>& groups) {
  std::string text = "{";
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!is_utf8(groups[g].name)) {
      throw UserError(SourcePos{path, 0}, "a group name is not UTF-8", "rename it");
    }
    text += (g > 0 ? ",\n " : "\n ") + nlohmann::json(groups[g].name).dump() + ": [";
    for (size_t i = 0; i < groups[g].ranks.size(); ++i) {
      text += (i > 0 ? ", " : "") + std::to_string(groups[g].ranks[i]);
    }
    text += "]";
  }
  text += groups.empty() ? "}\n" : "\n}\n";
  write_atomically(path, [&](io::ZeroCopyOutputStream* file) {
    io::CodedOutputStream coded(file);
    coded.WriteRaw(text.data(), static_cast<int>(text.size()));
    return !coded.HadError();
  });
}

}  // namespace trainyard::chakra
