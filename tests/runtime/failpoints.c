/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every failpoint x {kill, stop, delay} x either side of exchanges of two and
 * of three processes.
 *
 *     failpoints kill|stop|delay [POINT]   run the cases
 *     failpoints check FOLDER...           is the table that of the sources?
 *
 * A delayed or stopped process changes nothing in the result. When one is
 * killed the others get RSCHED_EPEER that names it (or a neighbor that gave
 * up because of it), go on with an exchange of their own, and leave nothing
 * behind.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/halo.h"

enum { MAX_RANKS = 3, MAX_EDGES = 12 };

enum { EPOCHS = 6, MAX_EPOCHS = 1000 };

struct point {
    const char *name;
    int hit;        /* at which the action happens */
    bool blameless; /* the others have all they need by then */
};

static const struct point points[] = {
    {"create:hello", 1, false}, {"create:reach", 1, false},
    {"create:sizes", 1, false}, {"create:rails", 1, false},
    {"create:table", 1, false}, {"create:ack", 1, false},
    {"create:end", 1, false},   {"start", 3, false},
    {"started", 3, false},      {"wait", 3, false},
    {"destroy", 1, true},       {"tx:pack", 3, false},
    {"tx:arrived", 3, false},   {"tx:wake", 3, false},
    {"rx:arrived", 3, false},   {"rx:consumed", 3, false},
    {"rx:wake", 3, false},      {"tx:announce", 3, false},
    {"rx:pulled", 3, false},    {"rx:table", 1, false},
};

enum { NUM_POINTS = sizeof(points) / sizeof(points[0]) };

/* Those of an opening by rings have their cases in tests/mlx5/rings.c, of a region in
 * tests/cuda/region.c, of shared work and the kernel's reading in trials.c. */
static bool is_elsewhere(const char *name)
{
    return strncmp(name, "open:", 5) == 0 || strncmp(name, "region:", 7) == 0 ||
           strcmp(name, "tx:claimed") == 0 || strcmp(name, "rx:offered") == 0 ||
           strcmp(name, "rx:read") == 0;
}

struct scene {
    const struct point *point;
    const char *action;
    int victim, num_ranks;
    bool blind; /* the out-of-band transport does not notice */
};

/* ---- what a rank has open ---- */

struct belongings {
    int descriptors, segments, named;
};

static int count_entries(const char *path, const char *part)
{
    DIR *dir = opendir(path);
    int n = 0;

    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        n += strstr(e->d_name, part) != NULL;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static struct belongings take_stock(void)
{
    struct belongings b = {count_entries("/proc/self/fd", ""), 0,
                           count_entries("/dev/shm", "rsched")};
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        b.segments += strstr(line, "memfd:rsched") != NULL;
    if (maps != NULL)
        fclose(maps);
    return b;
}

static int check_stock(const struct rank *self, const struct belongings *before)
{
    struct belongings now = take_stock();

    if (now.descriptors == before->descriptors &&
        now.segments == before->segments && now.named == before->named)
        return 0;
    return RANK_FAIL("rank %d leaks: %d descriptors were %d, %d segments were "
                     "%d, %d entries in /dev/shm were %d",
                     self->rank, now.descriptors, before->descriptors,
                     now.segments, before->segments, now.named, before->named);
}

/* ---- the ranks ---- */

static int make_edges(const struct scene *scene, struct halo_edge *edges)
{
    int n = 0;

    for (int a = 0; a < scene->num_ranks; a++) {
        for (int b = a + 1; b < scene->num_ranks; b++) {
            edges[n++] = (struct halo_edge){a, b, 8};
            edges[n++] = (struct halo_edge){b, a, 300000};
            edges[n++] = (struct halo_edge){a, b, 20000 | HALO_SHARED};
            edges[n++] = (struct halo_edge){b, a, 50000 | HALO_SHARED};
        }
    }
    return n;
}

/* The survivors' own exchange: between two, or of one with itself. */
static int make_other_edges(const struct scene *scene, struct halo_edge *edges)
{
    int first = scene->victim == 0 ? 1 : 0;
    int last = scene->victim == scene->num_ranks - 1 ? scene->num_ranks - 2
                                                     : scene->num_ranks - 1;

    edges[0] = (struct halo_edge){first, last, 4096};
    edges[1] = (struct halo_edge){last, first, 64};
    return 2;
}

/* The error of a survivor must say who it was. Nobody can tell a process that
 * died before it was connected from one that cannot be reached. */
static int check_blame(const struct rank *self, int error, bool connected)
{
    const struct scene *scene = self->arg;
    const char *text = rsched_last_error();
    char peer[32], process[32];

    snprintf(peer, sizeof(peer), "peer %d", scene->victim);
    snprintf(process, sizeof(process), "process %d", scene->victim);
    if ((error == RSCHED_EPEER || (!connected && error == RSCHED_EUNREACH)) &&
        (strstr(text, peer) != NULL || strstr(text, process) != NULL ||
         (scene->num_ranks > 2 && strstr(text, "has given up") != NULL)))
        return 0;
    return RANK_FAIL("rank %d: error %s (%s)", self->rank,
                     rsched_error_name(error), text);
}

static int run_until_done(struct rank *self, struct halo *h)
{
    const struct scene *scene = self->arg;
    bool fatal = strcmp(scene->action, "kill") == 0 && !scene->point->blameless;
    int epochs = fatal ? MAX_EPOCHS : EPOCHS;
    int error = 0;

    for (int epoch = 0; epoch < epochs && error == 0; epoch++)
        error = halo_step(h, epoch);
    if (!fatal) {
        if (error == 0)
            return 0;
        return RANK_FAIL("rank %d: %s", self->rank, rsched_last_error());
    }
    if (check_blame(self, error, true) != 0)
        return 1;
    RANK_CHECK(!rsched_exchange_is_active(h->x));
    RANK_CHECK(rsched_exchange_start(h->x) == RSCHED_EPEER); /* sticky */
    return 0;
}

static int run_main(struct rank *self)
{
    const struct scene *scene = self->arg;
    struct halo_edge edges[MAX_EDGES];
    struct halo *h;
    int n = make_edges(scene, edges);
    int error = halo_create(self, edges, n, 1, 0, &h);
    int result;

    if (error != 0) {
        if (strcmp(scene->action, "kill") != 0)
            return RANK_FAIL("rank %d: %s", self->rank, rsched_last_error());
        return check_blame(self, error, false);
    }
    result = run_until_done(self, h);
    halo_destroy(h);
    return result;
}

static int survive(struct rank *self)
{
    struct halo_edge edges[2];
    struct halo *h;
    int n = make_other_edges(self->arg, edges);
    int result;

    RANK_CHECK(halo_create(self, edges, n, 2, 0, &h) == 0);
    for (int epoch = 0; epoch < 20; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    result = run_main(self);
    for (int epoch = 20; result == 0 && epoch < 40; epoch++)
        RANK_CHECK(halo_step(h, epoch) == 0);
    halo_destroy(h);
    /* Nor does a dead process prevent a new exchange among the living. */
    RANK_CHECK(halo_create(self, edges, n, 3, 0, &h) == 0);
    RANK_CHECK(result != 0 || halo_step(h, 0) == 0);
    halo_destroy(h);
    return result;
}

static int run_rank(struct mesh *mesh, const struct scene *scene, int rank)
{
    struct rank self = {.rank = rank,
                        .num_ranks = scene->num_ranks,
                        .arg = (void *)(uintptr_t)scene};
    struct belongings before;
    int result;

    alarm(RANKS_HANG_SECONDS);
    self.end = mesh_end_create(mesh, rank);
    mesh_end_set_blind(self.end, scene->blind);
    before = take_stock();
    result = rank_open(&self);
    if (result == 0)
        result = rank == scene->victim ? run_main(&self) : survive(&self);
    rank_close(&self);
    if (result == 0)
        result = check_stock(&self, &before);
    mesh_end_destroy(self.end);
    return result;
}

/* ---- the parent ---- */

static pid_t spawn(struct mesh *mesh, const struct scene *scene, int rank)
{
    pid_t pid = fork();
    char value[128];
    int result;

    if (pid != 0)
        return pid;
    mesh_keep(mesh, rank);
    snprintf(value, sizeof(value), "%s@%d#%d=%s", scene->point->name,
             scene->victim, scene->point->hit, scene->action);
    setenv("RSCHED_FAILPOINTS", value, 1);
    if (scene->blind)
        setenv("RSCHED_SETUP_TIMEOUT", "1s", 1);
    result = run_rank(mesh, scene, rank);
    mesh_destroy(mesh);
    exit(result);
}

/* @return whether the rank ended as it should */
static bool watch(const struct scene *scene, pid_t pid, int rank, bool *acted)
{
    bool victim = rank == scene->victim;
    bool kill_it = strcmp(scene->action, "kill") == 0;
    int status;

    while (waitpid(pid, &status, WUNTRACED) == pid) {
        if (WIFSTOPPED(status)) {
            *acted = true;
            usleep(30000);
            kill(pid, SIGCONT);
            continue;
        }
        if (victim && kill_it && WIFSIGNALED(status) &&
            WTERMSIG(status) == SIGKILL) {
            *acted = true;
            return true;
        }
        if (!WIFSIGNALED(status))
            return WEXITSTATUS(status) == 0;
        fprintf(stderr, "rank %d: signal %d%s\n", rank, WTERMSIG(status),
                WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
        return false;
    }
    return false;
}

static int play(const struct scene *scene)
{
    struct mesh *mesh = mesh_create(scene->num_ranks);
    pid_t pids[MAX_RANKS];
    bool good = true, acted = strncmp(scene->action, "delay", 5) == 0;

    fflush(NULL);
    for (int i = 0; i < scene->num_ranks; i++)
        pids[i] = spawn(mesh, scene, i);
    mesh_destroy(mesh);
    /* The victim first: nobody else can continue it. */
    good = watch(scene, pids[scene->victim], scene->victim, &acted);
    for (int i = 0; i < scene->num_ranks; i++) {
        if (i != scene->victim)
            good = watch(scene, pids[i], i, &acted) && good;
    }
    if (!acted)
        fprintf(stderr, "the point was never reached\n");
    if (good && acted)
        return 0;
    fprintf(stderr, "FAILED: %s=%s, rank %d of %d%s\n", scene->point->name,
            scene->action, scene->victim, scene->num_ranks,
            scene->blind ? ", blind transport" : "");
    return 1;
}

static int play_all(const char *action, const char *only)
{
    bool fatal = strcmp(action, "kill") == 0;
    int played = 0, failed = 0;

    for (int i = 0; i < NUM_POINTS; i++) {
        for (int variant = 0; variant < (fatal ? 8 : 4); variant++) {
            struct scene scene = {.point = &points[i],
                                  .action = action,
                                  .victim = variant % 2,
                                  .num_ranks = 2 + variant / 2 % 2,
                                  .blind = variant >= 4};

            if (only != NULL && strcmp(only, points[i].name) != 0)
                continue;
            /* A blind rank waits for the timeout if the victim never said a
             * word, which is no different error: it is not played. */
            if (scene.blind && (strcmp(points[i].name, "create:hello") == 0 ||
                                strncmp(points[i].name, "create:", 7) != 0))
                continue;
            failed += play(&scene);
            played++;
        }
    }
    printf("%d cases, %d failed\n", played, failed);
    return failed == 0 && played > 0 ? 0 : 1;
}

/* ---- the table and the sources ---- */

static int check_sources(char **folders, int n)
{
    char command[4096] = "grep -rhoE 'RS_FAILPOINT\\(\"[^\"]+\"\\)'";
    char line[256];
    bool seen[NUM_POINTS] = {false};
    int wrong = 0;
    FILE *grep;

    for (int i = 0; i < n; i++) {
        strncat(command, " ", sizeof(command) - strlen(command) - 1);
        strncat(command, folders[i], sizeof(command) - strlen(command) - 1);
    }
    grep = popen(command, "r");
    while (grep != NULL && fgets(line, sizeof(line), grep) != NULL) {
        char *name = strchr(line, '"') + 1;
        int i = 0;

        *strchr(name, '"') = '\0';
        while (i < NUM_POINTS && strcmp(points[i].name, name) != 0)
            i++;
        if (i < NUM_POINTS)
            seen[i] = true;
        else if (!is_elsewhere(name))
            wrong = RANK_FAIL("no case for failpoint %s", name);
    }
    if (grep == NULL || pclose(grep) != 0)
        return RANK_FAIL("no failpoints in the sources");
    for (int i = 0; i < NUM_POINTS; i++) {
        if (!seen[i])
            wrong = RANK_FAIL("failpoint %s is gone", points[i].name);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "check") == 0)
        return check_sources(argv + 2, argc - 2);
    if (argc < 2)
        return 2;
    /* Which messages are announced is for the test to say, not for costs. */
    setenv("RSCHED_MAPPED", "12k", 1);
    setenv("RSCHED_CMA", "0", 1);
    return play_all(strcmp(argv[1], "delay") == 0 ? "delay:20ms" : argv[1],
                    argc > 2 ? argv[2] : NULL);
}
