/*
 * Event sets. Events that stand in the scenario file when a set is made are history; those with a
 * higher id that appear later are delivered once. The wait sleeps in poll(2) over inotify.
 */
#include "stub.h"

#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define XID_CRITICAL_ERROR 0x8ULL /* nvmlEventTypeXidCriticalError */

struct event_set {
    int inotify;
    unsigned long delivered; /* highest id delivered or passed over */
    unsigned long long wanted[MAX_GPUS];
    nvmlDevice_t handles[MAX_GPUS];
};
typedef struct event_set *nvmlEventSet_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t code = stub_enter("nvmlEventSetCreate", -1);
    if (code != SUCCESS)
        return code;
    struct event_set *fresh = calloc(1, sizeof *fresh);
    char path[4096];
    snprintf(path, sizeof path, "%s", scenario_path() ? scenario_path() : "./none");
    fresh->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fresh->inotify < 0 ||
        inotify_add_watch(fresh->inotify, dirname(path), IN_CLOSE_WRITE | IN_MOVED_TO) < 0) {
        free(fresh);
        return stub_leave(UNKNOWN);
    }
    for (int i = 0; i < scenario.event_count; i++)
        if (scenario.events[i].id > fresh->delivered)
            fresh->delivered = scenario.events[i].id;
    *set = fresh;
    return stub_leave(SUCCESS);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t code = stub_enter("nvmlEventSetFree", -1);
    if (code != SUCCESS)
        return code;
    close(set->inotify);
    free(set);
    return stub_leave(SUCCESS);
}

static int gpu_presence(int gpu)
{
    return gpu < scenario.gpu_count ? (int)scenario.gpus[gpu].presence : ABSENT;
}

/* The number "event_types" of a GPU; without it XIDs only. */
static unsigned long long types_of(int gpu)
{
    double types = 0;
    if (gpu < scenario.gpu_count && scenario_number(&scenario.gpus[gpu], "event_types", &types))
        return (unsigned long long)types;
    return XID_CRITICAL_ERROR;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t handle, unsigned long long *types)
{
    nvmlReturn_t code = stub_enter("nvmlDeviceGetSupportedEventTypes", handle->gpu);
    if (code != SUCCESS)
        return code;
    *types = types_of(handle->gpu);
    return stub_leave(gpu_presence(handle->gpu) == LOST ? GPU_IS_LOST : SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, unsigned long long types, nvmlEventSet_t set)
{
    nvmlReturn_t code = stub_enter("nvmlDeviceRegisterEvents", handle->gpu);
    if (code != SUCCESS)
        return code;
    if (gpu_presence(handle->gpu) == LOST)
        return stub_leave(GPU_IS_LOST);
    if (types & ~types_of(handle->gpu))
        return stub_leave(NOT_SUPPORTED);
    set->wanted[handle->gpu] |= types;
    set->handles[handle->gpu] = handle;
    return stub_leave(SUCCESS);
}

/* The next event for this set, 0 where there is none. The lock is held. */
static int take_event(nvmlEventSet_t set, nvmlEventData_t *out)
{
    const struct xid_event *next = NULL;
    for (int i = 0; i < scenario.event_count; i++) {
        const struct xid_event *event = &scenario.events[i];
        if (event->id > set->delivered && (next == NULL || event->id < next->id))
            next = event;
    }
    if (next == NULL)
        return 0;
    set->delivered = next->id;
    if (next->gpu < 0 || next->gpu >= MAX_GPUS || !(set->wanted[next->gpu] & next->type))
        return take_event(set, out);
    *out = (nvmlEventData_t){set->handles[next->gpu], next->type, next->xid, 0xFFFFFFFFu, 0xFFFFFFFFu};
    return 1;
}

static int any_lost(nvmlEventSet_t set)
{
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (set->wanted[gpu] && gpu_presence(gpu) == LOST)
            return 1;
    return 0;
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A GPU of the set that is lost ends the wait at once, as NVIDIA documents it. */
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned timeout_ms)
{
    long deadline = milliseconds() + (long)timeout_ms;
    for (;;) {
        nvmlReturn_t code = stub_enter("nvmlEventSetWait_v2", -1);
        if (code != SUCCESS)
            return code;
        if (take_event(set, out))
            return stub_leave(SUCCESS);
        if (any_lost(set))
            return stub_leave(GPU_IS_LOST);
        stub_leave(SUCCESS);
        long left = deadline - milliseconds();
        if (left <= 0)
            return TIMEOUT;
        struct pollfd waiting = {set->inotify, POLLIN, 0};
        poll(&waiting, 1, (int)left);
        char changes[4096];
        while (read(set->inotify, changes, sizeof changes) > 0)
            ;
    }
}
