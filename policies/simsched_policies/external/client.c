/* A scheduler for simsched in C: shortest remaining time first, with backfill. It speaks the protocol of
   docs/external.md on its standard streams, and needs only the C library: cc -O2 -o client client.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { char *id; int gpus, turn, runs, chosen, kind, *at; double left; } Job; /* at: GPUs by node */
static Job *jobs;
static char *p, *names[64], line[1 << 24]; /* where reading has come to (fields come in the page's order); types */
static int count, turn, nodes, kinds, *kind_of, *told; /* told: free GPUs before the decision */
#define JOBS for (Job *job = jobs; job < jobs + count; job++)
#define EACH(open, close) for (take(open); !take(close); take(','))
static int take(char c) { return *p == c ? (p++, 1) : 0; }
static int number(void) { int n = (int)strtol(p, &p, 10); take(','); return n; }
static int key(const char *name) { /* whether the next field has this name, which is read then */
    size_t n = strlen(name);
    return strncmp(p + 1, name, n) == 0 && p[n + 1] == '"' ? (p += n + 3, 1) : 0;
}
static char *text(void) { /* a string as it stands there, in quotes */
    char *from = p++;
    for (; *p != '"'; p++) if (*p == '\\') p++;
    from = strndup(from, ++p - from);
    take(':');
    return from;
}
static void skip(void) {
    char close = *p == '{' ? '}' : ']';
    if (*p == '"') free(text());
    else if (*p != '{' && *p != '[') p += strcspn(p, ",}]\n");
    else EACH(*p, close) for (skip(); *p != ',' && *p != close;) skip();
}
static Job *find(char *id) { Job *job = jobs; while (strcmp(job->id, id)) job++; free(id); return job; }
static void hello(void) { /* nodes: [[how many, GPUs, type], ...] */
    EACH('[', ']') {
        take('[');
        int all = nodes + number(), gpus = number(), kind = 0, **lists[] = {&kind_of, &told};
        for (names[kinds] = text(); strcmp(names[kind], names[kinds]);) kind++;
        kinds += kind == kinds;
        for (int i = 0; i < 2; i++) *lists[i] = realloc(*lists[i], all * sizeof(int));
        for (; nodes < all; nodes++) told[nodes] = gpus, kind_of[nodes] = kind;
        take(']');
    }
}
static void arrive(void) { /* a request: the fields that differ from their defaults */
    jobs = realloc(jobs, (count + 1) * sizeof(Job));
    Job *job = &jobs[count++];
    *job = (Job){.turn = ++turn, .at = calloc(nodes, sizeof(int))};
    EACH('{', '}')
        if (key("num_gpus")) job->gpus = (int)strtol(p, &p, 10);
        else if (key("id")) job->id = text();
        else skip(), skip();
}
static void leave(Job *job) { memmove(job, job + 1, (jobs + --count - job) * sizeof(Job)); }
static void stop(Job *job) { job->runs = 0; memset(job->at, 0, nodes * sizeof(int)); }
static void tell(Job *job) { take('['), job->left = strtod(p, &p), take(']'); }
static void set(void) { take('['); int n = number(); told[n] = number(); take(']'); }
static int before(const void *a, const void *b) { /* least work left first, then first submitted */
    const Job *one = a, *other = b;
    return one->left != other->left ? (one->left < other->left ? -1 : 1) : one->turn - other->turn;
}
static void decide(void) { /* who runs stays, the others go around them */
    int room[kinds], left[nodes], some = 0;
    memset(room, 0, sizeof room), memcpy(left, told, sizeof left);
    for (int node = 0; node < nodes; node++) room[kind_of[node]] += told[node];
    JOBS if (job->runs) room[job->kind] += job->gpus;
    qsort(jobs, count, sizeof(Job), before);
    JOBS for (int kind = job->chosen = 0; kind < kinds && !job->chosen; kind++) /* the first GPU type with room */
        if ((!job->runs || job->kind == kind) && room[kind] >= job->gpus)
            room[job->kind = kind] -= job->gpus, job->chosen = 1;
    printf("{\"type\":\"decision\",\"jobs\":{");
    JOBS if (job->runs && !job->chosen) {
        for (int node = 0; node < nodes; node++) left[node] += job->at[node];
        stop(job), printf("%s%s:[]", some++ ? "," : "", job->id);
    }
    JOBS if (!job->runs && job->chosen) {
        printf("%s%s:", some++ ? "," : "", job->id);
        for (int need = job->gpus, most; need > 0; need -= job->at[most], left[most] -= job->at[most]) {
            for (int node = most = 0; node < nodes; node++) /* the node with the most free GPUs, the first of equals */
                if (kind_of[node] == job->kind && (kind_of[most] != job->kind || left[node] > left[most])) most = node;
            job->at[most] = left[most] < need ? left[most] : need;
            printf("%s[%d,%d]%s", job->runs++ ? "," : "[", most, job->at[most], job->at[most] == need ? "]" : "");
        }
    }
    puts("}}");
}
int main(void) {
    for (char type = 0; fgets(line, sizeof line, stdin); fflush(stdout)) {
        for (p = line, take('{'); !take('}'); take(','))
            if (key("type")) type = p[1], skip();
            else if (key("nodes")) hello();
            else if (key("arrived")) EACH('[', ']') arrive();
            else if (key("finished")) EACH('[', ']') leave(find(text()));
            else if (key("lost")) EACH('[', ']') stop(find(text()));
            else if (key("free")) EACH('[', ']') set();
            else if (key("told")) EACH('{', '}') tell(find(text()));
            else skip(), skip();
        if (type == 'h') puts("{\"type\":\"ready\",\"version\":1}");
        else if (type == 'd') decide();
        else return 0; /* "end", or "refused" with the reason in "why" */
    }
}
