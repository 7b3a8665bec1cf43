#include "device/capture.h"

#include <algorithm>
#include <unordered_map>

#include "device/perform.h"
#include "device/trace.h"

namespace vnpu {
namespace {

std::atomic<int> active{0};

struct Capture {
    std::shared_ptr<Graph> graph;
    int origin;  // the number of the stream that it began on
};

struct Update {
    std::shared_ptr<TaskGroup> group;
    std::vector<std::unique_ptr<Task>> tasks;
};

// Captures and updates in progress. Few and short: one lock for all.
struct Captures {
    std::mutex mutex;
    std::unordered_map<int, Capture>
        by_stream;  // by its number: a later stream may have the address of a destroyed one
    std::unordered_map<uint64_t, Capture> by_event;
    std::unordered_map<int, std::shared_ptr<TaskGroup>> groups;  // begun, by stream
    std::unordered_map<int, Update> updates;                     // by stream

    void finish(const std::shared_ptr<Graph> &graph) {
        const auto of_graph = [&](const auto &entry) { return entry.second.graph == graph; };
        std::erase_if(by_stream, of_graph);
        std::erase_if(by_event, of_graph);
        std::erase_if(groups, [&](const auto &entry) { return entry.second->graph.lock() == graph; });
        active.fetch_sub(1);
    }
};

Captures &captures() {
    static auto *all = new Captures;  // never destroyed: threads may submit while the process ends
    return *all;
}

uint32_t next_id() noexcept {
    static std::atomic<uint32_t> last{0};
    return ++last;
}

// Tasks that replace others do not run when they are submitted: who waits for such a record would wait for ever.
void refuse_in_update(const Captures &all, const Stream &stream, const char *what) {
    if (all.updates.contains(stream.id()))
        fail(FaultKind::InvalidArgument,
             "Stream {} replaces tasks of a captured graph (aclmdlRICaptureTaskUpdateBegin): until that has ended no "
             "event is {} there.",
             stream.id(), what);
}

// Of a task that has failed in a replay: what failed on the way to a core is that elsewhere as well.
FaultKind in_replay(FaultKind kind) noexcept {
    switch (kind) {
        case FaultKind::KernelFailure:
        case FaultKind::VectorFailure:
        case FaultKind::DeviceCpuFailure:
            return FaultKind::GraphFailure;
        default:
            return kind;
    }
}

}  // namespace

Graph::Graph() : id_(next_id()) {}

Graph::~Graph() {
    for (const Kept &kept : tasks_) kept.task->retire();
}

void Graph::keep(int stream, std::unique_ptr<Task> task) { tasks_.push_back({stream, task.release()}); }

void Graph::replace(const TaskGroup &group, std::vector<std::unique_ptr<Task>> &tasks) {
    check_complete();
    const std::lock_guard lock(running_);
    if (tasks.size() != group.places.size())
        fail(FaultKind::InvalidArgument, "The update of graph {} has {} tasks, its group has {}.", id_, tasks.size(),
             group.places.size());
    for (size_t i = 0; i < tasks.size(); ++i)
        if (const std::string before = tasks_[group.places[i]].task->name(); tasks[i]->name() != before)
            fail(FaultKind::InvalidArgument, "Task {} of the update of graph {} is {}, in its group it is {}.", i, id_,
                 tasks[i]->name(), before);
    for (size_t i = 0; i < tasks.size(); ++i) {
        Task *&place = tasks_[group.places[i]].task;
        place->retire();
        place = tasks[i].release();
    }
}

void Graph::check_complete() const {
    if (!complete_.load(std::memory_order_acquire))
        fail(FaultKind::InvalidArgument, "Graph {} cannot run or be printed: its capture has not been ended.", id_);
}

std::vector<Graph::Listed> Graph::list() const {
    check_complete();
    std::vector<Listed> tasks;
    for (const Kept &kept : tasks_) tasks.push_back({kept.stream, kept.task->name()});
    return tasks;
}

void Graph::execute(Stream &stream) {
    check_complete();
    stream.submit(make_task("GraphExecute", [self = shared_from_this()] {
        const std::lock_guard lock(self->running_);
        for (const auto &[origin, task] : self->tasks_) {
            try {
                perform(*task, *current_worker());
            } catch (const Fault &fault) {
                throw Fault(in_replay(task->failure(fault.kind())),
                            fmt::format("{} of graph {}: {}", task->name(), self->id_, fault.what()));
            } catch (const std::exception &error) {
                fail(FaultKind::GraphFailure, "{} of graph {} failed: {}", task->name(), self->id_, error.what());
            }
            if (Trace::enabled()) Trace::task(*current_worker(), task->name(), "");
        }
    }));
}

bool capturing() noexcept { return active.load(std::memory_order_acquire) != 0; }

std::shared_ptr<Graph> captured_by(const Stream &stream) {
    if (!capturing()) return nullptr;
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_stream.find(stream.id());
    return found == all.by_stream.end() ? nullptr : found->second.graph;
}

void begin_capture(Stream &stream) {
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    if (stream.closed()) fail(FaultKind::InvalidHandle, "Stream {} was destroyed.", stream.id());
    const Capture started{std::make_shared<Graph>(), stream.id()};
    if (!all.by_stream.emplace(stream.id(), started).second)
        fail(FaultKind::InvalidArgument, "Stream {} is captured already.", stream.id());
    active.fetch_add(1);
}

std::shared_ptr<Graph> end_capture(Stream &stream) {
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_stream.find(stream.id());
    if (found == all.by_stream.end() || found->second.origin != stream.id())
        fail(FaultKind::InvalidArgument, "No capture began on stream {}.", stream.id());
    const std::shared_ptr<Graph> graph = found->second.graph;
    all.finish(graph);
    graph->complete();
    return graph;
}

void begin_group(const Stream &stream) {
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_stream.find(stream.id());
    if (found == all.by_stream.end()) fail(FaultKind::InvalidArgument, "Stream {} is not captured.", stream.id());
    if (!all.groups.emplace(stream.id(), std::make_shared<TaskGroup>(found->second.graph)).second)
        fail(FaultKind::InvalidArgument, "A task group has begun on stream {} already.", stream.id());
}

std::shared_ptr<TaskGroup> end_group(const Stream &stream) {
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    auto begun = all.groups.extract(stream.id());
    if (!begun) fail(FaultKind::InvalidArgument, "No task group has begun on stream {}.", stream.id());
    return std::move(begun.mapped());
}

void begin_update(const Stream &stream, std::shared_ptr<TaskGroup> group) {
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    if (all.by_stream.contains(stream.id()))
        fail(FaultKind::InvalidArgument, "Stream {} is captured: it cannot update a task group.", stream.id());
    if (group->graph.expired()) fail(FaultKind::InvalidArgument, "The graph of the task group has been destroyed.");
    if (!all.updates.emplace(stream.id(), Update{std::move(group), {}}).second)
        fail(FaultKind::InvalidArgument, "Stream {} updates a task group already.", stream.id());
    active.fetch_add(1);
}

void end_update(const Stream &stream) {
    Captures &all = captures();
    Update update;
    {
        const std::lock_guard lock(all.mutex);
        auto begun = all.updates.extract(stream.id());
        if (!begun) fail(FaultKind::InvalidArgument, "No update of a task group has begun on stream {}.", stream.id());
        active.fetch_sub(1);
        update = std::move(begun.mapped());
    }
    const std::shared_ptr<Graph> graph = update.group->graph.lock();
    if (graph == nullptr) fail(FaultKind::InvalidArgument, "The graph of the task group has been destroyed.");
    graph->replace(*update.group, update.tasks);
}

void abandon_capture(const Stream &stream) {
    if (!capturing()) return;
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    if (all.updates.erase(stream.id()) != 0) active.fetch_sub(1);
    const auto found = all.by_stream.find(stream.id());
    if (found == all.by_stream.end()) return;
    if (found->second.origin == stream.id())
        all.finish(std::shared_ptr(found->second.graph));
    else
        all.by_stream.erase(found);
}

bool capture(Stream &stream, std::unique_ptr<Task> &task) {
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_stream.find(stream.id());
    if (found == all.by_stream.end()) {
        const auto updated = all.updates.find(stream.id());
        if (updated == all.updates.end()) return false;
        updated->second.tasks.push_back(std::move(task));
        return true;
    }
    Graph &graph = *found->second.graph;
    if (const auto group = all.groups.find(stream.id()); group != all.groups.end())
        group->second->places.push_back(graph.size());
    graph.keep(stream.id(), std::move(task));
    return true;
}

bool capture_record(uint64_t event, Stream &stream) {
    if (!capturing()) return false;
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    refuse_in_update(all, stream, "recorded");
    const auto found = all.by_stream.find(stream.id());
    if (found == all.by_stream.end()) {
        all.by_event.erase(event);  // the latest record counts
        return false;
    }
    all.by_event.insert_or_assign(event, found->second);
    return true;
}

bool capture_wait(uint64_t event, Stream &stream) {
    if (!capturing()) return false;
    Captures &all = captures();
    const std::lock_guard lock(all.mutex);
    refuse_in_update(all, stream, "waited for");
    const auto found = all.by_event.find(event);
    if (found == all.by_event.end()) return false;
    const auto [place, joined] = all.by_stream.emplace(stream.id(), found->second);
    if (!joined && place->second.graph != found->second.graph)
        fail(FaultKind::InvalidArgument, "Stream {} is part of graph {} and waits for an event of graph {}.",
             stream.id(), place->second.graph->id(), found->second.graph->id());
    return true;
}

}  // namespace vnpu
