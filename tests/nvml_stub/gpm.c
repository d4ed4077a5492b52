/* GPM: samples hold nothing, what two of them say is what the scenario says now. */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>

struct gpm_sample {
    nvmlDevice_t device; /* NULL before it was taken */
};
typedef struct gpm_sample *nvmlGpmSample_t;

typedef struct {
    unsigned version, isSupportedDevice;
} nvmlGpmSupport_t;

typedef struct {
    unsigned metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    const char *shortName, *longName, *unit;
} nvmlGpmMetric_t;

typedef struct {
    unsigned version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;

/* Supported where the GPU has a number gpm_N of those that are asked for, gpm_2 at least. */
nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, nvmlGpmSupport_t *support)
{
    struct gpu *gpu;
    double value;
    if (support->version != 1)
        return VERSION_MISMATCH;
    nvmlReturn_t code = stub_enter_gpu("nvmlGpmQueryDeviceSupport", handle, &gpu);
    if (code != SUCCESS)
        return code;
    support->isSupportedDevice = (unsigned)scenario_number(gpu, "gpm_2", &value);
    return stub_leave(SUCCESS);
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    *sample = calloc(1, sizeof **sample);
    return *sample != NULL ? SUCCESS : UNKNOWN;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t handle, nvmlGpmSample_t sample)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu("nvmlGpmSampleGet", handle, &gpu);
    if (code != SUCCESS)
        return code;
    sample->device = handle;
    return stub_leave(SUCCESS);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *wanted)
{
    if (wanted->version != 1)
        return VERSION_MISMATCH;
    if (wanted->sample1->device == NULL || wanted->sample1->device != wanted->sample2->device ||
        wanted->sample1 == wanted->sample2)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < wanted->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &wanted->metrics[i];
        char name[TEXT];
        snprintf(name, sizeof name, "gpm_%u", metric->metricId);
        metric->nvmlReturn = stub_number("nvmlGpmMetricsGet", wanted->sample1->device, name, &metric->value);
        if (metric->nvmlReturn == GPU_IS_LOST)
            return GPU_IS_LOST;
    }
    return SUCCESS;
}
