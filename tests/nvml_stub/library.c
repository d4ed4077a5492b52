/*
 * A libnvidia-ml.so.1 without a GPU behind it: answers what a scenario file says.
 *
 * Only what gpuwarden's agent calls is here. Struct layouts and codes are those of NVIDIA's NVML API
 * reference as nvidia-ml-py 13.615.71 spells them. With -DOLD_DRIVER the newer spellings of two calls
 * are left out (numbers.c), so that a caller meets a missing symbol as with an older driver.
 */
#include "stub.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define MAX_INSTANCES 8

static struct device devices[MAX_GPUS * MAX_INSTANCES];
static int initialised;

static void nap(long milliseconds)
{
    struct timespec pause = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}

nvmlReturn_t stub_enter(const char *call, int gpu)
{
    int delayed = 0;
    for (;;) {
        pthread_mutex_lock(&scenario_lock);
        scenario_refresh();
        const struct rule *rule = scenario_rule(call, gpu);
        if (rule == NULL || (rule->kind == RULE_DELAY && delayed))
            break;
        enum rule_kind kind = rule->kind;
        long argument = rule->argument;
        pthread_mutex_unlock(&scenario_lock);
        if (kind == RULE_FAIL)
            return (nvmlReturn_t)argument;
        nap(kind == RULE_DELAY ? argument : 10);
        delayed = 1;
    }
    if (!initialised && strcmp(call, "nvmlInitWithFlags") != 0) {
        pthread_mutex_unlock(&scenario_lock);
        return UNINITIALIZED;
    }
    return SUCCESS;
}

nvmlReturn_t stub_leave(nvmlReturn_t code)
{
    pthread_mutex_unlock(&scenario_lock);
    return code;
}

nvmlReturn_t stub_enter_gpu(const char *call, nvmlDevice_t handle, struct gpu **gpu)
{
    if (handle < devices || handle >= devices + MAX_GPUS * MAX_INSTANCES)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = stub_enter(call, handle->gpu);
    if (code != SUCCESS)
        return code;
    *gpu = &scenario.gpus[handle->gpu];
    if (handle->gpu >= scenario.gpu_count || (*gpu)->presence == ABSENT)
        return stub_leave(NOT_FOUND);
    if ((*gpu)->presence == LOST)
        return stub_leave(GPU_IS_LOST);
    return SUCCESS;
}

nvmlDevice_t stub_instance(int gpu, unsigned index)
{
    return &devices[gpu + MAX_GPUS * (1 + (int)index)];
}

nvmlReturn_t stub_instance_number(const char *call, nvmlDevice_t handle, const char *name, double *value)
{
    struct gpu *gpu;
    char own[TEXT], any[TEXT];
    double devices_now = 0;
    nvmlReturn_t code = stub_enter_gpu(call, handle, &gpu);
    if (code != SUCCESS)
        return code;
    scenario_number(gpu, "mig_devices", &devices_now);
    if (handle->instance > (int)devices_now)
        return stub_leave(NOT_FOUND);
    snprintf(own, sizeof own, "mig_%d_%s", handle->instance - 1, name);
    snprintf(any, sizeof any, "mig_%s", name);
    return stub_leave(scenario_number(gpu, own, value) || scenario_number(gpu, any, value) ? SUCCESS
                                                                                           : NOT_SUPPORTED);
}

static nvmlReturn_t answer_text(char *target, unsigned length, const char *text)
{
    if (text[0] == '\0')
        return stub_leave(NOT_SUPPORTED);
    if (strlen(text) >= length)
        return stub_leave(INSUFFICIENT_SIZE);
    strcpy(target, text);
    return stub_leave(SUCCESS);
}

/* ---- library and system ---- */

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    nvmlReturn_t code = stub_enter("nvmlInitWithFlags", -1);
    if (code != SUCCESS)
        return code;
    for (int i = 0; i < MAX_GPUS * MAX_INSTANCES; i++)
        devices[i] = (struct device){.gpu = i % MAX_GPUS, .instance = i / MAX_GPUS};
    initialised++;
    return stub_leave(SUCCESS);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t code = stub_enter("nvmlShutdown", -1);
    if (code != SUCCESS)
        return code;
    initialised--;
    return stub_leave(SUCCESS);
}

const char *nvmlErrorString(nvmlReturn_t code)
{
    static _Thread_local char text[40];
    snprintf(text, sizeof text, "stub error %d", code);
    return text;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    nvmlReturn_t code = stub_enter("nvmlSystemGetDriverVersion", -1);
    return code == SUCCESS ? answer_text(version, length, scenario.driver) : code;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    nvmlReturn_t code = stub_enter("nvmlSystemGetNVMLVersion", -1);
    return code == SUCCESS ? answer_text(version, length, scenario.nvml) : code;
}

/* ---- finding a GPU ---- */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    nvmlReturn_t code = stub_enter("nvmlDeviceGetCount_v2", -1);
    if (code != SUCCESS)
        return code;
    *count = 0;
    for (int i = 0; i < scenario.gpu_count; i++)
        *count += scenario.gpus[i].presence != ABSENT;
    return stub_leave(SUCCESS);
}

static nvmlReturn_t hand_out(int gpu, nvmlDevice_t *handle)
{
    if (scenario.gpus[gpu].presence == LOST)
        return stub_leave(GPU_IS_LOST);
    *handle = &devices[gpu];
    return stub_leave(SUCCESS);
}

/* The index counts the GPUs that are there, so that an absent one shifts those behind it. */
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
    nvmlReturn_t code = stub_enter("nvmlDeviceGetHandleByIndex_v2", -1);
    if (code != SUCCESS)
        return code;
    for (int i = 0; i < scenario.gpu_count; i++)
        if (scenario.gpus[i].presence != ABSENT && index-- == 0)
            return hand_out(i, handle);
    return stub_leave(INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *handle)
{
    unsigned domain, bus, device;
    nvmlReturn_t code = stub_enter("nvmlDeviceGetHandleByPciBusId_v2", -1);
    if (code != SUCCESS)
        return code;
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &device) != 3)
        return stub_leave(INVALID_ARGUMENT);
    for (int i = 0; i < scenario.gpu_count; i++) {
        const struct gpu *gpu = &scenario.gpus[i];
        if (gpu->presence != ABSENT && gpu->domain == domain && gpu->bus == bus && gpu->device == device)
            return hand_out(i, handle);
    }
    return stub_leave(NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
    nvmlReturn_t code = stub_enter("nvmlDeviceGetHandleByUUID", -1);
    if (code != SUCCESS)
        return code;
    for (int i = 0; i < scenario.gpu_count; i++)
        if (scenario.gpus[i].presence != ABSENT && strcmp(scenario.gpus[i].uuid, uuid) == 0)
            return hand_out(i, handle);
    return stub_leave(NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu("nvmlDeviceGetIndex", handle, &gpu);
    if (code != SUCCESS)
        return code;
    *index = 0;
    for (int i = 0; i < handle->gpu; i++)
        *index += scenario.gpus[i].presence != ABSENT;
    return stub_leave(SUCCESS);
}

/* ---- identity ---- */

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *pci)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu("nvmlDeviceGetPciInfo_v3", handle, &gpu);
    if (code != SUCCESS)
        return code;
    memset(pci, 0, sizeof *pci);
    pci->domain = gpu->domain;
    pci->bus = gpu->bus;
    pci->device = gpu->device;
    snprintf(pci->busId, sizeof pci->busId, "%.31s", gpu->pci);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", gpu->domain & 0xffff,
             gpu->bus & 0xff, gpu->device & 0xff);
    return stub_leave(SUCCESS);
}

#define TEXT_CALL(NAME, FIELD)                                                     \
    nvmlReturn_t NAME(nvmlDevice_t handle, char *text, unsigned length)            \
    {                                                                              \
        struct gpu *gpu;                                                           \
        nvmlReturn_t code = stub_enter_gpu(#NAME, handle, &gpu);                        \
        return code == SUCCESS ? answer_text(text, length, gpu->FIELD) : code;     \
    }

TEXT_CALL(nvmlDeviceGetUUID, uuid)
TEXT_CALL(nvmlDeviceGetSerial, serial)
TEXT_CALL(nvmlDeviceGetName, name)
TEXT_CALL(nvmlDeviceGetVbiosVersion, vbios)
