// The tables of one step, row by row as src/torchport/record/operators/layout.py has them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "record/statistics.h"

namespace torchport::record {

struct CallRow {
    int64_t sequence = -1;
    int32_t inputs = 0, input_count = 0, outputs = 0, output_count = 0;
    int32_t name = -1, overload = -1, module = -1, function = -1, source = -1, arguments = -1, results = -1, node = -1;
    int16_t thread = 0, phase = 0;
    int32_t written_count = 0;  // links behind those of the outputs
};
static_assert(sizeof(CallRow) == 64);

enum Flags : uint16_t { kMeasured = 1, kRowMajor = 2, kRequiresGrad = 4 };

struct TensorRow {
    int64_t storage = -1, version = 0, offset = 0, elements = 0;
    double minimum, maximum, mean, l2;
    int64_t nans = 0, infinities = 0, zeros = 0;
    uint64_t checksum = 0;
    int32_t dims = 0, dtype = -1, device = -1, format = -1, name = -1, content = -1, reason = -1;
    uint16_t rank = 0, flags = 0;
    TensorRow();
    // `times`: how often each element that was measured is in the tensor.
    void measured(const Statistics &found, int64_t elements_measured, int64_t times);
};
static_assert(sizeof(TensorRow) == 128);

struct ContentRow {
    uint64_t checksum;
    int64_t offset, size;
    int32_t block, unused = 0;
};
static_assert(sizeof(ContentRow) == 32);

// Memory that was another behind a call than it was when it was read last, though no recorded call has written it.
struct ChangeRow {
    int32_t call, tensor;  // it was found behind this call; the row in `tensors` that has the bytes of before
    int32_t after;         // the last call behind which they were still the same; -1: before the first
    int32_t by = -1;       // row of a tensor that was made since in the same memory; -1: of none that was recorded
    int32_t content = -1;  // the bytes now
    int32_t unused = 0;
};
static_assert(sizeof(ChangeRow) == 24);

// Where a tensor of a device lies, and what was read of it last.
struct Watch {
    static constexpr int32_t kUnread = -2;
    const std::byte *address = nullptr;
    size_t size = 0;
    uint64_t checksum = 0;
    int32_t first = -1;       // the row that has its bytes: its own or that of another view of them
    int32_t after = kUnread;  // the call behind which they were read last
};

// Bytes of contents, side by side. Memory is kept for the next block: what comes fresh from the system costs as much as
// the copy itself.
struct Block {
    explicit Block(size_t capacity);
    ~Block();
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;
    // At a page's beginning: so they can be written past the system's cache.
    using Bytes = std::unique_ptr<std::byte[], decltype(&std::free)>;
    Bytes bytes{nullptr, &std::free};
    size_t size = 0;
    const size_t capacity;
    int filling = 0;  // contents that are being copied into it
};

// Texts by number; the same text has one number for the life of a recorder.
class Texts {
  public:
    int32_t number(std::string_view text);  // -1 for an empty one; newlines become spaces
    std::string text(int32_t number) const;

  private:
    mutable std::mutex mutex_;
    std::unordered_map<std::string, int32_t> numbers_;
    std::deque<std::string> texts_;
};

// Whoever adds to a step holds its mutex, but for store().
class Step {
  public:
    static constexpr size_t kBlock = size_t{16} << 20;

    std::mutex mutex;
    std::deque<CallRow> calls;
    std::deque<TensorRow> tensors;
    std::vector<Watch> watches;  // one for each tensor
    std::vector<ChangeRow> changes;
    std::vector<int32_t> links;
    std::vector<int64_t> dims;
    int64_t lost = 0;

    // The line of a text of `Texts` in this step's file.
    int32_t line(int32_t text);
    // Room for a content, which is filled before it is kept; `waiting` counts the bytes that wait for the disk.
    struct Room {
        Block *block;
        size_t offset, size;
        int32_t number;  // of the block
        std::byte *at() const noexcept { return block->bytes.get() + offset; }
    };
    Room room(size_t size, std::atomic<int64_t> &waiting);
    // The row of `contents` of what has been put there: once for each checksum and size, else the room is free again.
    int32_t keep(const Room &room, uint64_t checksum, std::atomic<int64_t> &waiting);
    // This row has the numbers and the content of that one, which may come later: they have the same bytes.
    void same(int32_t row, int32_t as) {
        same_.emplace_back(row, as);
        watches[static_cast<size_t>(row)].first = as;
    }
    // The bytes of `row` have become `content`, seen behind `call`.
    void changed(int32_t row, int32_t call, int32_t content, uint64_t checksum);
    // The text of `Texts` that a line is; -1 for none.
    int32_t text(int32_t line) const { return line < 0 ? -1 : lines_[static_cast<size_t>(line)]; }
    // The rows with those filled in; nobody adds any more.
    std::vector<TensorRow> rows() const;
    // Blocks that nobody adds to any more, in order.
    std::unique_ptr<Block> take_full();
    void end_blocks();
    // All lines, for the file.
    std::string strings(const Texts &texts) const;
    const std::vector<ContentRow> &contents() const { return contents_; }

    std::atomic<int64_t> pending{1};  // tasks and calls that still add, and one for the step itself
    // One more that adds; false where the step has ended, and the writer may have taken it.
    bool hold() noexcept;
    std::string name;  // set at its end

  private:
    std::vector<int32_t> local_;  // by text: line
    std::vector<int32_t> lines_;
    std::mutex contents_mutex_;
    std::vector<ContentRow> contents_;
    std::unordered_map<uint64_t, int32_t> known_;
    std::unique_ptr<Block> open_;
    std::deque<std::unique_ptr<Block>> full_;
    int32_t blocks_ = 0;
    std::vector<std::pair<int32_t, int32_t>> same_;
};

}  // namespace torchport::record
