// For recorders of our own: device memory is seen by the host, in the stream, behind what was launched there before.
#include "ascendcl/reading.h"

#include <vector>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/queue_thread.h"
#include "device/capture.h"
#include "device/live_memory.h"
#include "device/machine.h"
#include "device/stream.h"

using namespace vnpu;

namespace {

class Reading final : public Task {
  public:
    Reading(const VnpuPiece *pieces, size_t count, VnpuSeen seen, void *data)
        : pieces_(pieces, pieces + count), seen_(seen), data_(data) {}
    ~Reading() override {
        if (seen_ != nullptr) seen_(data_, nullptr);  // a stream that has failed drops its tasks
    }
    const char *label() const noexcept override { return "Reading"; }

    void run() override {
        std::vector<const void *> views;
        views.reserve(pieces_.size());
        for (const VnpuPiece &piece : pieces_) views.push_back(live_range(piece.address, piece.size, "address"));
        std::exchange(seen_, nullptr)(data_, views.data());
    }

  private:
    const std::vector<VnpuPiece> pieces_;
    VnpuSeen seen_;
    void *const data_;
};

}  // namespace

// Calls `seen` once in the stream's own thread, with the host's view of each of the `count` pieces of device memory, or
// with null where the stream has failed before or the memory is gone by then. No operator: it is not counted. An error,
// with nothing called, for a stream that a graph captures.
extern "C" [[gnu::visibility("default")]] aclError vnpuReadInStream(aclrtStream stream, const VnpuPiece *pieces,
                                                                    size_t count, VnpuSeen seen, void *data) {
    return VNPU_API(stream, pieces, count, seen, data) {
        acl::not_null(pieces, "pieces");
        acl::not_null(reinterpret_cast<void *>(seen), "seen");
        const auto queue = Machine::instance().stream(stream);
        if (capturing() && captured_by(*queue))
            fail(FaultKind::InvalidArgument, "The stream is being captured: a graph would read again at each replay.");
        try {
            queue->submit(std::make_unique<Reading>(pieces, count, seen, data),
                          acl::on_queue_thread() ? Stream::By::Either : Stream::By::Worker);
        } catch (const Fault &) {
            // The stream was destroyed meanwhile: the task is gone and has called `seen` with null, which is the
            // answer.
        }
    };
}

// Whether this thread is a stream's own: what ATen is called for here belongs to a kernel, not to the program.
extern "C" [[gnu::visibility("default")]] bool vnpuOnWorkerThread() noexcept { return on_worker_thread(); }
