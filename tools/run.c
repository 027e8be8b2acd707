/* SPDX-License-Identifier: BSD-3-Clause */
/* rsched run: an MPI program with the backend preloaded. The preload object is
 * chosen by the MPI library that the program needs or, when it does not say
 * (scripts), by the launcher; it is set for the ranks only, with the
 * launcher's own option, as are the settings of the environment where ranks on other
 * nodes would not get them, and the launcher then takes this process's place, so
 * that the exit status is its. Slurm's srun, which is of no MPI, starts this command
 * on each rank. The object that wraps malloc is preloaded too,
 * unless memory must not be adopted (docs/adopted.md). */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/tool.h"

enum mpi { MPI_UNKNOWN, MPI_OPENMPI, MPI_MPICH };

static const char *const mpi_names[] = {"?", "Open MPI", "MPICH"};
static const char *const mpi_objects[] = {NULL, "librsched-openmpi.so",
                                          "librsched-mpich.so"};
static const char heap_object[] = "librsched-heap.so";

/* ---- which MPI a program needs ---- */

static enum mpi library_mpi(const char *name)
{
    static const struct {
        const char *name;
        enum mpi mpi;
    } known[] = {
        {"libmpi.so.40", MPI_OPENMPI},     {"libmpi_cxx.so.40", MPI_OPENMPI},
        {"libmpi_mpifh.so.40", MPI_OPENMPI},
        {"libmpi_usempif08.so.40", MPI_OPENMPI},
        {"libmpich.so.12", MPI_MPICH},     {"libmpichcxx.so.12", MPI_MPICH},
        {"libmpichfort.so.12", MPI_MPICH}, {"libmpi.so.12", MPI_MPICH},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i].name) == 0)
            return known[i].mpi;
    }
    return MPI_UNKNOWN;
}

/* Whether [offset, offset + length) lies in a file of `size` bytes. */
static bool inside(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

/* The string table that the dynamic section names: an address, found through
 * the loaded segments. NULL when the file is damaged. */
static const char *strings(const char *file, uint64_t size,
                           const Elf64_Phdr *segments, size_t num,
                           uint64_t address, uint64_t *length)
{
    for (size_t i = 0; i < num; i++) {
        const Elf64_Phdr *s = &segments[i];
        uint64_t at = address - s->p_vaddr + s->p_offset;

        if (s->p_type != PT_LOAD || address < s->p_vaddr ||
            address - s->p_vaddr >= s->p_filesz || at >= size)
            continue;
        *length = size - at;
        return file + at;
    }
    return NULL;
}

static enum mpi needed_mpi(const char *file, uint64_t size)
{
    const Elf64_Ehdr *header = (const void *)file;
    const Elf64_Phdr *segments;
    const Elf64_Dyn *dynamic = NULL;
    uint64_t num = 0, length = 0, table = 0;
    enum mpi found = MPI_UNKNOWN;
    const char *names;

    if (size < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) ||
        header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_phoff % _Alignof(Elf64_Phdr) != 0 ||
        !inside(header->e_phoff, header->e_phnum * sizeof(*segments), size))
        return MPI_UNKNOWN;
    segments = (const void *)(file + header->e_phoff);
    for (size_t i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type != PT_DYNAMIC ||
            segments[i].p_offset % _Alignof(Elf64_Dyn) != 0 ||
            !inside(segments[i].p_offset, segments[i].p_filesz, size))
            continue;
        dynamic = (const void *)(file + segments[i].p_offset);
        num = segments[i].p_filesz / sizeof(*dynamic);
    }
    for (uint64_t i = 0; i < num; i++) {
        if (dynamic[i].d_tag == DT_STRTAB)
            table = dynamic[i].d_un.d_ptr;
    }
    names = strings(file, size, segments, header->e_phnum, table, &length);
    for (uint64_t i = 0; i < num && names != NULL; i++) {
        uint64_t at = dynamic[i].d_un.d_val;

        if (dynamic[i].d_tag == DT_NEEDED && at < length &&
            memchr(names + at, '\0', length - at) != NULL &&
            found == MPI_UNKNOWN)
            found = library_mpi(names + at);
    }
    return found;
}

static enum mpi file_mpi(const char *path)
{
    enum mpi found = MPI_UNKNOWN;
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *file;

    if (fd < 0)
        return MPI_UNKNOWN;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_size > 0) {
        file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd,
                    0);
        if (file != MAP_FAILED) {
            found = needed_mpi(file, (uint64_t)status.st_size);
            munmap(file, (size_t)status.st_size);
        }
    }
    close(fd);
    return found;
}

/* Where a command is found; false when it is not. */
static bool find_command(const char *name, char *path, size_t size)
{
    const char *from = getenv("PATH");

    if (strchr(name, '/') != NULL) {
        snprintf(path, size, "%s", name);
        return access(path, X_OK) == 0;
    }
    while (from != NULL && *from != '\0') {
        int length = (int)strcspn(from, ":");
        struct stat status;

        snprintf(path, size, "%.*s/%s", length, from, name);
        if (access(path, X_OK) == 0 && stat(path, &status) == 0 &&
            S_ISREG(status.st_mode))
            return true;
        from += length + (from[length] == ':');
    }
    return false;
}

/* The first argument that is a program of a known MPI: *program points to it. */
static enum mpi program_mpi(char **arguments, char ***program)
{
    char path[PATH_MAX];

    for (; *arguments != NULL; arguments++) {
        enum mpi mpi = MPI_UNKNOWN;

        if (**arguments != '-' && find_command(*arguments, path, sizeof(path)))
            mpi = file_mpi(path);
        if (mpi != MPI_UNKNOWN) {
            *program = arguments;
            return mpi;
        }
    }
    return MPI_UNKNOWN;
}

/* ---- which MPI a launcher belongs to ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool is_launcher(const char *name)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun",
                                        "prterun"};
    const char *base = base_name(name);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t length = strlen(names[i]);

        if (strncmp(base, names[i], length) == 0 &&
            (base[length] == '\0' || base[length] == '.' ||
             base[length] == '-'))
            return true;
    }
    return false;
}

/* What the launcher says of itself. */
static enum mpi launcher_mpi(const char *launcher)
{
    char text[4096];
    size_t length = 0;
    ssize_t n;
    pid_t child;
    int out[2];

    if (pipe2(out, O_CLOEXEC) != 0)
        return MPI_UNKNOWN;
    child = fork();
    if (child == 0) {
        dup2(out[1], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        execlp(launcher, launcher, "--version", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    while (child > 0 && length < sizeof(text) - 1 &&
           (n = read(out[0], text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)n;
    close(out[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    text[length] = '\0';
    if (strstr(text, "Open MPI") || strstr(text, "OpenRTE") ||
        strstr(text, "PRRTE") || strstr(text, "open-mpi.org"))
        return MPI_OPENMPI;
    if (strstr(text, "HYDRA") || strstr(text, "MPICH"))
        return MPI_MPICH;
    return MPI_UNKNOWN;
}

/* ---- the preload objects ---- */

/* Beside this program, in the build tree as where it was installed. */
static bool find_object(const char *name, char *path, size_t size)
{
    static const char *const places[] = {RSCHED_PRELOAD_PLACE,
                                         "../lib/rsched"};
    char self[PATH_MAX], joined[2 * PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (n <= 0)
        return false;
    self[n] = '\0';
    slash = strrchr(self, '/');
    *slash = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char real[PATH_MAX];

        snprintf(joined, sizeof(joined), "%s/%s/%s", self, places[i], name);
        if (realpath(joined, real) != NULL && strlen(real) < size) {
            strcpy(path, real);
            return true;
        }
    }
    return false;
}

/* Whether ranks may adopt memory: not if the setting says so here, and it is not
 * given by an option of the launcher or by `env`, whose value the object looks at. */
static bool may_adopt(char **arguments)
{
    static const char name[] = "RSCHED_ADOPT";
    const char *value = getenv(name);

    if (value == NULL || value[strspn(value, "0")] != '\0')
        return true;
    for (; *arguments != NULL; arguments++) {
        if (strncmp(*arguments, name, strlen(name)) == 0)
            return true;
    }
    return false;
}

/* Of a name with one of these the linker takes the parts, finds no file, and goes on. */
static int check_name(const char *path)
{
    if (strpbrk(path, " :") == NULL)
        return TOOL_OK;
    return tool_bad("cannot preload %s: LD_PRELOAD ends a name at a space or a colon; "
                    "rsched has to lie in a folder without them", path);
}

/* The backend, the object of malloc if it is wanted, and what was preloaded
 * before. */
static int find_preload(enum mpi mpi, bool heap, char *preload, size_t size)
{
    const char *others = getenv("LD_PRELOAD");
    char backend[PATH_MAX], wrapper[PATH_MAX] = "";
    int n;

    if (!find_object(mpi_objects[mpi], backend, sizeof(backend)))
        return tool_bad("there is no backend for %s here (%s)",
                        mpi_names[mpi], mpi_objects[mpi]);
    if (heap && !find_object(heap_object, wrapper, sizeof(wrapper)))
        return tool_bad("there is no %s here; RSCHED_ADOPT=0 does "
                        "without", heap_object);
    if (check_name(backend) != TOOL_OK || check_name(wrapper) != TOOL_OK)
        return TOOL_BAD_INPUT;
    n = snprintf(preload, size, "%s%s%s%s%s", backend, heap ? ":" : "", wrapper,
                 others != NULL && *others != '\0' ? ":" : "",
                 others != NULL ? others : "");
    if (n < 0 || (size_t)n >= size)
        return tool_bad("LD_PRELOAD is too long");
    return TOOL_OK;
}

/* ---- the new command line ---- */

struct line {
    char **words;
    size_t num;
};

static bool add(struct line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool add(struct line *line, const char *format, ...)
{
    char **words = realloc(line->words, (line->num + 2) * sizeof(*words));
    va_list args;
    int n;

    if (words == NULL) {
        tool_bad("out of memory");
        return false;
    }
    line->words = words;
    va_start(args, format);
    n = vasprintf(&words[line->num], format, args);
    va_end(args);
    if (n < 0) {
        tool_bad("out of memory");
        return false;
    }
    words[++line->num] = NULL;
    return true;
}

static void line_free(struct line *line)
{
    for (size_t i = 0; i < line->num; i++)
        free(line->words[i]);
    free(line->words);
}

/* The settings that are in the environment here. Hydra gives ranks all of it, Open MPI
 * on other nodes what it is told to. */
static bool add_settings(struct line *line)
{
    static const char prefix[] = "RSCHED_", report[] = "RSCHED_REPORT=";
    bool good = true;

    for (char **v = environ; *v != NULL && good; v++) {
        if (strncmp(*v, prefix, strlen(prefix)) == 0 &&
            strncmp(*v, report, strlen(report)) != 0)
            good = add(line, "-x") && add(line, "%.*s", (int)strcspn(*v, "="), *v);
    }
    return good;
}

/* The options with which a launcher sets the ranks' environment. Open MPI's
 * hold for one program of several ("a : b"), MPICH's for all. The user's own come
 * after them, and the last one counts. */
static bool add_environment(struct line *line, enum mpi mpi,
                            const char *preload, const char *report)
{
    if (mpi == MPI_OPENMPI)
        return add(line, "-x") && add(line, "LD_PRELOAD=%s", preload) &&
               add(line, "-x") && add(line, "RSCHED_REPORT=%s", report) &&
               add_settings(line);
    return add(line, "-genv") && add(line, "LD_PRELOAD") &&
           add(line, "%s", preload) && add(line, "-genv") &&
           add(line, "RSCHED_REPORT") && add(line, "%s", report);
}

static bool build_line(struct line *line, char **arguments, enum mpi launcher,
                       const char *preload, const char *report)
{
    bool good = add(line, "%s", arguments[0]) &&
                add_environment(line, launcher, preload, report);

    for (char **a = arguments + 1; *a != NULL && good; a++) {
        good = add(line, "%s", *a);
        if (launcher == MPI_OPENMPI && strcmp(*a, ":") == 0)
            good = good && add_environment(line, launcher, preload, report);
    }
    return good;
}

static int launch(char **words, bool show)
{
    for (char **word = words; show && *word != NULL; word++)
        fprintf(stderr, "%s%s", word == words ? "rsched run: " : " ", *word);
    if (show)
        fprintf(stderr, "\n");
    fflush(NULL);
    execvp(words[0], words);
    return tool_bad("cannot run '%s': %s", words[0], strerror(errno));
}

/* ---- the command ---- */

/* srun [OPTIONS] app: each rank is this command with the program. So what is preloaded
 * is preloaded there alone, whatever `--export` says. */
static int run_by_srun(char **arguments, const char *report, bool show)
{
    struct line line = {0};
    char **program = NULL, self[PATH_MAX];
    bool good = true;
    int status = TOOL_FAILED;
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n <= 0)
        return tool_bad("cannot tell where rsched is: %s", strerror(errno));
    self[n] = '\0';
    /* Nor what a shell is given as a script. */
    if (program_mpi(arguments + 1, &program) == MPI_UNKNOWN ||
        strcmp(program[-1], "-c") == 0)
        return tool_bad("none of what '%s' is to start is linked with Open MPI 4 or "
                        "MPICH; a script is to have 'rsched run ./app' in it, and "
                        "'%s' to start the script", arguments[0], arguments[0]);
    for (char **a = arguments; *a != NULL && good; a++) {
        if (a == program)
            good = add(&line, "%s", self) && add(&line, "run") &&
                   add(&line, "--report=%s", report) && add(&line, "--");
        good = good && add(&line, "%s", *a);
    }
    if (good)
        status = launch(line.words, show);
    line_free(&line);
    return status;
}

static int run_accelerated(char **arguments, const char *report, bool show)
{
    char path[PATH_MAX], preload[4 * PATH_MAX], **program = NULL;
    bool launched = is_launcher(arguments[0]);
    enum mpi launcher, needed;
    struct line line = {0};
    int status = TOOL_FAILED;

    if (!find_command(arguments[0], path, sizeof(path)))
        return tool_bad("cannot run '%s': no such command", arguments[0]);
    if (strcmp(base_name(arguments[0]), "srun") == 0)
        return run_by_srun(arguments, report, show);
    launcher = launched ? launcher_mpi(path) : MPI_UNKNOWN;
    needed = program_mpi(launched ? arguments + 1 : arguments, &program);
    if (launched && launcher == MPI_UNKNOWN)
        return tool_bad("'%s --version' names neither Open MPI nor MPICH, so "
                        "no backend fits", arguments[0]);
    if (!launched && needed == MPI_UNKNOWN)
        return tool_bad("'%s' is neither an MPI launcher (mpirun, mpiexec, srun) "
                        "nor linked with Open MPI 4 (libmpi.so.40) or MPICH "
                        "(libmpich.so.12)", arguments[0]);
    if (launched && needed != MPI_UNKNOWN && needed != launcher)
        return tool_bad("'%s' needs %s, but '%s' is the launcher of %s",
                        *program, mpi_names[needed], arguments[0],
                        mpi_names[launcher]);
    if (needed == MPI_UNKNOWN)
        needed = launcher;
    status = find_preload(needed, may_adopt(arguments), preload,
                          sizeof(preload));
    if (status != TOOL_OK)
        return status;
    status = TOOL_FAILED;
    if (show)
        fprintf(stderr, "rsched run: %s, %s\n", mpi_names[needed], preload);
    if (!launched) {
        setenv("LD_PRELOAD", preload, 1);
        setenv("RSCHED_REPORT", report, 1);
        return launch(arguments, show);
    }
    if (build_line(&line, arguments, launcher, preload, report))
        status = launch(line.words, show);
    line_free(&line);
    return status;
}

/* The report that is asked for: by the option, the environment, or nobody. */
static int choose_report(const char **report)
{
    const char *setting = getenv("RSCHED_REPORT");

    if (*report == NULL)
        *report = setting != NULL ? setting : "summary";
    return tool_word("report", *report, "none|summary|full|json") < 0
               ? TOOL_BAD_INPUT
               : TOOL_OK;
}

/* Standard streams that are closed: their numbers would go to other files, and launchers that
 * write to them wait for ever. */
static void open_closed_streams(void)
{
    int fd = open("/dev/null", O_RDWR);

    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = dup(fd);
    if (fd > STDERR_FILENO)
        close(fd);
}

int tool_run(const struct tool_command *command, int argc, char **argv)
{
    const char *report = NULL;
    bool native = false, verbose = false;
    const struct tool_option options[] = {
        {"report", 'r', "WHAT",
         "none, summary (the default), full (for each process) or json",
         &report, NULL},
        {"native", 'n', NULL, "without the backend, for comparison", NULL,
         &native},
        {"verbose", 'v', NULL, "print the command line that is run", NULL,
         &verbose},
        {NULL, 0, NULL, NULL, NULL, NULL}};
    int first;
    /* Options end at the launcher, whose own options are not ours. */
    int status = tool_parse(command, argc, argv, options, &first, 0, TOOL_REST);

    if (status != TOOL_GO_ON)
        return status;
    open_closed_streams();
    if (first >= argc)
        return tool_bad("run: no program given (rsched run mpirun -np 4 "
                        "./app)");
    status = choose_report(&report);
    if (status != TOOL_OK)
        return status;
    if (native)
        return launch(argv + first, verbose);
    return run_accelerated(argv + first, report, verbose);
}
