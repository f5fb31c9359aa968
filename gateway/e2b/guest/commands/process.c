/*
 * The commands and terminals of a sandbox.
 *
 * Always:
 * - A command lives until it ends, is killed, or its time is over. The streams that show it come and go.
 * - Output goes to the streams that are there; without one it is read and dropped. A stream that is not
 *   read holds the command up once STREAM_BYTES_MAX wait.
 * - A command that has ended can be connected to for KEPT_MS more, if no more than ENDED_MAX have ended
 *   since.
 *
 * A helper that ends leaves its commands running, without a stream.
 */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "spawn.h"

#define STREAM_BYTES_MAX ((size_t)1024 * 1024)
#define PIECE_BYTES 32768
#define KEPT_MS 30000
/* How long the output of programs that a command left behind is waited for. */
#define LEFT_BEHIND_MS 1000
#define RUNNING_MAX 1000
#define ENDED_MAX 1000
#define STACK_BYTES ((size_t)256 * 1024)

struct stream {
  struct stream *next;
  struct event *first;
  struct event **last;
  size_t bytes;
};

struct process {
  struct process *next;
  unsigned users;
  pid_t pid;
  char *config;
  char *tag;
  /* -1: not open. The terminal is all three. */
  int input;
  int outputs[2];
  int terminal;
  int handle;
  uint64_t until;
  struct stream *streams;
  bool has_ended;
  bool is_late;
  int code;
  uint64_t ended_at;
  pthread_cond_t changed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct process *processes;

void fault_set(struct fault *fault, const char *code, const char *format, ...) {
  va_list given;
  va_start(given, format);
  vsnprintf(fault->message, sizeof fault->message, format, given);
  va_end(given);
  fault->code = code;
}

uint64_t monotonic_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void close_at(int *number) {
  if (*number >= 0) close(*number);
  *number = -1;
}

/* With the lock. */
static void release(struct process *process) {
  if (--process->users > 0) return;
  close_at(&process->input);
  close_at(&process->outputs[0]);
  close_at(&process->outputs[1]);
  close_at(&process->terminal);
  close_at(&process->handle);
  pthread_cond_destroy(&process->changed);
  free(process->config);
  free(process->tag);
  free(process);
}

void process_release(struct process *process) {
  pthread_mutex_lock(&lock);
  release(process);
  pthread_mutex_unlock(&lock);
}

pid_t process_pid(const struct process *process) { return process->pid; }

/* With the lock: forgets those that can no longer be connected to. Newer ones are first. */
static size_t forget_ended(void) {
  size_t running = 0, ended = 0;
  uint64_t now = monotonic_ms();
  for (struct process **at = &processes; *at != NULL;) {
    struct process *each = *at;
    if (!each->has_ended) running++;
    else if (++ended > ENDED_MAX || now - each->ended_at > KEPT_MS) {
      *at = each->next;
      release(each);
      continue;
    }
    at = &each->next;
  }
  return running;
}

static void put(struct stream *stream, enum event_kind kind, const void *bytes, size_t length, const struct process *end) {
  struct event *event = must(calloc(1, sizeof *event + length));
  event->kind = kind;
  event->length = length;
  if (length > 0) memcpy(event->bytes, bytes, length);
  if (end != NULL) {
    event->code = end->code;
    event->is_late = end->is_late;
  }
  *stream->last = event;
  stream->last = &event->next;
  stream->bytes += length;
}

/* With the lock: whether a reader is behind. A killed command's output is not waited for. */
static bool is_full(const struct process *process) {
  for (const struct stream *each = process->streams; each != NULL && !process->is_late; each = each->next)
    if (each->bytes > STREAM_BYTES_MAX) return true;
  return false;
}

/* With the lock; false: the time has come. */
static bool wait_changed(struct process *process, uint64_t until) {
  struct timespec deadline = {.tv_sec = (time_t)(until / 1000), .tv_nsec = (long)(until % 1000) * 1000000};
  return pthread_cond_timedwait(&process->changed, &lock, &deadline) == 0;
}

/* With the lock: its time is over, and it ends with what it has started. */
static void kill_late(struct process *process) {
  process->is_late = true;
  process->until = 0;
  kill(-process->pid, SIGKILL);
}

static void publish(struct process *process, enum event_kind kind, const void *bytes, size_t length) {
  pthread_mutex_lock(&lock);
  while (is_full(process)) {
    if (process->until == 0) pthread_cond_wait(&process->changed, &lock);
    else if (!wait_changed(process, process->until)) kill_late(process);
  }
  for (struct stream *each = process->streams; each != NULL; each = each->next) put(each, kind, bytes, length, NULL);
  pthread_cond_broadcast(&process->changed);
  pthread_mutex_unlock(&lock);
}

static void publish_end(struct process *process, int status) {
  pthread_mutex_lock(&lock);
  process->code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  process->has_ended = true;
  process->ended_at = monotonic_ms();
  for (struct stream *each = process->streams; each != NULL; each = each->next) put(each, EVENT_END, NULL, 0, process);
  pthread_cond_broadcast(&process->changed);
  pthread_mutex_unlock(&lock);
}

static int wait_ms(uint64_t until) {
  uint64_t now = monotonic_ms();
  if (until == 0) return -1;
  return now >= until ? 0 : until - now > 60000 ? 60000 : (int)(until - now);
}

static void end_late(struct process *process) {
  pthread_mutex_lock(&lock);
  kill_late(process);
  pthread_mutex_unlock(&lock);
}

/* Reads what is there; false: this output is over. */
static bool pump(struct process *process, int number, enum event_kind kind) {
  static __thread unsigned char bytes[PIECE_BYTES];
  ssize_t length = read(number, bytes, sizeof bytes);
  if (length < 0 && errno == EINTR) return true;
  if (length > 0) publish(process, kind, bytes, (size_t)length);
  // EIO: a terminal whose last program has ended.
  return length > 0;
}

/* Reads its output to the end, and learns its end. Runs on while a program that it left behind writes. */
static void *watch(void *given) {
  struct process *process = given;
  bool is_terminal = process->terminal >= 0;
  int numbers[2] = {is_terminal ? process->terminal : process->outputs[0], process->outputs[1]};
  enum event_kind kinds[2] = {is_terminal ? EVENT_TERMINAL : EVENT_STDOUT, EVENT_STDERR};
  int status = 0;
  bool has_exited = false, is_told = false;
  uint64_t told_by = 0;
  while (numbers[0] >= 0 || numbers[1] >= 0 || !has_exited) {
    struct pollfd polled[3] = {
      {.fd = numbers[0], .events = POLLIN}, {.fd = numbers[1], .events = POLLIN},
      {.fd = has_exited ? -1 : process->handle, .events = POLLIN}};
    int ready = poll(polled, 3, wait_ms(has_exited ? (is_told ? 0 : told_by) : process->until));
    if (ready == 0 && has_exited && !is_told && monotonic_ms() >= told_by) {
      publish_end(process, status);
      is_told = true;
    }
    if (ready == 0 && !has_exited && process->until != 0 && monotonic_ms() >= process->until) end_late(process);
    if (ready <= 0) continue;
    for (int at = 0; at < 2; at++)
      if (polled[at].revents != 0 && !pump(process, numbers[at], kinds[at])) numbers[at] = -1;
    if (polled[2].revents != 0 && waitpid(process->pid, &status, 0) == process->pid) {
      has_exited = true;
      process->until = 0;
      told_by = monotonic_ms() + LEFT_BEHIND_MS;
    }
  }
  if (!is_told) publish_end(process, status);
  process_release(process);
  return NULL;
}

static bool begin(struct process *process) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  bool has_begun = pthread_create(&thread, &attributes, watch, process) == 0;
  pthread_attr_destroy(&attributes);
  return has_begun;
}

static struct stream *attach(struct process *process) {
  struct stream *stream = must(calloc(1, sizeof *stream));
  stream->last = &stream->first;
  if (process->has_ended) put(stream, EVENT_END, NULL, 0, process);
  else {
    stream->next = process->streams;
    process->streams = stream;
  }
  return stream;
}

struct process *process_start(const struct command *command, struct stream **stream, struct fault *fault) {
  pthread_mutex_lock(&lock);
  size_t running = forget_ended();
  pthread_mutex_unlock(&lock);
  if (running >= RUNNING_MAX) return fault_set(fault, "resource_exhausted", "%d processes run already", RUNNING_MAX), NULL;
  struct spawned spawned;
  if (!spawn(command, &spawned, fault)) return NULL;
  struct process *process = must(calloc(1, sizeof *process));
  *process = (struct process){
    .users = 3, .pid = spawned.pid, .input = spawned.input, .outputs = {spawned.outputs[0], spawned.outputs[1]},
    .terminal = spawned.terminal, .config = must(strndup(command->config, command->config_length)),
    .tag = command->tag == NULL ? NULL : must(strdup(command->tag)),
    .until = command->timeout_ms == 0 ? 0 : monotonic_ms() + command->timeout_ms};
  process->handle = (int)syscall(SYS_pidfd_open, spawned.pid, 0);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&process->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  *stream = attach(process);
  if (process->handle < 0 || !begin(process)) abort();
  pthread_mutex_lock(&lock);
  process->next = processes;
  processes = process;
  pthread_mutex_unlock(&lock);
  return process;
}

struct process *process_find(long pid, const char *tag, struct fault *fault) {
  pthread_mutex_lock(&lock);
  forget_ended();
  struct process *found = processes;
  while (found != NULL && (tag == NULL ? found->pid != pid : found->tag == NULL || strcmp(found->tag, tag) != 0))
    found = found->next;
  if (found != NULL) found->users++;
  pthread_mutex_unlock(&lock);
  if (found != NULL) return found;
  if (tag == NULL) fault_set(fault, "not_found", "process with pid %ld not found", pid);
  else fault_set(fault, "not_found", "process with tag %.200s not found", tag);
  return NULL;
}

struct stream *process_attach(struct process *process) {
  pthread_mutex_lock(&lock);
  struct stream *stream = attach(process);
  pthread_mutex_unlock(&lock);
  return stream;
}

void process_detach(struct process *process, struct stream *stream) {
  pthread_mutex_lock(&lock);
  for (struct stream **at = &process->streams; *at != NULL; at = &(*at)->next)
    if (*at == stream) {
      *at = stream->next;
      break;
    }
  pthread_cond_broadcast(&process->changed);
  pthread_mutex_unlock(&lock);
  for (struct event *event = stream->first; event != NULL;) {
    struct event *next = event->next;
    free(event);
    event = next;
  }
  free(stream);
}

struct event *process_take(struct process *process, struct stream *stream, uint64_t ms) {
  uint64_t until = monotonic_ms() + ms;
  pthread_mutex_lock(&lock);
  while (stream->first == NULL && wait_changed(process, until)) continue;
  struct event *event = stream->first;
  if (event != NULL) {
    stream->first = event->next;
    if (stream->first == NULL) stream->last = &stream->first;
    stream->bytes -= event->length;
    pthread_cond_broadcast(&process->changed);
  }
  pthread_mutex_unlock(&lock);
  return event;
}

/* A copy of its input that another call cannot close; below 0: it has none. */
static int input_of(struct process *process) {
  pthread_mutex_lock(&lock);
  int number = process->terminal >= 0 ? process->terminal : process->input;
  int copy = number < 0 ? -1 : fcntl(number, F_DUPFD_CLOEXEC, 3);
  pthread_mutex_unlock(&lock);
  return copy;
}

bool process_write(struct process *process, const void *bytes, size_t length, bool is_terminal, struct fault *fault) {
  bool has_terminal = process->terminal >= 0;
  if (has_terminal != is_terminal)
    return fault_set(fault, "failed_precondition", "it has %s terminal", has_terminal ? "a" : "no"), false;
  int number = input_of(process);
  if (number < 0) return fault_set(fault, "internal", "the standard input of the process is not open"), false;
  bool is_written = true;
  for (const char *at = bytes; length > 0 && is_written;) {
    ssize_t written = write(number, at, length);
    if (written < 0 && errno == EINTR) continue;
    is_written = written > 0;
    if (is_written) at += written, length -= (size_t)written;
  }
  close(number);
  if (!is_written) fault_set(fault, "internal", "the process reads no more of its standard input");
  return is_written;
}

bool process_close_input(struct process *process, struct fault *fault) {
  if (process->terminal >= 0)
    return fault_set(fault, "failed_precondition", "the input of a terminal cannot be closed; send it the character 4"), false;
  pthread_mutex_lock(&lock);
  close_at(&process->input);
  pthread_mutex_unlock(&lock);
  return true;
}

bool process_resize(struct process *process, unsigned short cols, unsigned short rows, struct fault *fault) {
  struct winsize size = {.ws_col = cols, .ws_row = rows};
  if (process->terminal >= 0 && ioctl(process->terminal, TIOCSWINSZ, &size) == 0) return true;
  return fault_set(fault, "failed_precondition", "the process has no terminal"), false;
}

bool process_signal(struct process *process, int number, struct fault *fault) {
  pthread_mutex_lock(&lock);
  bool runs = !process->has_ended;
  pthread_mutex_unlock(&lock);
  if (runs && syscall(SYS_pidfd_send_signal, process->handle, number, NULL, 0) == 0) return true;
  return fault_set(fault, "not_found", "process with pid %d not found", process->pid), false;
}

void process_list(struct text *text) {
  pthread_mutex_lock(&lock);
  text_say(text, "{\"processes\":[");
  const char *comma = "";
  for (struct process *each = processes; each != NULL; each = each->next) {
    if (each->has_ended) continue;
    text_say(text, "%s{\"config\":%s,\"pid\":%d", comma, each->config, each->pid);
    if (each->tag != NULL) {
      text_say(text, ",\"tag\":");
      text_add_json(text, each->tag);
    }
    text_say(text, "}");
    comma = ",";
  }
  text_say(text, "]}");
  pthread_mutex_unlock(&lock);
}
