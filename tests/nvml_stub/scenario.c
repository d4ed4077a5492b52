/* Parses the scenario file and reads it again whenever it changes. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

struct scenario scenario;
pthread_mutex_t scenario_lock = PTHREAD_MUTEX_INITIALIZER;

static struct stat seen;
static double loaded_at;

static double monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

__attribute__((constructor)) static void note_load(void)
{
    loaded_at = monotonic();
}

const char *scenario_path(void)
{
    return getenv("NVML_STUB_SCENARIO");
}

static void complain(int line, const char *text)
{
    fprintf(stderr, "nvml_stub: %s line %d not understood: %s\n", scenario_path(), line, text);
}

static void add_rule(struct scenario *s, enum rule_kind kind, int gpu, const char *call, long argument)
{
    if (s->rule_count == MAX_RULES)
        return;
    struct rule *rule = &s->rules[s->rule_count++];
    rule->kind = kind;
    rule->gpu = gpu;
    rule->argument = argument;
    snprintf(rule->call, sizeof rule->call, "%s", call);
}

static int parse_rule(struct scenario *s, int gpu, const char *word, char *rest)
{
    char call[TEXT] = "";
    long argument = 0;
    int words = sscanf(rest, "%95s %ld", call, &argument);
    if (words < 1)
        return 0;
    if (!strcmp(word, "unsupported"))
        add_rule(s, RULE_FAIL, gpu, call, 3);
    else if (!strcmp(word, "fail") && words == 2)
        add_rule(s, RULE_FAIL, gpu, call, argument);
    else if (!strcmp(word, "delay") && words == 2)
        add_rule(s, RULE_DELAY, gpu, call, argument);
    else if (!strcmp(word, "hang"))
        add_rule(s, RULE_HANG, gpu, call, 0);
    else
        return 0;
    return 1;
}

static int parse_event(struct scenario *s, char *rest)
{
    struct xid_event event = {.type = 8}; /* nvmlEventTypeXidCriticalError */
    int words = sscanf(rest, "%lu %d %u %llu", &event.id, &event.gpu, &event.xid, &event.type);
    if (s->event_count == MAX_EVENTS || words < 3)
        return 0;
    s->events[s->event_count++] = event;
    return 1;
}

static int parse_node_line(struct scenario *s, const char *word, char *rest)
{
    if (!strcmp(word, "driver"))
        snprintf(s->driver, TEXT, "%.95s", rest);
    else if (!strcmp(word, "nvml"))
        snprintf(s->nvml, TEXT, "%.95s", rest);
    else
        return parse_rule(s, -1, word, rest);
    return 1;
}

static int parse_text(struct gpu *gpu, const char *word, char *rest)
{
    char *target = !strcmp(word, "uuid")     ? gpu->uuid
                   : !strcmp(word, "serial") ? gpu->serial
                   : !strcmp(word, "name")   ? gpu->name
                   : !strcmp(word, "vbios")  ? gpu->vbios
                                             : NULL;
    if (target == NULL)
        return 0;
    snprintf(target, TEXT, "%.95s", rest);
    return 1;
}

static void note_field(struct gpu *gpu, const char *word)
{
    static const char *counters[] = {"link_replays", "link_recoveries", "link_crc_flit_errors"};
    unsigned field;
    char dot = '\0';
    if (sscanf(word, "field_%u%c", &field, &dot) >= 1 && field < MAX_FIELDS) {
        if (dot == '.')
            gpu->field_scoped[field] = 1;
        else
            gpu->field_at[field] = (short)gpu->number_count;
    }
    for (unsigned i = 0; i < 3; i++)
        if (!strcmp(word, counters[i]) && gpu->field_at[161 + i] == 0)
            gpu->field_at[161 + i] = (short)gpu->number_count;
}

static unsigned hash_of(const char *name)
{
    unsigned hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static int parse_number(struct gpu *gpu, const char *word, char *rest)
{
    struct number number = {.rate = 0};
    char *end;
    number.value = strtod(rest, &end);
    if (end == rest || gpu->number_count == MAX_NUMBERS)
        return 0;
    number.rate = strtod(end, NULL); /* "+1.5" a second; absent is 0 */
    snprintf(number.name, TEXT, "%s", word);
    gpu->hashes[gpu->number_count] = hash_of(number.name);
    gpu->numbers[gpu->number_count++] = number;
    note_field(gpu, word);
    return 1;
}

static int parse_gpu_line(struct scenario *s, struct gpu *gpu, const char *word, char *rest)
{
    unsigned link, pid;
    if (!strcmp(word, "lost"))
        gpu->presence = LOST;
    else if (!strcmp(word, "absent"))
        gpu->presence = ABSENT;
    else if (!strcmp(word, "pci")) {
        if (sscanf(rest, "%x:%x:%x", &gpu->domain, &gpu->bus, &gpu->device) != 3)
            return 0;
        snprintf(gpu->pci, TEXT, "%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->device);
    } else if (!strcmp(word, "links"))
        return sscanf(rest, "%d", &gpu->link_count) == 1 && gpu->link_count <= MAX_LINKS;
    else if (!strcmp(word, "link_down")) {
        if (sscanf(rest, "%u", &link) != 1 || link >= MAX_LINKS)
            return 0;
        gpu->link_down[link] = 1;
    } else if (!strcmp(word, "process")) {
        if (gpu->pid_count == MAX_PROCESSES || sscanf(rest, "%u", &pid) != 1)
            return 0;
        gpu->pids[gpu->pid_count++] = pid;
    } else
        return parse_text(gpu, word, rest) || parse_rule(s, (int)(gpu - s->gpus), word, rest) ||
               parse_number(gpu, word, rest);
    return 1;
}

static void parse_line(struct scenario *s, int line, char *text)
{
    static struct gpu *gpu;
    char word[TEXT] = "";
    int used = 0;
    if (line == 1)
        gpu = NULL;
    text[strcspn(text, "#\r\n")] = '\0';
    if (sscanf(text, " %95s %n", word, &used) < 1)
        return;
    char *rest = text + used;
    for (char *last = rest + strlen(rest); last > rest && last[-1] == ' ';)
        *--last = '\0';
    int understood;
    if (!strcmp(word, "gpu") && s->gpu_count < MAX_GPUS) {
        gpu = &s->gpus[s->gpu_count++];
        understood = 1;
    } else if (!strcmp(word, "event"))
        understood = parse_event(s, rest);
    else
        understood = gpu ? parse_gpu_line(s, gpu, word, rest) : parse_node_line(s, word, rest);
    if (!understood)
        complain(line, text);
}

void scenario_refresh(void)
{
    static struct scenario fresh;
    static int fixed = -1;
    const char *path = scenario_path();
    struct stat now;
    if (fixed < 0)
        fixed = getenv("NVML_STUB_FIXED") != NULL;
    if (path == NULL || (fixed && seen.st_ino != 0) || stat(path, &now) != 0)
        return;
    if (now.st_ino == seen.st_ino && now.st_size == seen.st_size &&
        now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    char text[512];
    memset(&fresh, 0, sizeof fresh);
    for (int line = 1; fgets(text, sizeof text, file) != NULL; line++)
        parse_line(&fresh, line, text);
    fclose(file);
    scenario = fresh;
    seen = now;
}

const struct rule *scenario_rule(const char *call, int gpu)
{
    for (int i = 0; i < scenario.rule_count; i++) {
        const struct rule *rule = &scenario.rules[i];
        if (!strcmp(rule->call, call) && (rule->gpu == -1 || rule->gpu == gpu))
            return rule;
    }
    return NULL;
}

static double value_now(const struct number *number)
{
    return number->rate == 0 ? number->value : number->value + number->rate * (monotonic() - loaded_at);
}

int scenario_number(const struct gpu *gpu, const char *name, double *value)
{
    unsigned hash = hash_of(name);
    for (int i = 0; i < gpu->number_count; i++)
        if (gpu->hashes[i] == hash && !strcmp(gpu->numbers[i].name, name)) {
            *value = value_now(&gpu->numbers[i]);
            return 1;
        }
    return 0;
}

int scenario_field(const struct gpu *gpu, unsigned field, unsigned scope, double *value)
{
    char name[TEXT];
    if (field >= MAX_FIELDS)
        return 0;
    if (gpu->field_scoped[field]) {
        snprintf(name, sizeof name, "field_%u.%u", field, scope);
        if (scenario_number(gpu, name, value))
            return 1;
    }
    if (gpu->field_at[field] == 0)
        return 0;
    *value = value_now(&gpu->numbers[gpu->field_at[field] - 1]);
    return 1;
}
