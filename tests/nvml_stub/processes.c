/* Processes that compute on a GPU. */
#include "stub.h"

#include <string.h>

typedef struct {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_t;

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count,
                                                     nvmlProcessInfo_t *processes)
{
    struct gpu *gpu;
    nvmlReturn_t code = stub_enter_gpu("nvmlDeviceGetComputeRunningProcesses_v3", handle, &gpu);
    if (code != SUCCESS)
        return code;
    unsigned room = *count;
    *count = (unsigned)gpu->pid_count;
    if (room < *count)
        return stub_leave(INSUFFICIENT_SIZE);
    for (int i = 0; i < gpu->pid_count; i++) {
        memset(&processes[i], 0, sizeof processes[i]);
        processes[i].pid = gpu->pids[i];
        processes[i].gpu_instance = processes[i].compute_instance = 0xFFFFFFFFu;
    }
    return stub_leave(SUCCESS);
}
