// Dumps: what operators read and wrote, in CANN's files, as a configuration given to aclmdlSetDump says.
//
// A dump takes the operators that are launched between aclmdlSetDump and aclmdlFinalizeDump:
//
//     <dump_path>/<time>/<device>/<type>.<name>.<task>.<stream>.<microseconds>
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace vnpu::acl {

struct DumpedTensor {
    int type;  // OutputDataType of CANN's dump_task.proto
    std::vector<int64_t> sizes;
    std::string bytes;  // the elements, rows first
};

struct DumpedOperator {
    std::string name;
    int64_t microseconds;  // since 1970
    std::vector<DumpedTensor> inputs, outputs;
};

// The bytes of a dump file: the header's length (uint64, little endian), the header (DumpData of dump_task.proto), and
// the elements of the inputs and then of the outputs, one behind the other.
std::string dump_file(const DumpedOperator &operation);

class [[gnu::visibility("default")]] Dump {
  public:
    // The one that takes operators now; null when there is none.
    static std::shared_ptr<Dump> current() { return running.load(std::memory_order_relaxed) ? latest() : nullptr; }

    // Makes the folder. Throws std::filesystem::filesystem_error.
    Dump(const std::filesystem::path &path, bool inputs, bool outputs);
    // A captured graph may run its operators when the dump is over.
    bool open() const noexcept { return !over_; }
    bool inputs() const noexcept { return inputs_ && open(); }
    bool outputs() const noexcept { return outputs_ && open(); }

    // Writes the file of an operator that the calling thread, a stream's worker, has just run. The program goes on
    // where that fails; the end of the dump tells, as it does of an operator that is said to be missing.
    void missing(std::string_view type, std::string_view reason) noexcept;
    void write(std::string_view type, std::vector<DumpedTensor> inputs, std::vector<DumpedTensor> outputs) noexcept;

    // From now on `dump` takes the operators.
    static void begin(std::shared_ptr<Dump> dump);
    // Ends the one that runs, if one does, and waits for the operators it has taken. acl::Error when files are missing.
    static void end();

  private:
    static std::shared_ptr<Dump> latest();
    static std::atomic<bool> running;

    const std::filesystem::path folder_;
    const bool inputs_, outputs_;
    std::atomic<bool> over_{false};
    std::atomic<uint64_t> tasks_{0};
    std::mutex mutex_;  // of failure_
    std::string failure_;
};

}  // namespace vnpu::acl
