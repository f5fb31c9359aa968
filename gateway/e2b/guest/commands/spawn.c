/*
 * Starting a command.
 *
 * Always: between fork and exec only functions that are safe there are called, because other threads may hold
 * any lock; all that the child needs is made before.
 */
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child has. */
struct child {
  int standard[3];
  /* Receives the error of what failed. */
  int report;
  /* Where the program may be, and a NULL. */
  char **programs;
};

static void make_child(const struct command *command, const struct child *child) {
  const struct user *user = command->user;
  setsid();
  for (int at = 0; at < 3; at++)
    if (dup2(child->standard[at], at) < 0) goto failed;
  if (command->has_terminal && ioctl(0, TIOCSCTTY, 0) < 0) goto failed;
  if (chdir(command->cwd) < 0) goto failed;
  if (getuid() == 0 && user->uid != 0 &&
      (setgroups(user->group_count, user->groups) < 0 || setgid(user->gid) < 0 || setuid(user->uid) < 0))
    goto failed;
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  int why = ENOENT;
  for (char **at = child->programs; *at != NULL; at++) {
    execve(*at, command->argv, command->environment);
    if (errno != ENOENT && errno != ENOTDIR) why = errno;
  }
  errno = why;
failed:;
  int error = errno;
  ssize_t written = write(child->report, &error, sizeof error);
  _exit(written < 0 ? 126 : 127);
}

/* The program itself, or each folder of PATH with it. */
static char **programs_of(const struct command *command) {
  const char *name = command->argv[0];
  if (strchr(name, '/') != NULL || command->search == NULL) {
    char **only = must(calloc(2, sizeof *only));
    only[0] = must(strdup(name));
    return only;
  }
  size_t count = 2;
  for (const char *at = command->search; *at != '\0'; at++) count += *at == ':';
  char **programs = must(calloc(count, sizeof *programs));
  const char *at = command->search;
  for (size_t index = 0; index + 1 < count; index++) {
    size_t length = strcspn(at, ":");
    struct text text = {0};
    text_add(&text, at, length);
    text_say(&text, "%s%s", length == 0 ? "" : "/", name);
    programs[index] = text.bytes;
    at += length + (at[length] == ':');
  }
  return programs;
}

static void close_both(int pair[2]) {
  for (int at = 0; at < 2; at++)
    if (pair[at] >= 0) close(pair[at]);
}

static bool open_terminal(const struct command *command, int pair[2]) {
  char name[64];
  struct winsize size = {.ws_col = command->cols, .ws_row = command->rows};
  pair[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (pair[0] < 0 || grantpt(pair[0]) < 0 || unlockpt(pair[0]) < 0 || ptsname_r(pair[0], name, sizeof name) != 0) return false;
  pair[1] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (pair[1] < 0) return false;
  if (getuid() == 0 && fchown(pair[1], command->user->uid, (gid_t)-1) < 0) return false;
  return ioctl(pair[0], TIOCSWINSZ, &size) == 0;
}

/* The pairs of input, both outputs and the report; the first of each is ours, except of the input. */
static bool open_pairs(const struct command *command, int pairs[4][2]) {
  if (pipe2(pairs[3], O_CLOEXEC) < 0) return false;
  if (command->has_terminal) return open_terminal(command, pairs[1]);
  if (pipe2(pairs[1], O_CLOEXEC) < 0 || pipe2(pairs[2], O_CLOEXEC) < 0) return false;
  if (command->has_input) return pipe2(pairs[0], O_CLOEXEC) == 0;
  pairs[0][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return pairs[0][0] >= 0;
}

/* 0: it has begun. */
static int read_report(int number) {
  int error = 0;
  ssize_t length;
  do length = read(number, &error, sizeof error);
  while (length < 0 && errno == EINTR);
  return length == (ssize_t)sizeof error ? error : 0;
}

bool spawn(const struct command *command, struct spawned *spawned, struct fault *fault) {
  struct stat found;
  if (stat(command->cwd, &found) < 0 || !S_ISDIR(found.st_mode))
    return fault_set(fault, "invalid_argument", "cwd '%.300s' does not exist", command->cwd), false;
  int pairs[4][2] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
  struct child child = {.programs = programs_of(command)};
  pid_t pid = -1;
  int error = open_pairs(command, pairs) ? 0 : errno;
  if (error == 0) {
    int terminal = pairs[1][1];
    const int pipes[3] = {pairs[0][0], pairs[1][1], pairs[2][1]};
    for (int at = 0; at < 3; at++) child.standard[at] = command->has_terminal ? terminal : pipes[at];
    child.report = pairs[3][1];
    pid = fork();
    if (pid == 0) make_child(command, &child);
    error = pid < 0 ? errno : 0;
  }
  for (char **at = child.programs; *at != NULL; at++) free(*at);
  free(child.programs);
  if (pairs[3][1] >= 0) close(pairs[3][1]);
  pairs[3][1] = -1;
  if (error == 0 && (error = read_report(pairs[3][0])) != 0) waitpid(pid, NULL, 0);
  if (error != 0) {
    for (int at = 0; at < 4; at++) close_both(pairs[at]);
    fault_set(fault, "invalid_argument", "error starting process '%.200s': %s", command->argv[0], strerror(error));
    return false;
  }
  close(pairs[3][0]);
  if (pairs[0][0] >= 0) close(pairs[0][0]);
  close(pairs[1][1]);
  if (pairs[2][1] >= 0) close(pairs[2][1]);
  *spawned = (struct spawned){.pid = pid, .input = pairs[0][1], .outputs = {pairs[1][0], pairs[2][0]}, .terminal = -1};
  if (command->has_terminal) {
    spawned->terminal = pairs[1][0];
    spawned->outputs[0] = -1;
  }
  return true;
}
