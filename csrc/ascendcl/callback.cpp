// Host functions in a stream: run by the stream itself (aclrtLaunchHostFunc), or by a thread of the program that
// subscribed to the stream and calls aclrtProcessReport (aclrtLaunchCallback).
#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>
#include <pthread.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/doorbell.h"
#include "device/machine.h"

using namespace vnpu;

namespace {

// How a callback ended for which its stream waits.
struct Outcome {
    enum State { Pending, Ran, Dropped };
    std::atomic<State> state{Pending};
    Doorbell bell;

    void set(State reached) {
        state.store(reached);
        bell.ring();
    }
};

struct Report {
    aclrtCallback fn;
    void *data;
    std::shared_ptr<Outcome> outcome;  // null where the stream goes on at once
};

// The reports of one subscribed thread.
class Mailbox {
  public:
    int streams = 0;  // subscribed to it; guarded by Subscriptions

    void put(Report report) {
        {
            const std::lock_guard lock(mutex_);
            if (closed_) unread();
            reports_.push_back(std::move(report));
        }
        arrived_.ring();
    }

    // Null when none has come by the deadline.
    std::optional<Report> take(Deadline deadline) {
        std::optional<Report> taken;
        bool closed = false;
        arrived_.wait(
            [&] {
                const std::lock_guard lock(mutex_);
                closed = closed_;
                if (reports_.empty()) return closed;
                taken = std::move(reports_.front());
                reports_.pop_front();
                return true;
            },
            deadline);
        if (!taken && closed)
            throw acl::Error(ACL_ERROR_RT_THREAD_SUBSCRIBE,
                             "The thread was unsubscribed while it waited for a report.");
        return taken;
    }

    // Nobody will take reports from here any more. Streams that wait for one of them fail, and do not wait for ever.
    void close() {
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
            for (const Report &report : reports_)
                if (report.outcome) report.outcome->set(Outcome::Dropped);
            reports_.clear();
        }
        arrived_.ring();
    }

    [[noreturn]] static void unread() {
        fail(FaultKind::InvalidArgument, "The callback did not run: its thread was unsubscribed before.");
    }

  private:
    std::mutex mutex_;
    Doorbell arrived_;
    std::deque<Report> reports_;
    bool closed_ = false;
};

class Subscriptions {
  public:
    void add(uint64_t thread, const Stream &stream) {
        const std::lock_guard lock(mutex_);
        if (by_stream_.contains(stream.id()))
            throw acl::Error(ACL_ERROR_RT_STREAM_SUBSCRIBE,
                             fmt::format("Stream {} has a subscribed thread already.", stream.id()));
        auto &mailbox = by_thread_[thread];
        if (!mailbox) mailbox = std::make_shared<Mailbox>();
        ++mailbox->streams;
        by_stream_.emplace(stream.id(), std::pair(thread, mailbox));
    }

    void remove(uint64_t thread, const Stream &stream) {
        const std::lock_guard lock(mutex_);
        const auto it = by_stream_.find(stream.id());
        if (it == by_stream_.end() || it->second.first != thread)
            throw acl::Error(ACL_ERROR_RT_STREAM_NO_CB_REG,
                             fmt::format("Thread {} is not subscribed to stream {}.", thread, stream.id()));
        if (--it->second.second->streams == 0) {
            it->second.second->close();
            by_thread_.erase(thread);
        }
        by_stream_.erase(it);
    }

    std::shared_ptr<Mailbox> of(const Stream &stream) {
        const std::lock_guard lock(mutex_);
        const auto it = by_stream_.find(stream.id());
        if (it == by_stream_.end())
            throw acl::Error(
                ACL_ERROR_RT_STREAM_NO_CB_REG,
                fmt::format("No thread is subscribed to stream {}: call aclrtSubscribeReport first.", stream.id()));
        return it->second.second;
    }

    std::shared_ptr<Mailbox> of(uint64_t thread) {
        const std::lock_guard lock(mutex_);
        const auto it = by_thread_.find(thread);
        if (it == by_thread_.end())
            throw acl::Error(ACL_ERROR_RT_THREAD_SUBSCRIBE,
                             fmt::format("Thread {} is not subscribed to any stream.", thread));
        return it->second;
    }

  private:
    std::mutex mutex_;
    std::unordered_map<int, std::pair<uint64_t, std::shared_ptr<Mailbox>>> by_stream_;  // by the stream's number
    std::unordered_map<uint64_t, std::shared_ptr<Mailbox>> by_thread_;
};

Subscriptions &subscriptions() {
    static auto *all = new Subscriptions;  // never destroyed: threads may wait in it while the process ends
    return *all;
}

std::shared_ptr<Stream> stream_of(aclrtStream handle) { return Machine::instance().stream(handle); }

}  // namespace

// threadId is what pthread_self() gives in the thread that will call aclrtProcessReport.
aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
    return VNPU_API(threadId, stream) {
        if (threadId == 0) fail(FaultKind::InvalidArgument, "threadId is 0, which is no thread.");
        subscriptions().add(threadId, *stream_of(stream));
    };
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
    return VNPU_API(threadId, stream) { subscriptions().remove(threadId, *stream_of(stream)); };
}

// With ACL_CALLBACK_BLOCK the stream goes on when the function has returned, else when it was handed over.
aclError aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType, aclrtStream stream) {
    return VNPU_API(fn, userData, blockType, stream) {
        acl::not_null(reinterpret_cast<void *>(fn), "fn");
        const auto queue = stream_of(stream);
        const bool block = blockType == ACL_CALLBACK_BLOCK;
        queue->submit(make_task("Callback", [fn, userData, block, mailbox = subscriptions().of(*queue)] {
            const auto outcome = block ? std::make_shared<Outcome>() : nullptr;
            mailbox->put({fn, userData, outcome});
            if (!outcome) return;
            outcome->bell.wait([&] { return outcome->state.load() != Outcome::Pending; });
            if (outcome->state.load() == Outcome::Dropped) Mailbox::unread();
        }));
    };
}

// Waits for a report to this thread and runs it.
aclError aclrtProcessReport(int32_t timeout) {
    return VNPU_API(timeout) {
        const Deadline deadline = acl::deadline(timeout);
        const auto report = subscriptions().of(pthread_self())->take(deadline);
        if (!report)
            throw acl::Error(ACL_ERROR_RT_REPORT_TIMEOUT, fmt::format("No report came within {} ms.", timeout));
        report->fn(report->data);
        if (report->outcome) report->outcome->set(Outcome::Ran);
    };
}

// Runs `fn` on the stream's own thread; the stream goes on when it has returned.
aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args) {
    return VNPU_API(stream, fn, args) {
        acl::not_null(reinterpret_cast<void *>(fn), "fn");
        stream_of(stream)->submit(make_task("HostFunc", [fn, args] { fn(args); }));
    };
}
