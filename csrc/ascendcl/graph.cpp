// Graphs (torch.npu.NPUGraph): capture and replay. A model's handle is live from when it is first given out until
// aclmdlRIDestroy; a capture that is abandoned before leaves nothing.
#include "ascendcl/graph.h"

#include <acl/acl_rt.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/capture.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

namespace {

Handles<Graph> models("graph");
Handles<TaskGroup> groups("task group");  // each lives until its graph is destroyed

thread_local aclmdlRICaptureMode mode_of_thread = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

void known(aclmdlRICaptureMode mode) {
    if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
        fail(FaultKind::InvalidArgument, "mode is {}; it is 0 (global), 1 (thread-local) or 2 (relaxed).",
             static_cast<int>(mode));
}

}  // namespace

void acl::outside_capture(const Stream &stream, const char *what) {
    if (const auto graph = captured_by(stream))
        throw Error(ACL_ERROR_RT_STREAM_CAPTURED,
                    fmt::format("{} is not possible while stream {} is captured into graph {}: its tasks run when the "
                                "graph does. Move .item(), .cpu(), copies from pageable memory and synchronisation out "
                                "of the capture.",
                                what, stream.id(), graph->id()));
}

// The three modes differ in which calls of other threads they forbid; none of those has effects on a capture here.
aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
    return VNPU_API(stream, mode) {
        known(mode);
        const auto origin = Machine::instance().stream(stream);
        if (origin == Machine::instance().stream(nullptr))
            throw acl::Error(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "A default stream cannot be captured.");
        begin_capture(*origin);
    };
}

// torch_npu asks before every operator.
aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *modelRI) {
    return VNPU_API(stream, status, modelRI) {
        aclmdlRICaptureStatus &answer = required(status, "status");
        const auto graph = capturing() ? captured_by(*Machine::instance().stream(stream)) : nullptr;
        answer = graph ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_NONE;
        if (modelRI != nullptr) *modelRI = graph ? models.add(graph) : nullptr;
    };
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *modelRI) {
    return VNPU_API(stream, modelRI) {
        aclmdlRI &model = required(modelRI, "modelRI");
        model = models.add(end_capture(*Machine::instance().stream(stream)));
    };
}

// Groups of captured tasks that later tasks replace (torch.npu.graph_task_group_begin and graph_task_update_begin).
aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
    return VNPU_API(stream) { begin_group(*Machine::instance().stream(stream)); };
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle) {
    return VNPU_API(stream, handle) {
        aclrtTaskGrp &group = required(handle, "handle");
        group = groups.add(end_group(*Machine::instance().stream(stream)));
    };
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
    return VNPU_API(stream, handle) { begin_update(*Machine::instance().stream(stream), groups.find(handle)); };
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
    return VNPU_API(stream) { end_update(*Machine::instance().stream(stream)); };
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode *mode) {
    return VNPU_API(mode) {
        aclmdlRICaptureMode &wanted = required(mode, "mode");
        known(wanted);
        std::swap(wanted, mode_of_thread);
    };
}

aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream) {
    return VNPU_API(modelRI, stream) { models.find(modelRI)->execute(*Machine::instance().stream(stream)); };
}

// A list of events for chrome://tracing, as of the real runtime (runtime: Stream::TraceEventToJson). Times are places
// in the order of the tasks; the virtual NPU's kernels have no arguments in memory, so `flags` changes nothing.
aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char *path, uint32_t flags) {
    return VNPU_API(modelRI, path, flags) {
        acl::not_null(path, "path");
        if (flags > ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE)
            fail(FaultKind::InvalidArgument, "flags is {}; it is 0 (summary) or 1 (verbose).", flags);
        const auto graph = models.find(modelRI);
        std::string text;
        for (size_t i = 0; const Graph::Listed &task : graph->list()) {
            fmt::format_to(
                std::back_inserter(text),
                "{}\n{{\"name\":\"{}\",\"pid\":\"aclGraph\",\"tid\":\"stream {}\",\"ts\":{},\"dur\":1,"
                "\"ph\":\"X\",\"args\":{{\"Model Id\":{},\"Stream Id\":{},\"Task Id\":{},\"Task Type\":\"{}\"}}}}",
                i == 0 ? "" : ",", task.name, task.stream, i, graph->id(), task.stream, i,
                task.name.starts_with("acl") ? "KERNEL" : task.name);
            ++i;
        }
        std::ofstream file(path);
        if (!(file << '[' << text << "\n]\n").flush())
            fail(FaultKind::InvalidArgument, "path is {}, which cannot be written: {}.", path, std::strerror(errno));
    };
}

aclError aclmdlRIDestroy(aclmdlRI modelRI) {
    return VNPU_API(modelRI) {
        const std::shared_ptr<Graph> graph = models.remove(modelRI);
        groups.remove_if([&](const TaskGroup &group) { return group.graph.lock() == graph; });
    };
}

aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t *modelRIId) {
    return VNPU_API(modelRI, modelRIId) { required(modelRIId, "modelRIId") = models.find(modelRI)->id(); };
}
